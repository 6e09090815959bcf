"""Convolutions as matrices: what a layer does to flattened inputs, and how its weights enter."""

from hessmap_research.toeplitz.layer import WITH_MATRIX, ToeplitzLayer, toeplitz_layer

__all__ = ["WITH_MATRIX", "ToeplitzLayer", "toeplitz_layer"]
