"""Shortcuts: the one check that a faster method agrees with a slower one, and what happens when it fails.

What structure gives is compared with autograd on a fixed random vector, and not used if they differ. A faster method
may also fail for a model that it was not made for: an operation without a batching rule, a branch on values under a
transform of torch.func. A slower method then gives the result, and a note states it. Missing memory and hessmap's own
errors (other samples in another pass) are no such failure: a slower method would hide them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hessmap.errors import HessmapError, InvalidInput, UnsupportedNetwork
from hessmap.linalg.memory import is_out_of_memory

# Relative to the largest entry, per number format.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-4}


def tolerance(dtype: torch.dtype) -> float:
    """Return how far a shortcut may differ from autograd in a number format.

    Args:
        dtype: torch.float64 or torch.float32.

    Returns:
        The tolerance relative to the largest entry.
    """
    return TOLERANCES[dtype]


def disagreement(found: Tensor, expected: Tensor, uncancelled: float = 0.0) -> float:
    """The largest entry of the difference relative to that of what autograd gives: largest entries, because squares
    vanish for data of scale 1e-100 and overflow for 1e100.

    ``uncancelled`` is the size of what cancelled in the sum, which rounding is relative to.

    Args:
        found: Result of the shortcut.
        expected: Result of the reference method.
        uncancelled: Size of the terms of a sum that cancelled, which rounding is relative to. Defaults to 0.

    Returns:
        The relative difference; the absolute one where everything expected is zero.
    """
    if not expected.numel():
        return 0.0
    error = float((found - expected).abs().max())
    scale = max(float(expected.abs().max()), uncancelled)
    return error / scale if scale > 0 else error


def random_vector(size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The vector that products are compared on: the same for the same size.

    Args:
        size: Number of entries, and the seed.
        dtype: Of the result. Defaults to float64.

    Returns:
        Normal numbers on the host.
    """
    generator = torch.Generator().manual_seed(size)
    drawn = torch.float64 if dtype == torch.float64 else torch.float32  # in a quarter of the time
    return torch.randn(size, generator=generator, dtype=drawn).to(dtype)


def checked_shortcut(
    find: Callable[[], Tensor | None],
    expected: Callable[[], Tensor],
    fallback: Callable[[Exception], None] | None = None,
) -> bool:
    """Check that a shortcut gives what the slower reference method gives.

    Args:
        find: Computes a result by the shortcut, or returns None where the shortcut does not apply.
        expected: Computes the same result by the reference method; called only if ``find`` returned one.
        fallback: Called with an error of ``find`` that the reference method can answer (``is_answerable``), which
            counts as disagreement. Default: such errors are raised.

    Returns:
        bool: Whether both agree to ``tolerance`` of the reference's dtype, relative to its largest entry.
    """
    try:
        found = find()
    except Exception as error:
        if fallback is None or not is_answerable(error):
            raise
        fallback(error)
        return False
    if found is None:
        return False
    reference = expected()
    return disagreement(found, reference) <= tolerance(reference.dtype)


_LONGEST = 160  # characters of a reason in a note


def is_answerable(error: BaseException, *, refusals: bool = False) -> bool:
    """Whether a slower method may be tried after this error.

    Of hessmap's own errors only the explanation of an error of the user's model is: ``InvalidInput`` raised from
    something else. With ``refusals`` the other errors that refuse a model, a loss or inputs are too.

    Args:
        error: What a faster method raised.
        refusals: Whether errors that reject a model, a loss or inputs count as well. Defaults to False.

    Returns:
        True if a slower method may be tried.
    """
    if not isinstance(error, Exception) or is_out_of_memory(error):
        return False
    if not isinstance(error, HessmapError) or (refusals and isinstance(error, InvalidInput | UnsupportedNetwork)):
        return True
    cause = error.__cause__
    return isinstance(error, InvalidInput) and cause is not None and is_answerable(cause)


def reason_of(error: BaseException) -> str:
    """The first line of what was said first, without the explanation around it.

    Args:
        error: An error, possibly raised from another one.

    Returns:
        The first line of the original message.
    """
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
