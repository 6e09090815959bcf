"""The printed formulas give what was printed, on every stored case of exact ranks."""

from __future__ import annotations

from golden_cases import golden
from golden_tables import Case, each
from hessmap.theory import effective_output_dim
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution
from hessmap_research.formulas import printed_convolutional, printed_fully_connected


def outputs_of(case: Case) -> dict[str, int]:
    return {"effective_output_dim": effective_output_dim(case["dims"][-1], case["loss"])}


@each(golden("fcn", "fcn_critical_point"))
def test_printed_formulas_without_bias_give_what_was_printed(case: Case) -> None:
    widths, outputs, printed = case["dims"], outputs_of(case), case["paper"]
    rank, residual = case["r"], case["s"]
    assert printed_fully_connected.corollary_4(widths, rank, **outputs) == printed["Ho"]
    assert printed_fully_connected.corollary_6(widths, rank, residual, **outputs) == printed["Hf"]
    assert printed_fully_connected.fact_7(widths, rank, **outputs) == printed["HL"]
    assert printed_fully_connected.fact_7(widths, rank, residual, **outputs) == printed["HL_with_s_in_q"]


@each(golden("fcn_bias"))
def test_printed_formulas_with_bias_give_what_was_printed(case: Case) -> None:
    widths, rank, outputs, printed = case["dims"], case["r"], outputs_of(case), case["paper"]
    assert printed_fully_connected.theorem_12(widths, rank, **outputs) == printed["Ho"]
    if printed["non_bottleneck"]:
        assert printed_fully_connected.section_s7_3_functional_rank(widths, rank, **outputs) == printed["Hf"]
        assert printed_fully_connected.fact_13(widths, rank, **outputs) == printed["HL"]
    elif printed["HL"] is not None:
        assert printed_fully_connected.section_s7_2_functional_rank(widths, rank, **outputs) == printed["Hf"]
        assert printed_fully_connected.section_s7_2_loss_rank(widths, rank, **outputs) == printed["HL"]
    else:
        assert printed_fully_connected.fact_13(widths, rank, **outputs) == printed["HL_fact13_as_printed_in_main_text"]


@each(golden("cnn1"))
def test_printed_formulas_of_one_convolution_give_what_was_printed(case: Case) -> None:
    net = OneHiddenConvolution(*(case[name] for name in ("d0", "k", "m", "K", "m0", "stride")))
    assert printed_convolutional.theorem_7(net) == case["paper"]["Ho"]
    assert printed_convolutional.theorem_8(net) == case["paper"]["Hf"]


@each(golden("lcn", "lcn_ws"))
def test_printed_formulas_of_patches_give_what_was_printed(case: Case) -> None:
    formula = printed_convolutional.fact_13 if case["family"] == "lcn" else printed_convolutional.fact_14
    assert formula(case["t"], case["k"], case["m"], case["K"]) == case["paper"]["HL"]


def test_the_stored_cases_tell_the_printed_formulas_from_the_right_ones() -> None:
    cases = golden("fcn", "fcn_bias")
    wrong = [case["id"] for case in cases if case["paper"]["HL"] not in (None, case["true"]["HL"])]
    assert len(cases) == 199
    assert len(wrong) >= 30
