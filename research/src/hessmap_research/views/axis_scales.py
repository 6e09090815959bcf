"""The axes of a panel: linear or logarithmic, whole numbers where the data are, and from zero unless data are far.

What starts at a fixed number still has room for the marks of its largest values.
"""

from __future__ import annotations

from math import ceil, floor, log10
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FormatStrFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from hessmap_research.runner.view import Figure, Heatmap, Limits, Plane, Scale

_FEW_DECADES = 1.4  # up to here, or with one power of ten, a logarithmic axis has plain numbers at 1, 2 and 5
_HALF_A_DECADE = 0.5  # up to here at every digit
_FEW_PLACES = 12  # up to here a logarithmic axis over whole numbers has its ticks at them
_DIGIT = 0.02  # of such an axis: as wide as a digit of the numbers at its ticks
_LARGEST_PLAIN = 9999  # up to here powers of ten are plain numbers
_MARGIN = 0.05
_FAR_FROM_ZERO = 0.9  # least over largest value: beyond it an axis from zero would show one line


def set_scales(axes: Axes, figure: Figure) -> None:
    """Both axes as the figure wants them; to be called before reference lines are drawn."""
    _set_scale(axes, "x", figure.x_scale)
    _set_scale(axes, "y", figure.y_scale)
    if isinstance(figure, Heatmap | Plane):
        return
    values = _data_values(axes, "y")
    values = values[np.isfinite(values)]
    is_near_zero = values.size > 0 and 0 < values.min() < _FAR_FROM_ZERO * values.max()
    if axes.get_yscale() == "linear" and figure.y_limits is None and is_near_zero:
        _set_limits(axes, "y", (0.0, None))
    _set_ticks(axes, "x", figure.x_limits or (None, None))
    _set_ticks(axes, "y", figure.y_limits or (None, None))


def set_limits(axes: Axes, figure: Figure) -> None:
    """What the figure says of the ends of its axes; to be called after everything is drawn."""
    for name, limits in (("x", figure.x_limits), ("y", figure.y_limits)):
        if limits:
            _set_limits(axes, "x" if name == "x" else "y", limits)


def _set_limits(axes: Axes, name: Literal["x", "y"], limits: Limits) -> None:
    """The margin of an axis is a share of what the data span; where it starts far below them, of what it shows."""
    low, high = limits
    axis, place = (axes.xaxis, 0) if name == "x" else (axes.yaxis, 1)
    largest = float(axes.dataLim.max[place])
    if low is not None and high is None and axis.get_scale() == "linear" and largest > low:
        high = largest + _MARGIN * (largest - low)
    change = axes.set_xlim if name == "x" else axes.set_ylim
    change(low, high)


def _set_scale(axes: Axes, axis: Literal["x", "y"], scale: Scale) -> None:
    """Set the scale; what has no positive value stays linear, because a logarithm cannot show it."""
    if scale == "linear":
        return
    values = _data_values(axes, axis)
    magnitudes = np.abs(values[np.isfinite(values) & (values != 0)])
    change = axes.set_xscale if axis == "x" else axes.set_yscale
    if scale == "symlog" and values.size:
        least, largest = (float(magnitudes.min()), float(magnitudes.max())) if magnitudes.size else (1.0, 1.0)
        change("symlog", linthresh=max(least, 1e-16 * largest))
    elif scale == "log" and (values > 0).any():
        change("log", nonpositive="mask")


def _set_ticks(axes: Axes, name: Literal["x", "y"], limits: Limits) -> None:
    """Whole numbers for whole data, and on a short logarithmic axis numbers that stand apart."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    if axis.have_units():  # words
        return
    values = _data_values(axes, name)
    values = values[np.isfinite(values)]
    if not values.size:
        return
    if axis.get_scale() == "linear":
        if (values == np.round(values)).all():
            axis.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10], integer=True))
    elif axis.get_scale() == "symlog":
        if (values == np.round(values)).all() and np.abs(values).max() <= _LARGEST_PLAIN:
            axis.set_major_formatter(FormatStrFormatter("%g"))
    elif axis.get_scale() == "log":
        positive = values[values > 0]
        axis.set_minor_formatter(NullFormatter())
        low, high = sorted((limits[0] or positive.min(), limits[1] or positive.max()))
        places = np.unique(positive)
        if name == "x" and 1 < places.size <= _FEW_PLACES and all(map(_is_round, places)):
            axis.set_major_locator(FixedLocator(separate(places.tolist())))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FormatStrFormatter("%g"))
            return
        decades = log10(high / low)
        num_powers = floor(log10(high)) - ceil(log10(low)) + 1
        if decades < _FEW_DECADES or num_powers < 2:
            subs = (1.0, 2.0, 5.0) if decades > _HALF_A_DECADE else tuple(range(1, 10))
            axis.set_major_locator(LogLocator(subs=subs))
        if decades < _FEW_DECADES or num_powers < 2 or (low >= 1 and high <= _LARGEST_PLAIN):
            axis.set_major_formatter(FormatStrFormatter("%g"))


def separate(places: list[float]) -> list[float]:
    """Those of the ascending numbers that stand apart on a logarithmic axis, the first and the last among them.

    >>> separate([1, 2, 3, 4, 6, 8, 12, 24])
    [1, 2, 3, 4, 6, 8, 12, 24]
    >>> separate([10, 100, 110, 1000])
    [10, 100, 1000]
    """
    whole = log10(places[-1] / places[0])
    found = places[:1]
    for place in places[1:-1]:
        before, after = log10(place / found[-1]) / whole, log10(places[-1] / place) / whole
        if before >= _width(place) and after >= _width(places[-1]):
            found.append(place)
    return [*found, places[-1]]


def _width(place: float) -> float:
    return _DIGIT * (1 + len(f"{place:g}"))


def _is_round(place: float) -> bool:
    """Whether a number was chosen and not counted: at most two digits before zeros, or a power of two."""
    if place != round(place):
        return False
    number = int(place)
    return number & (number - 1) == 0 or len(str(number).rstrip("0")) <= 2


def _data_values(axes: Axes, axis: Literal["x", "y"]) -> NDArray[np.float64]:
    place = 0 if axis == "x" else 1
    parts = [np.asarray(line.get_xydata(), dtype=np.float64)[:, place] for line in axes.lines]
    parts += [np.asarray(patch.get_path().vertices, dtype=np.float64)[:, place] for patch in axes.patches]
    return np.concatenate([np.empty(0), *parts])
