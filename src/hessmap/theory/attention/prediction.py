"""The rank rule of linear self-attention: which formula applies, and whether it is proved."""

from __future__ import annotations

from dataclasses import replace

from hessmap.errors import require
from hessmap.networks import SelfAttention
from hessmap.records import RankPrediction, RankValue
from hessmap.theory.attention import heads as projected
from hessmap.theory.attention import single_head
from hessmap.theory.attention.heads import PROOF, ProjectedHeads, head_claims, rank_bound
from hessmap.theory.attention.single_head import HeadSizes
from hessmap.theory.data_ranks import DataRanks, RankQuestion, checked_count, effective_output_dim
from hessmap.theory.prediction import Claims, Conjecture, claims_as_bounds, rank_prediction, rank_rule

_HEADS_BOUND = f"several heads: {PROOF}"
_PRODUCTS = "V O in place of V, and its second derivative: proof in research/docs/conjectures.md"
_PARAMETERS = "parameters that the tokens and the loss can reach"
_NO_OUTPUTS = "softmax of one output is constant"
_HEADS = Conjecture("several heads of linear attention, not in print; study attention/ranks", 1_200)


@rank_rule.register
def self_attention_ranks(network: SelfAttention, question: RankQuestion) -> RankPrediction:
    """One layer of linear self-attention: exact for many samples and for one, in between conjectured or bounded.

    Heads without a projection of their outputs have nothing in common: each rank is that of one head times their
    number. Under cross-entropy all formulas hold with one output less.

    >>> ranks = self_attention_ranks(SelfAttention(3, 1, 2), RankQuestion())
    >>> ranks.outer_product.value, ranks.functional.value, ranks.loss.value
    (10, 11, 12)
    >>> ranks.outer_product.kind, ranks.functional.kind, ranks.loss.kind
    ('exact', 'conjecture', 'exact')
    """
    data, sizes = _data_ranks(network, question)
    return rank_prediction(
        network,
        question,
        data,
        lambda: _claims(network, question, sizes),
        lambda: _claims(network, question, sizes),
        inputs={
            "network": str(network),
            "loss": question.loss,
            "num_samples": question.num_samples,
            "num_tokens": question.num_tokens,
            "input_rank": data.input_rank,
        },
    )


def _data_ranks(network: SelfAttention, question: RankQuestion) -> tuple[DataRanks, HeadSizes]:
    """The sizes of samples and tokens, those not given so large that more change nothing."""
    names = ("residual_rank", "centred_input_rank", "uncentred_residual_rank")
    given = [name for name in names if getattr(question, name) is not None]
    given += ["mean_residual_is_zero"] * question.mean_residual_is_zero
    must = "the residuals of self-attention are generic: its Hessian is no function of sum residual input^T"
    require(not given, must, f"{' and '.join(given)} is given", "Leave it out")
    width, notes = network.width, []
    tokens = question.num_tokens
    tokens = max(2, width) if tokens is None else checked_count("num_tokens", tokens, at_least=1)
    samples = question.num_samples
    if samples is None:
        samples = single_head.enough_samples(width, tokens)
        notes.append("enough samples that more change no rank")
    samples = checked_count("num_samples", samples, at_least=1)
    rank = min(width, samples * tokens)
    if question.input_rank is not None:
        rank = checked_count("input_rank", question.input_rank, at_most=rank, why="the width, samples times tokens")
    else:
        notes.append(f"the tokens span {rank} dimensions, as in general position")
    outputs = effective_output_dim(network.output_dim, question.loss)
    read = tokens if network.read == "all" else 1
    data = DataRanks(rank, rank, rank, read * outputs, num_samples=question.num_samples, notes=tuple(notes))
    values = network.value_width
    if network.heads == 1 and network.outputs is None:
        values = outputs
    merged, frozen = network.merged_query_key, network.frozen_value
    return data, HeadSizes(rank, network.key_width, values, samples, tokens, merged, frozen)


def _claims(network: SelfAttention, question: RankQuestion, sizes: HeadSizes) -> Claims:
    outputs = effective_output_dim(network.output_dim, question.loss)
    if outputs == 0 or sizes.width == 0:
        none = [RankValue(0, "exact", _NO_OUTPUTS if outputs == 0 else _PARAMETERS)]
        return none, none, none
    if network.outputs is not None:
        return _projected_claims(network, sizes, outputs)
    is_coupled = network.heads > 1 and outputs < network.output_dim
    one = head_claims(network, sizes)
    if is_coupled:  # the loss tells one output less apart, in no head alone
        one = claims_as_bounds(one[0]), one[1], claims_as_bounds(one[2])
    outer, functional, loss = ([_multiple(claim, network.heads) for claim in claims] for claims in one)
    return outer, functional, loss


def _projected_claims(network: SelfAttention, sizes: HeadSizes, outputs: int) -> Claims:
    """Heads with a projection of their outputs: conjectured for many samples, bounded for few."""
    if network.frozen_value:
        return _projected_frozen_claims(network, sizes, outputs)
    is_single = sizes.num_tokens == 1
    heads = ProjectedHeads(
        sizes.width, sizes.key_width, sizes.value_width, network.heads, outputs, is_single, sizes.is_merged
    )
    outer, functional = projected.outer_product_upper_bound(heads), projected.functional_rank(heads)
    loss = projected.loss_upper_bound(heads)
    bounds = ([rank_bound(outer, _HEADS_BOUND)], _functional_bounds(heads), [rank_bound(loss, _HEADS_BOUND)])
    if not sizes.has_many_samples:
        of_outer, of_functional = _few_projected_bounds(network, sizes, outputs)
        return [*bounds[0], *of_outer], [*bounds[1], *of_functional], bounds[2]
    of_loss = [_HEADS.value(projected.loss_rank(heads))] if projected.has_loss_formula(heads) else []
    return [_HEADS.value(outer), *bounds[0]], [_HEADS.value(functional), *bounds[1]], [*of_loss, *bounds[2]]


def _few_projected_bounds(
    network: SelfAttention, sizes: HeadSizes, outputs: int
) -> tuple[list[RankValue], list[RankValue]]:
    """Few samples: the products V O are no more than values of as many columns as there are outputs, one for each head;
    their own second derivative adds twice the value width times the rank of the gradient in V O to the functional part.
    """
    as_value = replace(sizes, value_width=outputs)
    outer, functional, _ = (claims_as_bounds(claims) for claims in head_claims(network, as_value))
    reached = sizes.num_samples * (1 if network.read == "last" else min(sizes.num_tokens, sizes.score_rank))
    gradient = min(sizes.width, outputs, sizes.num_samples * sizes.num_tokens if network.causal else reached)
    added = 2 * sizes.value_width * gradient
    more = [replace(claim, value=claim.value + added, reference=_PRODUCTS) for claim in functional]
    of_outer, of_functional = ([_multiple(claim, network.heads) for claim in claims] for claims in (outer, more))
    return of_outer, of_functional


def _functional_bounds(heads: ProjectedHeads) -> list[RankValue]:
    """A conjecture for many samples is a conjectured bound for few; the number of parameters is a proved one."""
    return [_HEADS.bound(projected.functional_rank(heads)), rank_bound(heads.num_parameters, _PARAMETERS)]


def _projected_frozen_claims(network: SelfAttention, sizes: HeadSizes, outputs: int) -> Claims:
    """V frozen: a projection of all its directions is a trained V of as many columns as there are outputs."""
    d, values = sizes.width, min(sizes.value_width, sizes.width)
    as_value = replace(sizes, value_width=outputs, is_value_frozen=False)
    if network.heads == 1 and values == d:
        return head_claims(network, as_value)
    reached = network.heads * (sizes.score_parameters + values * outputs)
    functions = network.heads * (as_value.score_dimension + values * outputs - 1)
    everything = [rank_bound(reached, _PARAMETERS)]
    return [rank_bound(min(functions, reached), _HEADS_BOUND)], everything, everything


def _multiple(claim: RankValue, count: int) -> RankValue:
    return replace(claim, value=count * claim.value)
