"""Errors that a slower method answers: which ones it may answer, and how often it did.

A faster method may fail for a model that it was not made for: an operation without a batching rule, a branch on values
under a transform of torch.func. A slower method then gives the result, and a note says so. Missing memory and hessmap's
own errors (other samples in another pass) are no such failure: a slower method would hide them.
"""

from __future__ import annotations

from hessmap.errors import HessmapError, InvalidInput, UnsupportedNetwork
from hessmap.linalg.memory import is_out_of_memory

_LONGEST = 160


def is_answerable(error: BaseException, *, refusals: bool = False) -> bool:
    """Whether a slower method may be tried after this error.

    Of hessmap's own errors only the explanation of an error of the user's model is: ``InvalidInput`` raised from
    something else. With ``refusals`` the other errors that refuse a model, a loss or inputs are too.
    """
    if not isinstance(error, Exception) or is_out_of_memory(error):
        return False
    if not isinstance(error, HessmapError) or (refusals and isinstance(error, InvalidInput | UnsupportedNetwork)):
        return True
    cause = error.__cause__
    return isinstance(error, InvalidInput) and cause is not None and is_answerable(cause)


def reason_of(error: BaseException) -> str:
    """The first line of what was said first, without the explanation around it."""
    lines = str(error.__cause__ or error).strip().splitlines()
    return lines[0][:_LONGEST].rstrip(". ") if lines else type(error).__name__


class Fallbacks:
    """How often slower methods were used after an error, by kind, with the first reason of each.

    >>> found = Fallbacks()
    >>> found.add("rows were differentiated one by one", RuntimeError("no batching rule"))
    >>> found.add("rows were differentiated one by one", RuntimeError("no batching rule"))
    >>> found.notes
    ('rows were differentiated one by one (2 times: no batching rule)',)
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, kind: str, error: BaseException) -> None:
        count, reason = self._found.get(kind, (0, reason_of(error)))
        self._found[kind] = count + 1, reason

    @property
    def notes(self) -> tuple[str, ...]:
        """One for each kind."""
        return tuple(
            f"{kind} ({'once' if count == 1 else f'{count} times'}: {reason})"
            for kind, (count, reason) in self._found.items()
        )
