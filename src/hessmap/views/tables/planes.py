"""A loss plane as a few lines of text: what the quadratic model explains, and the barrier."""

from __future__ import annotations

import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.records import LossPlane
from hessmap.views.tables.contents import FittingTable, Table


def plane_view(plane: LossPlane) -> RenderableType:
    """Show a loss plane: one row per axis, then the findings.

    Args:
        plane: The loss on a line or plane.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    lines = tuple(
        (label, f"{axis[0]:.4g} to {axis[-1]:.4g}", str(len(axis)), f"{slope:.3g}", f"{curvature:.3g}")
        for label, axis, slope, curvature in zip(
            plane.labels, plane.coordinates, plane.gradient, plane.curvature.diagonal(), strict=True
        )
    )
    heads = ("axis", "range", "points", "slope at 0", "curvature at 0")
    table = FittingTable(Table(heads, lines, (False, True, True, True, True)))
    return Padding(Group(table, *map(Text, findings(plane))), (1, 0, 0, 0))


def findings(plane: LossPlane) -> list[str]:
    """The numbers of a plane in sentences."""
    finite = plane.loss[np.isfinite(plane.loss)]
    found = []
    if finite.size:
        found.append(f"Loss {plane.risk:.4g} at the model, {finite.min():.4g} to {finite.max():.4g} on the grid.")
    if plane.explained is not None:
        found.append(f"The quadratic model explains {100 * plane.explained:.1f} % of the variance of the loss.")
    if plane.barrier is not None:
        barrier = plane.barrier
        found.append(
            f"Barrier {barrier.height:.4g} at {barrier.position:.3g} of the way (grid spacing {barrier.spacing:.3g}); "
            f"loss {barrier.start:.4g} and {barrier.end:.4g} at the ends."
        )
    if plane.quadratic is None:
        found.append("No quadratic model: buffers of the two models differ, and it describes parameters alone.")
    if plane.converged is False:
        found.append("The eigenvectors did not converge: the directions are not the sharpest ones.")
    if plane.num_not_finite:
        found.append(f"{plane.num_not_finite} points have a loss that is not finite.")
    return found
