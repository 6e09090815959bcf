"""What a certificate is asked for: two networks of one shape, and labelled samples; anything else is said at once."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hessmap.certificates.evaluation import classification_error
from hessmap.datasets.data import Data
from hessmap.errors import InvalidInput, require, sentence

_LEARNT = 0.6  # an untrained network has at least this share of the error of guessing, by far


def checked_pair(model: nn.Module, initial_model: nn.Module | None) -> nn.Module:
    """The initial network, if its parameters have the names and shapes of the trained one's."""
    if initial_model is None:
        remedy = "Keep a copy before training, or build the network again from its seed"
        raise InvalidInput(sentence("certify needs the weights that training started from", "got none", remedy))
    shapes, others = (
        {name: tuple(value.shape) for name, value in network.named_parameters()} for network in (model, initial_model)
    )
    for name in shapes.keys() | others.keys():
        if shapes.get(name) != others.get(name):
            broken = f"{name} has shape {shapes.get(name)} in one and {others.get(name)} in the other"
            raise InvalidInput(sentence("model and initial_model must have the same parameters", broken))
    return initial_model


def checked_data(model: nn.Module, data: Data | tuple[Tensor, Tensor], name: str) -> Data:
    """Inputs and labels that fit together and fit the network; at least two samples."""
    inputs, targets = data
    require(len(inputs) == len(targets), f"{name} must hold as many inputs as labels", _sizes(inputs, targets))
    require(len(inputs) >= 2, f"{name} must hold at least two samples", f"got {len(inputs)}")
    is_labels = targets.ndim == 1 and not targets.is_floating_point()
    require(is_labels, f"the targets of {name} must be a vector of labels", f"got {targets.dtype}")
    require(bool(torch.isfinite(inputs).all()), f"the inputs of {name} must be finite", "some are not")
    with torch.no_grad():
        outputs = model(inputs[:1].to(next(model.parameters()).dtype))
    num_classes, (low, high) = outputs.shape[-1], targets.aminmax()
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


def _sizes(inputs: Tensor, targets: Tensor) -> str:
    return f"got {len(inputs)} and {len(targets)}"
