"""Ranks of linear self-attention: several heads with an output projection, and the rule which formula applies.

F = sum_i X Q_i K_i^T G V_i O_i over h heads, for many samples; of V_i and O_i only the product P_i = V_i O_i (d, o)
matters. ``self_attention_ranks`` chooses the formula and says whether it is proved.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb

from hessmap.errors import require
from hessmap.networks import SelfAttention
from hessmap.records import RankPrediction, RankValue
from hessmap.theory.attention import causal, last_token, single_head
from hessmap.theory.attention import heads as projected
from hessmap.theory.attention.single_head import HeadSizes
from hessmap.theory.data_ranks import RankInputs, RankQuestion, checked_count, effective_output_dim
from hessmap.theory.prediction import Claims, Conjecture, claims_as_bounds, rank_prediction, rank_rule

__all__ = [
    "ProjectedHeads",
    "functional_rank",
    "has_loss_formula",
    "loss_rank",
    "loss_upper_bound",
    "outer_product_upper_bound",
]

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
    """Proved except for the functional Hessian of a trained V, of which the bound is."""
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


@dataclass(frozen=True)
class ProjectedHeads:
    """Integers of h heads: ``width`` d, ``key_width``, ``value_width`` v, ``heads`` h, ``outputs`` o.

    Attributes:
        width: Width d of the tokens, or of the residual stream.
        key_width: Width of queries and keys of a head.
        value_width: Width of the values of a head.
        heads: Number of heads h.
        outputs: Number of outputs K in which the loss curves.
        is_single_token: Whether samples have a single token.
        is_merged: Whether Q K^T is one trained matrix.

    Notes:
        ``is_single_token``: every sample is one token. ``is_merged``: one matrix S in place of Q K^T.
    """

    width: int
    key_width: int
    value_width: int
    heads: int
    outputs: int
    is_single_token: bool = False
    is_merged: bool = False

    @property
    def score_rank(self) -> int:
        return self.width if self.is_merged else min(self.key_width, self.width)

    @property
    def product_rank(self) -> int:
        """w, the rank of V O."""
        return min(self.value_width, self.width, self.outputs)

    @property
    def score_dimension(self) -> int:
        """D of one head."""
        d, k = self.width, self.score_rank
        rank = min(2 * k, d)
        return rank * d - comb(rank, 2) if self.is_single_token else k * (2 * d - k)

    @property
    def product_dimension(self) -> int:
        """The dimension of the matrices V O."""
        w = self.product_rank
        return w * (self.width + self.outputs - w)

    @property
    def score_parameters(self) -> int:
        """Of one head."""
        return self.width**2 if self.is_merged else 2 * self.width * self.key_width

    @property
    def num_parameters(self) -> int:
        return self.heads * (self.score_parameters + self.value_width * (self.width + self.outputs))


def outer_product_upper_bound(heads: ProjectedHeads) -> int:
    """The least of five dimensions that hold the functions near the given one; equal to the rank on all sizes tried.

    Args:
        heads: Integers of the heads.

    Returns:
        The upper bound.

    Notes:
        - All: o d^2 (d+1)/2, of a single token o C(d+2, 3).
        - h (D + DP), less h max(1, h - codimension): the scaling of each head and, where S and P have room, the mixing
          of the heads by GL(h). codimension = (d-k)^2 + (d-w)(o-w), of a single token C(d - min(2k, d) + 1, 2) for
          (d-k)^2.
        - Flattenings R (a + A/a - R) of the tensor of rank R, wherever R is below both sides: by the queries (h k, d),
          the outputs (h w, o), both (h k w, d o).
        - One output and 1 < h <= d: h (D + DP) less h^2 + d h (h-1)/2 - h (d-k)^2.

        Assumptions: none; generic weights for equality. Reference: research/docs/attention-residual.md.

    Example:
        >>> outer_product_upper_bound(ProjectedHeads(3, 3, 2, heads=2, outputs=2))    # not 2 (9 + 6 - 1) = 28
        26
    """
    d, o, h = heads.width, heads.outputs, heads.heads
    k, w, single = heads.score_rank, heads.product_rank, heads.is_single_token
    all_forms = o * (comb(d + 2, 3) if single else d * comb(d + 1, 2))
    each = heads.score_dimension + heads.product_dimension
    lost, room = h, (comb(d - min(2 * k, d) + 1, 2) if single else (d - k) ** 2) + (d - w) * (o - w)
    if h <= min(comb(d + 1, 2) if single else d**2, d * o):
        lost = h * max(1, h - room)
    bounds = [all_forms, h * each - lost]
    for rank, side in [(h * w, o)] if single else [(h * k, d), (h * w, o), (h * k * w, d * o)]:
        if rank < min(side, all_forms // side):
            bounds.append(rank * (side + all_forms // side - rank))
    if o == 1 and 1 < h <= d and not single:
        bounds.append(h * each - max(h, h**2 + d * comb(h, 2) - h * (d - k) ** 2))
    return min(bounds)


def functional_rank(heads: ProjectedHeads) -> int:
    """h times that of one head, as no term holds two: 2 d key_width + 2 v min(d, o) + min(w |d - o|, D - 1).

    Args:
        heads: Integers of the heads.

    Returns:
        The rank.

    Example:
        With one matrix S in place of Q K^T, l + 2 v min(d, o) + min(w |d - o|, l - 1), l = min(D, w (d + o - w)).

        >>> functional_rank(ProjectedHeads(3, 1, 2, heads=2, outputs=3))
        36
        >>> functional_rank(ProjectedHeads(3, 3, 3, heads=1, outputs=6, is_merged=True))
        35
    """
    met = 2 * heads.value_width * min(heads.width, heads.outputs)
    seen = min(heads.score_dimension, heads.product_dimension) if heads.is_merged else heads.score_dimension
    scores = seen if heads.is_merged else heads.score_parameters
    return heads.heads * (scores + met + min(_gap(heads), seen - 1))


def loss_rank(heads: ProjectedHeads) -> int:
    """``loss_upper_bound`` less what several heads lose: (h e - A' + r)+ and (h w - B)+ (o - o').

    Args:
        heads: Integers of the heads.

    Returns:
        The rank.

    Notes:
        B is the dimension of the forms of one output, o' = min(o, B), A' = o' B, e = (w |d - o'| - D + 1)+ what the
        functional Hessian of one head leaves free, r = 2 d^2 - 1 (of a single token d^2) the infinitesimal changes of
        basis of the tokens, which no such direction can be told from. Outputs beyond B are of no residual.

        Assumptions: ``has_loss_formula``. Reference: research/docs/conjectures.md, conjectured.

    Example:
        D = 1, o = h = 3: of the 3 (o - 1) directions orthogonal to the residual, o - 1 can be told apart.

        >>> loss_rank(ProjectedHeads(1, 2, 2, heads=3, outputs=3)), loss_upper_bound(ProjectedHeads(1, 2, 2, 3, 3))
        (26, 30)
    """
    d, o, h, w = heads.width, heads.outputs, heads.heads, heads.product_rank
    most = loss_upper_bound(heads)
    if h == 1:
        return most
    forms = comb(d + 2, 3) if heads.is_single_token else d * comb(d + 1, 2)
    met = min(o, forms)
    bases = d**2 if heads.is_single_token else 2 * d**2 - 1
    free = h * max(0, w * abs(d - met) - heads.score_dimension + 1)
    told_apart = min(free, max(0, met * forms - bases))
    return most - (free - told_apart) - max(0, h * w - forms) * (o - met)


def has_loss_formula(heads: ProjectedHeads) -> bool:
    """Whether ``loss_rank`` was met on all sizes tried: one head, at least as many outputs as the width, or
    w |d - o| <= D - 1; of one matrix S in place of Q K^T, one head or w (d + o - w) >= D and o >= d.

    Args:
        heads: Integers of the heads.

    Returns:
        True if so.

    Example:
        >>> has_loss_formula(ProjectedHeads(1, 2, 2, heads=3, outputs=3))
        True
    """
    if heads.heads == 1:
        return True
    is_wide = heads.outputs >= heads.width
    if heads.is_merged:
        return is_wide and heads.product_dimension >= heads.score_dimension
    return is_wide or _gap(heads) <= heads.score_dimension - 1


def loss_upper_bound(heads: ProjectedHeads) -> int:
    """All parameters but h (v - w)(d + o - 2w), the explicit kernel: dV = z u^T with u^T O = 0 and z orthogonal to the
    gradient in V O, and dO likewise.

    Args:
        heads: Integers of the heads.

    Returns:
        The upper bound.

    Example:
        >>> loss_upper_bound(ProjectedHeads(2, 1, 3, heads=1, outputs=4))
        20
    """
    w = heads.product_rank
    spare = heads.value_width - w
    lost = spare * (heads.width + heads.outputs - 2 * w)
    score_free = heads.score_parameters - heads.score_dimension if heads.is_merged and heads.is_single_token else 0
    return heads.num_parameters - heads.heads * (lost + score_free)


def _gap(heads: ProjectedHeads) -> int:
    return heads.product_rank * abs(heads.width - heads.outputs)


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


def _data_ranks(network: SelfAttention, question: RankQuestion) -> tuple[RankInputs, HeadSizes]:
    """The sizes of samples and tokens, those not given so large that more change nothing."""
    names = ("residual_rank", "centred_input_rank", "uncentred_residual_rank")
    given = [name for name in names if getattr(question, name) is not None]
    given += ["mean_residual_is_zero"] * question.mean_residual_is_zero
    must = "the residuals of self-attention are generic: its Hessian is not a function of sum residual input^T"
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
    data = RankInputs(rank, rank, rank, read * outputs, num_samples=question.num_samples, notes=tuple(notes))
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
