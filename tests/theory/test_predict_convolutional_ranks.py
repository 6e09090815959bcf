"""predict_ranks for convolutional and locally connected networks: values, kinds of truth, references, refusals."""

from dataclasses import replace

import pytest

from golden_cases import golden, stored_ranks
from golden_tables import each
from hessmap.errors import InvalidInput
from hessmap.exact import generic_rank
from hessmap.networks import Convolutional, FullyConnected, LocallyConnected
from hessmap.records import PARTS
from hessmap.theory import predict_ranks
from hessmap.theory.convolutional import deep_bounds as deep_convolutional


def values(prediction):
    return tuple(getattr(prediction, part).value for part in PARTS)


def kinds(prediction):
    return tuple(getattr(prediction, part).kind for part in PARTS)


def one_hidden(case):
    return Convolutional(case["d0"], (case["m0"], case["m"]), (case["k"],), (case["stride"],), case["K"])


@each(golden("cnn1"))
def test_one_hidden_convolution_is_predicted_exactly(case):
    prediction = predict_ranks(one_hidden(case))
    assert values(prediction) == stored_ranks(case, "true")
    assert kinds(prediction) == ("exact",) * 3
    assert prediction.num_parameters == case["n_params"]


@each(golden("cnn1_r_lt_d"))
def test_inputs_of_low_rank_leave_one_exact_rank_and_two_bounds(case):
    prediction = predict_ranks(one_hidden(case), input_rank=case["r"], residual_rank=case["s"])
    outer, functional, loss = stored_ranks(case, "true")
    assert prediction.functional.value == functional
    assert prediction.functional.kind == "exact"
    for rank, true in ((prediction.outer_product, outer), (prediction.loss, loss)):
        assert rank.allows(true)


@each(golden("cnn_deep"))
def test_deep_convolutions_have_bounds_at_least_as_sharp_as_the_printed_ones(case):
    network = Convolutional(case["d0"], (1, *case["channels"]), case["kernels"], outputs=case["K"])
    prediction = predict_ranks(network)
    assert prediction.outer_product.value == stored_ranks(case, "true")[0]
    assert prediction.outer_product.kind_text in ("exact", "conjecture")  # exact where narrowest vertices cut it short
    assert prediction.functional.kind_text in ("conjectured bound", "upper bound")
    assert (prediction.loss.kind_text, prediction.loss.value) == ("conjecture", stored_ranks(case, "true")[2])
    proved = predict_ranks(network, kind="upper_bound")
    assert kinds(proved) == ("upper_bound",) * 3
    for found in (values(prediction), values(proved)):
        assert all(predicted >= true for predicted, true in zip(found, stored_ranks(case, "true"), strict=True))
    printed = case["paper"]
    assert prediction.outer_product.value <= printed["Ho_bound"]
    assert prediction.functional.value <= sum(printed["Hf_col_bounds"])
    if case["s"] == prediction.inputs["bottleneck_rank"]:
        assert prediction.functional.value <= printed["cor12"]


@each(golden("lcn", "lcn_ws"))
def test_networks_on_patches_are_predicted_exactly_for_every_residual_rank(case):
    net = LocallyConnected(case["t"], case["k"], case["m"], case["K"], shared_weights=case["family"] == "lcn_ws")
    prediction = predict_ranks(net, residual_rank=case["s"])
    assert values(prediction) == stored_ranks(case, "true")
    assert kinds(prediction) == ("exact",) * 3


def test_the_outer_product_of_low_rank_inputs_is_a_bound_that_is_not_always_reached():
    """The exact rank of this setting is 49."""
    prediction = predict_ranks(Convolutional(11, (1, 3), (10,), outputs=5), input_rank=10)
    assert (prediction.outer_product.value, prediction.outer_product.kind) == (50, "upper_bound")


def test_a_shared_network_is_a_convolution_that_moves_by_its_kernel():
    shared = predict_ranks(LocallyConnected(3, 4, 2, 5, shared_weights=True))
    sliding = predict_ranks(Convolutional(12, (1, 2), (4,), (4,), 5))
    assert values(shared) == values(sliding)


def test_a_kernel_of_one_on_one_position_is_a_fully_connected_network():
    dense = predict_ranks(FullyConnected((4, 3, 2)), residual_rank=1)
    assert values(predict_ranks(LocallyConnected(1, 4, 3, 2), residual_rank=1)) == values(dense)
    assert values(predict_ranks(Convolutional(1, (4, 3), (1,), outputs=2))) == values(
        predict_ranks(FullyConnected((4, 3, 2)))
    )


def test_inputs_that_no_filter_meets_do_not_count():
    """Stride 3 with kernel 2 on length 8 meets 6 inputs of 8, so rank 6 is as good as 8."""
    net = Convolutional(8, (1, 2), (2,), (3,), 3)
    assert values(predict_ranks(net, input_rank=6)) == values(predict_ranks(net))
    assert kinds(predict_ranks(net, input_rank=6)) == ("exact",) * 3
    assert predict_ranks(net, input_rank=5).outer_product.kind == "upper_bound"


@pytest.mark.parametrize(
    "net",
    [
        Convolutional(9, (1, 3), (4,), outputs=4),
        Convolutional(9, (2, 3, 2), (4, 2), outputs=4),
        LocallyConnected(3, 2, 2, 4),
        LocallyConnected(3, 2, 2, 4, shared_weights=True),
    ],
    ids=str,
)
def test_cross_entropy_sees_one_output_less_and_the_same_parameters(net):
    smaller = type(net).parse(str(net).replace("-4", "-3"))
    softmax = predict_ranks(net, loss="cross_entropy")
    assert values(softmax) == values(predict_ranks(smaller))
    assert softmax.num_parameters == net.num_parameters
    assert values(predict_ranks(net, loss="log_cosh")) == values(predict_ranks(net))


def test_a_softmax_over_one_output_has_no_curvature():
    for net in (Convolutional(5, (1, 2), (2,), outputs=1), LocallyConnected(2, 2, 1, 1)):
        assert values(predict_ranks(net, loss="cross_entropy")) == (0, 0, 0)


def test_without_residual_the_loss_hessian_is_the_outer_product():
    for net in (Convolutional(7, (1, 2), (3,), outputs=3), Convolutional(7, (1, 2, 2), (3, 2), outputs=3)):
        prediction = predict_ranks(net, residual_rank=0)
        assert prediction.functional.value == 0
        assert prediction.loss.value == prediction.outer_product.value


def test_an_exact_rank_that_nobody_knows_is_refused_with_generic_rank():
    with pytest.raises(InvalidInput, match=r"outer_product Hessian of conv-1x9-2x3-2x3-4 only a conj.*generic_rank"):
        predict_ranks(Convolutional(9, (1, 2, 2), (3, 3), outputs=4), kind="exact")
    with pytest.raises(InvalidInput, match=r"needs a linear network; this one has activation 'relu'\. Use kind="):
        predict_ranks(Convolutional(9, (1, 2), (3,), outputs=4, activation="relu"), kind="exact")
    with pytest.raises(InvalidInput, match=r"loss Hessian of conv-1x9-3x8-5 only a.* bound is known"):
        predict_ranks(Convolutional(9, (1, 3), (8,), outputs=5), residual_rank=2, kind="exact")
    assert kinds(predict_ranks(LocallyConnected(5, 4, 3, 2), kind="exact")) == ("exact",) * 3


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_non_linear_networks_have_the_linear_value_as_numerical_rank(activation):
    linear, curved = (Convolutional(9, (1, 3, 2), (3, 3), outputs=4, activation=a) for a in ("identity", activation))
    prediction = predict_ranks(curved)
    assert values(prediction) == values(predict_ranks(linear))
    assert kinds(prediction) == ("numerical",) * 3
    assert "the linear formula or bound" in prediction.assumptions[0]


def test_relu_networks_have_bounds_by_filters():
    """8 filters of 3 taps on 18 places, 10 outputs: rescaling takes one direction each, a filter has three taps."""
    net = Convolutional(20, (1, 8), (3,), outputs=10, activation="relu")
    bounds = predict_ranks(net, kind="upper_bound")
    assert values(bounds) == (net.num_parameters - 8, 2 * 8 * 3, net.num_parameters)
    assert kinds(bounds) == ("upper_bound",) * 3
    own = predict_ranks(LocallyConnected(5, 4, 3, 2, activation="relu"), kind="upper_bound")
    assert values(own) == (90 - 15, 2 * 15 * 2, 90)
    tanh = predict_ranks(Convolutional(20, (1, 8), (3,), outputs=10, activation="tanh"), kind="upper_bound")
    assert values(tanh) == (net.num_parameters,) * 3


def test_each_rank_names_its_source_and_mixed_kinds_their_meaning():
    prediction = predict_ranks(Convolutional(9, (1, 3), (4,), outputs=4), input_rank=5)
    assert kinds(prediction) == ("upper_bound", "exact", "upper_bound")
    assert all(getattr(prediction, part).reference for part in PARTS)
    assert prediction.assumptions[0].startswith("upper bound: any weights")
    assert prediction.assumptions[1].startswith("exact: generic weights")


def test_the_deep_loss_bound_is_sharper_than_both_parts_added():
    """The exact ranks of this network are 24, 29 and 52, the bounds 24, 48 and 71."""
    sizes, parameters = deep_convolutional.convolutional_sizes(12, (1, 3, 3), (2, 2), outputs=2)
    outer = deep_convolutional.outer_product_upper_bound(sizes, parameters)
    columns = sum(deep_convolutional.functional_column_upper_bounds(sizes, parameters))
    assert deep_convolutional.loss_upper_bound(sizes, parameters) == outer + columns - 1 < sum(parameters)


BIASED = [
    Convolutional(7, (1, 2), (3,), outputs=3, bias=True),
    Convolutional(6, (2, 1), (2,), outputs=4, bias=(False, True)),
    Convolutional(8, (1, 2, 2), (3, 2), outputs=3, bias=True),
    Convolutional(8, (1, 2, 2), (3, 2), outputs=2, bias=(True, False, True)),
]


@pytest.mark.parametrize("net", BIASED, ids=str)
@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_a_last_bias_adds_the_outputs_to_the_rank_without_bias(net, loss):
    outputs = net.outputs - (loss == "cross_entropy")
    plain, biased = (predict_ranks(one, loss) for one in (replace(net, bias=False), net))
    assert biased.outer_product.value == plain.outer_product.value + outputs
    assert biased.outer_product.kind == plain.outer_product.kind
    for is_zero in (False, True):
        known = {"loss": loss, "mean_residual_is_zero": is_zero}
        prediction = predict_ranks(net, **known)
        for part in PARTS:
            exact, claim = generic_rank(net, part, **known).value, getattr(prediction, part)
            assert claim.allows(exact)
    without_bias = generic_rank(replace(net, bias=False), "loss", loss).value
    assert generic_rank(net, "loss", loss, mean_residual_is_zero=True).value == without_bias + outputs


def test_without_a_last_bias_the_outputs_are_only_a_bound():
    net = Convolutional(7, (1, 2), (3,), outputs=3, bias=(True, False))
    claim = predict_ranks(net).outer_product
    assert claim.kind == "upper_bound"
    assert generic_rank(net, "outer_product").value <= claim.value
