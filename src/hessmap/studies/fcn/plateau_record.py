"""Repeated eigenvalues of one network: those that theory names, and how often each is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hessmap.studies.drawn_curves import rounded

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from hessmap.curvature import Problem
    from hessmap.networks import FullyConnected

    Floats = NDArray[np.float64]

# Relative to the norm: above the error of the eigenvalues (1e-13 for 400 parameters), and the threshold of ranks.
_EQUAL = 1e-12


def outer_product_record(network: FullyConnected, problem: Problem) -> dict[str, Any]:
    """How often each non-zero eigenvalue of the penultimate moment E[h h^T] is an eigenvalue of H_o.

    ``printed`` K - M_{L-1} is what the paper gives each under squared loss, exact in linear and tanh networks. Units
    that no sample activates do not count: outputs orthogonal to the columns of the M~ active ones feel the last layer
    alone, and each level repeats at least K - M~ times. Under ReLU there is no ``largest`` count: two units that are
    never active together do not see each other, and their levels have K - 1 copies.
    """
    from hessmap.curvature import outer_product_hessian
    from hessmap.measurement import numerical_rank, spectrum
    from hessmap.theory.fully_connected.plateaus import outer_product_plateaus

    inner = _penultimate(problem)
    moment = spectrum(_moment(inner, problem, network.bias))
    levels = moment.eigenvalues[: numerical_rank(moment).value]
    found = spectrum(outer_product_hessian(problem))
    values = found.eigenvalues[: numerical_rank(found).value]
    expected = outer_product_plateaus(int(inner.any(0).sum()), network.output_dim, len(levels))
    distances = np.abs(values[:, None] - levels) / found.norm
    counts = (distances <= _EQUAL).sum(0)
    return {
        "single": rounded(np.where(distances.min(1) > _EQUAL, values, np.nan)),
        "repeated": rounded(np.where(distances.min(1) <= _EQUAL, values, np.nan)),
        "expected_plateaus": expected.num_plateaus,
        "num_plateaus": int((counts >= expected.multiplicity).sum()),
        "printed": network.output_dim - network.widths[-2],
        "smallest": expected.multiplicity,
        "largest": np.inf if network.activation == "relu" else expected.multiplicity,
        "fewest": int(counts.min()),
        "most": int(counts.max()),
    }


def unrepeated_record(problem: Problem) -> dict[str, Any]:
    """Losses whose second derivative differs from sample to sample: no non-zero eigenvalue of H_o repeats."""
    from hessmap.curvature import outer_product_hessian
    from hessmap.measurement import numerical_rank, spectrum

    found = spectrum(outer_product_hessian(problem))
    runs = _runs(found.eigenvalues[: numerical_rank(found).value], found.norm)
    return {
        "expected_plateaus": 0,
        "num_plateaus": sum(length > 1 for length in runs),
        "smallest": 1,
        "largest": 1,
        "fewest": min(runs),
        "most": max(runs),
    }


def functional_record(network: FullyConnected, problem: Problem) -> dict[str, Any]:
    """The whole spectrum of H_f of one hidden linear layer beside the one that the singular values of Omega give.

    ``deviation`` is the largest distance of any two, relative to the norm.
    """
    from hessmap.curvature import functional_hessian
    from hessmap.measurement import numerical_rank, spectrum
    from hessmap.theory.fully_connected.plateaus import functional_spectrum

    moment = problem.residuals().T @ (problem.weights[:, None] * problem.inputs)
    residual_rank = numerical_rank(moment).value
    sigmas = np.linalg.svd(moment.numpy(), compute_uv=False)[:residual_rank]
    predicted = functional_spectrum(sigmas.tolist(), *network.widths)
    levels = np.array([level.value for level in predicted if level.value])
    found = spectrum(functional_hessian(problem))
    counts = (np.abs(found.eigenvalues[:, None] - levels) <= _EQUAL * found.norm).sum(0)
    eigenvalues = np.repeat([level.value for level in predicted], [level.multiplicity for level in predicted])
    return {
        "eigenvalues": rounded(found.eigenvalues),
        "predicted": rounded(eigenvalues),
        "deviation": float(np.abs(found.eigenvalues - eigenvalues).max() / found.norm),
        "residual_rank": residual_rank,
        "expected_plateaus": 2 * residual_rank,
        "num_plateaus": int((counts >= network.widths[1]).sum()),
        "smallest": network.widths[1],
        "largest": network.widths[1],
        "fewest": int(counts.min()),
        "most": int(counts.max()),
    }


def _penultimate(problem: Problem) -> Tensor:
    """The inputs h of the last layer, one row a sample."""
    *inner, _ = cast("nn.Sequential", problem.model)
    values = problem.inputs
    for module in inner:
        values = module(values)
    return values


def _moment(inner: Tensor, problem: Problem, bias: bool) -> Tensor:
    """E[h h^T], with a one appended to h where there is a bias."""
    import torch

    if bias:
        inner = torch.column_stack([inner, inner.new_ones(len(inner))])
    return inner.T @ (problem.weights[:, None] * inner)


def _runs(values: Floats, norm: float) -> list[int]:
    """The lengths of the runs of equal neighbours in a descending list; 1 for an eigenvalue that stands alone."""
    breaks = np.flatnonzero(np.abs(np.diff(values)) > _EQUAL * norm) + 1
    return [int(length) for length in np.diff([0, *breaks, len(values)])]
