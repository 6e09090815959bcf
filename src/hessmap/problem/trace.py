"""One trace of a model: the uses of its parameters in a forward pass, and passes that are perturbed at some of them.

``Recorder`` follows parameters through the operations of a pass; nothing is hooked into the user's modules. A weight
that is used twice (tied, or in a module that is called twice) has two uses, also through views, slices, transposes,
casts and parametrisations. ``replay`` runs the pass again, with other samples, and replaces the outputs of some uses.

A guard makes sure that no use was missed. Every edge of autograd's graph into a parameter, or into a tensor made of
parameters alone, must start at a node that was made during a recorded call of this parameter: each call notes the range
of autograd's sequence numbers. What no call explains (a custom ``autograd.Function``, a scripted function) is a use of
kind "other".
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from hessmap.problem.data import Inputs, num_rows, take_rows, tensors_with_paths
from hessmap.problem.evaluation import OperationReader, tensors_among
from hessmap.problem.layer_calls import LayerCall, LayerUse, ParameterPart, Recording, SampleAxis, layer_call

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class FromParameters:
    """A tensor that is made of parameters alone; ``part`` if its entries are entries of one of them."""

    tensor: Tensor
    names: frozenset[str]
    part: ParameterPart | None


@dataclass(frozen=True, eq=False)
class ParameterCall:
    """An operation that took parameters: together with data (a use), or alone.

    ``layer`` is None where the operation is not known as a layer. ``first`` and ``last`` are autograd's sequence
    numbers before and after it.
    """

    operation: str
    names: frozenset[str]
    layer: LayerCall | None
    is_use: bool
    is_differentiable: bool
    first: int
    last: int


class Listener(Protocol):
    """Who says what the outputs of a layer call are."""

    def layer_outputs(self, call: LayerCall) -> Tensor:
        """The outputs as rows; they may be perturbed."""


class Recorder:
    """Follows parameters, identified as objects, through the operations of a forward pass.

    Args:
        parameters: The parameters by name.
        listener: Computes the outputs of every layer call, and may perturb them.
        data: Inputs of the model. If given, tensors that depend on them are followed too, so that a use of a
            parameter is distinguished from a tensor made of parameters alone; all tensors of the pass are then kept.
            Defaults to None.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], listener: Listener, data: Iterable[Tensor] | None = None
    ) -> None:
        self.listener = listener
        self.followed: dict[int, FromParameters] = {
            id(value): FromParameters(value, frozenset([name]), ParameterPart(name, num_entries=value.numel()))
            for name, value in parameters.items()
        }
        self.calls: list[ParameterCall] = []
        self._data: dict[int, Tensor] | None = None if data is None else {id(value): value for value in data}

    def reading(self) -> OperationReader:
        """The mode in which the forward pass is to be made."""
        return OperationReader(self._replay if self._data is None else self._record)

    def _part(self, tensor: Any) -> ParameterPart | None:
        found = self.followed.get(id(tensor))
        return None if found is None else found.part

    def _replay(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = layer_call(func, args, kwargs, self._part)
        if call is not None:
            return call.returned(self.listener.layer_outputs(call))
        result = func(*args, **kwargs)
        if func in _SELECTIONS and args and id(args[0]) in self.followed:
            self._follow(func, args, kwargs, result, self.followed[id(args[0])].names)
        return result

    def _record(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._data is not None
        first = _sequence_number()
        call = layer_call(func, args, kwargs, self._part)
        tensors = list(tensors_among([args, kwargs]))
        own = [self.followed[id(tensor)] for tensor in tensors if id(tensor) in self.followed]
        names: frozenset[str] = frozenset().union(*(found.names for found in own))
        result = func(*args, **kwargs) if call is None else call.returned(self.listener.layer_outputs(call))
        made = list(tensors_among(result))
        is_use = any(id(tensor) in self._data for tensor in tensors)
        if is_use:
            self._data |= {id(tensor): tensor for tensor in made}
        elif names:
            self._follow(func, args, kwargs, result, names)
        if names and made:
            is_differentiable = torch.is_grad_enabled() and any(found.tensor.requires_grad for found in own)
            name = call.operation if call is not None else getattr(func, "__name__", str(func))
            last = _sequence_number()
            self.calls.append(ParameterCall(name, names, call, is_use, is_differentiable, first, last))
        return result

    def _follow(self, func: Callable[..., Any], args: Any, kwargs: Any, result: Any, names: frozenset[str]) -> None:
        """Remember what was made of parameters, and which of their entries it holds if it only moved them."""
        made = list(tensors_among(result))
        places: list[Tensor | None] = [None] * len(made)
        source = self.followed.get(id(args[0])) if args else None
        if func in _SELECTIONS and source is not None and source.part is not None:
            index = source.part.index
            if index is None:
                index = torch.arange(source.tensor.numel()).reshape(source.tensor.shape)
            with torch._C.DisableTorchFunction():
                moved = index if func in _CASTS else func(index, *args[1:], **kwargs)
            places = list(tensors_among(moved))
        for tensor, place in zip(made, places, strict=True):
            if id(tensor) in self.followed and place is not None:
                continue  # a cast or a copy that was not needed returns the parameter itself
            whole = None if place is None or source is None else source.part
            part = None if whole is None else ParameterPart(whole.name, place, whole.num_entries)
            self.followed[id(tensor)] = FromParameters(tensor, names, part)


def _sequence_number() -> int:
    number: int = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
    return number


_PROPERTIES = tuple(getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH", "data"))
_CASTS = frozenset((torch.Tensor.to, torch.Tensor.type, torch.Tensor.double, torch.Tensor.float, torch.Tensor.type_as))
_MOVES = (
    *("t", "transpose", "permute", "view", "reshape", "flatten", "unflatten", "chunk", "split", "split_with_sizes"),
    *("tensor_split", "unbind", "narrow", "select", "squeeze", "unsqueeze", "contiguous", "clone", "detach"),
    *("movedim", "moveaxis", "swapaxes", "swapdims", "ravel", "__getitem__"),
)
# Operations that move or choose entries, and change none.
_SELECTIONS = (
    frozenset(getattr(torch.Tensor, name) for name in _MOVES if hasattr(torch.Tensor, name))
    | frozenset(getattr(torch, name) for name in _MOVES if hasattr(torch, name))
    | frozenset(_PROPERTIES)
    | _CASTS
)


AtUse = Callable[[int, LayerCall], Tensor]


def replay(problem: Problem, recording: Recording, inputs: Inputs, uses: Container[int], at_use: AtUse) -> Tensor:
    """Run the model of a problem with other outputs of some uses.

    Args:
        problem: Model, data and loss.
        recording: The uses of its parameters.
        inputs: Inputs of the model.
        uses: Numbers of the uses to replace.
        at_use: Called with the number of a use and its call; returns the outputs as rows.

    Returns:
        Tensor: Outputs of the model.
    """
    stops = _Stops(recording, uses, at_use)
    with Recorder(problem.named, stops).reading():
        return problem.forward(problem.named, inputs)


def perturbed_pass(
    problem: Problem, inputs: Inputs, perturbations: Mapping[int, Tensor | None], layer_outputs: AtUse | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Run the model with perturbations added to the outputs of some of its layer uses.

    Args:
        problem: Problem whose model is run.
        inputs: Inputs of the model, one row per sample.
        perturbations: For each use, by its number in the recording and in order of execution, a tensor of shape
            (samples, outputs, positions), or None to read the inputs of the use only.
        layer_outputs: Computes the unperturbed outputs of a call. Defaults to the call's own operation.

    Returns:
        The outputs of the model, and the inputs (samples, input_size) of each of these uses.

    Raises:
        RuntimeError: If the model's calls depend on its samples.
    """
    recording, count, found = recording_of(problem), num_rows(inputs), dict[int, Tensor]()

    def at_use(number: int, call: LayerCall) -> Tensor:
        use, perturbation = recording.uses[number], perturbations[number]
        found[number] = use.sample_inputs(call.inputs, count, problem.dtype)
        made = call.outputs() if layer_outputs is None else layer_outputs(number, call)
        return made if perturbation is None else made + use.row_outputs(perturbation, tuple(made.shape))

    outputs = replay(problem, recording, inputs, perturbations, at_use)
    if list(found) != list(perturbations):
        raise RuntimeError("the calls of the model depend on its samples")
    return outputs, list(found.values())


class _Stops:
    def __init__(self, recording: Recording, uses: Container[int], at_use: AtUse) -> None:
        self.decisions = recording.decisions
        self.uses = uses
        self.at_use = at_use
        self._ordinal = 0

    def layer_outputs(self, call: LayerCall) -> Tensor:
        if self._ordinal == len(self.decisions):
            raise RuntimeError("the calls of the model depend on its samples")
        use = self.decisions[self._ordinal]
        self._ordinal += 1
        if use is None or use not in self.uses:
            return call.outputs()
        return self.at_use(use, call)


_SAMPLES = 3  # that are traced together, then each alone
_AGREEMENT = 1e-3  # of the largest value: rounding in other company is far less, another sample far more


def recording_of(problem: Problem) -> Recording:
    """Trace the uses of a problem's parameters; done once per problem.

    Args:
        problem: Model, data and loss.

    Returns:
        Recording: All uses, in the order of a forward pass.
    """
    local = problem.local
    return local.cached("recording", record, local)


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
