"""Ranks of linear networks over width, depth and sample size: three studies of one measurement.

The ranks of the data that enter the formulas are measured on these data; none is assumed. Images are scaled down by
area means to the input dimension of the network. The first 300 samples are standardised pixel by pixel, and smaller
sample sizes are the first of these: rare pixels then weigh as much as common ones, and the smallest kept eigenvalues
stay clear of the threshold (on raw digits they come down to 1e-11 of the norm).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import isqrt
from typing import TYPE_CHECKING, Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, View
from hessmap_research.studies.hessian_ranks import (
    FRACTIONS,
    NAMES,
    RANK_CHECKS,
    RANKS,
    curves_of,
    data_ranks,
    decidability_claims,
    measured_ranks,
)

if TYPE_CHECKING:
    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem

DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
LOSSES = ("squared", "cross_entropy", "log_cosh")
INITS = ("gaussian", "uniform", "orthogonal")
NUM_SAMPLES = 300
# The paper's sizes, and smaller ones for the digits: at most 1,472 parameters in place of 5,650.
_WIDTHS = {"digits": (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16)}
_PAPERS_WIDTHS = (2, 5, 10, 15, 20, 25, 30, 35, 40, 45)
# Of ten classes the tenth singular value of a product of ten such narrow matrices is 1e-5 of the first, too little for
# any threshold: there are five.
_DEPTH_SIZES = {"digits": (16, 11, 5)}
_PAPERS_DEPTH_SIZES = (16, 25, 10)
_SAMPLES_WIDTHS = {"digits": (64, 14, 12, 12, 12, 10)}
_PAPERS_SAMPLES_WIDTHS = (64, 50, 20, 20, 20, 10)
_NUM_SAMPLES = (2, 5, 10, 20, 30, 40, 50, 60, 100, 200, 300)


def settings(data: str) -> Iterator[dict[str, Any]]:
    """Every pair of loss and initialisation on the digits; on the larger networks of the other sets the paper's pairs.

    These are all losses with Gaussian weights, and on CIFAR-10 the squared loss with uniform and orthogonal ones.
    """
    for loss, init in product(LOSSES, INITS):
        if data == "digits" or init == "gaussian" or (data == "cifar10" and loss == "squared"):
            yield {"loss": loss, "init": init, "seed": 0}


def width_cases(data: str) -> tuple[Case, ...]:
    """Two hidden layers of one width, from a narrow bottleneck to far wider than the output."""
    return tuple(
        {"width": width, "widths": (64, width, width, 10), **setting}
        for setting, width in product(settings(data), _WIDTHS.get(data, _PAPERS_WIDTHS))
    )


def depth_cases(data: str) -> tuple[Case, ...]:
    """Hidden layers of one width, from none to nine."""
    input_dim, width, output_dim = _DEPTH_SIZES.get(data, _PAPERS_DEPTH_SIZES)
    return tuple(
        {"num_hidden": count, "widths": (input_dim, *[width] * count, output_dim), **setting}
        for setting, count in product(settings(data), range(10))
    )


def samples_cases(data: str) -> tuple[Case, ...]:
    widths = _SAMPLES_WIDTHS.get(data, _PAPERS_SAMPLES_WIDTHS)
    return tuple(
        {"num_samples": count, "widths": widths, **setting} for setting, count in product(settings(data), _NUM_SAMPLES)
    )


def measure(case: Case) -> dict[str, Any]:
    """The record of a case with the fields data, widths, loss, init and seed, and perhaps bias and num_samples."""
    return rank_record(*network_and_problem(case))


def network_and_problem(case: Case) -> tuple[FullyConnected, Problem]:
    """The network of a case with its weights, and its data: the first ``num_samples`` of a standardised pool."""
    from hessmap.datasets import by_name
    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem

    network = FullyConnected(case["widths"], bias=case.get("bias", False))
    side, classes = isqrt(network.input_dim), range(network.output_dim)
    pool = by_name(case["data"], num_samples=NUM_SAMPLES, side=side, classes=classes, standardise=True)
    count = case.get("num_samples", NUM_SAMPLES)
    model = network.build(seed=case["seed"], init=case["init"])
    return network, Problem(model, case["loss"], pool.inputs[:count], pool.targets[:count])


def rank_record(network: FullyConnected, problem: Problem) -> dict[str, Any]:
    """Predicted and measured ranks of the three Hessians, these over the number of parameters, and the data's ranks.

    ``data_ranks.are_decidable`` says whether the prediction stands on ranks of the data that are beyond doubt.
    """
    from hessmap.theory import predict_ranks

    known, are_decidable = data_ranks(problem, network.has_bias)
    known.setdefault("mean_residual_is_zero", False)
    prediction = predict_ranks(network, problem.loss.name, **known)
    predicted = {part: int(getattr(prediction, part)) for part in PARTS}
    measured = measured_ranks(problem)
    return {
        "num_parameters": network.num_parameters,
        "data_ranks": {**known, "are_decidable": are_decidable},
        "predicted": predicted,
        "measured": measured,
        "predicted_fraction": {part: rank / network.num_parameters for part, rank in predicted.items()},
        "measured_fraction": {part: rank.value / network.num_parameters for part, rank in measured.items()},
    }


def seconds(case: Case) -> float:
    """Three dense spectra, cubic in the number of parameters."""
    num_parameters: int = sum(before * after for before, after in pairwise(case["widths"]))
    return 0.15 + 0.4 * float(num_parameters / 1000) ** 3


def width_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """The text beside Figure 4a, where the hidden layers are at least as wide as the output."""
    yield from decidability_claims(rows)
    steps = [
        (narrow["measured_fraction.loss"], wide["measured_fraction.loss"])
        for curve in curves_of(rows, "width")
        for narrow, wide in pairwise(curve)
        if narrow["width"] >= narrow["widths"][-1]
    ]
    if steps:
        num_falling = sum(wide < narrow for narrow, wide in steps)
        detail = f"at {num_falling} of {len(steps)} steps, down to {min(wide for _, wide in steps):.3f}"
        claim = "From the width of the output on, rank / number of parameters of H_L falls with the width"
        yield Claim.counted("fraction-falls", claim, num_falling, len(steps), detail)


def depth_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """The text beside Figures 4b and 5: the fraction levels off at what one more layer adds, rank over parameters."""
    yield from decidability_claims(rows)
    steps = [
        (_distance(shallow), _distance(deep))
        for curve in curves_of(rows, "num_hidden")
        for shallow, deep in pairwise(curve)
        if shallow["num_hidden"] > 0
    ]
    if steps:
        num_nearer = sum(deep < shallow for shallow, deep in steps)
        detail = f"at {num_nearer} of {len(steps)} steps, to within {min(deep for _, deep in steps):.3f}"
        claim = "Every further layer brings rank / number of parameters of H_L closer to (2qM - q^2) / M^2"
        yield Claim.counted("fraction-levels-off", claim, num_nearer, len(steps), detail)


def _distance(row: Row) -> float:
    width, q = row["widths"][1], row["data_ranks.residual_rank"]
    return float(abs(row["measured_fraction.loss"] - (2 * q * width - q**2) / width**2))


def samples_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """The text beside Figure 3a: the samples have no say but through the ranks of the data."""
    yield from decidability_claims(rows)
    steps = [step for curve in curves_of(rows, "num_samples") for step in pairwise(curve)]
    compared = [(fewer, more) for fewer, more in steps if fewer["data_ranks"] == more["data_ranks"]]
    if compared:
        num_equal = sum(_ranks(fewer) == _ranks(more) for fewer, more in compared)
        detail = f"in {num_equal} of {len(compared)} cases"
        yield Claim.counted(
            "samples-change-nothing",
            "More samples of the same ranks change no rank",
            num_equal,
            len(compared),
            detail,
        )


def _ranks(row: Row) -> list[float]:
    return [row.number(f"measured.{part}") for part in PARTS]


def _view(x: str, x_label: str) -> View:
    """For each data set: the ranks over ``x`` for each loss, then the same as fractions of the parameters."""
    kinds = (("rank", RANKS, None), ("rank / parameters", FRACTIONS, (0.0, 1.03)))
    figures = tuple(
        Lines(
            title=f"{kind}, {loss.replace('_', '-')}, {data.replace('_', '-')}",
            where={"data": data, "loss": loss},
            x=x,
            series=series,
            x_label=x_label,
            y_label=kind,
            y_limits=limits,
        )
        for data, (kind, series, limits), loss in product(DATA, kinds, LOSSES)
    )
    fields = (x, "data", "loss")
    ranks = tuple(
        Column(f"{kind}.{part}", label)
        for part in PARTS
        for kind, label in (("predicted", NAMES[part]), ("measured", "measured"))
    )
    parameters, fraction = Column("num_parameters", "p"), Column("measured_fraction.loss", "H_L / p", ".3f")
    return View(figures, (*fields, parameters, *ranks, fraction), group_by=fields)


_SHARED: dict[str, Any] = {"measure": measure, "data": DATA, "checks": RANK_CHECKS, "seconds": seconds}

WIDTH = Study(
    name="fcn/rank-vs-width",
    question="Do the ranks of the three Hessians follow the formulas for every width of the hidden layers?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 3b, 4a, S6b to S16b",
    cases=width_cases,
    claims=width_claims,
    view=_view("width", "width of both hidden layers"),
    **_SHARED,
    answered=Answer(
        "Yes, for every width; from the width of the output on rank / parameters of H_L falls, down to 0.373.",
        num_claims=3,
        cases="agrees",
    ),
)
DEPTH = Study(
    name="fcn/rank-vs-depth",
    question="Do the ranks of the three Hessians follow the formulas for every number of hidden layers?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 3c, 4b, S6c to S16c",
    cases=depth_cases,
    claims=depth_claims,
    view=_view("num_hidden", "number of hidden layers"),
    **_SHARED,
    answered=Answer(
        "Yes, for every one; every further layer brings rank / parameters of H_L closer to (2qM - q^2) / M^2,"
        " which is not zero.",
        num_claims=3,
        cases="agrees",
    ),
)
SAMPLES = Study(
    name="fcn/rank-vs-samples",
    question="Do the ranks of the three Hessians follow the formulas for every number of samples?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 3a, S6a to S16a",
    cases=samples_cases,
    claims=samples_claims,
    view=_view("num_samples", "number of samples"),
    **_SHARED,
    answered=Answer(
        "Yes, in every case but one of 220 that is not decidable; more samples of the same ranks change none.",
        num_claims=3,
        cases="undecidable",
    ),
)
