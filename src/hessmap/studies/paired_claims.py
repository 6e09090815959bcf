"""Claims that rest on a few trainings: decided where at least three pairs all say the same, else inconclusive."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hessmap.studies import Finding

FEWEST = 3


def paired_finding(
    claim: str, pairs: Sequence[tuple[float, float]], holds: Callable[[float, float], bool], spec: str = ".3f"
) -> Finding:
    """The claim that a relation holds between the two values of every pair (of one seed, or of one network).

    Three pairs that agree are no proof; fewer of them, or pairs that differ, do not even decide the direction.

    >>> from operator import lt
    >>> paired_finding("b is larger", [(1, 2), (1, 3), (2, 3)], lt, "g")
    Finding(claim: b is larger, holds: True, detail: 3 of 3: 1 and 2, 1 and 3, 2 and 3)
    >>> paired_finding("b is larger", [(1, 2), (1, 3), (3, 2)], lt).outcome
    'inconclusive'
    """
    number = sum(holds(*pair) for pair in pairs)
    values = ", ".join(f"{first:{spec}} and {second:{spec}}" for first, second in pairs)
    is_decided = len(pairs) >= FEWEST and number in (0, len(pairs))
    return Finding(claim, number > 0 if is_decided else None, f"{number} of {len(pairs)}: {values}")
