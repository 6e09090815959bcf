"""A layer seen through its samples: what enters it, and the second derivative of the loss in what leaves it.

For one sample with patches x_p and outputs z_p = W x_p,

    d2 loss / dW2 = sum_pq M_pq (x) x_p x_q^T,    M = d2 loss / dz2 = G^T A G + sum_c (dloss/dout_c) d2 out_c / dz2

with G = dout/dz and A = d2 loss / dout2. Behind piecewise-linear maps (ReLU, max-pooling, frozen batch-norm) the last
term is zero and M has the rank of A; it is held as signed rows, M = rows^T diag(signs) rows, in both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import vjp, vmap

from hessmap.curvature.layers.watch import Layer, Watch, calls_of_one_sample
from hessmap.curvature.losses import Loss
from hessmap.curvature.problem import Batch, Problem
from hessmap.curvature.pullback import pullback
from hessmap.errors import InvalidInput

Curvature = Literal["gauss_newton", "full"]
_NEGLIGIBLE = 1e-15  # of the curvature of a sample: below its rounding
_NEGLIGIBLE_ROW = 1e-12  # rows count by their squares


@dataclass(frozen=True)
class LayerBatch:
    """Some samples of a layer: what entered, (samples, entries), and rows of M, (samples, rank, positions, outputs).

    The rows hold the samples' weights; ``signs`` (samples, rank) is None where all are plus one.
    """

    layer: Layer
    entering: Tensor
    weights: Tensor
    rows: Tensor
    signs: Tensor | None

    @property
    def inputs(self) -> Tensor:
        """What the weight multiplies, shape (samples, positions, inputs)."""
        return self.layer.unfolded(self.entering)

    def signed(self, values: Tensor) -> Tensor:
        """Values (samples, rank, ..) times the signs."""
        if self.signs is None:
            return values
        return values * self.signs.reshape(*self.signs.shape, *[1] * (values.ndim - 2))


def layer_batches(problem: Problem, layer: Layer, curvature: Curvature) -> Iterator[LayerBatch]:
    """The data in order, as many samples at a time as the memory budget allows."""
    for batch in problem.batches(samples_at_once(problem, layer, curvature)):
        yield layer_batch(problem, layer, curvature, batch)


@dataclass(frozen=True)
class Pulled:
    """Some samples pulled back to a layer's outputs: the network's outputs, what entered the layer, and the Jacobian
    doutput/dz, (samples, output_dim, positions, outputs)."""

    outputs: Tensor
    entering: Tensor
    jacobian: Tensor


def pulled_back(problem: Problem, layer: Layer, data: Tensor) -> Pulled:
    """One pull-back per output of the network."""
    linearised: Any = vjp(_moved(problem, layer, data), _still(layer, data), has_aux=True)
    outputs, pull, entering = linearised
    basis = torch.eye(outputs.shape[1], dtype=torch.float64)[:, None].expand(-1, len(data), -1)
    jacobian = vmap(lambda cotangent: pull(cotangent)[0])(basis).transpose(0, 1)
    return Pulled(outputs, entering.detach().reshape(len(data), -1), jacobian)


@torch.no_grad()
def layer_batch(problem: Problem, layer: Layer, curvature: Curvature, batch: Batch) -> LayerBatch:
    """A batch of the problem as the layer sees it."""
    data, targets, weights = batch
    pulled = pulled_back(problem, layer, data)
    roots, signs = output_roots(problem.loss, pulled.outputs, targets, weights)
    rows = (roots @ pulled.jacobian.flatten(2)).reshape(len(data), -1, *pulled.jacobian.shape[2:])
    if curvature == "full":
        residual = weights[:, None] * problem.loss.gradient(pulled.outputs, targets)
        rows, signs = _full_rows(rows, signs, _functional(problem, layer, data, residual))
    return LayerBatch(layer, pulled.entering, weights, rows.contiguous(), signs)


def _moved(problem: Problem, layer: Layer, data: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """The outputs as a function of a perturbation of the layer's outputs, and what entered the layer."""
    names = {id(problem.named[layer.weight]): layer.weight}

    def outputs(perturbation: Tensor) -> tuple[Tensor, Tensor]:
        watch = Watch(names, layer.weight, perturbation)
        with watch:
            leaving = problem.forward(problem.named, data)
        return leaving, watch.calls[0][1].entering

    return outputs


def _still(layer: Layer, data: Tensor) -> Tensor:
    return torch.zeros(len(data), layer.num_positions, layer.num_outputs, dtype=torch.float64)


def _functional(problem: Problem, layer: Layer, data: Tensor, residual: Tensor) -> Tensor:
    """sum_c residual_c d2 out_c / dz2, shape (samples, D, D), D = positions * outputs.

    Reverse mode alone, which all modules have.
    """
    still, moved = _still(layer, data), _moved(problem, layer, data)

    def slope(perturbation: Tensor) -> Tensor:
        pulled: Any = vjp(moved, perturbation, has_aux=True)
        # The added zero keeps the slope a function of the perturbation where the outputs are linear in it.
        moving: Tensor = pulled[1](residual)[0] + 0.0 * perturbation
        return moving

    _, pull = pullback(slope, still)
    size = still[0].numel()
    basis = torch.eye(size, dtype=torch.float64).reshape(size, 1, *still.shape[1:]).expand(-1, *still.shape)
    found = vmap(pull)(basis).flatten(2).transpose(0, 1)
    return (found + found.mT) / 2


def output_roots(
    loss: Loss, outputs: Tensor, targets: Tensor, weights: Tensor, *, fewest: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Rows (samples, rank, output_dim) and signs with rows^T signs rows = weight * d2 loss / dout2.

    The triangle of a QR decomposition of the root has a zero last row where the Hessian has a kernel, as softmax has;
    without ``fewest`` that row is not worth the decomposition.
    """
    try:
        root = loss.hessian_root(outputs, targets)
    except InvalidInput:  # not convex in the outputs
        values, vectors = torch.linalg.eigh(loss.hessian(outputs, targets))
        return (weights[:, None] * values.abs()).sqrt()[:, :, None] * vectors.mT, _sign(values)
    if not fewest:
        return root.mT * weights.sqrt()[:, None, None], None
    rows = torch.linalg.qr(root.mT).R * weights.sqrt()[:, None, None]
    sizes = rows.abs().amax(2)
    used = (sizes > _NEGLIGIBLE_ROW * sizes.amax(1, keepdim=True)).any(0)
    return rows[:, used | (torch.arange(len(used), device=used.device) == 0)], None


def _full_rows(rows: Tensor, signs: Tensor | None, functional: Tensor) -> tuple[Tensor, Tensor]:
    """The signed rows of Gauss-Newton plus functional part, by eigenvectors of each sample's sum."""
    flat = rows.flatten(2)
    scaled = flat if signs is None else flat * signs[:, :, None]
    values, vectors = torch.linalg.eigh(flat.mT @ scaled + functional)
    kept = (values.abs() > _NEGLIGIBLE * values.abs().amax(1, keepdim=True)).any(0)
    full = (values[:, kept].abs().sqrt()[:, :, None] * vectors.mT[:, kept]).reshape(len(rows), -1, *rows.shape[2:])
    return full, _sign(values[:, kept])


def _sign(values: Tensor) -> Tensor:
    return torch.where(values < 0, -1.0, 1.0).to(values.dtype)


def samples_at_once(problem: Problem, layer: Layer, curvature: Curvature = "gauss_newton") -> int:
    """Samples whose pull-backs (a rough count of 4 copies per output) and rows stay inside half the budget."""
    width = _activation_size(problem)
    outputs = layer.num_positions * layer.num_outputs
    directions = problem.output_dim if curvature == "gauss_newton" else outputs
    per_sample = 8 * (directions * (4 * width + 3 * outputs) + layer.num_positions * layer.num_inputs)
    return max(1, min(problem.num_samples, problem.memory_budget // (2 * per_sample)))


def _activation_size(problem: Problem) -> int:
    """Entries that leave the layers of a forward pass of one sample, and its input."""
    leaving: int = sum(call.leaving.numel() for _, call in calls_of_one_sample(problem))
    size: int = problem.inputs[0].numel() + leaving
    return size
