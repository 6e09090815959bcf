"""What is claimed of one head of linear self-attention whose outputs are its values, and what kind of truth it is."""

from __future__ import annotations

from dataclasses import replace

from hessmap.networks import SelfAttention
from hessmap.records import RankValue
from hessmap.theory.attention import causal, last_token, single_head
from hessmap.theory.attention.single_head import HeadSizes
from hessmap.theory.claims import Claims, Conjecture

PROOF = "proof in research/docs/attention-residual.md"
_MANY = f"many samples fix the function: {PROOF}"
_MORE_SAMPLES = f"the rank for more samples, of which few are a special case: {PROOF}"
_ONE_SAMPLE = f"one sample is a fully connected network of its tokens: {PROOF}"
_FROZEN = f"V frozen: {PROOF}"
_SUBSPACES = f"a sum of products of subspaces: {PROOF}"
_DATA = "what tokens and residuals see of the weights: proof in research/docs/conjectures.md"
_SINGLE = Conjecture("one head of linear attention, not in print; study attention/ranks", 2_000)
_LAST = Conjecture("the last token of linear attention, not in print; study attention/ranks", 600)
_CAUSAL = Conjecture("a causal mask over linear attention, not in print; study attention/ranks", 1_200)


def head_claims(network: SelfAttention, sizes: HeadSizes) -> Claims:
    """One head whose outputs are its values."""
    if sizes.has_many_samples:
        return _many_samples_claims(sizes)
    more = replace(sizes, num_samples=single_head.enough_samples(sizes.width, sizes.num_tokens))
    bounds = [rank_bound(rank, _MORE_SAMPLES) for rank in single_head.head_ranks(more)]
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
    outer, loss = ([exact_rank(rank, _MANY)] for rank in (ranks.outer_product, ranks.loss))
    if sizes.is_value_frozen:
        return outer, [exact_rank(ranks.functional, _MANY)], loss
    return outer, [_SINGLE.value(ranks.functional), rank_bound(ranks.functional, _MANY)], loss


def _few_samples_claims(sizes: HeadSizes) -> Claims:
    ranks = single_head.head_ranks(sizes)
    if sizes.num_samples == 1 and not sizes.is_merged and not sizes.is_value_frozen:
        outer, functional, loss = ([exact_rank(rank, _ONE_SAMPLE)] for rank in ranks)
        return outer, functional, loss
    if sizes.is_value_frozen:
        return _frozen_value_claims(sizes)
    outer, functional, loss = ([rank_bound(rank, _DATA)] for rank in ranks)
    if not (1 < sizes.num_tokens < sizes.width and sizes.num_samples > 1):
        outer, functional, loss = ([_SINGLE.value(rank), rank_bound(rank, _DATA)] for rank in ranks)
    elif sizes.num_samples == 2:
        outer.append(_SINGLE.value(ranks.outer_product))
    return outer, functional, loss


def _frozen_value_claims(sizes: HeadSizes) -> Claims:
    """The score matrix alone: what the data see of it, its gradient, and both together."""
    ranks = single_head.head_ranks(sizes)
    n, d, samples = sizes.num_tokens, sizes.width, sizes.num_samples
    is_known = n == 1 or n >= d or samples <= 2 or (samples == 3 and sizes.score_rank == d)
    outer = [exact_rank(ranks.outer_product, _SUBSPACES) if is_known else rank_bound(ranks.outer_product, _SUBSPACES)]
    functional = [exact_rank(ranks.functional, _FROZEN)]
    if sizes.is_merged:
        return outer, functional, outer
    are_few = samples <= 3 or samples * sizes.value_width <= sizes.key_width
    is_full = ranks.functional == sizes.num_parameters
    return outer, functional, _known_or_conjectured(ranks.loss, are_few or is_full, _SINGLE)


def _causal_claims(sizes: HeadSizes) -> Claims:
    """V frozen: the gradient in S has full rank, as token i adds x_i times a vector of the tokens up to i."""
    outer = [rank_bound(causal.outer_product_rank_bound(sizes), _DATA)]
    if sizes.is_value_frozen:
        scores = 0 if sizes.is_merged else sizes.score_parameters
        return outer, [exact_rank(scores, _FROZEN)], outer if sizes.is_merged else [exact_rank(scores, _FROZEN)]
    loss = causal.loss_rank_bound(sizes)
    of_loss = [rank_bound(loss, _DATA)] if sizes.is_merged else [_CAUSAL.value(loss)]
    return outer, [rank_bound(causal.functional_rank_bound(sizes), _DATA)], of_loss


def _last_token_claims(sizes: HeadSizes) -> Claims:
    outer, functional, loss = (
        rank(sizes) for rank in (last_token.outer_product_rank, last_token.functional_rank, last_token.loss_rank)
    )
    samples, is_frozen = sizes.num_samples, sizes.is_value_frozen
    are_few = samples < sizes.width and (samples <= 3 or samples <= sizes.value_width)
    seen_lines = samples <= 3 or samples <= sizes.key_width or samples >= sizes.width
    return (
        _known_or_conjectured(outer, False, _LAST),
        _known_or_conjectured(functional, is_frozen or (sizes.is_merged and are_few), _LAST),
        _known_or_conjectured(loss, is_frozen and not sizes.is_merged and seen_lines, _LAST),
    )


def _known_or_conjectured(rank: int, is_proved: bool, conjecture: Conjecture) -> list[RankValue]:
    """An exact rank, or a bound that is proved and conjectured to be the rank."""
    return [exact_rank(rank, _DATA)] if is_proved else [conjecture.value(rank), rank_bound(rank, _DATA)]


def exact_rank(rank: int, reference: str) -> RankValue:
    return RankValue(rank, "exact", reference)


def rank_bound(rank: int, reference: str) -> RankValue:
    return RankValue(rank, "upper_bound", reference)
