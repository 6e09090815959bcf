"""First derivatives inside a chain over GF(P): of every layer's inputs and outputs by every earlier layer's outputs."""

from __future__ import annotations

from dataclasses import dataclass

from hessmap.curvature.finite_field.chain import Chain
from hessmap.curvature.finite_field.evaluation import Evaluation
from hessmap.curvature.finite_field.field_array import FieldArray, identity, joined, zeros


@dataclass(frozen=True, eq=False)
class Jacobians:
    """By layers (later, earlier): ``outputs[j, l]`` = d z_j / d z_l for l <= j, ``inputs[j, l]`` = d a_j / d z_l for
    l < j (a zero row for the bias's one). The sample axis comes first, of length one where all samples agree."""

    outputs: dict[tuple[int, int], FieldArray]
    inputs: dict[tuple[int, int], FieldArray]


def jacobians(chain: Chain[FieldArray], evaluation: Evaluation) -> Jacobians:
    outputs: dict[tuple[int, int], FieldArray] = {}
    inputs: dict[tuple[int, int], FieldArray] = {}
    for later, layer in enumerate(chain.layers):
        width = layer.weights.shape[0]
        outputs[later, later] = identity(layer.weights.field, width)[None]
        for earlier in range(later):
            slopes = evaluation.slopes[later - 1]
            before = outputs[later - 1, earlier]
            change = before if slopes is None else slopes[:, :, None] * before
            if layer.has_bias:
                change = joined([change, zeros(change.field, len(change), 1, change.shape[2])], axis=1)
            inputs[later, earlier] = change
            outputs[later, earlier] = layer.weights @ change
    return Jacobians(outputs, inputs)
