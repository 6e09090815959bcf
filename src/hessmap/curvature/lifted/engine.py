"""The exact dense Hessian: lifted where parameters act through known calls, autograd columns for the rest.

Nothing is trusted: the result is held against one autograd product with a random vector, and thrown away for the
autograd road if it disagrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.curvature.lifted.assembly import add_pair, add_symmetric
from hessmap.curvature.lifted.canvas import Canvas
from hessmap.curvature.lifted.side import side
from hessmap.curvature.lifted.sweep import Lifted, Network, lift, network_of, sweep
from hessmap.curvature.memory import require_memory
from hessmap.curvature.problem import Problem
from hessmap.curvature.products import hessian_product, uncancelled_size
from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.results import Part

CHECK_TOLERANCE = 1e-10
_SWEPT = 2**28  # bytes of a sweep that still stay near the processor; beyond, more calls cost less than more memory
SYMMETRY_TOLERANCE = 1e-3  # a bad cancellation passes, and is said; a wrong derivative does not


@dataclass(frozen=True)
class DenseHessian:
    """The matrix, the relative error of its random-vector check, and the road by which it was found."""

    matrix: Tensor
    check: float
    road: str
    notes: tuple[str, ...] = ()


def dense_hessian(problem: Problem, part: Part) -> DenseHessian:
    """One of the three Hessians as a dense float64 matrix in the layout of the problem."""
    size = problem.num_parameters
    require_memory(
        f"the dense Hessian of {size} parameters",
        8 * size * size + problem.memory_budget,
        "Use products (H @ v) or fewer trainable parameters",
    )
    try:
        matrix, notes = _lifted_matrix(problem, part)
        check = _disagreement(problem, part, matrix)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:  # calls that depend on the samples, and the like
        reason = (str(error.__cause__ or error).strip().splitlines() or [type(error).__name__])[0][:160]
        return _autograd_matrix(problem, part, f"the lifted engine could not follow the model ({reason})")
    if check <= CHECK_TOLERANCE:
        return DenseHessian(matrix, check, "lifted", notes)
    reason = f"the lifted engine missed a use of a parameter, or rounding is bad (check {check:.1e})"
    return _autograd_matrix(problem, part, reason)


def _autograd_matrix(problem: Problem, part: Part, reason: str) -> DenseHessian:
    matrix = hessian_product(problem, part, torch.eye(problem.num_parameters, dtype=torch.float64))
    size = max(float(matrix.abs().max()), uncancelled_size(problem, part, _probe(problem)))
    asymmetry = float((matrix - matrix.T).abs().max()) / (size or 1.0)
    if not asymmetry <= SYMMETRY_TOLERANCE:
        must = "second derivatives must be symmetric"
        got = f"torch's differ from their transpose by {asymmetry:.2g} of the largest"
        remedy = "Look for an operation of the model whose second derivative is wrong, or for values that overflow"
        raise UnsupportedNetwork(sentence(must, got, remedy))
    matrix = (matrix + matrix.T) / 2
    check = max(asymmetry, _disagreement(problem, part, matrix))
    doubt = (f"its rounding error is about {check:.1e} of the largest entry",) if check > CHECK_TOLERANCE else ()
    return DenseHessian(matrix, check, "autograd", (f"by autograd: {reason}", *doubt))


def _disagreement(problem: Problem, part: Part, matrix: Tensor) -> float:
    """The largest entry of matrix v - autograd v relative to that of autograd v, for one random v: largest entries,
    because squares vanish for data of scale 1e-100 and overflow for 1e100."""
    vector = _probe(problem)
    expected = hessian_product(problem, part, vector)
    error, scale = float((matrix @ vector - expected).abs().max()), float(expected.abs().max())
    if not error <= CHECK_TOLERANCE * scale:
        scale = max(scale, uncancelled_size(problem, part, vector))
    return error / scale if scale > 0 else error


def _probe(problem: Problem) -> Tensor:
    generator = torch.Generator().manual_seed(problem.num_parameters)
    return torch.randn(problem.num_parameters, 1, generator=generator, dtype=torch.float64)


@torch.no_grad()
def _lifted_matrix(problem: Problem, part: Part) -> tuple[Tensor, tuple[str, ...]]:
    network = lifted_network(problem)
    canvas = Canvas(problem.layout, _uses(network))
    for data, targets, weights in problem.batches(_samples_at_once(problem, network)):
        outputs = network.forward(data)
        residual = weights[:, None] * problem.loss.gradient(outputs, targets)
        lifted = lift(network, data, residual, with_jacobians=part != "functional")
        curved = []  # weighted output Hessian times Jacobian, per call
        if part != "functional":
            hessian = weights[:, None, None] * problem.loss.hessian(outputs, targets)
            curved = [hessian @ jacobian for jacobian in lifted.jacobians]
        _add_batch(canvas, problem, network, lifted, curved, with_functional=part != "outer_product")
        canvas.is_first_batch = False
    matrix = canvas.matrix
    if part == "loss" and problem.l2:
        matrix.diagonal().add_(2 * problem.l2)
    return matrix, _add_unlifted(matrix, problem, network, part)


def lifted_network(problem: Problem) -> Network:
    """The forward pass of a problem with the calls of its trainable parameters."""
    names = {id(value): name for name, value in problem.named.items()}

    def forward(inputs: Tensor) -> Tensor:
        return problem.forward(problem.named, inputs)

    return network_of(forward, names, problem.inputs[:1])


def _uses(network: Network) -> list[str]:
    """A name for every use of a parameter by a known call."""
    return [name for call in network.calls for name in (call.weight, call.bias) if name is not None]


def _add_batch(
    canvas: Canvas, problem: Problem, network: Network, lifted: Lifted, curved: list[Tensor], with_functional: bool
) -> None:
    """Every pair of calls k <= l: its second derivative along perturbations, then its block."""
    sides = [side(*parts) for parts in zip(network.calls, lifted.inputs, lifted.slopes, strict=True)]
    for k, early in enumerate(sides):
        for outputs in _outputs_at_once(problem, network, k):
            pushed = sweep(network, lifted, k, early.directions(outputs)) if with_functional else None
            along = early.along(lifted.jacobians[k], outputs) if curved else None
            for l, late in enumerate(sides[k:], start=k):  # noqa: E741 - k and l as in the formula
                curvature = pushed.curvature[l - k] if pushed else None
                if along is not None:
                    outer = (along @ curved[l]).transpose(0, 1)
                    curvature = outer if curvature is None else curvature + outer
                assert curvature is not None
                motion = pushed.motion[l - k] if pushed and l > k else None
                if early is late and early.call.is_plain and len(curvature) == early.call.num_outputs:
                    add_symmetric(canvas, early, curvature)
                else:
                    add_pair(canvas, early, late, outputs, curvature, motion)


def _gradient_by_name(problem: Problem) -> dict[str, Tensor | None]:
    """The gradient of the first sample's loss per parameter; None where the loss never sees the parameter."""
    inputs, targets, _ = next(iter(problem.batches(1)))
    leaves = {name: value.clone().requires_grad_() for name, value in problem.named.items()}
    with torch.enable_grad():
        value = problem.loss.value(problem.forward(leaves, inputs), targets).sum()
    if not value.requires_grad:
        return dict.fromkeys(leaves)
    return dict(zip(leaves, torch.autograd.grad(value, list(leaves.values()), allow_unused=True), strict=True))


def _add_unlifted(matrix: Tensor, problem: Problem, network: Network, part: Part) -> tuple[str, ...]:
    """Rows and columns of the parameters that no known call used: zero if the loss never sees them, else autograd."""
    seen = set(_uses(network))
    gradients = _gradient_by_name(problem)
    notes = []
    for name, place in problem.layout:
        if name in seen:
            continue
        if gradients[name] is None:
            penalty = " but for the penalty" if part == "loss" and problem.l2 else ""
            notes.append(f"the loss never sees parameter '{name}': its block is zero{penalty}")
            continue
        unit = torch.zeros(problem.num_parameters, place.stop - place.start, dtype=torch.float64)
        unit[place] = torch.eye(place.stop - place.start, dtype=torch.float64)
        columns = hessian_product(problem, part, unit)
        matrix[:, place] = columns
        matrix[place, :] = columns.T
        notes.append(f"parameter '{name}' went by autograd, one product per entry")
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
    held = sum(2 * problem.output_dim * call.output_size + call.held_size for call in network.calls)
    whole = [call.num_outputs if call.is_plain else 1 for call in network.calls]
    swept = max(count * _bytes_per_output(network, k) for k, count in enumerate(whole))
    return max(8 * held + swept, 8 * max(call.num_features for call in network.calls) ** 2)


def _samples_at_once(problem: Problem, network: Network) -> int:
    if not network.calls:
        return problem.num_samples
    return max(1, min(problem.num_samples, problem.memory_budget // (2 * _bytes_per_sample(problem, network))))


def _outputs_at_once(problem: Problem, network: Network, k: int) -> Iterator[slice]:
    """Outputs of a call, as many at a time as the budget holds for the samples of a batch."""
    call = network.calls[k]
    allowed = problem.memory_budget // 2 if call.is_plain else min(problem.memory_budget // 2, _SWEPT)
    step = allowed // (_bytes_per_output(network, k) * _samples_at_once(problem, network))
    step = max(1, min(call.num_outputs, step))
    for start in range(0, call.num_outputs, step):
        yield slice(start, min(start + step, call.num_outputs))
