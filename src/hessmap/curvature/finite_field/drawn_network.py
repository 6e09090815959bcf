"""The generic network of an architecture: weights drawn from the field. A new architecture registers itself here."""

from __future__ import annotations

from functools import singledispatch
from itertools import pairwise

import numpy as np

from hessmap.curvature.finite_field.chain import Affine, Chain, ExactActivation, Identity
from hessmap.curvature.finite_field.field_array import FieldArray, drawn
from hessmap.curvature.finite_field.prime_field import PrimeField
from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.networks import Activation, FullyConnected, Polynomial


@singledispatch
def drawn_network(architecture: object, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    """A chain of the architecture with independent uniform weights, positions in the order of its parameters."""
    raise UnsupportedNetwork(
        sentence(
            "generic_rank needs an architecture such as FullyConnected",
            f"got {type(architecture).__name__}",
            "Describe a model with hessmap.networks.describe, or use certified_rank on a Problem",
        )
    )


@drawn_network.register
def _fully_connected(
    architecture: FullyConnected, field: PrimeField, generator: np.random.Generator
) -> Chain[FieldArray]:
    activation = _exact_activation(architecture.activation)
    layers = []
    start = 0
    for before, after in pairwise(architecture.widths):
        weights = np.arange(start, start + before * after).reshape(after, before)
        start += before * after
        biases = np.arange(start, start + after * architecture.bias).reshape(after, int(architecture.bias))
        start += biases.size
        positions = np.concatenate([weights, biases], axis=1)
        layers.append(Affine(drawn(field, generator, *positions.shape), positions, architecture.bias))
    return Chain(tuple(layers), (activation,) * (len(layers) - 1), start)


def _exact_activation(activation: Activation) -> ExactActivation:
    if activation == "identity":
        return Identity()
    if isinstance(activation, Polynomial):
        return activation
    piecewise = activation in ("relu", "leaky_relu")
    raise UnsupportedNetwork(
        sentence(
            "the generic rank of an architecture needs a linear or polynomial activation",
            f"'{activation}' "
            + ("has a rank that changes with the data's pattern" if piecewise else "is no polynomial"),
            "Use certified_rank on a Problem with drawn weights and data"
            if piecewise
            else "Use numerical_rank on a Problem with drawn weights and data",
        )
    )
