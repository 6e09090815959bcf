"""The rank rule of fully connected networks: which formula applies, and what kind of truth it holds."""

from __future__ import annotations

from hessmap.networks import FullyConnected
from hessmap.results import RankPrediction, RankValue
from hessmap.theory.conditions import Widths, checked_widths
from hessmap.theory.fully_connected import piecewise_linear, symmetry_bounds
from hessmap.theory.fully_connected.hessian_ranks import (
    HessianRanks,
    linear_hessian_ranks,
    linear_hessian_ranks_with_bias,
)
from hessmap.theory.kinds_of_truth import Ranks, answered
from hessmap.theory.losses_and_data.data_facts import DataFacts, data_facts
from hessmap.theory.prediction import RankQuestion, rank_rule

_PAPER = "Singh, Bachmann & Hofmann 2021"
_REFERENCES = (
    f"{_PAPER}, Corollary 4, for products of weights of maximal rank (A1 alone fails: 2-3-2-3-2)",
    f"{_PAPER}, Corollary 6, an equality in exact arithmetic",
    f"{_PAPER}, Fact 7, corrected for residual rank < bottleneck rank (6-5-4, residual rank 1: 33, printed 48)",
)
_REFERENCES_WITH_BIAS = (
    f"{_PAPER}, Theorem 12, with the centred input rank (3-4-2, two samples: 4, printed 6)",
    f"{_PAPER}, S7.3, corrected for bottlenecks (2-1-3-3: 16, printed 12)",
    f"{_PAPER}, Fact 13, corrected for bottlenecks (5-1-3: 12, printed 10)",
)
_RESCALING = f"{_PAPER}, Fact 11, from the rescaling symmetry"
_REACHABLE = f"{_PAPER}, Fact 11, its first terms: parameters that inputs and loss can reach"
_UNITWISE = f"{_PAPER}, S8.2, unit by unit"


@rank_rule.register
def fully_connected_ranks(network: FullyConnected, question: RankQuestion) -> RankPrediction:
    """Linear networks: exact. Others: the linear formula as numerical rank, or upper bounds where asked for.

    Assumptions: those of ``linear`` and ``linear_with_bias``; the prediction names its kind of truth, the integers it
    was made from, and which of them are generic values. The generic rank is also an upper bound for all weights of a
    linear network, since a rank can only drop where a minor vanishes.

    >>> net = FullyConnected((4, 5, 2), activation="relu")
    >>> fully_connected_ranks(net, RankQuestion()).outer_product.kind
    'numerical'
    >>> bounds = fully_connected_ranks(net, RankQuestion(kind="upper_bound"))
    >>> bounds.outer_product.value, bounds.functional.value, bounds.loss.value
    (25, 20, 30)
    """
    widths = checked_widths(network.widths)
    facts = data_facts(network.input_dim, network.output_dim, network.bias, question)
    return answered(
        network,
        question,
        facts,
        lambda: _exact_ranks(widths, network.bias, facts),
        lambda: _non_linear_upper_bounds(network, widths, facts),
    )


def _exact_ranks(widths: Widths, bias: bool, facts: DataFacts) -> Ranks:
    references = _REFERENCES_WITH_BIAS if bias else _REFERENCES
    ranks = _linear_ranks(widths, bias, facts)
    outer, functional, loss = (RankValue(rank, "exact", text) for rank, text in zip(ranks, references, strict=True))
    return outer, functional, loss


def _linear_ranks(widths: Widths, bias: bool, facts: DataFacts) -> HessianRanks:
    if bias:
        return linear_hessian_ranks_with_bias(
            widths,
            facts.centred_input_rank,
            facts.residual_rank,
            mean_residual_is_zero=facts.mean_residual_is_zero,
            effective_output_dim=facts.effective_output_dim,
        )
    return linear_hessian_ranks(
        widths, facts.entering_rank, facts.residual_rank, effective_output_dim=facts.effective_output_dim
    )


def _non_linear_upper_bounds(network: FullyConnected, widths: Widths, facts: DataFacts) -> Ranks:
    rank, outputs, bias = facts.entering_rank, facts.effective_output_dim, network.bias
    reachable = symmetry_bounds.reachable_parameters_upper_bound(widths, rank, bias=bias, effective_output_dim=outputs)
    outer = functional = loss = RankValue(reachable, "upper_bound", _REACHABLE)
    if network.activation in symmetry_bounds.POSITIVELY_HOMOGENEOUS:
        fewer = symmetry_bounds.rescaling_upper_bound(widths, rank, bias=bias, effective_output_dim=outputs)
        outer = RankValue(fewer, "upper_bound", _RESCALING)
        if network.num_layers == 2:
            unitwise = piecewise_linear.one_hidden_functional_rank([rank + bias] * widths[1], outputs)
            functional = min(functional, RankValue(unitwise, "upper_bound", _UNITWISE), key=int)
    return outer, functional, loss

