"""First derivatives inside a chain over GF(P): of the patches and outputs of every layer by every earlier one.

A layer that takes all its inputs at once is perturbed by its outputs, one direction each. A layer that takes many
patches of them has far more outputs than weights, and is perturbed by its weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from hessmap.curvature.finite_field.chain import Chain
from hessmap.curvature.finite_field.evaluation import Evaluation, Selection, Slope
from hessmap.curvature.finite_field.field_array import FieldArray, identity
from hessmap.curvature.finite_field.layer_maps import (
    gradients_by_inputs,
    output_tangents,
    tangent_patches,
    weight_jacobian,
)


@dataclass(frozen=True, eq=False)
class Jacobians:
    """By layers (later, earlier), with e_l the perturbation of layer l: ``outputs[j, l]`` = d z_j / d e_l for l <= j,
    ``patches[j, l]`` = d patches of j / d e_l for l < j; ``gradients[l]`` = d loss / d z_l, ``input_gradients[l]`` =
    d loss / d inputs of l. The sample axis comes first, of length one where all samples agree; layers without
    parameters are not perturbed."""

    outputs: dict[tuple[int, int], FieldArray]
    patches: dict[tuple[int, int], FieldArray]
    gradients: list[FieldArray]
    input_gradients: list[FieldArray]


def jacobians(chain: Chain[FieldArray], evaluation: Evaluation, residuals: FieldArray) -> Jacobians:
    outputs: dict[tuple[int, int], FieldArray] = {}
    patches: dict[tuple[int, int], FieldArray] = {}
    perturbed: list[int] = []
    for later, layer in enumerate(chain.layers):
        for earlier in perturbed:
            tangents = _activation_tangents(evaluation.slopes[later - 1], outputs[later - 1, earlier])
            patches[later, earlier] = tangent_patches(layer, tangents)
            outputs[later, earlier] = output_tangents(layer, patches[later, earlier])
        if layer.has_parameters:
            perturbed.append(later)
            is_dense = layer.patches is None
            outputs[later, later] = (
                identity(residuals.field, layer.num_outputs)[None]
                if is_dense
                else weight_jacobian(layer, evaluation.patches[later])
            )
    return Jacobians(outputs, patches, *_gradients(chain, evaluation, residuals))


def _activation_tangents(slope: Slope, tangents: FieldArray) -> FieldArray:
    if isinstance(slope, Selection):
        return slope.forward(tangents)
    return tangents if slope is None else slope[:, :, None] * tangents


def _gradients(
    chain: Chain[FieldArray], evaluation: Evaluation, residuals: FieldArray
) -> tuple[list[FieldArray], list[FieldArray]]:
    """The backward pass: by the outputs and by the inputs of every layer."""
    gradients, input_gradients = [residuals], [gradients_by_inputs(chain.layers[-1], residuals)]
    for layer, slope in zip(reversed(chain.layers[:-1]), reversed(evaluation.slopes), strict=True):
        before = input_gradients[0]
        if isinstance(slope, Selection):
            before = slope.backward(before)
        elif slope is not None:
            before = slope * before
        gradients.insert(0, before)
        input_gradients.insert(0, gradients_by_inputs(layer, before))
    return gradients, input_gradients
