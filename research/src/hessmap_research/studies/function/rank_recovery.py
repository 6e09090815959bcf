"""Do the middle layers of a deep network with an l2 penalty have the rank of the function behind the data?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View

_RANKS = (1, 2, 3, 4)
_SEEDS = range(3)
_DEEP, _SHALLOW = 10, 3
_RIDGE = 0.02
_DATA: dict[str, dict[str, Any]] = {
    "gaussian": {"law": "gaussian", "deviation": 1.0},
    "homogeneous": {"target": "homogeneous"},
}


def cases() -> tuple[Case, ...]:
    uniform = grid(setting=["uniform"], true_rank=_RANKS, seed=_SEEDS)
    others = grid(setting=["gaussian", "homogeneous"], true_rank=_RANKS, seed=_SEEDS)
    return (*uniform, *others, *grid(setting=["no penalty", "three layers"], true_rank=[2], seed=_SEEDS))


def measure(case: Case) -> dict[str, Any]:
    from hessmap_research.studies.function.low_rank_data import low_rank_data
    from hessmap_research.studies.function.middle_record import middle_record
    from hessmap_research.studies.function.regularised_network import regularised_network

    setting, seed = case["setting"], case["seed"]
    data = low_rank_data(case["true_rank"], seed=seed, **_DATA.get(setting, {}))
    num_layers = _SHALLOW if setting == "three layers" else _DEEP
    net = regularised_network(
        (15, *[40] * (num_layers - 1), 15),
        data,
        ridge=0.0 if setting == "no penalty" else _RIDGE,
        learning_rate=2e-3,
        num_steps=3000,
        seed=seed,
    )
    middle = (1, 2) if setting == "three layers" else (3, 4, 5, 6)
    return middle_record(net, data.inputs, case["true_rank"], middle)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    uniform, gaussian, homogeneous, free, shallow = (
        [row for row in rows if row["setting"] == setting]
        for setting in ("uniform", "gaussian", "homogeneous", "no penalty", "three layers")
    )
    if uniform:
        right = sum(row["middle.smallest"] == row["middle.largest"] == row["true_rank"] for row in uniform)
        claim = "Uniform inputs: the centred rank of layers 3 to 6 is the true rank k"
        yield Claim.counted("uniform-rank", claim, right, len(uniform))
        ratios = [row.number("middle.next_over_last") for row in uniform]
        claim = "Uniform inputs: the next singular value is at most 5 % of the k-th"
        yield Claim(
            "uniform-next-singular-value", claim, max(ratios) <= 0.05, f"{min(ratios):.3f} to {max(ratios):.3f}"
        )
        above = sum(row["middle.uncentred"] == row["true_rank"] + 1 for row in uniform)
        claim = "Uniform inputs: the uncentred rank is k + 1, by the direction of the mean"
        yield Claim.counted("uniform-uncentred-rank", claim, above, len(uniform))
        impact = max(row.number("middle.nonlinearity") for row in uniform)
        claim = "Uniform inputs: ReLU changes layers 3 to 6 by at most 2 %"
        yield Claim("uniform-relu-change", claim, impact <= 0.02, f"at most {impact:.3f}")
    if gaussian:
        over = sum(row["middle.smallest"] == row["true_rank"] + 1 for row in gaussian)
        claim = "Gaussian inputs of variance 1: the least centred rank of layers 3 to 6 is k + 1, not k"
        yield Claim.counted(
            "gaussian-rank", claim, over, len(gaussian), f"{over} of {len(gaussian)}; {_least(gaussian)}"
        )
    if homogeneous:
        found = sum(row["narrowest"] == row["true_rank"] for row in homogeneous)
        all_four = sum(row["middle.smallest"] == row["middle.largest"] == row["true_rank"] for row in homogeneous)
        claim = "Homogeneous targets: the narrowest hidden layer has rank k"
        detail = f"{found} of {len(homogeneous)}; all of layers 3 to 6 in {all_four}"
        yield Claim.counted("homogeneous-rank", claim, found, len(homogeneous), detail)
    for setting, name, wide in (
        ("no-penalty", "Without penalty", free),
        ("three-layers", "With three layers", shallow),
    ):
        if wide:
            narrow = sum(row["narrowest"] <= row["true_rank"] for row in wide)
            yield Claim(
                claim_id("not-recovered", setting),
                f"{name}: no layer has the true rank 2",
                narrow == 0,
                f"narrowest {_narrowest(wide)}",
            )


def _narrowest(rows: Sequence[Row]) -> str:
    return ", ".join(str(row["narrowest"]) for row in rows)


def _least(rows: Sequence[Row]) -> str:
    ranks: dict[int, list[int]] = {}
    for row in rows:
        ranks.setdefault(row["true_rank"], []).append(row["middle.smallest"])
    return "; ".join(f"k = {k}: {', '.join(map(str, found))}" for k, found in ranks.items())


def _ranks_figure(title: str, setting: str, **options: Any) -> Lines:
    return Lines(
        title=title,
        x=INDEX,
        series=(Series("k = {true_rank}", line="ranks.centred", points="ranks.centred"),),
        split="true_rank",
        where={"setting": setting},
        x_label="layer",
        y_label="centred rank",
        marks=(Mark("true_rank", "the true rank k", axis="y", by="true_rank"),),
        **options,
    )


def _values_figure(title: str, setting: str) -> Lines:
    return Lines(
        title=title,
        x=INDEX,
        series=(Series("k = {true_rank}", line="singular_values", points="singular_values"),),
        split="true_rank",
        where={"setting": setting},
        y_scale="log",
        y_limits=(3e-6, 1.5),
        x_label="place",
        y_label="singular value of layer 5 / first",
        marks=(Mark(0.1, "counts as a dimension above", axis="y"),),
    )


STUDY = Study(
    name="function/rank-recovery",
    question="Do the middle layers of a deep network with an l2 penalty have the rank of the function behind the data?",
    reference="Jacot 2023, Figure 1",
    cases=cases(),
    measure=measure,
    claims=claims,
    seconds=lambda case: 1.5 if case["setting"] == "three layers" else 2.5,
    view=View(
        figures=(
            _ranks_figure("uniform inputs", "uniform", y_limits=(0.0, 15.0)),
            _ranks_figure("unit Gaussian inputs", "gaussian"),
            _ranks_figure("uniform, no penalty", "no penalty"),
            _values_figure("uniform inputs", "uniform"),
            _values_figure("unit Gaussian inputs", "gaussian"),
            _values_figure("uniform, no penalty", "no penalty"),
        ),
        table=(
            "setting",
            Column("true_rank", "k"),
            Column("narrowest", "narrowest", ".3g"),
            Column("middle.smallest", "centred rank, least", ".3g"),
            Column("middle.largest", "most", ".3g"),
            Column("middle.uncentred", "uncentred", ".3g"),
            Column("middle.num_carried", "carried", ".3g"),
            Column("middle.next_over_last", "s_k+1 / s_k", ".3f"),
            Column("middle.nonlinearity", "nonlinearity", ".3f"),
            Column("cost_per_layer", "||W||^2 / L", ".3g"),
            Column("risk", "", ".3f"),
        ),
        group_by=("setting", "true_rank"),
    ),
    answered=Answer(
        "It depends on the inputs: small uniform ones give rank k in 12 of 12 trainings, Gaussian ones of"
        " variance 1 never less than k + 1; with homogeneous targets the narrowest layer has rank k.",
        num_claims=8,
        fails=(
            "uniform-next-singular-value",
            "uniform-relu-change",
            "gaussian-rank",
            "not-recovered-three-layers",
        ),
    ),
)
