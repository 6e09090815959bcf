"""The exact dense Hessian: lifted where parameters act through known calls, autograd columns for the rest.

Nothing is trusted: the result is compared with one autograd product with a random vector, and replaced by
autograd columns if it disagrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.hessians.dense_assembly import (
    FirstDerivatives,
    HessianBuffer,
    Network,
    add_pair,
    first_derivatives,
    lifted_network,
    second_derivatives,
)
from hessmap.hessians.mlp import (
    MlpSamples,
    flat_inputs,
    has_functional_term,
    mlp_derivatives,
    mlp_samples_of,
    output_curvature,
    perturbed_mlp,
)
from hessmap.hessians.products import hessian_product, uncancelled_size
from hessmap.linalg import (
    disagreement,
    is_answerable,
    random_vector,
    reason_of,
    require_memory,
    rows_that_fit,
    tolerance,
)
from hessmap.problem import SYMMETRY_TOLERANCE, Problem, UseOnBatch, asymmetric, recording_of

# Sizes for two CPU cores; benchmarks/dense_hessian.py and benchmarks/conv_hessian.py time the matrices.
_SWEPT = 2**28  # bytes of a sweep that still stay near the processor; beyond, more calls cost less than more memory


@dataclass(frozen=True)
class DenseHessian:
    """The matrix, the relative error of its random-vector check, and the method by which it was found."""

    matrix: Tensor
    check: float
    method: str
    notes: tuple[str, ...] = ()


@torch.inference_mode(False)
def dense_hessian(problem: Problem, part: str) -> DenseHessian:
    """One of the three Hessians, or the empirical Fisher matrix, as a dense matrix in the layout and the number format
    of the problem."""
    size = problem.num_parameters
    require_memory(
        f"the dense Hessian of {size} parameters",
        problem.dtype.itemsize * size * size + problem.working_bytes,
        "Use products (H @ v) or fewer trainable parameters",
    )
    try:
        with _following():
            network = lifted_network(problem)
        if network.calls and problem.device.type == "cpu":
            matrix, notes = _lifted_matrix(problem, network, part)
            check = _disagreement(problem, part, matrix)
            if check <= tolerance(problem.dtype):
                return DenseHessian(matrix, check, "lifted", notes)
            del matrix
            reason = (
                f"the layer-wise method missed a use of a parameter, or rounding errors are large (check {check:.1e})"
            )
        else:
            reason = "no parameter belongs to a supported layer"
    except _NotFollowedError as failure:
        problem.count_fallback("dense Hessians were computed by autograd, one product per parameter", failure.error)
        reason = f"the layer-wise method could not trace the model ({reason_of(failure.error)})"
    return _autograd_matrix(problem, part, reason)


class _NotFollowedError(Exception):
    """The model or its loss failed under the transforms of the lifted engine, or has other calls than were recorded."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def _following() -> Iterator[None]:
    """Around what evaluates the model or its loss: an error there has the matrix made by autograd.

    Everything else (the passes over the data, the assembly of the matrix) is outside of it, and its errors pass.
    """
    try:
        yield
    except Exception as error:
        if not is_answerable(error):
            raise
        raise _NotFollowedError(error) from error


def _autograd_matrix(problem: Problem, part: str, reason: str) -> DenseHessian:
    matrix = hessian_product(problem, part, torch.eye(problem.num_parameters, dtype=problem.dtype))
    asymmetry = require_symmetric_matrix(problem, part, matrix)
    matrix = (matrix + matrix.T) / 2
    check = max(asymmetry, _disagreement(problem, part, matrix))
    doubt = (
        (f"its rounding error is about {check:.1e} of the largest entry",) if check > tolerance(problem.dtype) else ()
    )
    return DenseHessian(matrix, check, "autograd", (f"by autograd: {reason}", *doubt))


def require_symmetric_matrix(problem: Problem, part: str, matrix: Tensor) -> float:
    """The largest entry of H - H^T relative to H, of a matrix or a diagonal block that products made; raises if it is
    more than rounding. Where the samples cancel each other, it is relative to what cancelled."""
    asymmetry = float((matrix - matrix.T).abs().max()) if matrix.numel() else 0.0
    size = max(float(matrix.abs().max()), uncancelled_size(problem, part, _probe(problem))) if asymmetry else 1.0
    asymmetry /= size or 1.0
    if not asymmetry <= SYMMETRY_TOLERANCE:
        raise asymmetric(asymmetry)
    return asymmetry


def _disagreement(problem: Problem, part: str, matrix: Tensor) -> float:
    """How far the product with one random vector is from autograd's."""
    vector = _probe(problem)
    expected = hessian_product(problem, part, vector)
    error = disagreement(matrix @ vector, expected)
    if error <= tolerance(problem.dtype):
        return error
    return disagreement(matrix @ vector, expected, uncancelled_size(problem, part, vector))


def _probe(problem: Problem) -> Tensor:
    return random_vector(problem.num_parameters, problem.dtype)[:, None]


@torch.no_grad()
def _lifted_matrix(problem: Problem, network: Network, part: str) -> tuple[Tensor, tuple[str, ...]]:
    buffer = HessianBuffer(problem.layout, _uses(network), problem.dtype)
    layers = perturbed_mlp(network)
    for data, targets, weights in problem.batches(_samples_at_once(problem, network)):
        inputs = flat_inputs(problem, data)
        if layers is not None and inputs is not None:
            with _following():
                piece = mlp_samples_of(problem, layers, inputs, targets, weights, part)
            _add_mlp(buffer, network, piece)
            buffer.is_first_batch = False
            continue
        outputs = network.forward(data)
        hessian = None
        with _following():
            residual = (weights[:, None] * problem.loss.gradient(outputs, targets)).to(outputs.dtype)
            if part != "functional":
                hessian = output_curvature(problem.loss, part, outputs, targets, weights).to(outputs.dtype)
            lifted = first_derivatives(network, data, residual, with_jacobians=part != "functional")
        # The weighted output Hessian times the Jacobian, per call.
        curved = [] if hessian is None else [hessian @ jacobian for jacobian in lifted.jacobians]
        _add_batch(buffer, problem, network, lifted, curved, with_functional=has_functional_term(part))
        buffer.is_first_batch = False
    matrix = buffer.matrix
    if part == "loss" and problem.l2:
        matrix.diagonal().add_(2 * problem.l2)
    return matrix, _add_unlifted(matrix, problem, network, part)


def _uses(network: Network) -> list[str]:
    """A name for every use of a parameter by a known call, two for one in another order than the parameter's own."""
    return [
        piece.name for call in network.calls for piece in call.pieces for _ in range(1 if piece.entries is None else 2)
    ]


def _add_batch(
    buffer: HessianBuffer,
    problem: Problem,
    network: Network,
    lifted: FirstDerivatives,
    curved: list[Tensor],
    with_functional: bool,
) -> None:
    """Every pair of calls k <= l: its second derivative along perturbations, then its block."""
    calls = [UseOnBatch(*parts) for parts in zip(network.calls, lifted.inputs, lifted.output_gradients, strict=True)]
    for k, early in enumerate(calls):
        for outputs in _outputs_at_once(problem, network, k):
            second = None
            if with_functional:
                directions = early.directions(outputs)
                with _following():
                    second = second_derivatives(network, lifted, k, directions)
            along = early.along(lifted.jacobians[k], outputs) if curved else None
            for l, late in enumerate(calls[k:], start=k):  # noqa: E741 - k and l as in the formula
                curvature = second.curvature[l - k] if second else None
                if along is not None:
                    outer = (along @ curved[l]).transpose(0, 1)
                    curvature = outer if curvature is None else curvature + outer
                assert curvature is not None
                tangents = second.input_tangents[l - k] if second and l > k else None
                add_pair(buffer, early, late, outputs, curvature, tangents)


def _add_mlp(buffer: HessianBuffer, network: Network, piece: MlpSamples) -> None:
    """The same for an MLP, whose derivatives are known."""
    gradients = (None if step.gradient is None else step.gradient[:, :, None] for step in piece.steps)
    entering = (step.inputs for step in piece.steps)
    calls = [UseOnBatch(*parts) for parts in zip(network.calls, entering, gradients, strict=True)]
    for k, early in enumerate(calls):
        for outputs in _outputs_at_once(network.problem, network, k):
            second = mlp_derivatives(piece, k, outputs)
            tangents = [None, *second.input_tangents] if second.input_tangents else [None] * len(second.curvature)
            for late, curvature, moved in zip(calls[k:], second.curvature, tangents, strict=True):
                add_pair(buffer, early, late, outputs, curvature, moved)


def _add_unlifted(matrix: Tensor, problem: Problem, network: Network, part: str) -> tuple[str, ...]:
    """Rows and columns of the parameters that no known call used: zero if the loss never sees them, else autograd."""
    lifted, recording = set(_uses(network)), recording_of(problem)
    notes = []
    for name, place in problem.layout:
        if name in lifted:
            continue
        if not any(use.is_differentiable for use in recording.uses_of(name)):
            penalty = " except for the penalty" if part == "loss" and problem.l2 else ""
            notes.append(f"the loss does not depend on parameter '{name}': its block is zero{penalty}")
            continue
        unit = torch.zeros(problem.num_parameters, place.stop - place.start, dtype=problem.dtype)
        unit[place] = torch.eye(place.stop - place.start, dtype=problem.dtype)
        columns = hessian_product(problem, part, unit)
        matrix[:, place] = columns
        matrix[place, :] = columns.T
        notes.append(f"parameter '{name}' was computed by autograd, one product per entry")
    return tuple(notes)


def _bytes_per_output(network: Network, k: int) -> int:
    """Temporaries of one sample for one output of a call: its directions in the vectorised sweep, about 6 copies, or
    what positions are summed into, about 3."""
    own, sizes = network.calls[k], [call.input_size + call.output_size for call in network.calls[k:]]
    summed = own.num_features * max(sizes) if own.space == "outputs" and not own.is_plain else 0
    return 8 * max(6 * own.directions_per_output * sum(sizes), 3 * summed)


def _bytes_per_sample(problem: Problem, network: Network) -> int:
    """What one sample takes at least: what is held of all calls, Jacobians, and the largest sweep that is not cut: that
    is all outputs of a plain call (its block is formed by symmetry) and one of another."""
    stored = sum(2 * problem.output_dim * call.output_size + call.stored_size for call in network.calls)
    whole = [call.num_outputs if call.is_plain else 1 for call in network.calls]
    swept = max(count * _bytes_per_output(network, k) for k, count in enumerate(whole))
    return max(8 * stored + swept, 8 * max(call.num_features for call in network.calls) ** 2)


def _samples_at_once(problem: Problem, network: Network) -> int:
    if not network.calls:
        return problem.num_samples
    return rows_that_fit(problem.working_bytes // 2, _bytes_per_sample(problem, network), problem.num_samples)


def _outputs_at_once(problem: Problem, network: Network, k: int) -> Iterator[slice]:
    """Outputs of a call, as many at a time as the budget holds for the samples of a batch."""
    call = network.calls[k]
    allowed = problem.working_bytes // 2 if call.is_plain else min(problem.working_bytes // 2, _SWEPT)
    each = _bytes_per_output(network, k) * _samples_at_once(problem, network)
    step = rows_that_fit(allowed, each, call.num_outputs)
    for start in range(0, call.num_outputs, step):
        yield slice(start, min(start + step, call.num_outputs))
