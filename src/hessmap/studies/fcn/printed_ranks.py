"""What Singh, Bachmann & Hofmann 2021 print for a setting, every reading of it."""

from __future__ import annotations

from hessmap.studies.fcn.random_setting import Setting
from hessmap.theory.fully_connected import printed_formulas as printed


def printed_ranks(setting: Setting) -> dict[str, tuple[int, ...]]:
    """By part of the Hessian, the values that the paper's formulas can be read to give.

    Without bias: Corollary 4, Corollary 6 (printed as a bound, asked here whether it is met) and Fact 7 with both of
    its meanings of q. With bias: Theorem 12, and S7.2 for one hidden layer, S7.3 and Fact 13 for others; these know
    the rank r of the inputs without centring, and no residual rank.
    """
    widths, rank, outputs = setting.widths, setting.input_rank, setting.effective_output_dim
    if not setting.bias:
        residual = setting.residual_rank
        return {
            "outer_product": (printed.corollary_4(widths, rank, effective_output_dim=outputs),),
            "functional": (printed.corollary_6(widths, rank, residual, effective_output_dim=outputs),),
            "loss": (
                printed.fact_7(widths, rank, effective_output_dim=outputs),
                printed.fact_7(widths, rank, residual, effective_output_dim=outputs),
            ),
        }
    one_hidden = len(widths) == 3
    functional = printed.section_s7_2_functional_rank if one_hidden else printed.section_s7_3_functional_rank
    loss = printed.section_s7_2_loss_rank if one_hidden else printed.fact_13
    return {
        "outer_product": (printed.theorem_12(widths, rank, effective_output_dim=outputs),),
        "functional": (functional(widths, rank, effective_output_dim=outputs),),
        "loss": (loss(widths, rank, effective_output_dim=outputs),),
    }
