"""Every public callable documents every parameter in a Google docstring.

Public is what the ``__all__`` of a package lists, and the ``__all__`` of a module that such a list names. Classes
document the parameters of their constructor, as ``Args`` or ``Attributes``.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

import pytest

import hessmap

PACKAGES = sorted(found.name for found in pkgutil.iter_modules(hessmap.__path__) if found.name != "__main__")
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Notes", "Note", "Example", "Examples", "References")
_HEADER = re.compile(rf"^({'|'.join(SECTIONS)}):$")
_ENTRY = re.compile(r"^    ((?:\*{0,2}\w+)(?:, \*{0,2}\w+)*): ?(.*)$")


def public_callables(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Dotted name and object of every callable that a package lists, nested packages and listed modules included."""
    names = getattr(module, "__all__", None)
    if names is None:
        names = [] if hasattr(module, "__path__") else own_names(module)
    for name in names:
        found = getattr(module, name)
        if not inspect.ismodule(found) and callable(found) and is_ours(found):
            yield f"{module.__name__}.{name}", found
        elif inspect.ismodule(found) and not hasattr(found, "__path__"):
            yield from public_callables(found)
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if found.ispkg:
            yield from public_callables(import_module(f"{module.__name__}.{found.name}"))


def own_names(module: ModuleType) -> list[str]:
    return [name for name, found in vars(module).items() if is_own(module, name, found)]


def is_own(module: ModuleType, name: str, found: object) -> bool:
    return not name.startswith("_") and getattr(found, "__module__", None) == module.__name__


def is_ours(found: object) -> bool:
    """Whether the constructor or function is hessmap's own: an alias of a type or an exception has no parameters."""
    if not str(getattr(found, "__module__", "")).startswith("hessmap"):
        return False
    if inspect.isclass(found):
        is_abstract_type = getattr(found, "_is_protocol", False) or issubclass(found, BaseException)
        return not is_abstract_type
    return inspect.isroutine(found) or hasattr(found, "__wrapped__")


def sections(text: str) -> dict[str, list[str]]:
    """The lines of each section of a docstring; what precedes the first header is under ''."""
    found: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        header = _HEADER.match(line)
        if header:
            current = header[1]
            found[current] = []
        else:
            found[current].append(line)
    return found


def documented_names(text: str) -> set[str]:
    """The parameters that a docstring describes with at least one word."""
    parts = sections(inspect.cleandoc(text))
    names = set()
    for header in ("Args", "Attributes"):
        lines = parts.get(header, [])
        for place, line in enumerate(lines):
            entry = _ENTRY.match(line)
            follows = place + 1 < len(lines) and lines[place + 1].startswith("        ")
            if entry and (entry[2].strip() or follows):
                names |= {name.strip(" *") for name in entry[1].split(",")}
    return names


def faults(name: str, found: object) -> list[str]:
    """What the docstring of a callable lacks, or describes although it does not exist."""
    text = inspect.getdoc(found) if not inspect.isclass(found) else vars(found).get("__doc__")
    if not text or not text.strip():
        return [f"{name}: no docstring"]
    try:
        signature = inspect.signature(found)  # type: ignore[arg-type]
    except ValueError:  # classes of the standard library's making, such as enums
        return []
    wanted = {parameter for parameter in signature.parameters if not parameter.startswith("_")} - {"self", "cls"}
    given = documented_names(text)
    lacking = [f"{name}: parameter {one!r} is not documented" for one in sorted(wanted - given)]
    attributes = "Attributes" in sections(inspect.cleandoc(text))
    beyond = [] if attributes else [f"{name}: {one!r} is not a parameter" for one in sorted(given - wanted)]
    is_function = not inspect.isclass(found)
    returns = signature.return_annotation not in (None, "None", inspect.Signature.empty)
    has_returns = {"Returns", "Yields"} & sections(inspect.cleandoc(text)).keys()
    unreturned = [f"{name}: no Returns section"] if is_function and returns and not has_returns else []
    return lacking + beyond + unreturned


def faults_of(package: str) -> list[str]:
    module = import_module(f"hessmap.{package}")
    return [fault for name, found in public_callables(module) for fault in faults(name, found)]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_parameter_of_every_public_callable_is_documented(package: str) -> None:
    found = faults_of(package)
    assert found == [], "\n".join(found)


def _complete(first: int, second: int = 2) -> int:
    """Add two numbers.

    Args:
        first: One number.
        second: The other;
            2 by default.

    Returns:
        The sum.
    """
    return first + second


def _lacking(first: int, second: int = 2) -> int:
    """Add two numbers, where ``second`` is the other one.

    Args:
        first: One number.
        third: No parameter.
    """
    return first + second


class _Class:
    """A number.

    Args:
        value:
    """

    def __init__(self, value: int) -> None:
        self.value = value


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (_complete, []),
        (_lacking, ["'second' is not documented", "'third' is not a parameter", "no Returns section"]),
        (_Class, ["'value' is not documented"]),
        (lambda: None, ["no docstring"]),
    ],
)
def test_the_check_finds_what_is_missing(found: object, expected: list[str]) -> None:
    reported = faults("one", found)
    assert len(reported) == len(expected)
    assert all(part in fault for part, fault in zip(expected, reported, strict=True))
