"""A chain in float64, to rounding."""

from __future__ import annotations

import numpy as np

from hessmap.curvature.finite_field.chain import Chain, Floats, LeakyRelu, MaxPool
from hessmap.curvature.finite_field.layer_maps import applied, seen
from hessmap.networks import Polynomial


def float_outputs(chain: Chain[Floats], inputs: Floats) -> Floats:
    """The outputs (num_samples, output_dim) of inputs (num_samples, input_dim)."""
    values = inputs
    for place, layer in enumerate(chain.layers):
        values = applied(layer.weights, seen(layer, values)) / layer.divisor
        activation = chain.activations[place] if place < len(chain.activations) else None
        if isinstance(activation, LeakyRelu):
            values = np.where(values > 0, values, activation.slope * values)
        elif isinstance(activation, Polynomial):
            values = np.polynomial.polynomial.polyval(values, np.array(activation.coefficients))
        elif isinstance(activation, MaxPool):
            values = np.where(activation.windows >= 0, values[:, activation.windows], -np.inf).max(axis=2)
    return values
