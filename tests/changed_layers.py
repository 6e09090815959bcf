"""Small networks in which one layer computes something else than its type says, for readers of modules."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import hessmap as hm


def doubled(layer: nn.Module) -> nn.Module:
    def forward(self: nn.Module, given: Tensor) -> Tensor:
        return 2 * type(self).forward(self, given)

    layer.forward = MethodType(forward, layer)  # type: ignore[method-assign]
    return layer


def hooked(layer: nn.Module) -> nn.Module:
    layer.register_forward_hook(lambda module, given, made: 2 * made)
    return layer


def hooked_before(layer: nn.Module) -> nn.Module:
    layer.register_forward_pre_hook(lambda module, given: (2 * given[0],))
    return layer


def scaled_kind(layer: nn.Module) -> nn.Module:
    """The same object, of a subclass with another forward pass."""
    kind = type(layer)
    forward = kind.forward
    layer.__class__ = type(f"Scaled{kind.__name__}", (kind,), {"forward": lambda self, given: 2 * forward(self, given)})
    return layer


def parametrised(layer: nn.Module) -> nn.Module:
    return parametrizations.weight_norm(layer)


# A layer of each kind that a reader of modules sees through or reads, at its place in a small linear network.
PLACES: dict[str, Callable[[Callable[[nn.Module], nn.Module]], nn.Module]] = {
    "linear": lambda change: nn.Sequential(change(nn.Linear(6, 3)), nn.Linear(3, 2)),
    "identity": lambda change: nn.Sequential(nn.Linear(6, 3), change(nn.Identity()), nn.Linear(3, 2)),
    "flatten": lambda change: nn.Sequential(change(nn.Flatten()), nn.Linear(6, 3), nn.Linear(3, 2)),
    "dropout": lambda change: nn.Sequential(nn.Linear(6, 3), change(nn.Dropout(0.0)), nn.Linear(3, 2)),
    "sequential": lambda change: nn.Sequential(change(nn.Sequential(nn.Linear(6, 3))), nn.Linear(3, 2)),
    "whole": lambda change: change(nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 2))),
    "unflatten": lambda change: nn.Sequential(
        change(nn.Unflatten(1, (2, 3))), nn.Conv1d(2, 2, 2), nn.Flatten(), nn.Linear(4, 2)
    ),
    "convolution": lambda change: nn.Sequential(
        nn.Unflatten(1, (2, 3)), change(nn.Conv1d(2, 2, 2)), nn.Flatten(), nn.Linear(4, 2)
    ),
    "late flatten": lambda change: nn.Sequential(
        nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 2, 2), change(nn.Flatten()), nn.Linear(4, 2)
    ),
    "pool": lambda change: nn.Sequential(
        nn.Unflatten(1, (2, 3)), change(nn.AvgPool1d(2, stride=1)), nn.Flatten(), nn.Linear(4, 2)
    ),
}
CHANGES = {"own forward": doubled, "hook": hooked, "hook before": hooked_before, "subclass": scaled_kind}
CASES = [(place, change) for place in PLACES for change in CHANGES] + [
    ("linear", "parametrised"),
    ("convolution", "parametrised"),
]


def made(place: str, change: Callable[[nn.Module], nn.Module]) -> hm.Problem:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = PLACES[place](change).double()
        inputs, targets = torch.randn(5, 6, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    return hm.Problem(model, "squared", inputs, targets)
