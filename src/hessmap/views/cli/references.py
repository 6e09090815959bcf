"""A user's own object by reference, ``package.module:attribute``, found from the current folder."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hessmap.errors import InvalidInput, require, sentence

if TYPE_CHECKING:
    from torch import nn

_SHAPE = "a model or data of your own is named as package.module:attribute"


def referenced_model(reference: str) -> nn.Module:
    """The module that the reference names, or that the zero-argument callable it names returns."""
    from torch import nn

    found = referenced_object(reference)
    if isinstance(found, nn.Module):
        return found
    require(
        callable(found),
        "a model must be an nn.Module or a callable without arguments that returns one",
        f"{reference} is a {type(found).__name__}",
    )
    made = called(found, reference)
    require(
        isinstance(made, nn.Module),
        "a model must be an nn.Module or a callable without arguments that returns one",
        f"{reference}() returned a {type(made).__name__}",
    )
    assert isinstance(made, nn.Module)
    return made


def referenced_data(reference: str) -> Any:
    """Whatever the reference names (inputs and targets, or a loader), called first if it is a function."""
    found = referenced_object(reference)
    return called(found, reference) if inspect.isroutine(found) or inspect.isclass(found) else found


def referenced_object(reference: str) -> Any:
    """Import the module and follow the dotted attribute."""
    module_name, colon, attributes = reference.partition(":")
    require(
        bool(module_name and colon and attributes),
        _SHAPE,
        f"got {reference!r}",
        "Write for example my_package.models:classifier",
    )
    found: Any = _imported(module_name)
    for name in attributes.split("."):
        if not hasattr(found, name):
            raise InvalidInput(
                sentence(f"{reference} must exist", f"there is no {name!r}", _offer(name, found, module_name))
            )
        found = getattr(found, name)
    return found


def called(factory: Any, reference: str) -> Any:
    """The result of a factory without arguments; what it needs or raises is said in one sentence."""
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise InvalidInput(
            sentence(f"{reference} must be callable without arguments", str(error), "Wrap it in a function")
        ) from error
    except ValueError:
        pass  # no signature to read: try the call
    try:
        return factory()
    except Exception as error:
        raise InvalidInput(sentence(f"{reference}() must return", _raised(error))) from error


def _imported(module_name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise InvalidInput(
                sentence(
                    f"the module {module_name!r} must be importable from the current folder",
                    f"there is no module {missing!r} in {here} or among the installed packages",
                    "Change to the folder that holds it, or install it",
                )
            ) from error
        raise InvalidInput(sentence(f"the module {module_name!r} must import", _raised(error))) from error
    except Exception as error:
        raise InvalidInput(sentence(f"the module {module_name!r} must import", _raised(error))) from error


def _raised(error: Exception) -> str:
    return f"it raised {type(error).__name__}: {error}".rstrip(".")


def _offer(name: str, owner: Any, module_name: str) -> str:
    """The near names of the owner, or all of them where they are few."""
    names = [public for public in dir(owner) if not public.startswith("_")]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"Near names in {module_name}: {', '.join(near)}"
    return f"{module_name} has {', '.join(names)}" if 0 < len(names) <= 12 else ""
