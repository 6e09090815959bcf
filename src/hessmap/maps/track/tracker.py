"""The tracker: called at every step of a training, it measures when its share of the time allows it.

A training that is over is measured from its saved checkpoints. Points are numbers by name for loggers, and the tracker
is a callback of common trainers, whose packages are imported when it is asked for. Every process of a distributed
training calls it. Under DDP the model is whole in every process: with ``distributed`` all of them measure together, on
the data of all; else the first one measures alone, on its own data. The first one writes and logs. Models whose
parameters are sharded raise, with the call that measures them.
"""

from __future__ import annotations

import copy
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any, Self, SupportsIndex

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from hessmap.errors import (
    DataFileError,
    InvalidInput,
    checked_count,
    integer_or_none,
    list_of,
    require,
    sentence,
    short_text,
)
from hessmap.linalg import Processes, is_first_process
from hessmap.losses import AnyLoss
from hessmap.maps.track.point import (
    DEFAULT_QUANTITIES,
    Measured,
    NumSamples,
    Quantity,
    StoredTrack,
    Subject,
    TrackSettings,
    chosen_data,
    measured_point,
    new_track,
    passes_of_a_point,
    require_same_data,
    store_path,
    stored_track,
    track_name,
)
from hessmap.problem import Forward, Objective
from hessmap.records import CurvatureTrack, Part, StepQuantity, TrackPoint
from hessmap.training import load_checkpoint

Log = Callable[[dict[str, float], int], object]
_OF_POINT = ("risk", "gradient_norm", "sharpness", "trace", "gradient_overlap", "learning_rate")
_OF_STEP = (
    "preconditioned_sharpness",
    "stability_threshold",
    "batch_sharpness",
    "gradient_noise_scale",
    "directional_sharpness",
    "predicted_change",
    "measured_change",
    "critical_learning_rate",
)
Location = str | os.PathLike[str]
_WEIGHTS = ("model", "state_dict", "model_state_dict", "parameters")  # where training programs keep them
_STEPS = ("step", "global_step", "iteration", "epoch")
_PREFIXES = ("module.", "_orig_mod.")  # of torch's data-parallel and compiled wrappers


class Pace:
    """A clock that counts the time of a training and what measuring takes of it.

    The first measurement is due at once. Each later one is due when, if it costs what the last one did, all of them
    together stay within the share, and when the share of the time since the last one is as long as that one took: a
    training that was paused is not followed by a burst. ``seconds`` and ``spent`` may start where an interrupted
    training left them.
    """

    def __init__(
        self,
        share: float | None,
        seconds: float = 0.0,
        spent: float = 0.0,
        last_cost: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        must = "share must be above 0 and at most 1: the part of the time that measurements may take"
        require(share is None or 0 < share <= 1, must, f"got {share}", "Pass 0.1 for a tenth")
        self.share = share
        self.spent = spent
        self.last_cost = last_cost
        self._clock = clock
        self._start = clock() - seconds
        self._paid_since = clock()

    @property
    def seconds(self) -> float:
        """The time since the start of the training, measuring included."""
        return self._clock() - self._start

    @property
    def is_due(self) -> bool:
        if self.share is None or self.last_cost is None:
            return True
        expected = self.last_cost
        is_paid = self._clock() - self._paid_since >= expected * (1 / self.share - 1)
        return is_paid and self.spent + expected <= self.share * (self.seconds + expected)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Count what is done inside as measuring, also if it fails."""
        start = self._clock()
        try:
            yield
        finally:
            self._paid_since = self._clock()
            self.last_cost = self._paid_since - start
            self.spent += self.last_cost


def logged_values(point: TrackPoint) -> dict[str, float]:
    """Compute what is logged of a point.

    Args:
        point: A point of a track.

    Returns:
        Every number that the point has, by its name below "curvature/", with "_error" for uncertainties of estimates.
    """
    found: dict[str, float] = {}
    named: dict[str, Any] = {name: getattr(point, name) for name in _OF_POINT}
    if point.step_report is not None:
        named |= {name: getattr(point.step_report, name) for name in _OF_STEP}
    for name, value in named.items():
        if value is None:
            continue
        found[f"curvature/{name}"] = float(getattr(value, "value", value))
        error = getattr(value, "standard_error", None)
        if isinstance(value, StepQuantity) and value.error_kind in ("standard_error", "bracket"):
            error = value.error
        if error:
            found[f"curvature/{name}_error"] = float(error)
    return {name: value for name, value in found.items() if isfinite(value)}


def tensorboard_log(writer: Any) -> Log:
    """Make a ``log=`` of a TensorBoard writer.

    Args:
        writer: A ``torch.utils.tensorboard.SummaryWriter``.

    Returns:
        A function of values and step. ``wandb.log`` and ``mlflow.log_metrics`` are such functions already.

    Example:
        >>> from types import SimpleNamespace
        >>> log = tensorboard_log(SimpleNamespace(add_scalar=print))
        >>> log({"curvature/sharpness": 2.5}, 10)
        curvature/sharpness 2.5 10
    """

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log


def hugging_face_callback(tracker: Tracker) -> Any:
    """A ``transformers.TrainerCallback``: ``Trainer(.., callbacks=[tracker.hugging_face_callback()])``."""
    base = _base("transformers", ("transformers",), "TrainerCallback")
    after_step = _after_step(tracker)

    def on_step_end(callback: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
        _adopt(tracker, given.get("optimizer"))
        scheduler = given.get("lr_scheduler")
        after_step(state.global_step, scheduler.get_last_lr()[0] if scheduler is not None else args.learning_rate)

    def on_train_end(callback: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
        tracker.close()

    return type("CurvatureCallback", (base,), {"on_step_end": on_step_end, "on_train_end": on_train_end})()


def lightning_callback(tracker: Tracker) -> Any:
    """A ``lightning.pytorch.Callback``: ``Trainer(.., callbacks=[tracker.lightning_callback()])``."""
    base = _base("lightning", ("lightning.pytorch", "pytorch_lightning"), "Callback")
    after_step = _after_step(tracker)

    def on_train_batch_end(callback: Any, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        _adopt(tracker, trainer.optimizers[0] if len(trainer.optimizers) == 1 else None)
        rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
        after_step(trainer.global_step, float(rates[0]) if rates else None)

    def on_train_end(callback: Any, trainer: Any, module: Any) -> None:
        tracker.close()

    methods = {"on_train_batch_end": on_train_batch_end, "on_train_end": on_train_end}
    return type("CurvatureCallback", (base,), methods)()


def _adopt(tracker: Tracker, optimizer: Any) -> None:
    """Let the tracker report the steps of the trainer's optimiser, where it has none and this one trains its model."""
    inner = getattr(optimizer, "optimizer", optimizer)
    if tracker.optimizer is None and isinstance(inner, Optimizer):
        own = {id(parameter) for parameter in tracker.subject.model.parameters()}
        trained = [parameter for group in inner.param_groups for parameter in group["params"]]
        tracker.optimizer = inner if any(id(parameter) in own for parameter in trained) else None


def _after_step(tracker: Tracker) -> Callable[[int, float | None], None]:
    """Call the tracker once for every step: where gradients are accumulated, several batches make one."""
    last = -1

    def call(step: int, learning_rate: float | None) -> None:
        nonlocal last
        if step > last:
            last = step
            tracker(step, learning_rate=learning_rate)

    return call


def _base(package: str, modules: tuple[str, ...], name: str) -> type:
    for module in modules:
        try:
            found: type = getattr(import_module(module), name)
        except ImportError:
            continue
        return found
    must, remedy = f"this callback needs {package}", f"Install it (pip install {package}), or call tracker(step)"
    raise InvalidInput(sentence(must, "it is not installed", remedy))


class Tracker:
    """Curvature along a training: ``tracker(step)`` after every step of any loop, or a callback of a trainer of Hugging
    Face or Lightning.

    It measures at the first call, and then whenever another measurement keeps the time spent on measuring within
    ``share`` of the whole; ``share_reached`` is the share so far. Only a training that is too short for its first point
    exceeds it. A point has risk, gradient norm, the largest eigenvalues (started from the previous eigenvectors), the
    share of the gradient in their span, the trace with its standard error, and, with an optimiser, the report of its
    next step. Every point is written to the store when it is made. The model is measured in evaluation mode; mode,
    gradients, buffers, random state and optimiser stay as they are.

    Args:
        model: The model that is trained.
        loss: As for ``Problem``.
        data: (inputs, targets), a data set, or a loader of which every pass gives the same samples.
        objective: As for ``Problem``, in the place of a loss.
        optimizer: The optimiser of the training. Defaults to none: then points have no step report, and no stability
            threshold is drawn.
        log: Called with the values of every point by name, and its step: ``wandb.log``, ``mlflow.log_metrics``,
            ``tensorboard_log(writer)``. Defaults to none.
        num_samples: Samples of the data that are measured, a seeded choice that stays the same. Defaults to "auto": so
            few that the first point takes about 5 % of the passes of an epoch, at least 16; data of at most 512
            samples, lists of batches and streams are used whole. "all" uses everything.
        name: Name of the track in the store. Defaults to the time.
        store: File of the store. Defaults to that of all maps.
        share: Part of the time that measuring may take; None measures at every call. Defaults to 0.1.
        quantities: What is measured, names of ``QUANTITIES``. Defaults to eigenvalues, gradient overlap, trace and,
            with an optimiser, the preconditioned sharpness.
        count: Number of eigenvalues. Defaults to 5.
        part: "loss" (default), "outer_product" or "functional".
        tolerance: Residual of eigenpairs relative to the norm. Defaults to 1e-2.
        max_products: Limit on products of eigenpairs. Defaults to 500.
        trace_error: Relative standard error of the trace. Defaults to 0.05.
        max_probes: Limit on probes of the trace. Defaults to 64.
        batch_size: Samples of a mini-batch, for batch sharpness and noise scale. Defaults to that of ``step_report``.
        seed: Seed of probes and of the choice of samples. Defaults to 0.
        resume: Continue a stored track: points from the first step of the new calls on are measured again.
        replace: Forget a stored track of that name.
        forward: As for ``Problem``.
        parameters: As for ``Problem``.
        weights: As for ``Problem``.
        l2: As for ``Problem``.
        dtype: As for ``Problem``.
        memory_budget: As for ``Problem``. Defaults to 1 GiB.
        device: As for ``Problem``.
        distributed: Whether every process of torch.distributed has its own part of the data and calls the tracker at
            every step: points are then those of the data of all processes, and equal on all of them. Defaults to False:
            calls of the first process alone measure, on its own data.

    Notes:
        Of several processes only the first writes and logs. Without ``distributed``, ``measure`` measures everywhere.

    Example:
        >>> import hessmap as hm
        >>> model, data = hm.FullyConnected((6, 4, 3)).build(seed=0), hm.datasets.gaussian(30, 6, output_dim=3)
        >>> tracker = Tracker(model, "squared", data, share=None, count=2)
        >>> for step in range(2):
        ...     _ = tracker(step)
        >>> [point.step for point in tracker.track.points]
        [0, 1]
    """

    def __init__(
        self,
        model: nn.Module,
        loss: AnyLoss | None = None,
        data: Any = None,
        *,
        objective: Objective | None = None,
        optimizer: Any = None,
        log: Log | None = None,
        num_samples: NumSamples = "auto",
        name: str | None = None,
        store: str | os.PathLike[str] | None = None,
        share: float | None = 0.1,
        quantities: Sequence[Quantity] = DEFAULT_QUANTITIES,
        count: int = 5,
        part: Part = "loss",
        tolerance: float = 1e-2,
        max_products: int = 500,
        trace_error: float = 0.05,
        max_probes: int = 64,
        batch_size: int | None = None,
        seed: int = 0,
        resume: bool = False,
        replace: bool = False,
        forward: Forward | None = None,
        parameters: str | Sequence[str] | None = None,
        weights: Tensor | None = None,
        l2: float = 0.0,
        dtype: torch.dtype | None = None,
        memory_budget: int = 2**30,
        device: torch.device | str | None = None,
        distributed: bool = False,
    ) -> None:
        self.settings = TrackSettings(
            tuple(quantities), part, count, tolerance, max_products, trace_error, max_probes, seed, batch_size
        )
        require(log is None or callable(log), "log must be a function of values and step", f"got {short_text(log)}")
        self.optimizer, self._log = optimizer, log
        passes = passes_of_a_point(self.settings, optimizer is not None)
        chosen = chosen_data(data, weights, num_samples, self.settings.seed, passes)
        options = {
            "objective": objective,
            "forward": forward,
            "parameters": parameters,
            "weights": chosen.weights,
            "l2": l2,
            "dtype": dtype,
            "device": device,
        }
        self.subject = Subject(model, loss, chosen.data, {**options, "memory_budget": memory_budget}, distributed)
        Pace(share)  # refuses a wrong share before any work
        self._share, self._num_available = share, chosen.num_available
        self._naming = name, store_path(store), resume, replace
        self._is_resumed = False
        self._eigenvectors: NDArray[Any] | None = None
        if not distributed or (dist.is_available() and dist.is_initialized()):
            self._open()  # else at the first step: Lightning starts its processes after this

    def _open(self) -> None:
        """Make the track, or take it up from the store."""
        name, path, resume, replace = self._naming
        is_shared, writes = self.subject.is_distributed, is_first_process()
        self._processes = Processes(alone=not is_shared)
        stored_as = track_name(name, path, resume, replace) if writes else str(name)
        made = new_track(stored_as, self.subject.problem(), self.settings, self._share, self._num_available)
        found = stored_track(made, path, resume, replace) if writes else StoredTrack(made, path, writes=False)
        found.track = self._processes.first(found.track)
        last = found.points[-1].cost if found.points else None
        self._stored = found
        self.pace = Pace(self._share, found.track.seconds, found.track.spent, last)
        self._is_resumed = bool(found.points)

    def __call__(self, step: SupportsIndex, *, learning_rate: float | None = None) -> TrackPoint | None:
        """Measure if it is time to: by the clock of the first process, which measures alone unless the tracker is
        distributed.

        Args:
            step: The step of the training.
            learning_rate: Its learning rate, for the record. Defaults to that of the optimiser, if there is one.

        Returns:
            The point, or None.
        """
        if not hasattr(self, "_stored"):
            self._open()
        if not (self._stored.writes or self.subject.is_distributed):
            return None
        self._resume_at(checked_count("step", step, 0))
        is_due = self._processes.first(self.pace.is_due)
        return self.measure(step, learning_rate=learning_rate) if is_due else None

    def measure(self, step: SupportsIndex, *, learning_rate: float | None = None) -> TrackPoint:
        """Measure now and store the point."""
        at = checked_count("step", step, 0)
        if not hasattr(self, "_stored"):
            self._open()
        self._resume_at(at)
        points = self._stored.points
        must, got = "the steps of a track must increase", f"step {at} follows step {points[-1].step if points else at}"
        require(not points or at > points[-1].step, must, got)
        made = measure_and_store(
            self._stored,
            self.pace,
            self.subject,
            self.settings,
            at,
            start=self._eigenvectors,
            learning_rate=learning_rate,
            optimizer=self.optimizer,
        )
        self._eigenvectors = made.eigenvectors
        if self._log is not None and self._stored.writes:
            self._log(logged_values(made.point), at)
        return made.point

    def hugging_face_callback(self) -> Any:
        """This tracker for a Trainer of Hugging Face: ``Trainer(.., callbacks=[tracker.hugging_face_callback()])``."""
        return hugging_face_callback(self)

    def lightning_callback(self) -> Any:
        """This tracker for a Trainer of Lightning: ``Trainer(.., callbacks=[tracker.lightning_callback()])``."""
        return lightning_callback(self)

    @property
    def track(self) -> CurvatureTrack:
        """The points so far, with the times up to now."""
        return replace(self._stored.track, seconds=self.pace.seconds, spent=self.pace.spent)

    @property
    def share_reached(self) -> float:
        """The part of the time until now that went into measuring."""
        return self.track.share_reached

    def close(self) -> None:
        """Write how long the training was watched; every point is stored already."""
        if hasattr(self, "_stored"):
            self._stored.set_times(self.pace.seconds, self.pace.spent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _resume_at(self, step: int) -> None:
        """At the first step after a track was taken up: what was measured from there on belongs to a lost training."""
        if not self._is_resumed:
            return
        first = self._stored.points[0].step
        must = "a resumed training must be past the first point of its track"
        remedy = "Pass replace=True to replace the stored track"
        require(step > first, must, f"step {step} was given, and the first point is at step {first}", remedy)
        self._stored.drop_from(step)
        self._is_resumed = False

    def __repr__(self) -> str:
        made = self.track
        spent = f"{made.share_reached:.1%} of the time" + ("" if made.share is None else f" (at most {made.share:.0%})")
        return f"Tracker('{made.name}' in {self._stored.store}: {made.num_points} points, {spent})"


def measure_and_store(
    stored: StoredTrack,
    pace: Pace,
    subject: Subject,
    settings: TrackSettings,
    step: int,
    *,
    start: NDArray[Any] | None = None,
    learning_rate: float | None = None,
    optimizer: Any = None,
) -> Measured:
    """Measure the subject as it is now and add the point to the track."""
    seconds = pace.seconds
    with pace.measuring():
        problem = subject.problem()
        require_same_data(problem, stored.track.data_hash)
        found = measured_point(problem, settings, step, start=start, learning_rate=learning_rate, optimizer=optimizer)
        weights_hash = subject.weights_hash()
    point = replace(
        found.point, weights_hash=weights_hash, seconds=seconds, cost=pace.last_cost or 0.0, spent=pace.spent
    )
    point = problem.agreed(point)  # with the times of the first process
    stored.add(point, pace.seconds, pace.spent)
    return found._replace(point=point)


def track_checkpoints(
    model: nn.Module | Callable[[], nn.Module],
    checkpoints: Iterable[Location] | Mapping[int, Location],
    loss: AnyLoss,
    data: Any,
    *,
    name: str | None = None,
    store: Location | None = None,
    replace: bool = False,
    settings: TrackSettings | None = None,
    progress: Callable[[str], object] | None = None,
    **options: Any,
) -> CurvatureTrack:
    """Measure a model at every checkpoint, and store the points under a name, as ``Tracker`` does.

    Args:
        model: The architecture, or a function that builds it; it is not changed.
        checkpoints: Files, or files by step: of ``training.train``, of a plain ``state_dict``, or of a dictionary with
            one under "model", "state_dict" or "model_state_dict". Without a mapping the step is the one stored in the
            file ("step", "epoch", ..), else the last number in its name.
        loss: The loss of the problem.
        data: The data of the problem.
        name: Name of the track. With a stored name the work continues: points whose weights are the same are kept.
            Default: the time.
        store: The store. Default: ``HESSMAP_STORE``, or that of the command line.
        replace: Replace a stored track of this name. Defaults to False.
        settings: What to measure. Default: ``TrackSettings()``.
        progress: Called with the next step in words. Default: None.
        options: Further options of ``Problem``.

    Returns:
        CurvatureTrack: The track with a point per checkpoint.

    Example:
        >>> import tempfile, torch, hessmap as hm
        >>> model, data = hm.FullyConnected((6, 4, 3)).build(seed=0), hm.datasets.gaussian(30, 6, output_dim=3)
        >>> with tempfile.NamedTemporaryFile(suffix="-10.pt") as file:
        ...     torch.save(model.state_dict(), file.name)
        ...     track = track_checkpoints(model, [file.name], "squared", data)
        >>> [point.step for point in track.points]
        [10]
    """
    must = "model must be a torch.nn.Module or a function that builds one"
    require(callable(model), must, f"got {short_text(model)}")
    wanted = settings or TrackSettings()
    files = _steps(checkpoints)
    network = copy.deepcopy(model) if isinstance(model, nn.Module) else model()
    subject = Subject(network, loss, data, options)
    path = store_path(store)
    resume = name is not None and not replace
    stored_as = track_name(name, path, resume, replace)
    stored = stored_track(new_track(stored_as, subject.problem(), wanted, share=None), path, resume, replace)
    pace = Pace(None, stored.track.seconds, stored.track.spent)
    eigenvectors = None
    for step, file in files.items():
        _load(network, _weights(load_checkpoint(file), file), file)
        known = {point.step: point.weights_hash for point in stored.points}
        if known.get(step) == subject.weights_hash():
            continue
        if progress is not None:
            progress(f"step {step} from {file}")
        eigenvectors = measure_and_store(stored, pace, subject, wanted, step, start=eigenvectors).eigenvectors
    return stored.track


def _steps(checkpoints: Iterable[Location] | Mapping[int, Location]) -> dict[int, Location]:
    """Files by step, in the order of the steps; each is opened once, so that what is wrong is said before any work."""
    found: dict[int, Location] = {}
    is_one = isinstance(checkpoints, str | os.PathLike)
    require(not is_one, "checkpoints must be a list of files", f"got the one file {checkpoints}", "Put it in a list")
    pairs: Iterable[tuple[int | None, Location]] = (
        checkpoints.items()
        if isinstance(checkpoints, Mapping)
        else [(None, file) for file in list_of("checkpoints", checkpoints)]
    )
    for given, file in pairs:
        content = load_checkpoint(file)
        _weights(content, file)
        step = checked_count(f"the step of {file}", _step(content, file) if given is None else given, 0)
        must, remedy = "every checkpoint must have a step of its own", "Pass a mapping from steps to files"
        require(step not in found, must, f"{file} and {found.get(step)} are both of step {step}", remedy)
        found[step] = file
    require(bool(found), "there must be a checkpoint to measure", "the list is empty")
    return dict(sorted(found.items()))


def _step(content: Mapping[str, Any], file: Location) -> int:
    for name in _STEPS:
        step = integer_or_none(content.get(name))
        if step is not None:
            return step
    numbers = re.findall(r"\d+", Path(file).stem)
    must, remedy = "a checkpoint must contain its step, or have it in its name", "Pass a mapping from steps to files"
    require(bool(numbers), must, f"{file} does not", remedy)
    return int(numbers[-1])


def _weights(content: Mapping[str, Any], file: Location) -> dict[str, Tensor]:
    """The weights by name, without the prefixes that wrappers put before them."""
    candidates = [content[name] for name in _WEIGHTS if isinstance(content.get(name), dict)]
    state = candidates[0] if candidates else content
    is_named = all(isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items())
    if not state or not is_named:
        must = "a checkpoint must contain the weights of a model by name"
        got = f"{file} contains {', '.join(map(str, list(content)[:5]))}"
        raise DataFileError(sentence(must, got, "Save model.state_dict()"))
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return dict(state)


def _load(model: nn.Module, state: dict[str, Tensor], file: Location) -> None:
    for name, value in model.state_dict().items():
        found = state.get(name, value).dtype
        must = "a checkpoint must have the number format of the given model"
        is_same = (found.is_floating_point, found.is_complex) == (value.dtype.is_floating_point, value.dtype.is_complex)
        require(is_same, must, f"in {file}, {name} is {found} and not {value.dtype}")
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n\t", 1)[-1].split()).rstrip(".")
        must = "a checkpoint must be of the given model"
        raise InvalidInput(sentence(must, f"{file} is not ({reason})")) from error
