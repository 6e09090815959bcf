"""What a fit finds: for every layer the means of its weights, their deviations, the basis they stand in; and the
divergence of all that from a prior around other means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hessmap.theory.pac_bayes import PriorGrid, gaussian_kl, maurer_complexity

if TYPE_CHECKING:
    from hessmap.certificates.stochastic import StochasticLayer

Arrays = dict[str, np.ndarray[Any, Any]]
_FIELDS = ("weight", "log_deviations", "output_basis", "input_basis", "bias", "bias_log_deviations")


@dataclass(frozen=True, eq=False)
class LayerPosterior:
    """One layer: weight ~ weight + U (E * exp(log_deviations)) V^T with E standard normal; bias ~ bias + U (e * ..).

    A parameter that belongs to no linear or convolutional layer stands alone: it has no bias and no bases (U = V = I).
    """

    weight: Tensor
    log_deviations: Tensor
    output_basis: Tensor | None
    input_basis: Tensor | None
    bias: Tensor | None
    bias_log_deviations: Tensor | None

    @classmethod
    def of(cls, layer: StochasticLayer) -> LayerPosterior:
        values = (getattr(layer, name) for name in _FIELDS)
        return cls(*(None if value is None else value.detach().clone() for value in values))  # type: ignore[arg-type]

    @torch.no_grad()
    def copy_to(self, layer: StochasticLayer) -> None:
        for name in _FIELDS:
            if (value := getattr(self, name)) is not None:
                getattr(layer, name).copy_(value)

    def arrays(self) -> Arrays:
        named = {name: getattr(self, name) for name in _FIELDS}
        return {name: value.numpy() for name, value in named.items() if value is not None}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> LayerPosterior:
        found = (arrays.get(name) for name in _FIELDS)
        return cls(*(None if value is None else torch.from_numpy(value.copy()) for value in found))  # type: ignore[arg-type]

    @property
    def means(self) -> Tensor:
        return _flat(self.weight, self.bias)

    @property
    def variances(self) -> Tensor:
        """Along the directions u_i v_j^T made of unit vectors."""
        variances = (2 * _flat(self.log_deviations, self.bias_log_deviations)).exp()
        if self.output_basis is None or self.input_basis is None:
            return variances
        rows, columns = (basis.double().square().sum(0) for basis in (self.output_basis, self.input_basis))
        return variances * _flat(torch.outer(rows, columns), None if self.bias is None else rows)

    @property
    def skew(self) -> float:
        """What a divergence gains because the bases are orthonormal up to rounding only: zero if they are.

        The log-determinant of the covariance lacks this, twice, from the sum of the logarithms of ``variances``.
        """
        if self.output_basis is None or self.input_basis is None:
            return 0.0
        outputs, inputs = self.weight.shape
        num_times = inputs + (self.bias is not None)
        return num_times * _hadamard_gap(self.output_basis) + outputs * _hadamard_gap(self.input_basis)


Posterior = dict[str, LayerPosterior]


@dataclass(frozen=True)
class GridPoint:
    """A prior variance of the grid, the divergence of the posterior from the prior there, and B of that."""

    index: int
    variance: float
    kl: float
    complexity: float


def divergence(posterior: Posterior, prior: Posterior, variance: float) -> float:
    """KL of the posterior from the normal law around the means of ``prior``, never rounded down."""
    return divergences(posterior, prior, [variance])[0]


def divergences(posterior: Posterior, prior: Posterior, variances: Iterable[float]) -> list[float]:
    """The same for several variances of the prior, for which the posterior is read once."""
    means, centre = (torch.cat([layer.means for layer in one.values()]) for one in (posterior, prior))
    squared_distance = float((means - centre).square().sum())
    own = torch.cat([layer.variances for layer in posterior.values()]).numpy()
    skew = sum(layer.skew for layer in posterior.values())
    return [gaussian_kl(squared_distance, own, variance) + skew for variance in variances]


def best_grid_point(
    posterior: Posterior, prior: Posterior, indices: Sequence[int], num_samples: int, grid: PriorGrid, delta: float
) -> GridPoint:
    """The point of the grid, among those of these indices, with the least B: the union bound holds for all at once."""
    found = []
    for index, kl in zip(indices, divergences(posterior, prior, map(grid.variance, indices)), strict=True):
        bound = maurer_complexity(kl, num_samples, grid.log_cost(index), delta)
        found.append(GridPoint(index, grid.variance(index), kl, bound))
    return min(found, key=lambda point: point.complexity)


@torch.no_grad()
def spread_prior(prior: Posterior, variance: float) -> Posterior:
    """The prior itself as a posterior: its means with one deviation, in the coordinates as they are."""
    found = {}
    for name, layer in prior.items():
        deviations = [
            None if mean is None else torch.full_like(mean, 0.5 * log(variance)) for mean in (layer.weight, layer.bias)
        ]
        bases = [
            None if basis is None else torch.eye(len(basis), dtype=basis.dtype)
            for basis in (layer.output_basis, layer.input_basis)
        ]
        assert deviations[0] is not None
        found[name] = LayerPosterior(layer.weight, deviations[0], bases[0], bases[1], layer.bias, deviations[1])
    return found


def posterior_arrays(posterior: Posterior, prior: Posterior) -> Arrays:
    """Everything that a bound is computed from, by "layer/name"."""
    found: Arrays = {}
    for name, layer in posterior.items():
        found |= {f"{name}/{field}": array for field, array in layer.arrays().items()}
        start = prior[name].arrays()
        found |= {f"{name}/initial_{field}": start[field] for field in ("weight", "bias") if field in start}
    return found


def posterior_of_arrays(arrays: Arrays, names: Iterable[str]) -> tuple[Posterior, Posterior]:
    """The posterior and the centre of the prior that ``posterior_arrays`` spelled out."""
    posterior, prior = {}, {}
    for name in names:
        fields = {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
        posterior[name] = LayerPosterior.from_arrays(fields)
        start = {field: fields[f"initial_{field}"] for field in ("weight", "bias") if f"initial_{field}" in fields}
        prior[name] = LayerPosterior.from_arrays(fields | start)
    return posterior, prior


def _hadamard_gap(basis: Tensor) -> float:
    """sum log ||u_i|| - log |det U|: not negative, and zero for orthogonal columns (Hadamard's inequality).

    Never rounded down: singular values are as small as rounding allows, and where that is zero the gap is infinite.
    """
    units = basis.double() / basis.double().norm(dim=0)
    if not bool(units.isfinite().all()):
        return inf
    values = torch.linalg.svdvals(units)
    at_least = values - len(values) * torch.finfo(torch.float64).eps * values[0]
    return max(0.0, -float(at_least.log().sum())) if bool((at_least > 0).all()) else inf


def _flat(weight: Tensor, bias: Tensor | None) -> Tensor:
    whole = weight.flatten() if bias is None else torch.cat([weight.flatten(), bias])
    return whole.double()
