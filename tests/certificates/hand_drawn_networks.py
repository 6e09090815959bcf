"""Stochastic networks in random bases, and the same drawn by hand from the arrays of their posteriors."""

from __future__ import annotations

import copy

import numpy as np
import torch
from certificate_cases import started
from torch import nn

from hessmap.certificates.draws import Sampler
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets import Data


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


@torch.no_grad()
def stochastic(model: nn.Module, seed: int = 0, dtype: torch.dtype = torch.float64) -> StochasticNetwork:
    """A stochastic copy in random bases with random deviations."""
    network = StochasticNetwork(model, generator(seed), dtype=dtype)
    for place, layer in enumerate(network.layers.values()):
        layer.log_deviations.copy_(0.4 * normal(*layer.log_deviations.shape, seed=place) - 0.5)
        if layer.bias_log_deviations is not None:
            layer.bias_log_deviations.copy_(0.4 * normal(*layer.bias_log_deviations.shape, seed=place + 9) - 0.5)
        for basis in (layer.output_basis, layer.input_basis):
            if basis is not None:
                basis.copy_(torch.linalg.qr(normal(*basis.shape, seed=place + 20)).Q)
    return network


def draw_by_hand(
    made: nn.Module, posterior: dict[str, dict[str, np.ndarray]], numbers: np.random.Generator
) -> nn.Module:
    """The model itself with weights W + U (E * D) V^T, spelled out from the arrays of the posterior."""
    places = dict(made.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, arrays in posterior.items():
            weight = arrays["weight"]
            shift = numbers.standard_normal(weight.shape) * np.exp(arrays["log_deviations"])
            if "output_basis" in arrays:
                shift = arrays["output_basis"] @ shift @ arrays["input_basis"].T
            place = places.get(f"{name}.weight" if name else "weight", places.get(name))
            place.copy_(torch.as_tensor(weight + shift).reshape(place.shape))
            if "bias" in arrays:
                shift = numbers.standard_normal(len(weight)) * np.exp(arrays["bias_log_deviations"])
                place = places[f"{name}.bias" if name else "bias"]
                place.copy_(torch.from_numpy(arrays["bias"] + arrays["output_basis"] @ shift))
    return made


def require_errors_of_networks_drawn_by_hand(model: nn.Module, data: Data, kind: str) -> None:
    """The sampler draws in that way, and errs as often as networks with weights from numpy."""
    model, _ = started(model)
    network = stochastic(model, dtype=torch.float32)
    numbers = np.random.default_rng(0)

    found = Sampler(network, data.inputs, model).draws(data, 6000 if kind == "pairs" else 400, seed=1)

    assert found.kind == kind
    made = copy.deepcopy(model).float().eval()
    posterior = {name: layer.arrays() for name, layer in network.posterior().items()}
    with torch.no_grad():
        answers = (draw_by_hand(made, posterior, numbers)(data.inputs.clone()) for _ in range(400))
        wanted = [float((answer.argmax(1) != data.targets).double().mean()) for answer in answers]
    spread = np.hypot(np.std(wanted) / 20, (0.25 / found.num_draws) ** 0.5)
    assert 0.02 < np.mean(wanted) < 0.98
    assert abs(found.error - np.mean(wanted)) < 5 * spread
