"""What a certificate is asked for: two networks of one shape, and labelled samples; anything else is said at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.certificates.draws import mean_loss
from hessmap.certificates.losses import BoundedLoss, ClassificationError
from hessmap.certificates.memory import shared_weight
from hessmap.certificates.model_copies import in_format, model_copy, uncompiled
from hessmap.certificates.state import require_same_state
from hessmap.curvature.given_data import all_samples
from hessmap.datasets.data import Data
from hessmap.errors import InvalidInput, UnsupportedNetwork, require, sentence
from hessmap.results.provenance import data_hash

_LEARNT = 0.6  # an untrained network has at least this share of the error of guessing, by far
_TOGETHER = 8  # samples whose answers are compared with those to each of them alone


@dataclass(frozen=True)
class CheckedData:
    """Samples as the network takes them, and the hash of the samples as they were given."""

    samples: Data
    hash: str


def checked_pair(model: nn.Module, initial_model: nn.Module | None) -> tuple[nn.Module, nn.Module, tuple[str, ...]]:
    """Both networks, if they differ in the values of their weights alone, and doubts about what cannot be compared."""
    if initial_model is None:
        remedy = "Keep a copy before training, or build the network again from its seed"
        raise InvalidInput(sentence("a certificate needs the weights that training started from", "got none", remedy))
    for name, network in (("model", model), ("initial_model", initial_model)):
        require(isinstance(network, nn.Module), f"{name} must be an nn.Module", f"got a {type(network).__name__}")
        refuse_shared_memory(network)
    model, initial_model = uncompiled(model), uncompiled(initial_model)
    refuse_batch_statistics(model)
    shapes, others = (
        {name: tuple(value.shape) for name, value in network.named_parameters()} for network in (model, initial_model)
    )
    for name in [*shapes, *others]:
        if shapes.get(name) != others.get(name):
            broken = f"{name} has shape {shapes.get(name)} in one and {others.get(name)} in the other"
            raise InvalidInput(sentence("model and initial_model must have the same parameters", broken))
    return model, initial_model, require_same_state(model, initial_model)


def refuse_shared_memory(model: nn.Module) -> None:
    """A weight that acts a second time through a tensor in its memory would act there without noise."""
    if (broken := shared_weight(model)) is not None:
        remedy = "Use the parameter itself in both places"
        raise UnsupportedNetwork(sentence("every weight must have memory of its own", broken, remedy))


def refuse_batch_statistics(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None:
            broken = f"{name} is a batch-norm that takes the statistics of the batch"
            remedy = "Use layer-norm or group-norm, or statistics that were frozen before the samples"
            raise UnsupportedNetwork(sentence("a network must answer every sample by itself", broken, remedy))


def checked_data(
    model: nn.Module, data: Any, name: str, at_least: int = 2, loss: BoundedLoss | None = None
) -> CheckedData:
    """Inputs and targets that fit together and fit the network, from a pair of tensors or arrays or from a loader."""
    inputs, targets = raw_samples(data)
    require(len(inputs) == len(targets), f"{name} must hold as many inputs as labels", _sizes(inputs, targets))
    num_needed = "two samples" if at_least == 2 else "one sample"
    require(len(inputs) >= at_least, f"{name} must hold at least {num_needed}", f"got {len(inputs)}")
    require(bool(torch.isfinite(inputs).all()), f"the inputs of {name} must be finite", "some are not")
    loss = loss or ClassificationError()
    loss.check_form(targets, name)
    kept = targets if targets.is_floating_point() else targets.long()
    given = data_hash(inputs.numpy(), kept.numpy())
    inputs, num_outputs = _taken(model, inputs, name)
    return CheckedData(Data(inputs, loss.checked_targets(targets, num_outputs, name)), given)


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
        found.append(f"the initial weights already err on {error:.1%} of the samples only: do they know them?")
    return tuple(found)


def raw_samples(data: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets as they were given, as two tensors."""
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    if is_pair and all(isinstance(part, Tensor | np.ndarray) for part in data):
        inputs, targets = (_tensor(part).detach().cpu() for part in data)
    else:
        inputs, targets = all_samples(data)
        require(isinstance(inputs, Tensor), "the inputs must be one tensor", f"got a {type(inputs).__name__}")
        assert isinstance(inputs, Tensor)
    is_dense = inputs.layout == targets.layout == torch.strided
    require(is_dense, "samples must be dense tensors", f"got {inputs.layout} and {targets.layout}")
    require(not inputs.is_complex(), "inputs must be real", f"got {inputs.dtype}", "Use torch.view_as_real")
    require(inputs.ndim > 0 and targets.ndim > 0, "samples must lie along the first axis", "got a single number")
    inputs, targets = (part.clone() if part.is_inference() else part for part in (inputs, targets))
    return inputs, targets


def _tensor(part: Tensor | np.ndarray[Any, Any]) -> Tensor:
    if isinstance(part, Tensor):
        return part
    require(part.dtype.kind in "biuf", "samples must be arrays of real numbers", f"got {part.dtype}")
    return torch.from_numpy(part if part.flags.writeable else part.copy())


def _taken(model: nn.Module, inputs: Tensor, name: str) -> tuple[Tensor, int]:
    """The samples as the network takes them, and the number of its outputs: whole numbers are tried as real ones first,
    and left as tokens where the network wants those."""
    network = model_copy(model, torch.float64)
    floats = inputs if inputs.is_floating_point() else inputs.float()
    for taken in (floats,) if inputs.is_floating_point() else (floats, inputs):
        try:
            return taken, _num_classes(network, taken)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if isinstance(error, InvalidInput):
                raise
            broken = f"for shape {tuple(inputs[:1].shape)} it raised {error}".splitlines()[0].rstrip(".")
            cause = error
    remedy = "Tensors in attributes or buffers change their number format with a copy" if "dtype" in broken else ""
    raise InvalidInput(sentence(f"the network must accept the inputs of {name}", broken, remedy)) from cause


@torch.no_grad()
def _num_classes(network: nn.Module, inputs: Tensor) -> int:
    """The number of outputs; the network must give them one sample at a time, whatever else is in the batch."""
    some = in_format(inputs[:_TOGETHER], torch.float64)
    together = network(some.clone())
    is_tensor = isinstance(together, Tensor)
    got = f"it gave {tuple(together.shape)}" if is_tensor else f"it gave a {type(together).__name__}"
    is_table = is_tensor and together.ndim == 2 and len(together) == len(some) and together.is_floating_point()
    require(is_table, "the network must give one vector of outputs a sample", f"{got} for {len(some)}")
    require(
        torch.allclose(together, network(some.clone()), rtol=1e-6, atol=1e-9, equal_nan=True),
        "a network must answer from its weights and the sample",
        "the same samples got two answers",
        "Nothing random, and nothing kept from one call to the next, may enter an answer",
    )
    alone = torch.cat([network(some[place : place + 1].clone()) for place in range(len(some))])
    require(
        torch.allclose(alone, together, rtol=1e-6, atol=1e-9, equal_nan=True),
        "a network must answer every sample by itself",
        "its outputs depend on the other samples of a batch",
        "Draws of weights and samples would not be independent",
    )
    return int(together.shape[1])


def _sizes(inputs: Tensor, targets: Tensor) -> str:
    return f"got {len(inputs)} and {len(targets)}"
