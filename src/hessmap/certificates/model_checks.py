"""Which pairs of networks can be certified: two that differ in their weights alone.

Whatever else enters the outputs has no divergence in the bound, so it must not have changed since before the samples:
buffers, tensors and numbers in attributes, what closures hold, hooks.
"""

from __future__ import annotations

import pickle
import types
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.certificates.draws import mean_loss
from hessmap.certificates.losses import BoundedLoss
from hessmap.certificates.model_copies import VALUES, state_tensors, uncompiled
from hessmap.datasets import Data
from hessmap.errors import InvalidInput, UnsupportedNetwork, require, sentence

_LEARNT = 0.6  # of the error of guessing: an untrained network has more
_Table = Mapping[Any, Any]
_TORCH_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
# Parameters, buffers, children, hooks and mode, which are compared one by one; and what torch.compile leaves there.
_OF_MODULES = frozenset((*vars(nn.Module()), "_compiled_call_impl", "_is_torch_compile"))
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


def checked_pair(model: nn.Module, initial_model: nn.Module | None) -> tuple[nn.Module, nn.Module, tuple[str, ...]]:
    """Both networks, if they differ in the values of their weights alone, and doubts about what cannot be compared."""
    if initial_model is None:
        remedy = "Keep a copy before training, or build the network again from its seed"
        raise InvalidInput(sentence("a certificate needs the weights that training started from", "got none", remedy))
    for name, network in (("model", model), ("initial_model", initial_model)):
        require(isinstance(network, nn.Module), f"{name} must be an nn.Module", f"got a {type(network).__name__}")
        check_weight_memory(network)
    model, initial_model = uncompiled(model), uncompiled(initial_model)
    _check_no_batch_statistics(model)
    shapes, others = (
        {name: tuple(value.shape) for name, value in network.named_parameters()} for network in (model, initial_model)
    )
    for name in [*shapes, *others]:
        if shapes.get(name) != others.get(name):
            broken = f"{name} has shape {shapes.get(name)} in one and {others.get(name)} in the other"
            raise InvalidInput(sentence("model and initial_model must have the same parameters", broken))
    return model, initial_model, require_same_state(model, initial_model)


def doubts_about_prior(
    trained: nn.Module, initial: nn.Module, data: Data, loss: BoundedLoss | None = None
) -> tuple[str, ...]:
    """Signs that the initial weights are not the ones training started from."""
    found = []
    pairs = zip(trained.parameters(), initial.parameters(), strict=True)
    if all(torch.equal(one.double().cpu(), other.double().cpu()) for one, other in pairs):
        found.append("the initial weights equal the trained ones: were they copied after training?")
    if data.targets.is_floating_point():
        return tuple(found)
    error = mean_loss(initial, data, loss)
    guessing = 1 - float(torch.bincount(data.targets).max()) / len(data.targets)
    if error < _LEARNT * guessing:
        found.append(
            f"the initial weights already have an error of {error:.1%} of the samples only: were they trained on them?"
        )
    return tuple(found)


def check_weight_memory(model: nn.Module) -> None:
    """Refuse a weight that acts a second time through a tensor in its memory, where it would have no noise."""
    if (broken := shared_weight(model)) is not None:
        remedy = "Use the same parameter object in both places"
        raise UnsupportedNetwork(sentence("weights must not share memory", broken, remedy))


def shared_weight(model: nn.Module) -> str | None:
    """What shares memory with a parameter, in words: another parameter, a buffer, an attribute, or a part of itself.

    A copy of the network would lose that: what follows the weights in the original keeps their mean in the copy.
    """
    named = [(name, one) for name, one in model.named_parameters() if _has_memory(one)]
    own = {id(one) for _, one in named}
    others = [one for one in state_tensors(model) if id(one) not in own and _has_memory(one)]
    spans = sorted((*_span(one), f"the parameter {name}") for name, one in named)
    spans += [(*_span(one), f"a tensor of shape {tuple(one.shape)}") for one in others]
    for name, one in named:
        if any(size > 1 and stride == 0 for size, stride in zip(one.shape, one.stride(), strict=True)):
            return f"entries of {name} share memory with each other"
        start, stop = _span(one)
        for first, last, words in spans:
            if first < stop and start < last and words != f"the parameter {name}":
                return f"{words} shares memory with {name}"
    return None


def _has_memory(tensor: Tensor) -> bool:
    is_lazy = isinstance(tensor, nn.parameter.UninitializedParameter)
    return not is_lazy and tensor.layout == torch.strided and not tensor.is_meta and tensor.numel() > 0


def _span(tensor: Tensor) -> tuple[int, int]:
    """The addresses of its first byte and of the one after its last."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def _check_no_batch_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            broken = f"{name} is a batch norm that uses batch statistics"
            remedy = "Use layer norm or group norm, or freeze the statistics before the samples are used"
            raise UnsupportedNetwork(sentence("the network must treat samples independently", broken, remedy))


def require_same_state(model: nn.Module, initial: nn.Module) -> tuple[str, ...]:
    """Raise where two networks differ in anything but their weights; return what cannot be compared, in words."""
    weights = [weight for one in (model, initial) for weight in one.parameters() if weight.is_floating_point()]
    comparison = _Comparison(set(map(id, weights)))
    comparison.compare("the network", model, initial)
    return tuple(dict.fromkeys(comparison.doubts))


class _Comparison:
    """A walk over two networks at once."""

    def __init__(self, weights: set[int]) -> None:
        self.weights = weights
        self.seen: dict[tuple[int, int], Any] = {}  # holds the objects, so that no other takes their address
        self.doubts: list[str] = []

    def compare(self, path: str, one: Any, other: Any, remedy: str | None = None) -> None:
        """Compare two attributes of any kind."""
        pair = (id(one), id(other))
        if self.weights.issuperset(pair) or pair in self.seen:
            return
        self.seen[pair] = (one, other)
        if one is other:
            if any(id(tensor) not in self.weights for tensor in _shared_tensors(one)):
                self.doubts.append(f"{path} is shared by both models: changes of its tensors cannot be detected")
        elif isinstance(one, Tensor) and isinstance(other, Tensor):
            self._require(_equal(one, other), path, "its values changed", remedy)
        elif type(one) is not type(other):
            self._require(False, path, f"it is a {type(one).__name__} and a {type(other).__name__}")
        elif isinstance(one, nn.Module):
            self._modules(path, one, other)
        elif isinstance(one, np.ndarray) and not one.dtype.hasobject:
            is_same = one.shape == other.shape and np.array(one).tobytes() == np.array(other).tobytes()
            self._require(is_same, path, "its values changed")
        elif isinstance(one, Mapping):
            self._mappings(path, one, other)
        elif isinstance(one, list | tuple | deque | np.ndarray):
            self._mappings(path, dict(enumerate(one)), dict(enumerate(other)))
        elif isinstance(one, (*VALUES, *_TORCH_VALUES, set, frozenset)):
            self._require(one == other or (one != one and other != other), path, "its value changed")
        else:
            self._objects(path, one, other)

    def _modules(self, path: str, one: nn.Module, other: nn.Module) -> None:
        if isinstance(one, torch.jit.ScriptModule):
            self._mappings(path, dict(one.named_buffers()), dict(other.named_buffers()))
            self.doubts.append(f"{path} is compiled by torch.jit: only its buffers can be compared")
            return
        remedy = None
        if isinstance(one, _NORMS):
            remedy = "Use layer norm or group norm, or freeze the statistics before the samples are seen"
        self._mappings(path, one._buffers, other._buffers, remedy)
        for what in ("_parameters", "_modules"):
            self._mappings(path, vars(one)[what], vars(other)[what])
        for what in ("_forward_hooks", "_forward_pre_hooks"):
            self.compare(f"{path}.{what}", [*vars(one)[what].values()], [*vars(other)[what].values()])
        self._mappings(path, _attributes(one), _attributes(other))

    def _mappings(self, path: str, one: _Table, other: _Table, remedy: str | None = None) -> None:
        for key in [*one, *other]:
            inner = f"{path}.{key}".removeprefix("the network.")
            self._require(key in one and key in other, inner, "only one of the two has it", remedy)
            self.compare(inner, one[key], other[key], remedy)

    def _objects(self, path: str, one: Any, other: Any) -> None:
        if isinstance(one, weakref.ref):
            self.compare(path, one(), other())
        elif isinstance(one, partial):
            self.compare(path, (one.func, one.args, one.keywords), (other.func, other.args, other.keywords))
        elif isinstance(one, types.MethodType):
            self.compare(path, (one.__func__, one.__self__), (other.__func__, other.__self__))
        elif isinstance(one, types.FunctionType):
            self._require(one.__code__ == other.__code__, path, "its code changed")
            self.compare(f"what {path} holds", _held(one), _held(other))
        elif _is_its_attributes(one):
            self._mappings(path, vars(one), vars(other))
        elif _pickled(one) is None or _pickled(one) != _pickled(other):
            self.doubts.append(f"{path}, a {type(one).__name__}, cannot be compared with the initial model's")

    def _require(self, condition: bool, path: str, how: str, remedy: str | None = None) -> None:
        if not condition:
            must = "outside of the weights, model and initial_model must be the same"
            remedy = remedy or "The bound does not account for what is learnt there from the samples"
            raise InvalidInput(sentence(must, f"{path}: {how}", remedy))


def _shared_tensors(value: Any) -> Iterator[Tensor]:
    """The tensors that two networks share with an object; a function shares those of its closure and defaults."""
    return state_tensors(_held(value) if isinstance(value, types.FunctionType) else value)


def _held(function: types.FunctionType) -> list[Any]:
    """What a function carries with it: defaults and the variables of its closure."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not filled yet
            cells.append(None)
    return [function.__defaults__, function.__kwdefaults__, *cells]


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same values, also in two number formats."""
    if one.shape != other.shape:
        return False
    one, other = (value.detach().cpu().to_dense() for value in (one, other))
    if one.dtype != other.dtype:
        kind = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
        one, other = one.to(kind), other.to(kind)
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in _OF_MODULES}


def _is_its_attributes(value: Any) -> bool:
    kind: Any = type(value)
    return hasattr(value, "__dict__") and kind.__reduce_ex__ is object.__reduce_ex__


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # objects refuse in many ways; what cannot be written cannot be compared
        return None
