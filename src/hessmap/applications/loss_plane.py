"""The loss on a line or a plane through the parameters, its quadratic model, and the barrier between two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from hessmap.applications.curvatures import SecondOrderModel
from hessmap.errors import InvalidInput, checked_count, checked_seed, number_or_none, require, sentence, short_text
from hessmap.measurement import top_eigenpairs
from hessmap.problem import Problem, require_problem
from hessmap.records import LossBarrier, LossPlane

Floats = npt.NDArray[np.float64]
Directions = Literal["sharpest", "random"] | nn.Module | Tensor | Sequence[Any]
_POINTS_OF_A_LINE, _POINTS_OF_A_PLANE = 41, 21


class _Axes(NamedTuple):
    """Directions as columns on the problem's device, and what their coordinates mean."""

    kind: str
    columns: Tensor
    labels: tuple[str, ...]
    ranges: tuple[tuple[float, float], ...]
    converged: bool | None = None
    buffers: tuple[Mapping[str, Tensor], ...] = ()  # changes of the model's buffers, one per direction


def loss_plane(
    problem: Problem,
    directions: Directions = "sharpest",
    *,
    dimensions: int = 2,
    extent: float | tuple[float, float] | None = None,
    num_points: int | None = None,
    seed: int = 0,
) -> LossPlane:
    """Evaluate the loss on a line or a plane through the parameters, and compare it with its quadratic model.

    Args:
        problem: Model, loss (or objective) and data.
        directions: "sharpest" (default): the leading eigenvectors of the loss Hessian. "random": filter-normalised
            random directions, orthonormalised. Another model of the same architecture: the line to it, coordinate 0
            being the problem's model and 1 the other one. Two other models: the plane through all three. A flat tensor,
            a matrix of one or two columns, or a list of one or two flat tensors: these directions as they are.
        dimensions: 1 or 2, for "sharpest" and "random". Defaults to 2.
        extent: Half-width of the grid, or its two ends, in multiples of a direction. Default: for "sharpest" the
            distance at which the quadratic term equals the risk; for "random" the norm of the weights; from 0 to 1 for
            another model, from -0.25 to 1.25 for two, and 1 for vectors.
        num_points: Grid points per axis. Defaults to 41 for a line and 21 for a plane (25 for two models).
        seed: Seed of random directions and of the eigenvectors' start. Defaults to 0.

    Returns:
        LossPlane: ``loss`` and ``quadratic`` on the grid, ``explained`` (the share of the loss's variance that the
        quadratic model explains), ``barrier`` towards another model.

    Raises:
        InvalidInput: If the directions do not fit the problem, or an argument is not valid.

    Notes:
        Filter normalisation (Li et al. 2018) scales a random direction so that each filter of it has the norm of the
        filter of the weights; parameters with one axis do not move. Two such directions are only nearly orthogonal, so
        the second is orthogonalised against the first and both are scaled to norm one: the plane is theirs, its
        coordinates are lengths, and the default extent is the norm of such a direction, which is the norm of the
        weights. Running statistics of batch norm that differ between two models are interpolated with the weights;
        the quadratic model is then left out.

    Example:
        >>> import hessmap as hm
        >>> inputs, targets = torch.randn(20, 3), torch.randn(20, 2)
        >>> problem = hm.Problem(torch.nn.Linear(3, 2), "squared", inputs, targets)
        >>> round(loss_plane(problem, num_points=5).explained, 12)  # the loss is quadratic
        1.0
    """
    require_problem(problem)
    start = checked_seed(seed)
    count = checked_count("dimensions", dimensions, 1)
    require(count <= 2, "dimensions must be 1 or 2", f"got {count}")
    model = SecondOrderModel(problem, "loss")
    axes = _axes_of(model, directions, count, start)
    if extent is not None:
        axes = axes._replace(ranges=(_checked_extent(extent),) * axes.columns.shape[1])
    points = _default_points(axes) if num_points is None else checked_count("num_points", num_points, 2)
    coordinates = tuple(np.linspace(low, high, points) for low, high in axes.ranges)
    loss = _losses(problem, axes, coordinates)
    gradient = _host(axes.columns.T @ model.gradient)
    curvature = _host(axes.columns.T @ model.hessian.matmat(axes.columns))
    curvature = (curvature + curvature.T) / 2
    quadratic = None if axes.buffers else _quadratic(model.risk, gradient, curvature, coordinates)
    host = _host(axes.columns)
    gram = host.T @ host
    is_own = axes.kind in ("sharpest", "random")
    return LossPlane(
        directions=axes.kind,
        labels=axes.labels,
        coordinates=coordinates,
        loss=loss,
        quadratic=quadratic,
        explained=None if quadratic is None else _explained(loss, quadratic),
        gradient=gradient,
        curvature=curvature,
        norms=np.sqrt(gram.diagonal()),
        orthogonality_error=float(np.abs(gram - np.eye(len(gram))).max()) if is_own else None,
        barrier=_barrier(coordinates[0], loss) if axes.kind == "models" and loss.ndim == 1 else None,
        risk=model.risk,
        num_not_finite=int((~np.isfinite(loss)).sum()),
        converged=axes.converged,
        num_samples=problem.num_samples,
        seed=start,
        provenance=problem.provenance,
    )


def filter_normalised_directions(problem: Problem, count: int = 2, *, seed: int = 0) -> Tensor:
    """Draw random directions whose filters have the norms of the weights' filters, and orthonormalise them.

    Args:
        problem: Model, loss and data.
        count: Number of directions. Defaults to 2.
        seed: Seed of the draw, which is the same on every device. Defaults to 0.

    Returns:
        Orthonormal columns (parameters, count) in float64: the first is a filter-normalised direction over its norm,
        each further one is orthogonalised against those before. Rows of parameters with one axis are zero.

    Raises:
        InvalidInput: If there are fewer weights that are not zero than directions.

    Example:
        >>> import hessmap as hm
        >>> problem = hm.Problem(torch.nn.Linear(3, 2), "squared", torch.randn(9, 3), torch.randn(9, 2))
        >>> basis = filter_normalised_directions(problem)
        >>> bool((basis.T @ basis - torch.eye(2)).abs().max() < 1e-12)
        True
    """
    require_problem(problem)
    number = checked_count("count", count, 1)
    generator = torch.Generator().manual_seed(checked_seed(seed))
    drawn = torch.zeros(problem.num_parameters, number, dtype=torch.float64)
    num_moved = 0
    for name, place in problem.layout:
        weight = problem.named[name].detach().cpu().double()
        noise = torch.randn(number, *weight.shape, generator=generator, dtype=torch.float64)
        if weight.ndim < 2:
            continue
        rows, filters = noise.flatten(2), weight.flatten(1)
        scaled = rows / rows.norm(dim=2, keepdim=True) * filters.norm(dim=1)[:, None]
        drawn[place] = scaled.flatten(1).T
        num_moved += int((filters.norm(dim=1) > 0).sum()) * filters.shape[1]
    must = f"{number} random directions need as many weights in filters that are not zero"
    require(num_moved >= number, must, f"the problem has {num_moved}")
    return _orthonormal(drawn)


def _orthonormal(columns: Tensor) -> Tensor:
    """The columns by Gram and Schmidt, in float64, each with the sign that it had."""
    basis, triangle = torch.linalg.qr(columns)
    found: Tensor = basis * triangle.diagonal().sign()
    return found


def _axes_of(model: SecondOrderModel, directions: Directions, count: int, seed: int) -> _Axes:
    problem = model.problem
    if isinstance(directions, str):
        if directions == "sharpest":
            return _sharpest(model, count, seed)
        require(
            directions == "random",
            'directions must be "sharpest" or "random", models or vectors',
            f"got {directions!r}",
        )
        basis = filter_normalised_directions(problem, count, seed=seed).to(problem.parameters)
        norms = [float(value.norm()) for value in problem.named.values() if value.ndim > 1]
        reach = float(np.linalg.norm(norms))
        labels = tuple(f"random direction {place + 1}, filter-normalised" for place in range(count))
        return _Axes("random", basis, labels, ((-reach, reach),) * count)
    given: list[Any] = [directions] if isinstance(directions, nn.Module | Tensor) else _listed(directions)
    if all(isinstance(item, nn.Module) for item in given):
        return _towards(problem, given)
    return _along(problem, given)


def _listed(directions: object) -> list[Any]:
    must = 'directions must be "sharpest", "random", one or two models, or one or two vectors'
    if not isinstance(directions, Sequence | np.ndarray):
        raise InvalidInput(sentence(must, f"got {short_text(directions)}"))
    given = [directions] if isinstance(directions, np.ndarray) else list(directions)
    require(1 <= len(given) <= 2, must, f"got {len(given)} items")
    return given


def _sharpest(model: SecondOrderModel, count: int, seed: int) -> _Axes:
    problem = model.problem
    must = "the problem must have as many parameters as the plane has dimensions"
    require(problem.num_parameters >= count, must, f"it has {problem.num_parameters}")
    found = top_eigenpairs(model.hessian, count, seed=seed)
    assert found.eigenvectors is not None
    basis = _orthonormal(torch.as_tensor(found.eigenvectors).double())
    height = abs(model.risk) or 1.0
    reaches = [(2 * height / abs(value)) ** 0.5 if value else 1.0 for value in found.eigenvalues.tolist()]
    names = ["sharpest direction", "second sharpest direction"][:count]
    labels = tuple(f"{name} (eigenvalue {value:.3g})" for name, value in zip(names, found.eigenvalues, strict=True))
    ranges = tuple((-reach, reach) for reach in reaches)
    return _Axes("sharpest", basis.to(problem.parameters), labels, ranges, bool(found.converged))


def _towards(problem: Problem, models: Sequence[nn.Module]) -> _Axes:
    """The differences of other models from the problem's, of parameters and of buffers."""
    columns, buffers = [], []
    own_buffers = {name: value for name, value in problem.model.named_buffers() if value.is_floating_point()}
    fixed = {name: value for name, value in problem.model.named_parameters() if name not in problem.named}
    for other in models:
        state = other.state_dict(keep_vars=True).items()
        tensors = {
            name.replace("_orig_mod.", ""): value.detach()
            for name, value in state
            if isinstance(value, Tensor)
            and not isinstance(value, nn.parameter.UninitializedParameter | nn.parameter.UninitializedBuffer)
        }
        for name, value in {**problem.named, **own_buffers, **fixed}.items():
            must = "the other model must have the parameters and buffers of the problem's model"
            if name not in tensors and name in own_buffers:
                continue  # not part of the state
            require(name in tensors, must, f"it has no '{name}'")
            shapes = tuple(tensors[name].shape), tuple(value.shape)
            require(shapes[0] == shapes[1], must, f"'{name}' has shape {shapes[0]} in place of {shapes[1]}")
        for name, value in fixed.items():
            must = "parameters that are not differentiated must be equal in both models"
            is_equal = torch.equal(tensors[name].to(value), value)
            require(is_equal, must, f"'{name}' differs", "Differentiate all parameters, or copy it")
        change = [(tensors[name].to(value) - value).reshape(-1) for name, value in problem.named.items()]
        columns.append(torch.cat(change))
        changed = {name: tensors[name].to(value) - value for name, value in own_buffers.items() if name in tensors}
        buffers.append(changed)
    moved = any(bool(change.any()) for changes in buffers for change in changes.values())
    stacked = torch.stack(columns, 1)
    must = "the other model must differ from the problem's model"
    require(bool(stacked.any(dim=0).all()) or moved, must, "all parameters are equal")
    count = len(models)
    labels = ("from the problem's model (0) to the other one (1)",) if count == 1 else ("to model 1", "to model 2")
    ranges = ((0.0, 1.0),) if count == 1 else ((-0.25, 1.25),) * 2
    return _Axes("models", stacked, labels, ranges, buffers=tuple(buffers) if moved else ())


def _along(problem: Problem, vectors: Sequence[Any]) -> _Axes:
    must = f"a direction must be a finite vector of {problem.num_parameters} numbers, not zero"
    columns: list[Tensor] = []
    for vector in vectors:
        is_array = isinstance(vector, Tensor) or (isinstance(vector, np.ndarray) and vector.dtype.kind in "fiu")
        tensor = torch.as_tensor(vector) if is_array else None
        is_real = tensor is not None and not tensor.is_complex() and not tensor.is_sparse and not tensor.is_meta
        if tensor is None or not is_real:
            raise InvalidInput(sentence(must, f"got {short_text(vector)}"))
        matrix = tensor.detach()[:, None] if tensor.ndim == 1 else tensor.detach()
        has_size = matrix.ndim == 2 and len(matrix) == problem.num_parameters and matrix.shape[1] > 0
        require(has_size, must, f"got shape {tuple(tensor.shape)}")
        matrix = matrix.to(problem.parameters)
        is_usable = bool(torch.isfinite(matrix).all()) and bool(matrix.any(dim=0).all())
        require(is_usable, must, "a direction is zero or not finite")
        columns += list(matrix.T)
    require(len(columns) <= 2, "there must be one or two directions", f"got {len(columns)}")
    labels = tuple(f"direction {place + 1}" for place in range(len(columns)))
    return _Axes("vectors", torch.stack(columns, 1), labels, ((-1.0, 1.0),) * len(columns))


def _checked_extent(extent: object) -> tuple[float, float]:
    ends = list(extent) if isinstance(extent, tuple | list) and len(extent) == 2 else None
    if ends is None:
        half = number_or_none(extent)
        ends = [None if half is None else -half, half]
    low, high = (number_or_none(end) for end in ends)
    must = "extent must be a positive number or two ascending ends, finite"
    if low is None or high is None or not np.isfinite([low, high]).all() or not low < high:
        raise InvalidInput(sentence(must, f"got {short_text(extent)}"))
    return low, high


def _default_points(axes: _Axes) -> int:
    if axes.columns.shape[1] == 1:
        return _POINTS_OF_A_LINE
    return 25 if axes.kind == "models" else _POINTS_OF_A_PLANE  # 25: both models are on the grid


def _losses(problem: Problem, axes: _Axes, coordinates: Sequence[Floats]) -> Floats:
    found = []
    own = dict(problem.model.named_buffers())
    for point in product(*coordinates):
        shares = torch.as_tensor(point).to(problem.parameters)
        buffers: dict[str, Tensor] = {}
        for share, changes in zip(point, axes.buffers, strict=False):
            for name, change in changes.items():
                buffers[name] = buffers.get(name, own[name]) + share * change
        found.append(problem.risk(problem.parameters + axes.columns @ shares, buffers))
    return np.array(found).reshape([len(axis) for axis in coordinates])


def _quadratic(risk: float, gradient: Floats, curvature: Floats, coordinates: Sequence[Floats]) -> Floats:
    points = np.stack(np.meshgrid(*coordinates, indexing="ij"), axis=-1)
    values: Floats = risk + points @ gradient + np.einsum("...i,ij,...j->...", points, curvature, points) / 2
    return values


def _explained(loss: Floats, quadratic: Floats) -> float | None:
    finite = np.isfinite(loss)
    if not finite.any():
        return None
    spread = float(((loss[finite] - loss[finite].mean()) ** 2).sum())
    return None if spread == 0 else 1 - float(((loss[finite] - quadratic[finite]) ** 2).sum()) / spread


def _barrier(coordinates: Floats, loss: Floats) -> LossBarrier | None:
    """The barrier on the grid between 0 and 1, if both ends are on it."""
    inside = (coordinates >= 0) & (coordinates <= 1)
    positions, values = coordinates[inside], loss[inside]
    if len(positions) < 2 or positions[0] != 0 or positions[-1] != 1:
        return None
    above = values - (1 - positions) * values[0] - positions * values[-1]
    place = int(np.nanargmax(above)) if np.isfinite(above).any() else 0
    return LossBarrier(
        height=float(above[place]),
        position=float(positions[place]),
        start=float(values[0]),
        end=float(values[-1]),
        spacing=float(positions[1] - positions[0]),
    )


def _host(values: Tensor) -> Floats:
    found: Floats = values.detach().cpu().double().numpy()
    return found
