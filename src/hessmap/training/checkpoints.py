"""Checkpoints: written whole or not at all, and refused if they belong to another training."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from hessmap.errors import DataFileError, HessmapError, InvalidInput, sentence

Location = str | os.PathLike[str]


def save_checkpoint(path: Location, state: dict[str, Any]) -> None:
    """Write a state of tensors and plain values so that the file is always a whole one, the old or the new.

    It goes to a temporary file beside, is forced to the disk, and is then renamed, which is one step for the system.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _force_folder(target.parent)


def load_checkpoint(path: Location) -> dict[str, Any]:
    """Read a state of tensors and plain values; its tensors come to the CPU, whatever device they were saved from.

    Args:
        path: A file of ``torch.save``. Nothing but tensors and plain values is unpickled.

    Returns:
        The dictionary in the file. ``load_state_dict`` of a model or an optimiser copies it to the model's device.

    Raises:
        DataFileError: If the file is missing, truncated, foreign, or holds anything but such a dictionary.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)  # the device need not exist here
    except (MemoryError, torch.OutOfMemoryError):  # no fault of the file
        raise
    except Exception as error:  # foreign bytes lead the unpickler to raise anything
        cause = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        got = f"{path} is not ({cause})"
        raise DataFileError(sentence("a checkpoint must be readable", got, _remedy(path))) from error
    if not isinstance(state, dict):
        raise DataFileError(sentence("a checkpoint must hold a training", f"{path} holds a {type(state).__name__}"))
    return state


def _remedy(path: Location) -> str:
    """What to do about a file that torch does not read; a whole one is not called damaged."""
    if not isinstance(path, str | os.PathLike) or not os.path.isfile(path):
        return ""
    if zipfile.is_zipfile(path):
        return "Save tensors and plain values alone, as torch.save(model.state_dict(), path) does"
    return "The file is truncated or was not written by torch.save: restore a whole copy of it, or use another path"


@contextmanager
def content_of(path: Location, what: str) -> Iterator[None]:
    """Around the lines that take a readable file apart: whatever they raise means that it does not hold ``what``."""
    try:
        yield
    except HessmapError:
        raise
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # keys that are missing, values of another type or shape
        got = f"{path} does not ({type(error).__name__}: {(str(error).splitlines() or [''])[0]})"
        raise DataFileError(sentence(f"the file must hold {what}", got, "Use another path to start again")) from error


def check_same_settings(path: Location, found: Any, wanted: dict[str, Any]) -> None:
    """Refuse to go on from a checkpoint that was made with other settings, and name the first that differs."""
    found = found if isinstance(found, dict) else {}
    for name, value in wanted.items():
        if found.get(name) != value:
            raise InvalidInput(
                sentence(
                    f"a training goes on only with the settings of its checkpoint {path}",
                    f"{name} was {found.get(name)!r} and is {value!r}",
                    "Use these settings, or another path for a new training",
                )
            )


def _force_folder(folder: Path) -> None:
    """Force the renaming to the disk, where folders can be opened (not on Windows)."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
