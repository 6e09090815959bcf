"""A layer on a batch of samples: its inputs, and the second derivative of the loss in its outputs.

For one sample with patches x_p and outputs z_p = W x_p,

    d2 loss / dW2 = sum_pq M_pq (x) x_p x_q^T,    M = d2 loss / dz2 = G^T A G + sum_c (dloss/dout_c) d2 out_c / dz2

with G = dout/dz and A = d2 loss / dout2. If all operations after the layer are piecewise linear (ReLU, max-pooling,
frozen batch norm) the last term is zero and M has the rank of A. In both cases M is stored as signed rows,
M = rows^T diag(signs) rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hessmap.layers.layer import Layer
from hessmap.linalg import full_precision, rows_that_fit
from hessmap.losses import output_roots, signs_of
from hessmap.problem import Batch, Inputs, Problem, num_rows, perturbed_pass, recording_of, tensors_with_paths, vjp_rows

Curvature = Literal["gauss_newton", "full"]
_NEGLIGIBLE = 1e-15  # of the curvature of a sample: below its rounding


@dataclass(frozen=True)
class LayerBatch:
    """A layer on some samples.

    Attributes:
        layer: The layer.
        flat_inputs: Inputs of the layer, (samples, input_size).
        weights: Sample weights, (samples,).
        rows: Rows of M, times the root of the sample's weight: (samples, rank, positions, outputs), or (samples, rank,
            1, output_size) for a layer that is not plain.
        signs: Signs of the rows, (samples, rank); None if all of them are positive.
    """

    layer: Layer
    flat_inputs: Tensor
    weights: Tensor
    rows: Tensor
    signs: Tensor | None

    @property
    def inputs(self) -> Tensor:
        """Vectors that the weight of a plain layer multiplies, (samples, positions, inputs)."""
        return self.layer.unfolded_inputs(self.flat_inputs)

    def signed_values(self, values: Tensor) -> Tensor:
        """Values (samples, rank, ..) times the signs."""
        if self.signs is None:
            return values
        return values * self.signs.reshape(*self.signs.shape, *[1] * (values.ndim - 2))


def layer_batches(problem: Problem, layer: Layer, curvature: Curvature) -> Iterator[LayerBatch]:
    """All samples in order, as many at a time as the memory budget allows."""
    for batch in problem.batches(samples_at_once(problem, layer, curvature)):
        yield layer_batch(problem, layer, curvature, batch)


@dataclass(frozen=True)
class LayerJacobian:
    """A layer and the network on some samples.

    Attributes:
        outputs: Outputs of the network, (samples, output_dim).
        flat_inputs: Inputs of the layer, (samples, input_size).
        jacobian: Jacobian of the network's outputs in the layer's outputs, (samples, output_dim, output_size).
    """

    outputs: Tensor
    flat_inputs: Tensor
    jacobian: Tensor


def layer_jacobian(problem: Problem, layer: Layer, inputs: Inputs) -> LayerJacobian:
    """One vector-Jacobian product per output of the network."""
    outputs, flat_inputs, perturbation = perturbed_outputs(problem, layer, inputs)
    basis = torch.eye(outputs.shape[1], dtype=outputs.dtype, device=outputs.device)[:, None].expand(
        -1, len(outputs), -1
    )
    (jacobian,) = vjp_rows([outputs], [perturbation], [basis], vectorised=True, problem=problem)
    return LayerJacobian(outputs.detach(), flat_inputs.detach(), jacobian.transpose(0, 1))


@torch.inference_mode(False)
@torch.no_grad()
def layer_batch(problem: Problem, layer: Layer, curvature: Curvature, batch: Batch) -> LayerBatch:
    """The layer's inputs on a batch, and signed rows of its output curvature."""
    inputs, targets, weights = batch
    found = layer_jacobian(problem, layer, inputs)
    roots, signs = output_roots(problem.loss, found.outputs, targets, weights)
    rows = roots @ found.jacobian
    if curvature == "full":
        residual = (weights[:, None] * problem.loss.gradient(found.outputs, targets)).to(rows.dtype)
        rows, signs = _full_rows(rows, signs, _functional(problem, layer, inputs, residual))
    shape = (layer.num_positions, layer.num_outputs) if layer.is_plain else (1, layer.output_size)
    return LayerBatch(layer, found.flat_inputs, weights, rows.reshape(*rows.shape[:2], *shape).contiguous(), signs)


@torch.enable_grad()
def perturbed_outputs(problem: Problem, layer: Layer, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs of the network, inputs of the layer, and the zero perturbation of the layer's outputs."""
    perturbation = problem.parameters.new_zeros(num_rows(inputs), layer.output_size).requires_grad_()
    by_use = (part.mT for _, part in layer.outputs_by_use(perturbation))
    parts = {number: part for (number, _), part in zip(layer.uses, by_use, strict=True)}
    outputs, flat_inputs = perturbed_pass(problem, inputs, parts)
    return outputs, torch.cat(flat_inputs, 1), perturbation


def _functional(problem: Problem, layer: Layer, inputs: Inputs, residual: Tensor) -> Tensor:
    """sum_c residual_c d2 out_c / dz2, shape (samples, output_size, output_size).

    Reverse mode alone, which all modules have.
    """
    outputs, _, perturbation = perturbed_outputs(problem, layer, inputs)
    gradient = functional_gradient(outputs, perturbation, residual)
    basis = torch.eye(layer.output_size, dtype=gradient.dtype, device=gradient.device)[:, None].expand(
        -1, *gradient.shape
    )
    found = vjp_rows([gradient], [perturbation], [basis], vectorised=True, problem=problem)[0].transpose(0, 1)
    return (found + found.mT) / 2


@torch.enable_grad()
def functional_gradient(outputs: Tensor, perturbation: Tensor, residual: Tensor) -> Tensor:
    """sum_c residual_c dout_c / dz with its graph; the residual is a constant."""
    with full_precision(outputs.device):
        (gradient,) = torch.autograd.grad(outputs, [perturbation], residual, create_graph=True, materialize_grads=True)
    return gradient


def _full_rows(rows: Tensor, signs: Tensor | None, functional: Tensor) -> tuple[Tensor, Tensor]:
    """Signed rows of Gauss-Newton plus functional part, from an eigendecomposition per sample."""
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
    return rows_that_fit(problem.working_bytes // 2, per_sample, problem.num_samples)


def activation_size(problem: Problem) -> int:
    """Number of layer outputs in a forward pass of one sample, plus the size of its input."""
    first = problem.samples.first[0]
    flat_inputs = sum(tensor[0].numel() for _, tensor in tensors_with_paths(first))
    return flat_inputs + sum(use.num_positions * use.num_outputs for use in recording_of(problem).uses)
