"""A layer on its samples: what enters it, and the second derivative of the loss in what leaves it.

For one sample with patches x_p and outputs z_p = W x_p,

    d2 loss / dW2 = sum_pq M_pq (x) x_p x_q^T,    M = d2 loss / dz2 = G^T A G + sum_c (dloss/dout_c) d2 out_c / dz2

with G = dout/dz and A = d2 loss / dout2. Behind piecewise-linear maps (ReLU, max-pooling, frozen batch-norm) the last
term is zero and M has the rank of A; it is held as signed rows, M = rows^T diag(signs) rows, in both cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hessmap.layers.layer import Layer, layer_inputs_and_outputs
from hessmap.losses import output_roots, signs_of
from hessmap.problem import Batch, Inputs, Problem, num_rows, recording_of, tensors_with_paths, vjp_rows

Curvature = Literal["gauss_newton", "full"]
_NEGLIGIBLE = 1e-15  # of the curvature of a sample: below its rounding


@dataclass(frozen=True)
class LayerBatch:
    """Some samples of a layer: what entered, (samples, input_size), and rows of M, (samples, rank, positions, outputs);
    a layer that is not plain has (samples, rank, 1, output_size) instead.

    The rows hold the samples' weights; ``signs`` (samples, rank) is None where all are plus one.
    """

    layer: Layer
    entering: Tensor
    weights: Tensor
    rows: Tensor
    signs: Tensor | None

    @property
    def inputs(self) -> Tensor:
        """What the weight of a plain layer multiplies, shape (samples, positions, inputs)."""
        return self.layer.unfolded_inputs(self.entering)

    def signed_values(self, values: Tensor) -> Tensor:
        """Values (samples, rank, ..) times the signs."""
        if self.signs is None:
            return values
        return values * self.signs.reshape(*self.signs.shape, *[1] * (values.ndim - 2))


def layer_batches(problem: Problem, layer: Layer, curvature: Curvature) -> Iterator[LayerBatch]:
    """The data in order, as many samples at a time as the memory budget allows."""
    for batch in problem.batches(samples_at_once(problem, layer, curvature)):
        yield layer_batch(problem, layer, curvature, batch)


@dataclass(frozen=True)
class LayerJacobian:
    """Some samples: the network's outputs, what entered a layer, and the Jacobian of the outputs in what left the
    layer, (samples, output_dim, output_size)."""

    outputs: Tensor
    entering: Tensor
    jacobian: Tensor


def layer_jacobian(problem: Problem, layer: Layer, inputs: Inputs) -> LayerJacobian:
    """One vector-Jacobian product per output of the network."""
    outputs, entering, perturbation = perturbed_outputs(problem, layer, inputs)
    basis = torch.eye(outputs.shape[1], dtype=outputs.dtype)[:, None].expand(-1, len(outputs), -1)
    (jacobian,) = vjp_rows([outputs], [perturbation], [basis], together=True, problem=problem)
    return LayerJacobian(outputs.detach(), entering.detach(), jacobian.transpose(0, 1))


@torch.inference_mode(False)
@torch.no_grad()
def layer_batch(problem: Problem, layer: Layer, curvature: Curvature, batch: Batch) -> LayerBatch:
    """What a layer sees of a batch."""
    inputs, targets, weights = batch
    found = layer_jacobian(problem, layer, inputs)
    roots, signs = output_roots(problem.loss, found.outputs, targets, weights)
    rows = roots @ found.jacobian
    if curvature == "full":
        residual = (weights[:, None] * problem.loss.gradient(found.outputs, targets)).to(rows.dtype)
        rows, signs = _full_rows(rows, signs, _functional(problem, layer, inputs, residual))
    shape = (layer.num_positions, layer.num_outputs) if layer.is_plain else (1, layer.output_size)
    return LayerBatch(layer, found.entering, weights, rows.reshape(*rows.shape[:2], *shape).contiguous(), signs)


@torch.enable_grad()
def perturbed_outputs(problem: Problem, layer: Layer, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, what entered the layer, and the perturbation of what left it that the outputs are a function of."""
    perturbation = problem.parameters.new_zeros(num_rows(inputs), layer.output_size).requires_grad_()
    return (*layer_inputs_and_outputs(problem, layer, inputs, perturbation), perturbation)


def _functional(problem: Problem, layer: Layer, inputs: Inputs, residual: Tensor) -> Tensor:
    """sum_c residual_c d2 out_c / dz2, shape (samples, output_size, output_size).

    Reverse mode alone, which all modules have.
    """
    outputs, _, perturbation = perturbed_outputs(problem, layer, inputs)
    slope = functional_slope(outputs, perturbation, residual)
    basis = torch.eye(layer.output_size, dtype=slope.dtype)[:, None].expand(-1, *slope.shape)
    found = vjp_rows([slope], [perturbation], [basis], together=True, problem=problem)[0].transpose(0, 1)
    return (found + found.mT) / 2


@torch.enable_grad()
def functional_slope(outputs: Tensor, perturbation: Tensor, residual: Tensor) -> Tensor:
    """sum_c residual_c dout_c / dz, to be differentiated again with the residual as it is."""
    (slope,) = torch.autograd.grad(outputs, [perturbation], residual, create_graph=True, materialize_grads=True)
    return slope


def _full_rows(rows: Tensor, signs: Tensor | None, functional: Tensor) -> tuple[Tensor, Tensor]:
    """The signed rows of Gauss-Newton plus functional part, by eigenvectors of each sample's sum."""
    scaled = rows if signs is None else rows * signs[:, :, None]
    values, vectors = torch.linalg.eigh(rows.mT @ scaled + functional)
    kept = (values.abs() > _NEGLIGIBLE * values.abs().amax(1, keepdim=True)).any(0)
    full = values[:, kept].abs().sqrt()[:, :, None] * vectors.mT[:, kept]
    return full, signs_of(values[:, kept])


def samples_at_once(problem: Problem, layer: Layer, curvature: Curvature = "gauss_newton") -> int:
    """Samples whose Jacobians (a rough count of 4 copies per output) and rows stay inside half the budget."""
    width, outputs = activation_size(problem), layer.output_size
    directions = problem.output_dim if curvature == "gauss_newton" else outputs
    per_sample = problem.dtype.itemsize * (
        directions * (4 * width + 3 * outputs) + layer.num_positions * layer.num_inputs
    )
    return max(1, min(problem.num_samples, problem.working_bytes // (2 * per_sample)))


def activation_size(problem: Problem) -> int:
    """Entries that leave the layers of a forward pass of one sample, and its input."""
    first = problem.samples.first[0]
    entering = sum(tensor[0].numel() for _, tensor in tensors_with_paths(first))
    return entering + sum(use.num_positions * use.num_outputs for use in recording_of(problem).uses)
