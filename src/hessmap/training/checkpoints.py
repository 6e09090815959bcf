"""Checkpoints: written atomically, and rejected if they belong to another training."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from hessmap.errors import DataFileError, HessmapError, InvalidInput, sentence
from hessmap.records import atomic_write

Location = str | os.PathLike[str]


def save_checkpoint(path: Location, state: dict[str, Any]) -> None:
    """Write a state of tensors and plain values to a file, atomically.

    Args:
        path: The file to write. An existing file is replaced.
        state: Tensors and plain values, such as state dictionaries.

    Raises:
        OSError: If the file cannot be written; an existing file then stays unchanged.

    Notes:
        The state is written to a temporary file in the same folder, flushed to the disk and renamed, so that the file
        is complete at all times: the old one or the new one.
    """
    target = Path(path)
    with atomic_write(target) as file:
        torch.save(state, file)
    _force_folder(target.parent)


def load_checkpoint(path: Location) -> dict[str, Any]:
    """Read a state of tensors and plain values, with the tensors on the CPU whatever device they were saved from.

    Args:
        path: A file of ``torch.save``. Only tensors and plain values are unpickled.

    Returns:
        The dictionary in the file. ``load_state_dict`` of a model or an optimiser copies it to the model's device.

    Raises:
        DataFileError: If the file is missing, truncated, of another format, or contains anything other than such a
            dictionary.
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
        raise DataFileError(
            sentence("a checkpoint must contain a training state", f"{path} contains a {type(state).__name__}")
        )
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
    """Report errors in reading the content of a checkpoint as errors of the file.

    Args:
        path: The file that the content was read from, for the message.
        what: What the file must contain, in words.

    Yields:
        Nothing.

    Raises:
        DataFileError: If the body raises anything other than a HessmapError or a lack of memory: missing keys, values
            of another type or shape.

    Example:
        >>> with content_of("run.pt", "a training"):
        ...     {}["epoch"]
        Traceback (most recent call last):
            ...
        hessmap.errors.DataFileError: the file must contain a training; run.pt does not (KeyError: 'epoch'). \
Use another path to restart.
    """
    try:
        yield
    except HessmapError:
        raise
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # keys that are missing, values of another type or shape
        got = f"{path} does not ({type(error).__name__}: {(str(error).splitlines() or [''])[0]})"
        raise DataFileError(sentence(f"the file must contain {what}", got, "Use another path to restart")) from error


def check_same_settings(path: Location, found: Any, wanted: dict[str, Any]) -> None:
    """Raise unless a checkpoint was made with the same settings.

    Args:
        path: The checkpoint, for the message.
        found: The settings in the checkpoint; anything other than a dictionary counts as empty.
        wanted: The settings of this training. Settings that are only in ``found`` are not compared.

    Raises:
        InvalidInput: If a setting differs. The message names the first one.
    """
    found = found if isinstance(found, dict) else {}
    for name, value in wanted.items():
        if found.get(name) != value:
            raise InvalidInput(
                sentence(
                    f"a training can be resumed only with the settings of its checkpoint {path}",
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
