"""The diagonal of a Hessian from the structure of layers, without random probes.

Where every parameter acts once, z_p = W x_p + b at the positions p of a sample,

    d2 risk / dW_ij^2 = sum_n sum_pq M_n[pi, qi] x_p[j] x_q[j],    M_n = G^T A G + sum_c residual_c d2 out_c / dz2.

The first term of M_n is a sum of squares of as many rows as the network has outputs, by vector-Jacobian products that
reach all layers at once (``LayerGraph``: every use of a weight as tensors of one graph); with one position per sample
it is two matrix products in squares. The second term is zero after piecewise-linear maps, decided with a random
vector, batch by batch; elsewhere it takes one vector-Jacobian product per output of the layer. For a small MLP M comes
from ``mlp_derivatives``, a handful of matrix products, because autograd's graphs would take longer than their numbers.

The structure is compared with autograd on a few samples. A use of a weight that no layer contains changes its gradient,
which is compared in every entry; another order of samples or positions than the layers assume changes second
derivatives, of which some entries are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hessmap.hessians.mlp import DenseLayer, MlpSamples, as_mlp, flat_inputs, mlp_derivatives, mlp_samples_of
from hessmap.hessians.products import columns_at_once
from hessmap.linalg import Layout, is_answerable, tolerance
from hessmap.losses import Loss, output_roots
from hessmap.problem import (
    PRODUCTS,
    Batch,
    BatchGraph,
    LayerCall,
    LayerUse,
    Problem,
    Recording,
    UseOnBatch,
    has_slow_convolutions,
    num_rows,
    recording_of,
    replay,
    twice_differentiable,
    vjp_rows,
)


@dataclass(frozen=True, eq=False)
class LayerGraph:
    """One batch: the outputs of the network as a function of what left its layers.

    Attributes:
        problem: Model, data and loss.
        outputs: The outputs of the network.
        targets: The targets of the batch.
        weights: The weights of its samples in the mean.
        uses: The uses of the weights.
        leaving: What leaves each of them, as tensors of the graph.
        vectorised: Whether vector-Jacobian products are vectorised, which is faster where an operation is cheap.
    """

    problem: Problem
    outputs: Tensor
    targets: Tensor
    weights: Tensor
    uses: tuple[UseOnBatch, ...]
    leaving: tuple[Tensor, ...]
    vectorised: bool

    def flat(self, layout: Layout, parts: Sequence[Tensor]) -> Tensor:
        """Matrices over the uses, (outputs, columns), as one float64 vector over the parameters."""
        vector, places = torch.zeros(layout.size, dtype=torch.float64), dict(layout)
        for own, part in zip(self.uses, parts, strict=True):
            for piece in own.use.pieces:
                entries = slice(None) if piece.entries is None else piece.entries.flatten()
                vector[places[piece.name]][entries] = part[:, piece.features].flatten().to(vector)
        return vector


def layer_graph(
    problem: Problem, batch: Batch, vectorised: bool, uses: Sequence[int] | None = None
) -> LayerGraph | None:
    """The layers of a batch as tensors of one graph.

    Args:
        problem: Model, data and loss.
        batch: Inputs, targets and weights of some samples.
        vectorised: Whether vector-Jacobian products are vectorised.
        uses: Numbers of the uses to follow. Default: all.

    Returns:
        LayerGraph | None: None unless ``uses`` is given or every parameter acts through known layers, each of its
        entries once.
    """
    recording = recording_of(problem)
    if uses is None and (not recording.uses or not _acts_once(recording)):
        return None
    inputs, targets, weights = batch
    count, found, left = num_rows(inputs), list[UseOnBatch](), list[Tensor]()
    is_slow = not vectorised and has_slow_convolutions(problem)

    def at_use(number: int, call: LayerCall) -> Tensor:
        use = recording.uses[number]
        outputs = call.fast_outputs() if is_slow and call.fast_outputs is not None else call.outputs()
        if outputs.dtype != problem.dtype:
            raise RuntimeError("a layer computes in another dtype than the model")
        left.append(outputs if outputs.requires_grad else outputs.detach().requires_grad_())
        found.append(UseOnBatch(use, use.sample_inputs(call.inputs.detach(), count, problem.dtype)))
        return left[-1].clone()  # what comes next may work in place

    with torch.enable_grad():
        outputs = replay(problem, recording, inputs, range(len(recording.uses)) if uses is None else uses, at_use)
    return LayerGraph(problem, outputs, targets, weights, tuple(found), tuple(left), vectorised)


def _acts_once(recording: Recording) -> bool:
    """Whether every use is known and no entry of a parameter is used twice."""
    if not recording.is_fixed or any(not use.is_structured for use in recording.uses):
        return False
    used = [name for name in recording.names if recording.uses_of(name)]
    return all(name in recording.structured_names and _are_apart(recording, name) for name in used)


def _are_apart(recording: Recording, name: str) -> bool:
    uses = recording.uses_of(name)
    if len(uses) == 1:
        return True
    parts = [part for use in uses for part in (use.weight, use.bias) if part is not None and part.name == name]
    if any(part.index is None for part in parts):
        return False
    entries = torch.cat([part.index.flatten() for part in parts if part.index is not None]).tolist()
    return len(set(entries)) == len(entries)


_SLIGHT = 1e-4  # of the largest entry: a parameter that has less is compared on that scale


def agrees_with_autograd(
    problem: Problem, batch: tuple[Any, Tensor, Tensor], layers: LayerGraph, kind: str, diagonal: Tensor
) -> bool:
    """The gradient, and of every parameter the largest entry of the diagonal and one at random, on some samples."""
    graph = BatchGraph(problem, batch, layers.vectorised)
    return same_gradient(problem, graph, *_layer_gradient(problem, layers)) and same_entries(
        problem, graph, kind, diagonal
    )


def same_entries(problem: Problem, graph: BatchGraph, kind: str, diagonal: Tensor) -> bool:
    """Of every parameter the largest entry of the diagonal and one at random."""
    if not bool(torch.isfinite(diagonal).all()):
        return False
    largest, scale = diagonal.abs().max(), torch.zeros_like(diagonal)
    entries, generator = [], torch.Generator().manual_seed(problem.num_parameters)
    for _, place in problem.layout:
        own = diagonal[place].abs()
        scale[place] = torch.maximum(own.max(), _SLIGHT * largest)
        entries += [
            place.start + int(own.argmax()),
            place.start + int(torch.randint(len(own), (), generator=generator)),
        ]
    errors = (diagonal[entries] - _autograd_entries(graph, kind, torch.tensor(entries))).abs()
    return bool((errors <= tolerance(problem.dtype) * scale[entries]).all())


def _layer_gradient(problem: Problem, layers: LayerGraph) -> tuple[Tensor, Tensor]:
    """sum_p slope_p x_p^T, and for every entry the largest sum of the magnitudes in its layer."""
    outputs = layers.outputs.detach()
    output_gradient = layers.weights[:, None] * problem.loss.gradient(outputs, layers.targets).to(outputs.dtype)
    output_gradients = vjp_rows([layers.outputs], layers.leaving, [output_gradient[None]], vectorised=False)
    found, sizes = [], []
    for own, rows in zip(layers.uses, output_gradients, strict=True):
        shape = len(own.inputs), own.use.num_groups, -1, own.use.num_positions
        left = own.by_output(rows)[:, 0].reshape(shape).transpose(0, 1)
        right = own.features_of(slice(None))  # (groups, samples, positions, features)
        found.append((left @ right).sum(1).flatten(0, 1))
        sizes.append((left.abs() @ right.abs()).sum(1).max().expand_as(found[-1]))
    return layers.flat(problem.layout, found), layers.flat(problem.layout, sizes)


def same_gradient(problem: Problem, graph: BatchGraph, found: Tensor, scale: Tensor) -> bool:
    """A flat gradient beside autograd's, small against the sums of the magnitudes."""
    with torch.enable_grad():
        risk = (graph.weights * problem.loss.value(graph.outputs, graph.targets)).sum()
    parts = zip(graph.gradient(risk), graph.leaves, strict=True)
    expected = torch.cat(
        [(torch.zeros_like(leaf) if part is None else part.detach()).flatten() for part, leaf in parts]
    )
    errors = (found - expected.to("cpu", torch.float64)).abs()
    return bool((errors <= tolerance(problem.dtype) * torch.maximum(scale, _SLIGHT * scale.max())).all())


def _autograd_entries(graph: BatchGraph, kind: str, entries: Tensor) -> Tensor:
    """Some entries of a diagonal, from products with unit vectors."""
    if kind == "loss" and not graph.vectorised:
        return _own_derivatives(graph, entries)
    problem, product, found = graph.problem, PRODUCTS[kind](graph), []
    for some in torch.split(entries, columns_at_once(problem)):
        numbers = torch.arange(len(some))
        units = torch.zeros(len(some), problem.num_parameters, dtype=torch.float64)
        units[numbers, some] = 1.0
        found.append(product(units.to(problem.parameters)).to(units)[numbers, some])
    return torch.cat(found)


def _own_derivatives(graph: BatchGraph, entries: Tensor) -> Tensor:
    """The same from the second derivative of the risk in each entry's own parameter: vectors of all parameters, and
    derivatives in them, would take most of the time of a large network."""
    with torch.enable_grad():
        gradient = graph.gradient(graph.problem.loss.risk(graph.outputs, graph.targets, graph.weights))
    places = [place for _, place in graph.problem.layout]
    found = torch.zeros(len(entries), dtype=torch.float64)
    for number, entry in enumerate(entries.tolist()):
        owner = next(n for n, place in enumerate(places) if place.start <= entry < place.stop)
        output_gradient, leaf, inside = gradient[owner], graph.leaves[owner], entry - places[owner].start
        if output_gradient is not None and output_gradient.grad_fn is not None:
            own = torch.autograd.grad(output_gradient.flatten()[inside], leaf, retain_graph=True, allow_unused=True)[0]
            found[number] = 0.0 if own is None else own.flatten()[inside]
    return found


_FEW = 16  # samples that are compared with autograd
_LARGEST_SWEEP = 2**25  # bytes of a sweep through an MLP; above, the layers are taken from autograd


def mlp_diagonal(problem: Problem, kind: str, max_products: float | None = None) -> Tensor | None:
    """None if the model is no small MLP, if it would cost more than about ``max_products`` products, or if the
    gradient or some entries on a few samples differ from autograd's. Without the penalty."""
    layers = as_mlp(problem) if problem.device.type == "cpu" else None
    if layers is None or _sweep_bytes(problem, layers) > min(_LARGEST_SWEEP, problem.memory_budget // 8):
        return None
    if max_products is not None and _cost(problem, layers) > max_products:
        return None
    few = next(iter(problem.batches(_FEW)))
    found = _batch_diagonal(problem, layers, few, kind)
    if found is None or not _agrees(problem, layers, few, kind, found):
        return None
    if len(few[1]) == problem.num_samples:
        return found
    parts = [_batch_diagonal(problem, layers, batch, kind) for batch in problem.batches(problem.num_samples)]
    known = [part for part in parts if part is not None]
    return torch.stack(known).sum(0) if len(known) == len(parts) else None


def _sweep_bytes(problem: Problem, layers: tuple[DenseLayer, ...]) -> int:
    widths = [len(problem.named[layer.weight]) for layer in layers]
    return 8 * problem.num_samples * max(width * sum(widths[place:]) for place, width in enumerate(widths))


def _cost(problem: Problem, layers: tuple[DenseLayer, ...]) -> float:
    """In products: a direction goes forwards and backwards through the later layers, half of what a product does."""
    works = [problem.named[layer.weight].numel() for layer in layers]
    swept = [len(problem.named[layer.weight]) * sum(works[place + 1 :]) for place, layer in enumerate(layers)]
    return sum(swept) / (2 * sum(works))


@torch.no_grad()
def _batch_diagonal(
    problem: Problem, layers: tuple[DenseLayer, ...], batch: tuple[Any, Tensor, Tensor], kind: str
) -> Tensor | None:
    piece = _piece(problem, layers, batch, kind)
    if piece is None:
        return None
    parts = []
    for place, step in enumerate(piece.steps):
        curvature = mlp_derivatives(piece, place, slice(0, len(step.weight))).curvature[0]
        own = curvature.diagonal(dim1=0, dim2=2)  # (samples, outputs)
        parts.append((own.T @ step.inputs.square()).flatten())
        if step.has_bias:
            parts.append(own.sum(0))
    return torch.cat(parts).double()


def _piece(
    problem: Problem, layers: tuple[DenseLayer, ...], batch: tuple[Any, Tensor, Tensor], kind: str
) -> MlpSamples | None:
    inputs = flat_inputs(problem, batch[0])
    return None if inputs is None else mlp_samples_of(problem, layers, inputs, *batch[1:], kind)


def _agrees(
    problem: Problem, layers: tuple[DenseLayer, ...], batch: tuple[Any, Tensor, Tensor], kind: str, diagonal: Tensor
) -> bool:
    piece = _piece(problem, layers, batch, "loss")
    assert piece is not None
    found, sizes = [], []
    for step in piece.steps:
        assert step.gradient is not None
        weight, size = step.gradient.T @ step.inputs, (step.gradient.abs().T @ step.inputs.abs()).max()
        parts = [weight.flatten(), step.gradient.sum(0)] if step.has_bias else [weight.flatten()]
        found += parts
        sizes += [size.expand_as(part) for part in parts]
    graph = BatchGraph(problem, batch, vectorised=False)
    if not same_gradient(problem, graph, torch.cat(found).double(), torch.cat(sizes).double()):
        return False
    return same_entries(problem, graph, kind, diagonal)


_LIMIT = 2**24  # bytes of the rows of a batch
_SMALL = 2**18  # bytes of a batch up to which the products of its rows are made together
_CACHED = 2**18  # entries of the matrices J that are formed at once
_ROWS = 16  # rows of a sample that the size of a batch leaves room for
_FEW_POSITIONS = 4  # of a sample up to which pairs of them are multiplied out


@twice_differentiable()
@torch.inference_mode(False)
def exact_diagonal(problem: Problem, kind: str = "loss", *, max_products: float | None = None) -> Tensor | None:
    """The diagonal of a curvature matrix over the parameters of ``problem.layout``, exact up to rounding.

    Args:
        problem: Model, data and loss.
        kind: "loss" (default), "outer_product", "functional" or "empirical_fisher".
        max_products: Largest cost, in products with the matrix. Default: no limit.

    Returns:
        Tensor | None: The diagonal in float64. None where the structure does not determine it: if a parameter is used
        other than in known layers, or twice, if the gradient or some entries on a few samples differ from autograd's,
        or if it would cost more than about ``max_products`` products.
    """
    penalty = 2 * problem.l2 if kind == "loss" else 0.0
    closed_form = mlp_diagonal(problem, kind, max_products)
    if closed_form is not None:
        return closed_form + penalty
    few = next(iter(problem.batches(_FEW)))
    try:
        graph = layer_graph(problem, few, vectorised=len(few[1]) * problem.num_parameters <= _CACHED)
    except RuntimeError as error:  # calls that depend on the samples, layers inside of a transform of torch.func
        if not is_answerable(error):
            raise
        problem.count_fallback("diagonals are estimated: the layers of the model could not be traced", error)
        return None
    if graph is None or not _is_affordable(problem, graph, kind, max_products):
        return None
    sums = _Sums(problem, kind, each=sum(leaving.nbytes for leaving in graph.leaving) // len(few[1]))
    found = sums.of(graph)
    if not agrees_with_autograd(problem, few, graph, kind, found):
        return None
    total = sums.of_all() if len(few[1]) < problem.num_samples else found
    return None if total is None else total + penalty


class _Sums:
    """Diagonals of batches in the problem's layout, float64; ``each`` is the size of a sample's outputs in bytes."""

    def __init__(self, problem: Problem, kind: str, each: int) -> None:
        self.problem = problem
        self.kind = kind
        self.each = each
        self.limit = min(_LIMIT, problem.memory_budget // 8)

    def of_all(self) -> Tensor | None:
        """None if a batch goes another way through the network than its layers tell."""
        total = torch.zeros(self.problem.num_parameters, dtype=torch.float64)
        for batch in self.problem.batches(max(1, self.limit // (self.each * min(_ROWS, self.problem.output_dim)))):
            graph = layer_graph(self.problem, batch, vectorised=self.each * len(batch[1]) <= _SMALL)
            if graph is None:
                return None
            total += self.of(graph)
        return total

    def of(self, batch: LayerGraph) -> Tensor:
        width = max(1, self.limit // (self.each * len(batch.targets)))
        return batch.flat(self.problem.layout, _batch_sums(self.problem.loss, batch, self.kind, width))


def _batch_sums(loss: Loss, batch: LayerGraph, kind: str, width: int) -> list[Tensor]:
    """The diagonal of every layer on one batch, shape (outputs, columns), ``width`` rows at a time."""
    sums = [own.inputs.new_zeros(own.use.num_outputs, own.use.num_features) for own in batch.uses]
    with torch.no_grad():
        outputs = batch.outputs.detach()
        output_gradient = loss.gradient(outputs, batch.targets).to(outputs.dtype)
        if kind in ("loss", "outer_product"):
            roots = output_roots(loss, outputs, batch.targets, batch.weights, fewest=not batch.vectorised)
            _add_squares(sums, batch, *roots, width)
        if kind == "empirical_fisher":
            _add_squares(sums, batch, (batch.weights.sqrt()[:, None] * output_gradient)[:, None], None, width)
    if kind in ("loss", "functional"):
        _add_functional(sums, batch, batch.weights[:, None] * output_gradient, width)
    return sums


def _add_squares(sums: list[Tensor], batch: LayerGraph, roots: Tensor, signs: Tensor | None, width: int) -> None:
    """sum sign J_ij^2 over samples and rows; ``roots`` are (samples, rank, output_dim)."""
    for start in range(0, roots.shape[1], width):
        group = slice(start, start + width)
        given = [roots[:, group].transpose(0, 1)]
        vectorised, problem = batch.vectorised, batch.problem
        found = vjp_rows([batch.outputs], batch.leaving, given, vectorised, side_by_side=True, problem=problem)
        for total, own, rows in zip(sums, batch.uses, found, strict=True):
            total += _squares(own, own.by_output(rows), None if signs is None else signs[:, group])


def _squares(own: UseOnBatch, rows: Tensor, signs: Tensor | None) -> Tensor:
    """sum sign (sum_p row_p x_p^T)^2 entry by entry, of rows (samples, rank, outputs, positions)."""
    samples, rank, outputs, positions = rows.shape
    groups, columns = own.use.num_groups, own.use.num_features
    if positions == 1 and groups == 1:
        squares = rows[..., 0].square()
        curved = squares.sum(1) if signs is None else (squares * signs[:, :, None]).sum(1)
        return curved.T @ own.features_of(slice(None))[0, :, 0].square()
    if positions <= _FEW_POSITIONS and groups == 1:
        return _squares_by_pairs(own, rows, signs)
    total = rows.new_zeros(outputs, columns)
    step = max(1, _CACHED // max(rank * outputs * columns, groups * positions * columns))
    for start in range(0, samples, step):
        chosen = slice(start, start + step)
        grouped = rows[chosen].reshape(-1, rank, groups, outputs // groups, positions).permute(2, 0, 1, 3, 4)
        matrices = grouped.flatten(2, 3) @ own.features_of(chosen)  # (groups, samples, rank * outputs, columns)
        squares = matrices.square_().reshape(groups, -1, rank, outputs // groups, columns)
        signed = squares if signs is None else squares * signs[chosen][None, :, :, None, None]
        total += signed.sum((1, 2)).flatten(0, 1)
    return total


def _squares_by_pairs(own: UseOnBatch, rows: Tensor, signs: Tensor | None) -> Tensor:
    """The same, multiplied out: (sum_p row_p x_p)^2 = sum_pq (row_p row_q) (x_p x_q), a matrix product for each pair of
    positions instead of a matrix for each row."""
    inputs, given = own.features_of(slice(None))[0], rows if signs is None else rows * signs[:, :, None, None]
    total = rows.new_zeros(rows.shape[2], own.use.num_features)
    for one in range(rows.shape[3]):
        for other in range(one + 1):
            curved = (given[..., one] * rows[..., other]).sum(1)
            total.addmm_(curved.T, inputs[:, one] * inputs[:, other], alpha=1 if one == other else 2)
    return total


def _add_functional(sums: list[Tensor], batch: LayerGraph, residual: Tensor, width: int) -> None:
    """The part through second derivatives of the outputs, x^T F_i x for the block F_i of a layer's output i."""
    output_gradients = _output_gradients(batch, residual)
    for total, own, leaving, gradient in zip(sums, batch.uses, batch.leaving, output_gradients, strict=True):
        if gradient is None or not _has_second_derivative(leaving, gradient):
            continue
        use, inputs, count = own.use, own.features_of(slice(None)), _num_profiles(own.use)
        for numbers in torch.split(torch.arange(use.num_outputs * count, device=total.device), width):
            outputs, profiles = numbers // count, numbers % count
            directions = _profiles(use, inputs, outputs, profiles)
            images = _images(own, leaving, gradient, outputs, directions, batch)
            if use.num_groups > 1:
                _add_grouped(total, use, inputs, outputs, profiles, images)
            elif use.num_positions == 1:
                total[outputs] += images[:, :, 0].T @ inputs[0, :, 0].square()
            elif count == use.num_positions:
                total.index_add_(0, outputs, (images @ inputs[0] * inputs[0, :, profiles]).sum(0))
            else:
                total[outputs, profiles] += (images * inputs[0, :, :, profiles].mT).sum((0, 2))


def _add_grouped(
    total: Tensor, use: LayerUse, inputs: Tensor, outputs: Tensor, profiles: Tensor, images: Tensor
) -> None:
    """The same where every output has inputs of its group alone."""
    own, numbers = _inputs_of(use, inputs, outputs), torch.arange(len(outputs))
    if _num_profiles(use) == use.num_positions:
        met = torch.einsum("nkp,nkpc->nkc", images, own) * own[:, numbers, profiles]
        total.index_add_(0, outputs, met.sum(0))
    else:
        total[outputs, profiles] += (images * own[:, numbers, :, profiles].transpose(0, 1)).sum((0, 2))


def _inputs_of(use: LayerUse, inputs: Tensor, outputs: Tensor) -> Tensor:
    """The inputs that some outputs have, (samples, outputs, positions, columns)."""
    return inputs[outputs // (use.num_outputs // use.num_groups)].transpose(0, 1)


def _output_gradients(batch: LayerGraph, residual: Tensor) -> list[Tensor | None]:
    """The gradient in what left each layer, to be differentiated again."""
    if not batch.outputs.requires_grad:
        return [None] * len(batch.uses)
    return list(torch.autograd.grad(batch.outputs, batch.leaving, residual, create_graph=True, allow_unused=True))


def _has_second_derivative(leaving: Tensor, output_gradient: Tensor) -> bool:
    """Whether the output gradient changes with the outputs of the layer: a random product is not exactly zero."""
    generator = torch.Generator().manual_seed(output_gradient[0].numel())
    random = torch.randn(output_gradient.shape[1:], generator=generator, dtype=torch.float64).to(output_gradient)
    given = [random.expand(1, *output_gradient.shape)]
    return bool(vjp_rows([output_gradient], [leaving], given, vectorised=False)[0].any())


def _num_profiles(use: LayerUse) -> int:
    """Of an output: its positions, or the columns of its input, whichever are fewer."""
    return min(use.num_positions, use.num_features)


def _profiles(use: LayerUse, inputs: Tensor, outputs: Tensor, chosen: Tensor) -> Tensor:
    """Directions over the positions, (samples, chosen, positions): single ones, or columns of the input."""
    if _num_profiles(use) == use.num_positions:
        single = torch.eye(use.num_positions, dtype=inputs.dtype, device=inputs.device)[chosen]
        return single.expand(inputs.shape[1], -1, -1)
    if use.num_groups == 1:
        return inputs[0, :, :, chosen].mT
    return _inputs_of(use, inputs, outputs)[:, torch.arange(len(chosen)), :, chosen].transpose(0, 1)


def _images(
    own: UseOnBatch, leaving: Tensor, output_gradient: Tensor, outputs: Tensor, profiles: Tensor, batch: LayerGraph
) -> Tensor:
    """F_i u of the directions u over the positions of output i, (samples, directions, positions)."""
    samples, count, positions = profiles.shape
    numbers = torch.arange(count, device=outputs.device)
    directions = profiles.new_zeros(samples, count, own.use.num_outputs, positions)
    directions[:, numbers, outputs] = profiles
    given = [own.as_leaving(directions, tuple(leaving.shape))]
    images = vjp_rows([output_gradient], [leaving], given, batch.vectorised, problem=batch.problem)[0]
    return own.by_output(images)[:, numbers, outputs]


def _is_affordable(problem: Problem, few: LayerGraph, kind: str, max_products: float | None) -> bool:
    """Rows and directions, each weighted by its share of the passes that a product takes over all layers."""
    if 32 * problem.output_dim**2 > problem.memory_budget:
        return False
    if max_products is None:
        return True
    uses = [own.use for own in few.uses]
    works = [use.num_positions * use.num_outputs * use.num_inputs for use in uses]
    cost = 0.0 if kind in ("functional", "empirical_fisher") else problem.output_dim / 2
    if kind in ("loss", "functional"):
        output_gradients = _output_gradients(few, torch.ones_like(few.outputs))
        for place, (use, leaving, gradient) in enumerate(zip(uses, few.leaving, output_gradients, strict=True)):
            if gradient is not None and _has_second_derivative(leaving, gradient):
                cost += use.num_outputs * _num_profiles(use) * sum(works[place + 1 :]) / sum(works)
    return cost <= max_products
