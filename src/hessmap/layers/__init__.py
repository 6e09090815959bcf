"""Layer by layer: the two Kronecker factors of a layer, their product, and the exact Hessian of the layer."""

from hessmap.layers.comparison import (
    BestKronecker,
    autocorrelation,
    best_kronecker_product,
    class_outliers,
    decoupling,
)
from hessmap.layers.curvature_choice import full_curvature_work
from hessmap.layers.curvature_operator import CurvatureBlock, KroneckerCurvature
from hessmap.layers.eigenpairs import layer_eigenpairs, layer_eigenpairs_bytes
from hessmap.layers.factors import PATCH_RULES, LayerFactors, PatchRule, layer_factors
from hessmap.layers.hessian import CompressedHessian, LayerHessian, LayerPlan, layer_hessian, plan_layer_hessian
from hessmap.layers.kfac import CurvatureKind, fisher_diagonal, kronecker_curvature
from hessmap.layers.kfac_error import kronecker_error
from hessmap.layers.kronecker import FactorPairs, KroneckerProduct, kronecker_approximation, product_of_factors
from hessmap.layers.layer import Layer, find_layer, layer_names
from hessmap.layers.softmax import (
    DownstreamWeights,
    LogitGradients,
    downstream_weights,
    logit_gradients,
    mean_output_hessian,
    require_logits,
)

__all__ = [
    "PATCH_RULES",
    "BestKronecker",
    "CompressedHessian",
    "CurvatureBlock",
    "CurvatureKind",
    "DownstreamWeights",
    "FactorPairs",
    "KroneckerCurvature",
    "KroneckerProduct",
    "Layer",
    "LayerFactors",
    "LayerHessian",
    "LayerPlan",
    "LogitGradients",
    "PatchRule",
    "autocorrelation",
    "best_kronecker_product",
    "class_outliers",
    "decoupling",
    "downstream_weights",
    "find_layer",
    "fisher_diagonal",
    "full_curvature_work",
    "kronecker_approximation",
    "kronecker_curvature",
    "kronecker_error",
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
