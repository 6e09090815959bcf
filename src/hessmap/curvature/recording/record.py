"""Recording a model: forward passes on a few samples, and a guard that no use of a parameter was missed.

Every edge of autograd's graph into a parameter, or into a tensor made of parameters alone, must start at a node that
was made during a recorded call which names the parameter: each call notes the range of autograd's sequence numbers.
What no call explains (a custom ``autograd.Function``, a scripted function) is a use of kind "other".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hessmap.curvature.nested_tensors import Inputs, num_rows, take_rows, tensors_with_paths
from hessmap.curvature.recording.layer_call import LayerCall
from hessmap.curvature.recording.recorder import ParameterCall, Recorder
from hessmap.curvature.recording.uses import LayerUse, Recording, SampleAxis

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem

_SAMPLES = 3
_AGREEMENT = 1e-3  # of the largest value: rounding in other company is far less, another sample far more


def recording_of(problem: Problem) -> Recording:
    """The uses of a problem's parameters; found once per problem."""
    return problem.find_once("recording", lambda: record(problem))


@torch.inference_mode(False)
def record(problem: Problem) -> Recording:
    """Record some samples together, then each alone, to see where the samples lie in what enters the calls."""
    given = problem.samples.first[0] if problem.samples.is_held else next(iter(problem.batches(_SAMPLES)))[0]
    count = num_rows(given)
    chosen = torch.arange(min(count, _SAMPLES)) if count > 1 else torch.zeros(_SAMPLES, dtype=torch.long)
    few = take_rows(given, chosen.to(problem.device))
    together = _recorded_pass(problem, few)
    alone = [_recorded_pass(problem, take_rows(few, slice(n, n + 1))) for n in range(len(chosen))]
    is_fixed = all(one.signature == together.signature for one in alone)
    uses = list(_uses(together, alone if is_fixed else []))
    uses += [LayerUse("other", node, names) for node, names in together.unexplained]
    return Recording(tuple(uses), together.decisions, problem.layout.names, is_fixed)


@dataclass(frozen=True, eq=False)
class _Pass:
    """One recorded forward pass."""

    calls: tuple[ParameterCall, ...]
    decisions: tuple[int | None, ...]
    unexplained: tuple[tuple[str, frozenset[str]], ...]

    @property
    def signature(self) -> list[tuple[Any, ...]]:
        return [(call.operation, call.names, call.layer is None, call.is_use) for call in self.calls]


class _AllLayerCalls:
    """Layer calls in order; nothing is perturbed."""

    def __init__(self) -> None:
        self.calls: list[LayerCall] = []

    def layer_outputs(self, call: LayerCall) -> Tensor:
        self.calls.append(call)
        return call.outputs()


def _recorded_pass(problem: Problem, inputs: Inputs) -> _Pass:
    leaves = {name: value.detach().requires_grad_() for name, value in problem.named.items()}
    listener = _AllLayerCalls()
    recorder = Recorder(leaves, listener, data=[tensor for _, tensor in tensors_with_paths(inputs)])
    with torch.enable_grad(), recorder.reading():
        outputs = problem.forward(leaves, inputs)
    numbers = {id(call.layer): n for n, call in enumerate(call for call in recorder.calls if call.is_use)}
    decisions = tuple(numbers.get(id(call)) for call in listener.calls)
    return _Pass(tuple(recorder.calls), decisions, tuple(_unexplained_nodes(outputs, recorder)))


def _unexplained_nodes(outputs: Tensor, recorder: Recorder) -> Iterator[tuple[str, frozenset[str]]]:
    """Nodes that take a followed tensor outside of every recorded call that names it, with the parameters in it."""
    targets: dict[Any, frozenset[str]] = {}
    for found in recorder.followed.values():
        if found.tensor.grad_fn is not None:
            targets[found.tensor.grad_fn] = found.names
    leaves = {id(found.tensor): found.names for found in recorder.followed.values() if found.tensor.is_leaf}
    waiting, seen = [outputs.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for child, _ in node.next_functions:
            names = targets.get(child, leaves.get(id(getattr(child, "variable", None))))
            if names is not None and not _is_explained(node, names, recorder.calls):
                yield node.name(), names
            waiting.append(child)


def _is_explained(node: Any, names: frozenset[str], calls: Sequence[ParameterCall]) -> bool:
    number = node._sequence_nr()
    return any(call.first <= number < call.last and names <= call.names for call in calls)


def _uses(together: _Pass, alone: Sequence[_Pass]) -> Iterator[LayerUse]:
    """The uses of a pass, in order: as layers where they are some, the rest as "other"."""
    for number, call in enumerate(together.calls):
        if not call.is_use:
            continue
        if call.layer is None:
            yield LayerUse("other", call.operation, call.names, is_differentiable=call.is_differentiable)
            continue
        single = [one.calls[number].layer for one in alone]
        yield _layer_use(call, call.layer, [layer for layer in single if layer is not None])


def _layer_use(call: ParameterCall, layer: LayerCall, alone: Sequence[LayerCall]) -> LayerUse:
    rows = _rows(layer)
    samples = _sample_axis(rows, [_rows(one) for one in alone]) if alone else None
    each = prod(rows.shape[:-1]) // max(1, len(alone))
    positions = each * prod(layer.geometry.positions) if layer.geometry else each
    return LayerUse(
        layer.kind,
        layer.operation,
        call.names,
        layer.weight,
        layer.bias,
        () if layer.weight_value is None else tuple(layer.weight_value.shape),
        layer.transposed,
        layer.num_inputs,
        layer.num_outputs,
        layer.num_groups,
        positions,
        each * rows.shape[-1],
        layer.geometry,
        layer.padding_index,
        samples,
        call.is_differentiable,
    )


def _rows(layer: LayerCall) -> Tensor:
    """What enters as rows (.., features)."""
    inputs = layer.inputs.detach()
    return inputs[..., None] if layer.kind == "embedding" else inputs.flatten(1) if layer.geometry else inputs


def _sample_axis(rows: Tensor, alone: Sequence[Tensor]) -> SampleAxis | None:
    """The axis along which the samples lie, if rows of one alone are found again there; None if there is no such."""
    count, single = len(alone), alone[0].shape
    if rows.ndim != len(single) or any(one.shape != single for one in alone):
        return None
    changed = [axis for axis in range(rows.ndim - 1) if rows.shape[axis] != single[axis]]
    if len(changed) != 1 or rows.shape[-1] != single[-1] or rows.shape[changed[0]] != count * single[changed[0]]:
        return None
    scale = float(rows.abs().max()) if rows.numel() else 0.0
    expected = torch.stack([one.reshape(-1, one.shape[-1]) for one in alone])
    for varies_slowest in (True, False):
        axis = SampleAxis(changed[0], varies_slowest)
        found = axis.split(rows, count)
        if float((found - expected).abs().max() if found.numel() else 0.0) <= _AGREEMENT * scale:
            return axis
    return None
