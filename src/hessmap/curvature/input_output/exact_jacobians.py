"""Input-output Jacobians over GF(P): of this network, at these points, without rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hessmap.curvature.finite_field.chain import Chain, Floats, in_field
from hessmap.curvature.finite_field.evaluation import Evaluation, evaluate
from hessmap.curvature.finite_field.field_array import FieldArray, from_floats, identity
from hessmap.curvature.finite_field.float_evaluation import float_outputs
from hessmap.curvature.finite_field.layer_maps import pulled
from hessmap.curvature.finite_field.model_reading import read_chain
from hessmap.curvature.finite_field.prime_field import PrimeField
from hessmap.curvature.finite_field.selection import Selection
from hessmap.curvature.finite_field.signs import signs
from hessmap.curvature.input_output.network_function import NetworkFunction
from hessmap.curvature.layout import Layout
from hessmap.errors import UnsupportedNetwork, sentence

_AGREEMENT = 1e-8


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
        rows = pulled(last, identity(last.weights.field, last.num_outputs))
        for layer, slope in zip(reversed(self.chain.layers[:-1]), reversed(point.slopes), strict=True):
            if isinstance(slope, Selection):
                rows = Selection(np.repeat(slope.choices, len(rows), axis=0), slope.num_units).given_back(rows)
            elif slope is not None:
                rows = slope * rows
            rows = pulled(layer, rows)
        return rows


def exact_function(function: NetworkFunction, field: PrimeField) -> ExactFunction:
    """The function in the field, or a refusal that says what to use instead."""
    chain = read_chain(function.model, Layout(()), tuple(function.inputs.shape[1:]))
    inputs = function.inputs.numpy().reshape(function.num_samples, -1)
    _check_reading(function, chain, inputs)
    found = signs(chain, inputs)
    exact = in_field(chain, field)
    return ExactFunction(exact, evaluate(exact, from_floats(field, inputs), found.patterns), found.num_ties)


def _check_reading(function: NetworkFunction, chain: Chain[Floats], inputs: Floats) -> None:
    expected = function.outputs(function.inputs).numpy()
    found = float_outputs(chain, inputs)
    atol = _AGREEMENT * float(np.abs(expected).max())
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=_AGREEMENT, atol=atol):
        must = "the model must compute what its layers, applied one after another, compute"
        remedy = "Remove forward hooks, or use function_rank without a certificate"
        raise UnsupportedNetwork(sentence(must, "its outputs differ from theirs", remedy))
