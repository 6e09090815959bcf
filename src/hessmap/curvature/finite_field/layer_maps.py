"""The patches of its inputs that an affine layer meets, and what it does to them, to tangents and to gradients.

All arrays have the samples first (length one where all samples agree). The numbers may be float64, exact integers or
elements of the field: only ``@``, indexing and reshaping are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hessmap.curvature.finite_field.chain import Affine
from hessmap.curvature.finite_field.field_array import FieldArray, Height, sums_by_place


def layer_patches(layer: Affine[Any], values: NDArray[Any], one: object = 1) -> NDArray[Any]:
    """The patches, (num_samples, groups, places, taps, ..), of values (num_samples, num_inputs, ..).

    ``one`` is what the bias meets: one, or zero where the values are tangents.
    """
    if layer.patches is None and not layer.has_bias:
        return values[:, None, None]
    constants = np.empty((len(values), 2, *values.shape[2:]), dtype=values.dtype)
    constants[:, 0], constants[:, 1] = 0, one
    extended: NDArray[Any] = np.concatenate([values, constants], axis=1)[:, layer.sources]
    return extended


def field_patches(layer: Affine[FieldArray], values: FieldArray) -> FieldArray:
    height = Height.largest((values.height, Height())) if layer.has_bias else values.height
    return FieldArray(values.field, layer_patches(layer, values.residues), height)


def tangent_patches(layer: Affine[FieldArray], tangents: FieldArray) -> FieldArray:
    """The same for tangents (num_samples, num_inputs, num_directions): those of constants are zero."""
    return FieldArray(tangents.field, layer_patches(layer, tangents.residues, one=0), tangents.height)


def layer_outputs(weights: Any, patches: Any) -> Any:
    """weights @ patches: outputs (num_samples, num_outputs) from (num_samples, groups, places, taps)."""
    num_samples, groups, places, taps = patches.shape
    if groups == places == 1:
        return patches[:, 0, 0] @ weights.mT
    rows = patches.transpose(1, 0, 2, 3).reshape(groups, num_samples * places, taps)
    outputs = rows @ weights.reshape(groups, -1, taps).mT
    return outputs.reshape(groups, num_samples, places, -1).transpose(1, 0, 3, 2).reshape(num_samples, -1)


def output_tangents(layer: Affine[FieldArray], tangents: FieldArray) -> FieldArray:
    """Tangents of the outputs, (num_samples, num_outputs, num_directions), from those of the patches."""
    num_samples, groups, places, taps, directions = tangents.shape
    if groups == places == 1:
        return layer.weights @ tangents[:, 0, 0]
    columns = tangents.transpose(1, 3, 0, 2, 4).reshape(groups, taps, num_samples * places * directions)
    outputs = layer.weights.reshape(groups, -1, taps) @ columns
    outputs = outputs.reshape(groups, -1, num_samples, places, directions)
    return outputs.transpose(2, 0, 1, 3, 4).reshape(num_samples, layer.num_outputs, directions)


def gradients_by_inputs(layer: Affine[FieldArray], gradients: FieldArray) -> FieldArray:
    """The gradient by the inputs, (num_samples, num_inputs), from that by the outputs."""
    if layer.patches is None:
        return gradients @ layer.weights[:, : layer.num_inputs]
    groups, places, taps = layer.sources.shape
    columns = gradients.reshape(len(gradients), groups, -1, places)
    each = layer.weights.reshape(groups, -1, taps).mT @ columns  # (num_samples, groups, taps, places)
    rows = each.transpose(1, 3, 2, 0).reshape(groups * places * taps, len(gradients))
    return sums_by_place(rows, layer.sources.ravel(), layer.num_inputs + 2)[: layer.num_inputs].mT


def weight_jacobian(layer: Affine[FieldArray], patches: FieldArray) -> FieldArray:
    """d outputs / d weights, (num_samples, num_outputs, num_weights), both row by row."""
    num_samples, groups, places, taps = patches.shape
    rows = layer.weights.shape[0]
    residues = np.zeros((num_samples, rows, places, rows, taps), dtype=np.int64)
    group_of = np.arange(rows) * groups // rows
    residues[:, np.arange(rows), :, np.arange(rows)] = patches.residues[:, group_of].transpose(1, 0, 2, 3)
    return FieldArray(patches.field, residues, patches.height).reshape(num_samples, rows * places, rows * taps)
