"""What a function does in its input space: class regions of a planar classifier, and denoising."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from torch import Tensor, nn

from hessmap.errors import InvalidInput, require, sentence
from hessmap.functions import NetworkFunction
from hessmap.measurement import Floats
from hessmap.records import ClassRegions, DenoisingScore

Box = tuple[float, float, float, float]
_AT_ONCE = 2**16


def class_regions(model: nn.Module, box: Box, *, grid_size: int = 151, largest_grid: int = 1201) -> ClassRegions:
    """Find class regions, boundaries and tripoints of a classifier of two inputs.

    Args:
        model: The classifier.
        box: The part of the plane: left, right, bottom, top.
        grid_size: Points per axis of the first grid. Defaults to 151.
        largest_grid: Points per axis at which refinement stops. Defaults to 1201.

    Returns:
        ClassRegions: Regions, boundaries and tripoints; ``agrees`` if two grids found the same tripoints.

    Notes:
        Tripoints, where three classes meet, are those of the piecewise-linear interpolant of the logits, found exactly.
        The spacing of the grid is halved until two grids agree or ``largest_grid`` is passed.

    Example:
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
        raise InvalidInput(sentence(must, f"on points of the plane it raised: {error}".rstrip("."))) from error
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


Integers = NDArray[np.int64]
_SAME_POINT = 1e-7  # of a cell: a point on the edge of two triangles is found in both


def mixed_triangles(logits: Floats) -> Integers:
    """Corners (triangles, 3) into the flat grid, of the triangles whose corners do not share one class.

    ``logits`` has shape (rows, columns, classes); every cell is cut into two triangles.
    """
    rows, columns = logits.shape[:2]
    places = np.arange(rows * columns).reshape(rows, columns)
    corner, right, up, across = places[:-1, :-1], places[:-1, 1:], places[1:, :-1], places[1:, 1:]
    both = [np.stack(part, axis=-1).reshape(-1, 3) for part in ((corner, right, across), (corner, across, up))]
    triangles = np.concatenate(both)
    labels = logits.reshape(rows * columns, -1).argmax(axis=1)[triangles]
    is_mixed = (labels != labels[:, :1]).any(axis=1)
    return np.asarray(triangles[is_mixed], dtype=np.int64)


def tripoints(logits: Floats, points: Floats, triangles: Integers) -> tuple[Floats, Integers]:
    """Where three classes meet and none is above them: positions (count, 2) and the three classes of each.

    ``logits`` (points, classes), ``points`` (points, 2).
    """
    positions, classes = [], []
    for triple in combinations(range(logits.shape[1]), 3):
        corners = logits[triangles]  # (triangles, 3, classes)
        first = corners[:, :, triple[0]] - corners[:, :, triple[1]]
        second = corners[:, :, triple[0]] - corners[:, :, triple[2]]
        shares = np.cross(first, second)  # barycentric, not yet of sum one
        total = shares.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = shares / total[:, None]
        is_inside = np.isfinite(shares).all(axis=1) & (shares >= -_SAME_POINT).all(axis=1)
        inside, shares = triangles[is_inside], shares[is_inside]
        values = np.einsum("tc,tck->tk", shares, logits[inside])
        slack = 1e-9 * np.abs(logits[inside]).max(axis=(1, 2), initial=0.0)
        is_top = values.max(axis=1, initial=-np.inf) <= values[:, triple[0]] + slack
        positions.append(np.einsum("tc,tcx->tx", shares[is_top], points[inside[is_top]]))
        classes.append(np.tile(triple, (int(is_top.sum()), 1)))
    if not positions:
        return np.zeros((0, 2)), np.zeros((0, 3), dtype=np.int64)
    cell = float(np.abs(points[triangles[:, 1]] - points[triangles[:, 0]]).max(initial=0.0)) if len(triangles) else 1.0
    return _distinct_points(np.concatenate(positions), np.concatenate(classes), 10 * _SAME_POINT * cell)


def boundary_segments(logits: Floats, points: Floats, triangles: Integers) -> Floats:
    """The boundaries between two classes, a segment (2 ends, 2 coordinates) for each triangle that one crosses."""
    found = [np.zeros((0, 2, 2))]
    for one, other in combinations(range(logits.shape[1]), 2):
        difference = (logits[:, one] - logits[:, other])[triangles]
        is_positive = difference > 0
        is_crossed = is_positive.any(axis=1) & ~is_positive.all(axis=1)
        corners, difference, is_positive = triangles[is_crossed], difference[is_crossed], is_positive[is_crossed]
        if not len(corners):
            continue
        ends, values = _crossings(corners, difference, is_positive, points, logits)
        low, high = _visible_part(values, one)
        is_there = high > low
        start, step = ends[is_there, 0], ends[is_there, 1] - ends[is_there, 0]
        found.append(np.stack([start + low[is_there, None] * step, start + high[is_there, None] * step], axis=1))
    return np.concatenate(found)


def _crossings(
    corners: Integers, difference: Floats, is_positive: NDArray[np.bool_], points: Floats, logits: Floats
) -> tuple[Floats, Floats]:
    """Where the two edges at the corner that stands alone are crossed: positions and logits there."""
    alone = np.where(is_positive.sum(axis=1) == 1, is_positive.argmax(axis=1), (~is_positive).argmax(axis=1))
    rows = np.arange(len(corners))
    ends, values = [], []
    for step in (1, 2):
        other = (alone + step) % 3
        share = difference[rows, alone] / (difference[rows, alone] - difference[rows, other])
        tip, foot = corners[rows, alone], corners[rows, other]
        ends.append(points[tip] + share[:, None] * (points[foot] - points[tip]))
        values.append(logits[tip] + share[:, None] * (logits[foot] - logits[tip]))
    return np.stack(ends, axis=1), np.stack(values, axis=1)


def _visible_part(values: Floats, one: int) -> tuple[Floats, Floats]:
    """The part of each segment, in 0..1, on which no third class is above ``one``; low >= high if there is none."""
    margin = values[:, :, one, None] - values  # (segments, 2 ends, classes), affine along the segment
    start, end = margin[:, 0], margin[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = np.clip(start / (start - end), 0.0, 1.0)
    tiny = 1e-12 * np.abs(values).max(axis=(1, 2), initial=0.0)[:, None]
    low = np.where((start < -tiny) & (end >= -tiny), zero, 0.0).max(axis=1)
    high = np.where((start >= -tiny) & (end < -tiny), zero, 1.0).min(axis=1)
    is_hidden = ((start < -tiny) & (end < -tiny)).any(axis=1)
    return np.where(is_hidden, 1.0, low), np.where(is_hidden, 0.0, high)


def _distinct_points(positions: Floats, classes: Integers, distance: float) -> tuple[Floats, Integers]:
    """One of each group of near points of the same three classes."""
    kept: list[int] = []
    for place, (position, triple) in enumerate(zip(positions, classes, strict=True)):
        others = [k for k in kept if (classes[k] == triple).all()]
        if not others or np.abs(positions[others] - position).max(axis=1).min() > distance:
            kept.append(place)
    return positions[kept], np.asarray(classes[kept], dtype=np.int64).reshape(-1, 3)


def denoising_score(
    model: nn.Module,
    data: Tensor | NDArray[Any],
    *,
    noise: float = 0.2,
    num_points: int = 2000,
    seed: int = 0,
) -> DenoisingScore:
    """Measure how well an autoencoder denoises: dist(f(x + e), data) / dist(x + e, data).

    Args:
        model: The autoencoder f.
        data: Samples that cover densely what it was trained on (a curve by thousands of points): distances are those to
            the nearest sample.
        noise: Standard deviation of the Gaussian e. Defaults to 0.2.
        num_points: Number of noisy points x + e. Defaults to 2000.
        seed: Seed of points and noise. Defaults to 0.

    Returns:
        DenoisingScore: Mean with standard error, and median, over the points; 1 means no denoising.

    Notes:
        Jacot 2023, section 5 (Figure 3) asserts that rank-recovering autoencoders denoise; the score is ours.

    Example:
        >>> denoising_score(nn.Identity(), np.random.default_rng(0).normal(size=(50, 2)), num_points=10).mean
        1.0
    """
    require(noise > 0, "noise must be positive", f"got {noise}")
    require(num_points >= 2, "num_points must be at least 2", f"got {num_points}")
    function = NetworkFunction(model, data)
    must = "an autoencoder must give as many outputs as it has inputs"
    sizes = f"it has {function.input_dim} inputs and {function.output_dim} outputs"
    require(function.inputs.ndim == 2 and function.input_dim == function.output_dim, must, sizes)
    generator = np.random.default_rng(seed)
    points = function.inputs.numpy()
    chosen = points[generator.integers(len(points), size=num_points)]
    noisy = chosen + noise * generator.normal(size=chosen.shape)
    cleaned = function.outputs(torch.from_numpy(noisy)).numpy()
    tree = cKDTree(points)
    before, after = tree.query(noisy)[0], tree.query(cleaned)[0]
    scores = np.divide(after, before, out=np.ones_like(after), where=before > 0)
    error = float(scores.std(ddof=1) / num_points**0.5)
    return DenoisingScore(float(scores.mean()), float(np.median(scores)), error, noise, num_points, seed, scores)
