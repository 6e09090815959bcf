"""The plane as a figure of a study: every part is drawn where it belongs."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from hessmap_research.studies import Plane, Row
from hessmap_research.views.figure import draw
from hessmap_research.views.panels import Panel

_ROW = Row(
    {"seed": 0},
    {
        "box": np.array([-1.0, 3.0, 0.0, 2.0]),
        "labels": np.array([[0, 1], [2, 2]]),
        "points": np.array([[0.0, 1.0], [2.0, 1.5]]),
        "kinds": np.array([0, 2]),
        "rings": np.array([[1.0, 1.0]]),
        "no_rings": np.empty((0, 2)),
        "arrows": np.array([[0.0, 0.0, 1.0, 1.0], [2.0, 0.0, 2.0, 2.0]]),
    },
)


def test_regions_points_rings_and_arrows_lie_where_the_record_says() -> None:
    parts = {name: name for name in ("box", "labels", "points", "kinds", "rings", "arrows")}
    axes = Figure().add_subplot()
    draw(axes, Panel(Plane(title="plane", **parts), (_ROW,)), has_title=True)
    assert axes.get_xlim() == (-1.0, 3.0)
    assert axes.get_ylim() == (0.0, 2.0)
    (image,) = axes.images
    assert tuple(image.get_extent()) == (-1.0, 3.0, 0.0, 2.0)
    assert image.origin == "lower"
    drawn = [np.asarray(found.get_offsets()) for found in axes.collections]
    assert any(np.array_equal(places, _ROW.array("points")) for places in drawn)
    assert any(np.array_equal(places, _ROW.array("rings")) for places in drawn)
    assert any(np.array_equal(places, _ROW.array("arrows")[:, 2:]) for places in drawn)


def test_a_plane_needs_nothing_but_its_box_and_may_have_no_ring() -> None:
    axes = Figure().add_subplot()
    draw(axes, Panel(Plane(title="bare", box="box", rings="no_rings"), (_ROW,)))
    assert not axes.images
    assert axes.get_xlim() == (-1.0, 3.0)
