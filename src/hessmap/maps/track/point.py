"""What a track measures: a model with its loss and data, one measurement of it, and the track in the store.

The data are a seeded, fixed subset, small enough that a point costs little beside an epoch of training.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, Subset

from hessmap.applications import STEP_QUANTITIES, StepName, step_report
from hessmap.errors import InvalidInput, checked_count, require, require_name, sentence, short_text
from hessmap.hessians import distributed, functional_hessian, loss_hessian, outer_product_hessian
from hessmap.linalg import frobenius_norm
from hessmap.losses import AnyLoss
from hessmap.maps.curvature_map.dense import description
from hessmap.measurement import gradient_overlap, top_eigenpairs, trace_estimate
from hessmap.problem import Problem
from hessmap.records import (
    DEFAULT_STORE,
    PARTS,
    CurvatureTrack,
    EigenpairsMeasurement,
    Part,
    StepQuantity,
    StepReport,
    Store,
    TrackPoint,
    add_point,
    add_track,
    data_hash,
    drop_points,
    drop_track,
    encode,
    free_name,
    load_track,
    require_free_track,
    set_times,
)
from hessmap.training import evaluation_mode

BaseQuantity = Literal["eigenvalues", "gradient_overlap", "trace"]
Quantity = BaseQuantity | StepName
QUANTITIES: tuple[Quantity, ...] = (*get_args(BaseQuantity), *STEP_QUANTITIES)
DEFAULT_QUANTITIES: tuple[Quantity, ...] = (*get_args(BaseQuantity), "preconditioned_sharpness")


@dataclass(frozen=True)
class TrackSettings:
    """What is measured at every point of a track, and how accurately.

    Attributes:
        quantities: What to measure. Defaults to eigenvalues, gradient overlap, trace and preconditioned sharpness.
        part: The Hessian: "loss", "outer_product" or "functional". Defaults to "loss".
        count: Number of eigenvalues. Defaults to 5.
        tolerance: Their residual relative to the norm. Defaults to 0.01.
        max_products: Most products for the eigenvalues. Defaults to 500.
        trace_error: Standard error of the trace relative to it. Defaults to 0.05.
        max_probes: Most probes of the trace. Defaults to 64.
        seed: Seed of the probes, the same at every point, so that differences come from the network. Defaults to 0.
        batch_size: Samples of a mini-batch for quantities of ``step_report``, which need an optimiser. Default: None.
    """

    quantities: tuple[Quantity, ...] = DEFAULT_QUANTITIES
    part: Part = "loss"
    count: int = 5
    tolerance: float = 1e-2
    max_products: int = 500
    trace_error: float = 0.05
    max_probes: int = 64
    seed: int = 0
    batch_size: int | None = None

    @property
    def step_quantities(self) -> tuple[StepName, ...]:
        """Those of ``step_report``."""
        return tuple(name for name in STEP_QUANTITIES if name in self.quantities)

    def __post_init__(self) -> None:
        for quantity in self.quantities:
            require_name("quantities", quantity, QUANTITIES)
        require_name("part", self.part, PARTS)
        must = "the overlap of the gradient needs eigenvectors"
        has_vectors = "gradient_overlap" not in self.quantities or "eigenvalues" in self.quantities
        require(has_vectors, must, "'eigenvalues' is not among the quantities", "Add it")
        require(self.count >= 1, "count must be at least 1", f"got {self.count}")
        require(self.max_products >= 1, "max_products must be at least 1", f"got {self.max_products}")
        require(self.max_probes >= 2, "max_probes must be at least 2", f"got {self.max_probes}")
        require(0 < self.trace_error < 1, "trace_error must be between 0 and 1", f"got {self.trace_error}")
        require(1e-15 <= self.tolerance < 1, "tolerance must be between 1e-15 and 1", f"got {self.tolerance}")

    def as_dict(self) -> dict[str, Any]:
        """All but the part, which a track names beside them."""
        named = asdict(self)
        del named["part"]
        return {**named, "quantities": tuple(sorted(self.quantities))}


_HESSIANS = {"loss": loss_hessian, "outer_product": outer_product_hessian, "functional": functional_hessian}


class Measured(NamedTuple):
    """A point without its times and hash, and the eigenvectors, from which the next one may start."""

    point: TrackPoint
    eigenvectors: NDArray[Any] | None


@torch.enable_grad()
def measured_point(
    problem: Problem,
    settings: TrackSettings,
    step: int,
    *,
    start: NDArray[Any] | None = None,
    learning_rate: float | None = None,
    optimizer: Any = None,
) -> Measured:
    """Risk, gradient, and what the settings ask for; ``start`` holds the eigenvectors of an earlier step."""
    needing = [name for name in settings.step_quantities if name not in DEFAULT_QUANTITIES]
    must, got = f"{', '.join(needing)} of a tracker need its optimiser", "it has none"
    require(optimizer is not None or not needing, must, got, "Pass optimizer=")
    hessian = _HESSIANS[settings.part](problem)
    gradient = problem.gradient().to("cpu", torch.float64)
    count = min(settings.count, problem.num_parameters)
    pairs, overlap, trace, num_products = None, None, None, 0
    if "eigenvalues" in settings.quantities:
        given: dict[str, Any] = {"tolerance": settings.tolerance, "max_products": settings.max_products}
        pairs = top_eigenpairs(hessian, count, start=start, seed=settings.seed, **given)
        num_products += pairs.num_products
    if "gradient_overlap" in settings.quantities:
        assert pairs is not None
        overlap = gradient_overlap(gradient, pairs)
    if "trace" in settings.quantities:
        wanted: dict[str, Any] = {"relative_error": settings.trace_error, "max_products": settings.max_probes}
        trace = trace_estimate(hessian, known=pairs, seed=settings.seed, **wanted)
        num_products += trace.num_products
    report = None if optimizer is None else _step_report(problem, settings, optimizer, pairs)
    num_products += 0 if report is None else report.num_products
    if learning_rate is None and report is not None:
        learning_rate = report.learning_rate
    point = TrackPoint(
        step=step,
        risk=problem.risk(),
        gradient_norm=frobenius_norm(gradient.double().cpu().numpy()),
        eigenvalues=np.zeros(0) if pairs is None else pairs.eigenvalues,
        residuals=np.zeros(0) if pairs is None else pairs.residuals,
        converged=pairs is None or pairs.converged,
        trace=None if trace is None else replace(trace, provenance=None),
        gradient_overlap=overlap,
        learning_rate=learning_rate,
        num_products=num_products,
        is_warm=start is not None,
        weights_hash="",
        seconds=0.0,
        cost=0.0,
        spent=0.0,
        step_report=report,
    )
    return Measured(point, _vectors(pairs))


def _step_report(
    problem: Problem, settings: TrackSettings, optimizer: Any, pairs: EigenpairsMeasurement | None
) -> StepReport:
    """The report of the optimiser's next step; the sharpness is that of the eigenpairs where these are of the loss."""
    known = None
    if pairs is not None and settings.part == "loss":
        known = StepQuantity(float(pairs.eigenvalues[0]), float(pairs.residuals[0]), "residual", pairs.converged)
    found = step_report(
        problem,
        optimizer,
        quantities=settings.step_quantities,
        batch_size=settings.batch_size,
        tolerance=settings.tolerance,
        max_products=settings.max_products,
        known_sharpness=known,
        seed=settings.seed,
    )
    return replace(found, provenance=None)


def _vectors(pairs: EigenpairsMeasurement | None) -> NDArray[Any] | None:
    return None if pairs is None else pairs.eigenvectors


_MUST_AGREE = ("network", "loss", "part", "num_parameters", "num_samples", "data_hash", "settings")


def new_track(
    name: str, problem: Problem, settings: TrackSettings, share: float | None, num_available: int | None = None
) -> CurvatureTrack:
    """A track of a problem, without points; ``num_available`` samples of this process were there to choose from."""
    available = torch.tensor([problem.local.num_samples if num_available is None else num_available]).double()
    return CurvatureTrack(
        name=name,
        network=description(problem.model),
        loss=problem.loss.name,
        part=settings.part,
        num_parameters=problem.num_parameters,
        num_samples=problem.num_samples,
        data_hash=data_fingerprint(problem),
        share=share,
        seconds=0.0,
        spent=0.0,
        settings={
            **settings.as_dict(),
            **_of_problem(problem),
            "num_available": round(float(problem.mean_over_processes(available / problem.share))),  # the sum of all
        },
        points=(),
        provenance=problem.provenance,
    )


def _of_problem(problem: Problem) -> dict[str, object]:
    dtype = str(problem.dtype).removeprefix("torch.")
    return {"l2": problem.l2, "parameters": problem.layout.names, "dtype": dtype}


class StoredTrack:
    """The points so far; every change is written before it is made here. ``writes`` is False on all ranks but the
    first."""

    def __init__(self, made: CurvatureTrack, store: Path, writes: bool = True) -> None:
        self.track = made
        self.store = store
        self.writes = writes

    @property
    def points(self) -> tuple[TrackPoint, ...]:
        return self.track.points

    def add(self, point: TrackPoint, seconds: float, spent: float) -> None:
        """Add a point, in the place of an earlier one of the same step."""
        if self.writes:
            with Store(self.store, create=True) as opened:
                add_point(opened, self.track.name, point, seconds, spent)
        others = [other for other in self.points if other.step != point.step]
        points = tuple(sorted([*others, point], key=lambda each: each.step))
        self.track = replace(self.track, points=points, seconds=seconds, spent=spent)

    def drop_from(self, step: int) -> None:
        """Forget the points from a step on."""
        if self.writes:
            with Store(self.store) as opened:
                drop_points(opened, self.track.name, step)
        self.track = replace(self.track, points=tuple(point for point in self.points if point.step < step))

    def set_times(self, seconds: float, spent: float) -> None:
        if self.writes:
            with Store(self.store) as opened:
                set_times(opened, self.track.name, seconds, spent)
        self.track = replace(self.track, seconds=seconds, spent=spent)


def stored_track(made: CurvatureTrack, store: Path, resume: bool, replaced: bool) -> StoredTrack:
    """The track under its name in the store: new, or gone on with where ``resume`` says so."""
    with Store(store, create=True) as opened:
        opened.require_sound()
        if replaced:
            drop_track(opened, made.name)
        elif resume and opened.execute("SELECT 1 FROM track WHERE name = ?", (made.name,)):
            found = load_track(opened, made.name)
            _require_same(found, made)
            return StoredTrack(replace(found, share=made.share, provenance=made.provenance), store)
        add_track(opened, made)
    return StoredTrack(made, store)


def store_path(store: str | os.PathLike[str] | None) -> Path:
    """The given file, else that of HESSMAP_STORE, else the one that all commands use."""
    return Path(store or os.environ.get("HESSMAP_STORE") or DEFAULT_STORE)


def track_name(name: str | None, store: Path, resume: bool, replaced: bool) -> str:
    """The given name, which must be free unless it is gone on with or replaced, or the time; asked before any work."""
    if name is not None:
        must = "a track name must consist of letters, digits, '.', '-' and '_'"
        require(re.fullmatch(r"[\w.-]+", name) is not None, must, f"got {name!r}")
    require(not (resume or replaced) or name is not None, "resume and replace need the name of a track", "got none")
    require(not (resume and replaced), "resume and replace exclude each other", "both are set")
    with Store(store, create=True) as opened:
        if name is None:
            return free_name(opened, "track", time.strftime("%Y%m%d-%H%M%S"))
        if not (resume or replaced):
            require_free_track(opened, name)
    return name


def _require_same(found: CurvatureTrack, made: CurvatureTrack) -> None:
    """Refuse to go on with a track that was made of something else, and name the first thing that differs."""
    for field in _MUST_AGREE:
        before, now = getattr(found, field), getattr(made, field)
        if field == "settings":
            before, now = encode(before), encode(now)
        if before != now:
            must = (
                f"a track can be resumed only with the settings it began with, and {made.name!r} is of another {field}"
            )
            remedy = "Choose another name, or pass replace=True to replace the stored one"
            raise InvalidInput(sentence(must, f"it was {before} and is {now}", remedy))


NumSamples = int | Literal["auto", "all"]
SHARE_OF_AN_EPOCH = 0.05  # of the gradients of single samples that an epoch takes
FEWEST = 16  # samples below which curvature says little about the data
SMALL = 512  # samples up to which the data are taken as they are: a subset that the user chose
# Gradients of a sample: a Hessian product takes about two. Products of a first point to a tolerance of 1e-2, at most,
# seen on two MLPs, untrained and trained: 56, 72 and 140 with 1, 5 and 10 eigenvalues.
_PER_PRODUCT, _FIRST_PRODUCTS, _PRODUCTS_PER_PAIR, _OTHER_PASSES = 2, 50, 9, 3
_PRECONDITIONED = 50  # products of the preconditioned sharpness


@dataclass(frozen=True)
class Subject:
    """A model, its loss and the data on which its curvature is measured; ``options`` go to ``Problem``.

    With ``is_distributed`` the data are those of this process, and the problem is that of all of them.
    """

    model: nn.Module
    loss: AnyLoss | None
    data: Any
    options: dict[str, Any]
    is_distributed: bool = False

    def __post_init__(self) -> None:
        got = f"got {type(self.model).__name__}"
        require(isinstance(self.model, nn.Module), "model must be a torch.nn.Module", got)
        is_shared = isinstance(self.data, DataLoader) and self.data.persistent_workers
        must = "a loader that is read in the middle of a training must not keep its worker processes"
        got = "this one has persistent_workers=True, and reading it again would restart the training's own pass"
        require(not is_shared, must, got, "Pass a separate loader to the tracker")

    def problem(self) -> Problem:
        """The problem at the present weights, in evaluation mode: dropout off, batch-norm by its running statistics.

        Mode, gradients, buffers and random state of the model stay as they were.
        """
        with evaluation_mode(self.model), torch.enable_grad():
            own = Problem(self.model, self.loss, self.data, **self.options)
            return distributed(own) if self.is_distributed else own

    def weights_hash(self) -> str:
        """Equal for equal parameters and buffers."""
        return data_hash(*(_plain(value).numpy() for value in self.model.state_dict().values()))


def data_fingerprint(problem: Problem) -> str:
    """The same for the same samples in any order: a sum of squares, so that nothing cancels but rounding."""
    own = torch.tensor([float(problem.local.samples.digest().sums[1])], dtype=torch.float64)
    total = problem.mean_over_processes(own / problem.share)  # the sum of all
    return f"{problem.num_samples} samples, {float(total):.8g}"


def require_same_data(problem: Problem, before: str) -> None:
    """Refuse points on other data: they could not be compared."""
    now, remedy = data_fingerprint(problem), "Pass data that do not change to the tracker"
    require(now == before, "all points of a track must be measured on the same data", f"{before} are now {now}", remedy)


def _plain(value: Tensor) -> Tensor:
    """On the processor, in a number format that numpy has."""
    there = value.detach().to("cpu")
    return there.float() if there.dtype == torch.bfloat16 else there


class ChosenData(NamedTuple):
    """The data to measure on, the weights of its samples, and how many samples there were to choose from (None: all
    are used)."""

    data: Any
    weights: Any
    num_available: int | None


def passes_of_a_point(settings: TrackSettings, has_optimizer: bool) -> int:
    """Gradients of every measured sample that a first point is expected to take, in counted passes."""
    quantities, products = settings.quantities, 0
    if "eigenvalues" in quantities:
        products += _FIRST_PRODUCTS + _PRODUCTS_PER_PAIR * settings.count
    if "trace" in quantities:
        products += settings.max_probes // 2
    if has_optimizer and "preconditioned_sharpness" in quantities:
        products += _PRECONDITIONED
    return _PER_PRODUCT * products + _OTHER_PASSES


def chosen_data(data: Any, weights: Any, wanted: NumSamples, seed: int, passes: int) -> ChosenData:
    """Some rows of tensors, samples of a data set or of a loader, or batches of a list, the same for the same seed.

    Args:
        data: As for ``Problem``.
        weights: Weights of the samples, or None.
        wanted: Number of samples, "auto" or "all".
        seed: Seed of the choice.
        passes: Gradients of a sample that a point takes.

    Returns:
        ChosenData: the data as they are where they are small, or where a part of them cannot be chosen (streams).
    """
    if wanted == "all" or data is None:
        return ChosenData(data, weights, None)
    is_count = isinstance(wanted, int | np.integer) and not isinstance(wanted, bool)
    must = "num_samples must be a number of samples, 'auto' or 'all'"
    require(wanted == "auto" or is_count, must, f"got {short_text(wanted)}")
    available = _num_available(data)
    if available is None:
        return ChosenData(data, weights, None)
    count = checked_count("num_samples", wanted) if wanted != "auto" else _automatic_count(available, passes)
    if count >= available:
        return ChosenData(data, weights, None)
    order = torch.randperm(available, generator=torch.Generator().manual_seed(seed))[:count].sort().values
    kept = None if weights is None else torch.as_tensor(weights)[order]
    return ChosenData(_part(data, order), kept, available)


def _automatic_count(available: int, passes: int) -> int:
    if available <= SMALL:
        return available
    return max(FEWEST, int(SHARE_OF_AN_EPOCH * available / passes))


def _num_available(data: Any) -> int | None:
    """Samples to choose from; None where a part of the data cannot be chosen."""
    if isinstance(data, DataLoader):
        is_plain = isinstance(data.sampler, SequentialSampler | RandomSampler) and data.batch_size is not None
        return _num_available(data.dataset) if is_plain else None
    if isinstance(data, Dataset):
        return None if isinstance(data, IterableDataset) or not hasattr(data, "__len__") else len(data)
    lengths = {len(tensor) for tensor in _tensors(data)} if isinstance(data, tuple | Mapping) else set()
    is_pair = isinstance(data, list) and len(data) == 2 and isinstance(data[1], Tensor | np.ndarray)
    if is_pair:
        lengths = {len(tensor) for tensor in _tensors(data)}
    return lengths.pop() if len(lengths) == 1 else None


def _tensors(data: Any) -> list[Any]:
    if isinstance(data, Tensor | np.ndarray):
        return [data] if data.ndim else []
    if isinstance(data, tuple | list | Mapping):
        return [tensor for item in (data.values() if isinstance(data, Mapping) else data) for tensor in _tensors(item)]
    return []


def _part(data: Any, order: Tensor) -> Any:
    if isinstance(data, DataLoader):
        size = min(data.batch_size or 1, len(order))
        return DataLoader(Subset(data.dataset, order.tolist()), batch_size=size, collate_fn=data.collate_fn)
    if isinstance(data, Dataset):
        return Subset(data, order.tolist())
    if isinstance(data, Tensor):
        return data[order.to(data.device)] if data.ndim else data
    if isinstance(data, np.ndarray):
        return data[order.numpy()] if data.ndim else data
    if isinstance(data, Mapping):
        return {key: _part(value, order) for key, value in data.items()}
    if isinstance(data, tuple | list):
        items = [_part(item, order) for item in data]
        return type(data)(*items) if hasattr(data, "_fields") else type(data)(items)
    return data
