"""The plane as a classifier divides it, on grids that are refined until two agree."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from torch import nn

from hessmap.curvature.input_output import NetworkFunction
from hessmap.errors import InvalidInput, require, sentence
from hessmap.maps.functions.tripoints import boundary_segments, mixed_triangles, tripoints
from hessmap.measurement.matrices import Floats
from hessmap.results import ClassRegions

Box = tuple[float, float, float, float]
_AT_ONCE = 2**16


def class_regions(model: nn.Module, box: Box, *, grid_size: int = 151, largest_grid: int = 1201) -> ClassRegions:
    """Class regions, boundaries and tripoints of a classifier of two inputs in the box (left, right, bottom, top).

    The tripoints, where three classes meet, are those of the piecewise-linear interpolant of the logits, found exactly.
    The grid is halved until two grids find the same ones (``agrees``) or ``largest_grid`` is passed.

    >>> corner = nn.Linear(2, 3, bias=False)
    >>> corner.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    >>> regions = class_regions(corner, (-1.0, 1.0, -1.0, 1.5), grid_size=8)
    >>> regions.num_tripoints, regions.agrees
    (1, True)
    """
    left, right, bottom, top = (float(side) for side in box)
    require(left < right and bottom < top, "a box must be (left, right, bottom, top)", f"got {box}")
    require(grid_size >= 3, "grid_size must be at least 3", f"got {grid_size}")
    corners = torch.tensor([[left, bottom], [right, top]], dtype=torch.float64)
    try:
        function = NetworkFunction(model, corners)
    except InvalidInput as error:
        must = "a planar view needs a model that takes two inputs"
        raise InvalidInput(sentence(must, f"on points of the plane it said: {error}".rstrip("."))) from error
    require(function.output_dim >= 2, "a classifier must have at least two outputs", f"it has {function.output_dim}")
    sizes, counts = [], []
    before: Floats | None = None
    size, agrees = grid_size, False
    while True:
        logits, points, cell = _grid(function, (left, right, bottom, top), size)
        flat = logits.reshape(size * size, -1)
        triangles = mixed_triangles(logits)
        found, classes = tripoints(flat, points, triangles)
        sizes.append(size)
        counts.append(len(found))
        agrees = before is not None and _agree(before, found, 4 * cell)
        if agrees or 2 * size - 1 > largest_grid:
            break
        before, size = found, 2 * size - 1
    labels = flat.argmax(axis=1).reshape(size, size)
    segments = boundary_segments(flat, points, triangles)
    whole = (left, right, bottom, top)
    return ClassRegions(found, classes, segments, labels, whole, tuple(sizes), tuple(counts), agrees)


def _grid(function: NetworkFunction, box: Box, size: int) -> tuple[Floats, Floats, float]:
    """Logits (size, size, classes), points (size^2, 2) and the side of a cell."""
    across, up = np.linspace(box[0], box[1], size), np.linspace(box[2], box[3], size)
    points = np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2)
    parts = [function.outputs(part).numpy() for part in torch.split(torch.from_numpy(points), _AT_ONCE)]
    logits: NDArray[np.float64] = np.concatenate(parts).reshape(size, size, -1)
    return logits, points, float(max(across[1] - across[0], up[1] - up[0]))


def _agree(before: Floats, after: Floats, distance: float) -> bool:
    """As many points, each near its partner."""
    if len(before) != len(after):
        return False
    if not len(before):
        return True
    distances = np.abs(before[:, None] - after).max(axis=2)
    rows, columns = linear_sum_assignment(distances)
    return bool(distances[rows, columns].max() <= distance)
