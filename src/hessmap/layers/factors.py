"""The two factors of a layer: the second moment of its inputs and the mean second derivative in its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from hessmap.errors import require_name
from hessmap.layers.batches import Curvature, LayerBatch, layer_batches
from hessmap.layers.curvature_choice import needed_curvature
from hessmap.layers.layer import Layer, find_layer
from hessmap.problem import LayerUse, Problem

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
        and equation 35 of Wu et al. (2022, "Dissecting Hessian"). Its equation 33 needs rows ordered (class, position)
        by channel; a plain reshape of its N mixes positions with channels.
    "mean_patch": E[xbar xbar^T] and E[sum_pq M_pq], xbar the mean patch: the derivatives of all positions together.

    Where groups of outputs have inputs of their own (grouped convolutions, scales of normalisations, the projections of
    attention to different tokens), the input factor is the mean over the groups.

    >>> import torch, hessmap as hm
    >>> model = hm.FullyConnected((3, 4, 2), activation="relu").build(seed=0)
    >>> problem = hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,)))
    >>> factors = layer_factors(problem, "0")
    >>> factors.output_factor.shape, factors.input_factor.shape
    (torch.Size([4, 4]), torch.Size([3, 3]))
    """
    require_name("patch_rule", patch_rule, PATCH_RULES)
    layer = find_layer(problem, name, with_bias)
    curvature = needed_curvature(problem, layer).curvature
    sums = FactorSums(problem, layer, patch_rule)
    for batch in layer_batches(problem, layer, curvature):
        sums.add(batch)
    return sums.factors(curvature)


class FactorSums:
    """Both factors of a layer, summed batch by batch in float64."""

    def __init__(self, problem: Problem, layer: Layer, patch_rule: PatchRule) -> None:
        inputs = layer.num_inputs + layer.with_bias
        self.layer = layer
        self.patch_rule = patch_rule
        self.num_samples = problem.num_samples
        self.mass = float(problem.weights.sum())
        self.input_factor = torch.zeros(inputs, inputs, dtype=torch.float64)
        self.output_factor = torch.zeros(layer.num_outputs, layer.num_outputs, dtype=torch.float64)
        positions = layer.num_positions if layer.is_plain else 1
        self.mean_patches = torch.zeros(positions, inputs, dtype=torch.float64)

    def add(self, batch: LayerBatch) -> None:
        weights = batch.weights.double() / self.mass
        if self.layer.is_plain:
            self._add(weights, batch.inputs.double(), 1.0)
            self.output_factor += _output_moment(batch, batch.rows.double(), self.patch_rule)
            return
        uses = list(self.layer.outputs_by_use(batch.rows[:, :, 0].double()))
        for (use, _), features in zip(uses, self.layer.features_by_use(batch.entering.double()), strict=True):
            for patches in features:
                ones = patches.new_ones(*patches.shape[:2], int(self.layer.with_bias))
                self._add(weights, torch.cat([patches, ones], 2), 1 / (len(uses) * use.num_groups))
        for rows in _rows_of_all_outputs(self.layer, uses):
            self.output_factor += _output_moment(batch, rows, self.patch_rule)

    def _add(self, weights: Tensor, patches: Tensor, share: float) -> None:
        """Add the moments of what enters, (samples, positions, inputs)."""
        means = share * torch.einsum("n,npa->pa", weights, patches)
        self.mean_patches += means if self.layer.is_plain else means.mean(0)
        self.input_factor += share * _input_moment(patches, weights, self.patch_rule)

    def factors(self, curvature: Curvature) -> LayerFactors:
        return LayerFactors(
            self.layer,
            self.patch_rule,
            curvature,
            (self.input_factor + self.input_factor.T) / 2,
            (self.output_factor + self.output_factor.T) / 2,
            self.mean_patches,
            self.num_samples,
        )


def _rows_of_all_outputs(layer: Layer, uses: Sequence[tuple[LayerUse, Tensor]]) -> list[Tensor]:
    """Rows (samples, rank, positions, outputs) over all outputs of the layer: uses that have as many positions are
    taken together, so that their second derivatives in each other's outputs count."""
    found: dict[int, Tensor] = {}
    for use, rows in uses:
        whole = found.setdefault(use.num_positions, rows.new_zeros(*rows.shape[:3], layer.num_outputs))
        whole[..., _output_numbers(layer, use)] += rows
    return list(found.values())


def _output_numbers(layer: Layer, use: LayerUse) -> Tensor:
    """Which outputs of the layer a use has."""
    entries = use.weight_entries
    if entries is None:
        return torch.arange(layer.num_outputs)
    first = entries.view(use.num_outputs, -1)[:, 0]
    return first % layer.num_outputs if layer.is_transposed else first // layer.num_inputs


def _input_moment(patches: Tensor, weights: Tensor, patch_rule: PatchRule) -> Tensor:
    rows = patches.mean(1, keepdim=True) if patch_rule == "mean_patch" else patches
    return rows.flatten(0, 1).T @ (weights[:, None, None] * rows).flatten(0, 1)


def _output_moment(batch: LayerBatch, rows: Tensor, patch_rule: PatchRule) -> Tensor:
    share = 1.0 if patch_rule == "mean_patch" else 1.0 / rows.shape[2]
    rows = rows.sum(2, keepdim=True) if patch_rule == "mean_patch" else rows
    return share * rows.flatten(0, 2).T @ batch.signed_values(rows).flatten(0, 2)
