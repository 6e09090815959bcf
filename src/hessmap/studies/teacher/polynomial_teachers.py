"""Two-layer polynomial networks with a bias where it is wanted, as the exact engine draws them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hessmap.curvature.finite_field.chain import Affine, Chain, Identity
from hessmap.curvature.finite_field.drawn_network import drawn_network
from hessmap.curvature.finite_field.field_array import FieldArray, random_array
from hessmap.curvature.finite_field.prime_field import PrimeField
from hessmap.networks import Polynomial


@dataclass(frozen=True)
class PolynomialTeacher:
    """sum_h v_h g(w_h . x + b_h) + c, the biases b and c only if asked for."""

    inputs: int
    hidden: int
    activation: Polynomial
    hidden_bias: bool
    output_bias: bool


@drawn_network.register
def _polynomial_teacher(
    network: PolynomialTeacher, field: PrimeField, generator: np.random.Generator
) -> Chain[FieldArray]:
    layers, start = [], 0
    shapes = ((network.hidden, network.inputs, network.hidden_bias), (1, network.hidden, network.output_bias))
    for after, before, has_bias in shapes:
        size = after * (before + has_bias)
        positions = np.arange(start, start + size).reshape(after, before + has_bias)
        layers.append(Affine(random_array(field, generator, *positions.shape), positions, has_bias))
        start += size
    activation = Identity() if network.activation == Polynomial((0, 1)) else network.activation
    return Chain(tuple(layers), (activation,), start)
