"""The fraction of effective parameters of networks far too large for any Hessian, from the rank formulas alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Lines, Series, View
from hessmap_research.studies.hessian_ranks import SYMBOLS

_WIDTHS = [head * 10**decade for decade in range(6) for head in (1, 2, 5)] + [10**6]
_DEPTHS = [2, 3, 4, 7, *(head * 10**decade for decade in range(1, 5) for head in (1, 2, 5)), 10**5, 10**6]


def cases() -> tuple[Case, ...]:
    """Figure 5 left and middle (the number of outputs is not printed: 10, as in its data sets), and Figure 9b."""
    by_width = grid(sweep=["width"], width=_WIDTHS, num_layers=[4], input_dim=[2352], output_dim=[10])
    by_depth = grid(sweep=["depth"], width=[5000], num_layers=_DEPTHS, input_dim=[2352], output_dim=[10])
    with_bias = grid(sweep=["bias"], width=[1000], num_layers=_DEPTHS, input_dim=[784], output_dim=[100])
    return (*by_width, *by_depth, *with_bias)


def measure(case: Case) -> dict[str, Any]:
    num_parameters, ranks = _ranks(case, bias=False)
    record: dict[str, Any] = {"num_parameters": num_parameters, "rank": ranks}
    record["fraction"] = {part: rank / num_parameters for part, rank in ranks.items()}
    if case["sweep"] == "bias":
        num_parameters, ranks = _ranks(case, bias=True)
        record["fraction_with_bias"] = ranks["loss"] / num_parameters
        record["lowered_by"] = 1 - record["fraction_with_bias"] / record["fraction"]["loss"]
    return record


def _ranks(case: Case, bias: bool) -> tuple[int, dict[str, int]]:
    from hessmap.networks import FullyConnected
    from hessmap.theory import predict_ranks

    hidden = (case["width"],) * (case["num_layers"] - 1)
    network = FullyConnected((case["input_dim"], *hidden, case["output_dim"]), bias=bias)
    prediction = predict_ranks(network, loss="squared", input_rank=case["input_dim"])
    return prediction.num_parameters, {part: int(getattr(prediction, part)) for part in SYMBOLS}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """What the text beside the figures says about them, where the rows reach far enough to say it."""
    sweeps = {name: [row for row in rows if row["sweep"] == name] for name in ("width", "depth", "bias")}
    if sweeps["width"]:
        yield _crossing(sweeps["width"])
    if sweeps["depth"]:
        last = sweeps["depth"][-1]
        limit = (2 * last["output_dim"] * last["width"] - last["output_dim"] ** 2) / last["width"] ** 2
        distance = abs(last["fraction.loss"] / limit - 1)
        detail = f"within {distance:.1e} of it at {last['num_layers']:,} layers"
        yield Claim(
            "fraction-levels-off", "With depth the fraction levels off at (2qM - q^2) / M^2", distance < 1e-2, detail
        )
    if sweeps["bias"]:
        gains = [row["lowered_by"] for row in sweeps["bias"]]
        detail = f"by {min(gains):.1e} to {max(gains):.1e} of it"
        yield Claim("bias-lowers-fraction", "A bias lowers the fraction at every depth", min(gains) > 0, detail)


def _crossing(rows: Sequence[Row]) -> Claim:
    is_outer_ahead = [row["fraction.outer_product"] > row["fraction.functional"] for row in rows]
    change = is_outer_ahead.index(False) if False in is_outer_ahead else len(rows)
    holds = 0 < change < len(rows) and not any(is_outer_ahead[change:])
    detail = f"between widths {rows[change - 1]['width']:,} and {rows[change]['width']:,}" if holds else ""
    return Claim("crossing", "H_o has the larger rank in narrow networks, H_f in all wider ones", holds, detail)


_THREE = tuple(Series(symbol, line=f"fraction.{part}", part=part) for part, symbol in SYMBOLS.items())
_WITH_BIAS = (
    Series("$H_L$", line="fraction.loss", part="loss"),
    Series("$H_L$ with bias", points="fraction_with_bias", part="loss"),
)
_FRACTION: dict[str, Any] = {"x_scale": "log", "y_scale": "log", "y_label": "rank / number of parameters"}

STUDY = Study(
    name="fcn/simulate",
    question="Which fraction of the parameters is effective in networks far too large to measure?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 5 and 9b",
    cases=cases(),
    measure=measure,
    view=View(
        figures=(
            Lines(title="4 layers", x="width", series=_THREE, where={"sweep": "width"}, **_FRACTION),
            Lines(title="width 5000", x="num_layers", series=_THREE, where={"sweep": "depth"}, **_FRACTION),
            Lines(title="width 1000", x="num_layers", series=_WITH_BIAS, where={"sweep": "bias"}, **_FRACTION),
        ),
        table=("sweep", "width", "num_layers", "num_parameters", "rank.loss", "fraction.loss", "fraction_with_bias"),
    ),
    claims=claims,
    seconds=lambda case: 1e-3 + 5e-6 * case["num_layers"],
    answered=Answer(
        "One that falls with the width and levels off with the depth at (2qM - q^2) / M^2; a bias lowers it by"
        " 5.0e-04 of it at most.",
        num_claims=3,
    ),
)
