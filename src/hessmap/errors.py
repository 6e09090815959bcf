"""Exceptions of hessmap and checks of arguments.

Every message has one form: what is required; what was given. What to do.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from numbers import Rational, Real
from typing import SupportsIndex, TypeVar

Item = TypeVar("Item")
_MOST_NAMES = 12  # that a message lists
EXIT_OF_INTERRUPTION = 130  # of the program after Ctrl-C: 128 + SIGINT, as a shell reports it
EXIT_OF_CLOSED_PIPE = 141  # where the reader of its output has gone: 128 + SIGPIPE


class HessmapError(Exception):
    """Base class of every exception that hessmap raises on purpose."""


class InvalidInput(HessmapError, ValueError):
    """A value that the caller passed cannot be used."""


class UnknownName(InvalidInput):
    """A name that is not among the known ones; the message suggests similar ones."""


class UnsupportedNetwork(HessmapError, TypeError):
    """A network that the called method cannot treat exactly."""


class TooLarge(HessmapError, MemoryError):
    """The work would not fit in memory; the message states the bytes and an alternative."""


class DataFileError(HessmapError, OSError):
    """A data file is missing, truncated or of another format."""


class NotReproducible(HessmapError, RuntimeError):
    """Two evaluations that must agree did not."""


class ProcessLost(HessmapError, RuntimeError):
    """A process of a distributed computation did not respond."""


class MissingExtra(HessmapError, ImportError):
    """An optional package is not installed; the message states the command that installs it."""


def is_interruption(error: BaseException | None) -> bool:
    """Whether an error was caused by Ctrl-C.

    Args:
        error: The error, or None.

    Returns:
        True if the error, its cause or its context is a KeyboardInterrupt.

    Notes:
        Libraries that are interrupted while they are imported raise errors of their own from the KeyboardInterrupt.

    Example:
        >>> is_interruption(KeyboardInterrupt()), is_interruption(ValueError()), is_interruption(None)
        (True, False, False)
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def sentence(must: str, got: str, remedy: str = "") -> str:
    """Format an error message.

    Args:
        must: What is required.
        got: What was given.
        remedy: What to do. Default: nothing is suggested.

    Returns:
        The message, in one line.

    Example:
        >>> sentence("widths must be at least 1", "widths[2] is 0", "Remove that layer")
        'widths must be at least 1; widths[2] is 0. Remove that layer.'
    """
    text = f"{must}; {got}."
    text = f"{text} {remedy}." if remedy else text
    return " ".join(text.split()) if "\n" in text else text  # what was given may be printed on many lines


def require(condition: bool, must: str, got: str, remedy: str = "") -> None:
    """Raise InvalidInput unless a condition holds.

    Args:
        condition: What must be true.
        must: The requirement in words.
        got: What was given.
        remedy: What to do. Default: nothing is suggested.

    Raises:
        InvalidInput: If the condition is false.

    Example:
        >>> require(False, "widths must be at least 1", "widths[2] is 0")
        Traceback (most recent call last):
            ...
        hessmap.errors.InvalidInput: widths must be at least 1; widths[2] is 0.
    """
    if not condition:
        raise InvalidInput(sentence(must, got, remedy))


def require_extra(package: str, extra: str) -> None:
    """Raise MissingExtra unless an optional package can be imported.

    Args:
        package: Name of the package, as in ``import``.
        extra: The extra of hessmap that installs it.

    Raises:
        MissingExtra: If the package is not installed.

    Example:
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
    """The error for an unknown name, with suggestions.

    Args:
        kind: What is named, such as "loss".
        given: The value that was given.
        known: The known names.

    Returns:
        The exception, for the caller to raise.

    Notes:
        Of more than 12 names the message lists the similar ones, or the first few if none is similar.

    Example:
        >>> str(unknown_name("loss", "sqared", ["squared", "log_cosh"]))
        "loss must be one of squared, log_cosh; got 'sqared'. Did you mean 'squared'?"
        >>> str(unknown_name("case", "c9z", [f"c{number}" for number in range(88)]))
        "case must be one of 88 names; got 'c9z'. Did you mean 'c9' or 'c79'?"
    """
    names = list(known)
    near = difflib.get_close_matches(str(given), names, n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    listed = ", ".join(names)
    if len(names) > _MOST_NAMES:
        listed = f"{len(names)} names" if near else f"{len(names)} names ({', '.join(names[:3])}, ..)"
    return UnknownName(f"{kind} must be one of {listed}; got {short_text(given)}.{hint}")


@contextmanager
def noting_errors(where: str) -> Iterator[None]:
    """Add a note to exceptions of the user's code that states where they were raised.

    Args:
        where: The place, in words.

    Yields:
        Nothing.

    Notes:
        Exceptions of hessmap pass unchanged.

    Example:
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
    """Raise UnknownName unless a value is one of the known names.

    Args:
        kind: What is named, such as "loss".
        given: The value to check.
        known: The known names.

    Raises:
        UnknownName: If the value is not a string or not among the names.
    """
    names = list(known)
    if not isinstance(given, str) or given not in names:
        raise unknown_name(kind, given, names)


def integer_or_none(value: object) -> int | None:
    """Convert an integer of any type to a plain int.

    Args:
        value: Any value.

    Returns:
        The int; None for anything that is not an integer, including bools and floats.

    Example:
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
    """Convert an integer argument to a plain int and check its range.

    Args:
        name: Name of the argument, for the message.
        value: The value to check; floats and bools are not accepted.
        at_least: Smallest accepted value, or None for no lower bound. Defaults to 1.

    Returns:
        The int.

    Raises:
        InvalidInput: If the value is not an integer, is below ``at_least``, or does not fit in 64 bits.

    Example:
        >>> checked_count("outputs", 3)
        3
    """
    count = integer_or_none(value)
    if count is None or (at_least is not None and count < at_least):
        bound = "" if at_least is None else f" of at least {at_least}"
        raise InvalidInput(sentence(f"{name} must be an integer{bound}", f"got {short_text(value)}"))
    require(abs(count) < 2**63, f"{name} must be below 2^63", f"got {short_text(value)}")
    return count


def checked_seed(seed: object) -> int:
    """Check that a seed is accepted by every random generator.

    Args:
        seed: The value to check.

    Returns:
        The seed as a plain int.

    Raises:
        InvalidInput: If the seed is not an integer in [0, 2^63).

    Example:
        >>> checked_seed(-1)
        Traceback (most recent call last):
            ...
        hessmap.errors.InvalidInput: seed must be an integer of at least 0; got -1.
    """
    return checked_count("seed", seed, 0)


def checked_number(name: str, value: object) -> float:
    """Convert a real number to a plain float. The caller checks the range.

    Args:
        name: Name of the argument, for the message.
        value: The value to convert; strings and bools are not accepted.

    Returns:
        The float, which may be infinite or NaN if ``value`` is.

    Raises:
        InvalidInput: If the value is not a real number, or an integer or fraction beyond the range of float64.

    Example:
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
    """Convert a real number of any type to a plain float.

    Args:
        value: Any value. Numpy scalars, and arrays and tensors without dimensions, are accepted.

    Returns:
        The float, infinite for an integer beyond float64; None for anything that is not a real number, including bools.

    Example:
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
    """Convert an iterable to a list.

    Args:
        name: Name of the argument, for the message.
        values: The iterable.

    Returns:
        Its items.

    Raises:
        InvalidInput: If ``values`` cannot be iterated over.

    Example:
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
    """A short repr, for error messages.

    Args:
        value: Any value.

    Returns:
        Its repr if that is one line of at most 60 characters; otherwise its type, in words.

    Example:
        >>> short_text("a"), short_text(list(range(99)))
        ("'a'", 'a value of type list')
    """
    try:
        text = repr(value)
    except Exception:  # a number with too many digits, or an object whose own repr fails
        text = ""
    return text if 0 < len(text) <= 60 and "\n" not in text else f"a value of type {type(value).__name__}"
