"""Stored exact ranks of fully connected networks: predictions and corrected values."""

from golden_cases import golden, stored_ranks
from golden_tables import each
from hessmap.networks import FullyConnected
from hessmap.theory import predict_ranks
from hessmap.theory.fully_connected import linear


def predicted_ranks(case):
    network = FullyConnected(case["dims"], bias=case["bias"])
    prediction = predict_ranks(
        network,
        loss=case["loss"],
        input_rank=case["r"],
        centred_input_rank=case["rc"],
        residual_rank=case["s"],
        mean_residual_is_zero=case["mean_residual_zero"],
    )
    assert prediction.num_parameters == case["n_params"]
    return tuple(int(part) for part in (prediction.outer_product, prediction.functional, prediction.loss))


@each(golden("fcn", "fcn_bias"))
def test_prediction_equals_the_stored_exact_ranks(case):
    assert predicted_ranks(case) == stored_ranks(case, "true") == stored_ranks(case, "corrected")


@each(golden("fcn_critical_point"))
def test_bottleneck_critical_points_have_the_stored_exact_ranks(case):
    predicted = linear.bottleneck_critical_point_ranks(case["dims"], case["r"], case["s"])
    assert predicted == stored_ranks(case, "true") == stored_ranks(case, "corrected")
