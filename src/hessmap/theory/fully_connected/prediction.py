"""The rank rule of fully connected networks: which formula applies, and what kind of truth it holds."""

from __future__ import annotations

from itertools import compress

from hessmap.networks import FullyConnected
from hessmap.records import RankPrediction, RankValue
from hessmap.theory.claims import Claims, Conjecture, rank_prediction
from hessmap.theory.conditions import Widths, checked_widths
from hessmap.theory.fully_connected import activation_bounds, bias_bounds, partial_bias
from hessmap.theory.fully_connected.hessian_ranks import (
    HessianRanks,
    linear_hessian_ranks,
    linear_hessian_ranks_with_bias,
)
from hessmap.theory.losses_and_data.data_facts import DataFacts, data_facts
from hessmap.theory.prediction import RankQuestion, rank_rule

_PAPER = "Singh, Bachmann & Hofmann 2021"
_PROOF = "proof in research/docs/conjectures.md"
_REFERENCES = (
    f"{_PAPER}, Corollary 4, for products of weights of maximal rank (A1 alone fails: 2-3-2-3-2)",
    f"{_PAPER}, Corollary 6, an equality, {_PROOF}",
    f"{_PAPER}, Fact 7, corrected for low residual rank (6-5-4, residual rank 1: 33, printed 48), {_PROOF}",
)
_BIAS_OUTER = f"{_PAPER}, Theorem 12, with the centred input rank (3-4-2, two samples: 4, printed 6), {_PROOF}"
_SOME_BIAS_OUTER = f"only the last bias counts, {_PROOF}"
_NO_MEAN = f"residuals of zero mean see no bias, {_PROOF}"
_LAST_BIAS = f"the last bias has no second derivative: as without bias, {_PROOF}"
_ONE_LAYER = "one layer has no second derivative"
_CARRIED = f"as weights of a unit that is always one, {_PROOF}"
_KERNEL = f"the explicit kernel of single layers, {_PROOF}"
_ALL_BIASES = (
    Conjecture(f"{_PAPER}, S7.3, corrected for bottlenecks (2-1-3-3: 16, printed 12); study fcn/conjectures", 10_800),
    Conjecture(f"{_PAPER}, Fact 13, corrected for bottlenecks (5-1-3: 12, printed 10); study fcn/conjectures", 10_800),
)
_SOME_BIASES = Conjecture("a bias in some layers, not in print; study fcn/bias-in-some-layers", 1_800)
_RESCALING = f"{_PAPER}, Fact 11, from the rescaling symmetry"
_REACHABLE = f"{_PAPER}, Fact 11, its first terms: parameters that inputs and loss can reach"
_UNITWISE = f"{_PAPER}, S8.2, unit by unit"


@rank_rule.register
def fully_connected_ranks(network: FullyConnected, question: RankQuestion) -> RankPrediction:
    """Linear networks: exact, with bias in part conjectured. Others: the linear formula as numerical rank, or bounds.

    Assumptions: those of ``linear``, ``linear_with_bias`` and ``partial_bias``; the prediction names its kind of truth,
    the integers it was made from, and which of them are generic values.

    >>> net = FullyConnected((4, 5, 2), activation="relu")
    >>> fully_connected_ranks(net, RankQuestion()).outer_product.kind
    'numerical'
    >>> bounds = fully_connected_ranks(net, RankQuestion(kind="upper_bound"))
    >>> bounds.outer_product.value, bounds.functional.value, bounds.loss.value
    (25, 20, 30)
    >>> fully_connected_ranks(FullyConnected((4, 5, 2), bias=(True, False)), RankQuestion()).loss
    RankValue(value: 26, kind: conjecture, reference: a bias in some layers, not in print; ...
    """
    widths = checked_widths(network.widths)
    facts = data_facts(network.input_dim, network.output_dim, network.has_bias, question)
    return rank_prediction(
        network,
        question,
        facts,
        lambda: linear_claims(widths, network.biases, facts),
        lambda: _non_linear_claims(network, widths, facts),
    )


def linear_claims(widths: Widths, biases: tuple[bool, ...], facts: DataFacts) -> Claims:
    """What is claimed of the dense linear network with a bias in none, some or all of its layers."""
    if any(biases):
        return _claims_with_bias(widths, biases, facts)
    seen = facts.effective_output_dim
    ranks = linear_hessian_ranks(widths, facts.entering_rank, facts.residual_rank, effective_output_dim=seen)
    outer, functional, loss = (RankValue(rank, "exact", text) for rank, text in zip(ranks, _REFERENCES, strict=True))
    return [outer], [functional], [loss]


def _claims_with_bias(widths: Widths, biases: tuple[bool, ...], facts: DataFacts) -> Claims:
    biased = list(compress(range(1, len(widths)), biases))
    rank = facts.centred_input_rank if facts.input_rank is None else facts.input_rank
    known = {"centred_input_rank": facts.centred_input_rank, "effective_output_dim": facts.effective_output_dim}
    ranks = _ranks_with_bias(widths, biased, rank, facts)
    outer = RankValue(ranks.outer_product, "exact", _BIAS_OUTER if all(biases) else _SOME_BIAS_OUTER)
    functional = [_functional_claim(ranks.functional, biases, facts)]
    if functional[0].kind == "conjecture":
        carried = bias_bounds.functional_upper_bound(widths, biased, rank, facts.residual_rank, **known)
        functional.append(RankValue(carried, "upper_bound", _CARRIED))
    loss = [_loss_claim(ranks.loss, biases, facts)]
    if loss[0].kind == "conjecture":
        bound = bias_bounds.loss_upper_bound(widths, biased, rank, **known)
        loss.append(RankValue(bound, "upper_bound", _KERNEL))
    return [outer], functional, loss


def _ranks_with_bias(widths: Widths, biased: list[int], input_rank: int, facts: DataFacts) -> HessianRanks:
    centred, residual, seen = facts.centred_input_rank, facts.residual_rank, facts.effective_output_dim
    is_zero = facts.mean_residual_is_zero
    if len(biased) == len(widths) - 1:
        return linear_hessian_ranks_with_bias(
            widths, centred, residual, mean_residual_is_zero=is_zero, effective_output_dim=seen
        )
    return partial_bias.hessian_ranks(
        widths,
        biased,
        input_rank,
        centred_input_rank=centred,
        residual_rank=residual,
        uncentred_residual_rank=facts.uncentred_residual_rank,
        mean_residual_is_zero=is_zero,
        effective_output_dim=seen,
    )


def _functional_claim(rank: int, biases: tuple[bool, ...], facts: DataFacts) -> RankValue:
    if len(biases) == 1:
        return RankValue(rank, "exact", _ONE_LAYER)
    if facts.mean_residual_is_zero or facts.residual_rank == 0:
        return RankValue(rank, "exact", _NO_MEAN)
    if not any(biases[:-1]):
        return RankValue(rank, "exact", _LAST_BIAS)
    return (_ALL_BIASES[0] if all(biases) else _SOME_BIASES).value(rank)


def _loss_claim(rank: int, biases: tuple[bool, ...], facts: DataFacts) -> RankValue:
    if len(biases) == 1 or facts.residual_rank == 0:
        return RankValue(rank, "exact", _ONE_LAYER if len(biases) == 1 else _NO_MEAN)
    if facts.mean_residual_is_zero and biases[-1]:
        return RankValue(rank, "exact", _NO_MEAN)
    return (_ALL_BIASES[1] if all(biases) else _SOME_BIASES).value(rank)


def _non_linear_claims(network: FullyConnected, widths: Widths, facts: DataFacts) -> Claims:
    """Upper bounds; with a bias in the first layer it is the centred rank of the inputs that reaches its weights."""
    first, *_ = network.biases
    rank = facts.centred_input_rank if first or facts.input_rank is None else facts.input_rank
    outputs, biases = facts.effective_output_dim, network.biases
    reachable = activation_bounds.reachable_parameters_upper_bound(widths, rank, biases, effective_output_dim=outputs)
    outer, functional, loss = ([RankValue(reachable, "upper_bound", _REACHABLE)] for _ in range(3))
    if network.activation in activation_bounds.POSITIVELY_HOMOGENEOUS:
        fewer = activation_bounds.rescaling_upper_bound(widths, rank, biases, effective_output_dim=outputs)
        outer.append(RankValue(fewer, "upper_bound", _RESCALING))
        if network.num_layers == 2:
            unitwise = 2 * widths[1] * min(rank + first, outputs)
            functional.append(RankValue(unitwise, "upper_bound", _UNITWISE))
    return outer, functional, loss
