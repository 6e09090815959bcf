"""What a call is as a layer: what enters, what leaves, and which part of which parameter takes part in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hessmap.curvature.convolution_geometry import ConvolutionGeometry
from hessmap.curvature.recording.uses import Kind, ParameterPart

Parts = Callable[[Any], ParameterPart | None]


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A call that can be written as z = W a + b over rows.

    ``inputs`` are rows (.., features), for a convolution images (images, channels, ..), for an embedding numbers (..).
    ``outputs()`` gives rows (.., outputs), for a convolution (images, outputs, positions); ``returned`` brings them
    into the shape of the operation's own result.
    """

    kind: Kind
    operation: str
    weight: ParameterPart | None
    bias: ParameterPart | None
    weight_value: Tensor | None
    bias_value: Tensor | None
    inputs: Tensor
    outputs: Callable[[], Tensor]
    returned: Callable[[Tensor], Tensor]
    num_inputs: int
    num_outputs: int
    num_groups: int = 1
    transposed: bool = False
    geometry: ConvolutionGeometry | None = None
    padding_index: int | None = None
    fast_outputs: Callable[[], Tensor] | None = None  # the same by matrix products, for float64 on CPUs

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(part.name for part in (self.weight, self.bias) if part is not None)
