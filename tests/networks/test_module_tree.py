"""One walk over a tree of modules: what it passes on, and what it refuses in whoever reads a model by its modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

import pytest
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

import hessmap as hm
from changed_layers import CASES, CHANGES, PLACES, doubled, hooked, made, parametrised
from hessmap.errors import UnsupportedNetwork
from hessmap.hessians.mlp import as_mlp
from hessmap.networks import Rules, sequential_layers

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


DESCRIBED = "a (fully connected|convolutional) network is"
READERS: dict[str, tuple[Callable[[hm.Problem], object], str]] = {
    "describe": (lambda problem: hm.describe(problem.model), DESCRIBED),
    "certified_rank": (hm.certified_rank, "exact arithmetic needs an nn.Sequential of"),
    "certified_data_ranks": (
        hm.exact.certified_data_ranks,
        "exact arithmetic needs an nn.Sequential of",
    ),
}
READS = {  # what each of them takes as it stands, so that the refusals are about the change
    "describe": set(PLACES) - {"pool"},
    "certified_rank": set(PLACES),
    "certified_data_ranks": set(PLACES),
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
    assert as_mlp(problem) is None


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
