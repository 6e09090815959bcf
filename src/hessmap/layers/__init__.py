"""Layer by layer: the two factors of a layer, their Kronecker product, and the layer's true Hessian."""

from hessmap.hessians import exact_diagonal
from hessmap.layers.comparison import (
    BestKronecker,
    autocorrelation,
    best_kronecker_product,
    class_outliers,
    decoupling,
)
from hessmap.layers.curvature_choice import full_curvature_work
from hessmap.layers.eigenpairs import layer_eigenpairs, layer_eigenpairs_bytes
from hessmap.layers.factors import PATCH_RULES, LayerFactors, PatchRule, layer_factors
from hessmap.layers.hessian import CompressedHessian, LayerHessian, LayerPlan, layer_hessian, plan_layer_hessian
from hessmap.layers.kronecker import FactorPairs, KroneckerProduct, kronecker_approximation, product_of_factors
from hessmap.layers.layer import Layer, find_layer, layer_names
from hessmap.layers.softmax import (
    LogitGradients,
    Tail,
    fully_connected_tail,
    logit_gradients,
    mean_output_hessian,
    require_logits,
)

__all__ = [
    "PATCH_RULES",
    "BestKronecker",
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
    "autocorrelation",
    "best_kronecker_product",
    "class_outliers",
    "decoupling",
    "exact_diagonal",
    "find_layer",
    "full_curvature_work",
    "fully_connected_tail",
    "kronecker_approximation",
    "layer_eigenpairs",
    "layer_eigenpairs_bytes",
    "layer_factors",
    "layer_hessian",
    "layer_names",
    "logit_gradients",
    "mean_output_hessian",
    "plan_layer_hessian",
    "product_of_factors",
    "require_logits",
]
