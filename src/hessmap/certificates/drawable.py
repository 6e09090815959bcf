"""Which networks can be drawn: those whose copies answer every sample by itself, from their own weights alone."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from hessmap.certificates.guards import ForbiddenUse, OperationGuard, conversion_guard
from hessmap.certificates.memory import state_tensors
from hessmap.certificates.state import state_changes
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.errors import UnsupportedNetwork, sentence

SAMPLES_TOGETHER = 100  # that a whole network answers at once, here and wherever an error is counted
_TOLERANCE = 1e-4  # relative
_ROUNDINGS = 30  # of the weights together: sums that are taken otherwise differ by a few of them
_NAMED, _NAME = 4, 60  # changes that are named, and letters of a name
_REMEDY = "Keep modules and parameters as attributes, not in closures or global variables"


@torch.no_grad()
def require_drawable(network: StochasticNetwork, inputs: Tensor, *originals: nn.Module) -> tuple[str, ...]:
    """Refuse a network whose copies do not answer from their own weights and the sample alone.

    What comes back are doubts: tensors that it reads and that belong neither to the network nor to the samples, and
    what it keeps from one call to the next.
    """
    before = copy.deepcopy(network.model)
    doubts = _foreign_tensors(network, inputs[:4], originals)
    for _ in range(2):  # the second weights find answers that were kept with the samples
        _require_own_answers(network, copy.deepcopy(before), inputs)
    _require_weights_in_answers(copy.deepcopy(before), inputs)
    return (*doubts, *_words(state_changes(before, network.model)))


def _words(changes: Sequence[str]) -> tuple[str, ...]:
    """Doubts about what a network keeps, the first few by name."""
    few, left = changes[:_NAMED], len(changes) - _NAMED
    words = "changes from one call to the next: whether answers do, later, cannot be seen"
    others = (f"of what the network keeps, {left} other values change from one call to the next",)
    return (*(f"{name[:_NAME]} {words}" for name in few), *(others if left > 0 else ()))


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


def _require_weights_in_answers(model: nn.Module, inputs: Tensor) -> None:
    """Other weights give other answers: what every copy finds in one place, a global variable or a file, does not.

    Whole numbers may be equal: answers that are cut off, steps and signs are.
    """
    generator, one = torch.Generator().manual_seed(0), model(inputs.clone()).flatten(1)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        parameter.add_((0.1 + 0.1 * parameter.abs()) * noise)
    two = model(inputs.clone()).flatten(1)
    is_kept = ((one == two) & (one != one.round())).any(1) & (one == two).all(1)
    if is_kept.any():
        broken = f"other weights gave {int(is_kept.sum())} of {len(inputs)} samples the same answer to the last digit"
        rule = "No answer may be kept from one call to the next"
        raise UnsupportedNetwork(sentence("a network must answer from its weights and the sample", broken, rule))


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
