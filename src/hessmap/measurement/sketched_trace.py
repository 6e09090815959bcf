"""The trace in the range of a sketch exactly, and outside of it by random signs (Hutch++); without a sketch, by random
signs alone (Hutchinson)."""

from __future__ import annotations

from math import hypot, inf
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hessmap.curvature.lanczos import inner_matrix
from hessmap.measurement.array_norms import Floats, frobenius_norm
from hessmap.measurement.random_probes import (
    BLOCK,
    ErrorTarget,
    ProbedOperator,
    column_products,
    orthonormal_range,
    standard_error,
)
from hessmap.results import EigenpairsMeasurement


class Sketch(NamedTuple):
    """Orthonormal columns, the trace of the matrix in their space, and the Frobenius norm of their images."""

    basis: Tensor
    trace: float
    norm: float


class SignProbes:
    """Random signs without their part in a basis: z^T A z and ||A z||^2 of each, and the last images."""

    def __init__(self, operator: ProbedOperator, sketch: Sketch | None = None) -> None:
        self.operator = operator
        self.sketch = sketch or Sketch(torch.zeros(operator.size, 0, dtype=operator.product.dtype), 0.0, 0.0)
        self.values, self.squares = np.zeros(0), np.zeros(0)
        self.images = self.sketch.basis[:, :0]

    def more(self) -> SignProbes:
        """With another block of them."""
        basis, probes = self.sketch.basis, self.operator.signs(BLOCK)
        if basis.shape[1]:
            probes.addmm_(basis, inner_matrix(basis.T, probes.T).to(probes.dtype), alpha=-1)
        self.images = self.operator.product(probes)
        self.values = np.append(self.values, column_products(probes, self.images))
        self.squares = np.append(self.squares, column_products(self.images, self.images))
        return self

    @property
    def found(self) -> tuple[float, float, float]:
        """The trace, its standard error, and the Frobenius norm of the matrix, whose square is that of the images of
        the sketch and the mean of those of probes."""
        scale, sketch = self.operator.scale, self.sketch
        norm = hypot(sketch.norm, scale * float(self.squares.mean()) ** 0.5)
        return sketch.trace + scale * float(self.values.mean()), scale * standard_error(self.values), norm

    def expected_number(self, target: ErrorTarget) -> float:
        """How many probes of this spread have the standard error that is asked for."""
        value, error, norm = self.found
        allowed = target.standard_error(value, norm)
        return len(self.values) * (error / allowed) ** 2 if allowed else inf


def range_sketch(
    operator: ProbedOperator, width: int, known: EigenpairsMeasurement | None, first: SignProbes | None = None
) -> Sketch:
    """By the images of random signs, some of which may be at hand from probes."""
    if known is not None:
        assert known.eigenvectors is not None
        values = known.eigenvalues
        basis = torch.from_numpy(known.eigenvectors).to(operator.product.dtype)
        return Sketch(basis, float(values.sum()), frobenius_norm(values))
    ready = [] if first is None else [first.images]
    left = min(width, operator.size) - sum(images.shape[1] for images in ready)
    basis = orthonormal_range(torch.cat([*ready, operator.product(operator.signs(max(0, left)))], 1))
    images = operator.product(basis)
    trace, squares = (float(column_products(one, images).sum()) for one in (basis, images))
    return Sketch(basis, operator.scale * trace, operator.scale * squares**0.5)


def sketched_trace(
    operator: ProbedOperator, target: ErrorTarget, sketch: Sketch, probes: SignProbes | None
) -> tuple[float, Floats, float]:
    """The trace inside the sketch, and the values of the probes outside of it, both in the unit of the products; the
    Frobenius norm of the matrix."""
    probes = probes or SignProbes(operator, sketch).more()
    while True:
        value, error, norm = probes.found
        if target.is_met(value, error, norm) or operator.num_products + BLOCK > target.max_products:
            return sketch.trace / operator.scale, probes.values, norm
        probes.more()
