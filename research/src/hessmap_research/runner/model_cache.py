"""Trained models by what they were trained from: no study trains one twice, and a killed training goes on.

A model lives in ``<models>/<key>/``, the key being a hash of its settings: ``model.pt`` (what the training returned),
``settings.json`` (written last: its presence says that the model is whole) and, until then, ``checkpoints/``.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hessmap.errors import DataFileError, sentence
from hessmap.records import atomic_write
from hessmap_research.runner.encoding import case_key

CACHE_VERSION = 1
_folder: Path | None = None


def models_folder() -> Path:
    """Where trained models are kept: set by the run, else HESSMAP_MODELS, else ./hessmap-runs/models."""
    return _folder or Path(os.environ.get("HESSMAP_MODELS", "hessmap-runs/models")).absolute()


def use_models_folder(folder: str | Path | None) -> Path | None:
    """Keep the models of this process in a folder, or for None in the default one; returns what was set before."""
    global _folder
    before, _folder = _folder, Path(folder).absolute() if folder is not None else None
    return before


def model_key(settings: Mapping[str, Any]) -> str:
    """The address of the model that these settings make."""
    return hashlib.sha256(f"{CACHE_VERSION}:{case_key(settings)}".encode()).hexdigest()[:32]


def cached_model(
    settings: Mapping[str, Any], train: Callable[[Path], Any], network: Mapping[str, Any] | None = None
) -> Any:
    """What ``train(checkpoints)`` returns for these settings, from the cache where it is there.

    ``settings`` holds everything that decides the outcome: architecture, data and its hash, training, seed, the
    version of the recipe. ``train`` is given a folder for its checkpoints, which still holds those of a training that
    was killed, and returns tensors, numbers and strings in dictionaries and lists (a state_dict). Of several
    processes that want the same model one trains, and the others wait. ``network`` describes the network in JSON and is
    kept beside the settings, so that it can be built again from the cache alone; it is not a part of the address.
    """
    place = models_folder() / model_key(settings)
    if not _is_complete(place):
        place.mkdir(parents=True, exist_ok=True)
        with _exclusive_lock(place / "lock"):
            if not _is_complete(place):
                checkpoints = place / "checkpoints"
                checkpoints.mkdir(exist_ok=True)
                started = time.perf_counter()
                _write_model(place, settings, network, train(checkpoints), time.perf_counter() - started)
                shutil.rmtree(checkpoints)
    return _read_model(place)


def _is_complete(place: Path) -> bool:
    return (place / "settings.json").exists()


@contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released by the kernel when the process ends, however it ends
        yield


def _write_model(
    place: Path, settings: Mapping[str, Any], network: Mapping[str, Any] | None, model: Any, seconds: float
) -> None:
    import torch

    path = place / "model.pt"
    with atomic_write(path) as file:
        torch.save(model, file)
    about = {"settings": dict(settings), "sha256": _hash(path), "seconds": seconds, "cache_version": CACHE_VERSION}
    if network is not None:
        about["network"] = dict(network)
    with atomic_write(place / "settings.json") as file:
        file.write(json.dumps(about, indent=1, sort_keys=True).encode())


def _read_model(place: Path) -> Any:
    import torch

    path = place / "model.pt"
    try:
        about = json.loads((place / "settings.json").read_text())
        if path.exists() and _hash(path) == about["sha256"]:
            return torch.load(path, map_location="cpu", weights_only=True)
        reason = ""
    except MemoryError:  # no fault of the files
        raise
    except Exception as error:  # foreign bytes lead the unpickler to raise anything
        reason = f" ({type(error).__name__}: {(str(error).splitlines() or [''])[0]})"
    must = "a cached model must be as it was written"
    raise DataFileError(sentence(must, f"{path} is not{reason}", f"Delete {place} to train it again"))


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
