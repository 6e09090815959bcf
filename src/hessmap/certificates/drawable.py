"""Which networks can be drawn: those whose copies answer every sample by itself, from their own weights alone.

Guards watch which tensors a network reads while it runs, by the operations that receive them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from hessmap.certificates.model_copies import state_tensors
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.linalg import storage_address
from hessmap.problem import Operation, OperationReader

SAMPLES_TOGETHER = 100  # that a whole network answers at once, here and wherever an error is counted
_TOLERANCE = 1e-4  # relative
_ROUNDINGS = 30  # of the weights together: sums that are taken otherwise differ by a few of them
_REMEDY = "Keep modules and parameters as attributes, not in closures or global variables"
# What python may ask of a parameter without reading its values.
_FACTS = frozenset(
    ["shape", "dtype", "device", "layout", "requires_grad", "grad_fn", "_version", "size", "dim", "ndim", "numel"]
) | {"stride", "__len__", "__hash__", "is_leaf", "is_contiguous", "is_floating_point", "is_complex", "is_nested"}


@torch.no_grad()
def require_drawable(network: StochasticNetwork, inputs: Tensor, *originals: nn.Module) -> tuple[str, ...]:
    """Refuse a network whose copies do not answer from their own weights and the sample alone.

    Returns doubts: tensors that it reads and that belong neither to the network nor to the samples.
    """
    before = copy.deepcopy(network.model)
    doubts = _foreign_tensors(network, inputs[:4], originals)
    for _ in range(2):  # the second weights find answers that were kept with the samples
        _require_own_answers(network, copy.deepcopy(before), inputs)
    return doubts


def _foreign_tensors(network: StochasticNetwork, inputs: Tensor, originals: tuple[nn.Module, ...]) -> tuple[str, ...]:
    """The tensors from elsewhere that a drawn network reads, in words; the weights of the originals are refused."""
    weights = [parameter for model in originals for parameter in model.parameters()]
    given, drawn = inputs.clone(), network.draw()
    guard = OperationGuard(weights, [*network.model.parameters(), *state_tensors(network.model), given])
    try:
        with conversion_guard(weights), guard:
            drawn(given)
    except RuntimeError as error:
        broken = f"it raised {error}".splitlines()[0].rstrip(".")
        raise UnsupportedNetwork(sentence("the network must run in single precision", broken)) from error
    except ForbiddenUse as error:
        broken = f"a copy reads the weights of the original ({error})"
        raise UnsupportedNetwork(sentence("a network must answer from its own weights", broken, _REMEDY)) from error
    if any(tensor.requires_grad for tensor in guard.foreign):
        broken = "it reads trainable tensors that are not among its parameters"
        raise UnsupportedNetwork(sentence("a network must hold its weights as parameters", broken, _REMEDY))
    shapes = sorted({str(tuple(tensor.shape)) for tensor in guard.foreign})
    return tuple(f"it reads a tensor of shape {one} from elsewhere: a change of it cannot be seen" for one in shapes)


def _require_own_answers(network: StochasticNetwork, fresh: nn.Module, inputs: Tensor) -> None:
    """The same weights give the same answers: again, in a copy that was never called, and to every sample alone."""
    drawn = network.draw()
    for parameter, value in zip(fresh.parameters(), drawn.parameters(), strict=True):
        parameter.copy_(value)
    first = drawn(inputs.clone())
    if not (_is_same(first, drawn(inputs.clone())) and _is_same(first, fresh(inputs.clone()))):
        broken = "the same weights gave two answers to the same samples"
        rule = "Nothing random, and nothing kept from one call to the next, may enter an answer"
        raise UnsupportedNetwork(sentence("a network must answer from its weights and the sample", broken, rule))
    alone = _answers_alone(drawn, inputs)
    if not (_is_same(first, alone) or _differ_by_rounding(drawn, inputs, first, alone)):
        broken = "its outputs depend on the other samples of a batch"
        raise UnsupportedNetwork(sentence("a network must answer every sample by itself", broken))


def _answers_alone(network: nn.Module, inputs: Tensor) -> Tensor:
    return torch.cat([network(sample.clone()) for sample in torch.split(inputs, 1)])


def _differ_by_rounding(drawn: nn.Module, inputs: Tensor, together: Tensor, alone: Tensor) -> bool:
    """Whether answers in a batch and alone are one answer whose digits single precision does not have: large terms that
    cancel, added up in another order. They agree in float64 then, and weights that are rounded otherwise, in their last
    digits, move them as far."""
    wide = copy.deepcopy(drawn).double()
    given = inputs.double() if inputs.is_floating_point() else inputs
    try:
        exact, exact_alone = wide(given.clone()), _answers_alone(wide, given)
        for parameter in wide.parameters():
            signs = torch.randint(2, parameter.shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
            parameter.mul_(1 + torch.finfo(torch.float32).eps * signs)
        moved = float((wide(given.clone()) - exact).abs().max())
    except RuntimeError:  # the network is made for one format
        return False
    return _is_same(exact, exact_alone) and float((together - alone).abs().max()) <= _ROUNDINGS * moved


def _is_same(one: Tensor, other: Tensor) -> bool:
    """To what single precision loses in a deep network."""
    size = float(one.abs().nan_to_num().max())
    return torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE * size, equal_nan=True)


class ForbiddenUse(Exception):
    """A tensor was read that the network at hand must not use."""


class OperationGuard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises ``ForbiddenUse`` where an operation receives the memory of a forbidden tensor, also by a view of it.

    With ``known`` tensors it collects in ``foreign`` those that are neither known nor results of the operations seen.
    """

    def __init__(self, forbidden: Iterable[Tensor], known: Iterable[Tensor] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.forbidden = {address for tensor in forbidden if (address := storage_address(tensor))}
        self.known = None if known is None else {storage_address(tensor) for tensor in known}
        self.results: list[Any] = []  # alive, so that their memory is not given to somebody else
        self.foreign: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for tensor in _tensors((args, kwargs)):
            address = storage_address(tensor)
            if address in self.forbidden:
                raise ForbiddenUse(f"{func} receives a weight")
            is_constant = "lift_fresh" in str(func)  # receives the numbers of torch.tensor([..])
            if self.known is not None and address not in self.known and not is_constant:
                self.foreign.append(tensor)
        found = func(*args, **(kwargs or {}))
        if self.known is not None:
            self.results.append(found)
            self.known |= {storage_address(tensor) for tensor in _tensors(found)}
        return found


def conversion_guard(forbidden: Iterable[Tensor]) -> OperationReader:
    """Raises where python takes the values of a forbidden tensor by a way that is no operation: ``.data``, numpy."""
    known = {id(tensor): tensor for tensor in forbidden}

    def read(func: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The getter of a property is a method of the property, which has the name.
        name = getattr(getattr(func, "__self__", None), "__name__", None) or getattr(func, "__name__", "")
        if name not in _FACTS and any(id(tensor) in known for tensor in _tensors((args, kwargs))):
            raise ForbiddenUse(f"{name} receives a weight")
        return func(*args, **kwargs)

    return OperationReader(read)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor)]
