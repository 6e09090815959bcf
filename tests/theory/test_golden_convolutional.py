"""Stored exact ranks of convolutional and locally connected networks: formulas and bounds."""

from golden_cases import families, golden, stored_ranks
from golden_tables import each
from hessmap.networks import Convolutional
from hessmap.theory import locally_connected as locally_connected
from hessmap.theory import predict_ranks
from hessmap.theory.convolutional import deep_bounds as deep_convolutional
from hessmap.theory.convolutional import one_layer as convolutional


def convolution(case):
    names = ("d0", "k", "m", "K", "m0", "stride")
    net = convolutional.OneHiddenConvolution(*(case[name] for name in names))
    assert (net.positions, net.num_parameters) == (case["d1"], case["n_params"])
    return net


def patch_integers(case):
    return case["t"], case["k"], case["m"], case["K"]


@each(golden("cnn1"))
def test_one_hidden_convolution_has_the_stored_exact_ranks(case):
    net = convolution(case)
    outer, functional = convolutional.outer_product_rank(net), convolutional.functional_rank(net, case["s"])
    predicted = (outer, functional, convolutional.loss_rank(net))
    assert predicted == stored_ranks(case, "true") == stored_ranks(case, "corrected")


@each(golden("cnn1"))
def test_the_bound_of_deep_convolutions_is_the_printed_one(case):
    net = convolution(case)
    sizes, parameters = deep_convolutional.convolutional_sizes(
        net.input_length, (net.channels, net.filters), [net.kernel], net.outputs, [net.stride]
    )
    assert sum(parameters) == case["n_params"]
    assert deep_convolutional.outer_product_upper_bound(sizes, parameters) == case["paper"]["Ho_thm5"]


@each(golden("cnn1_r_lt_d"))
def test_inputs_of_low_rank_give_the_stored_ranks_and_a_valid_bound(case):
    net, (outer, functional, loss) = convolution(case), stored_ranks(case, "true")
    assert outer <= convolutional.outer_product_upper_bound(net, case["r"]) == case["corrected"]["Ho"]
    assert convolutional.functional_rank(net, case["s"]) == functional == case["corrected"]["Hf"]
    network = Convolutional(net.input_length, (net.channels, net.filters), [net.kernel], [net.stride], net.outputs)
    predicted = predict_ranks(network, input_rank=case["r"], residual_rank=case["s"])
    assert loss <= predicted.loss.value <= predicted.outer_product.value + functional - (functional > 0)


@each(golden("cnn_deep"))
def test_deep_convolutions_obey_the_bounds(case):
    sizes, parameters = deep_convolutional.convolutional_sizes(
        case["d0"], (1, *case["channels"]), case["kernels"], case["K"]
    )
    assert sum(parameters) == case["n_params"]
    outer, functional, loss = stored_ranks(case, "true")
    printed, columns = case["paper"], case["Hf_col_ranks"]
    bounds = deep_convolutional.functional_column_upper_bounds(sizes, parameters, case["s"], case["r"])
    assert outer <= deep_convolutional.outer_product_upper_bound(sizes, parameters) == printed["Ho_bound"]
    assert all(column <= bound for column, bound in zip(columns, bounds, strict=True))
    assert all(bound <= wider for bound, wider in zip(bounds, printed["Hf_col_bounds"], strict=True))
    assert sum(columns) == functional <= sum(bounds)
    assert loss <= deep_convolutional.loss_upper_bound(sizes, parameters)
    if case["s"] == min(sizes):
        assert functional <= deep_convolutional.hidden_units_upper_bound(sizes) == printed["cor12"]


@each(golden("lcn"))
def test_locally_connected_networks_have_the_stored_exact_ranks(case):
    predicted = locally_connected.locally_connected_ranks(*patch_integers(case), case["rho"])
    assert predicted == stored_ranks(case, "true") == stored_ranks(case, "corrected")
    generic = locally_connected.locally_connected_ranks(*patch_integers(case))
    assert (generic.outer_product, generic.functional) == (case["paper"]["Ho"], case["paper"]["Hf"])


@each(golden("lcn_ws"))
def test_networks_with_shared_weights_have_the_stored_exact_ranks(case):
    predicted = locally_connected.shared_weights_ranks(*patch_integers(case), case["rho"])
    assert predicted == stored_ranks(case, "true") == stored_ranks(case, "corrected")
    generic = locally_connected.shared_weights_ranks(*patch_integers(case))
    assert (generic.outer_product, generic.functional) == (case["paper"]["Ho"], case["paper"]["Hf"])


def test_every_stored_family_is_held_by_some_formula():
    fully_connected = {"fcn", "fcn_bias", "fcn_critical_point", "relu"}
    convolutions = {"cnn1", "cnn1_r_lt_d", "cnn_deep", "lcn", "lcn_ws"}
    assert families() == fully_connected | convolutions
