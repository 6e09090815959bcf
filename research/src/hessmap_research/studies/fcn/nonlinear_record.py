"""What the spectrum and the reconstruction study share: a network at its initialisation and its three spectra.

Images are taken as they are, values in [0, 1], or standardised pixel by pixel where the case says so. The ranks of
the data that enter the linear formula are measured on these data.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any

from hessmap.records import PARTS, Part
from hessmap_research.runner.claims import Check
from hessmap_research.runner.study import Case
from hessmap_research.runner.view import Mark
from hessmap_research.studies.hessian_ranks import LARGEST_CERTIFIED, certified_ranks, data_ranks, hessian_spectra

if TYPE_CHECKING:
    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem
    from hessmap.records import ClaimKind, Spectrum

DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
ACTIVATIONS = ("identity", "relu", "tanh", "elu")
LOSSES = ("squared", "cross_entropy")
NUM_SAMPLES = 200
PAPERS_NETWORKS = ("64-30-20-10", "49-50-40-30-10")
# The digits keep the first pair of hidden widths; the second network is halved to 1,350 parameters from 5,950.
DIGITS_NETWORKS = ("16-30-20-10", "16-25-20-15-10")

CHECKS = (
    *(Check(f"rank.{part}", f"theorem.{part}") for part in PARTS),
    Check("rank.outer_product", "sample_bound", "at_most"),
)


def networks_on(data: str) -> tuple[str, str]:
    return DIGITS_NETWORKS if data == "digits" else PAPERS_NETWORKS


def case_record(case: Case) -> tuple[dict[str, Any], dict[Part, Spectrum]]:
    """The record that both studies keep, and the spectra of the three Hessians.

    ``rank`` is what is compared with the theorem: the certified rank where there is one (ReLU with squared loss), else
    the numerical rank. Where that is only bounded, the doubt about its last eigenvalues does not matter.
    """
    from hessmap.measurement import numerical_rank, reconstruction_error

    network, problem = _network_and_problem(case)
    spectra = hessian_spectra(problem)
    record = _predictions(network, problem)
    measured = {part: numerical_rank(spectra[part]) for part in PARTS}
    counted = measured if network.is_linear else {part: measured[part].value for part in PARTS}
    certified = certified_ranks(problem) if network.activation == "relu" and problem.loss.name == "squared" else {}
    errors = {part: reconstruction_error(spectra[part], [record["linear_formula"][part]]).errors for part in PARTS}
    record |= {
        "measured": measured,
        "rank": certified or counted,
        "error_at_formula": {part: float(errors[part][0]) for part in PARTS},
    }
    return record | ({"certified": certified} if certified else {}), spectra


def _predictions(network: FullyConnected, problem: Problem) -> dict[str, Any]:
    """What the formulas say: ``linear_formula`` of the linear network of these widths, ``theorem`` of this one.

    The theorem gives an exact rank in linear networks, and an upper bound in the others.
    """
    from hessmap.theory import effective_output_dim, predict_ranks
    from hessmap.theory.data_ranks import outer_product_sample_upper_bound

    loss = problem.loss.name
    kind: ClaimKind | None = None if network.is_linear else "upper_bound"
    known, are_decidable = data_ranks(problem, network.has_bias)
    linear, theorem = predict_ranks(network, loss, **known), predict_ranks(network, loss, **known, kind=kind)
    outputs = effective_output_dim(network.output_dim, loss)
    return {
        "num_parameters": network.num_parameters,
        "data_ranks": {**known, "are_decidable": are_decidable},
        "linear_formula": {part: int(getattr(linear, part)) for part in PARTS},
        "theorem": {part: getattr(theorem, part) for part in PARTS},
        "sample_bound": outer_product_sample_upper_bound(problem.num_samples, outputs),
    }


def rank_marks(part: str) -> tuple[Mark, ...]:
    """The ranks of one of the three Hessians, as vertical lines: of all networks, or of each in its colour.

    N K bounds that of H_o alone.
    """
    marks = (
        Mark(f"linear_formula.{part}", "linear formula"),
        Mark(f"measured.{part}", "numerical rank of each", by="activation"),
        Mark(f"certified.{part}", "certified rank of each", by="activation"),
    )
    return (*marks, Mark("sample_bound", "$N K$")) if part == "outer_product" else marks


def seconds(case: Case) -> float:
    """Three dense spectra, and three exact eliminations for ReLU with squared loss, cubic in the parameters."""
    from hessmap.networks import FullyConnected

    size = FullyConnected.parse(case["network"]).num_parameters / 1000
    is_certified = case["activation"] == "relu" and case["loss"] == "squared" and size * 1000 <= LARGEST_CERTIFIED
    return 0.3 + 0.3 * float(size) ** 3 + is_certified * 5 * float(size) ** 3


def _network_and_problem(case: Case) -> tuple[FullyConnected, Problem]:
    from hessmap.datasets import by_name
    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem

    widths = FullyConnected.parse(case["network"]).widths
    network = FullyConnected(widths, activation=case["activation"])
    is_standardised = case.get("inputs") == "standardised"
    side, classes = isqrt(network.input_dim), range(network.output_dim)
    data = by_name(case["data"], num_samples=NUM_SAMPLES, side=side, classes=classes, standardise=is_standardised)
    return network, Problem(network.build(seed=case["seed"]), case["loss"], *data)
