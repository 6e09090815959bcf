"""Hessian ranks of deep linear networks with a bias in some layers only.

Shared by every function here: ``widths`` are d = M_0, M_1, .., M_L = K with L layers; ``biased_layers`` S is the set of
layers in 1..L that have a bias; ``input_rank`` r is the rank of sum x x^T, ``centred_input_rank`` rc that of the
centred inputs, r (the default) or r - 1; ``effective_output_dim`` stands for K where the loss is blind to some outputs.
With Omega = sum residual x^T and omega = sum residual, ``residual_rank`` t is the rank of [Omega, omega] and
``uncentred_residual_rank`` s that of Omega, t or t - 1; the generic values unless given. ``mean_residual_is_zero``
says omega = 0, so that s = t.

Assumptions shared by every function here: generic weights and biases; a residual in general position with these ranks,
its scale included.

Two remarks carry the formulas. Inputs on a hyperplane that misses the origin (rc = r - 1) make W_1 x itself a biased
layer: S may be read with layer 1 in it and r as rc. And the functional Hessian sees inputs and outputs through
[Omega, omega] alone: t outputs, and t - 1 inputs beside the constant one.

Kind of truth: ``outer_product_rank`` is a theorem; ``functional_rank`` and ``loss_rank`` are conjectures that no random
network broke (research/docs/conjectures.md counts them), with the theorems of ``bias_bounds`` as upper bounds. With S
empty or all layers they agree with ``linear`` and ``linear_with_bias``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from hessmap.theory.fully_connected.bias_bounds import layer_ranks
from hessmap.theory.fully_connected.biased_network import BiasedNetwork, ResidualRanks, biased_network, residual_ranks
from hessmap.theory.fully_connected.hessian_ranks import HessianRanks
from hessmap.theory.fully_connected.representations import nested_sum_dimension


def outer_product_rank(
    widths: Iterable[int],
    biased_layers: Iterable[int],
    input_rank: int,
    *,
    centred_input_rank: int | None = None,
    effective_output_dim: int | None = None,
) -> int:
    """The outer-product Hessian has rank sum_l (u_l - u_{l-1}) g_l; only the LAST bias matters.

    Formula: u_l = min(M_l, .., K) and u_0 = 0. Up to the last biased layer, g_l = min(rc, M_1, .., M_{l-1}) + 1; behind
    it, g_l = min(g of the last biased layer, and the widths from there to M_{l-1}). No bias: ``linear``.

    Kind of truth: theorem. Proof: layer l adds Im(W_L .. W_{l+1}) (x) F_l to the image of the Jacobian, F_l spanned by
    its inputs as functions of the sample, and the constant function if l is in S. The first spaces grow, so of the
    constants only that of the last biased layer counts, and it may be added to all F_l before it: then these shrink,
    since the inputs of a layer are combinations of those before and the constant, and ``nested_sum_dimension`` applies.

    By hand for 1-1-1 with S = {1}: w_2 (w_1 x + b_1) can move in both directions of a + c x.

    >>> outer_product_rank((1, 1, 1), [1], 1), outer_product_rank((1, 1, 1), [], 1)
    (2, 1)
    """
    network = biased_network(widths, biased_layers, input_rank, centred_input_rank, effective_output_dim)
    return _outer_product_rank(network)


def functional_rank(
    widths: Iterable[int],
    biased_layers: Iterable[int],
    input_rank: int,
    *,
    centred_input_rank: int | None = None,
    residual_rank: int | None = None,
    uncentred_residual_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    effective_output_dim: int | None = None,
) -> int:
    """The functional Hessian, counted layer by layer on the network from t - 1 inputs to t outputs.

    Formula: the number of weights minus the kernel of every layer (``bias_bounds.layer_ranks``), without the
    condition that the last layer leaves the outputs as they are. The last bias has no second derivative and is left
    out; if no other is left, or omega = 0, it is the formula of ``linear`` with s. If s = t, layer 1 counts as biased.

    Kind of truth: conjecture.

    By hand for 1-1-1 with S = {1}: second derivatives by (w_2, w_1) and (w_2, b_1).

    >>> functional_rank((1, 1, 1), [1], 1), functional_rank((1, 1, 1), [2], 1)
    (2, 2)
    """
    network = biased_network(widths, biased_layers, input_rank, centred_input_rank, effective_output_dim)
    residual = residual_ranks(network, residual_rank, uncentred_residual_rank, mean_residual_is_zero)
    return _functional_rank(network, residual)


def loss_rank(
    widths: Iterable[int],
    biased_layers: Iterable[int],
    input_rank: int,
    *,
    centred_input_rank: int | None = None,
    residual_rank: int | None = None,
    uncentred_residual_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    effective_output_dim: int | None = None,
) -> int:
    """The loss Hessian: rk(H_o) + rk(H_f) minus their overlap, the one of the network that the residual leaves.

    Formula: that network goes from t - 1 inputs (t, if s = t and layer 1 has no bias) to t outputs with the same
    hidden layers and S; its overlap is rk(H_o) + rk(H_f) - p + (sum of its kernel dimensions).

    Kind of truth: conjecture; for a generic residual it is ``bias_bounds.loss_upper_bound``, a theorem for
    all weights.

    By hand for 1-1-1 with S = {1}: three parameters, and no direction in which nothing changes.

    >>> loss_rank((1, 1, 1), [1], 1), loss_rank((5, 1, 3), [1, 2], 5)
    (3, 12)
    """
    return hessian_ranks(
        widths,
        biased_layers,
        input_rank,
        centred_input_rank=centred_input_rank,
        residual_rank=residual_rank,
        uncentred_residual_rank=uncentred_residual_rank,
        mean_residual_is_zero=mean_residual_is_zero,
        effective_output_dim=effective_output_dim,
    ).loss


def hessian_ranks(
    widths: Iterable[int],
    biased_layers: Iterable[int],
    input_rank: int,
    *,
    centred_input_rank: int | None = None,
    residual_rank: int | None = None,
    uncentred_residual_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    effective_output_dim: int | None = None,
) -> HessianRanks:
    """``outer_product_rank``, ``functional_rank`` and ``loss_rank`` of one network.

    >>> hessian_ranks((1, 1, 1), [1], 1)
    HessianRanks(outer_product=2, functional=2, loss=3)
    """
    network = biased_network(widths, biased_layers, input_rank, centred_input_rank, effective_output_dim)
    residual = residual_ranks(network, residual_rank, uncentred_residual_rank, mean_residual_is_zero)
    outer, functional = _outer_product_rank(network), _functional_rank(network, residual)
    if len(network.vertices) == 2:
        return HessianRanks(outer, functional, outer)
    left = _left_by_residual(network, residual)
    overlap = _outer_product_rank(left) + functional - sum(layer_ranks(left))
    return HessianRanks(outer, functional, outer + functional - overlap)


def _outer_product_rank(network: BiasedNetwork) -> int:
    vertices, biased = network.vertices, network.biased
    to_output = list(accumulate(reversed(vertices[1:]), min))[::-1]
    from_input, current = [], vertices[0]
    last_biased = max(biased, default=0)
    for layer in range(1, len(vertices)):
        from_input.append(current + (layer <= last_biased))
        current = min(current + (layer == last_biased), vertices[layer])
    return nested_sum_dimension(to_output, from_input)


def _functional_rank(network: BiasedNetwork, residual: ResidualRanks) -> int:
    num_layers = len(network.vertices) - 1
    if num_layers == 1:
        return 0
    left = _left_by_residual(network, residual)
    biased = left.biased - {num_layers}
    if biased and left.vertices[0] == residual.rank:
        biased |= {1}
    inputs = residual.rank - 1 if biased else left.vertices[0]
    return sum(layer_ranks(left._replace(vertices=(inputs, *left.vertices[1:]), biased=biased), outputs_are_free=True))


def _left_by_residual(network: BiasedNetwork, residual: ResidualRanks) -> BiasedNetwork:
    """The network between what the residual sees of the inputs and what it sees of the outputs."""
    hidden, num_layers = network.vertices[1:-1], len(network.vertices) - 1
    if residual.mean_is_zero or not network.biased - {num_layers}:
        seen, biased = residual.uncentred_rank, frozenset[int]()
        return network._replace(vertices=(seen, *hidden, seen), biased=biased)
    is_constant_seen_in_inputs = 1 not in network.biased and residual.uncentred_rank == residual.rank
    inputs = residual.rank - (not is_constant_seen_in_inputs)
    return network._replace(vertices=(inputs, *hidden, residual.rank))
