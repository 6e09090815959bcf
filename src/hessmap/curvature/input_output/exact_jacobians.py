"""Input-output Jacobians over GF(P): of this network, at these points, without rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hessmap.curvature.finite_field.chain import Chain, in_field
from hessmap.curvature.finite_field.evaluation import Evaluation, Selection, evaluate, require_outputs
from hessmap.curvature.finite_field.field_array import FieldArray, from_floats, identity
from hessmap.curvature.finite_field.layer_maps import gradients_by_inputs
from hessmap.curvature.finite_field.model_reading import read_chain
from hessmap.curvature.finite_field.prime_field import PrimeField
from hessmap.curvature.finite_field.signs import signs
from hessmap.curvature.input_output.network_function import NetworkFunction
from hessmap.curvature.layout import Layout


@dataclass(frozen=True, eq=False)
class ExactFunction:
    """A network in the field with its evaluation at the points; ``num_ties`` are kinks that a point sits on."""

    chain: Chain[FieldArray]
    evaluation: Evaluation
    num_ties: int

    def jacobians(self) -> Iterator[FieldArray]:
        """(output_dim, input_dim) of one point after another: the identity, pulled back layer by layer."""
        for place in range(len(self.evaluation)):
            yield self._jacobian(self.evaluation[place : place + 1])

    def _jacobian(self, point: Evaluation) -> FieldArray:
        last = self.chain.layers[-1]
        rows = gradients_by_inputs(last, identity(last.weights.field, last.num_outputs))
        for layer, slope in zip(reversed(self.chain.layers[:-1]), reversed(point.slopes), strict=True):
            if isinstance(slope, Selection):
                rows = Selection(np.repeat(slope.choices, len(rows), axis=0), slope.num_units).backward(rows)
            elif slope is not None:
                rows = slope * rows
            rows = gradients_by_inputs(layer, rows)
        return rows


def exact_function(function: NetworkFunction, field: PrimeField) -> ExactFunction:
    """The function in the field, or a refusal that says what to use instead."""
    chain = read_chain(function.model, Layout(()), tuple(function.inputs.shape[1:]))
    inputs = function.inputs.numpy().reshape(function.num_samples, -1)
    expected = function.outputs(function.inputs).numpy()
    require_outputs(chain, inputs, expected, "Use function_rank without a certificate")
    found = signs(chain, inputs)
    exact = in_field(chain, field)
    return ExactFunction(exact, evaluate(exact, from_floats(field, inputs), found.patterns), found.num_ties)
