"""Layer by layer: the two factors of a layer, their Kronecker product, and the layer's true Hessian."""

from hessmap.curvature.layers.factors import PATCH_RULES, LayerFactors, PatchRule, layer_factors
from hessmap.curvature.layers.hessian import LayerHessian, LayerPlan, layer_hessian, plan_layer_hessian
from hessmap.curvature.layers.kronecker import (
    FactorPairs,
    KroneckerProduct,
    kronecker_approximation,
    product_of_factors,
)
from hessmap.curvature.layers.watch import Layer, find_layer, layer_names

__all__ = [
    "PATCH_RULES",
    "FactorPairs",
    "KroneckerProduct",
    "Layer",
    "LayerFactors",
    "LayerHessian",
    "LayerPlan",
    "PatchRule",
    "find_layer",
    "kronecker_approximation",
    "layer_factors",
    "layer_hessian",
    "layer_names",
    "plan_layer_hessian",
    "product_of_factors",
]
