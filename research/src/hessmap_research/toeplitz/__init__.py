"""Convolutions as matrices: what a layer does to flattened inputs, and how its weights enter."""

from hessmap_research.toeplitz.layer import ToeplitzLayer
from hessmap_research.toeplitz.of_module import WITH_MATRIX, toeplitz_layer

__all__ = ["WITH_MATRIX", "ToeplitzLayer", "toeplitz_layer"]
