"""Repeated eigenvalues of one network: those that theory names, and how often each is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hessmap.studies.fcn.drawn_curves import rounded

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

    ``multiplicity`` K - M_{L-1} is what the paper gives each under squared loss, and it is exact in linear and tanh
    networks. Units that no sample activates do not count: outputs orthogonal to the columns of the M~ active ones feel
    the last layer alone, and each repeats at least K - M~ times, ``active_multiplicity``. More is possible: two ReLU
    units that are never active together do not see each other, and each level then has K - 1 copies.
    ``longest_run`` is the length of the longest run of equal eigenvalues.
    """
    from hessmap.curvature import outer_product_hessian
    from hessmap.measurement import numerical_rank, spectrum
    from hessmap.theory.plateaus import outer_product_plateaus

    inner = _penultimate(problem)
    moment = spectrum(_moment(inner, problem, network.bias))
    levels = moment.eigenvalues[: numerical_rank(moment).value]
    found = spectrum(outer_product_hessian(problem))
    values = found.eigenvalues[: numerical_rank(found).value]
    distances = np.abs(values[:, None] - levels) / found.norm
    record = {
        "eigenvalues": rounded(values),
        "longest_run": _longest_run(values, found.norm),
        "smallest_level": float(levels[-1] / found.norm),
    }
    if problem.loss.name != "squared":
        return record
    counts = (distances <= _EQUAL).sum(0)
    num_active = int(inner.any(0).sum())
    expected = outer_product_plateaus(num_active, network.output_dim, len(levels))
    multiplicity = network.output_dim - network.widths[-2]
    record |= {
        "on_plateaus": rounded(np.where(distances.min(1) <= _EQUAL, values, np.nan)),
        "expected_plateaus": expected.num_plateaus,
        "num_plateaus": int((counts >= expected.multiplicity).sum()),
        "multiplicity": multiplicity,
        "active_multiplicity": expected.multiplicity,
        "fewest": int(counts.min()),
        "most": int(counts.max()),
    }
    return record if network.activation == "relu" else record | {"exact_multiplicity": multiplicity}


def functional_record(network: FullyConnected, problem: Problem) -> dict[str, Any]:
    """The whole spectrum of H_f of one hidden linear layer beside the one that the singular values of Omega give."""
    from hessmap.curvature import functional_hessian
    from hessmap.measurement import numerical_rank, spectrum
    from hessmap.theory.plateaus import functional_spectrum

    moment = problem.residuals().T @ (problem.weights[:, None] * problem.inputs)
    residual_rank = numerical_rank(moment)
    sigmas = np.linalg.svd(moment.numpy(), compute_uv=False)[: residual_rank.value]
    levels = functional_spectrum(sigmas.tolist(), *network.widths)
    predicted = np.repeat([level.value for level in levels], [level.multiplicity for level in levels])
    found = spectrum(functional_hessian(problem))
    counts = (np.abs(found.eigenvalues[:, None] - [level.value for level in levels]) <= _EQUAL * found.norm).sum(0)
    return {
        "eigenvalues": rounded(found.eigenvalues),
        "predicted": rounded(predicted),
        "deviation": float(np.abs(found.eigenvalues - predicted).max() / found.norm),
        "expected_plateaus": 2 * residual_rank.value,
        "num_plateaus": sum(
            level.value != 0 and count == level.multiplicity for level, count in zip(levels, counts, strict=True)
        ),
        "residual_rank": residual_rank,
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


def _longest_run(values: Floats, norm: float) -> int:
    """The largest number of neighbours in a descending list that are equal to rounding."""
    longest = length = 1
    for is_equal in np.abs(np.diff(values)) <= _EQUAL * norm:
        length = length + 1 if is_equal else 1
        longest = max(longest, length)
    return longest
