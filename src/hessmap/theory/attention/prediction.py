"""The rank rule of linear self-attention: which formula applies, and what kind of truth it holds."""

from __future__ import annotations

from dataclasses import replace

from hessmap.errors import require
from hessmap.networks import SelfAttention
from hessmap.results import RankPrediction, RankValue
from hessmap.theory.attention import causal, last_token, single_head
from hessmap.theory.attention import heads as projected
from hessmap.theory.attention.heads import ProjectedHeads
from hessmap.theory.attention.single_head import HeadSizes
from hessmap.theory.claims import Claims, Conjecture, claims_as_bounds, rank_prediction
from hessmap.theory.conditions import checked_count
from hessmap.theory.losses_and_data.data_facts import DataFacts
from hessmap.theory.losses_and_data.losses import effective_output_dim
from hessmap.theory.prediction import RankQuestion, rank_rule

_PAGE = "docs/attention-residual.md"
_PROOF = f"proof in {_PAGE}"
_MANY = f"many samples fix the function: {_PROOF}"
_MORE_SAMPLES = f"the rank for more samples, of which few are a special case: {_PROOF}"
_ONE_SAMPLE = f"one sample is a fully connected network of its tokens: {_PROOF}"
_FROZEN = f"V frozen: {_PROOF}"
_SUBSPACES = f"a sum of products of subspaces: {_PROOF}"
_HEADS_BOUND = f"several heads: {_PROOF}"
_PARAMETERS = "parameters that the tokens and the loss can reach"
_NO_OUTPUTS = "softmax of one output is constant"
_SINGLE = Conjecture("one head of linear attention, not in print; study attention/ranks", 2_000)
_LAST = Conjecture("the last token of linear attention, not in print; study attention/ranks", 600)
_CAUSAL = Conjecture("a causal mask over linear attention, not in print; study attention/ranks", 600)
_HEADS = Conjecture("several heads of linear attention, not in print; study attention/ranks", 600)


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
    facts, sizes = _facts(network, question)
    return rank_prediction(
        network,
        question,
        facts,
        lambda: _claims(network, question, sizes),
        lambda: _claims(network, question, sizes),
        inputs={
            "network": str(network),
            "loss": question.loss,
            "num_samples": question.num_samples,
            "num_tokens": question.num_tokens,
            "input_rank": facts.input_rank,
        },
    )


def _facts(network: SelfAttention, question: RankQuestion) -> tuple[DataFacts, HeadSizes]:
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
        notes.append("so many samples that more change no rank")
    samples = checked_count("num_samples", samples, at_least=1)
    rank = min(width, samples * tokens)
    if question.input_rank is not None:
        rank = checked_count("input_rank", question.input_rank, at_most=rank, why="the width, samples times tokens")
    else:
        notes.append(f"the tokens span {rank} dimensions, as in general position")
    outputs = effective_output_dim(network.output_dim, question.loss)
    read = tokens if network.read == "all" else 1
    facts = DataFacts(rank, rank, rank, rank, False, read * outputs, tuple(notes), question.num_samples)
    values = network.value_width
    if network.heads == 1 and network.outputs is None:
        values = outputs
    merged, frozen = network.merged_query_key, network.frozen_value
    return facts, HeadSizes(rank, network.key_width, values, samples, tokens, merged, frozen)


def _claims(network: SelfAttention, question: RankQuestion, sizes: HeadSizes) -> Claims:
    outputs = effective_output_dim(network.output_dim, question.loss)
    if outputs == 0 or sizes.width == 0:
        none = [RankValue(0, "exact", _NO_OUTPUTS if outputs == 0 else _PARAMETERS)]
        return none, none, none
    if network.outputs is not None:
        return _projected_claims(network, sizes, outputs)
    is_coupled = network.heads > 1 and outputs < network.output_dim
    one = _head_claims(network, sizes)
    if is_coupled:  # the loss tells one output less apart, in no head alone
        one = claims_as_bounds(one[0]), one[1], claims_as_bounds(one[2])
    outer, functional, loss = ([_multiple(claim, network.heads) for claim in claims] for claims in one)
    return outer, functional, loss


def _head_claims(network: SelfAttention, sizes: HeadSizes) -> Claims:
    """One head whose outputs are its values."""
    if sizes.has_many_samples:
        return _many_samples_claims(sizes)
    more = replace(sizes, num_samples=single_head.enough_samples(sizes.width, sizes.num_tokens))
    bounds = [_rank_bound(rank, _MORE_SAMPLES) for rank in single_head.head_ranks(more)]
    if network.causal and sizes.num_tokens > 1:
        few = _causal_claims(sizes)
    elif network.read == "last" and sizes.num_tokens > 1:
        few = _last_token_claims(sizes)
    else:
        few = _few_samples_claims(sizes)
    outer, functional, loss = ([*claims, bound] for claims, bound in zip(few, bounds, strict=True))
    return outer, functional, loss


def _many_samples_claims(sizes: HeadSizes) -> Claims:
    """Proved but for the functional Hessian of a trained V, of which the bound is."""
    ranks = single_head.head_ranks(sizes)
    outer, loss = ([_exact_rank(rank, _MANY)] for rank in (ranks.outer_product, ranks.loss))
    if sizes.is_value_frozen:
        return outer, [_exact_rank(ranks.functional, _MANY)], loss
    return outer, [_SINGLE.value(ranks.functional), _rank_bound(ranks.functional, _MANY)], loss


def _few_samples_claims(sizes: HeadSizes) -> Claims:
    ranks = single_head.head_ranks(sizes)
    if sizes.num_samples == 1 and not sizes.is_merged and not sizes.is_value_frozen:
        outer, functional, loss = ([_exact_rank(rank, _ONE_SAMPLE)] for rank in ranks)
        return outer, functional, loss
    if sizes.is_value_frozen:
        return _frozen_value_claims(sizes)
    is_inside = 1 < sizes.num_tokens < sizes.width and sizes.num_samples > 1
    outer, functional, loss = ([_SINGLE.bound(rank) if is_inside else _SINGLE.value(rank)] for rank in ranks)
    return [_SINGLE.value(ranks.outer_product)] if sizes.num_samples <= 2 else outer, functional, loss


def _frozen_value_claims(sizes: HeadSizes) -> Claims:
    """The score matrix alone: what the data see of it, its gradient, and both together."""
    ranks = single_head.head_ranks(sizes)
    n, d, samples = sizes.num_tokens, sizes.width, sizes.num_samples
    is_known = n == 1 or n >= d or samples <= 2 or (samples == 3 and sizes.score_rank == d)
    outer = [_exact_rank(ranks.outer_product, _SUBSPACES) if is_known else _rank_bound(ranks.outer_product, _SUBSPACES)]
    functional = [_exact_rank(ranks.functional, _FROZEN)]
    if sizes.is_merged:
        return outer, functional, outer
    is_full = ranks.functional == sizes.num_parameters
    return outer, functional, [_exact_rank(ranks.loss, _FROZEN) if is_full else _SINGLE.value(ranks.loss)]


def _causal_claims(sizes: HeadSizes) -> Claims:
    """V frozen: the gradient in S has full rank, as token i adds x_i times a vector of the tokens up to i."""
    outer = [_CAUSAL.bound(causal.outer_product_rank_bound(sizes))]
    if sizes.is_value_frozen:
        scores = 0 if sizes.is_merged else sizes.score_parameters
        return outer, [_exact_rank(scores, _FROZEN)], outer if sizes.is_merged else [_exact_rank(scores, _FROZEN)]
    if sizes.is_merged:
        return outer, [], []
    return outer, [_CAUSAL.bound(causal.functional_rank_bound(sizes))], [_CAUSAL.value(sizes.num_parameters)]


def _last_token_claims(sizes: HeadSizes) -> Claims:
    functional, loss = last_token.functional_rank(sizes), last_token.loss_rank(sizes)
    of_functional = [] if functional is None else [_LAST.value(functional)]
    if functional is not None and sizes.is_value_frozen:
        of_functional = [_exact_rank(functional, _FROZEN)]
    return (
        [_LAST.value(last_token.outer_product_rank(sizes))],
        of_functional,
        [] if loss is None else [_LAST.value(loss)],
    )


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
    bounds = ([_rank_bound(outer, _HEADS_BOUND)], _functional_bounds(heads), [_rank_bound(loss, _HEADS_BOUND)])
    if not sizes.has_many_samples:
        return bounds
    of_loss = [_HEADS.value(projected.loss_rank(heads))] if projected.has_loss_formula(heads) else []
    return [_HEADS.value(outer), *bounds[0]], [_HEADS.value(functional), *bounds[1]], [*of_loss, *bounds[2]]


def _functional_bounds(heads: ProjectedHeads) -> list[RankValue]:
    """A conjecture for many samples is a conjectured bound for few; the number of parameters is a proved one."""
    return [_HEADS.bound(projected.functional_rank(heads)), _rank_bound(heads.num_parameters, _PARAMETERS)]


def _projected_frozen_claims(network: SelfAttention, sizes: HeadSizes, outputs: int) -> Claims:
    """V frozen: a projection of all its directions is a trained V of as many columns as there are outputs."""
    d, values = sizes.width, min(sizes.value_width, sizes.width)
    as_value = replace(sizes, value_width=outputs, is_value_frozen=False)
    if network.heads == 1 and values == d:
        return _head_claims(network, as_value)
    reached = network.heads * (sizes.score_parameters + values * outputs)
    functions = network.heads * (as_value.score_dimension + values * outputs - 1)
    everything = [_rank_bound(reached, _PARAMETERS)]
    return [_rank_bound(min(functions, reached), _HEADS_BOUND)], everything, everything


def _exact_rank(rank: int, reference: str) -> RankValue:
    return RankValue(rank, "exact", reference)


def _rank_bound(rank: int, reference: str) -> RankValue:
    return RankValue(rank, "upper_bound", reference)


def _multiple(claim: RankValue, count: int) -> RankValue:
    return replace(claim, value=count * claim.value)
