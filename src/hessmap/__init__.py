"""hessmap: the curvature of neural networks, predicted, measured, explained and certified.

Names are loaded when they are first used, so that ``import hessmap`` and predictions need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hessmap.progress import progress

__version__ = "0.1.0"

_HOME_OF = {
    "Convolutional": "networks",
    "FullyConnected": "networks",
    "LocallyConnected": "networks",
    "Polynomial": "networks",
    "describe": "networks",
    "TeacherStudent": "theory.teacher_student",
    "LinearSpectrumLaw": "theory.teacher_student",
    "effective_parameters": "theory",
    "predict_ranks": "theory",
    "train": "training",
    "train_to_stationary_point": "training",
    "zoo_network": "training",
    "certify": "certificates",
    "Certificate": "certificates",
    "Problem": "curvature",
    "across_ranks": "curvature",
    "fisher": "curvature",
    "empirical_fisher": "curvature",
    "loss_hessian": "curvature",
    "outer_product_hessian": "curvature",
    "functional_hessian": "curvature",
    "output_jacobian": "curvature",
    "tangent_kernel": "curvature",
    "toeplitz_layer": "curvature.toeplitz",
    "kronecker_approximation": "curvature.layers",
    "layer_factors": "curvature.layers",
    "layer_hessian": "curvature.layers",
    "layer_names": "curvature.layers",
    "spectrum": "measurement",
    "numerical_rank": "measurement",
    "certified_rank": "curvature.finite_field",
    "certified_data_ranks": "curvature.finite_field",
    "certified_matrix_rank": "curvature.finite_field",
    "generic_rank": "curvature.finite_field",
    "effective_dimension": "measurement",
    "reconstruction_error": "measurement",
    "subspace_overlap": "measurement",
    "solve": "measurement",
    "top_eigenpairs": "measurement",
    "auto_spectrum": "measurement",
    "choose_method": "measurement",
    "density_estimate": "measurement",
    "diagonal_estimate": "measurement",
    "effective_dimension_estimate": "measurement",
    "frobenius_norm_estimate": "measurement",
    "gradient_overlap": "measurement",
    "krylov_solve": "measurement",
    "log_determinant_estimate": "measurement",
    "rank_estimate": "measurement",
    "sharpness": "measurement",
    "trace_estimate": "measurement",
    "layer_eigenpairs": "measurement.layers",
    "decoupling": "measurement.layers",
    "balance": "maps.functions",
    "bottleneck_view": "maps.functions",
    "certified_function_rank": "maps.functions",
    "class_regions": "maps.functions",
    "denoising_score": "maps.functions",
    "function_rank": "maps.functions",
    "input_jacobians": "maps.functions",
    "representation_cost": "maps.functions.representation_cost",
    "map": "maps.curvature_map",
    "compare_maps": "maps.comparison",
    "Tracker": "maps.track",
    "track_checkpoints": "maps.track",
}
_ROOMS = (
    "certificates",
    "curvature",
    "datasets",
    "errors",
    "maps",
    "measurement",
    "networks",
    "results",
    "runs",
    "studies",
    "theory",
    "training",
)

__all__ = [*sorted(_HOME_OF), "progress", *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"hessmap.{name}")
    if name in _HOME_OF:
        return getattr(import_module(f"hessmap.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'hessmap' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if TYPE_CHECKING:  # what editors and type checkers see
    from hessmap import certificates as certificates
    from hessmap import curvature as curvature
    from hessmap import datasets as datasets
    from hessmap import errors as errors
    from hessmap import maps as maps
    from hessmap import measurement as measurement
    from hessmap import networks as networks
    from hessmap import results as results
    from hessmap import runs as runs
    from hessmap import studies as studies
    from hessmap import theory as theory
    from hessmap import training as training
    from hessmap.certificates import Certificate as Certificate
    from hessmap.certificates import certify as certify
    from hessmap.curvature import Problem as Problem
    from hessmap.curvature import across_ranks as across_ranks
    from hessmap.curvature import empirical_fisher as empirical_fisher
    from hessmap.curvature import fisher as fisher
    from hessmap.curvature import functional_hessian as functional_hessian
    from hessmap.curvature import loss_hessian as loss_hessian
    from hessmap.curvature import outer_product_hessian as outer_product_hessian
    from hessmap.curvature import output_jacobian as output_jacobian
    from hessmap.curvature import tangent_kernel as tangent_kernel
    from hessmap.curvature.finite_field import certified_data_ranks as certified_data_ranks
    from hessmap.curvature.finite_field import certified_matrix_rank as certified_matrix_rank
    from hessmap.curvature.finite_field import certified_rank as certified_rank
    from hessmap.curvature.finite_field import generic_rank as generic_rank
    from hessmap.curvature.layers import kronecker_approximation as kronecker_approximation
    from hessmap.curvature.layers import layer_factors as layer_factors
    from hessmap.curvature.layers import layer_hessian as layer_hessian
    from hessmap.curvature.layers import layer_names as layer_names
    from hessmap.curvature.toeplitz import toeplitz_layer as toeplitz_layer
    from hessmap.maps.comparison import compare_maps as compare_maps
    from hessmap.maps.curvature_map import map as map
    from hessmap.maps.functions import balance as balance
    from hessmap.maps.functions import bottleneck_view as bottleneck_view
    from hessmap.maps.functions import certified_function_rank as certified_function_rank
    from hessmap.maps.functions import class_regions as class_regions
    from hessmap.maps.functions import denoising_score as denoising_score
    from hessmap.maps.functions import function_rank as function_rank
    from hessmap.maps.functions import input_jacobians as input_jacobians
    from hessmap.maps.functions.representation_cost import representation_cost as representation_cost
    from hessmap.maps.track import Tracker as Tracker
    from hessmap.maps.track import track_checkpoints as track_checkpoints
    from hessmap.measurement import auto_spectrum as auto_spectrum
    from hessmap.measurement import choose_method as choose_method
    from hessmap.measurement import density_estimate as density_estimate
    from hessmap.measurement import diagonal_estimate as diagonal_estimate
    from hessmap.measurement import effective_dimension as effective_dimension
    from hessmap.measurement import effective_dimension_estimate as effective_dimension_estimate
    from hessmap.measurement import frobenius_norm_estimate as frobenius_norm_estimate
    from hessmap.measurement import gradient_overlap as gradient_overlap
    from hessmap.measurement import krylov_solve as krylov_solve
    from hessmap.measurement import log_determinant_estimate as log_determinant_estimate
    from hessmap.measurement import numerical_rank as numerical_rank
    from hessmap.measurement import rank_estimate as rank_estimate
    from hessmap.measurement import reconstruction_error as reconstruction_error
    from hessmap.measurement import sharpness as sharpness
    from hessmap.measurement import solve as solve
    from hessmap.measurement import spectrum as spectrum
    from hessmap.measurement import subspace_overlap as subspace_overlap
    from hessmap.measurement import top_eigenpairs as top_eigenpairs
    from hessmap.measurement import trace_estimate as trace_estimate
    from hessmap.measurement.layers import decoupling as decoupling
    from hessmap.measurement.layers import layer_eigenpairs as layer_eigenpairs
    from hessmap.networks import Convolutional as Convolutional
    from hessmap.networks import FullyConnected as FullyConnected
    from hessmap.networks import LocallyConnected as LocallyConnected
    from hessmap.networks import Polynomial as Polynomial
    from hessmap.networks import describe as describe
    from hessmap.theory import effective_parameters as effective_parameters
    from hessmap.theory import predict_ranks as predict_ranks
    from hessmap.theory.teacher_student import LinearSpectrumLaw as LinearSpectrumLaw
    from hessmap.theory.teacher_student import TeacherStudent as TeacherStudent
    from hessmap.training import train as train
    from hessmap.training import train_to_stationary_point as train_to_stationary_point
    from hessmap.training import zoo_network as zoo_network
