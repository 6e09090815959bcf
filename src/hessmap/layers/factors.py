"""The two Kronecker factors of a layer: second moment of its inputs, mean second derivative in its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from hessmap.errors import require_name
from hessmap.layers.batches import Curvature, LayerBatch, layer_batches
from hessmap.layers.curvature_choice import choose_curvature
from hessmap.layers.layer import Layer, find_layer
from hessmap.linalg import to_host, widest_dtype
from hessmap.problem import LayerUse, Problem

PatchRule = Literal["uncorrelated_patches", "mean_patch"]
PATCH_RULES: tuple[PatchRule, ...] = get_args(PatchRule)


@dataclass(frozen=True, eq=False)
class LayerFactors:
    """E[x x^T] and E[M] of a layer, where H = E[M (x) x x^T].

    Attributes:
        layer: The layer.
        patch_rule: How positions are combined, see ``layer_factors``.
        curvature: "gauss_newton" or "full": which second derivative M is.
        input_factor: E[x x^T], (inputs, inputs), float64 on the host.
        output_factor: E[M], (outputs, outputs), float64 on the host.
        mean_patches: Mean patch at each position, (positions, inputs), float64 on the host.
        num_samples: Number of samples that were averaged.
    """

    layer: Layer
    patch_rule: PatchRule
    curvature: Curvature
    input_factor: Tensor
    output_factor: Tensor
    mean_patches: Tensor
    num_samples: int

    def __repr__(self) -> str:
        sizes = f"input {len(self.input_factor)}, output {len(self.output_factor)}"
        return f"LayerFactors({self.layer.name!r}, {self.curvature}; {sizes}; {self.num_samples} samples)"

    @property
    def mean_input(self) -> Tensor:
        """E[x], the mean of ``mean_patches`` over positions."""
        return self.mean_patches.mean(0)


def layer_factors(
    problem: Problem, name: str, *, with_bias: bool = False, patch_rule: PatchRule = "uncorrelated_patches"
) -> LayerFactors:
    """Compute the Kronecker factors E[x x^T] and E[M] of a layer.

    Args:
        problem: Problem that the layer belongs to.
        name: Name of the layer, as in ``model.named_modules()``.
        with_bias: Extend the input by a one, so that the factors are those of [W, b]. Defaults to False.
        patch_rule: How the P positions of a sample (convolutions, tokens) are combined. Defaults to
            "uncorrelated_patches": E[sum_p x_p x_p^T] and (1/P) E[sum_p M_pp], the normalisation of Grosse & Martens
            (2016) and equation 35 of Wu et al. (2022, "Dissecting Hessian"). "mean_patch": E[xbar xbar^T] and
            E[sum_pq M_pq], where xbar is the mean patch: the derivatives of all positions together.

    Returns:
        LayerFactors: both factors and the mean patches.

    Raises:
        InvalidInput: If there is no such layer or rule.
        UnsupportedNetwork: If the layer's structure is not supported, or differs from autograd.

    Notes:
        M is the second derivative of the loss in the layer's outputs: G^T A G if all operations after the layer are
        piecewise linear, the full one otherwise. If groups of outputs have inputs of their own (grouped convolutions,
        scales of normalisations, projections of different tokens), the input factor is the mean over the groups.
        Equation 33 of Wu et al. needs rows ordered (class, position) by channel; a plain reshape of its N mixes
        positions with channels.

    Example:
        >>> import torch, hessmap as hm
        >>> model = hm.FullyConnected((3, 4, 2), activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,)))
        >>> factors = layer_factors(problem, "0")
        >>> factors.output_factor.shape, factors.input_factor.shape
        (torch.Size([4, 4]), torch.Size([3, 3]))
    """
    require_name("patch_rule", patch_rule, PATCH_RULES)
    layer = find_layer(problem, name, with_bias)
    curvature = choose_curvature(problem.local, layer).curvature
    sums = FactorSums(problem.local, layer, patch_rule)
    for batch in layer_batches(problem.local, layer, curvature):
        sums.add(batch)
    is_linear = problem.least(int(curvature == "gauss_newton"))  # of all processes: there, both derivatives are equal
    found = sums.factors("gauss_newton" if is_linear else "full")
    mean, mass = problem.mean_over_processes, sums.total_weight
    return replace(
        found,
        input_factor=mean(found.input_factor, mass),
        output_factor=mean(found.output_factor),
        mean_patches=mean(found.mean_patches, mass),
        num_samples=problem.num_samples,
    )


class FactorSums:
    """Both factors of a layer, accumulated batch by batch in float64."""

    def __init__(self, problem: Problem, layer: Layer, patch_rule: PatchRule) -> None:
        inputs = layer.num_inputs + layer.with_bias
        self.layer = layer
        self.patch_rule = patch_rule
        self.num_samples = problem.num_samples
        self.total_weight = float(problem.weights.sum())
        self.input_factor = torch.zeros(inputs, inputs, dtype=torch.float64)
        self.output_factor = torch.zeros(layer.num_outputs, layer.num_outputs, dtype=torch.float64)
        positions = layer.num_positions if layer.is_plain else 1
        self.mean_patches = torch.zeros(positions, inputs, dtype=torch.float64)

    def add(self, batch: LayerBatch) -> None:
        """Add a batch; its moments are formed on its device, the sums are on the host."""
        dtype = widest_dtype(batch.rows.device)
        weights = batch.weights.to(dtype) / self.total_weight
        if self.layer.is_plain:
            self._add(weights, batch.inputs.to(dtype), 1.0)
            self.output_factor += to_host(_output_moment(batch, batch.rows.to(dtype), self.patch_rule))
            return
        uses = list(self.layer.outputs_by_use(batch.rows[:, :, 0].to(dtype)))
        for (use, _), features in zip(uses, self.layer.features_by_use(batch.flat_inputs.to(dtype)), strict=True):
            for patches in features:
                ones = patches.new_ones(*patches.shape[:2], int(self.layer.with_bias))
                self._add(weights, torch.cat([patches, ones], 2), 1 / (len(uses) * use.num_groups))
        for rows in _rows_of_all_outputs(self.layer, uses):
            self.output_factor += to_host(_output_moment(batch, rows, self.patch_rule))

    def _add(self, weights: Tensor, patches: Tensor, share: float) -> None:
        """Add the moments of patches (samples, positions, inputs)."""
        means = share * torch.einsum("n,npa->pa", weights, patches)
        self.mean_patches += to_host(means if self.layer.is_plain else means.mean(0))
        self.input_factor += share * to_host(_input_moment(patches, weights, self.patch_rule))

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
    """Rows (samples, rank, positions, outputs) over all outputs of the layer.

    Uses with equal numbers of positions are combined, so that second derivatives in each other's outputs are included.
    """
    found: dict[int, Tensor] = {}
    for use, rows in uses:
        whole = found.setdefault(use.num_positions, rows.new_zeros(*rows.shape[:3], layer.num_outputs))
        whole[..., _output_numbers(layer, use)] += rows
    return list(found.values())


def _output_numbers(layer: Layer, use: LayerUse) -> Tensor:
    """Indices of the layer's outputs that a use computes."""
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
