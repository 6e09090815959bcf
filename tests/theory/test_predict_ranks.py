"""The public question: kinds of truth, generic values, what is said about them, and what is refused."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counted_work import num_lines
from exact_oracle import generic_hessians
from hessmap.errors import InvalidInput, UnknownName, UnsupportedNetwork
from hessmap.networks import FullyConnected
from hessmap.records import RankPrediction
from hessmap.theory import LOSSES, predict_ranks
from rank_settings import settings_with_ranks


def ranks(prediction):
    return prediction.outer_product.value, prediction.functional.value, prediction.loss.value


def kinds(prediction):
    return {prediction.outer_product.kind, prediction.functional.kind, prediction.loss.kind}


@pytest.mark.parametrize("bias", [False, True])
@given(data=st.data())
def test_given_integers_lead_to_the_exact_ranks(bias, data):
    setting = data.draw(settings_with_ranks(bias=bias))
    prediction = predict_ranks(
        FullyConnected(setting.widths, bias=bias),
        setting.loss,
        setting.input_rank,
        setting.residual_rank,
        setting.centred_input_rank,
        setting.mean_residual_is_zero,
    )
    assert ranks(prediction) == setting.hessians().ranks()
    assert prediction.outer_product.kind == "exact"
    assert kinds(prediction) <= ({"exact", "conjecture"} if bias else {"exact"})
    assert {rank.relation for rank in (prediction.functional, prediction.loss)} == {"equal"}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("loss", ["squared", "cross_entropy", "log_cosh"])
@pytest.mark.parametrize("mean_residual_is_zero", [False, True])
@pytest.mark.parametrize("widths", [(4, 3, 5), (3, 2, 4, 4), (2, 5)])
def test_left_out_integers_are_those_of_generic_data(widths, bias, loss, mean_residual_is_zero):
    network = FullyConnected(widths, bias=bias)
    prediction = predict_ranks(network, loss, mean_residual_is_zero=mean_residual_is_zero)
    generic = generic_hessians(widths, bias=bias, loss=loss, mean_residual_is_zero=mean_residual_is_zero)
    assert ranks(prediction) == generic.ranks()


def test_prediction_says_which_integers_it_used():
    prediction = predict_ranks(FullyConnected((6, 5, 4)), residual_rank=1)
    assert prediction.num_parameters == 50
    assert prediction.inputs == {
        "widths": (6, 5, 4),
        "bias": False,
        "activation": "identity",
        "loss": "squared",
        "input_rank": 6,
        "centred_input_rank": 6,
        "residual_rank": 1,
        "mean_residual_is_zero": False,
        "effective_output_dim": 4,
        "bottleneck_rank": 4,
        "active_bottleneck_rank": 1,
    }


def test_prediction_names_paper_and_correction():
    prediction = predict_ranks(FullyConnected((6, 5, 4)))
    assert prediction.loss.reference.startswith("Singh, Bachmann & Hofmann 2021, Fact 7, corrected")
    with_bias = predict_ranks(FullyConnected((6, 5, 4), bias=True))
    assert "Fact 13, corrected for bottlenecks" in with_bias.loss.reference


def test_assumed_integers_are_listed_and_given_ones_are_not():
    network = FullyConnected((6, 5, 4), bias=True)
    assumed = " | ".join(predict_ranks(network).assumptions)
    assert "input_rank is the input dimension 6" in assumed
    assert "centred_input_rank is input_rank 6" in assumed
    assert "residual_rank is the generic value 4" in assumed
    known = predict_ranks(network, input_rank=5, centred_input_rank=4, residual_rank=2)
    exact, conjecture = known.assumptions
    assert exact == "exact: generic weights and generic residual, its scale included"
    assert conjecture.startswith("conjecture: generic weights")
    assert "not proved" in conjecture
    plain = predict_ranks(FullyConnected((6, 5, 4)), input_rank=5, residual_rank=2)
    assert plain.assumptions == ("generic weights and generic residual, its scale included",)


def test_with_bias_the_centred_rank_alone_is_enough():
    network = FullyConnected((3, 4, 2), bias=True)
    prediction = predict_ranks(network, centred_input_rank=1)
    assert ranks(prediction) == ranks(predict_ranks(network, input_rank=2, centred_input_rank=1)) == (4, 16, 18)
    assert prediction.inputs["input_rank"] is None


def test_cross_entropy_sees_one_output_less_and_keeps_the_parameters():
    softmax = predict_ranks(FullyConnected((6, 5, 4)), "cross_entropy")
    squared = predict_ranks(FullyConnected((6, 5, 3)))
    assert ranks(softmax) == ranks(squared)
    assert softmax.num_parameters == 50
    assert "softmax probabilities strictly between 0 and 1" in softmax.assumptions


def test_softmax_over_one_output_has_no_curvature():
    assert ranks(predict_ranks(FullyConnected((6, 5, 1), bias=True), "cross_entropy")) == (0, 0, 0)


def test_any_positive_definite_loss_has_the_ranks_of_the_squared_loss():
    network = FullyConnected((6, 5, 4), bias=True)
    assert len({ranks(predict_ranks(network, loss)) for loss in LOSSES if loss != "cross_entropy"}) == 1


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("widths", "activation"), [((6, 5, 5, 4), "relu"), ((6, 5, 4), "tanh")])
def test_non_linear_networks_get_the_linear_formula_as_numerical_rank(widths, activation, bias):
    bent = predict_ranks(FullyConnected(widths, bias=bias, activation=activation))
    assert kinds(bent) == {"numerical"}
    assert ranks(bent) == ranks(predict_ranks(FullyConnected(widths, bias=bias)))
    assert "neither a theorem nor a bound" in bent.assumptions[0]


def test_relu_upper_bounds_are_those_that_40_samples_reach():
    bounds = predict_ranks(FullyConnected((4, 5, 2), activation="relu"), kind="upper_bound")
    assert ranks(bounds) == (25, 20, 30)
    assert kinds(bounds) == {"upper_bound"}
    assert "Fact 11" in bounds.outer_product.reference


def test_other_activations_have_no_rescaling_to_lose():
    bounds = predict_ranks(FullyConnected((4, 5, 2), activation="tanh"), input_rank=3, kind="upper_bound")
    assert ranks(bounds) == (25, 25, 25)


def test_linear_networks_have_their_generic_rank_as_upper_bound():
    network = FullyConnected((6, 5, 4))
    bounds = predict_ranks(network, kind="upper_bound")
    assert kinds(bounds) == {"upper_bound"}
    assert ranks(bounds) == ranks(predict_ranks(network))


def test_exactness_is_not_claimed_for_non_linear_networks():
    message = r"exact rank formula needs a linear network; this one has activation 'relu'\. Use kind='numerical'"
    with pytest.raises(InvalidInput, match=message):
        predict_ranks(FullyConnected((6, 5, 5, 4), activation="relu"), kind="exact")


@pytest.mark.parametrize("kind", [None, "exact"])
def test_one_hidden_layer_of_relus_has_exact_ranks_on_many_samples(kind):
    network = FullyConnected((5, 3, 2), activation="relu")
    found = predict_ranks(network, kind=kind)
    assert ranks(found) == (18, 12, 21)
    assert kinds(found) == {"exact"}
    assert any("critical point H_L has rank 18" in note for note in found.assumptions)
    assert ranks(predict_ranks(network, "cross_entropy", kind=kind)) == (15, 6, 18)


@pytest.mark.parametrize("given", [{"num_samples": 50}, {"residual_rank": 1}, {"input_rank": 1}])
def test_exact_ranks_of_one_hidden_layer_need_a_general_question(given):
    found = predict_ranks(FullyConnected((5, 3, 2), activation="relu"), **given)
    assert kinds(found) == {"numerical"}


def test_prediction_survives_json():
    prediction = predict_ranks(FullyConnected((6, 5, 4), bias=True, activation="tanh"), "cross_entropy")
    assert RankPrediction.from_json(prediction.to_json()) == prediction


def test_integers_of_numpy_do_not_overflow():
    network = FullyConnected((10**6, 10**6, 10**6))
    prediction = predict_ranks(network, input_rank=np.int32(10**6), residual_rank=np.int32(10**6))
    assert prediction.functional.value == 2 * 10**12
    assert type(prediction.inputs["residual_rank"]) is int


@pytest.mark.parametrize("bias", [False, True])
def test_a_hundred_thousand_layers_of_a_million_units_are_a_few_lines_each_and_lose_no_digit(bias):
    network = FullyConnected([10**6] * (10**5 + 1), bias=bias)
    assert num_lines(lambda: predict_ranks(network)) < (60 if bias else 40) * 10**5
    prediction = predict_ranks(network)
    assert prediction.loss.value == network.num_parameters == 10**5 * (10**12 + bias * 10**6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_rank": 7}, r"input_rank must be at most 6, the input dimension; got 7"),
        ({"centred_input_rank": 7}, r"centred_input_rank must be at most 6, the input dimension; got 7"),
        ({"input_rank": 3, "centred_input_rank": 4}, r"one more; input_rank is 3, centred_input_rank 4\."),
        ({"input_rank": 5, "centred_input_rank": 3}, r"one more; input_rank is 5, centred_input_rank 3\."),
        ({"residual_rank": 5}, r"residual_rank must be at most 4, the largest for these inputs, .*; got 5"),
        ({"residual_rank": 4, "loss": "cross_entropy"}, r"residual_rank must be at most 3, .*; got 4"),
        ({"input_rank": 2, "residual_rank": 3}, r"residual_rank must be at most 2, .*; got 3"),
        ({"input_rank": 1.5}, r"input_rank must be an integer; got 1\.5"),
        ({"mean_residual_is_zero": 1}, r"mean_residual_is_zero must be True or False; got 1"),
    ],
)
def test_integers_that_cannot_be_are_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        predict_ranks(FullyConnected((6, 5, 4)), **options)


def test_without_bias_a_residual_of_zero_mean_sees_the_centred_inputs_only():
    network, data = FullyConnected((5, 4, 4)), {"input_rank": 3, "centred_input_rank": 2, "mean_residual_is_zero": True}
    prediction = predict_ranks(network, **data)
    assert prediction.inputs["residual_rank"] == 2
    assert ranks(prediction) == generic_hessians(network.widths, **data).ranks()
    with pytest.raises(InvalidInput, match=r"residual_rank must be at most 2, .*; got 3"):
        predict_ranks(network, residual_rank=3, **data)


def test_bias_lets_the_residual_have_one_rank_more():
    assert predict_ranks(FullyConnected((2, 5, 4), bias=True), residual_rank=3).inputs["residual_rank"] == 3
    with pytest.raises(InvalidInput, match=r"residual_rank must be at most 2, .*; got 3"):
        predict_ranks(FullyConnected((2, 5, 4), bias=True), residual_rank=3, mean_residual_is_zero=True)


def test_unknown_names_are_answered_with_near_ones():
    with pytest.raises(UnknownName, match=r"loss must be one of .*; got 'sqared'\. Did you mean 'squared'\?"):
        predict_ranks(FullyConnected((3, 2)), "sqared")
    known = "exact, conjecture, upper_bound, numerical"
    with pytest.raises(UnknownName, match=rf"kind must be one of {known}; got 'numeric'"):
        predict_ranks(FullyConnected((3, 2)), kind="numeric")


def test_what_is_no_architecture_is_refused_with_the_way_on():
    with pytest.raises(UnsupportedNetwork, match=r"such as FullyConnected, .*; got a object\. Use networks\.describe"):
        predict_ranks(object())
    with pytest.raises(InvalidInput, match=r"such as FullyConnected, .*; got \(3, 2\)\. Use FullyConnected\(widths\)"):
        predict_ranks((3, 2))


def test_predicting_loads_no_torch():
    code = (
        "import sys; from hessmap.networks import FullyConnected; from hessmap.theory import predict_ranks;"
        "predict_ranks(FullyConnected((3, 2, 1))); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
