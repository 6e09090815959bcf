"""Training to a stationary point in float64: L-BFGS, Newton steps in a trust region, then plain ones.

Gradient flow: training in the limit of small steps, by an adaptive integrator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import isfinite, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, minres
from torch import Tensor, nn

from hessmap.datasets import Data
from hessmap.errors import HessmapError, require, sentence
from hessmap.losses import PerSample
from hessmap.records import TrainingRun, data_hash, provenance
from hessmap.training import loss_name
from hessmap.training.modes import evaluation_mode, threads
from hessmap.training.objective import (
    Evaluation,
    History,
    Objective,
    ProgressUpdate,
    divergence_error,
    history_arrays,
    objective,
)

Floats = NDArray[np.float64]

_MAX_REJECTED = 25  # steps in a row; the trust region is 4^-25 of its size by then


class _Stop(Exception):
    """Ends an optimiser of scipy from inside."""


class Search:
    """The way of a model to a stationary point; after each method the model is at the last accepted point."""

    def __init__(
        self,
        goal: Objective,
        tolerance: float,
        max_evaluations: int,
        record_every: int,
        progress: Callable[[ProgressUpdate], None] | None,
    ) -> None:
        self.goal = goal
        self.tolerance = tolerance
        self.max_evaluations = max_evaluations
        self.record_every = record_every
        self.progress = progress
        self.num_evaluations = 0
        self.history: History = []
        self._num_iterations = 0
        self._num_rejected = 0
        self._budget = max_evaluations
        self._point = _flat(goal.parameters)
        self._gradient: Tensor | None = None  # with its graph, at the place of the last Hessian product
        self._gradient_place = self._point
        self._record()

    @property
    def latest(self) -> Evaluation:
        return self.history[-1][1]

    @property
    def has_converged(self) -> bool:
        return self.latest.gradient_norm <= self.tolerance

    def descend(self, budget: int) -> None:
        """L-BFGS within a budget of evaluations; it bounds the largest entry of the gradient, not its norm."""
        self._budget = min(budget, self.max_evaluations)
        entry = self.tolerance / sqrt(len(self._point))
        options = {"gtol": entry, "ftol": 0.0, "maxcor": 30, "maxiter": budget, "maxfun": budget}
        self._run("L-BFGS-B", options)

    def refine(self) -> None:
        """Newton's method in a trust region, with Hessian-vector products, within all that is left."""
        self._budget = self.max_evaluations
        self._run("trust-ncg", {"gtol": self.tolerance, "maxiter": self._budget}, hessp=self._hessian_product)

    def polish(self) -> None:
        """Newton steps that look at the gradient alone, where changes of the value drown in its rounding."""
        with suppress(_Stop):
            while not self.has_converged and self._polishing_step():
                self._end()
        self._end()

    def _run(self, method: str, options: Mapping[str, float], **functions: object) -> None:
        if self.has_converged:
            return
        value_and_gradient, start = self._value_and_gradient, self._point
        try:
            minimize(
                value_and_gradient, start, jac=True, method=method, callback=self._accept, options=options, **functions
            )
        except _Stop:
            pass
        finally:
            self._move(self._point)  # also when the user interrupts: a trial point is no result
        self._end()

    def _polishing_step(self) -> bool:
        """A Newton step, kept if it halves the gradient norm and leaves the value the same up to rounding."""
        value, gradient = self._value_and_gradient(self._point)
        size = len(self._point)
        hessian = LinearOperator((size, size), lambda vector: self._hessian_product(self._point, vector), dtype=float)
        step, _ = minres(hessian, -gradient, rtol=1e-10, maxiter=size)
        value_after, gradient_after = self._value_and_gradient(self._point + step)
        is_flat = value_after <= value + 1e-12 * abs(value)
        if not is_flat or np.linalg.norm(gradient_after) > 0.5 * np.linalg.norm(gradient):
            return False
        self._point = self._point + step
        return True

    def _end(self) -> None:
        self._move(self._point)
        if self.history[-1][0] != self.num_evaluations:
            self._record()

    def _value_and_gradient(self, place: Floats) -> tuple[float, Floats]:
        self._count()
        self._move(place)
        value, gradient = self.goal.value_and_gradient()
        penalty = 0.5 * self.goal.weight_decay * float(place @ place)
        return float(value) + penalty, _flat(gradient)

    def _hessian_product(self, place: Floats, vector: Floats) -> Floats:
        """The derivative of gradient . vector; the graph of the gradient is kept while the place is the same."""
        self._count()
        if self._gradient is None or not np.array_equal(place, self._gradient_place):
            self._move(place)
            value = self.goal.batch_loss(self.goal.inputs, self.goal.targets)
            parts = torch.autograd.grad(value, self.goal.parameters, create_graph=True)
            self._gradient = torch.cat([part.flatten() for part in parts])
            self._gradient_place = place.copy()
        along = self._gradient @ torch.from_numpy(vector)
        product = torch.autograd.grad(along, self.goal.parameters, retain_graph=True, materialize_grads=True)
        return _flat(product) + self.goal.weight_decay * vector

    def _accept(self, place: Floats) -> None:
        """Called with the present point after each iteration, also of one whose step was rejected."""
        self._num_rejected = self._num_rejected + 1 if np.array_equal(place, self._point) else 0
        if self._num_rejected >= _MAX_REJECTED:
            raise _Stop
        self._point = place.copy()
        self._num_iterations += 1
        if self._num_iterations % self.record_every == 0:
            self._move(place)
            self._record()

    def _record(self) -> None:
        evaluation = self.goal.evaluate()
        if not isfinite(evaluation.loss):
            where = f"evaluation {self.num_evaluations}"
            raise divergence_error(evaluation.loss, where, "Start from smaller parameters")
        self.history.append((self.num_evaluations, evaluation))
        if self.progress is not None:
            self.progress(ProgressUpdate(self.num_evaluations, self.max_evaluations, self.latest))

    def _count(self) -> None:
        if self.num_evaluations >= self._budget:
            raise _Stop
        self.num_evaluations += 1

    @torch.no_grad()
    def _move(self, place: Floats) -> None:
        self._gradient = None  # its graph holds the parameters that change now
        start = 0
        for parameter in self.goal.parameters:
            part = place[start : start + parameter.numel()]
            parameter.copy_(torch.from_numpy(part).reshape(parameter.shape))
            start += parameter.numel()


def _flat(tensors: Sequence[Tensor]) -> Floats:
    joined: Floats = torch.cat([tensor.detach().flatten() for tensor in tensors]).numpy()
    return joined


_FIRST_SHARE = 0.25  # of the evaluations goes to L-BFGS: it is the faster one far from the end, Newton near it


def train_to_stationary_point(
    model: nn.Module,
    data: Data | tuple[Tensor, Tensor],
    loss: str | PerSample = "squared",
    *,
    weight_decay: float = 0.0,
    tolerance: float = 1e-8,
    max_evaluations: int = 20_000,
    record_every: int = 10,
    num_threads: int | None = None,
    progress: Callable[[ProgressUpdate], None] | None = None,
) -> TrainingRun:
    """Bring the gradient norm below ``tolerance``, changing the model that is given, in place.

    The objective is that of ``train``, over all samples, with the model in evaluation mode; the parameters must
    be float64. ``max_evaluations`` bounds gradients and Hessian-vector products together, and the run says
    which gradient norm was reached and whether it is below the tolerance. It need not be: a piecewise linear
    network may end on a kink. Nor need the point be finite: the gradient of cross-entropy on separable data
    without weight decay vanishes only at infinity.

    >>> from hessmap.datasets import linear_teacher
    >>> from hessmap.networks import FullyConnected
    >>> model = FullyConnected((4, 3, 2)).build(seed=0)
    >>> run = train_to_stationary_point(model, linear_teacher(50, 4, 2, noise=0.5))
    >>> run.converged, run.final_gradient_norm < 1e-8
    (True, True)
    """
    goal = objective(model, Data(*data), loss, weight_decay)
    formats = {str(parameter.dtype) for parameter in goal.parameters}
    require(
        formats == {"torch.float64"},
        "a stationary point needs float64 parameters",
        f"they are {', '.join(sorted(formats))}",
        "Use model.double()",
    )
    require(tolerance > 0, "tolerance must be positive", f"got {tolerance}")
    require(record_every >= 1, "record_every must be at least 1", f"got {record_every}")
    started = time.perf_counter()
    with threads(num_threads, goal.num_samples * goal.num_parameters), evaluation_mode(model):
        search = Search(goal, tolerance, max_evaluations, record_every, progress)
        search.descend(int(_FIRST_SHARE * max_evaluations))
        search.refine()
        search.polish()
    settings: dict[str, Any] = {
        "loss": loss_name(loss),
        "optimiser": "L-BFGS, then Newton",
        "weight_decay": weight_decay,
        "tolerance": tolerance,
        "max_evaluations": max_evaluations,
    }
    return TrainingRun(
        **history_arrays(search.history),
        converged=search.has_converged,
        ending=f"gradient norm {search.latest.gradient_norm:.3g} after {search.num_evaluations} evaluations",
        settings=settings,
        seconds=time.perf_counter() - started,
        provenance=provenance(data_hash=data_hash(goal.inputs.numpy(), goal.targets.numpy())),
    )


class IntegrationError(HessmapError, RuntimeError):
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
        raise IntegrationError(
            sentence(must, f"it stopped at {solution.t[-1] if solution.t.size else 0:g}: {solution.message}")
        )
    return np.ascontiguousarray(solution.y.T.reshape(moments.size, *shape))
