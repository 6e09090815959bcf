"""Gaussian moments of activations that are given as functions, by quadrature.

An activation is a value with two derivatives; expectations evaluate them at quadrature points in the plane of two
units.

Every entry of the population Hessian needs two units and two inputs. With an orthonormal basis of the plane of the two
rows the inputs outside of it enter only by E[x x^T] = I, and two integrals are left: the trapezoidal rule for smooth
functions, Gauss-Legendre between the kinks of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from hessmap.errors import InvalidInput, require, require_name, sentence
from hessmap.theory.teacher_student.moments import GaussianMoments, PairGeometry, PairMoments, Second, Units
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

    Attributes:
        name: Name of the activation.
        value: G on arrays.
        slope: First derivative g' on arrays.
        curvature: Second derivative g'' on arrays.
        kinks: Points at which one of them jumps or has a kink.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
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
            require(holds, must, largest, "Use smaller weights or another activation")

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
        raise InvalidInput(sentence(must, got, "Specify its kinks, or use smaller weights"))

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
_CHUNK = 4_000_000  # points of the plane in memory at a time


@dataclass(frozen=True)
class Quadrature(GaussianMoments):
    """An activation function as its Gaussian moments."""

    function: ActivationFunction

    def pairs(self, left: Units, right: Units) -> PairMoments:
        self.function.require_moments(left)
        self.function.require_moments(right)
        num_nodes = max(self.function.num_nodes(left), self.function.num_nodes(right))
        return QuadraturePairs(self.function, PairGeometry.of(left, right), num_nodes)

    def single(self, order: int, units: Units) -> Array:
        """E[g^(order)(z)]; orders above two by parts: E[g^(2 + k)(z)] = E[g''(z) He_k(e)] / deviation^k."""
        self.function.require_moments(units)
        deviation = np.sqrt(units.variances)
        points, weights = _nodes(self.function, self.function.num_nodes(units), units.means, deviation)
        values = self.function.derivative(min(order, 2))(units.means[..., None] + deviation[..., None] * points)
        hermite = {3: points, 4: points**2 - 1}.get(order, np.ones_like(points))
        scale = np.where(deviation > 0, deviation, 1.0) ** max(order - 2, 0)
        return np.asarray((weights * values * hermite).sum(axis=-1) / scale)


class QuadraturePairs(PairMoments):
    """With u = mean + sqrt(s) e1 and v = mean + c / sqrt(s) e1 + spread e2, all from E[u v e1^p e2^q], p + q <= 2."""

    def __init__(self, function: ActivationFunction, law: PairGeometry, num_nodes: int) -> None:
        self._function, self._num_nodes = function, num_nodes
        self._shape = np.broadcast_shapes(law.covariance.shape, law.left_mean.shape, law.right_mean.shape)
        s, t, c = law.left_variance, law.right_variance, law.covariance
        with np.errstate(divide="ignore", invalid="ignore"):
            self._lean = np.where(s > 0, c / np.sqrt(s), 0.0)
            spread = np.sqrt(np.maximum(t - self._lean**2, 0.0))
            is_flat = spread <= 1e-7 * np.sqrt(t)
            self._spread = np.where(is_flat, 0.0, spread)
            self._over_spread = np.where(is_flat, 0.0, 1 / spread)
            self._over_deviation = np.where(s > 0, 1 / np.sqrt(s), 0.0)
        self._law = law
        self._known: dict[tuple[int, int], Array] = {}

    def constant(self, i: int, j: int) -> Array:
        return np.asarray(self._integrals(i, j)[0])

    def first(self, i: int, j: int) -> tuple[Array, Array]:
        """q1 = w_k / sqrt(s), q2 = (w_m - c / s w_k) / spread."""
        _, along, across, *_ = self._integrals(i, j)
        right = across * self._over_spread
        return along * self._over_deviation - self._tilt * right, right

    def second(self, i: int, j: int) -> Second:
        """E[u v] (I - q1 q1^T - q2 q2^T) + sum of E[u v e_a e_b] q_a q_b^T, written in the rows."""
        whole, _, _, along, mixed, across = self._integrals(i, j)
        right = (across - whole) * self._over_spread**2
        arm = mixed * self._over_spread * self._over_deviation
        left = (along - whole) * self._over_deviation**2 - 2 * self._tilt * arm + self._tilt**2 * right
        return Second(whole, left, arm - self._tilt * right, right)

    @property
    def _tilt(self) -> Array:
        return np.asarray(self._lean * self._over_deviation)

    def _integrals(self, i: int, j: int) -> Array:
        """E[u v e1^p e2^q] for (p, q) = (0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2), as (6, ..., left, right)."""
        if (i, j) not in self._known:
            flat = [np.broadcast_to(part, self._shape).reshape(-1) for part in self._parts]
            found = [self._part(i, j, *(part[chosen] for part in flat)) for chosen in self._chunks()]
            self._known[i, j] = np.concatenate(found, axis=-1).reshape(6, *self._shape)
        return self._known[i, j]

    @property
    def _parts(self) -> tuple[Array, ...]:
        return self._law.left_mean, np.sqrt(self._law.left_variance), self._law.right_mean, self._lean, self._spread

    def _chunks(self) -> Iterator[slice]:
        size = max(1, _CHUNK // self._num_nodes**2)
        return (slice(start, start + size) for start in range(0, max(1, int(np.prod(self._shape))), size))

    def _part(self, i: int, j: int, mean: Array, deviation: Array, other: Array, lean: Array, spread: Array) -> Array:
        """The six integrals of some pairs (pairs,): inside over e2 (pairs, e1, e2), outside over e1 (pairs, e1)."""
        along, weights = _nodes(self._function, self._num_nodes, mean, deviation, other, lean)
        left = weights * self._function.derivative(i)(mean[:, None] + deviation[:, None] * along)
        centre = other[:, None] + lean[:, None] * along
        across, inner = _nodes(self._function, self._num_nodes, centre, spread[:, None])
        right = self._function.derivative(j)(centre[..., None] + spread[:, None, None] * across)
        by_power = [np.einsum("...e,...e->...", right, inner * across**q) for q in range(3)]
        orders = ((0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (0, 2))
        return np.stack([(left * along**p * by_power[q]).sum(axis=-1) for p, q in orders])


def _nodes(function: ActivationFunction, num_nodes: int, *lines: Array) -> tuple[Array, Array]:
    """Nodes of e for functions of mean + slope e; lines are mean, slope, mean, slope, ...; pieces end at the kinks."""
    if not function.kinks:
        return even_nodes(num_nodes)
    shape = np.broadcast_shapes(*(line.shape for line in lines))
    places = []
    for mean, slope in zip(lines[::2], lines[1::2], strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            found = [np.where(slope != 0, (kink - mean) / slope, 0.0) for kink in function.kinks]
        places += [np.broadcast_to(place, shape) for place in found]
    return piecewise_nodes(np.stack(places, axis=-1))
