"""What bounds a rank from above: layers that everything passes through, and samples that are enough to tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.records import FunctionRank, robust_rank

DIM = 5


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Coupling(nn.Module):
    """x + w x_1: its weight sees one entry, the function all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(drawn(DIM, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + nn.functional.linear(inputs[:, :1], self.weight)


class AroundLinear(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs)[:, :1] + inputs


class AroundRelu(nn.ReLU):
    """Brings back what a linear layer before it was given."""

    def __init__(self, kept: dict[str, Tensor]) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + self.kept["inputs"]


class Keeping(nn.Identity):
    def __init__(self, kept: dict[str, Tensor]) -> None:
        super().__init__()
        self.kept = kept

    def forward(self, inputs: Tensor) -> Tensor:
        self.kept["inputs"] = inputs
        return inputs


class AroundAll(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + super().forward(inputs)


def narrow() -> list[nn.Module]:
    return [nn.Linear(DIM, 1), nn.Tanh(), nn.Linear(1, DIM)]


def by_a_hook(pre: bool) -> nn.Module:
    model = nn.Sequential(*narrow())
    kept: dict[str, Tensor] = {}
    model[0].register_forward_pre_hook(lambda module, given: kept.update(inputs=given[0]))
    if pre:
        model[0].register_forward_hook(lambda module, given, found: found)
    model[2].register_forward_hook(lambda module, given, found: found + kept["inputs"])
    return model


def by_two_modules() -> nn.Module:
    kept: dict[str, Tensor] = {}
    return nn.Sequential(Keeping(kept), *narrow(), AroundRelu(kept))


AROUND: dict[str, Any] = {
    "a leaf with a forward of its own": lambda: nn.Sequential(nn.Linear(DIM, DIM), Coupling(), nn.Linear(DIM, DIM)),
    "a subclass of nn.Linear": lambda: nn.Sequential(nn.Linear(DIM, DIM), AroundLinear(DIM, DIM), nn.Linear(DIM, DIM)),
    "a subclass of nn.ReLU": by_two_modules,
    "a subclass of nn.Sequential": lambda: AroundAll(*narrow()),
    "a subclass inside": lambda: nn.Sequential(nn.Linear(DIM, DIM), AroundAll(*narrow()), nn.Linear(DIM, DIM)),
    "forward hooks": lambda: by_a_hook(True),
    "a pre-hook": lambda: by_a_hook(False),
}


@pytest.mark.parametrize("name", AROUND)
def test_a_way_around_a_narrow_layer_is_no_bottleneck(name):
    torch.manual_seed(0)
    model, inputs = AROUND[name]().double(), drawn(60, DIM)
    found, view = hm.function_rank(model, inputs), hm.maps.functions.bottleneck_view(model, inputs)
    assert found.value == DIM
    assert (found.bottleneck.lower, found.bottleneck.upper) == (DIM, DIM)
    assert not view.is_chain
    assert found.schatten is None
    assert [bound.name for bound in hm.maps.functions.representation_cost(model, inputs).bounds] == ["weights"]


def test_a_forward_pass_set_on_the_object_is_not_that_of_its_layers():
    model = nn.Sequential(nn.Linear(DIM, DIM), *narrow()).double()
    inner = model.forward
    model.forward = lambda inputs: inputs + inner(inputs)
    found = hm.function_rank(model, drawn(60, DIM))
    assert (found.value, found.bottleneck.upper, found.schatten) == (DIM, DIM, None)


def test_a_parametrised_weight_is_taken_as_no_plain_layer():
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(DIM, 1)), nn.Linear(1, DIM)).double()
    found = hm.function_rank(model, drawn(30, DIM))
    assert found.value == 1
    assert (found.bottleneck.upper, found.bottleneck.upper_layer) == (DIM, "inputs")
    assert found.schatten is None


def test_balance_refuses_layers_that_compute_something_else():
    with pytest.raises(hm.errors.UnsupportedNetwork, match="layer 1 is AroundLinear"):
        hm.maps.functions.balance(nn.Sequential(nn.Linear(DIM, DIM), AroundLinear(DIM, DIM)))
    with pytest.raises(hm.errors.UnsupportedNetwork, match="layer 0 .* has forward hooks"):
        hm.maps.functions.balance(by_a_hook(True))


def wide_network() -> nn.Module:
    return hm.FullyConnected((4, 10, 10, 4), activation="relu", bias=True).build(seed=3)


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-4])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_samples_that_repeat_do_not_bound_a_rank(count, noise):
    repeated = drawn(count, 4, seed=count).repeat(50, 1)
    inputs = repeated + noise * drawn(*repeated.shape, seed=9)
    view = hm.maps.functions.bottleneck_view(wide_network(), inputs, relative_tolerance=0.1)
    assert view.num_distinct == count
    for layer in view.layers:
        assert layer.centred_rank <= count - 1
        assert layer.is_limited_by_samples or layer.centred_rank == layer.width
    assert not set(view.bottlenecks) & set(view.limited_by_samples)
    interval = hm.function_rank(wide_network(), inputs, relative_tolerance=0.1).bottleneck
    many = hm.function_rank(wide_network(), drawn(3000, 4, seed=1), relative_tolerance=0.1)
    assert interval.upper >= many.value


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 8, 12])
def test_few_samples_make_no_bottleneck_that_more_samples_undo(count):
    """Twenty random networks without a narrow layer. Only a rank of as many dimensions as samples was marked before,
    and five to eight samples made a false bottleneck in more than half of them."""
    num_unmarked = 0
    for seed in range(20):
        model = hm.FullyConnected((4, 10, 10, 4), activation="relu", bias=True).build(seed=seed)
        many = {
            layer.name: layer.centred_rank
            for layer in hm.maps.functions.bottleneck_view(model, drawn(300, 4, seed=99)).layers
        }
        few = hm.maps.functions.bottleneck_view(model, drawn(count, 4, seed=seed))
        low = {layer.name for layer in few.layers if layer.centred_rank < many[layer.name] - 1}
        assert not low & set(few.bottlenecks)
        num_unmarked += len(low - set(few.limited_by_samples))
    assert num_unmarked <= 1  # of 60 layers


def test_a_true_bottleneck_is_told_by_few_samples():
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1), nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 3))
    view = hm.maps.functions.bottleneck_view(model.double(), drawn(9, 6))
    assert view.bottlenecks == ("2", "3")  # what follows one dimension by a linear layer has one
    assert view.layers[1].centred_rank == 1


def test_all_layers_limited_by_samples_leave_no_bottleneck():
    view = hm.maps.functions.bottleneck_view(wide_network(), drawn(2, 4).repeat(30, 1))
    assert view.bottlenecks == ()
    assert view.num_distinct == 2
    assert hm.maps.functions.bottleneck_view(wide_network(), drawn(200, 4)).limited_by_samples == ()


@given(
    ratios=st.lists(st.floats(1e-14, 1.0), min_size=0, max_size=8),
    tolerance=st.sampled_from([1e-12, 1e-3, 0.1, 0.3, 0.9]),
)
def test_a_robust_rank_is_the_same_all_over_its_range(ratios, tolerance):
    values = np.sort(np.array([1.0, *ratios]))[::-1]
    found = robust_rank(values, tolerance, error=1e-15)
    if found is None:
        return
    assert found.factor >= 3
    for at in np.geomspace(found.lowest, found.highest, 50)[1:-1]:
        assert int((values > at).sum()) == found.value
    below, above = found.lowest * (1 - 1e-9), found.highest * (1 + 1e-9)
    assert found.lowest == 1e-15 or int((values > below).sum()) > found.value
    assert int((values > above).sum()) < found.value


def test_a_rank_that_few_points_have_is_no_headline():
    """Diagonal maps: 37 of 400 points have a third singular value just above the tolerance."""
    values = np.tile([1.0, 0.6, 0.07, 0.05, 0.03, 0.015, 0.008], (400, 1))
    values[:37, 2] = 0.12
    ranks = (values > 0.1).sum(axis=1)
    found = FunctionRank(3, ranks, np.ones(400), values, 0.1, 400, 7, 7, "layers")
    assert found.distribution == {2: 363, 3: 37}
    assert found.robust_rank.value == 2
    assert (found.robust_rank.lowest, found.robust_rank.highest) == (0.12, 0.6)


def test_the_interval_takes_the_rank_that_holds_over_tolerances():
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Identity()).double()
    with torch.no_grad():
        model[0].weight[:] = torch.diag(torch.tensor([1.0, 0.7, 0.105, 0.06]))
    found = hm.function_rank(model, drawn(50, 4), relative_tolerance=0.1)
    assert found.value == 3
    assert found.robust_rank.value == found.bottleneck.lower == 2
    assert (found.robust_rank.lowest, found.robust_rank.highest) == pytest.approx((0.105, 0.7))


def test_records_without_later_fields_are_read_and_former_names_refused():
    made = hm.function_rank(wide_network(), drawn(5, 4))
    old = made.to_dict()
    del old["num_kinks"]
    assert FunctionRank.from_dict(old) == made
    old["road"] = old.pop("method")
    with pytest.raises(InvalidInput, match="must contain the fields of a FunctionRank"):
        FunctionRank.from_dict(old)
