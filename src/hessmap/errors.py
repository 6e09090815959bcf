"""One exception family, one sentence shape: what must hold; which value broke it. What to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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


def sentence(must: str, got: str, remedy: str = "") -> str:
    """The shape of every message.

    >>> sentence("widths must be at least 1", "widths[2] is 0", "Remove that layer")
    'widths must be at least 1; widths[2] is 0. Remove that layer.'
    """
    text = f"{must}; {got}."
    return f"{text} {remedy}." if remedy else text


def require(condition: bool, must: str, got: str, remedy: str = "") -> None:
    """Raise InvalidInput in the one sentence shape unless the condition holds."""
    if not condition:
        raise InvalidInput(sentence(must, got, remedy))


def unknown_name(kind: str, given: object, known: Iterable[str]) -> UnknownName:
    """The error for a name nobody knows, with the near ones first.

    >>> str(unknown_name("loss", "sqared", ["squared", "log_cosh"]))
    "loss must be one of squared, log_cosh; got 'sqared'. Did you mean 'squared'?"
    """
    names = list(known)
    near = difflib.get_close_matches(str(given), names, n=2, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(name) for name in near)}?" if near else ""
    return UnknownName(f"{kind} must be one of {', '.join(names)}; got {given!r}.{hint}")
