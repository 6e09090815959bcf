"""Gradient flow: training in the limit of small steps, by an adaptive integrator."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import HessmapError, require, sentence

Floats = NDArray[np.float64]


class FlowFailed(HessmapError, RuntimeError):
    """The integrator could not reach the last time."""


def gradient_flow(
    gradient: Callable[[Floats], Floats],
    start: ArrayLike,
    times: ArrayLike,
    *,
    relative_tolerance: float = 1e-10,
    absolute_tolerance: float = 1e-14,
) -> Floats:
    """The points of d theta / dt = -gradient(theta) at the given times, from ``start`` at time 0.

    ``start`` has any shape, for instance (num_students, num_parameters): the gradient is asked at all of them at once
    and must keep the shape. The result has one axis more in front, for the times. The integrator is scipy's DOP853 (an
    explicit method of order 8 with adaptive steps) at the given tolerances, per coordinate.

    For the loss theta^2 / 2 the flow is theta e^{-t}.

    >>> points = gradient_flow(lambda theta: theta, [2.0], [0.0, 1.0])
    >>> bool(abs(points[1, 0] - 2 * np.exp(-1)) < 1e-9)
    True
    """
    from scipy.integrate import solve_ivp

    first, moments = np.asarray(start, dtype=np.float64), np.atleast_1d(np.asarray(times, dtype=np.float64))
    is_ordered = bool(moments.size and moments[0] >= 0 and np.all(np.diff(moments) > 0))
    require(is_ordered, "times must be increasing and not negative", f"got {moments.tolist()[:5]}")
    for name, tolerance in (("relative", relative_tolerance), ("absolute", absolute_tolerance)):
        require(tolerance > 0, f"the {name} tolerance must be positive", f"got {tolerance}")
    shape = first.shape

    def velocity(_time: float, theta: Floats) -> Floats:
        found = np.asarray(gradient(theta.reshape(shape)), dtype=np.float64)
        must = "the gradient must have the shape of the parameters"
        require(found.shape == shape, must, f"it has {found.shape}, they have {shape}")
        return -found.ravel()

    if moments[-1] == 0.0:
        return first[None].copy()
    solution = solve_ivp(
        velocity,
        (0.0, float(moments[-1])),
        first.ravel(),
        method="DOP853",
        t_eval=moments,
        rtol=relative_tolerance,
        atol=absolute_tolerance,
    )
    if not solution.success:
        must = f"the flow must reach time {moments[-1]:g}"
        raise FlowFailed(
            sentence(must, f"it stopped at {solution.t[-1] if solution.t.size else 0:g}: {solution.message}")
        )
    return np.ascontiguousarray(solution.y.T.reshape(moments.size, *shape))
