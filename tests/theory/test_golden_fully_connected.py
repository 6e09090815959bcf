"""Stored exact ranks of fully connected networks: prediction, corrected values and the printed formulas."""

import pytest
from golden_cases import golden, stored_ranks

from hessmap.networks import FullyConnected
from hessmap.theory import effective_output_dim, predict_ranks
from hessmap.theory.fully_connected import hessian_ranks
from hessmap_research.formulas import printed_fully_connected as printed_formulas


def outputs_of(case):
    return effective_output_dim(case["dims"][-1], case["loss"])


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


@pytest.mark.parametrize("case", golden("fcn", "fcn_bias"))
def test_prediction_equals_the_stored_exact_ranks(case):
    assert predicted_ranks(case) == stored_ranks(case, "true") == stored_ranks(case, "corrected")


@pytest.mark.parametrize("case", golden("fcn_critical_point"))
def test_bottleneck_critical_points_have_the_stored_exact_ranks(case):
    predicted = hessian_ranks.bottleneck_critical_point_ranks(case["dims"], case["r"], case["s"])
    assert predicted == stored_ranks(case, "true") == stored_ranks(case, "corrected")


@pytest.mark.parametrize("case", golden("fcn", "fcn_critical_point"))
def test_printed_formulas_without_bias_give_what_was_printed(case):
    widths, outputs, printed = case["dims"], {"effective_output_dim": outputs_of(case)}, case["paper"]
    rank, residual = case["r"], case["s"]
    assert printed_formulas.corollary_4(widths, rank, **outputs) == printed["Ho"]
    assert printed_formulas.corollary_6(widths, rank, residual, **outputs) == printed["Hf"]
    assert printed_formulas.fact_7(widths, rank, **outputs) == printed["HL"]
    assert printed_formulas.fact_7(widths, rank, residual, **outputs) == printed["HL_with_s_in_q"]


@pytest.mark.parametrize("case", golden("fcn_bias"))
def test_printed_formulas_with_bias_give_what_was_printed(case):
    widths, rank, outputs = case["dims"], case["r"], {"effective_output_dim": outputs_of(case)}
    printed = case["paper"]
    assert printed_formulas.theorem_12(widths, rank, **outputs) == printed["Ho"]
    if printed["non_bottleneck"]:
        assert printed_formulas.section_s7_3_functional_rank(widths, rank, **outputs) == printed["Hf"]
        assert printed_formulas.fact_13(widths, rank, **outputs) == printed["HL"]
    elif printed["HL"] is not None:
        assert printed_formulas.section_s7_2_functional_rank(widths, rank, **outputs) == printed["Hf"]
        assert printed_formulas.section_s7_2_loss_rank(widths, rank, **outputs) == printed["HL"]
    else:
        assert printed_formulas.fact_13(widths, rank, **outputs) == printed["HL_fact13_as_printed_in_main_text"]


def test_the_stored_cases_tell_the_printed_formulas_from_the_right_ones():
    cases = [parameter.values[0] for parameter in golden("fcn", "fcn_bias")]
    wrong = [case["id"] for case in cases if case["paper"]["HL"] not in (None, case["true"]["HL"])]
    assert len(cases) == 199
    assert len(wrong) >= 30
