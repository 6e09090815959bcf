"""Layer by layer: the two factors of a layer, their Kronecker product, and the layer's true Hessian."""

from hessmap.curvature.layers.diagonal import exact_diagonal
from hessmap.curvature.layers.factors import PATCH_RULES, LayerFactors, PatchRule, layer_factors
from hessmap.curvature.layers.hessian import (
    CompressedHessian,
    LayerHessian,
    LayerPlan,
    layer_hessian,
    plan_layer_hessian,
)
from hessmap.curvature.layers.kronecker import (
    FactorPairs,
    KroneckerProduct,
    kronecker_approximation,
    product_of_factors,
)
from hessmap.curvature.layers.layer import Layer, find_layer, layer_names
from hessmap.curvature.layers.logits import LogitGradients, logit_gradients, mean_output_hessian, require_logits
from hessmap.curvature.layers.needed_curvature import full_curvature_work
from hessmap.curvature.layers.tail import Tail, fully_connected_tail

__all__ = [
    "PATCH_RULES",
    "CompressedHessian",
    "FactorPairs",
    "KroneckerProduct",
    "Layer",
    "LayerFactors",
    "LayerHessian",
    "LayerPlan",
    "LogitGradients",
    "PatchRule",
    "Tail",
    "exact_diagonal",
    "find_layer",
    "full_curvature_work",
    "fully_connected_tail",
    "kronecker_approximation",
    "layer_factors",
    "layer_hessian",
    "layer_names",
    "logit_gradients",
    "mean_output_hessian",
    "plan_layer_hessian",
    "product_of_factors",
    "require_logits",
]
