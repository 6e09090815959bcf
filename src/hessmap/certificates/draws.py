"""The loss of the stochastic network on the samples: measured over draws, and bounded.

A draw is a network from the posterior with separate samples, chosen uniformly: one sample for "pairs", some for
"networks". Mean losses of different draws are independent, and their mean is the loss that the bound speaks of. For
"samples" every sample is answered once, by weights of its own: with weights fixed before the samples, these losses are
independent draws of the loss on unseen data itself.

Many whole networks are drawn at once, their weights mapped over by ``torch.vmap``, where that is right. Drawn tensors
take the place of the parameters of a copy, in every module that has them (``functional_call`` of torch leaves a shared
module changed). That does not reach every use of a parameter: one held in a list, say. So every operation is looked at,
and one that receives a parameter itself ends this way; and the answers must be those of networks with the same weights
written into them. Elsewhere networks are drawn one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nextafter
from typing import Literal

import torch
from torch import Tensor, nn

from hessmap.certificates.losses import BoundedLoss, ClassificationError
from hessmap.certificates.model_copies import in_format, model_copy
from hessmap.certificates.pairs import (
    SAMPLES_TOGETHER,
    NotPlain,
    OperationGuard,
    PairNetwork,
    conversion_guard,
    proved_pairs,
    require_drawable,
)
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets import Data
from hessmap.theory.pac_bayes import held_out_bound, wagered_bound

DrawKind = Literal["pairs", "networks", "samples"]
DEFAULT_DRAWS: dict[DrawKind, int] = {"pairs": 100_000, "networks": 10_000, "samples": 0}
_CHUNK = 2000  # samples at a time
_NOISE = 2**24  # numbers at a time
NUM_STEPS = 200  # into which a loss that is not 0 or 1 is rounded up
_TRIED = 4  # samples on which a network is tried


@dataclass(frozen=True)
class Draws:
    """Losses of independent draws, each over as many samples: ``counts[j]`` of them are j / (len(counts) - 1)."""

    kind: DrawKind
    counts: tuple[int, ...]
    samples_per_draw: int

    @property
    def num_draws(self) -> int:
        return sum(self.counts)

    @property
    def error(self) -> float:
        total = sum(place * count for place, count in enumerate(self.counts))
        return total / (self.num_draws * (len(self.counts) - 1))

    def bound(self, delta: float) -> float:
        """Above the mean of what was drawn, wrong with probability at most delta."""
        return bound_of_counts(self.counts, delta)

    def lower_bound(self, delta: float) -> float:
        return max(0.0, nextafter(1 - bound_of_counts(self.counts[::-1], delta), -inf))

    def scaled(self, num_draws: int) -> Draws:
        """As many draws with the same shares of losses, rounded up.

        >>> Draws("samples", (7, 3), 1).scaled(5).counts
        (3, 2)
        """
        if num_draws == self.num_draws:
            return self
        total, at_least, counts = self.num_draws, 0, []
        for place in range(len(self.counts) - 1, -1, -1):  # as many as have this loss or a larger one, rounded up
            share = -(-sum(self.counts[place:]) * num_draws // total)
            counts.append(share - at_least)
            at_least = share
        return Draws(self.kind, tuple(reversed(counts)), self.samples_per_draw)


def bound_of_counts(counts: tuple[int, ...], delta: float) -> float:
    """The binomial tail where every draw is right or wrong, a wager against the mean elsewhere.

    >>> round(bound_of_counts((1, 0), 0.25), 12)
    0.75
    """
    return held_out_bound(counts[1], sum(counts), delta) if len(counts) == 2 else wagered_bound(counts, delta)


class _QuickWayFailed(Exception):
    """Pairs or batches of networks are not right here after all, and are given up."""


class Sampler:
    """Draws from a stochastic network: in pairs where that is proved right, whole networks elsewhere."""

    def __init__(
        self, network: StochasticNetwork, inputs: Tensor, *originals: nn.Module, loss: BoundedLoss | None = None
    ) -> None:
        self.network, some = network, in_format(inputs[:_TRIED], network.dtype)
        self.loss = loss or ClassificationError()
        self.doubts = require_drawable(network, in_format(inputs[:SAMPLES_TOGETHER], network.dtype), *originals)
        self.pairs: PairNetwork | None = proved_pairs(network, some, *originals)
        self.batch: NetworkBatch | None = None if self.pairs else proved_batch(network, some, *originals)

    @property
    def kind(self) -> DrawKind:
        return "networks" if self.pairs is None else "pairs"

    def draws(self, data: Data, num_draws: int | None, seed: int) -> Draws:
        """Losses over draws of that seed; by default as many as are usual for their kind."""
        size = 1 if self.kind == "pairs" else min(SAMPLES_TOGETHER, len(data.inputs))
        count = num_draws or DEFAULT_DRAWS[self.kind]
        is_whole = size == len(data.inputs) > 1

        def chosen(start: int, stop: int) -> Tensor:
            if is_whole:
                return torch.arange(size).expand(stop - start, size)
            return torch.randint(len(data.inputs), (stop - start, size), generator=self.network.generator)

        try:
            return self._counted(data, count, size, chosen, seed)
        except _QuickWayFailed:
            return self.draws(data, num_draws, seed)

    def draws_of_each(self, data: Data, seed: int | None = None) -> Draws:
        """Every sample answered once, by weights of its own."""

        def chosen(start: int, stop: int) -> Tensor:
            return torch.arange(start, stop)[:, None]

        try:
            return Draws("samples", self._counted(data, len(data.inputs), 1, chosen, seed).counts, 1)
        except _QuickWayFailed:
            return self.draws_of_each(data, seed)

    def error_of_each(self, data: Data) -> float:
        """The mean loss, every sample answered once: by weights of its own, or by one of some networks."""
        size = 1 if self.pairs is not None else SAMPLES_TOGETHER
        even = len(data.inputs) // size * size
        total = 0.0
        for first, last, group in ((0, even, size), (even, len(data.inputs), len(data.inputs) - even)):
            if last == first:
                continue

            def chosen(start: int, stop: int, first: int = first, group: int = group) -> Tensor:
                return first + torch.arange(start * group, stop * group).reshape(-1, group)

            try:
                total += (last - first) * self._counted(data, (last - first) // group, group, chosen, None).error
            except _QuickWayFailed:
                return self.error_of_each(data)
        return total / len(data.inputs)

    @torch.no_grad()
    def _counted(
        self, data: Data, count: int, size: int, chosen: Callable[[int, int], Tensor], seed: int | None
    ) -> Draws:
        """The losses of ``count`` draws with ``size`` samples each; raises where a quick way turns out wrong."""
        if seed is not None:
            self.network.generator.manual_seed(seed)
        steps, chunk = (size if self.loss.is_binary else NUM_STEPS), self._chunk()
        counts = torch.zeros(steps + 1, dtype=torch.long)
        for start in range(0, count, chunk):
            some = chosen(start, min(start + chunk, count))
            try:
                losses = self._losses(data, some)
            except (
                Exception
            ) as error:  # whatever it was: weights written into the network, one by one, are always right
                if self.pairs is None and self.batch is None:
                    raise
                self.pairs = self.batch = None
                raise _QuickWayFailed from error
            means = losses.sum(1) * (steps / size)
            places = means.round() if self.loss.is_binary else means.ceil()
            counts += torch.bincount(places.long(), minlength=steps + 1)
        return Draws(self.kind, tuple(counts.tolist()), size)

    def _chunk(self) -> int:
        """Draws at a time."""
        if self.pairs is not None:
            noise = sum(values[0].numel() for layer in self.pairs.layers.values() for values in layer.noise(1))
            return max(1, min(_CHUNK, _NOISE // noise))
        return 1 if self.batch is None else self.batch.num_networks

    def _losses(self, data: Data, chosen: Tensor) -> Tensor:
        """Of draws for rows of samples; (draws, samples)."""
        flat = chosen.reshape(-1)
        inputs, targets = in_format(data.inputs[flat], self.network.dtype), data.targets[flat]
        if self.pairs is not None:
            outputs = self.pairs.answers(inputs)
        elif self.batch is not None:
            weights = self.network.drawn_weights(len(chosen))
            outputs = self.batch.outputs(weights, inputs.reshape(*chosen.shape, *inputs.shape[1:])).flatten(0, 1)
        else:
            outputs = self.network.draw()(inputs)
        return self.loss.values(outputs, targets).reshape(chosen.shape)

    def outputs(self, inputs: Tensor) -> Tensor:
        """Of a batch, for a fit: differentiable in means and deviations."""
        if self.pairs is not None:
            try:
                return self.pairs.outputs(inputs)
            except NotPlain:
                self.pairs = None
        return self.network.outputs(inputs)


@torch.no_grad()
def mean_loss(model: nn.Module, data: Data, loss: BoundedLoss | None = None) -> float:
    """The mean loss of the network itself, evaluated as when it is used, not as in training."""
    is_double = any(parameter.dtype == torch.float64 for parameter in model.parameters())
    dtype, loss = torch.float64 if is_double else torch.float32, loss or ClassificationError()
    network, total = model_copy(model, dtype), 0.0
    batches = zip(*(torch.split(part, SAMPLES_TOGETHER) for part in (data.inputs, data.targets)), strict=True)
    for some, targets in batches:
        total += float(loss.values(network(in_format(some, dtype)), targets).sum())
    return total / len(data.inputs)


_NUMBERS = 2**23  # weights at a time
_MOST = 256  # networks at a time
_COMPARED = 3  # networks whose answers are compared
_TOLERANCE = 1e-4  # relative


class DifferentAnswers(Exception):
    """The networks drawn together are not those drawn one by one."""


class NetworkBatch:
    """Draws of whole networks that answer together; ``proved_batch`` makes one."""

    def __init__(self, network: StochasticNetwork, originals: tuple[nn.Module, ...]) -> None:
        self.network, self.model = network, copy.deepcopy(network.model)
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        self.homes = [
            (module._parameters, key, names[id(parameter)])
            for module in self.model.modules()
            for key, parameter in module._parameters.items()
            if parameter is not None and parameter.is_floating_point()
        ]
        self.forbidden = [
            parameter
            for model in (self.model, network.model, *originals)
            for parameter in model.parameters()
            if parameter.is_floating_point()
        ]
        size = sum(layer.weight.numel() for layer in network.layers.values())
        self.num_networks = max(1, min(_MOST, _NUMBERS // size))

    def outputs(self, weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        """Of the k-th network for the k-th group of samples; (networks, samples, outputs)."""

        def answers(drawn: dict[str, Tensor], some: Tensor) -> Tensor:
            own = [home[key] for home, key, _ in self.homes]
            try:
                for home, key, name in self.homes:
                    home[key] = drawn[name]  # type: ignore[assignment]
                found: Tensor = self.model(some)
            finally:
                for (home, key, _), parameter in zip(self.homes, own, strict=True):
                    home[key] = parameter
            return found

        with conversion_guard(self.forbidden), OperationGuard(self.forbidden):
            found: Tensor = torch.vmap(answers)(weights, inputs)
        return found

    @torch.no_grad()
    def require_proof(self, inputs: Tensor) -> None:
        weights = self.network.drawn_weights(_COMPARED)
        together = self.outputs(weights, inputs.expand(_COMPARED, *inputs.shape).clone())
        for place, found in enumerate(together):
            single = {name: value[place] for name, value in weights.items()}
            wanted = self.network.with_weights(single)(inputs.clone())
            size = float(wanted.abs().nan_to_num().max())
            if not torch.allclose(found, wanted, rtol=_TOLERANCE, atol=_TOLERANCE * size, equal_nan=True):
                raise DifferentAnswers("the outputs are not those of the network")


def proved_batch(network: StochasticNetwork, inputs: Tensor, *originals: nn.Module) -> NetworkBatch | None:
    """What draws many networks at once, where that is right; None where it is not known to be."""
    state = network.generator.get_state()
    try:
        batch = NetworkBatch(network, originals)
        batch.require_proof(inputs)
    except Exception:  # whatever torch.vmap or the network itself cannot do: one after another is always right
        return None
    finally:
        network.generator.set_state(state)
    return batch if batch.num_networks > 1 else None
