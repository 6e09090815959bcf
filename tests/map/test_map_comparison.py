"""Two maps compared: numbers before and after, and words for what cannot be compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from hessmap.maps.comparison import compare_maps
from hessmap.maps.curvature_map import curvature_map
from hessmap.networks import FullyConnected
from hessmap.records import PARTS, CurvatureMap, MapComparison, change


def mapped(
    widths: tuple[int, ...] = (5, 4, 3),
    scale: float = 1.0,
    loss: str = "squared",
    num_samples: int = 40,
    activation: str = "identity",
) -> CurvatureMap:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, widths[0], generator=generator, dtype=torch.float64)
    targets = torch.randint(widths[-1], (num_samples,), generator=generator)
    model = FullyConnected(widths, activation=activation).build(seed=1)
    with torch.no_grad():
        last = [layer for layer in model if isinstance(layer, nn.Linear)][-1]
        last.weight.mul_(scale)
    return curvature_map(model, (inputs, targets), loss, ranks=True)


@pytest.fixture(scope="module")
def old() -> CurvatureMap:
    return mapped()


@pytest.fixture(scope="module")
def doubled(old: CurvatureMap) -> MapComparison:
    """The last layer times two: the first layer's block is four times as sharp, the last layer's is as it was."""
    return compare_maps(old, mapped(scale=2.0), "one", "two")


def test_a_doubled_last_layer_makes_the_first_four_times_as_sharp_and_leaves_the_last(doubled: MapComparison) -> None:
    first, last = doubled.layers
    assert (first.name, last.name) == ("0", "2")
    assert first.top_eigenvalue.ratio == pytest.approx(4.0)
    assert first.trace.ratio == pytest.approx(4.0)
    assert last.top_eigenvalue.ratio == pytest.approx(1.0)
    assert first.rank.ratio == last.rank.ratio == 1.0
    assert first.curvature_share.new > first.curvature_share.old
    assert doubled.caveats == ()


def test_old_and_new_are_the_numbers_of_the_two_maps(old: CurvatureMap, doubled: MapComparison) -> None:
    new = mapped(scale=2.0)
    assert (doubled.risk.old, doubled.risk.new) == (old.network.risk, new.network.risk)
    assert (doubled.gradient_norm.old, doubled.gradient_norm.new) == (
        old.network.gradient_norm,
        new.network.gradient_norm,
    )
    for part, name in zip(doubled.parts, PARTS, strict=True):
        assert part.part == name
        assert (part.rank.old, part.rank.new) == (old.network[name].rank, new.network[name].rank)
        assert (part.norm.old, part.norm.new) == (old.network[name].spectrum.norm, new.network[name].spectrum.norm)


def test_the_summary_states_the_sharpest_change_first(doubled: MapComparison) -> None:
    layers = [verdict for verdict in doubled.summary if verdict.startswith("Layer")]
    assert layers[0].startswith("Layer 0: largest eigenvalue ")
    assert layers[0].endswith(", 4 times as sharp.")
    assert layers[1].endswith(", just as sharp.")
    assert "The ranks of the three Hessians are the same." in doubled.summary
    assert any(verdict.startswith("The risk rose from") for verdict in doubled.summary)


def test_a_map_against_itself_has_not_changed(old: CurvatureMap) -> None:
    comparison = compare_maps(old, old)
    assert comparison.summary == ("Nothing changed: every number of the two maps is the same.",)
    assert comparison.caveats == ()


def test_another_architecture_is_said_and_the_layers_that_fit_are_compared(old: CurvatureMap) -> None:
    deeper = compare_maps(old, mapped((5, 4, 6, 3)), "one", "two")
    assert [layer.name for layer in deeper.layers] == ["0"]
    (caveat,) = deeper.caveats
    assert "The networks differ: 5-4-3 and 5-4-6-3." in caveat
    assert "2 of one (3×4), 2 of two (6×4), 4 of two (3×6); the other layers are compared" in caveat
    wider = compare_maps(old, mapped((5, 7, 3)))
    assert wider.layers == ()
    assert "no layer can be compared" in wider.caveats[0]
    assert wider.summary


def test_another_activation_is_said(old: CurvatureMap) -> None:
    comparison = compare_maps(old, mapped(activation="tanh"))
    assert len(comparison.layers) == 2
    assert "may come from the activations" in comparison.caveats[0]


def test_another_loss_leaves_ratios_to_ranks_and_shares(old: CurvatureMap) -> None:
    comparison = compare_maps(old, mapped(loss="cross_entropy"))
    assert any("The losses differ: squared and cross_entropy." in caveat for caveat in comparison.caveats)
    layer = comparison.layers[0]
    assert (comparison.risk.ratio, comparison.parts[0].norm.ratio) == (None, None)
    assert (layer.top_eigenvalue.ratio, layer.trace.ratio) == (None, None)
    assert layer.rank.ratio is not None
    assert layer.curvature_share.ratio is not None
    assert not any("sharp" in verdict or "risk" in verdict for verdict in comparison.summary)


def test_other_data_are_said_and_the_effective_dimension_is_left_out(old: CurvatureMap) -> None:
    comparison = compare_maps(old, mapped(num_samples=30))
    (caveat,) = comparison.caveats
    assert caveat.startswith("The data differ (40 and 30 samples)")
    assert comparison.effective_dimension is None
    assert compare_maps(old, old).effective_dimension is not None


def test_without_a_hash_of_the_data_nothing_is_claimed_about_them(old: CurvatureMap) -> None:
    comparison = compare_maps(old, replace(old, provenance=None))
    assert comparison.caveats == ("It is unknown whether both were made on the same data.",)


@pytest.mark.parametrize(
    ("before", "after", "ratio"),
    [(2.0, 1.0, 0.5), (0.0, 1.0, None), (1.0, 0.0, None), (-1.0, -2.0, None), (1.0, float("inf"), None)],
)
def test_a_ratio_is_told_of_positive_numbers_alone(before: float, after: float, ratio: float | None) -> None:
    assert change(before, after).ratio == ratio
    assert change(before, after, same_units=False).ratio is None


def test_a_vanishing_block_does_not_break_the_comparison(old: CurvatureMap) -> None:
    layers = (replace(old.network.layers[0], top_eigenvalue=0.0), old.network.layers[1])
    flat = replace(old, network=replace(old.network, layers=layers))
    comparison = compare_maps(old, flat)
    assert comparison.summary[2].endswith("→ 0.")


def test_an_undecidable_rank_that_moved_is_called_so(old: CurvatureMap) -> None:
    part = old.network["loss"]
    doubtful = replace(part, measurement=replace(part.measurement, value=part.measurement.value - 1, decidable=False))
    network = replace(old.network, parts=(*old.network.parts[:2], doubtful))
    comparison = compare_maps(old, replace(old, network=network))
    assert [part.is_decidable for part in comparison.parts] == [True, True, False]
    assert "No clear gap for H_L" in comparison.summary[-1]


def test_a_comparison_survives_json(doubled: MapComparison) -> None:
    assert MapComparison.from_json(doubled.to_json()) == doubled
