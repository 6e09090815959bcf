"""How the records of a study are to be seen, as data: figures and a table that `views` draws.

Every field that is called a name below is a dotted name of a `Row` ("width", "predicted.loss"). A value of a row is
one number, or an array (a spectrum, a trajectory) that draws a curve by itself. Rows that agree in everything a figure
looks at (several seeds) are drawn as their mean with a band from the smallest to the largest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hessmap.records import Part

Scale = Literal["linear", "log", "symlog"]
Limits = tuple[float | None, float | None]  # None: as far as the data go
INDEX = "index"


@dataclass(frozen=True)
class Series:
    """One colour of a figure: what is predicted is a ``line``, what is measured ``points``, a bound ``dashed``.

    Each is a name, or empty where there is nothing to draw. ``label`` may hold fields of the case: "{activation}".
    A series of one of the three Hessians names it as its ``part`` and is drawn in the colour of that Hessian.
    """

    label: str
    line: str = ""
    points: str = ""
    dashed: str = ""
    part: Part | Literal[""] = ""


@dataclass(frozen=True)
class Reading:
    """What the circles, lines, dashes and bands of a figure are; empty where nothing is to be said of them."""

    points: str = ""
    line: str = ""
    dashed: str = ""
    bands: str = ""


@dataclass(frozen=True)
class Mark:
    """A reference line across a figure, at a number or at the value that a name leads to.

    ``by`` names the field of a figure's ``split``: each of its values has a line of its own, in its colour.
    """

    at: float | str
    label: str = ""
    axis: Literal["x", "y"] = "x"
    by: str = ""


@dataclass(frozen=True)
class Slope:
    """A reference line as x^``exponent``, straight where both axes are logarithmic, through a point of the records.

    The point is the ``first`` or the ``last`` along x of the rows that have the values of ``where``, at height ``y``.
    """

    exponent: float
    label: str
    y: str
    where: Mapping[str, Any] = field(default_factory=dict)
    through: Literal["first", "last"] = "last"


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What all kinds of figures share.

    ``where`` keeps the rows whose fields have these values, ``facet`` names a field with one panel per value. A figure
    that is about one of the three Hessians alone names it as its ``part``: its series then have none of the colours of
    the Hessians, because blue in a figure of $H_f$ would be read as $H_o$.
    """

    title: str
    part: Part | Literal[""] = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    facet: str = ""
    x_label: str = ""
    y_label: str = ""
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    x_limits: Limits | None = None
    y_limits: Limits | None = None
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lines(Figure):
    """Series over ``x``: numbers over a field of the case, or arrays over an array or over their ``"index"`` (from 1).

    ``split`` names a field: every series is drawn once for each of its values. ``reading`` is what the legend says of
    circles, lines and dashes, where it is not that they are measured, predicted and bounds; what bands go over is found
    in the rows. ``slopes`` are lines of growth to compare with.
    """

    x: str
    series: tuple[Series, ...]
    split: str = ""
    reading: Reading = Reading()
    slopes: tuple[Slope, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Heatmap(Figure):
    """Colours of ``value``: a matrix in a record, or a number over the two fields ``x`` and ``y``.

    With ``row_labels`` the matrix is a picture of images in as many rows: grey, undistorted, each row with its label.
    """

    value: str
    x: str = ""
    y: str = ""
    colours: Literal["sequential", "diverging"] = "sequential"
    limits: tuple[float, float] | None = None
    row_labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Histogram(Figure):
    """The density of the array ``values``, and the predicted ``density`` over ``density_at`` as a line."""

    values: str
    density: str = ""
    density_at: str = ""
    bins: int = 60


@dataclass(frozen=True, kw_only=True)
class Cloud(Figure):
    """Points of the arrays (or numbers) ``x`` and ``y``, coloured by the values of ``colour``.

    ``diagonal`` is what the line where both are equal is called; empty: there is none.
    """

    x: str
    y: str
    colour: str = ""
    diagonal: str = ""


@dataclass(frozen=True, kw_only=True)
class Plane(Figure):
    """A part of the plane: ``box`` (left, right, bottom, top), all others empty or names of arrays.

    ``labels`` is a matrix of classes, its first row at the bottom; ``points`` are rows (x, y), coloured by ``kinds``;
    ``rings`` are points that stand out; ``arrows`` are rows (x, y, x, y) from a point to another. The legend calls them
    by ``point_label``, ``ring_label`` and ``arrow_labels`` (where they start, where they end), where these are given.
    """

    box: str
    labels: str = ""
    points: str = ""
    kinds: str = ""
    rings: str = ""
    arrows: str = ""
    point_label: str = ""
    ring_label: str = ""
    arrow_labels: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Column:
    """A column of the table: a name, what stands above it, how a number is written, and what is said for some words."""

    name: str
    label: str = ""
    spec: str = ".4g"
    said: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class View:
    """The figures and the table of a study.

    ``group_by`` names the fields that make one line of the table; the other numbers of its rows are shown as their
    mean, and from smallest to largest where they differ. Empty: one line for each row. ``panels_in_a_row`` is for
    figures that belong together; unless it is given there are three, or two of four.
    """

    figures: tuple[Figure, ...]
    table: tuple[Column | str, ...]
    group_by: tuple[str, ...] = ()
    panels_in_a_row: int | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(item) if isinstance(item, str) else item for item in self.table)
