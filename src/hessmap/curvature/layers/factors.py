"""The two factors of a layer: the second moment of its inputs and the mean second derivative in its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from hessmap.curvature.layers.batches import Curvature, LayerBatch, layer_batches
from hessmap.curvature.layers.road import needed_curvature
from hessmap.curvature.layers.watch import Layer, find_layer
from hessmap.curvature.problem import Problem
from hessmap.errors import unknown_name

PatchRule = Literal["uncorrelated_patches", "mean_patch"]
PATCH_RULES: tuple[PatchRule, ...] = get_args(PatchRule)


@dataclass(frozen=True, eq=False)
class LayerFactors:
    """E[x x^T] and E[M] of a layer, where H = E[M (x) x x^T]; float64 tensors.

    ``input_factor`` (inputs x inputs) and ``output_factor`` (outputs x outputs) multiply to an approximation of the
    layer Hessian. ``mean_input`` is E[x]; for a convolution ``mean_patches`` (positions x inputs) is the mean of every
    patch, and ``mean_input`` their mean.
    """

    layer: Layer
    patch_rule: PatchRule
    curvature: Curvature
    input_factor: Tensor
    output_factor: Tensor
    mean_patches: Tensor
    num_samples: int

    @property
    def mean_input(self) -> Tensor:
        return self.mean_patches.mean(0)


def layer_factors(
    problem: Problem, name: str, *, with_bias: bool = False, patch_rule: PatchRule = "uncorrelated_patches"
) -> LayerFactors:
    """The factors of the layer of that name (as in ``model.named_modules()``).

    M is the second derivative of the loss in the layer's outputs: G^T A G behind piecewise-linear maps, the full one
    otherwise. ``with_bias`` extends the input by a one, so that the factors are those of [W, b].

    Where a sample passes the weight at P positions (convolutions, tokens), two rules are known:

    "uncorrelated_patches": E[sum_p x_p x_p^T] and (1/P) E[sum_p M_pp], the normalisation of Grosse & Martens (2016)
        and equation 35 of Wu et al. (2020, "Dissecting Hessian"). Its equation 33 needs rows ordered (class, position)
        by channel; a plain reshape of its N mixes positions with channels.
    "mean_patch": E[xbar xbar^T] and E[sum_pq M_pq], xbar the mean patch: the derivatives of all positions together.
    """
    if patch_rule not in PATCH_RULES:
        raise unknown_name("patch_rule", patch_rule, PATCH_RULES)
    layer = find_layer(problem, name, with_bias)
    curvature = needed_curvature(problem, layer).curvature
    sums = FactorSums(problem, layer, patch_rule)
    for batch in layer_batches(problem, layer, curvature):
        sums.add(batch)
    return sums.finished(curvature)


class FactorSums:
    """Both factors of a layer, summed batch by batch."""

    def __init__(self, problem: Problem, layer: Layer, patch_rule: PatchRule) -> None:
        outputs, inputs = layer.weight_shape
        self.layer = layer
        self.patch_rule = patch_rule
        self.num_samples = problem.num_samples
        self.mass = float(problem.weights.sum())
        self.input_factor = torch.zeros(inputs, inputs, dtype=torch.float64)
        self.output_factor = torch.zeros(outputs, outputs, dtype=torch.float64)
        self.mean_patches = torch.zeros(layer.num_positions, inputs, dtype=torch.float64)

    def add(self, batch: LayerBatch) -> None:
        weights, patches = batch.weights / self.mass, batch.inputs
        self.mean_patches += torch.einsum("n,npa->pa", weights, patches)
        self.input_factor += _input_moment(patches, weights, self.patch_rule)
        self.output_factor += _output_moment(batch, self.patch_rule)

    def finished(self, curvature: Curvature) -> LayerFactors:
        return LayerFactors(
            self.layer,
            self.patch_rule,
            curvature,
            (self.input_factor + self.input_factor.T) / 2,
            (self.output_factor + self.output_factor.T) / 2,
            self.mean_patches,
            self.num_samples,
        )


def _input_moment(patches: Tensor, weights: Tensor, patch_rule: PatchRule) -> Tensor:
    rows = patches.mean(1, keepdim=True) if patch_rule == "mean_patch" else patches
    return rows.flatten(0, 1).T @ (weights[:, None, None] * rows).flatten(0, 1)


def _output_moment(batch: LayerBatch, patch_rule: PatchRule) -> Tensor:
    rows = batch.rows.sum(2, keepdim=True) if patch_rule == "mean_patch" else batch.rows
    share = 1.0 if patch_rule == "mean_patch" else 1.0 / rows.shape[2]
    return share * rows.flatten(0, 2).T @ batch.signed(rows).flatten(0, 2)
