"""Hessian ranks of deep linear networks with a bias in none, some or all of their layers.

One set of formulas. Throughout, ``widths`` are d = M_0, M_1, .., M_L = K with L layers, and

- ``input_rank`` r is the rank of sum x x^T, ``centred_input_rank`` rc that of the centred inputs, r or r - 1;
- with Omega = sum residual x^T and omega = sum residual, ``residual_rank`` is s, the rank of Omega, for a network
  without bias, and t, the rank of [Omega, omega], for one with a bias;
- ``effective_output_dim`` replaces K where the loss does not depend on some output direction (cross-entropy: K - 1).

Without bias, with q0 = min(r, M_1, .., M_{L-1}, K), q = min(q0, s) and M = M_1 + .. + M_{L-1}:

    rk H_o = q0 (r + K - q0)
    rk H_f = 2 q M + 2 q s - L q^2           (0 for L = 1)
    rk H_L = q0 (r + K - q0) + 2 q M - (L - 1) q^2

With a bias in every layer, q0 = min(rc, M_1, .., M_{L-1}, K), m = min(M_1, .., M_{L-1}), q = min(t, m) and b the LAST
hidden layer of width m:

    rk H_o = q0 (rc + K - q0) + K
    rk H_f = 2 q M + 2 q t - L q^2 + position - q       (0 for L = 1; without the last - q for omega = 0)
    rk H_L = q0 (rc + K - q0) + K + 2 q M - (L - 1) q^2 + position

where position is 0 for omega = 0, (L - 1) q for t <= m, and 2 (M_{b+1} + .. + M_{L-1}) - (L - 1 - 2 b) m for t > m.

The general formula counts layer by layer. Two observations carry it. Inputs on a hyperplane that misses the origin
(rc = r - 1) make W_1 x itself a biased layer: the set S of biased layers may be read with layer 1 in it and r as rc.
And the functional Hessian depends on inputs and outputs through [Omega, omega] alone: t outputs, and t - 1 inputs
beside the constant one.

Assumptions: generic weights and biases, that is, every PRODUCT of consecutive weights, and every W^{k:1} Omega^T
W^{L:l}, has maximal rank; a residual in general position with these ranks, its scale included (1-1-1 with
Omega = -2 w1 w2 sum x^2 has loss rank 1 instead of 2). Assumption A1 of Singh, Bachmann & Hofmann 2021 (each single
weight of maximal rank) is not enough: widths 2-3-2-3-2 with W1 = [[1,0],[0,1],[0,0]], W2 = [[1,0,0],[0,0,1]],
W3 = [[1,0],[0,0],[0,1]], W4 = [[1,0,0],[0,1,0]] satisfy A1, and the outer-product Hessian has rank 3, not 4
(``products`` has the formulas for any weights).

Proved in research/docs/conjectures.md: every outer-product rank; all three ranks without bias or with omega = 0. The
functional and loss ranks of networks with bias are conjectures without a counterexample, with upper bounds that are
theorems (``functional_upper_bound``, ``loss_upper_bound``).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from hessmap.errors import require
from hessmap.theory.data_ranks import (
    RankInputs,
    checked_count,
    checked_input_rank,
    checked_output,
    checked_residual_rank,
    checked_widths,
    generic_residual_rank,
)
from hessmap.theory.fully_connected.products import nested_sum_dimension

__all__ = [
    "HessianRanks",
    "active_bottleneck_rank",
    "bottleneck_critical_point_ranks",
    "bottleneck_rank",
    "functional_column_ranks",
    "functional_rank",
    "functional_upper_bound",
    "generic_residual_rank",
    "hessian_ranks",
    "loss_layer_upper_bounds",
    "loss_rank",
    "loss_upper_bound",
    "outer_product_rank",
]

# Layers 1..L that have a bias.
Layers = Iterable[int] | Literal["all"]


class HessianRanks(NamedTuple):
    """Ranks of the three Hessians of one network.

    Attributes:
        outer_product: Rank of H_o.
        functional: Rank of H_f.
        loss: Rank of H_L.
    """

    outer_product: int
    functional: int
    loss: int


def bottleneck_rank(widths: Iterable[int], input_rank: int, *, effective_output_dim: int | None = None) -> int:
    """The end-to-end map on the data has rank q0 = min(r, M_1, .., M_{L-1}, K).

    Args:
        widths: Widths d, M_1, .., K.
        input_rank: Rank r of the inputs; the centred rank with bias.
        effective_output_dim: Output directions in which the loss curves. Defaults to K.

    Returns:
        q0.

    Raises:
        InvalidInput: If an integer is out of range.

    Example:
        >>> bottleneck_rank((6, 2, 4), input_rank=5)
        2
    """
    widths = checked_widths(widths)
    rank = checked_input_rank(widths[0], input_rank)
    return min((rank, *widths[1:-1], checked_output(widths, effective_output_dim)))


def active_bottleneck_rank(widths: Iterable[int], residual_rank: int) -> int:
    """The residual moment has rank q = min(s, M_1, .., M_{L-1}) after every hidden layer.

    Args:
        widths: Widths d, M_1, .., K.
        residual_rank: Rank s of the residual moment, at most min(r, K).

    Returns:
        q, which is min(q0, s).

    Raises:
        InvalidInput: If the widths are not integers of at least 1.

    Example:
        >>> active_bottleneck_rank((6, 5, 4), residual_rank=1)
        1
    """
    return min((residual_rank, *checked_widths(widths)[1:-1]))


def outer_product_rank(
    widths: Iterable[int],
    input_rank: int,
    *,
    biased_layers: Layers = (),
    centred_input_rank: int | None = None,
    effective_output_dim: int | None = None,
) -> int:
    """The outer-product Hessian has rank sum_l (u_l - u_{l-1}) g_l; only the LAST bias matters.

    Args:
        widths: Widths d, M_1, .., K.
        input_rank: Rank r of the inputs.
        biased_layers: Layers in 1..L with a bias, or "all". Defaults to none.
        centred_input_rank: Rank rc of the centred inputs, r or r - 1. Defaults to r.
        effective_output_dim: Output directions in which the loss curves. Defaults to K.

    Returns:
        The rank of H_o: q0 (r + K - q0) without bias, q0 (rc + K - q0) + K with a bias in every layer.

    Raises:
        InvalidInput: If an integer is out of range or the two input ranks contradict each other.

    Notes:
        Formula: u_l = min(M_l, .., K) and u_0 = 0. Up to the last biased layer, g_l = min(rc, M_1, .., M_{l-1}) + 1;
        after it, g_l = min(g of the last biased layer, and the widths from there to M_{l-1}).

        Theorem for generic weights; nothing is assumed of the residual. Proof: layer l adds Im(W_L .. W_{l+1}) (x) F_l
        to the image of the Jacobian, F_l spanned by its inputs as functions of the sample, and the constant function
        if l is in S. The first spaces grow, so of the constants only that of the last biased layer counts, and it may
        be added to all F_l before it: then these shrink, since the inputs of a layer are combinations of those before
        and the constant, and ``products.nested_sum_dimension`` applies.

        Reference: Singh, Bachmann & Hofmann 2021, Theorem 3, Corollary 4 and, with bias, Theorem 12 and S7.3.
        Corrected: assumption A1 must hold for products of weights (2-3-2-3-2, see the module), and with bias the
        centred input rank counts (3-4-2 on two samples that are not centred has rank 4, the uncentred r gives 6).

    Example:
        One layer 3-2 is linear regression, 2 * 3 free directions; one hidden unit leaves 1 * (3 + 2 - 1). With a bias
        in layer 1, w_2 (w_1 x + b_1) can move in both directions of a + c x.

        >>> outer_product_rank((3, 2), 3), outer_product_rank((3, 1, 2), 3)
        (6, 4)
        >>> outer_product_rank((1, 1, 1), 1, biased_layers=[1]), outer_product_rank((3, 4, 2), 1, biased_layers="all")
        (2, 4)
    """
    return _outer_product_rank(_network(widths, input_rank, biased_layers, centred_input_rank, effective_output_dim))


def functional_rank(
    widths: Iterable[int],
    input_rank: int,
    residual_rank: int | None = None,
    *,
    biased_layers: Layers = (),
    centred_input_rank: int | None = None,
    uncentred_residual_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    effective_output_dim: int | None = None,
) -> int:
    """The functional Hessian has rank 2 q M + 2 q s - L q^2 without bias; with bias it is counted layer by layer.

    Args:
        widths: Widths d, M_1, .., K.
        input_rank: Rank r of the inputs.
        residual_rank: Rank s of Omega; with bias, rank t of [Omega, omega]. Defaults to the generic value.
        biased_layers: Layers in 1..L with a bias, or "all". Defaults to none.
        centred_input_rank: Rank rc of the centred inputs, r or r - 1. Defaults to r.
        uncentred_residual_rank: With bias, rank s of Omega: t or t - 1. Defaults to the generic value.
        mean_residual_is_zero: Whether omega = 0, as wherever the gradient of the last bias vanishes. Defaults to False.
        effective_output_dim: Output directions in which the loss curves. Defaults to K.

    Returns:
        The rank of H_f; 0 for L = 1.

    Raises:
        InvalidInput: If an integer is out of range or contradicts another.

    Notes:
        Formula with bias: on the network from t - 1 inputs to t outputs, the number of weights minus the kernel of
        every layer (as in ``loss_upper_bound``), without the condition that the last layer leaves the outputs as they
        are. The last bias has no second derivative and is left out; if no other is left, or omega = 0, the formula
        without bias applies, with s. If s = t, layer 1 counts as biased.

        Theorem without bias or with omega = 0, conjecture with bias, for generic weights and a generic residual.

        Reference: Singh, Bachmann & Hofmann 2021, Corollary 6 (there an upper bound; at L = 1 the printed expression is
        2 q s - q^2, but a linear map has no second derivative) and S7.3, right for M_i >= min(rc + 1, K) and corrected
        for bottlenecks: widths 2-1-3-3 with rc = 2 have rank 16, the printed formula gives 12.

    Example:
        Width 1-1-1 is w2 w1 x: the mixed derivative by w1 and w2 fills both off-diagonal entries. With a bias in
        layer 1 there are two mixed derivatives, (w2, w1) and (w2, b1), in a matrix of rank 2.

        >>> functional_rank((1, 1, 1), 1, 1), functional_rank((6, 5, 4), 6, 1), functional_rank((6, 4), 6, 4)
        (2, 10, 0)
        >>> functional_rank((1, 1, 1), 1, biased_layers=[1]), functional_rank((1, 1, 1), 1, 1, biased_layers="all")
        (2, 2)
    """
    network = _network(widths, input_rank, biased_layers, centred_input_rank, effective_output_dim)
    return _functional_rank(network, _residual(network, residual_rank, uncentred_residual_rank, mean_residual_is_zero))


def loss_rank(
    widths: Iterable[int],
    input_rank: int,
    residual_rank: int | None = None,
    *,
    biased_layers: Layers = (),
    centred_input_rank: int | None = None,
    uncentred_residual_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    effective_output_dim: int | None = None,
) -> int:
    """The loss Hessian has rank q0 (r + K - q0) + 2 q M - (L - 1) q^2 without bias; with bias, both parts less overlap.

    Args:
        widths: Widths d, M_1, .., K.
        input_rank: Rank r of the inputs.
        residual_rank: Rank s of Omega; with bias, rank t of [Omega, omega]. Defaults to the generic value.
        biased_layers: Layers in 1..L with a bias, or "all". Defaults to none.
        centred_input_rank: Rank rc of the centred inputs, r or r - 1. Defaults to r.
        uncentred_residual_rank: With bias, rank s of Omega: t or t - 1. Defaults to the generic value.
        mean_residual_is_zero: Whether omega = 0, as wherever the gradient of the last bias vanishes. Defaults to False.
        effective_output_dim: Output directions in which the loss curves. Defaults to K.

    Returns:
        The rank of H_L, for every L >= 1 and every residual rank, also 0.

    Raises:
        InvalidInput: If an integer is out of range or contradicts another.

    Notes:
        Formula: rk(H_o) + rk(H_f) minus their overlap, which is that of the network left by the residual: from t - 1
        inputs (t, if s = t and layer 1 has no bias) to t outputs with the same hidden layers and S; its overlap is
        rk(H_o) + rk(H_f) - p + (sum of its kernel dimensions).

        Theorem without bias, conjecture with bias (a theorem for omega = 0 and a bias in the last layer). For a
        generic residual it is ``loss_upper_bound``, a theorem for all weights.

        Reference: Singh, Bachmann & Hofmann 2021, Fact 7, corrected for s < q0 (6-5-4 with r = 6, s = 1 has rank 33,
        Fact 7 gives 48, or 18 with s inside its q); Fact 13 and S7.3, right for M_i >= min(rc + 1, K) and rc = r,
        corrected for bottlenecks (5-1-3 has rank 12, Fact 13 gives 10).

    Example:
        6-5-4 without bias: q0 = 4, q = 1, so 4 (6 + 4 - 4) + 2 * 5 - 1. 5-1-3 with biases: 1 (5 + 3 - 1) + 3 = 10,
        plus 2 * 1 - 1 + 0 - (1 - 2) = 2: all 12 parameters.

        >>> loss_rank((6, 5, 4), input_rank=6, residual_rank=1), loss_rank((5, 1, 3), 5, 3, biased_layers="all")
        (33, 12)
    """
    network = _network(widths, input_rank, biased_layers, centred_input_rank, effective_output_dim)
    residual = _residual(network, residual_rank, uncentred_residual_rank, mean_residual_is_zero)
    return _hessian_ranks(network, residual).loss


def hessian_ranks(
    widths: Iterable[int],
    input_rank: int,
    residual_rank: int | None = None,
    *,
    biased_layers: Layers = (),
    centred_input_rank: int | None = None,
    uncentred_residual_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    effective_output_dim: int | None = None,
) -> HessianRanks:
    """``outer_product_rank``, ``functional_rank`` and ``loss_rank`` of one network.

    Args:
        widths: Widths d, M_1, .., K.
        input_rank: Rank r of the inputs.
        residual_rank: Rank s of Omega; with bias, rank t of [Omega, omega]. Defaults to the generic value.
        biased_layers: Layers in 1..L with a bias, or "all". Defaults to none.
        centred_input_rank: Rank rc of the centred inputs, r or r - 1. Defaults to r.
        uncentred_residual_rank: With bias, rank s of Omega: t or t - 1. Defaults to the generic value.
        mean_residual_is_zero: Whether omega = 0. Defaults to False.
        effective_output_dim: Output directions in which the loss curves. Defaults to K.

    Returns:
        The three ranks.

    Raises:
        InvalidInput: If an integer is out of range or contradicts another.

    Example:
        >>> hessian_ranks((1, 1, 1), input_rank=1, residual_rank=1)
        HessianRanks(outer_product=1, functional=2, loss=2)
        >>> hessian_ranks((1, 1, 1), 1, biased_layers=[1]), hessian_ranks((1, 1, 1), 1, 1, biased_layers="all").loss
        (HessianRanks(outer_product=2, functional=2, loss=3), 4)
    """
    network = _network(widths, input_rank, biased_layers, centred_input_rank, effective_output_dim)
    return _hessian_ranks(network, _residual(network, residual_rank, uncentred_residual_rank, mean_residual_is_zero))


def functional_column_ranks(
    widths: Iterable[int], input_rank: int, residual_rank: int, *, effective_output_dim: int | None = None
) -> tuple[int, ...]:
    """The block column of layer l of H_f has rank q M_{l-1} + q M_l - q^2, s standing for d and K (no bias).

    Args:
        widths: Widths d, M_1, .., K.
        input_rank: Rank r of the inputs.
        residual_rank: Rank s of Omega.
        effective_output_dim: Output directions in which the loss curves. Defaults to K.

    Returns:
        The rank of each layer's block column; (0,) for L = 1. They add up to the rank of H_f, although the column
        spaces are not orthogonal.

    Raises:
        InvalidInput: If an integer is out of range.

    Notes:
        Theorem for generic weights and a generic residual of rank s.

        Reference: Singh, Bachmann & Hofmann 2021, Theorem 5, exact for L >= 2.

    Example:
        >>> functional_column_ranks((1, 1, 1), 1, 1), functional_column_ranks((6, 5, 3, 4), 6, 2)
        ((1, 1), (10, 12, 6))
    """
    widths = checked_widths(widths)
    network = _network(widths, input_rank, (), None, effective_output_dim)
    rank = _residual(network, residual_rank, None, False).residual_rank
    if len(widths) == 2:
        return (0,)
    q = active_bottleneck_rank(widths, rank)
    return tuple(q * (before + after - q) for before, after in pairwise((rank, *widths[1:-1], rank)))


def bottleneck_critical_point_ranks(widths: Iterable[int], input_rank: int, residual_rank: int) -> HessianRanks:
    """At a critical point that a bottleneck forces, the loss Hessian has the rank of the outer-product Hessian.

    Args:
        widths: Widths d, M_1, .., K, the narrowest hidden one narrower than r and K.
        input_rank: Rank r of the inputs.
        residual_rank: Rank s of the residual moment, at least 1 and at most min(r, K) - q.

    Returns:
        With q = min(M_1, .., M_{L-1}): q (r + K - q) for the outer-product and the loss Hessian, 2 q s for the
        functional Hessian.

    Raises:
        InvalidInput: If no hidden layer is a bottleneck or an integer is out of range.

    Notes:
        Assumptions: a deep linear network without bias, squared loss, zero gradient, end-to-end map of rank q, residual
        moment Omega of rank s. Since the gradient is zero, Omega annihilates the q directions of the map on both sides.

        Reference: Singh, Bachmann & Hofmann 2021, Fact 7, over-counts here, since its residual is in general position:
        widths 3-1-5 with r = 3, s = 2 have rank 7, Fact 7 gives 8.

    Example:
        3-1-5: 1 (3 + 5 - 1) = 7 and 2 * 1 * 2 = 4.

        >>> bottleneck_critical_point_ranks((3, 1, 5), input_rank=3, residual_rank=2)
        HessianRanks(outer_product=7, functional=4, loss=7)
    """
    widths = checked_widths(widths)
    input_rank = checked_input_rank(widths[0], input_rank)
    fit_rank = min(input_rank, widths[-1])
    must = "a bottleneck must be narrower than input rank and outputs"
    require(len(widths) > 2, must, f"widths {widths} have no hidden layer")
    q = min(widths[1:-1])
    require(q < fit_rank, must, f"the narrowest hidden layer has {q} units, the target map has rank {fit_rank}")
    require(residual_rank >= 1, "residual_rank must be at least 1", f"got {residual_rank}", "Use linear.loss_rank")
    why = "the rank that the bottleneck leaves unfitted"
    residual_rank = checked_residual_rank(residual_rank, fit_rank - q, why)
    outer = outer_product_rank(widths, input_rank)
    return HessianRanks(outer, 2 * q * residual_rank, outer)


def loss_upper_bound(
    widths: Iterable[int],
    input_rank: int,
    *,
    biased_layers: Layers = (),
    centred_input_rank: int | None = None,
    effective_output_dim: int | None = None,
) -> int:
    """For all weights and residuals, the rank of H_L is at most p minus the dimension of an explicit kernel.

    Args:
        widths: Widths d, M_1, .., K.
        input_rank: Rank r of the inputs.
        biased_layers: Layers S in 1..L with a bias, or "all". Defaults to none.
        centred_input_rank: Rank rc of the centred inputs, r or r - 1. Defaults to r.
        effective_output_dim: Output directions in which the loss curves. Defaults to K.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an integer is out of range or the two input ranks contradict each other.

    Notes:
        Formula: D = (r, M_1, .., M_{L-1}, K), or rc for r and layer 1 in S where rc < r; m = min D, b its LAST argmin.
        With [..] one if true and zero if not, layer l contributes (D_{l-1} + [l in S] - m)(D_l - m) directions of the
        kernel for l <= b, and (D_{l-1} + [l in S] - m - [S meets b+1..l])(D_l - m - [S meets b+1..l-1]) for l > b; the
        first layer also the weights that no input reaches, the last those on which the loss does not depend.

        Theorem, proof in research/docs/conjectures.md. That generic weights with a generic residual have no other
        kernel is a theorem without bias, a conjecture with.

    Example:
        3-3-3 with S = {1} and r = 2: m = 2 at b = 0. Layer 1 has 3 weights that no input reaches and
        (2 + 1 - 2 - 1)(3 - 2) = 0 more directions, layer 2 has (3 - 2 - 1)(3 - 2 - 1) = 0: 18 of 21 parameters remain.

        >>> loss_upper_bound((3, 3, 3), 2, biased_layers=[1])
        18
    """
    return sum(
        loss_layer_upper_bounds(
            widths,
            input_rank,
            biased_layers=biased_layers,
            centred_input_rank=centred_input_rank,
            effective_output_dim=effective_output_dim,
        )
    )


def loss_layer_upper_bounds(
    widths: Iterable[int],
    input_rank: int,
    *,
    biased_layers: Layers = (),
    centred_input_rank: int | None = None,
    effective_output_dim: int | None = None,
) -> tuple[int, ...]:
    """By layer, the weights that inputs and loss can reach minus the layer's part of the kernel of H_L.

    Args:
        widths: Widths d, M_1, .., K.
        input_rank: Rank r of the inputs.
        biased_layers: Layers S in 1..L with a bias, or "all". Defaults to none.
        centred_input_rank: Rank rc of the centred inputs, r or r - 1. Defaults to r.
        effective_output_dim: Output directions in which the loss curves. Defaults to K.

    Returns:
        One number per layer; their sum is ``loss_upper_bound``, whose docstring has the formula.

    Raises:
        InvalidInput: If an integer is out of range or the two input ranks contradict each other.

    Example:
        >>> loss_layer_upper_bounds((3, 3, 3), 2, biased_layers=[1])
        (9, 9)
    """
    network = _network(widths, input_rank, biased_layers, centred_input_rank, effective_output_dim)
    return tuple(_layer_ranks(network))


def functional_upper_bound(
    widths: Iterable[int],
    input_rank: int,
    residual_rank: int,
    *,
    biased_layers: Layers = (),
    centred_input_rank: int | None = None,
    effective_output_dim: int | None = None,
) -> int:
    """H_f has at most the rank of a network without bias that carries the constant along, for all weights.

    Args:
        widths: Widths d, M_1, .., K.
        input_rank: Rank r of the inputs.
        residual_rank: Rank t of [Omega, omega].
        biased_layers: Layers S in 1..L with a bias, or "all". Defaults to none.
        centred_input_rank: Rank rc of the centred inputs, r or r - 1. Defaults to r.
        effective_output_dim: Output directions in which the loss curves. Defaults to K.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an integer is out of range or contradicts another.

    Notes:
        Formula: ``functional_rank`` without bias, with one unit more at every vertex before the last biased hidden
        layer, inputs of rank rc + 1 and residual rank t; and at most the sum over layers of min(p_l, p - p_l), p_l the
        parameters of layer l that inputs and loss can reach, without the last bias. With a bias in the last layer alone
        the constant is carried nowhere: the formula without bias (s <= t).

        Theorem for all weights and residuals. Proof: a unit that is always one turns biases into weights, so the
        Hessian is R^T H R with H that of the larger network and R linear; and no layer has a diagonal block.

    Example:
        1-1-1 with S = {1}: 2-1-1 without bias has rank 4, of which no more than two layers' min(2, 1) count.

        >>> functional_upper_bound((1, 1, 1), 1, 1, biased_layers=[1])
        2
    """
    widths = checked_widths(widths)
    network = _network(widths, input_rank, biased_layers, centred_input_rank, effective_output_dim)
    vertices, outputs = network.vertices, network.vertices[-1]
    biased = network.biased - {len(widths) - 1}
    if not biased:
        seen = min(residual_rank, network.input_rank)
        return functional_rank(widths, network.input_rank, seen, effective_output_dim=outputs)
    last = max(biased)
    larger = tuple(width + (vertex < last) for vertex, width in enumerate((*vertices[:-1], widths[-1])))
    layers = [(before + (layer in biased)) * after for layer, (before, after) in enumerate(pairwise(vertices), start=1)]
    total = sum(layers)
    carried = functional_rank(larger, larger[0], residual_rank, effective_output_dim=outputs)
    return min(carried, sum(min(own, total - own) for own in layers))


class _Network(NamedTuple):
    """A network with inputs in general position, and the layers that have or act as if they had a bias."""

    vertices: tuple[int, ...]
    biased: frozenset[int]
    input_rank: int
    centred_input_rank: int


def _network(
    widths: Iterable[int],
    input_rank: int,
    biased_layers: Layers,
    centred_input_rank: int | None,
    effective_output_dim: int | None,
) -> _Network:
    """The network of checked integers; inputs on a hyperplane that misses the origin act as a bias of layer 1."""
    widths = checked_widths(widths)
    last = len(widths) - 1
    biased = frozenset(range(1, last + 1) if biased_layers == "all" else biased_layers)
    for layer in (min(biased), max(biased)) if biased else ():
        checked_count("a biased layer", layer, 1, last, "the number of layers")
    rank = checked_input_rank(widths[0], input_rank)
    centred = checked_count("centred_input_rank", rank if centred_input_rank is None else centred_input_rank)
    must = "input_rank must be centred_input_rank or one more"
    require(centred <= rank <= centred + 1, must, f"input_rank is {rank}, centred_input_rank {centred}")
    first = rank
    if biased and centred < rank:
        biased, first = biased | {1}, centred
    vertices = (first, *widths[1:-1], checked_output(widths, effective_output_dim))
    return _Network(vertices, biased, rank, centred)


def _residual(network: _Network, rank: int | None, uncentred: int | None, mean_is_zero: bool) -> RankInputs:
    """The ranks of the residual moments, completed by generic ones and checked against each other."""
    outputs, has_bias = network.vertices[-1], bool(network.biased)
    inputs = network.centred_input_rank if has_bias or mean_is_zero else network.input_rank
    must = "uncentred_residual_rank needs residual_rank beside it"
    require(rank is not None or uncentred is None, must, f"uncentred_residual_rank is {uncentred}")
    largest = generic_residual_rank(inputs, outputs, has_bias=has_bias, mean_residual_is_zero=mean_is_zero)
    name = "input rank" + (" + 1" if has_bias and not mean_is_zero else "")
    why = f"the smaller of {'centred ' if has_bias else ''}{name} and effective output dimension"
    rank = checked_residual_rank(largest if rank is None else rank, largest, why)
    most = min(rank, network.input_rank)
    uncentred = checked_count(
        "uncentred_residual_rank", most if uncentred is None else uncentred, 0, most, "by its data"
    )
    adds_nothing = mean_is_zero or not has_bias or network.centred_input_rank < network.input_rank
    must = (
        "uncentred_residual_rank must be residual_rank, or one less where the constant is not a function of the inputs"
    )
    require(rank - uncentred <= (not adds_nothing), must, f"they are {uncentred} and {rank}")
    is_zero = mean_is_zero or rank == 0
    return RankInputs(network.input_rank, network.centred_input_rank, rank, outputs, is_zero, uncentred, has_bias)


def _hessian_ranks(network: _Network, residual: RankInputs) -> HessianRanks:
    outer, functional = _outer_product_rank(network), _functional_rank(network, residual)
    if len(network.vertices) == 2:
        return HessianRanks(outer, functional, outer)
    left = _left_by_residual(network, residual)
    overlap = _outer_product_rank(left) + functional - sum(_layer_ranks(left))
    return HessianRanks(outer, functional, outer + functional - overlap)


def _outer_product_rank(network: _Network) -> int:
    vertices, biased = network.vertices, network.biased
    to_output = list(accumulate(reversed(vertices[1:]), min))[::-1]
    from_input, current = [], vertices[0]
    last_biased = max(biased, default=0)
    for layer in range(1, len(vertices)):
        from_input.append(current + (layer <= last_biased))
        current = min(current + (layer == last_biased), vertices[layer])
    return nested_sum_dimension(to_output, from_input)


def _functional_rank(network: _Network, residual: RankInputs) -> int:
    num_layers = len(network.vertices) - 1
    if num_layers == 1:
        return 0
    left = _left_by_residual(network, residual)
    biased = left.biased - {num_layers}
    if biased and left.vertices[0] == residual.residual_rank:
        biased |= {1}
    inputs = residual.residual_rank - 1 if biased else left.vertices[0]
    return sum(_layer_ranks(left._replace(vertices=(inputs, *left.vertices[1:]), biased=biased), outputs_are_free=True))


def _left_by_residual(network: _Network, residual: RankInputs) -> _Network:
    """The network between the inputs and the outputs that the residual moment [Omega, omega] involves."""
    hidden, num_layers = network.vertices[1:-1], len(network.vertices) - 1
    rank, uncentred = residual.residual_rank, residual.uncentred_residual_rank
    assert uncentred is not None
    if residual.mean_residual_is_zero or not network.biased - {num_layers}:
        return network._replace(vertices=(uncentred, *hidden, uncentred), biased=frozenset[int]())
    is_constant_among_inputs = 1 not in network.biased and uncentred == rank
    return network._replace(vertices=(rank - (not is_constant_among_inputs), *hidden, rank))


def _layer_ranks(network: _Network, outputs_are_free: bool = False) -> list[int]:
    """By layer, its visible weights minus its kernel; ``outputs_are_free``: the last layer may change the outputs."""
    vertices, biased = network.vertices, network.biased
    m = min(vertices)
    b = max(vertex for vertex, width in enumerate(vertices) if width == m)
    ranks, constant_before = [], False
    for layer, (before, after) in enumerate(pairwise(vertices), start=1):
        inputs = before + (layer in biased)
        constant_after = constant_before or (layer > b and layer in biased)
        constant_here = constant_after and not (outputs_are_free and layer == len(vertices) - 1)
        ranks.append(inputs * after - (inputs - m - constant_here) * (after - m - constant_before))
        constant_before = constant_after
    return ranks
