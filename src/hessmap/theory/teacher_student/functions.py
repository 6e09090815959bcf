"""Activations given as functions: value and two derivatives, for quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hessmap.errors import require, unknown_name
from hessmap.theory.teacher_student.gaussian_moments import Units
from hessmap.theory.teacher_student.nodes import PIECE, even_nodes
from hessmap.theory.teacher_student.weights import Array

_FAR = np.array([-30.0, -20.0, 20.0, 30.0])
_NEGLIGIBLE = -60.0  # of the logarithm of an integrand at 20 deviations and beyond


@dataclass(frozen=True)
class ActivationFunction:
    """An activation of the user: g, g' and g'' on arrays, ``kinks`` where one of them jumps or bends.

    ``num_nodes`` points are taken in each of two variables where there is no kink. Functions that are steep for the
    given weights need more; whether they are enough is tested where they are used.

    >>> softplus = ActivationFunction(
    ...     "softplus",
    ...     lambda t: np.logaddexp(0, t),
    ...     lambda t: 1 / (1 + np.exp(-t)),
    ...     lambda t: np.exp(-np.abs(t)) / (1 + np.exp(-np.abs(t))) ** 2,
    ... )
    >>> str(softplus)
    'softplus'
    """

    name: str
    value: Callable[[Array], Any]
    slope: Callable[[Array], Any]
    curvature: Callable[[Array], Any]
    kinks: tuple[float, ...] = ()
    num_nodes: int = 73

    def __str__(self) -> str:
        return self.name

    @property
    def num_points(self) -> int:
        """The points that are taken along one variable, at most."""
        return self.num_nodes if not self.kinks else PIECE * (2 * len(self.kinks) + 1)

    def derivative(self, order: int) -> Callable[[Array], Any]:
        return (self.value, self.slope, self.curvature)[order]

    def require_moments(self, units: Units) -> None:
        """The squares of g, g' and g'' must have expectations, and the nodes must be enough for them."""
        deviation, mean = np.sqrt(units.variances).reshape(-1, 1), units.means.reshape(-1, 1)
        for order in range(3):
            with np.errstate(all="ignore"):
                far = np.abs(np.asarray(self.derivative(order)(mean + deviation * _FAR), dtype=float))
                logarithm = 2 * np.log(far + 1e-300) - _FAR**2 / 2
            holds = bool(np.isfinite(far).all() and (logarithm < _NEGLIGIBLE).all())
            must = f"the activation {self.name} and its two derivatives must have Gaussian moments"
            got = f"the square of {('g', 'its derivative', 'its second derivative')[order]} diverges"
            largest = f"{got} for units of variance {float(units.variances.max(initial=0)):.3g}"
            require(holds, must, largest, "Take smaller weights or another activation")
        if not self.kinks:
            self._require_nodes(mean, deviation)

    def _require_nodes(self, mean: Array, deviation: Array) -> None:
        powers = []
        for num_nodes in (self.num_nodes, 2 * self.num_nodes):
            points, weights = even_nodes(num_nodes)
            at = mean + deviation * points
            powers.append(np.stack([(weights * self.derivative(order)(at) ** 2).sum(axis=-1) for order in range(3)]))
        error = float(np.max(np.abs(powers[0] - powers[1]) / np.maximum(powers[1].max(axis=-1, keepdims=True), 1e-300)))
        must = f"{self.num_nodes} nodes must be enough for the activation {self.name}"
        got = f"twice as many change its moments by {error:.1e}"
        require(error < 1e-6, must, got, "Name its kinks, or give ActivationFunction a larger num_nodes")


def by_name(name: str) -> ActivationFunction:
    """The activations of `hessmap.networks` that have no closed form here."""
    if name not in _NAMED:
        raise unknown_name("activation", name, tuple(_NAMED))
    return _NAMED[name]


def _tanh_curvature(t: Array) -> Any:
    value = np.tanh(t)
    return -2 * value * (1 - value**2)


def _normal(t: Array) -> Any:
    return np.exp(-(t**2) / 2) / np.sqrt(2 * np.pi)


def _normal_probability(t: Array) -> Any:
    from scipy.special import ndtr

    return ndtr(t)


_NAMED = {
    "tanh": ActivationFunction("tanh", np.tanh, lambda t: 1 - np.tanh(t) ** 2, _tanh_curvature),
    "elu": ActivationFunction(
        "elu",
        lambda t: np.where(t > 0, t, np.expm1(np.minimum(t, 0))),
        lambda t: np.exp(np.minimum(t, 0)),
        lambda t: np.where(t > 0, 0.0, np.exp(np.minimum(t, 0))),
        kinks=(0.0,),
    ),
    "gelu": ActivationFunction(
        "gelu",
        lambda t: t * _normal_probability(t),
        lambda t: _normal_probability(t) + t * _normal(t),
        lambda t: (2 - t**2) * _normal(t),
    ),
}
