"""A layer seen along some directions of its outputs and inputs."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from hessmap.curvature.layers.layer import Layer
from hessmap.curvature.recording import LayerUse, ParameterPart


def restricted_layer(layer: Layer, outputs: Tensor, inputs: Tensor) -> Layer:
    """The layer restricted to some directions of its outputs and inputs: a linear one over as many positions."""
    number, use = layer.uses[0]
    sizes = outputs.shape[1], inputs.shape[1]
    restricted = LayerUse(
        "linear",
        "restricted",
        use.parameters,
        ParameterPart(layer.weight),
        None,
        sizes,
        num_inputs=sizes[1],
        num_outputs=sizes[0],
        num_positions=layer.num_positions,
        input_size=layer.num_positions * sizes[1],
    )
    return replace(
        layer,
        kind="linear",
        num_outputs=sizes[0],
        num_inputs=sizes[1],
        uses=((number, restricted),),
        is_transposed=False,
        with_bias=False,
    )
