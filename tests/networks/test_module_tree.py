"""One walk over a tree of modules: what it passes on, and what it refuses in whoever reads a model by its modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import MethodType

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import parametrizations

import hessmap as hm
from hessmap.errors import UnsupportedNetwork
from hessmap.networks.module_tree import Rules, sequential_layers
from hessmap.problem.sequential import chain_of
from hessmap_research.deep_linear import deep_linear_convolution_of, deep_linear_of

RULES = Rules("a plain sequence is wanted", "Look elsewhere")


def names(model: nn.Module) -> list[str]:
    return [name for name, _ in sequential_layers(model, RULES)]


def test_nested_sequences_are_seen_through_in_the_order_of_their_calls() -> None:
    class Block(nn.Sequential):
        """A Sequential of another name alone."""

    inner = Block(OrderedDict(first=nn.Linear(2, 2), second=nn.Sequential(nn.ReLU())))
    model = nn.Sequential(nn.Identity(), inner, nn.Sequential(), inner)
    assert names(model) == ["0", "1.first", "1.second.0", "3.first", "3.second.0"]
    assert names(nn.Linear(2, 2)) == [""]


class Residual(nn.Sequential):
    def forward(self, input: Tensor) -> Tensor:
        return input + super().forward(input)


class Backwards(nn.Sequential):
    def __iter__(self) -> Iterator[nn.Module]:
        return reversed(list(super().__iter__()))


class Twice(nn.Sequential):
    def __call__(self, input: Tensor) -> Tensor:
        return super().__call__(super().__call__(input))


@pytest.mark.parametrize("kind", [Residual, Backwards, Twice])
def test_a_sequence_with_calls_of_its_own_is_one_layer(kind: type[nn.Sequential]) -> None:
    assert names(nn.Sequential(kind(nn.Linear(2, 2), nn.ReLU()))) == ["0"]


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


DESCRIBED = "a (fully connected|convolutional) network is"
READERS: dict[str, tuple[Callable[[hm.Problem], object], str]] = {
    "describe": (lambda problem: hm.describe(problem.model), DESCRIBED),
    "certified_rank": (hm.certified_rank, "exact arithmetic needs an nn.Sequential of"),
    "certified_data_ranks": (
        hm.exact.certified_data_ranks,
        "exact arithmetic needs an nn.Sequential of",
    ),
    "deep_linear_of": (deep_linear_of, DESCRIBED),
    "deep_linear_convolution_of": (deep_linear_convolution_of, "closed forms hold for chains of"),
}
READS = {  # what each of them takes as it stands, so that the refusals are about the change
    "describe": set(PLACES) - {"pool"},
    "certified_rank": set(PLACES),
    "certified_data_ranks": set(PLACES),
    "deep_linear_of": {"linear", "identity", "flatten", "dropout", "sequential", "whole"},
    "deep_linear_convolution_of": set(PLACES),
}


@pytest.mark.parametrize("reader", READERS)
def test_plain_layers_are_read(reader: str) -> None:
    for place in sorted(READS[reader]):
        READERS[reader][0](made(place, lambda layer: layer))


@pytest.mark.parametrize(("place", "change"), CASES)
def test_every_reader_of_modules_refuses_a_layer_that_may_compute_something_else(place: str, change: str) -> None:
    problem = made(place, (CHANGES | {"parametrised": parametrised})[change])
    for read, must in READERS.values():
        with pytest.raises(UnsupportedNetwork, match=must):
            read(problem)
    assert chain_of(problem) is None


def test_hooks_on_all_modules_are_seen() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    handle = register_module_forward_hook(lambda module, given, made: 2 * made)
    try:
        with pytest.raises(UnsupportedNetwork, match="has forward hooks"):
            names(model)
    finally:
        handle.remove()
    assert names(model) == ["0"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (doubled, r"layer 1\.0 \(Linear\) has a forward pass of its own\. Look elsewhere"),
        (hooked, r"layer 1\.0 \(Linear\) has forward hooks, which may change what it computes\. Remove them first"),
        (parametrised, r"layer 1\.0 \(ParametrizedLinear\) has a parametrised weight"),
    ],
)
def test_a_refusal_names_the_layer_and_the_reason(change: Callable[[nn.Module], nn.Module], reason: str) -> None:
    with pytest.raises(UnsupportedNetwork, match=reason):
        names(nn.Sequential(nn.ReLU(), nn.Sequential(change(nn.Linear(2, 2)))))


@pytest.mark.parametrize("change", [doubled, hooked, hooked_before, scaled_kind, parametrised])
def test_a_layer_that_computes_something_else_has_no_toeplitz_matrix(
    change: Callable[[nn.Module], nn.Module],
) -> None:
    for layer, shape in ((nn.Linear(3, 2), (3,)), (nn.Conv1d(1, 1, 2), (1, 3))):
        with pytest.raises(UnsupportedNetwork, match="a layer with a Toeplitz matrix is"):
            hm.toeplitz_layer(change(layer), shape)
