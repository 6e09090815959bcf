"""Hessian ranks of one locally connected layer over disjoint patches followed by one dense layer, linear, no bias.

Throughout, ``patches`` t, ``patch_size`` k inputs in each, ``filters`` m per patch, ``outputs`` K in which the loss
curves (K - 1 under cross-entropy).

For inputs of rank r in general position: in R^r, the space on which the inputs vary,
patch i sees a subspace C_i of dimension c = min(k, r), its filters a subspace M_i of it of dimension l = min(m, c).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hessmap.errors import require
from hessmap.networks import LocallyConnected
from hessmap.records import RankPrediction, RankValue
from hessmap.theory import locally_connected as low_input_rank
from hessmap.theory.attention.subspace_products import equal_products_dimension
from hessmap.theory.convolutional import deep_bounds
from hessmap.theory.convolutional.prediction import NO_OUTPUTS, non_linear_claims
from hessmap.theory.data_ranks import RankInputs, RankQuestion, checked_count, data_ranks
from hessmap.theory.fully_connected import linear
from hessmap.theory.fully_connected.linear import HessianRanks, hessian_ranks
from hessmap.theory.prediction import Claims, rank_prediction, rank_rule

__all__ = [
    "PatchRank",
    "locally_connected_ranks",
    "loss_rank",
    "outer_product_rank",
    "shared_weights_ranks",
]


def locally_connected_ranks(
    patches: int, patch_size: int, filters: int, outputs: int, residual_ranks: int | Sequence[int] | None = None
) -> HessianRanks:
    """Own filters for each patch: the ranks of t networks k-m-K side by side, added.

    Args:
        patches: Number of patches t.
        patch_size: Inputs k of a patch.
        filters: Number of filters m (of each patch where patches have their own).
        outputs: Number of outputs K in which the loss curves.
        residual_ranks: Rank of sum residual (patch i)^T for each patch, or one number for all. Defaults to min(k, K).

    Returns:
        The ranks of the three Hessians.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Formula: outer product t q (k + K - q), functional 2 m sum_i s_i, loss t q (k + K - q) + sum_i (2 h_i m -
        h_i^2), with q = min(k, m, K) and h_i = min(q, s_i). ``residual_ranks`` are the s_i, the ranks of sum residual
        (patch i)^T, or one number for all patches; generic: min(k, K) each.

        Assumptions: generic weights, inputs of full rank t k, generic residuals of these ranks.

        Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 9, there upper bounds, here equalities, and Fact 13,
        corrected for residuals of lower rank: t = 1, k = 2, m = 2, K = 2 without residual has loss rank 4, where Fact
        13 gives 8.

    Example:
        Two patches of one input, one filter, one output: two networks 1-1-1.

        >>> locally_connected_ranks(patches=2, patch_size=1, filters=1, outputs=1)
        HessianRanks(outer_product=2, functional=4, loss=4)
    """
    count = checked_count("patches", patches, at_least=1)
    if residual_ranks is None:
        residual_ranks = min(patch_size, outputs)
    ranks = Counter({residual_ranks: count}) if isinstance(residual_ranks, int) else Counter(residual_ranks)
    given = ranks.total()
    require(given == count, "residual_ranks must contain one rank per patch", f"got {given} for {count} patches")
    each = [(hessian_ranks((patch_size, filters, outputs), patch_size, s), num) for s, num in ranks.items()]
    return HessianRanks(*(sum(ranks[part] * num for ranks, num in each) for part in range(3)))


def shared_weights_ranks(
    patches: int, patch_size: int, filters: int, outputs: int, residual_rank: int | None = None
) -> HessianRanks:
    """The same filters for every patch: the ranks of one network k-m-Kt.

    Args:
        patches: Number of patches t.
        patch_size: Inputs k of a patch.
        filters: Number of filters m (of each patch where patches have their own).
        outputs: Number of outputs K in which the loss curves.
        residual_rank: Rank s of the moments sum residual (patch i)^T stacked over the patches. Defaults to min(k, K t).

    Returns:
        The ranks of the three Hessians.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Formula: outer product q (k + K t - q), functional 2 m s, loss q (k + K t - q) + 2 h m - h^2, with q = min(k, m,
        K t) and h = min(q, s). ``residual_rank`` s is the rank of the moments sum residual (patch i)^T stacked over the
        patches, K t x k; generic: min(k, K t).

        Assumptions: generic weights, inputs of full rank t k, generic residual of this rank.

        Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 10, there upper bounds, here equalities, and Fact 14, whose
        printed q = min(k, K, K t) is wrong: t = 1, k = 2, m = 1, K = 4 has loss rank 6, where Fact 14 gives 5.

    Example:
        That network, 2-1-4: all its 2 + 4 parameters.

        >>> shared_weights_ranks(patches=1, patch_size=2, filters=1, outputs=4).loss
        6
    """
    stacked = checked_count("patches", patches, at_least=1) * outputs
    rank = min(patch_size, stacked) if residual_rank is None else residual_rank
    return hessian_ranks((patch_size, filters, stacked), patch_size, rank)


_PAPER = "Singh, Hofmann & Schoelkopf 2023"
_PROOF = "proof in research/docs/convolutional.md"
_OWN = (
    f"{_PAPER}, Theorem 9, an equality, {_PROOF}",
    f"{_PAPER}, Theorem 9, an equality, {_PROOF}",
    f"{_PAPER}, Fact 13, corrected for low residual rank (1 patch of 2, 2 filters, 2 outputs, 0: 4, not 8), {_PROOF}",
)
_SHARED = (
    f"{_PAPER}, Theorem 10, an equality, {_PROOF}",
    f"{_PAPER}, Theorem 10, an equality, {_PROOF}",
    f"{_PAPER}, Fact 14 with q = min(k, K t, m) (1 patch of 2, 1 filter, 4 outputs: 6, printed 5), {_PROOF}",
)
_LOW_OUTER = "the dense formula with the input rank"
_SUBSPACES = f"sums of products of subspaces, inputs in general position, not in print, {_PROOF}"
_GENERIC = "the rank for inputs of full rank"
_DENSE = "the dense network of these widths, of which this one is a linear restriction"


@rank_rule.register
def locally_connected_network_ranks(network: LocallyConnected, question: RankQuestion) -> RankPrediction:
    """Linear filters on disjoint patches, own or shared: exact for inputs of full rank and any residual rank.

    For inputs of lower rank in general position the functional rank stays exact; with own filters the other two are
    exact for up to three patches and a generic residual (``low_input_rank``), else upper bounds. Under
    cross-entropy all formulas hold with one output less. Non-linear networks: the linear value as numerical rank, or
    upper bounds.

    >>> net = LocallyConnected(patches=2, patch_size=2, filters=1, outputs=4)
    >>> locally_connected_network_ranks(net, RankQuestion()).loss.value
    12
    """
    data = data_ranks(network.input_dim, network.output_dim, False, question)
    outputs, patches = data.effective_output_dim, network.patches
    seen = (network.layer_parameters[0], outputs * network.widths[1])
    num_filters = network.filters * (1 if network.shared_weights else patches)
    leaving = outputs * (patches if network.shared_weights else 1)
    unitwise = 2 * num_filters * min(network.patch_size, leaving)
    return rank_prediction(
        network,
        question,
        data,
        lambda: _linear_claims(network, seen, data),
        lambda: non_linear_claims(network.activation, seen, num_filters, unitwise),
    )


def _linear_claims(network: LocallyConnected, seen: tuple[int, int], data: RankInputs) -> Claims:
    """A residual of rank s has moments of rank min(k, s) with each patch, stacked over the patches min(k, s t)."""
    outputs, rank, residual = data.effective_output_dim, data.entering_rank, data.residual_rank
    if outputs == 0:
        return NO_OUTPUTS
    sizes = network.patches, network.patch_size, network.filters, outputs
    full = (
        shared_weights_ranks(*sizes, min(network.patch_size, residual * network.patches))
        if network.shared_weights
        else locally_connected_ranks(*sizes, min(network.patch_size, residual))
    )
    references = _SHARED if network.shared_weights else _OWN
    outer, functional, loss = (RankValue(value, "exact", text) for value, text in zip(full, references, strict=True))
    if rank == network.input_dim:
        return [outer], [functional], [loss]
    widths = (*network.widths[:-1], outputs)
    dense = deep_bounds.loss_upper_bound(widths, seen, residual, rank)
    low_outer, low_loss = _low_rank_claims(network, sizes, data)
    return (
        [
            *low_outer,
            _rank_bound(full.outer_product, _GENERIC),
            _rank_bound(linear.outer_product_rank(widths, rank), _LOW_OUTER),
        ],
        [functional],
        [*low_loss, _rank_bound(full.loss, _GENERIC), _rank_bound(dense, _DENSE)],
    )


def _low_rank_claims(
    network: LocallyConnected, sizes: tuple[int, int, int, int], data: RankInputs
) -> tuple[list[RankValue], list[RankValue]]:
    """Own filters: the dimension of sums of products of subspaces, exact for up to three patches and often beyond.

    The loss rank is that of a generic residual; of lower rank it is a bound.
    """
    if network.shared_weights:
        return [], []
    outer = low_input_rank.outer_product_rank(*sizes, data.entering_rank)
    loss = low_input_rank.loss_rank(*sizes, data.entering_rank)
    is_generic = data.residual_rank == min(data.entering_rank, data.effective_output_dim)
    return [_claim(outer)], [_claim(loss) if is_generic else _rank_bound(loss.value, _SUBSPACES)]


def _claim(rank: low_input_rank.PatchRank) -> RankValue:
    return RankValue(rank.value, "exact" if rank.is_exact else "upper_bound", _SUBSPACES)


def _rank_bound(value: int, reference: str) -> RankValue:
    return RankValue(value, "upper_bound", reference)


class PatchRank(NamedTuple):
    """A rank, and whether it is exact or an upper bound.

    Attributes:
        value: The rank or bound.
        is_exact: Whether it is the rank; otherwise it is an upper bound.
    """

    value: int
    is_exact: bool


def outer_product_rank(patches: int, patch_size: int, filters: int, outputs: int, input_rank: int) -> PatchRank:
    """Rank K min(r, t l) + T(r - t l, K; t, (c - l, min(m, K))), T the dimension of a sum of products of subspaces.

    Args:
        patches: Number of patches t.
        patch_size: Inputs k of a patch.
        filters: Number of filters m (of each patch where patches have their own).
        outputs: Number of outputs K in which the loss curves.
        input_rank: Rank r of the inputs.

    Returns:
        The rank, and whether it is exact or an upper bound.

    Notes:
        Derivation: J has the image sum_i R^K (x) M_i + Im V_i (x) C_i. The first parts fill R^K (x) R^(t l) if t l < r,
        and all else; what C_i add modulo the M_i are subspaces of general position of R^(r - t l), of dimension c - l.

        Theorem wherever T is one (up to three patches; C_i or Im V_i all of their space), else a bound.

    Example:
        Two patches of two inputs, one filter, one output, inputs of rank 3: all three.

        >>> outer_product_rank(2, 2, 1, 1, input_rank=3)
        PatchRank(value=3, is_exact=True)
    """
    seen = min(patch_size, input_rank)
    kept = min(filters, seen)
    left, reached = input_rank - min(input_rank, patches * kept), min(filters, outputs)
    more = equal_products_dimension(left, outputs, patches, (seen - kept, reached))
    is_exact = patches <= 3 or left <= max(0, seen - kept) or reached == outputs
    return PatchRank(outputs * (input_rank - left) + more, is_exact)


def loss_rank(patches: int, patch_size: int, filters: int, outputs: int, input_rank: int) -> PatchRank:
    """Generic residual: 2 t m K + T(r - K, K; t, (c - K, min(m, K))) for K <= c.

    Args:
        patches: Number of patches t.
        patch_size: Inputs k of a patch.
        filters: Number of filters m (of each patch where patches have their own).
        outputs: Number of outputs K in which the loss curves.
        input_rank: Rank r of the inputs.

    Returns:
        The rank, and whether it is exact or an upper bound.

    Notes:
        For K > c, with e = min(K, r): 2 t m c + (K - e) min(r, t l) + T(r, e; t, (l, e - c)).

        Derivation: rk(H_L) = rk(H_f) + dim J(ker H_f), rk(H_f) = 2 t m min(c, K). The residual is P X, P a K x r
        matrix. For K <= c the kernel of H_f holds the filters of rows in C_i and the kernel of P, subspaces of general
        position of R^(r - K), and no V_i. For K > c it holds the columns of V_i orthogonal to P C_i, and of W_i nothing
        that changes an output; the residual sees e outputs, and the K - e others meet all M_i.

        Kind of result: as ``outer_product_rank``; for K > c and four patches or more a bound, T at most e r - 1 because
        P itself is orthogonal to J(ker H_f).

    Example:
        One patch is a fully connected network of r inputs: 6-5-4 of rank 3 has 33.

        >>> loss_rank(1, 6, 5, 4, input_rank=3)
        PatchRank(value=33, is_exact=True)
    """
    seen = min(patch_size, input_rank)
    reached, functional = min(filters, outputs), 2 * patches * filters * min(seen, outputs)
    if outputs <= seen:
        left = input_rank - outputs
        more = equal_products_dimension(left, outputs, patches, (seen - outputs, reached))
        return PatchRank(functional + more, patches <= 3 or left <= seen - outputs or reached == outputs)
    kept, met = min(filters, seen), min(outputs, input_rank)
    beyond = (outputs - met) * min(input_rank, patches * kept)
    more = equal_products_dimension(input_rank, met, patches, (kept, met - seen))
    return PatchRank(functional + beyond + min(more, met * input_rank - 1), patches <= 3)
