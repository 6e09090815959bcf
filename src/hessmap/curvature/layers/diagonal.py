"""The diagonal of a Hessian from the structure of layers, without a random probe.

Where every parameter acts once, z_p = W x_p + b at the positions p of a sample,

    d2 risk / dW_ij^2 = sum_n sum_pq M_n[pi, qi] x_p[j] x_q[j],    M_n = G^T A G + sum_c residual_c d2 out_c / dz2.

The first term of M_n is a sum of squares of as many rows as the network has outputs, by vector-Jacobian products that
reach all layers at once; with one position a sample it is two matrix products in squares. The second one is zero behind
piecewise-linear maps, which a random vector tells, batch by batch; elsewhere it takes one vector-Jacobian product per
output of the layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.batch_graph import vjp_rows
from hessmap.curvature.fallbacks import is_answerable
from hessmap.curvature.layers.chain_diagonal import chain_diagonal
from hessmap.curvature.layers.diagonal_check import agrees_with_autograd
from hessmap.curvature.layers.layer_graph import GraphUse, LayerGraph, layer_graph
from hessmap.curvature.losses import Loss
from hessmap.curvature.losses.loss import output_roots
from hessmap.curvature.problem import Problem
from hessmap.curvature.second_derivatives import twice_differentiable

_FEW = 16  # samples that are compared with autograd
_LIMIT = 2**24  # bytes of the rows of a batch
_SMALL = 2**18  # bytes of a batch up to which the products of its rows are made together
_CACHED = 2**18  # entries of the matrices J that are formed at once
_ROWS = 16
_FEW_POSITIONS = 4


@twice_differentiable()
@torch.inference_mode(False)
def exact_diagonal(problem: Problem, kind: str = "loss", *, max_products: float | None = None) -> Tensor | None:
    """The diagonal of a curvature matrix over the parameters of ``problem.layout``, float64, exact up to rounding.

    ``kind`` is "loss", "outer_product", "functional" or "empirical_fisher". None where the structure does not tell it:
    if a parameter has another use than in layers that are known, or two of them, if the gradient or some entries on a
    few samples differ from autograd's, or if it would cost more than about ``max_products`` products.
    """
    penalty = 2 * problem.l2 if kind == "loss" else 0.0
    by_hand = chain_diagonal(problem, kind, max_products)
    if by_hand is not None:
        return by_hand + penalty
    few = next(iter(problem.batches(_FEW)))
    try:
        graph = layer_graph(problem, few, together=len(few[1]) * problem.num_parameters <= _CACHED)
    except RuntimeError as error:  # calls that depend on the samples, layers inside of a transform of torch.func
        if not is_answerable(error):
            raise
        problem.count_fallback("diagonals are estimated: the layers of the model could not be followed", error)
        return None
    if graph is None or not _is_affordable(problem, graph, kind, max_products):
        return None
    sums = _Sums(problem, kind, each=sum(use.leaving.nbytes for use in graph.uses) // len(few[1]))
    found = sums.of(graph)
    if not agrees_with_autograd(problem, few, graph, kind, found):
        return None
    total = sums.of_all() if len(few[1]) < problem.num_samples else found
    return None if total is None else total + penalty


class _Sums:
    """Diagonals of batches, in the layout of the problem, float64; ``each`` sample has so many bytes of outputs."""

    def __init__(self, problem: Problem, kind: str, each: int) -> None:
        self.problem = problem
        self.kind = kind
        self.each = each
        self.limit = min(_LIMIT, problem.memory_budget // 8)

    def of_all(self) -> Tensor | None:
        """None if a batch goes another way through the network than its layers tell."""
        total = torch.zeros(self.problem.num_parameters, dtype=torch.float64)
        for batch in self.problem.batches(max(1, self.limit // (self.each * min(_ROWS, self.problem.output_dim)))):
            graph = layer_graph(self.problem, batch, together=self.each * len(batch[1]) <= _SMALL)
            if graph is None:
                return None
            total += self.of(graph)
        return total

    def of(self, batch: LayerGraph) -> Tensor:
        width = max(1, self.limit // (self.each * len(batch.targets)))
        return batch.flat(self.problem.layout, _batch_sums(self.problem.loss, batch, self.kind, width))


def _batch_sums(loss: Loss, batch: LayerGraph, kind: str, width: int) -> list[Tensor]:
    """The diagonal of every layer on one batch, shape (outputs, columns), ``width`` rows at a time."""
    sums = [use.leaving.new_zeros(use.num_outputs, use.num_columns) for use in batch.uses]
    with torch.no_grad():
        outputs = batch.outputs.detach()
        slope = loss.gradient(outputs, batch.targets).to(outputs.dtype)
        if kind in ("loss", "outer_product"):
            roots = output_roots(loss, outputs, batch.targets, batch.weights, fewest=not batch.together)
            _add_squares(sums, batch, *roots, width)
        if kind == "empirical_fisher":
            _add_squares(sums, batch, (batch.weights.sqrt()[:, None] * slope)[:, None], None, width)
    if kind in ("loss", "functional"):
        _add_functional(sums, batch, batch.weights[:, None] * slope, width)
    return sums


def _add_squares(sums: list[Tensor], batch: LayerGraph, roots: Tensor, signs: Tensor | None, width: int) -> None:
    """sum sign J_ij^2 over samples and rows; ``roots`` are (samples, rank, output_dim)."""
    for start in range(0, roots.shape[1], width):
        group = slice(start, start + width)
        given = [roots[:, group].transpose(0, 1)]
        together, problem = batch.together, batch.problem
        found = vjp_rows([batch.outputs], batch.places, given, together, side_by_side=True, problem=problem)
        for total, use, rows in zip(sums, batch.uses, found, strict=True):
            total += _squares(use, use.by_output(rows), None if signs is None else signs[:, group])


def _squares(use: GraphUse, rows: Tensor, signs: Tensor | None) -> Tensor:
    """sum sign (sum_p row_p x_p^T)^2 entry by entry, of rows (samples, rank, outputs, positions)."""
    samples, rank, outputs, positions = rows.shape
    groups = use.num_groups
    if positions == 1 and groups == 1:
        squares = rows[..., 0].square()
        curved = squares.sum(1) if signs is None else (squares * signs[:, :, None]).sum(1)
        return curved.T @ use.inputs(slice(None))[0, :, 0].square()
    if positions <= _FEW_POSITIONS and groups == 1:
        return _squares_by_pairs(use, rows, signs)
    total = rows.new_zeros(outputs, use.num_columns)
    step = max(1, _CACHED // max(rank * outputs * use.num_columns, groups * positions * use.num_columns))
    for start in range(0, samples, step):
        chosen = slice(start, start + step)
        own = rows[chosen].reshape(-1, rank, groups, outputs // groups, positions).permute(2, 0, 1, 3, 4)
        matrices = own.flatten(2, 3) @ use.inputs(chosen)  # (groups, samples, rank * outputs, columns)
        squares = matrices.square_().reshape(groups, -1, rank, outputs // groups, use.num_columns)
        signed = squares if signs is None else squares * signs[chosen][None, :, :, None, None]
        total += signed.sum((1, 2)).flatten(0, 1)
    return total


def _squares_by_pairs(use: GraphUse, rows: Tensor, signs: Tensor | None) -> Tensor:
    """The same, multiplied out: (sum_p row_p x_p)^2 = sum_pq (row_p row_q) (x_p x_q), a matrix product for each pair of
    positions instead of a matrix for each row."""
    inputs, given = use.inputs(slice(None))[0], rows if signs is None else rows * signs[:, :, None, None]
    total = rows.new_zeros(rows.shape[2], use.num_columns)
    for one in range(rows.shape[3]):
        for other in range(one + 1):
            curved = (given[..., one] * rows[..., other]).sum(1)
            total.addmm_(curved.T, inputs[:, one] * inputs[:, other], alpha=1 if one == other else 2)
    return total


def _add_functional(sums: list[Tensor], batch: LayerGraph, residual: Tensor, width: int) -> None:
    """The part through second derivatives of the outputs, x^T F_i x for the block F_i of a layer's output i."""
    for total, use, slope in zip(sums, batch.uses, _slopes(batch, residual), strict=True):
        if slope is None or not _has_second_derivative(use, slope):
            continue
        inputs, count = use.inputs(slice(None)), _num_profiles(use)
        for numbers in torch.split(torch.arange(use.num_outputs * count, device=total.device), width):
            outputs, profiles = numbers // count, numbers % count
            directions = _profiles(use, inputs, outputs, profiles)
            images = _images(use, slope, outputs, directions, batch)
            if use.num_groups > 1:
                _add_grouped(total, use, inputs, outputs, profiles, images)
            elif use.num_positions == 1:
                total[outputs] += images[:, :, 0].T @ inputs[0, :, 0].square()
            elif count == use.num_positions:
                total.index_add_(0, outputs, (images @ inputs[0] * inputs[0, :, profiles]).sum(0))
            else:
                total[outputs, profiles] += (images * inputs[0, :, :, profiles].mT).sum((0, 2))


def _add_grouped(
    total: Tensor, use: GraphUse, inputs: Tensor, outputs: Tensor, profiles: Tensor, images: Tensor
) -> None:
    """The same where every output has inputs of its group alone."""
    own, numbers = _inputs_of(use, inputs, outputs), torch.arange(len(outputs))
    if _num_profiles(use) == use.num_positions:
        met = torch.einsum("nkp,nkpc->nkc", images, own) * own[:, numbers, profiles]
        total.index_add_(0, outputs, met.sum(0))
    else:
        total[outputs, profiles] += (images * own[:, numbers, :, profiles].transpose(0, 1)).sum((0, 2))


def _inputs_of(use: GraphUse, inputs: Tensor, outputs: Tensor) -> Tensor:
    """The inputs that some outputs have, (samples, outputs, positions, columns)."""
    return inputs[outputs // (use.num_outputs // use.num_groups)].transpose(0, 1)


def _slopes(batch: LayerGraph, residual: Tensor) -> list[Tensor | None]:
    """The gradient in what left each layer, to be differentiated again."""
    if not batch.outputs.requires_grad:
        return [None] * len(batch.uses)
    return list(torch.autograd.grad(batch.outputs, batch.places, residual, create_graph=True, allow_unused=True))


def _has_second_derivative(use: GraphUse, slope: Tensor) -> bool:
    """Whether the slope changes with what left the layer: a product with a random vector is not exactly zero."""
    generator = torch.Generator().manual_seed(slope[0].numel())
    random = torch.randn(slope.shape[1:], generator=generator, dtype=torch.float64).to(slope)
    return bool(vjp_rows([slope], [use.leaving], [random.expand(1, *slope.shape)], together=False)[0].any())


def _num_profiles(use: GraphUse) -> int:
    """Of an output: its positions, or the columns of its input, whichever are fewer."""
    return min(use.num_positions, use.num_columns)


def _profiles(use: GraphUse, inputs: Tensor, outputs: Tensor, chosen: Tensor) -> Tensor:
    """Directions over the positions, (samples, chosen, positions): single ones, or columns of the input."""
    if _num_profiles(use) == use.num_positions:
        single = torch.eye(use.num_positions, dtype=inputs.dtype, device=inputs.device)[chosen]
        return single.expand(inputs.shape[1], -1, -1)
    if use.num_groups == 1:
        return inputs[0, :, :, chosen].mT
    return _inputs_of(use, inputs, outputs)[:, torch.arange(len(chosen)), :, chosen].transpose(0, 1)


def _images(use: GraphUse, slope: Tensor, outputs: Tensor, profiles: Tensor, batch: LayerGraph) -> Tensor:
    """F_i u of the directions u over the positions of output i, (samples, directions, positions)."""
    samples, count, positions = profiles.shape
    numbers = torch.arange(count, device=outputs.device)
    directions = profiles.new_zeros(samples, count, use.num_outputs, positions)
    directions[:, numbers, outputs] = profiles
    given = [use.as_leaving(directions)]
    images = vjp_rows([slope], [use.leaving], given, batch.together, problem=batch.problem)[0]
    return use.by_output(images)[:, numbers, outputs]


def _is_affordable(problem: Problem, few: LayerGraph, kind: str, max_products: float | None) -> bool:
    """Rows and directions, each weighted by its share of the passes that a product takes over all layers."""
    if 32 * problem.output_dim**2 > problem.memory_budget:
        return False
    if max_products is None:
        return True
    works = [own.num_positions * own.num_outputs * own.use.num_inputs for own in few.uses]
    cost = 0.0 if kind in ("functional", "empirical_fisher") else problem.output_dim / 2
    if kind in ("loss", "functional"):
        slopes = _slopes(few, torch.ones_like(few.outputs))
        for place, (use, slope) in enumerate(zip(few.uses, slopes, strict=True)):
            if slope is not None and _has_second_derivative(use, slope):
                cost += use.num_outputs * _num_profiles(use) * sum(works[place + 1 :]) / sum(works)
    return cost <= max_products
