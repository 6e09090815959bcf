"""What speaks against eigenpairs that seem to have converged."""

from __future__ import annotations

from dataclasses import replace

import torch

from hessmap.curvature.lanczos import ScaledProduct
from hessmap.measurement.eigenpair_iteration import RitzPairs
from hessmap.measurement.matrices import ASYMMETRY_TOLERANCE, asymmetry_tolerance
from hessmap.measurement.wanted_eigenpairs import WantedPairs

_ROUNDING_IN_FLOAT64 = 1e-12  # of the norm


def with_true_residuals(wanted: WantedPairs, pairs: RitzPairs) -> tuple[RitzPairs, float]:
    """The pairs with the residuals of one more product with each vector, and the norm of a random combination."""
    vectors = pairs.vectors()
    misfits = pairs.process.product(vectors) - vectors * pairs.values
    residuals = misfits.norm(dim=0)
    is_met = wanted.are_met(pairs.values, residuals, pairs.norm)
    check = float((misfits @ pairs.random_signs(1)).norm()) if len(residuals) else 0.0
    return replace(pairs, residuals=residuals, converged=pairs.converged and is_met), check


def disagreement(pairs: RitzPairs) -> float:
    """||A V c - V L c|| for random signs c, by one product: about the root of the sum of squared residuals, if those
    that the recurrence claims are true."""
    if not len(pairs.values):
        return 0.0
    signs = pairs.random_signs(1)
    mixed = pairs.vectors(torch.cat([signs, pairs.values[:, None] * signs], 1))
    return float((pairs.process.product(mixed[:, :1]) - mixed[:, 1:]).norm())


def change_of_operator(matrix: object, pairs: RitzPairs, product: ScaledProduct) -> float:
    """How far the operator is another one than at the beginning, by one product; 0 where nothing has converged."""
    return product.change(_rounding(matrix) * pairs.norm) if pairs.converged else 0.0


def doubts_of(matrix: object, wanted: WantedPairs, pairs: RitzPairs, change: float, check: float) -> list[str]:
    """Products that change from call to call, residuals that a product made for them does not show, values whose last
    digits are above the tolerance, and a test for missed values that did not end."""
    if not pairs.converged:
        is_undecided = bool(pairs.num_probes) and wanted.are_met(pairs.values, pairs.residuals, pairs.norm)
        return ["not converged: the products did not rule out an eigenvalue beyond these"] if is_undecided else []
    found = []
    if change > max(wanted.tolerance, asymmetry_tolerance(matrix)):
        found.append(f"not converged: the first product, made once more, differs by {change:.2g} of its size")
    slack = max(wanted.tolerance, _rounding(matrix))
    allowed = float(pairs.residuals.sum()) + len(pairs.values) ** 0.5 * slack * pairs.norm
    if check > allowed:
        apart = check / (pairs.norm or 1.0)
        found.append(f"not converged: a product with the vectors found shows residuals of {apart:.2g} of the norm")
    if pairs.norm and not pairs.process.product.scale * pairs.norm * wanted.tolerance:
        found.append("not converged: numbers so close to zero have fewer digits than the tolerance asks for")
    return found


def _rounding(matrix: object) -> float:
    """Of the recurrence, relative to the norm."""
    slack = asymmetry_tolerance(matrix)
    return slack if slack > ASYMMETRY_TOLERANCE else _ROUNDING_IN_FLOAT64
