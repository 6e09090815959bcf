"""Training to a stationary point in float64: L-BFGS, Newton steps in a trust region, then plain ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from hessmap.datasets.data import Data
from hessmap.errors import require
from hessmap.records.provenance import data_hash, provenance
from hessmap.records.training import TrainingRun
from hessmap.training.losses import PerSample, loss_name
from hessmap.training.modes import evaluation_mode, threads
from hessmap.training.objective import Moment, history_arrays, objective
from hessmap_research.instruments.search import Search

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
    progress: Callable[[Moment], None] | None = None,
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
        converged=search.has_arrived,
        ending=f"gradient norm {search.latest.gradient_norm:.3g} after {search.num_evaluations} evaluations",
        settings=settings,
        seconds=time.perf_counter() - started,
        provenance=provenance(data_hash=data_hash(goal.inputs.numpy(), goal.targets.numpy())),
    )
