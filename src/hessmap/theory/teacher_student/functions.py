"""Activations given as functions, value and two derivatives, and the points at which expectations take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hessmap.errors import InvalidInput, require, require_name, sentence
from hessmap.theory.teacher_student.gaussian_moments import Units
from hessmap.theory.teacher_student.weights import Array

_END = 9.0  # the normal density there is 1e-18 of its height
PIECE = 48  # points on each piece between kinks


def even_nodes(num_nodes: int) -> tuple[Array, Array]:
    """Equally spaced points: the trapezoidal rule, whose error for functions analytic in a strip falls exponentially.

    Gauss-Hermite suffers from the poles of tanh: with 96 nodes E[tanh''(e)^2] is wrong by 1.5e-7 of it, equally spaced
    points miss it by 1e-10 with 73 and by 4e-14 with 96.

    >>> points, weights = even_nodes(73)
    >>> round(float(weights @ points**6), 10)
    15.0
    """
    points = np.linspace(-_END, _END, num_nodes)
    return points, (points[1] - points[0]) * np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)


def piecewise_nodes(breaks: Array) -> tuple[Array, Array]:
    """Gauss-Legendre on the pieces between breaks (..., kinks), weighted by the normal density; (..., points)."""
    points, weights = np.polynomial.legendre.leggauss(PIECE)
    inside = np.clip(np.sort(breaks, axis=-1), -_END, _END)
    ends = np.full((*breaks.shape[:-1], 1), _END)
    edges = np.concatenate([-ends, inside, ends], axis=-1)
    half = np.diff(edges, axis=-1)[..., None] / 2
    middle = edges[..., :-1, None] + half
    found = (middle + half * points).reshape(*breaks.shape[:-1], -1)
    scaled = (half * weights).reshape(*breaks.shape[:-1], -1)
    return found, scaled * np.exp(-(found**2) / 2) / np.sqrt(2 * np.pi)


_FAR = np.array([-30.0, -20.0, 20.0, 30.0])
_BESIDE, _POLE = 1e-12, 1e-3  # of a kink; distance times square there of functions whose square has no integral
_NEGLIGIBLE = -60.0  # of the logarithm of an integrand at 20 deviations and beyond
_FEWEST, _MOST = 37, 600


@dataclass(frozen=True)
class ActivationFunction:
    """An activation of the user: g, g' and g'' on arrays, ``kinks`` where one of them jumps or has a kink.

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

    def __str__(self) -> str:
        return self.name

    def derivative(self, order: int) -> Callable[[Array], Any]:
        return (self.value, self.slope, self.curvature)[order]

    def require_moments(self, units: Units) -> None:
        """The squares of g, g' and g'' must have expectations, and the nodes must be enough for them."""
        deviation, mean = np.sqrt(units.variances).reshape(-1, 1), units.means.reshape(-1, 1)
        for order in range(3):
            with np.errstate(all="ignore"):
                far = np.abs(np.asarray(self.derivative(order)(mean + deviation * _FAR), dtype=float))
                logarithm = 2 * np.log(far + 1e-300) - _FAR**2 / 2
                beside = _BESIDE * self.derivative(order)(np.add.outer(self.kinks, [-_BESIDE, _BESIDE])) ** 2
            holds = bool(np.isfinite(far).all() and (logarithm < _NEGLIGIBLE).all() and np.all(beside < _POLE))
            must = f"the activation {self.name} and its two derivatives must have Gaussian moments"
            got = f"the square of {('g', 'its derivative', 'its second derivative')[order]} diverges"
            largest = f"{got} for units of variance {float(units.variances.max(initial=0)):.3g}"
            require(holds, must, largest, "Take smaller weights or another activation")

    def num_nodes(self, units: Units) -> int:
        """How many equally spaced points are enough: twice as many change the mean squares of g, g', g'' by 1e-11.

        With kinks, the points on the pieces between them, of which there are more in the plane than on the line.
        """
        if self.kinks:
            return PIECE * (2 * len(self.kinks) + 1)
        deviation, mean = np.sqrt(units.variances).reshape(-1, 1), units.means.reshape(-1, 1)
        num_nodes, before = _FEWEST, self._powers(mean, deviation, _FEWEST)
        while num_nodes <= _MOST:
            after = self._powers(mean, deviation, 2 * num_nodes - 1)
            with np.errstate(invalid="ignore"):  # no number is within anything of an infinity
                is_enough = np.all(np.abs(after - before) <= 1e-11 * after.max(axis=-1, keepdims=True))
            if is_enough:
                return num_nodes
            num_nodes, before = 2 * num_nodes - 1, after
        must = f"the activation {self.name} must be smooth on the scale of its units"
        got = f"{num_nodes} points are not enough for its moments"
        raise InvalidInput(sentence(must, got, "Name its kinks, or take smaller weights"))

    def _powers(self, mean: Array, deviation: Array, num_nodes: int) -> Array:
        points, weights = even_nodes(num_nodes)
        at = mean + deviation * points
        with np.errstate(all="ignore"):
            return np.stack([(weights * self.derivative(order)(at) ** 2).sum(axis=-1) for order in range(3)])


def by_name(name: str) -> ActivationFunction:
    """The activations of `hessmap.networks` that have no closed form here."""
    require_name("activation", name, tuple(_NAMED))
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
