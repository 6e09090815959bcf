"""hessmap: the curvature of neural networks, predicted, measured, explained and certified.

The names that are needed first are here; everything else is one level down, in ``hessmap.theory``,
``hessmap.measurement`` and the other packages. Names are loaded when they are first used, so that ``import hessmap``
and predictions need no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hessmap.progress import progress

__version__ = "0.3.0.dev0"

# Where each name lives; tests hold the imports below, which type checkers read, against this list.
_HOME_OF = {
    "Certificate": "certificates",
    "Convolutional": "networks",
    "FullyConnected": "networks",
    "Problem": "problem",
    "Tracker": "maps.track",
    "as_operator": "linalg",
    "certified_rank": "exact",
    "certify": "certificates",
    "certify_from_data": "certificates",
    "compare_maps": "maps.comparison",
    "compression_plan": "applications",
    "cost_plan": "applications",
    "curvature_projection": "applications",
    "density_estimate": "measurement",
    "describe": "networks",
    "distributed": "hessians",
    "effective_dimension": "measurement",
    "effective_parameters": "theory",
    "ewc_penalty": "applications",
    "fisher": "hessians",
    "fisher_diagonal": "layers",
    "function_rank": "maps.functions",
    "functional_hessian": "hessians",
    "generic_rank": "exact",
    "ggn": "hessians",
    "influence": "applications",
    "kronecker_approximation": "layers",
    "kronecker_curvature": "layers",
    "kronecker_error": "layers",
    "laplace": "applications",
    "layer_eigenpairs": "layers",
    "layer_factors": "layers",
    "layer_hessian": "layers",
    "layer_names": "layers",
    "learning_coefficient": "theory",
    "load": "records",
    "loss_hessian": "hessians",
    "loss_plane": "applications",
    "map": "maps.curvature_map",
    "merge": "applications",
    "next_token": "losses",
    "numerical_rank": "measurement",
    "outer_product_hessian": "hessians",
    "output_jacobian": "hessians",
    "plot": "records",
    "predict_ranks": "theory",
    "predict_spectrum": "theory",
    "pruning_plan": "applications",
    "sample_gradients": "hessians",
    "sharded_hessian": "hessians",
    "sharpness": "measurement",
    "solve": "measurement",
    "spectrum": "measurement",
    "step_report": "applications",
    "top_eigenpairs": "measurement",
    "trace_estimate": "measurement",
    "train": "training",
}
_PACKAGES = (
    "applications",
    "certificates",
    "datasets",
    "errors",
    "exact",
    "functions",
    "hessians",
    "layers",
    "linalg",
    "losses",
    "maps",
    "measurement",
    "networks",
    "problem",
    "records",
    "theory",
    "training",
)

__all__ = [*sorted(_HOME_OF), "progress", *_PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"hessmap.{name}")
    home = _HOME_OF.get(name)
    if home is not None:
        return getattr(import_module(f"hessmap.{home}"), name)
    raise AttributeError(f"module 'hessmap' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


if TYPE_CHECKING:  # what editors and type checkers see
    from hessmap import applications as applications
    from hessmap import certificates as certificates
    from hessmap import datasets as datasets
    from hessmap import errors as errors
    from hessmap import exact as exact
    from hessmap import functions as functions
    from hessmap import hessians as hessians
    from hessmap import layers as layers
    from hessmap import linalg as linalg
    from hessmap import losses as losses
    from hessmap import maps as maps
    from hessmap import measurement as measurement
    from hessmap import networks as networks
    from hessmap import problem as problem
    from hessmap import records as records
    from hessmap import theory as theory
    from hessmap import training as training
    from hessmap.applications import compression_plan as compression_plan
    from hessmap.applications import cost_plan as cost_plan
    from hessmap.applications import curvature_projection as curvature_projection
    from hessmap.applications import ewc_penalty as ewc_penalty
    from hessmap.applications import influence as influence
    from hessmap.applications import laplace as laplace
    from hessmap.applications import loss_plane as loss_plane
    from hessmap.applications import merge as merge
    from hessmap.applications import pruning_plan as pruning_plan
    from hessmap.applications import step_report as step_report
    from hessmap.certificates import Certificate as Certificate
    from hessmap.certificates import certify as certify
    from hessmap.certificates import certify_from_data as certify_from_data
    from hessmap.exact import certified_rank as certified_rank
    from hessmap.exact import generic_rank as generic_rank
    from hessmap.hessians import distributed as distributed
    from hessmap.hessians import fisher as fisher
    from hessmap.hessians import functional_hessian as functional_hessian
    from hessmap.hessians import ggn as ggn
    from hessmap.hessians import loss_hessian as loss_hessian
    from hessmap.hessians import outer_product_hessian as outer_product_hessian
    from hessmap.hessians import output_jacobian as output_jacobian
    from hessmap.hessians import sample_gradients as sample_gradients
    from hessmap.hessians import sharded_hessian as sharded_hessian
    from hessmap.layers import fisher_diagonal as fisher_diagonal
    from hessmap.layers import kronecker_approximation as kronecker_approximation
    from hessmap.layers import kronecker_curvature as kronecker_curvature
    from hessmap.layers import kronecker_error as kronecker_error
    from hessmap.layers import layer_eigenpairs as layer_eigenpairs
    from hessmap.layers import layer_factors as layer_factors
    from hessmap.layers import layer_hessian as layer_hessian
    from hessmap.layers import layer_names as layer_names
    from hessmap.linalg import as_operator as as_operator
    from hessmap.losses import next_token as next_token
    from hessmap.maps.comparison import compare_maps as compare_maps
    from hessmap.maps.curvature_map import map as map
    from hessmap.maps.functions import function_rank as function_rank
    from hessmap.maps.track import Tracker as Tracker
    from hessmap.measurement import density_estimate as density_estimate
    from hessmap.measurement import effective_dimension as effective_dimension
    from hessmap.measurement import numerical_rank as numerical_rank
    from hessmap.measurement import sharpness as sharpness
    from hessmap.measurement import solve as solve
    from hessmap.measurement import spectrum as spectrum
    from hessmap.measurement import top_eigenpairs as top_eigenpairs
    from hessmap.measurement import trace_estimate as trace_estimate
    from hessmap.networks import Convolutional as Convolutional
    from hessmap.networks import FullyConnected as FullyConnected
    from hessmap.networks import describe as describe
    from hessmap.problem import Problem as Problem
    from hessmap.records import load as load
    from hessmap.records import plot as plot
    from hessmap.theory import effective_parameters as effective_parameters
    from hessmap.theory import learning_coefficient as learning_coefficient
    from hessmap.theory import predict_ranks as predict_ranks
    from hessmap.theory import predict_spectrum as predict_spectrum
    from hessmap.training import train as train
