"""Curvature along a training that is over: from its saved checkpoints."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

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
from hessmap.losses import AnyLoss
from hessmap.maps.track.pace import Pace
from hessmap.maps.track.point import TrackSettings, new_track, store_path, stored_track, track_name
from hessmap.maps.track.subject import Subject
from hessmap.maps.track.tracker import measure_and_store
from hessmap.records import CurvatureTrack
from hessmap.training import load_checkpoint

Location = str | os.PathLike[str]
_WEIGHTS = ("model", "state_dict", "model_state_dict", "parameters")  # where training programs keep them
_STEPS = ("step", "global_step", "iteration", "epoch")
_PREFIXES = ("module.", "_orig_mod.")  # of torch's data-parallel and compiled wrappers


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
        must, remedy = "every checkpoint must have a step of its own", "Give a mapping from steps to files"
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
    must, remedy = "a checkpoint must tell its step, inside or in its name", "Give a mapping from steps to files"
    require(bool(numbers), must, f"{file} does not", remedy)
    return int(numbers[-1])


def _weights(content: Mapping[str, Any], file: Location) -> dict[str, Tensor]:
    """The weights by name, without the prefixes that wrappers put before them."""
    candidates = [content[name] for name in _WEIGHTS if isinstance(content.get(name), dict)]
    state = candidates[0] if candidates else content
    is_named = all(isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items())
    if not state or not is_named:
        must = "a checkpoint must hold the weights of a model by name"
        got = f"{file} holds {', '.join(map(str, list(content)[:5]))}"
        raise DataFileError(sentence(must, got, "Save model.state_dict()"))
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return dict(state)


def _load(model: nn.Module, state: dict[str, Tensor], file: Location) -> None:
    for name, value in model.state_dict().items():
        found = state.get(name, value).dtype
        must = "a checkpoint must hold numbers of the kind of the given model's"
        is_same = (found.is_floating_point, found.is_complex) == (value.dtype.is_floating_point, value.dtype.is_complex)
        require(is_same, must, f"in {file}, {name} is {found} and not {value.dtype}")
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split("\n\t", 1)[-1].split()).rstrip(".")
        must = "a checkpoint must be of the given model"
        raise InvalidInput(sentence(must, f"{file} is not ({reason})")) from error
