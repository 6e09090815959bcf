"""What a certificate is asked for: two networks of one shape, and labelled samples; anything else is said at once."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.certificates.evaluation import classification_error
from hessmap.certificates.stochastic import require_only_layers
from hessmap.curvature.given_data import all_samples
from hessmap.datasets.data import Data
from hessmap.errors import InvalidInput, require, sentence

_LEARNT = 0.6  # an untrained network has at least this share of the error of guessing, by far
_TOGETHER = 8  # samples whose answers are compared with those to one of them alone


def checked_pair(model: nn.Module, initial_model: nn.Module | None) -> nn.Module:
    """The initial network, if it differs from the trained one in the values of its weights alone."""
    if initial_model is None:
        remedy = "Keep a copy before training, or build the network again from its seed"
        raise InvalidInput(sentence("certify needs the weights that training started from", "got none", remedy))
    require_only_layers(model)
    shapes, others = (
        {name: tuple(value.shape) for name, value in network.named_parameters()} for network in (model, initial_model)
    )
    for name in [*shapes, *others]:
        if shapes.get(name) != others.get(name):
            broken = f"{name} has shape {shapes.get(name)} in one and {others.get(name)} in the other"
            raise InvalidInput(sentence("model and initial_model must have the same parameters", broken))
    _require_same_buffers(dict(model.named_buffers()), dict(initial_model.named_buffers()))
    return initial_model


def checked_data(model: nn.Module, data: Any, name: str, at_least: int = 2) -> Data:
    """Inputs and labels that fit together and fit the network, from a pair of tensors or arrays or from a loader."""
    inputs, targets = _tensors(data)
    require(len(inputs) == len(targets), f"{name} must hold as many inputs as labels", _sizes(inputs, targets))
    num_needed = "two samples" if at_least == 2 else "one sample"
    require(len(inputs) >= at_least, f"{name} must hold at least {num_needed}", f"got {len(inputs)}")
    is_labels = targets.ndim == 1 and not targets.is_floating_point()
    require(is_labels, f"the targets of {name} must be a vector of labels", f"got {targets.dtype}")
    require(bool(torch.isfinite(inputs).all()), f"the inputs of {name} must be finite", "some are not")
    num_classes, (low, high) = _num_classes(model, inputs, name), targets.aminmax()
    require(
        int(low) >= 0 and int(high) < num_classes,
        f"labels must lie in 0..{num_classes - 1}, the outputs of the network",
        f"they lie in {int(low)}..{int(high)}",
    )
    return Data(inputs, targets.long())


def doubts_about_prior(model: nn.Module, initial: nn.Module, data: Data) -> tuple[str, ...]:
    """Signs that the initial weights are not the ones training started from."""
    found = []
    pairs = zip(model.parameters(), initial.parameters(), strict=True)
    if all(torch.equal(one.double(), other.double()) for one, other in pairs):
        found.append("the initial weights equal the trained ones: were they copied after training?")
    error = classification_error(initial, data)
    guessing = 1 - float(torch.bincount(data.targets).max()) / len(data.targets)
    if error < _LEARNT * guessing:
        found.append(f"the initial weights already err on {error:.1%} of the samples only: do they know them?")
    return tuple(found)


def _tensors(data: Any) -> tuple[Tensor, Tensor]:
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    if is_pair and all(isinstance(part, Tensor | np.ndarray) for part in data):
        inputs, targets = (torch.as_tensor(part).detach().cpu() for part in data)
        return inputs, targets
    return all_samples(data)


@torch.no_grad()
def _num_classes(model: nn.Module, inputs: Tensor, name: str) -> int:
    """The number of outputs; the network must give them one sample at a time, whatever else is in the batch."""
    network = copy.deepcopy(model).double().eval()
    try:
        alone, together = (network(inputs[:count].double()) for count in (1, _TOGETHER))
    except RuntimeError as error:
        broken = f"for shape {tuple(inputs[:1].shape)} it raised {error}".splitlines()[0].rstrip(".")
        raise InvalidInput(sentence(f"the network must accept the inputs of {name}", broken)) from error
    shape: tuple[int, ...] = tuple(alone.shape)
    require(len(shape) == 2, "the network must give one vector of outputs a sample", f"it gave shape {shape} for one")
    same = torch.allclose(alone[0], together[0], rtol=1e-6, atol=1e-9)
    require(
        same,
        "a network must answer every sample by itself",
        "its outputs depend on the other samples of a batch",
        "Draws of weights and samples would not be independent",
    )
    return shape[1]


def _require_same_buffers(buffers: dict[str, Tensor], others: dict[str, Tensor]) -> None:
    for name in [*buffers, *others]:
        one, other = buffers.get(name), others.get(name)
        if one is None or other is None or one.shape != other.shape or not torch.equal(one.double(), other.double()):
            must = "outside of the weights, model and initial_model must be the same"
            remedy = "What is learnt there from the samples has no price in the bound"
            raise InvalidInput(sentence(must, f"the buffer {name} differs", remedy))


def _sizes(inputs: Tensor, targets: Tensor) -> str:
    return f"got {len(inputs)} and {len(targets)}"
