"""Networks as text: what stands behind the sizes, and which kind of network a text names."""

from __future__ import annotations

from collections.abc import Sequence

from hessmap.errors import require


def read_words(text: str, flags: Sequence[str]) -> tuple[str, str, frozenset[str]]:
    """The sizes, the activation ("identity" unless given) and the flags of a network's text.

    >>> read_words("64-30-10 relu bias", flags=("bias",))
    ('64-30-10', 'relu', frozenset({'bias'}))
    """
    first, *rest = text.replace(", ", ",").split() or [""]
    others = [word for word in rest if word not in flags]
    require(len(others) <= 1, "a network has at most one activation", f"got {' and '.join(others)}")
    return first, others[0] if others else "identity", frozenset(rest) & frozenset(flags)
