"""The error of the stochastic network on the samples: counted over draws, and bounded.

A draw is a network from the posterior with samples of its own, chosen uniformly: one sample for "pairs", some for
"networks". Shares of errors of different draws are independent, and their mean is the error that the bound speaks of.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hessmap.certificates.guards import ConversionGuard, ForbiddenUse, OperationGuard
from hessmap.certificates.pairs import NotPlain, PairNetwork, proved_pairs
from hessmap.certificates.state import state_tensors
from hessmap.certificates.stochastic import StochasticNetwork, in_format, model_copy
from hessmap.datasets.data import Data
from hessmap.errors import UnsupportedNetwork, sentence

DrawKind = Literal["pairs", "networks"]
DEFAULT_DRAWS: dict[DrawKind, int] = {"pairs": 100_000, "networks": 10_000}
_CHUNK = 2000  # samples at a time
_NOISE = 2**26  # numbers at a time
_SAMPLES_OF_A_NETWORK = 100
_TRIED = 4  # samples on which a network is tried
_TOLERANCE = 1e-4  # relative


@dataclass(frozen=True)
class Draws:
    """Errors counted over independent draws, each with as many samples."""

    kind: DrawKind
    num_errors: int
    num_draws: int
    samples_per_draw: int

    @property
    def error(self) -> float:
        return self.num_errors / (self.num_draws * self.samples_per_draw)


class Sampler:
    """Draws from a stochastic network: in pairs where that is proved right, whole networks elsewhere."""

    def __init__(self, network: StochasticNetwork, inputs: Tensor, *originals: nn.Module) -> None:
        self.network, some = network, in_format(inputs[:_TRIED], network.dtype)
        self.doubts = require_drawable(network, some, *originals)
        self.pairs: PairNetwork | None = proved_pairs(network, some, *originals)

    @property
    def kind(self) -> DrawKind:
        return "networks" if self.pairs is None else "pairs"

    @torch.no_grad()
    def draws(self, data: Data, num_draws: int | None, seed: int) -> Draws:
        """Count errors over draws of that seed; by default as many as are usual for their kind."""
        self.network.generator.manual_seed(seed)
        count = num_draws or DEFAULT_DRAWS[self.kind]
        if self.pairs is not None:
            try:
                return self._pairs(self.pairs, data, count)
            except (NotPlain, ForbiddenUse):
                self.pairs = None
                return self.draws(data, num_draws, seed)
        size, num_errors = min(_SAMPLES_OF_A_NETWORK, len(data.inputs)), 0
        for _ in range(count):
            chosen = self._chosen(data, size) if size < len(data.inputs) else slice(None)
            num_errors += self._num_wrong(Data(data.inputs[chosen], data.targets[chosen]))
        return Draws("networks", num_errors, count, size)

    @torch.no_grad()
    def error_of_each(self, data: Data) -> float:
        """The share of wrong answers, every sample answered once: by weights of its own, or by one of some networks."""
        size = _SAMPLES_OF_A_NETWORK if self.pairs is None else _CHUNK
        parts = zip(torch.split(data.inputs, size), torch.split(data.targets, size), strict=True)
        return sum(self._num_wrong(Data(*part)) for part in parts) / len(data.inputs)

    def _num_wrong(self, data: Data) -> int:
        inputs = in_format(data.inputs, self.network.dtype)
        answers = self.network.draw()(inputs) if self.pairs is None else self.pairs.answers(inputs)
        return num_wrong(answers, data.targets)

    def _pairs(self, pairs: PairNetwork, data: Data, num_draws: int) -> Draws:
        noise = sum(values[0].numel() for layer in pairs.layers.values() for values in layer.noise(1))
        size, num_errors = max(1, min(_CHUNK, _NOISE // noise)), 0
        for start in range(0, num_draws, size):
            chosen = self._chosen(data, min(size, num_draws - start))
            num_errors += self._num_wrong(Data(data.inputs[chosen], data.targets[chosen]))
        return Draws("pairs", num_errors, num_draws, 1)

    def _chosen(self, data: Data, count: int) -> Tensor:
        return torch.randint(len(data.inputs), (count,), generator=self.network.generator)

    def outputs(self, inputs: Tensor) -> Tensor:
        """Of a batch, for a fit: differentiable in means and deviations."""
        if self.pairs is not None:
            try:
                return self.pairs.outputs(inputs)
            except NotPlain:
                self.pairs = None
        return self.network.outputs(inputs)


@torch.no_grad()
def require_drawable(network: StochasticNetwork, inputs: Tensor, *originals: nn.Module) -> tuple[str, ...]:
    """Refuse a network whose copies do not answer from their own weights alone.

    What comes back are doubts: tensors that it reads and that belong neither to the network nor to the samples.
    """
    weights = [parameter for model in originals for parameter in model.parameters()]
    remedy = "Keep modules and parameters as attributes, not in closures or global variables"
    fresh, given, drawn = copy.deepcopy(network.model), inputs.clone(), network.draw()
    guard = OperationGuard(weights, [*network.model.parameters(), *state_tensors(network.model), given])
    try:
        with ConversionGuard(weights), guard:
            drawn(given)
    except RuntimeError as error:
        broken = f"it raised {error}".splitlines()[0].rstrip(".")
        raise UnsupportedNetwork(sentence("the network must run in single precision", broken)) from error
    except ForbiddenUse as error:
        broken = f"a copy reads the weights of the original ({error})"
        raise UnsupportedNetwork(sentence("a network must answer from its own weights", broken, remedy)) from error
    drawn = network.draw()
    for parameter, value in zip(fresh.parameters(), drawn.parameters(), strict=True):
        parameter.copy_(value)
    first = drawn(inputs.clone())
    if not (_same(first, drawn(inputs.clone())) and _same(first, fresh(inputs.clone()))):
        broken = "the same weights gave two answers to the same samples"
        rule = "Nothing random, and nothing kept from one call to the next, may enter an answer"
        raise UnsupportedNetwork(sentence("a network must answer from its weights and the sample", broken, rule))
    if not _same(first, torch.cat([drawn(sample.clone()) for sample in torch.split(inputs, 1)])):
        broken = "its outputs depend on the other samples of a batch"
        raise UnsupportedNetwork(sentence("a network must answer every sample by itself", broken))
    if any(tensor.requires_grad for tensor in guard.foreign):
        broken = "it reads trainable tensors that are not among its parameters"
        raise UnsupportedNetwork(sentence("a network must hold its weights as parameters", broken, remedy))
    shapes = sorted({str(tuple(tensor.shape)) for tensor in guard.foreign})
    return tuple(f"it reads a tensor of shape {one} from elsewhere: a change of it cannot be seen" for one in shapes)


def _same(one: Tensor, other: Tensor) -> bool:
    """To what single precision loses in a deep network."""
    size = float(one.abs().nan_to_num().max())
    return torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE * size, equal_nan=True)


@torch.no_grad()
def classification_error(model: nn.Module, data: Data) -> float:
    """The share of samples that the network itself gets wrong, evaluated as when it is used, not as in training."""
    is_double = any(parameter.dtype == torch.float64 for parameter in model.parameters())
    dtype = torch.float64 if is_double else torch.float32
    network, wrong = model_copy(model, dtype), 0
    for some, labels in zip(torch.split(data.inputs, _CHUNK), torch.split(data.targets, _CHUNK), strict=True):
        wrong += num_wrong(network(in_format(some, dtype)), labels)
    return wrong / len(data.inputs)


def num_wrong(outputs: Tensor, labels: Tensor) -> int:
    """Answers that are not the label; one that is not a number is wrong."""
    return int(((outputs.argmax(1) != labels) | ~outputs.isfinite().all(1)).sum())
