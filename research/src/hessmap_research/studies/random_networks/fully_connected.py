"""Random deep linear networks on random data against the rank formulas, the printed and the corrected ones."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hessmap.errors import unknown_name
from hessmap.records import PARTS
from hessmap_research.formulas import printed_fully_connected as printed
from hessmap_research.runner.claims import Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, grid
from hessmap_research.runner.view import Column, Lines, Series, View
from hessmap_research.studies.hessian_ranks import NAMES
from hessmap_research.studies.random_networks import (
    OURS,
    Compared,
    Counted,
    Drawn,
    count,
    counterexamples,
    counts_view,
    equal,
    exact_ranks_of_own_seeds,
    first,
    predicted,
    random_networks,
    repeated,
)

if TYPE_CHECKING:
    from hessmap_research.studies.random_networks.interval_networks import SumOfIntervals

PAPER = "paper"
_WIDEST = 6
_MOST_LAYERS = 5
_MOST_PARAMETERS = 100
_LOSSES = ("squared", "cross_entropy", "log_cosh")
_RESIDUALS = ("generic", "low rank", "zero mean")
_INPUTS = ("rc = r", "rc = r - 1")
_DEEP = ("deep, no bias", "deep, no bias, bottleneck", "deep, bias", "deep, bias, bottleneck")
_ONE_LAYER = ("one layer, no bias", "one layer, bias")
_RIGHT = [f"right.{part}" for part in PARTS]
_ALL_RIGHT = tuple(
    Counted(
        claim_id("formula", part),
        f"The formula of {name} is right on every network that was tried",
        f"right.{part}",
    )
    for part, name in NAMES.items()
)


@dataclass(frozen=True)
class Setting:
    """A network, a loss, and ranks of its data that can occur together: what a rank formula is asked about."""

    widths: tuple[int, ...]
    bias: bool
    loss: str
    input_rank: int
    centred_input_rank: int
    residual_rank: int
    mean_residual_is_zero: bool

    @property
    def effective_output_dim(self) -> int:
        return self.widths[-1] - (self.loss == "cross_entropy")

    @property
    def data_ranks(self) -> dict[str, Any]:
        """What is known of the data, as ``generic_rank`` and ``predict_ranks`` take it."""
        names = ("input_rank", "centred_input_rank", "residual_rank", "mean_residual_is_zero")
        return {name: getattr(self, name) for name in names}

    @property
    def num_parameters(self) -> int:
        return sum((before + self.bias) * after for before, after in pairwise(self.widths))

    @property
    def has_bottleneck(self) -> bool:
        """A hidden layer narrower than what the generic residual of these inputs wants to pass."""
        reach = self.centred_input_rank + 1 if self.bias else self.input_rank
        return min(self.widths[1:-1], default=_WIDEST) < min(reach, self.effective_output_dim)


def random_setting(draw: random.Random, family: str, inputs: str, residual: str, loss: str) -> Setting:
    """A setting of a family: "one layer" or "deep", "no bias" or "bias", a deep one with or without "bottleneck".

    ``inputs`` says whether the centred inputs have the rank of the inputs ("rc = r") or one less ("rc = r - 1").
    ``residual`` is "generic", "low rank" (any rank below the generic one) or "zero mean" (any possible rank).
    """

    def is_wanted(setting: Setting | None) -> bool:
        if setting is None or setting.num_parameters > _MOST_PARAMETERS:
            return False
        return len(setting.widths) == 2 or setting.has_bottleneck == family.endswith(", bottleneck")

    found = first(lambda: _random_draw(draw, family, inputs, residual, loss), is_wanted)
    assert found is not None
    return found


def _random_draw(draw: random.Random, family: str, inputs: str, residual: str, loss: str) -> Setting | None:
    """One draw; None where its residual cannot be of the kind that is asked for."""
    num_layers = 1 if family.startswith("one layer") else draw.randint(2, _MOST_LAYERS)
    widths = tuple(draw.randint(1, _WIDEST) for _ in range(num_layers + 1))
    bias = "no bias" not in family
    rank = draw.randint(1, widths[0])
    centred = rank - (inputs == "rc = r - 1")
    visible = centred if residual == "zero mean" else centred + 1 if bias else rank
    largest = min(visible, widths[-1] - (loss == "cross_entropy"))
    if residual == "low rank" and largest == 0:
        return None
    return Setting(widths, bias, loss, rank, centred, _residual_rank(draw, residual, largest), residual == "zero mean")


def _residual_rank(draw: random.Random, residual: str, largest: int) -> int:
    if residual == "generic":
        return largest
    if residual == "low rank":
        return draw.randint(0, largest - 1)
    if residual == "zero mean":
        return draw.randint(0, largest)
    raise unknown_name("residual", residual, ("generic", "low rank", "zero mean"))


def printed_ranks(setting: Setting) -> dict[str, tuple[int, ...]]:
    """By part of the Hessian, the values that Singh, Bachmann & Hofmann 2021 can be read to give for a setting.

    Without bias: Corollary 4, Corollary 6 (printed as a bound, asked here whether it is met) and Fact 7 with both of
    its meanings of q. With bias: Theorem 12, and S7.2 for one hidden layer, S7.3 and Fact 13 for others; these know
    the rank r of the inputs without centring, and no residual rank.
    """
    widths, rank, outputs = setting.widths, setting.input_rank, setting.effective_output_dim
    if not setting.bias:
        residual = setting.residual_rank
        return {
            "outer_product": (printed.corollary_4(widths, rank, effective_output_dim=outputs),),
            "functional": (printed.corollary_6(widths, rank, residual, effective_output_dim=outputs),),
            "loss": (
                printed.fact_7(widths, rank, effective_output_dim=outputs),
                printed.fact_7(widths, rank, residual, effective_output_dim=outputs),
            ),
        }
    one_hidden = len(widths) == 3
    functional = printed.section_s7_2_functional_rank if one_hidden else printed.section_s7_3_functional_rank
    loss = printed.section_s7_2_loss_rank if one_hidden else printed.fact_13
    return {
        "outer_product": (printed.theorem_12(widths, rank, effective_output_dim=outputs),),
        "functional": (functional(widths, rank, effective_output_dim=outputs),),
        "loss": (loss(widths, rank, effective_output_dim=outputs),),
    }


# The printed and the corrected formulas.


def _settings_by_size(case: Case, draw: random.Random) -> list[Drawn]:
    """All networks of a case, the small ones first."""
    from hessmap.networks import FullyConnected

    kind = [case[name] for name in ("family", "inputs", "residual", "loss")]
    settings = [random_setting(draw, *kind) for _ in range(case["num_networks"])]
    return [
        Drawn(FullyConnected(setting.widths, bias=setting.bias), setting.data_ranks, setting)
        for setting in sorted(settings, key=lambda setting: setting.num_parameters)
    ]


def _ours_and_printed(case: Case, drawn: Drawn) -> dict[str, Any]:
    return {**predicted()(case, drawn), PAPER: printed_ranks(drawn.source)}


def _smallest_of_each_part(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """For each Hessian the first network of which the paper is wrong; they come from small ones to large ones."""
    wrong = [
        {"part": part, **_described(one.drawn.source), "exact": one.exact[part], "claimed": claimed}
        for one in compared
        for part, claimed in one.claimed[PAPER].items()
        if not equal(one.exact[part], claimed)
    ]
    return list({example["part"]: example for example in reversed(wrong)}.values())[::-1]


def _described(setting: Setting) -> dict[str, Any]:
    ranks = (setting.input_rank, setting.centred_input_rank, setting.residual_rank)
    return {"widths": setting.widths, "r_rc_residual": ranks}


def _failure_bound(compared: Sequence[Compared]) -> float:
    return float(max(rank.failure_bound for one in compared for rank in one.found.values()))


def _paper_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """The paper's formulas are right in the families that its proofs and measurements had in view."""
    wrong = [_num_wrong_in_paper(row) for row in rows if _is_in_view_of_paper(row)]
    if wrong:
        claim = "Deep, generic residual, bias only without bottleneck and with rc = r: the paper is right"
        yield Claim(
            "paper-in-view", claim, sum(wrong) == 0, f"{sum(wrong):,} of {3 * sum(_sizes(rows, True)):,} ranks wrong"
        )
    others: dict[tuple[str, ...], int] = {}
    for row in rows:
        if row["family"] in _DEEP and not _is_in_view_of_paper(row):
            group = row["family"], row["inputs"], row["residual"]
            others[group] = others.get(group, 0) + _num_wrong_in_paper(row)
    if others:
        total, fewest = sum(others.values()), min(others.values())
        detail = f"{total:,} of {3 * sum(_sizes(rows, False)):,} ranks wrong, at least {fewest:,} in each family"
        yield Claim("paper-elsewhere", "Every other deep family holds counterexamples of the paper", fewest > 0, detail)


def _is_in_view_of_paper(row: Row) -> bool:
    if row["family"] not in _DEEP or row["residual"] != "generic":
        return False
    return "no bias" in row["family"] or (row["family"] == "deep, bias" and row["inputs"] == "rc = r")


def _sizes(rows: Sequence[Row], is_in_view: bool) -> Iterator[int]:
    return (row["num_networks"] for row in rows if row["family"] in _DEEP and _is_in_view_of_paper(row) == is_in_view)


def _num_wrong_in_paper(row: Row) -> int:
    return len(PARTS) * int(row["num_networks"]) - int(sum(row["paper_right"].values()))


_WHO = {PAPER: "the paper: right of 50", OURS: "ours: right of 50"}
_KINDS: dict[str, Any] = {"inputs": _INPUTS, "residual": _RESIDUALS, "loss": _LOSSES, "num_networks": [50]}

CONJECTURES = random_networks(
    name="fcn/conjectures",
    question="Which rank formulas survive random networks in exact arithmetic, the printed or the corrected ones?",
    reference="Singh, Bachmann & Hofmann 2021, Corollaries 4 and 6, Facts 7 and 13, Theorem 12, S7.2 and S7.3",
    cases=(*grid(family=_DEEP, **_KINDS, batch=range(6)), *grid(family=_ONE_LAYER, **_KINDS, batch=range(1))),
    networks=_settings_by_size,
    exact=exact_ranks_of_own_seeds,
    claimed=_ours_and_printed,
    fields={
        "ours_right": count(equal),
        "paper_right": count(equal, PAPER),
        "counterexamples_of_ours": counterexamples(equal),
        "counterexamples_of_paper": _smallest_of_each_part,
        "failure_bound": _failure_bound,
    },
    checks=[f"ours_right.{part}" for part in PARTS],
    claims=(
        *(
            Counted(
                claim_id("formula", part),
                f"Our formula of {name} is right on every network that was tried",
                f"ours_right.{part}",
            )
            for part, name in NAMES.items()
        ),
        _paper_claims,
    ),
    view=counts_view(
        ["family", "inputs", "residual"],
        {f"{who}_right.{part}": f"{name}, {who}" for part, name in NAMES.items() for who in _WHO},
        50,
        {f"${name}$, {words}": f"{who}_right.{part}" for who, words in _WHO.items() for part, name in NAMES.items()},
        x="residual",
        y="family",
    ),
    seconds=4.0,
    answer=(
        "The corrected ones, all of them on 23,400 of 23,400 networks; the printed ones only for generic"
        " residuals, and with a bias only where no layer is narrow and centring costs no rank."
    ),
    num_claims=5,
)


# A bias in some layers only.


def _biased_in_some_layers(case: Case, draw: random.Random) -> Drawn:
    from hessmap.networks import FullyConnected

    family = draw.choice(("deep, bias", "deep, bias, bottleneck"))
    setting = random_setting(draw, family, case["inputs"], case["residual"], case["loss"])
    layers = range(1, len(setting.widths))
    biased = set(draw.sample(layers, draw.randint(1, len(layers))))
    return Drawn(FullyConnected(setting.widths, bias=[layer in biased for layer in layers]), setting.data_ranks)


def _columns(field: str, label: str) -> dict[str, str]:
    return {f"{field}.{part}": f"{name}, {label}" for part, name in NAMES.items()}


BIAS_IN_SOME_LAYERS = random_networks(
    name="fcn/bias-in-some-layers",
    question="Do the rank formulas for a bias in an arbitrary subset of layers survive random networks?",
    reference="beyond Singh, Bachmann & Hofmann 2021, who have a bias in every layer or in none",
    cases=grid(
        inputs=_INPUTS,
        residual=_RESIDUALS,
        loss=_LOSSES,
        num_networks=[25],
        batch=range(4),
    ),
    networks=repeated(_biased_in_some_layers),
    fields={"right": count(equal), "counterexamples": counterexamples(equal)},
    checks=_RIGHT,
    claims=_ALL_RIGHT,
    view=counts_view(
        ["inputs", "residual", "loss"],
        _columns("right", "right"),
        25,
        {f"${name}$: right of 25": f"right.{part}" for part, name in NAMES.items()},
        x="residual",
        y="inputs",
    ),
    seconds=3.0,
    answer="Yes: all three are right on 1,800 of 1,800 random networks.",
    num_claims=3,
)


# Products of weights that lose rank.


def _deficient(case: Case, draw: random.Random) -> Drawn:
    """A sum of random intervals with at least one unit at every vertex; those from input to output are likelier."""
    network = first(
        lambda: _any_intervals(draw, case["num_layers"]),
        lambda found: min(found.widths) >= 1 and max(found.widths) <= _WIDEST,
    )
    widths, dim = network.widths, network.widths[0]
    residual_rank = draw.randint(0, min(dim, widths[-1] - (case["loss"] == "cross_entropy")))
    setting = Setting(widths, False, case["loss"], dim, dim, residual_rank, False)
    return Drawn(network, setting.data_ranks, setting)


def _any_intervals(draw: random.Random, num_layers: int) -> SumOfIntervals:
    from hessmap_research.studies.random_networks.interval_networks import SumOfIntervals  # which needs torch

    every = [(first, last) for first in range(num_layers + 1) for last in range(first, num_layers + 1)]
    candidates = every + [(0, num_layers)] * draw.randint(0, 3)
    return SumOfIntervals(num_layers, tuple(sorted(draw.choices(candidates, k=draw.randint(3, 4 + 2 * num_layers)))))


def _ranks_of_products(case: Case, drawn: Drawn) -> dict[str, Any]:
    from hessmap.theory.fully_connected import products

    setting = drawn.source
    *rows, last = drawn.network.product_ranks
    # The softmax direction lies in the image of a product of these weights only if that is everything.
    table = [*rows, [min(rank, setting.effective_output_dim) for rank in last]]
    ours = {
        "outer_product": products.outer_product_rank(table),
        "functional": products.functional_rank(table, setting.residual_rank),
        "loss": products.loss_rank(table, setting.residual_rank),
    }
    return {OURS: ours, PAPER: printed_ranks(setting)}


DEFICIENT_PRODUCTS = random_networks(
    name="fcn/deficient-products",
    question="Do the rank formulas for any weights, given the ranks of their products, survive random networks?",
    reference="beyond Singh, Bachmann & Hofmann 2021, whose Theorems 3 and 5 need products of maximal rank",
    cases=grid(
        num_layers=[1, 2, 3, 4, 5],
        loss=_LOSSES,
        num_networks=[25],
        batch=range(4),
    ),
    networks=repeated(_deficient),
    claimed=_ranks_of_products,
    fields={
        "right": count(equal),
        "printed_right": count(equal, PAPER),
        "counterexamples": counterexamples(equal),
    },
    checks=_RIGHT,
    claims=_ALL_RIGHT,
    view=View(
        figures=tuple(
            Lines(
                title=f"${name}$",
                part=part,
                x="num_layers",
                series=(Series("printed", points=f"printed_right.{part}"), Series("ours", points=f"right.{part}")),
                y_label="networks of 25 that are right",
                y_limits=(0, 26),
            )
            for part, name in NAMES.items()
        ),
        table=(
            "num_layers",
            "loss",
            *(Column(*item) for item in (_columns("right", "ours") | _columns("printed_right", "printed")).items()),
            Column("num_networks", "of"),
        ),
        group_by=("num_layers", "loss"),
    ),
    seconds=3.0,
    answer="Yes: all three are right on 1,500 of 1,500 random networks.",
    num_claims=3,
)
