"""Input-output Jacobians over GF(P): of this network, at these points, without rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hessmap.exact import (
    Chain,
    Evaluation,
    FieldArray,
    Floats,
    LeakyRelu,
    Mask,
    MaxPool,
    PrimeField,
    Selection,
    Signs,
    evaluate,
    from_floats,
    gradients_by_inputs,
    identity,
    in_field,
    layer_outputs,
    layer_patches,
    read_chain,
    require_outputs,
    signs,
)
from hessmap.functions.network_function import NetworkFunction, points_beside
from hessmap.linalg import Layout


@dataclass(frozen=True, eq=False)
class ExactFunction:
    """A network over GF(P) with its evaluation at the points.

    Args:
        chain: Affine layers and activations with weights in the field.
        evaluation: Values and activation slopes at the points.
        num_ties: Number of units that are on a kink at the given points.
        is_moved: Points that were replaced by one beside them because a unit is on a kink there.
        is_on_kink: Points where a unit is on a kink even after that: what is computed there is not a derivative.
    """

    chain: Chain[FieldArray]
    evaluation: Evaluation
    num_ties: int
    is_moved: Mask
    is_on_kink: Mask

    def jacobians(self) -> Iterator[FieldArray]:
        """(output_dim, input_dim) of one point after another, by vector-Jacobian products with the identity."""
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


def exact_function(function: NetworkFunction, field: PrimeField, seed: int = 0) -> ExactFunction:
    """Evaluate a network over GF(P), without rounding.

    Args:
        function: The network and its points.
        field: The prime field.
        seed: Seed of the directions in which points on a kink are moved. Defaults to 0.

    Returns:
        ExactFunction: The network in the field, evaluated at the points.

    Raises:
        UnsupportedNetwork: If a layer has no exact form; the error names the layer and an alternative.
    """
    chain = read_chain(function.model, Layout(()), tuple(function.inputs.shape[1:]))
    inputs = function.inputs.numpy().reshape(function.num_samples, -1)
    expected = function.outputs(function.inputs).numpy()
    require_outputs(chain, inputs, expected, np.finfo(np.float64).eps, "Use function_rank without a certificate")
    found = signs(chain, inputs)
    num_ties, is_moved = found.num_ties, _kinked_points(chain, found, len(inputs))
    is_on_kink = is_moved
    if is_moved.any():
        inputs = np.where(is_moved[:, None], points_beside(function.inputs, seed).numpy().reshape(inputs.shape), inputs)
        found = signs(chain, inputs)
        is_on_kink = _kinked_points(chain, found, len(inputs))
    exact = in_field(chain, field)
    evaluation = evaluate(exact, from_floats(field, inputs), found.patterns)
    return ExactFunction(exact, evaluation, num_ties, is_moved, is_on_kink)


def _kinked_points(chain: Chain[Floats], found: Signs, num_samples: int) -> Mask:
    """The points around which the chain is not proved to be smooth: some unit sits on a kink and can leave it.

    A unit that sees nothing but constants (its weights are 0, or the units before it are off) stays where it is, and a
    tie among such units is no kink.
    """
    is_kinked = np.zeros(num_samples, dtype=np.bool_)
    depends = np.ones((num_samples, chain.input_dim), dtype=np.bool_)
    steps = zip(chain.layers, chain.activations, found.patterns, found.ties, strict=False)
    for layer, activation, pattern, tied in steps:
        terms = layer_patches(layer, depends.astype(np.float64), one=0)
        depends = layer_outputs((layer.weights != 0).astype(np.float64), terms) > 0
        if isinstance(activation, LeakyRelu):
            assert tied is not None
            is_kinked |= (tied & depends).any(axis=1)
            depends = depends & pattern if activation.slope == 0 else depends
        elif isinstance(activation, MaxPool):
            assert tied is not None
            assert pattern is not None
            is_kinked |= (tied & depends[:, activation.windows]).any(axis=(1, 2))
            depends = np.take_along_axis(depends, pattern.astype(np.int64), axis=1)
    return is_kinked
