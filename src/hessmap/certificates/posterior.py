"""What a fit finds: for every layer the means of its weights, their deviations, and the basis they stand in."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from hessmap.certificates.stochastic import StochasticLayer

_FIELDS = ("weight", "log_deviations", "output_basis", "input_basis", "bias", "bias_log_deviations")


@dataclass(frozen=True, eq=False)
class LayerPosterior:
    """One layer: weight ~ weight + U (E * exp(log_deviations)) V^T with E standard normal; bias ~ bias + U (e * ..)."""

    weight: Tensor
    log_deviations: Tensor
    output_basis: Tensor
    input_basis: Tensor
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

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        named = {name: getattr(self, name) for name in _FIELDS}
        return {name: value.numpy() for name, value in named.items() if value is not None}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray[Any, Any]]) -> LayerPosterior:
        found = (arrays.get(name) for name in _FIELDS)
        return cls(*(None if value is None else torch.from_numpy(value.copy()) for value in found))  # type: ignore[arg-type]

    @property
    def means(self) -> Tensor:
        return _flat(self.weight, self.bias)

    @property
    def variances(self) -> Tensor:
        """Along the directions u_i v_j^T made of unit vectors."""
        rows, columns = (basis.double().square().sum(0) for basis in (self.output_basis, self.input_basis))
        bias_scale = None if self.bias is None else rows
        scales = _flat(torch.outer(rows, columns), bias_scale)
        return (2 * _flat(self.log_deviations, self.bias_log_deviations)).exp() * scales

    @property
    def skew(self) -> float:
        """What a divergence gains because the bases are orthonormal up to rounding only: zero if they are.

        The log-determinant of the covariance lacks this, twice, from the sum of the logarithms of ``variances``.
        """
        outputs, inputs = self.weight.shape
        num_times = inputs + (self.bias is not None)
        return num_times * _hadamard_gap(self.output_basis) + outputs * _hadamard_gap(self.input_basis)


Posterior = dict[str, LayerPosterior]


def posterior_means(posterior: Posterior) -> Tensor:
    """All means, layer by layer, in double precision."""
    return torch.cat([layer.means for layer in posterior.values()])


def posterior_variances(posterior: Posterior) -> Tensor:
    """All variances, in the coordinates of each layer's basis, in double precision."""
    return torch.cat([layer.variances for layer in posterior.values()])


def posterior_skew(posterior: Posterior) -> float:
    """What the divergence from an isotropic prior gains from bases that are not quite orthonormal."""
    return sum(layer.skew for layer in posterior.values())


def _hadamard_gap(basis: Tensor) -> float:
    """sum log ||u_i|| - log |det U|: not negative, and zero for orthogonal columns (Hadamard's inequality).

    Never rounded down: singular values are as small as rounding allows, and where that is zero the gap is infinite.
    """
    values = torch.linalg.svdvals(basis.double() / basis.double().norm(dim=0))
    surely = values - len(values) * torch.finfo(torch.float64).eps * values[0]
    return max(0.0, -float(surely.log().sum())) if bool((surely > 0).all()) else inf


def _flat(weight: Tensor, bias: Tensor | None) -> Tensor:
    whole = weight.flatten() if bias is None else torch.cat([weight.flatten(), bias])
    return whole.double()
