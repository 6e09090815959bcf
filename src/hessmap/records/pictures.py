"""Pictures of records: the room `views` registers who draws what, so that a record knows nothing of drawing."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from hessmap.errors import InvalidInput, sentence, unknown_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PICTURES: dict[str, dict[str, Callable[..., Figure]]] = {}


def register_pictures(kind: type | str, **pictures: Callable[..., Figure]) -> None:
    """Say what draws the records of a kind, by the name of the picture; the first is the one drawn unless asked.

    A kind whose module is heavy is named as "package.module.Class", so that it is not loaded for other pictures.
    """
    _PICTURES[kind if isinstance(kind, str) else _address(kind)] = pictures


def _address(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def plot(record: object, which: str | None = None, **options: object) -> Figure:
    """The picture of a record as a matplotlib figure; ``which`` names one where there are several.

    ``options`` go to the function that draws it.

    >>> import numpy as np, hessmap as hm
    >>> plot(hm.density_estimate(np.diag([3.0, 2.0, 1.0]), num_probes=2)).axes[0].get_ylabel()
    'density'
    """
    import_module("hessmap.views.plots")  # registers all pictures: the one way up, by name
    pictures = next((_PICTURES[_address(kind)] for kind in type(record).__mro__ if _address(kind) in _PICTURES), None)
    if pictures is None:
        kinds = ", ".join(sorted(kind.rpartition(".")[2] for kind in _PICTURES))
        must, got = "a record must have a picture to be drawn", f"a {type(record).__name__} has none"
        raise InvalidInput(sentence(must, got, f"These have one: {kinds}"))
    if which is not None and which not in pictures:
        raise unknown_name(f"picture of a {type(record).__name__}", which, pictures)
    return pictures[which or next(iter(pictures))](record, **options)
