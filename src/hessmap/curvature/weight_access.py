"""Weights that a model or a loss reaches by another way than the model's attributes, where they would silently be
constants.

Derivatives are taken with tensors in the place of a module's parameters. A weight in a plain list, or one of the
original model that a function or a loss closes over, is not replaced: outputs and loss would not change with it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import resolve_name

from hessmap.curvature.losses import Loss
from hessmap.curvature.memory import storage_address
from hessmap.curvature.operation_reader import Operation, OperationReader, tensors_among
from hessmap.errors import InvalidInput, UnsupportedNetwork, sentence

HIDDEN_NOTE = (
    "gradients are not those of the outputs: the model hides values from autograd or changes gradients (detach, hooks, "
    "a backward of its own, rounding that gradients pass straight through); its derivatives are those that torch takes"
)
_STRAIGHT_THROUGH = "fake_quant"  # in the names of torch's operations that round and have the gradient of the identity
_READS = ("numpy", "tolist", "item")
_SHAPES = (  # operations that read no values
    *("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like"),
    *("new_zeros", "new_ones", "new_empty", "new_full", "new_tensor"),
)
_FIRST_VALUES = ("to", "type_as", "expand_as", "view_as", "reshape_as")  # that read those of their first tensor
NARROW = (torch.float32, torch.bfloat16, torch.float16)


class WeightSearch:
    """Notes operations on memory that belongs to one of some weights, reads of values past autograd, and casts."""

    def __init__(self, addresses: Mapping[int, str], given: Mapping[int, str]) -> None:
        self.addresses = addresses
        self.given = given
        self.found: tuple[str, str] | None = None
        self.constants: set[str] = set()
        self.narrow: tuple[str, torch.dtype] | None = None
        self.is_straight_through = False

    def read(self, func: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        self.is_straight_through = self.is_straight_through or _STRAIGHT_THROUGH in name
        if name in _READS or (name == "__get__" and getattr(func, "__self__", None) is Tensor.data):
            self.constants |= {self.given[id(value)] for value in args[:1] if id(value) in self.given}
        elif name != "__get__" and self.found is None:
            places = [storage_address(tensor) for tensor in tensors_among((args, kwargs))]
            weight = next((self.addresses[place] for place in places if place in self.addresses), None)
            self.found = None if weight is None else (weight, resolve_name(func) or name)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.dtype in NARROW and self.narrow is None:
            is_cast = any(tensor.dtype == torch.float64 for tensor in tensors_among(args))
            self.narrow = (resolve_name(func) or name, result.dtype) if is_cast else None
        return result


def require_module_weights(
    forward: Callable[[dict[str, Tensor]], Tensor], named: Mapping[str, Tensor], *models: nn.Module
) -> tuple[torch.dtype | None, tuple[str, ...]]:
    """Evaluate once with copies of the weights: the models' own must not be seen. The narrower number format in which a
    float64 model computes some of its values, if it does, and notes on constants and casts."""
    own = [(name, value) for model in models for name, value in differentiated(model, named)]
    addresses = {storage_address(value): name for name, value in own}
    given = {name: value.clone() for name, value in named.items()}
    search = WeightSearch(addresses, {id(value): name for name, value in given.items()})
    with OperationReader(search.read), torch.enable_grad():
        outputs = forward(given)
    require_unwritten(given, [0] * len(given))
    kept = search.found or next(((name, "a tensor that was kept") for name in reached_weights(outputs, own)), None)
    if kept is not None:
        name, operation = kept
        must = "a model must reach its weights through its modules"
        got = f"{operation} has parameter '{name}' from elsewhere, where it would stay constant"
        remedy = "Read it from its module in forward (self.layer.weight), not from a list, a closure or another model"
        raise UnsupportedNetwork(sentence(must, got, remedy))
    notes = [f"the model reads values of '{name}' past autograd: constant there" for name in sorted(search.constants)]
    operation, narrow = search.narrow or ("", None)
    if narrow is not None:
        name, rounding = str(narrow).removeprefix("torch."), torch.finfo(narrow).eps
        notes.append(f"the model computes some of its values in {name} ({operation}): right to about {rounding:.0e}")
    if search.is_straight_through:
        notes.append(HIDDEN_NOTE)
    return narrow, tuple(notes)


def computes_narrowly(forward: Callable[[dict[str, Tensor]], Tensor], named: Mapping[str, Tensor]) -> bool:
    """Whether a float64 model computes some of its values in a narrower format."""
    search = WeightSearch({}, {})
    with OperationReader(search.read), torch.no_grad():
        forward(dict(named))
    return search.narrow is not None


def differentiated(model: nn.Module, named: Container[str]) -> list[tuple[str, Tensor]]:
    """The parameters of the user's model that are differentiated, by the names that they have in its copy."""
    named_parameters = ((name.replace("_orig_mod.", ""), value) for name, value in model.named_parameters())
    return [(name, value) for name, value in named_parameters if name in named and value.numel()]


def reached_weights(result: Tensor, weights: Iterable[tuple[str, Tensor]]) -> Iterator[str]:
    """The names of those weights that the graph of a result reaches: the tensors themselves, or their memory."""
    known = list(weights) if result.requires_grad else []
    names = {id(value): name for name, value in known}
    places = {storage_address(value): name for name, value in known}
    for leaf in _leaves(result) if known else ():
        name = names.get(id(leaf)) or places.get(storage_address(leaf))
        if name is not None:
            yield name


def _leaves(result: Tensor) -> Iterator[Tensor]:
    """The tensors that autograd would leave gradients in."""
    ends: list[Any] = [result.grad_fn]
    if result.grad_fn is None:
        yield result
    seen = set()
    while ends:
        node = ends.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            yield node.variable
        ends.extend(next_node for next_node, _ in node.next_functions)


class LossWeights:
    """Whether a loss uses weights of the model whose outputs it is given: the user's, which are not those that are
    differentiated, or their copies in a loss module that was copied."""

    def __init__(self, loss: Loss, model: nn.Module, named: Container[str]) -> None:
        own = differentiated(model, named)
        self.name = loss.name
        places = {storage_address(value): name for name, value in own}
        copied = [(places[place], value) for place, value in loss.copies.items() if place in places]
        self.weights = own + copied
        self._places = {storage_address(value): name for name, value in self.weights}
        self._read: set[str] = set()
        held = [places.get(storage_address(value)) for value in loss.held_weights]
        self._require_none(next(filter(None, held), None))

    def require_unused(self, values: Tensor) -> None:
        """Raise if the graph of values of the loss, on outputs without a graph, ends in one of the weights."""
        self._require_none(next(reached_weights(values, self.weights), None))

    def _require_none(self, name: str | None) -> None:
        if name is not None:
            must = "a loss must be a function of outputs and targets"
            got = f"'{self.name}' also depends on parameter '{name}' of the model, which would be taken for a constant"
            remedy = (
                "Compute that term in forward=, from the model that forward(model, inputs) is given, and return it as "
                "one more output of every sample that the loss adds; l2= adds the squared norm of all parameters"
            )
            raise InvalidInput(sentence(must, got, remedy))

    @property
    def notes(self) -> tuple[str, ...]:
        """On weights that the loss read without a graph: constants, by detach or no_grad."""
        return tuple(f"the loss reads values of '{name}' past autograd: constant there" for name in sorted(self._read))

    def read(self, func: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry an operation of the loss out, and note whether it uses values of the weights."""
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        used = args[:1] if name in _FIRST_VALUES else () if name in _SHAPES else (args, kwargs)
        places = {storage_address(tensor) for tensor in tensors_among(used)}
        made = {storage_address(tensor) for tensor in tensors_among(result)}
        is_value = bool(made & places) if name == "__get__" else bool(made) or name in _READS
        self._read |= {self._places[place] for place in places if is_value and place in self._places}
        return result


def require_unwritten(named: Mapping[str, Tensor], versions: Sequence[int]) -> None:
    """``versions`` are those of the tensors before a forward pass; a model that writes into its weights is refused."""
    for (name, value), before in zip(named.items(), versions, strict=True):
        if value._version != before:
            must, got = "a forward pass must leave the weights as they are", f"this one writes into parameter '{name}'"
            remedy = "Do it once before, or write the changed weight into a variable"
            raise UnsupportedNetwork(sentence(must, got, remedy))
