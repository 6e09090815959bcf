"""Gaussian moments of any activation by quadrature in the plane of two units.

Every entry of the population Hessian needs two units and two inputs. With an orthonormal basis of the plane of the two
rows the inputs outside of it enter only by E[x x^T] = I, and two integrals are left: the trapezoidal rule for smooth
functions, Gauss-Legendre between the kinks of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hessmap.theory.teacher_student.functions import ActivationFunction, even_nodes, piecewise_nodes
from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments, PairGeometry, PairMoments, Second, Units
from hessmap.theory.teacher_student.weights import Array

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
