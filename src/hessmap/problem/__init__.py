"""Model, data and loss: what a Hessian is taken of, how it is evaluated and checked, and one trace of its layers."""

from hessmap.problem.autograd import (
    PRODUCTS,
    BatchGraph,
    RowProduct,
    batch_bytes,
    bytes_per_sample,
    has_slow_convolutions,
    samples_at_once,
    vjp_rows,
)
from hessmap.problem.checks import coupled_samples, require_separate_rows
from hessmap.problem.data import Inputs, map_tensors, move_to, num_rows, take_rows, tensor_or_same, tensors_with_paths
from hessmap.problem.derivative_checks import (
    SYMMETRY_TOLERANCE,
    asymmetric,
    require_symmetric_products,
    require_true_derivatives,
    twice_differentiable,
)
from hessmap.problem.distributed import DistributedProblem
from hessmap.problem.evaluation import Operation, OperationReader, OperationRewriter, fitting_inputs, noting_forward
from hessmap.problem.geometry import ConvolutionGeometry, Indices, crossed_axes, in_every_channel
from hessmap.problem.layer_calls import Kind, LayerCall, LayerUse, ParameterBlock, ParameterPart, Recording, UseOnBatch
from hessmap.problem.model import Forward, private_copy, selected_names
from hessmap.problem.objective import LossObjective, Objective, loss_objective, objective_name
from hessmap.problem.problem import Problem, outputs_and_vjp, require_problem, require_samples
from hessmap.problem.samples import Batch, HeldSamples, all_samples, as_samples, objective_batches
from hessmap.problem.trace import Recorder, perturbed_pass, recording_of, replay

__all__ = [
    "PRODUCTS",
    "SYMMETRY_TOLERANCE",
    "Batch",
    "BatchGraph",
    "ConvolutionGeometry",
    "DistributedProblem",
    "Forward",
    "HeldSamples",
    "Indices",
    "Inputs",
    "Kind",
    "LayerCall",
    "LayerUse",
    "LossObjective",
    "Objective",
    "Operation",
    "OperationReader",
    "OperationRewriter",
    "ParameterBlock",
    "ParameterPart",
    "Problem",
    "Recorder",
    "Recording",
    "RowProduct",
    "UseOnBatch",
    "all_samples",
    "as_samples",
    "asymmetric",
    "batch_bytes",
    "bytes_per_sample",
    "coupled_samples",
    "crossed_axes",
    "fitting_inputs",
    "has_slow_convolutions",
    "in_every_channel",
    "loss_objective",
    "map_tensors",
    "move_to",
    "noting_forward",
    "num_rows",
    "objective_batches",
    "objective_name",
    "outputs_and_vjp",
    "perturbed_pass",
    "private_copy",
    "recording_of",
    "replay",
    "require_problem",
    "require_samples",
    "require_separate_rows",
    "require_symmetric_products",
    "require_true_derivatives",
    "samples_at_once",
    "selected_names",
    "take_rows",
    "tensor_or_same",
    "tensors_with_paths",
    "twice_differentiable",
    "vjp_rows",
]
