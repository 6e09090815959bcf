"""The diagonal of a Hessian from the structure of layers, without a random probe.

Where every parameter acts in one linear map or convolution, z_p = W x_p + b at the positions p of a sample,

    d2 risk / dW_ij^2 = sum_n sum_pq M_n[pi, qi] x_p[j] x_q[j],    M_n = G^T A G + sum_c residual_c d2 out_c / dz2.

The first term of M_n is a sum of squares of as many rows as the network has outputs, pulled back to all layers at once;
with one position a sample it is two matrix products in squares. The second one is zero behind piecewise-linear maps,
which a random vector tells, batch by batch; elsewhere it takes one pull-back per output of the layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.batch_graph import vjp_rows
from hessmap.curvature.layers.batches import output_roots
from hessmap.curvature.layers.diagonal_check import agrees_with_autograd
from hessmap.curvature.layers.taps import Tap, Tapped, tapped
from hessmap.curvature.losses import Loss
from hessmap.curvature.problem import Problem

_FEW = 16  # samples that are held against autograd
_LIMIT = 2**24  # bytes of the rows of a batch
_SMALL = 2**18  # bytes of a batch up to which its rows are pulled back together
_CACHED = 2**18  # entries of the matrices J that are formed at once
_ROWS = 16


def exact_diagonal(problem: Problem, kind: str = "loss", *, max_products: float | None = None) -> Tensor | None:
    """The diagonal of a curvature matrix over the parameters of ``problem.layout``, float64, exact up to rounding.

    ``kind`` is "loss", "outer_product", "functional" or "empirical_fisher". None where the structure does not tell it:
    if a parameter is no weight or bias of a linear map or ungrouped convolution that acts once, if the gradient or some
    entries on a few samples differ from autograd's, or if it would cost more than about ``max_products`` products.
    """
    few = next(iter(problem.batches(_FEW)))
    seen = tapped(problem, few, together=len(few[1]) * problem.num_parameters <= _CACHED)
    if seen is None or not _is_affordable(problem, seen, kind, max_products):
        return None
    sums = _Sums(problem, kind, each=sum(tap.leaving.nbytes for tap in seen.taps) // len(few[1]))
    found = sums.of(seen)
    if not agrees_with_autograd(problem, few, seen, kind, found):
        return None
    total = sums.of_all() if len(few[1]) < problem.num_samples else found
    return None if total is None else total + (2 * problem.l2 if kind == "loss" else 0.0)


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
            layers = tapped(self.problem, batch, together=self.each * len(batch[1]) <= _SMALL)
            if layers is None:
                return None
            total += self.of(layers)
        return total

    def of(self, batch: Tapped) -> Tensor:
        width = max(1, self.limit // (self.each * len(batch.targets)))
        return batch.flat(self.problem.layout, _batch_sums(self.problem.loss, batch, self.kind, width))


def _batch_sums(loss: Loss, batch: Tapped, kind: str, width: int) -> list[Tensor]:
    """The diagonal of every layer on one batch, shape (outputs, columns), ``width`` rows at a time."""
    sums = [tap.leaving.new_zeros(tap.num_outputs, tap.num_columns) for tap in batch.taps]
    with torch.no_grad():
        outputs = batch.outputs.detach()
        slope = loss.gradient(outputs, batch.targets).to(outputs.dtype)
        if kind in ("loss", "outer_product"):
            roots = output_roots(loss, outputs, batch.targets, batch.weights, fewest=not batch.together)
            _add_squares(sums, batch, *roots, width)
        if kind == "empirical_fisher":
            _add_squares(sums, batch, (batch.weights.sqrt()[:, None] * slope)[:, None], None, width)
    if kind in ("loss", "functional"):
        _add_bends(sums, batch, batch.weights[:, None] * slope, width)
    return sums


def _add_squares(sums: list[Tensor], batch: Tapped, roots: Tensor, signs: Tensor | None, width: int) -> None:
    """sum sign J_ij^2 over samples and rows; ``roots`` are (samples, rank, output_dim)."""
    for start in range(0, roots.shape[1], width):
        group = slice(start, start + width)
        given = [roots[:, group].transpose(0, 1)]
        pulled = vjp_rows([batch.outputs], batch.places, given, batch.together, side_by_side=True)
        for total, tap, rows in zip(sums, batch.taps, pulled, strict=True):
            total += _squares(tap, tap.by_output(rows), None if signs is None else signs[:, group])


def _squares(tap: Tap, rows: Tensor, signs: Tensor | None) -> Tensor:
    """sum sign (sum_p row_p x_p^T)^2 entry by entry, of rows (samples, rank, outputs, positions)."""
    samples, rank, outputs, positions = rows.shape
    if positions == 1:
        squares = rows[..., 0].square()
        curved = squares.sum(1) if signs is None else (squares * signs[:, :, None]).sum(1)
        return curved.T @ tap.inputs(slice(None))[:, 0].square()
    total = rows.new_zeros(outputs, tap.num_columns)
    step = max(1, _CACHED // max(rank * outputs * tap.num_columns, positions * tap.num_columns))
    for start in range(0, samples, step):
        chosen = slice(start, start + step)
        matrices = rows[chosen].reshape(-1, rank * outputs, positions) @ tap.inputs(chosen)
        squares = matrices.square_().reshape(-1, rank, outputs, tap.num_columns)
        total += (squares if signs is None else squares * signs[chosen][:, :, None, None]).sum((0, 1))
    return total


def _add_bends(sums: list[Tensor], batch: Tapped, residual: Tensor, width: int) -> None:
    """The part through second derivatives of the outputs, x^T F_i x for the block F_i of a layer's output i."""
    for total, tap, slope in zip(sums, batch.taps, _slopes(batch, residual), strict=True):
        if slope is None or not _is_bent(tap, slope, batch.together):
            continue
        inputs, count = tap.inputs(slice(None)), _num_profiles(tap)
        for numbers in torch.split(torch.arange(tap.num_outputs * count, device=total.device), width):
            outputs, profiles = numbers // count, numbers % count
            images = _images(tap, slope, outputs, _profiles(tap, inputs, profiles), batch.together)
            if tap.num_positions == 1:
                total[outputs] += images[:, :, 0].T @ inputs[:, 0].square()
            elif count == tap.num_positions:
                total.index_add_(0, outputs, (images @ inputs * inputs[:, profiles]).sum(0))
            else:
                total[outputs, profiles] += (images * inputs[:, :, profiles].mT).sum((0, 2))


def _slopes(batch: Tapped, residual: Tensor) -> list[Tensor | None]:
    """The gradient in what left each layer, to be differentiated again."""
    if not batch.outputs.requires_grad:
        return [None] * len(batch.taps)
    return list(torch.autograd.grad(batch.outputs, batch.places, residual, create_graph=True, allow_unused=True))


def _is_bent(tap: Tap, slope: Tensor, together: bool) -> bool:
    """Whether the slope moves with what left the layer: a product with a random vector is not exactly zero."""
    generator = torch.Generator().manual_seed(slope[0].numel())
    random = torch.randn(slope.shape[1:], generator=generator, dtype=torch.float64).to(slope)
    return bool(vjp_rows([slope], [tap.leaving], [random.expand(1, *slope.shape)], together)[0].any())


def _num_profiles(tap: Tap) -> int:
    """Of an output: its positions, or the columns of its input, whichever are fewer."""
    return min(tap.num_positions, tap.num_columns)


def _profiles(tap: Tap, inputs: Tensor, chosen: Tensor) -> Tensor:
    """Directions over the positions, (samples, chosen, positions): single ones, or columns of the input."""
    if _num_profiles(tap) == tap.num_positions:
        single = torch.eye(tap.num_positions, dtype=inputs.dtype, device=inputs.device)[chosen]
        return single.expand(len(inputs), -1, -1)
    return inputs[:, :, chosen].mT


def _images(tap: Tap, slope: Tensor, outputs: Tensor, profiles: Tensor, together: bool) -> Tensor:
    """F_i u of the directions u over the positions of output i, (samples, directions, positions)."""
    samples, count, positions = profiles.shape
    numbers = torch.arange(count, device=outputs.device)
    directions = profiles.new_zeros(samples, count, tap.num_outputs, positions)
    directions[:, numbers, outputs] = profiles
    images = vjp_rows([slope], [tap.leaving], [tap.as_leaving(directions)], together)[0]
    return tap.by_output(images)[:, numbers, outputs]


def _is_affordable(problem: Problem, few: Tapped, kind: str, max_products: float | None) -> bool:
    """Rows and directions, each weighted by its share of the passes that a product takes over all layers."""
    if 32 * problem.output_dim**2 > problem.memory_budget:
        return False
    if max_products is None:
        return True
    works = [tap.num_positions * tap.num_outputs * tap.num_inputs for tap in few.taps]
    cost = 0.0 if kind in ("functional", "empirical_fisher") else problem.output_dim / 2
    if kind in ("loss", "functional"):
        slopes = _slopes(few, torch.ones_like(few.outputs))
        for place, (tap, slope) in enumerate(zip(few.taps, slopes, strict=True)):
            if slope is not None and _is_bent(tap, slope, few.together):
                cost += tap.num_outputs * _num_profiles(tap) * sum(works[place + 1 :]) / sum(works)
    return cost <= max_products
