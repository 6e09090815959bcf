"""The map of curvature: prediction and measurement side by side, on networks small enough to check by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hessmap.errors import InvalidInput
from hessmap.hessians.operators import loss_hessian, outer_product_hessian
from hessmap.maps.curvature_map import curvature_map, linear_counterpart
from hessmap.maps.curvature_map.curvature_map import rank_agreement
from hessmap.networks import FullyConnected
from hessmap.problem.problem import Problem
from hessmap.records import CurvatureMap, RankValue

Data = tuple[Tensor, Tensor]
map_with_ranks = partial(curvature_map, ranks=True)


def labelled(num_samples: int, input_dim: int, num_classes: int, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_samples, input_dim, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(num_classes, (num_samples,), generator=generator)


def of_theory(found: CurvatureMap) -> str:
    """The first finding about theorems or conjectures."""
    return next(text for text in found.summary if "theorem" in text or "conjecture" in text)


@pytest.fixture(scope="module")
def relu_map() -> CurvatureMap:
    model = FullyConnected((6, 5, 4, 3), activation="relu").build(seed=1)
    return map_with_ranks(model, labelled(60, 6, 3), "squared")


@pytest.mark.parametrize("loss", ["squared", "cross_entropy", "log_cosh"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("widths", [(5, 4, 3), (6, 5, 4, 3), (4, 2, 5, 3), (2, 6, 5)])
def test_the_ranks_without_activations_are_the_predicted_ones(widths: tuple[int, ...], bias: bool, loss: str) -> None:
    model = FullyConnected(widths, bias=bias, activation="tanh").build(seed=3)
    found = map_with_ranks(model, labelled(80, widths[0], widths[-1]), loss)
    linear = found.linear_counterpart
    assert linear is not None
    kinds = ["exact", *["conjecture" if bias else "exact"] * 2]
    assert [part.prediction.kind for part in linear.parts if part.prediction] == kinds
    for part in linear.parts:
        assert part.prediction is not None
        assert part.measurement.value == part.prediction.value, part
    source = "theorem and the conjecture" if bias else "theorem"
    assert of_theory(found).startswith(
        f"Without activations (same weights), the measured ranks match the {source}: H_o"
    )


def test_inputs_of_lower_rank_lower_the_prediction_and_the_measurement() -> None:
    inputs, labels = labelled(50, 3, 3)
    inputs = torch.cat([inputs, inputs[:, :2], torch.zeros(50, 1, dtype=torch.float64)], dim=1)
    linear = map_with_ranks(
        FullyConnected((6, 4, 3), activation="relu").build(), (inputs, labels), "squared"
    ).linear_counterpart
    assert linear is not None
    assert linear.data_ranks.input_rank.value == 3
    assert linear.prediction is not None
    assert linear.prediction.outer_product.value == 3 * (3 + 3 - 3)
    assert all(part.agrees for part in linear.parts)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_with_bias_a_constant_feature_lowers_the_rank_of_the_inputs_that_counts(loss: str) -> None:
    inputs, labels = labelled(50, 3, 5)
    inputs[:, 0] = 1.5
    model = FullyConnected((3, 6, 5), bias=True, activation="tanh").build(seed=1)
    linear = map_with_ranks(model, (inputs, labels), loss).linear_counterpart
    assert linear is not None
    assert (linear.data_ranks.input_rank.value, linear.data_ranks.centred_input_rank.value) == (3, 2)
    assert all(part.agrees for part in linear.parts)


def test_a_stationary_last_bias_is_noticed_and_predicted() -> None:
    inputs, labels = labelled(50, 4, 3)
    model = FullyConnected((4, 5, 3), bias=True).build(seed=1)
    with torch.no_grad():
        model[2].bias += (nn.functional.one_hot(labels, 3) - model(inputs)).mean(0)
    network = map_with_ranks(model, (inputs, labels), "squared").network
    assert network.data_ranks.mean_residual_is_zero
    assert all(part.agrees for part in network.parts)


def test_a_linear_network_is_compared_with_the_theorem_itself() -> None:
    found = map_with_ranks(FullyConnected((5, 4, 3)).build(), labelled(40, 5, 3), "squared")
    assert found.linear_counterpart is None
    assert [part.agrees for part in found.network.parts] == [True, True, True]
    assert of_theory(found).startswith("The measured ranks match the theorem")


def test_a_disagreement_is_said_and_explained() -> None:
    """Weights that are not generic: two layers whose product vanishes have fewer directions than the theorem says."""
    model = FullyConnected((4, 3, 3, 2)).build(seed=0)
    with torch.no_grad():
        model[0].weight[1:] = 0.0
    found = map_with_ranks(model, labelled(40, 4, 2), "squared")
    assert not all(part.agrees for part in found.network.parts)
    assert "contradict the theorem" in of_theory(found)
    assert "generic weights" in of_theory(found)


def test_a_rank_against_a_conjecture_is_called_a_counterexample_unless_the_weights_are_special() -> None:
    """The same measurements beside a conjecture that is one too low."""
    model = FullyConnected((4, 3, 3, 2), bias=True).build(seed=0)
    network = map_with_ranks(model, labelled(40, 4, 2), "squared").network
    loss = network["loss"]
    assert loss.prediction is not None
    assert loss.agrees
    wrong = replace(loss, prediction=replace(loss.prediction, value=loss.rank - 1))
    departing = replace(network, parts=(*network.parts[:2], wrong))
    text = rank_agreement(departing)
    assert f"contradict the conjecture: H_L has rank {loss.rank}, conjectured {loss.rank - 1}." in text
    assert "this is a counterexample to the conjecture, the first after 10,800 networks without one" in text
    stationary = replace(departing, gradient_norm=0.0)
    assert "counterexample" not in rank_agreement(stationary)
    bound = replace(loss, prediction=RankValue(loss.rank, "conjecture", "a law", "bound", 500))
    within = rank_agreement(replace(network, parts=(*network.parts[:2], bound)))
    assert "are within the bounds" in within


def test_a_network_with_bias_in_some_layers_is_compared_with_its_formula() -> None:
    inputs, labels = labelled(40, 4, 3)
    for biases in ((True, False, False), (False, True, False), (False, False, True)):
        model = FullyConnected((4, 3, 5, 3), bias=biases).build(seed=2)
        network = map_with_ranks(model, (inputs, labels), "squared").network
        assert network.prediction_gap == ""
        assert [part.agrees for part in network.parts] == [True] * 3


def test_nothing_is_predicted_where_no_theorem_or_bound_applies(relu_map: CurvatureMap) -> None:
    assert relu_map.network.prediction is not None
    assert relu_map.network.prediction.loss.kind == "numerical"
    assert [part.prediction for part in relu_map.network.parts] == [None, None, None]
    assert [part.agrees for part in relu_map.network.parts] == [None, None, None]
    assert any(text.startswith("No theorem covers the ranks of this network") for text in relu_map.summary)


def test_spectra_and_layers_are_those_of_the_hessians(relu_map: CurvatureMap) -> None:
    model = FullyConnected((6, 5, 4, 3), activation="relu").build(seed=1)
    problem = Problem(model, "squared", *labelled(60, 6, 3))
    whole = loss_hessian(problem).to_dense().numpy()
    outer = outer_product_hessian(problem).to_dense().numpy()
    spectrum = relu_map.network["loss"].spectrum
    assert np.allclose(spectrum.eigenvalues, np.linalg.eigvalsh(whole)[::-1], atol=1e-12 * spectrum.norm)
    first = slice(0, 30)
    layer = relu_map.network.layers[0]
    assert (layer.name, layer.shape, layer.num_parameters) == ("0", "5×6", 30)
    assert layer.trace == pytest.approx(np.trace(whole[first, first]))
    assert layer.top_eigenvalue == pytest.approx(np.linalg.eigvalsh(whole[first, first])[-1])
    assert layer.curvature_share == pytest.approx(np.trace(outer[first, first]) / np.trace(outer))
    assert sum(layer.curvature_share for layer in relu_map.network.layers) == pytest.approx(1.0)
    assert relu_map.network.gradient_norm == pytest.approx(float(problem.gradient().norm()))


def test_findings_quote_what_was_measured_and_repeat_no_table(relu_map: CurvatureMap) -> None:
    network = relu_map.network
    text = " ".join(relu_map.summary)
    eigenvalues = network["loss"].spectrum.eigenvalues
    negative = int((eigenvalues < -network["loss"].measurement.threshold).sum())
    assert negative > 0
    assert f"{negative} of 62 eigenvalues are negative (the lowest is {eigenvalues.min():.2g}" in text
    most = max(network.layers, key=lambda layer: layer.direction_share or 0.0)
    assert f"{most.direction_share:.0%} of the sharpest direction (squared norm) is in layer {most.name}" in text
    assert len(relu_map.summary) <= 5
    whole = network.whole
    assert whole is not None
    assert whole.sharpness_text not in text


def test_ranks_are_computed_on_request_only(relu_map: CurvatureMap) -> None:
    model = FullyConnected((6, 5, 4, 3), activation="relu").build(seed=1)
    said: list[str] = []
    found = curvature_map(model, labelled(60, 6, 3), "squared", progress=said.append)
    assert found.linear_counterpart is None
    assert not found.network.has_ranks
    assert relu_map.network.has_ranks
    assert [part.part for part in found.network.parts] == ["outer_product", "loss"]
    assert (found.network.prediction, found.network.data_ranks, found.network.prediction_gap) == (None, None, "")
    assert not any("H_f" in text or "activations" in text for text in said)
    assert found.network.whole == relu_map.network.whole
    assert found.network.layers == relu_map.network.layers
    assert not any("rank" in text or "theorem" in text for text in found.summary)
    assert curvature_map(model, labelled(60, 6, 3), "squared", certify=True).network.has_ranks


def test_weights_and_biases_of_a_layer_share_its_row() -> None:
    found = map_with_ranks(FullyConnected((4, 3, 2), bias=True, activation="relu").build(), labelled(30, 4, 2))
    assert [(layer.name, layer.shape) for layer in found.network.layers] == [("0", "3×4 + 3"), ("2", "2×3 + 2")]
    assert sum(layer.num_parameters for layer in found.network.layers) == found.network.num_parameters


@pytest.mark.parametrize("bias", [False, True])
def test_the_linear_counterpart_is_the_network_without_activations_up_to_one_factor(bias: bool) -> None:
    model = FullyConnected((5, 4, 3, 2), bias=bias, activation="relu").build(seed=2)
    problem = Problem(model, "cross_entropy", *labelled(40, 5, 2))
    linear = linear_counterpart(problem)
    assert linear is not None
    expected = problem.inputs
    for layer in (model[0], model[2], model[4]):
        expected = layer(expected)
    expected = expected.detach()
    assert torch.allclose(linear.outputs(), expected / expected.square().mean().sqrt(), rtol=1e-12)
    assert linear.outputs().square().mean().item() == pytest.approx(1.0)


def test_without_a_description_the_map_says_why_there_is_no_prediction() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    found = map_with_ranks(model, labelled(30, 4, 2))
    assert found.network.prediction is None
    assert "the same activation" in found.network.prediction_gap
    assert found.linear_counterpart is None
    assert all(part.prediction is None and part.agrees is None for part in found.network.parts)
    assert len(found.network.layers) == 3


def test_a_convolutional_network_is_measured_layer_by_layer() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(20, 1, 5, 5, generator=generator, dtype=torch.float64)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(18, 2)).double()
    found = map_with_ranks(model, (images, torch.randint(2, (20,), generator=generator)))
    assert [layer.shape for layer in found.network.layers] == ["2×1×3×3 + 2", "2×18 + 2"]
    assert "nn.Linear" in found.network.prediction_gap


def test_frozen_parameters_leave_the_prediction_out() -> None:
    model = FullyConnected((4, 3, 2)).build()
    model[0].weight.requires_grad_(False)
    found = map_with_ranks(model, labelled(30, 4, 2), "squared")
    assert found.network.num_parameters == 6
    assert "0.weight is frozen" in found.network.prediction_gap


def test_an_activated_network_with_frozen_parameters_has_no_linear_counterpart() -> None:
    model = FullyConnected((4, 3, 2), activation="relu").build()
    model[0].weight.requires_grad_(False)
    assert map_with_ranks(model, labelled(30, 4, 2), "squared").linear_counterpart is None


def test_an_own_loss_is_measured_without_a_prediction() -> None:
    def cubic(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs**3).sum(1) + outputs.square().sum(1)

    found = map_with_ranks(FullyConnected((4, 3, 2)).build(), labelled(30, 4, 2), cubic)
    assert found.network.prediction is None
    assert "loss must be one of" in found.network.prediction_gap


def test_a_loader_gives_the_same_map_as_its_tensors() -> None:
    inputs, labels = labelled(30, 4, 2)
    model = FullyConnected((4, 3, 2), activation="relu").build()
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=7)
    from_loader, from_tensors = map_with_ranks(model, loader), map_with_ranks(model, (inputs, labels))
    found, expected = (made.network["loss"].spectrum.eigenvalues for made in (from_loader, from_tensors))
    assert np.allclose(found, expected, rtol=0, atol=1e-12)


def test_the_certified_ranks_stand_beside_the_measured_ones() -> None:
    model = FullyConnected((6, 5, 3), activation="relu").build(seed=1)
    found = map_with_ranks(model, labelled(60, 6, 3), "squared", certify=True)
    for network in found.networks:
        for part in network.parts:
            assert part.certificate is not None
            assert part.certificate.value == part.measurement.value
    assert map_with_ranks(model, labelled(60, 6, 3), "squared", certify=False).network["loss"].certificate is None


def test_a_certificate_that_cannot_be_had_leaves_a_note() -> None:
    found = map_with_ranks(FullyConnected((4, 3, 2)).build(), labelled(30, 4, 2), "cross_entropy", certify=True)
    assert found.network["loss"].certificate is None
    assert any("no certified rank" in note and "squared loss" in note for note in found.network.notes)


def test_exact_arithmetic_decides_where_the_measured_rank_depends_on_the_threshold() -> None:
    """A feature scaled by 3e-6 puts eigenvalues near 1e-11 of the norm: floats cannot tell, the field can."""
    inputs, labels = labelled(40, 4, 2)
    inputs[:, 0] *= 2.0**-18
    found = map_with_ranks(FullyConnected((4, 3, 2)).build(seed=5), (inputs, labels), "squared")
    part = found.network["outer_product"]
    assert not part.measurement.decidable
    assert part.certificate is not None
    assert part.agrees
    assert "exact arithmetic" in of_theory(found)


def test_a_flat_network_has_rank_zero_everywhere() -> None:
    model = FullyConnected((4, 3, 3, 2), activation="relu").build()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    found = map_with_ranks(model, labelled(30, 4, 2))
    assert [part.measurement.value for network in found.networks for part in network.parts] == [0] * 6
    assert "No eigenvalue of the Hessian is negative beyond rounding." in found.summary


def test_the_model_stays_as_it_was() -> None:
    model = FullyConnected((4, 3, 2), activation="relu").build().float().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    map_with_ranks(model, labelled(30, 4, 2))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_progress_is_told_of_every_network_with_the_bytes() -> None:
    told: list[str] = []
    map_with_ranks(FullyConnected((4, 3, 2), activation="relu").build(), labelled(30, 4, 2), progress=told.append)
    assert any("network without activations" in text for text in told)
    assert any("18 parameters" in text and "KiB" in text for text in told)


def test_the_map_goes_to_json_and_back(relu_map: CurvatureMap) -> None:
    assert CurvatureMap.from_json(relu_map.to_json()) == relu_map


def test_the_map_is_html_in_a_notebook(relu_map: CurvatureMap) -> None:
    shown = relu_map._repr_html_()
    assert shown.count("<table>") == 3
    assert "network without activations" in shown


def test_an_unknown_loss_is_named() -> None:
    with pytest.raises(InvalidInput, match="loss must be one of"):
        map_with_ranks(FullyConnected((4, 3, 2)).build(), labelled(30, 4, 2), "sqared")
