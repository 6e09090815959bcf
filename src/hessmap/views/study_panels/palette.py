"""The colours of series: Okabe and Ito's, which colour-blind readers can tell apart, legible on white and on black."""

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8e7cc3", "#8a8a8a")


_MARKERS = ("o", "s", "^", "D")


def colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def marker(place: int) -> str:
    """Another shape of points each time the colours start again."""
    return _MARKERS[place // len(_COLOURS) % len(_MARKERS)]
