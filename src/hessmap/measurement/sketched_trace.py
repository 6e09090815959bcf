"""The trace in the range of a sketch exactly, and outside of it by random signs (Hutch++); without a sketch, by random
signs alone (Hutchinson)."""

from __future__ import annotations

from math import hypot, inf, sqrt
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from hessmap.curvature.lanczos import inner_matrix
from hessmap.measurement.array_norms import frobenius_norm
from hessmap.measurement.random_probes import (
    BLOCK,
    PIECE,
    ErrorTarget,
    ProbedOperator,
    column_products,
    orthonormal_range,
)
from hessmap.records import EigenpairsMeasurement


class Sketch(NamedTuple):
    """Orthonormal columns, the trace of the matrix in their space, and the Frobenius norm of their images."""

    basis: Tensor
    trace: float
    norm: float


class EntryMoments:
    """Of the vectors z * (B z), with B the matrix outside of a basis: their mean, and the sum of the variances of their
    entries. Blocks are joined by the rule of Chan, Golub & LeVeque (1983), which keeps the digits of a small spread."""

    def __init__(self, size: int) -> None:
        self.mean, self.centred, self.count = torch.zeros(size), 0.0, 0

    def add(self, probes: Tensor, images: Tensor, basis: Tensor, inside: Tensor) -> None:
        """Those of another block: ``probes`` are without their part ``basis @ inside``, ``images`` still have one."""
        if not self.count:
            self.mean = self.mean.to(images.dtype)
        mirrored = inner_matrix(basis.T, images.T).to(images.dtype)
        added, joint = probes.shape[1], self.count + probes.shape[1]
        for start in range(0, len(probes), PIECE // added):
            part = slice(start, start + PIECE // added)
            entries = probes[part] + basis[part] @ inside
            entries *= images[part] - basis[part] @ mirrored
            mean = entries.mean(1)
            self.centred += float(entries.sub_(mean[:, None]).square_().sum(dtype=torch.float64))
            apart = mean - self.mean[part]
            self.centred += float(apart.square().sum(dtype=torch.float64)) * self.count * added / joint
            self.mean[part] += apart * (added / joint)
        self.count = joint

    @property
    def variance(self) -> float:
        return self.centred / (self.count - 1) if self.count > 1 else inf

    @property
    def standard_error(self) -> float:
        """Of the mean of z^T B z, whose variance is twice that of the entries."""
        return sqrt(2 * self.variance / self.count)


class SignProbes:
    """Random signs without their part in a basis: z^T A z and ||A z||^2 of each, and the last images.

    For random signs z and a symmetric B the variance of z^T B z is 2 sum_{i != j} B_ij^2: twice the sum of the
    variances of the entries z_i (B z)_i, from which it is measured here. That is steadier than the spread of the few
    values z^T B z, which is small where no large value was drawn. There the mean is too small as well, and an interval
    from the spread covers less often than it says.
    """

    def __init__(self, operator: ProbedOperator, sketch: Sketch | None = None) -> None:
        self.operator = operator
        self.sketch = sketch or Sketch(torch.zeros(operator.size, 0, dtype=operator.product.dtype), 0.0, 0.0)
        self.values, self.squares = np.zeros(0), np.zeros(0)
        self.images = self.sketch.basis[:, :0]
        self.entries = EntryMoments(operator.size)

    def more(self) -> SignProbes:
        """With another block of them."""
        basis, probes = self.sketch.basis, self.operator.signs(BLOCK)
        inside = inner_matrix(basis.T, probes.T).to(probes.dtype)
        if basis.shape[1]:
            probes.addmm_(basis, inside, alpha=-1)
        self.images = self.operator.product(probes)
        self.entries.add(probes, self.images, basis, inside)
        self.values = np.append(self.values, column_products(probes, self.images))
        self.squares = np.append(self.squares, column_products(self.images, self.images))
        return self

    def until(self, target: ErrorTarget, may_be_exact: bool) -> tuple[float, float, float]:
        """What is ``found`` by as many as the error asked for takes, or as there are products; or, if the trace
        ``may_be_exact``, until that is cheaper."""
        while not target.is_met(*self.found) and self.operator.num_products + BLOCK <= target.max_products:
            if may_be_exact and self.is_dense_cheaper(target):
                break
            self.more()
        return self.found

    def is_dense_cheaper(self, target: ErrorTarget) -> bool:
        """Whether a product a dimension takes no more than the probes that are missing."""
        missing = target.missing(len(self.values), *self.found)
        return self.operator.is_dense_cheaper(missing, target.max_products)

    @property
    def found(self) -> tuple[float, float, float]:
        """The trace, its standard error, and the Frobenius norm of the matrix, whose square is that of the images of
        the sketch and the mean of those of probes."""
        scale, sketch = self.operator.scale, self.sketch
        norm = hypot(sketch.norm, scale * float(self.squares.mean()) ** 0.5)
        return sketch.trace + scale * float(self.values.mean()), scale * self.entries.standard_error, norm

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
