"""Ranks of the three Hessians of linear residual networks x -> B C_L .. C_1 A x.

Blocks C = I + W or C = I + U D; the ends A and B are absent, frozen or trained.
"""

from __future__ import annotations

from dataclasses import dataclass

from hessmap.networks import Residual
from hessmap.records import RankPrediction, RankValue
from hessmap.theory.data_ranks import RankInputs, RankQuestion, data_ranks
from hessmap.theory.fully_connected.linear import HessianRanks
from hessmap.theory.prediction import Claims, Conjecture, rank_prediction, rank_rule

__all__ = ["ResidualSizes", "single_layer_block_ranks", "two_layer_block_ranks"]


@dataclass(frozen=True)
class ResidualSizes:
    """Integers of a residual network and its data, those at a frozen end cut at the width.

    Attributes:
        width: Width d of the residual stream.
        num_blocks: Number of blocks L.
        inner_width: Inner width m of blocks I + U D; None for blocks I + W.
        input_rank: Rank r of the inputs.
        effective_outputs: Number of outputs K in which the loss curves.
        residual_rank: Rank s of the residual moment sum residual x^T.
        is_input_trained: Whether the map before the blocks is trained. Defaults to False.
        is_output_trained: Whether the map after the blocks is trained. Defaults to False.
    """

    width: int
    num_blocks: int
    inner_width: int | None
    input_rank: int
    effective_outputs: int
    residual_rank: int
    is_input_trained: bool = False
    is_output_trained: bool = False


def single_layer_block_ranks(sizes: ResidualSizes) -> HessianRanks:
    """Blocks I + W: the ranks of the fully connected network of the same layers, at generic W and at W = 0.

    Args:
        sizes: Integers of network and data.

    Returns:
        The ranks of the three Hessians.

    Notes:
        W -> I + W is a translation, which changes no derivative; and only ranks of products of layers enter the
        formulas, which are those of generic weights where all blocks are the identity. With T trained layers, q0 =
        min(r, K, d) (d only if T > 1), q = min(q0, s): outer product q0 (r + K - q0), functional 2 q (T-1) d + 2 q s -
        T q^2 (0 if T = 1), loss q0 (r + K - q0) + 2 q (T-1) d - (T-1) q^2, as ``fully_connected.linear`` has them.

    Example:
        >>> single_layer_block_ranks(ResidualSizes(2, 1, None, 2, 2, 1))
        HessianRanks(outer_product=4, functional=0, loss=4)
    """
    d, r, outputs, s = sizes.width, sizes.input_rank, sizes.effective_outputs, sizes.residual_rank
    num_layers = sizes.num_blocks + sizes.is_input_trained + sizes.is_output_trained
    q0 = min(r, outputs) if num_layers == 1 else min(r, outputs, d)
    q, hidden = min(q0, s), (num_layers - 1) * d
    outer = q0 * (r + outputs - q0)
    functional = 2 * q * hidden + 2 * q * s - num_layers * q**2 if num_layers > 1 else 0
    return HessianRanks(outer, functional, outer + 2 * q * hidden - (num_layers - 1) * q**2)


def two_layer_block_ranks(sizes: ResidualSizes) -> HessianRanks:
    """Blocks I + U D of inner width m: a skip over two layers makes a bottleneck of width L m, not m.

    Args:
        sizes: Integers of network and data.

    Returns:
        The ranks of the three Hessians.

    Notes:
        Formulas, with M = L m, S = min(s, d), q = min(m, S); no end trained: q0 = min(M, r, K),

        - outer product: q0 (r + K - q0);
        - functional: 2 m s + 2 (L-1) q (d + m - q);
        - both less loss: 2 q s - q^2 + (r-M+(L-1)q)+ (K-M+(L-1)q)+ - (r-M)+ (K-M)+.

        With trained ends q0 = min(r, K, d); ``_both_ends`` and ``_one_end`` have the rest.

        Assumptions: generic weights, inputs of rank r and residual moment of rank s. Reference:
        research/docs/attention-residual.md, where the outer-product rank is proved.

    Example:
        (1 + u2 d2)(1 + u1 d1) x, d = m = 1: ranks 1, 4, 4.

        >>> two_layer_block_ranks(ResidualSizes(1, 2, 1, 1, 1, 1))
        HessianRanks(outer_product=1, functional=4, loss=4)
    """
    r, outputs = sizes.input_rank, sizes.effective_outputs
    if min(r, outputs) == 0:
        return HessianRanks(0, 0, 0)
    if sizes.is_input_trained and sizes.is_output_trained:
        return _both_ends(sizes)
    if sizes.is_input_trained or sizes.is_output_trained:
        return _one_end(sizes)
    assert sizes.inner_width is not None
    d, m, s, others = sizes.width, sizes.inner_width, sizes.residual_rank, sizes.num_blocks - 1
    total = sizes.num_blocks * m
    q = min(m, s, d)
    bottleneck = min(total, r, outputs)
    outer = bottleneck * (r + outputs - bottleneck)
    functional = 2 * m * s + 2 * others * q * (d + m - q)
    spare = max(0, r - total + others * q) * max(0, outputs - total + others * q)
    shared = 2 * q * s - q**2 + spare - max(0, r - total) * max(0, outputs - total)
    return HessianRanks(outer, functional, outer + functional - shared)


def _blocks(sizes: ResidualSizes) -> tuple[int, int]:
    """S, and 2 L q (d + m - q)."""
    assert sizes.inner_width is not None
    d, m = sizes.width, sizes.inner_width
    entering = min(sizes.residual_rank, d)
    q = min(m, entering)
    return entering, 2 * sizes.num_blocks * q * (d + m - q)


def _both_ends(sizes: ResidualSizes) -> HessianRanks:
    """H_f = 2Sd + 2Ss - 2S^2 + 2L q (d+m-q) and H_L = H_o + 2Sd - S^2 + 2L q (d+m-q)."""
    d, r, outputs = sizes.width, sizes.input_rank, sizes.effective_outputs
    bottleneck = min(r, outputs, d)
    outer = bottleneck * (r + outputs - bottleneck)
    entering, blocks = _blocks(sizes)
    functional = 2 * entering * (d + sizes.residual_rank - entering) + blocks
    return HessianRanks(outer, functional, outer + 2 * entering * d - entering**2 + blocks)


def _one_end(sizes: ResidualSizes) -> HessianRanks:
    """With t the rank at the untrained end: H_f = 2L q (d+m-q) + S d - q (d-S) - (d-M)+ (S-M)+ - (min(S,M)-m)+ (d-S-M)+
    and H_L = H_o + 2L q (d+m-q) + (S-q) min(d-t, M)."""
    assert sizes.inner_width is not None
    d, m, r, outputs = sizes.width, sizes.inner_width, sizes.input_rank, sizes.effective_outputs
    bottleneck = min(r, outputs, d)
    outer = bottleneck * (r + outputs - bottleneck)
    entering, blocks = _blocks(sizes)
    total, q = sizes.num_blocks * m, min(m, entering)
    unseen = max(0, d - total) * max(0, entering - total) + max(0, min(entering, total) - m) * max(
        0, d - entering - total
    )
    functional = blocks + entering * d - q * (d - entering) - unseen
    untrained = outputs if sizes.is_input_trained else r
    return HessianRanks(outer, functional, outer + blocks + (entering - q) * min(d - untrained, total))


_PROOF = "proof in research/docs/attention-residual.md"
_TRANSLATION = f"the fully connected network of the same layers: W -> I + W is a translation, {_PROOF}"
_OUTER = f"a skip over two layers makes a bottleneck of width blocks times inner width, {_PROOF}"
_TWO_LAYERS = Conjecture("residual blocks of two layers, not in print; study residual/ranks", 2_000)
_NO_RESIDUAL = "no residual, no functional part"
_FITTED = "no residual: the outer-product Hessian is all"
_PARAMETERS = "the number of parameters"


@rank_rule.register
def residual_ranks(network: Residual, question: RankQuestion) -> RankPrediction:
    """Blocks of one layer: exact. Of two layers: the outer product exact, the other two conjectured.

    With an activation: the linear formula as numerical rank, or the number of parameters as a bound.

    >>> ranks = residual_ranks(Residual(3, 2, inner_width=1), RankQuestion(residual_rank=1))
    >>> ranks.outer_product.value, ranks.functional.value, ranks.loss.value
    (8, 8, 12)
    >>> ranks.outer_product.kind, ranks.loss.kind
    ('exact', 'conjecture')
    """
    data = data_ranks(network.input_dim, network.output_dim, False, question)
    sizes = residual_sizes(network, data)
    bound = [RankValue(network.num_parameters, "upper_bound", _PARAMETERS)]
    return rank_prediction(
        network,
        question,
        data,
        lambda: _linear_claims(sizes),
        lambda: (bound, bound, bound),
        inputs=_inputs(network, question.loss, data),
        is_homogeneous=network.inner_width is None,
    )


def residual_sizes(network: Residual, data: RankInputs) -> ResidualSizes:
    """What the blocks meet: a frozen end lets through no more than the width."""
    rank, outputs = data.entering_rank, data.effective_output_dim
    rank = rank if network.train_input else min(rank, network.width)
    outputs = outputs if network.train_output else min(outputs, network.width)
    residual_rank = min(data.residual_rank, rank, outputs)
    return ResidualSizes(
        network.width,
        network.num_blocks,
        network.inner_width,
        rank,
        outputs,
        residual_rank,
        network.train_input,
        network.train_output,
    )


def _linear_claims(sizes: ResidualSizes) -> Claims:
    if sizes.inner_width is None:
        outer, functional, loss = ([RankValue(rank, "exact", _TRANSLATION)] for rank in single_layer_block_ranks(sizes))
        return outer, functional, loss
    ranks = two_layer_block_ranks(sizes)
    outer = [RankValue(ranks.outer_product, "exact", _OUTER)]
    if sizes.residual_rank == 0:
        return outer, [RankValue(0, "exact", _NO_RESIDUAL)], [RankValue(ranks.outer_product, "exact", _FITTED)]
    return outer, [_TWO_LAYERS.value(ranks.functional)], [_TWO_LAYERS.value(ranks.loss)]


def _inputs(network: Residual, loss: str, data: RankInputs) -> dict[str, object]:
    known: dict[str, object] = {
        "network": str(network),
        "loss": loss,
        "input_rank": data.input_rank,
        "residual_rank": data.residual_rank,
        "effective_output_dim": data.effective_output_dim,
    }
    return known if data.num_samples is None else known | {"num_samples": data.num_samples}
