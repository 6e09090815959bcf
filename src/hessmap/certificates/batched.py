"""Many whole networks at once: their weights drawn together and mapped over by ``torch.vmap``, where that is right.

Drawn tensors take the place of the parameters of a copy, in every module that has them (``functional_call`` of torch
leaves a shared module changed). That does not reach every use of a parameter: one held in a list, say. So every
operation is looked at, and one that receives a parameter itself ends this way; and the answers must be those of
networks with the same weights written into them. Elsewhere networks are drawn one by one.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from hessmap.certificates.drawable import OperationGuard, conversion_guard
from hessmap.certificates.stochastic import StochasticNetwork

_NUMBERS = 2**23  # weights at a time
_MOST = 256  # networks at a time
_TRIED = 3  # networks whose answers are compared
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
        weights = self.network.drawn_weights(_TRIED)
        together = self.outputs(weights, inputs.expand(_TRIED, *inputs.shape).clone())
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
