"""One exception family, one sentence shape: what must hold; which value broke it. What to do."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from numbers import Rational, Real
from typing import SupportsIndex, TypeVar

Item = TypeVar("Item")
EXIT_OF_INTERRUPTION = 130  # of the program after Ctrl-C: 128 + SIGINT, as a shell reports it
EXIT_OF_CLOSED_PIPE = 141  # where the reader of its output has gone: 128 + SIGPIPE


class HessmapError(Exception):
    """Everything hessmap raises on purpose."""


class InvalidInput(HessmapError, ValueError):
    """A value that the caller passed cannot be used."""


class UnknownName(InvalidInput):
    """A name that is not among the known ones; the message offers the near ones."""


class UnsupportedNetwork(HessmapError, TypeError):
    """A network outside of what the called method can treat exactly."""


class TooLarge(HessmapError, MemoryError):
    """The work would not fit the memory; the message says the bytes and the alternative."""


class DataFileError(HessmapError, OSError):
    """A data file is missing, truncated or of another kind."""


class NotReproducible(HessmapError, RuntimeError):
    """Two evaluations that must agree did not."""


class RankLost(HessmapError, RuntimeError):
    """A process of a distributed computation did not answer."""


class MissingExtra(HessmapError, ImportError):
    """A package that only some work needs is not installed; the message says the command that installs it."""


def is_interruption(error: BaseException | None) -> bool:
    """Whether Ctrl-C is behind an error: libraries that are interrupted while they load raise errors of their own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def sentence(must: str, got: str, remedy: str = "") -> str:
    """The shape of every message.

    >>> sentence("widths must be at least 1", "widths[2] is 0", "Remove that layer")
    'widths must be at least 1; widths[2] is 0. Remove that layer.'
    """
    text = f"{must}; {got}."
    text = f"{text} {remedy}." if remedy else text
    return " ".join(text.split()) if "\n" in text else text  # what was given may be printed on many lines


def require(condition: bool, must: str, got: str, remedy: str = "") -> None:
    """Raise InvalidInput in the one sentence shape unless the condition holds."""
    if not condition:
        raise InvalidInput(sentence(must, got, remedy))


def require_extra(package: str, extra: str) -> None:
    """Raise MissingExtra unless a package that an extra of hessmap installs can be imported.

    >>> require_extra("no_such_package", "plots")
    Traceback (most recent call last):
        ...
    hessmap.errors.MissingExtra: this needs the package no_such_package; it is not installed. \
Install it with: pip install "hessmap[plots]".
    """
    if find_spec(package) is None:
        remedy = f'Install it with: pip install "hessmap[{extra}]"'
        raise MissingExtra(sentence(f"this needs the package {package}", "it is not installed", remedy))


def unknown_name(kind: str, given: object, known: Iterable[str]) -> UnknownName:
    """The error for a name nobody knows, with the near ones first.

    >>> str(unknown_name("loss", "sqared", ["squared", "log_cosh"]))
    "loss must be one of squared, log_cosh; got 'sqared'. Did you mean 'squared'?"
    """
    names = list(known)
    near = difflib.get_close_matches(str(given), names, n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return UnknownName(f"{kind} must be one of {', '.join(names)}; got {short_text(given)}.{hint}")


@contextmanager
def noting_errors(where: str) -> Iterator[None]:
    """An exception of the user's own code passes through with a note of where it was raised.

    >>> with noting_errors("the product of an operator"):
    ...     1 / 0
    Traceback (most recent call last):
        ...
    ZeroDivisionError: division by zero
    raised in the product of an operator
    """
    try:
        yield
    except HessmapError:
        raise
    except Exception as error:
        error.add_note(f"raised in {where}")
        raise


def require_name(kind: str, given: object, known: Iterable[str]) -> None:
    """Raise UnknownName unless the given value is one of the known names."""
    names = list(known)
    if not isinstance(given, str) or given not in names:
        raise unknown_name(kind, given, names)


def integer_or_none(value: object) -> int | None:
    """A whole number as a plain int; None for anything else, for bools too.

    >>> integer_or_none(3), integer_or_none(3.0), integer_or_none(True)
    (3, None, None)
    """
    if type(value) is int:  # asking for the protocol takes 40 times as long
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:  # an array or tensor of many numbers
        return None


def checked_count(name: str, value: object, at_least: int | None = 1) -> int:
    """A plain integer, of at least ``at_least``; no float, no bool.

    >>> checked_count("outputs", 3)
    3
    """
    count = integer_or_none(value)
    if count is None or (at_least is not None and count < at_least):
        bound = "" if at_least is None else f" of at least {at_least}"
        raise InvalidInput(sentence(f"{name} must be an integer{bound}", f"got {short_text(value)}"))
    require(abs(count) < 2**63, f"{name} must lie below 2^63", f"got {short_text(value)}")
    return count


def checked_seed(seed: object) -> int:
    """A seed that every random generator takes.

    >>> checked_seed(-1)
    Traceback (most recent call last):
        ...
    hessmap.errors.InvalidInput: seed must be an integer of at least 0; got -1.
    """
    return checked_count("seed", seed, 0)


def checked_number(name: str, value: object) -> float:
    """A number as a plain float; no text, no bool. What it may be is for the caller to say.

    >>> checked_number("shift", "0.1")
    Traceback (most recent call last):
        ...
    hessmap.errors.InvalidInput: shift must be a number; got '0.1'.
    """
    number = number_or_none(value)
    if number is None:
        raise InvalidInput(sentence(f"{name} must be a number", f"got {short_text(value)}"))
    if abs(number) == float("inf") and isinstance(value, Rational):  # an integer with too many digits
        raise InvalidInput(sentence(f"{name} must be in the range of float64", f"got {short_text(value)}"))
    return number


def number_or_none(value: object) -> float | None:
    """A number as a plain float, also of a numpy scalar and of an array or tensor without dimensions; None for
    anything else, for bools too. An integer beyond float64 is infinite.

    >>> number_or_none(3), number_or_none("3"), number_or_none(True)
    (3.0, None, None)
    """
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value >= 0 else -float("inf")  # type: ignore[operator]


def list_of(name: str, values: Iterable[Item]) -> list[Item]:
    """A list of what can be gone through once.

    >>> list_of("ranks", 3)
    Traceback (most recent call last):
        ...
    hessmap.errors.InvalidInput: ranks must be a list; got 3.
    """
    try:
        return list(values)
    except TypeError:  # no iterable, or one that refuses: a tensor without dimensions
        raise InvalidInput(sentence(f"{name} must be a list", f"got {short_text(values)}")) from None


def short_text(value: object) -> str:
    """What was given, in less than a line.

    >>> short_text("a"), short_text(list(range(99)))
    ("'a'", 'a value of type list')
    """
    try:
        text = repr(value)
    except Exception:  # a number with too many digits, or an object whose own repr fails
        text = ""
    return text if 0 < len(text) <= 60 and "\n" not in text else f"a value of type {type(value).__name__}"
