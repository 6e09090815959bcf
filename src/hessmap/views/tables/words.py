"""How records are worded for people, the same in tables and figures."""

from __future__ import annotations

from hessmap.results.maps import HESSIAN_SYMBOLS

HESSIAN_NAMES: dict[str, str] = {part: f"{symbol} {part.replace('_', ' ')}" for part, symbol in HESSIAN_SYMBOLS.items()}
TRUTH_NAMES = {"exact": "exact", "upper_bound": "upper bound", "numerical": "numerical"}


def ratio(value: float) -> str:
    """A ratio that may be enormous, in few signs.

    >>> ratio(12345678.9), ratio(3.2), ratio(float("inf"))
    ('1.2e+07', '3.2', 'inf')
    """
    return f"{value:.2g}"


def number(value: float) -> str:
    """A measured number with three digits.

    >>> number(0.00012345), number(12.3456)
    ('0.000123', '12.3')
    """
    return f"{value:.3g}"


def moment(created: str) -> str:
    """A moment as records write it, for people.

    >>> moment("2026-03-01T09:30:00Z")
    '2026-03-01 09:30:00 UTC'
    """
    return created.replace("T", " ").replace("Z", " UTC")
