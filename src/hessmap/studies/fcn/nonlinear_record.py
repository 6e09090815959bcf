"""What the spectrum and the reconstruction study share: a network at its initialisation and its three spectra.

Images are taken as they are, values in [0, 1], or standardised pixel by pixel where the case says so. The ranks of
the data that enter the linear formula are measured on these data.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING, Any

from hessmap.results import PARTS, Part
from hessmap.studies import Case, Check
from hessmap.studies.fcn.hessian_spectra import hessian_spectra
from hessmap.studies.fcn.rank_record import data_ranks

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.networks import FullyConnected
    from hessmap.results import RankCertificate, RankPrediction, Spectrum, Truth

DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
ACTIVATIONS = ("identity", "relu", "tanh", "elu")
LOSSES = ("squared", "cross_entropy")
NUM_SAMPLES = 200
PAPERS_NETWORKS = ("64-30-20-10", "49-50-40-30-10")
# The digits keep the first pair of hidden widths; the second network is halved to 1,350 parameters from 5,950.
DIGITS_NETWORKS = ("16-30-20-10", "16-25-20-15-10")
# Exact elimination takes the entries as Python integers: some GB beyond this size.
_LARGEST_CERTIFIED = 3000

CHECKS = (
    *(Check(f"measured.{part}", f"exact.{part}") for part in PARTS),
    *(Check(f"measured.{part}.value", f"upper_bound.{part}") for part in PARTS),
    *(Check(f"certified.{part}", f"upper_bound.{part}") for part in PARTS),
    *(Check(f"measured.{part}.value", f"certified.{part}", "at_most") for part in PARTS),
    Check("measured.outer_product.value", "sample_bound", "at_most"),
)


def networks_on(data: str) -> tuple[str, str]:
    return DIGITS_NETWORKS if data == "digits" else PAPERS_NETWORKS


def measured_case(case: Case) -> tuple[dict[str, Any], dict[Part, Spectrum]]:
    """The record that both studies keep, and the spectra of the three Hessians.

    ``linear_formula`` holds the ranks that the linear network of these widths would have. Theorems are kept apart:
    ``exact`` in linear networks, ``upper_bound`` in the others. ``certified`` is there for ReLU with squared loss.
    """
    from hessmap.measurement import numerical_rank, reconstruction_error
    from hessmap.theory import effective_output_dim, predict_ranks, sample_bounds

    network, problem = _network_and_problem(case)
    found = data_ranks(problem, network.bias)
    known: dict[str, Any] = {name: rank.value for name, rank in found.items()}
    linear = predict_ranks(network, problem.loss.name, **known)
    formula = {part: int(getattr(linear, part)) for part in PARTS}
    spectra = hessian_spectra(problem)
    kind: Truth = "exact" if network.is_linear else "upper_bound"
    outputs = effective_output_dim(network.output_dim, problem.loss.name)
    record: dict[str, Any] = {
        "num_parameters": network.num_parameters,
        "data_ranks": {**known, "are_decidable": all(rank.decidable for rank in found.values())},
        "linear_formula": formula,
        kind: _theorem(predict_ranks(network, problem.loss.name, **known, kind=kind)),
        "sample_bound": sample_bounds.outer_product_sample_upper_bound(problem.num_samples, outputs),
        "measured": {part: numerical_rank(spectra[part]) for part in PARTS},
        "error_at_formula": {
            part: float(reconstruction_error(spectra[part], [formula[part]]).errors[0]) for part in PARTS
        },
    }
    if network.activation == "relu" and problem.loss.name == "squared":
        record |= _certified(problem)
    return record, spectra


def seconds(case: Case) -> float:
    """Three dense spectra, and three exact eliminations for ReLU with squared loss, cubic in the parameters."""
    from hessmap.networks import FullyConnected

    size = FullyConnected.parse(case["network"]).num_parameters / 1000
    is_certified = case["activation"] == "relu" and case["loss"] == "squared" and size * 1000 <= _LARGEST_CERTIFIED
    return 0.3 + 0.3 * float(size) ** 3 + is_certified * 5 * float(size) ** 3


def _network_and_problem(case: Case) -> tuple[FullyConnected, Problem]:
    from hessmap.curvature import Problem
    from hessmap.datasets import by_name
    from hessmap.networks import FullyConnected

    widths = FullyConnected.parse(case["network"]).widths
    network = FullyConnected(widths, activation=case["activation"])
    is_standardised = case.get("inputs") == "standardised"
    side = isqrt(network.input_dim)
    data = by_name(case["data"], num_samples=NUM_SAMPLES, side=side, standardise=is_standardised)
    return network, Problem(network.build(seed=case["seed"]), case["loss"], *data)


def _theorem(prediction: RankPrediction) -> dict[str, Any]:
    return {part: getattr(prediction, part) for part in PARTS}


def _certified(problem: Problem) -> dict[str, dict[Part, RankCertificate]]:
    from hessmap.measurement import certified_rank

    if problem.num_parameters > _LARGEST_CERTIFIED:
        return {}
    return {"certified": {part: certified_rank(problem, part) for part in PARTS}}
