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

Kind of truth: ``outer_product_rank`` is a theorem; ``kernel_dimensions`` are those of an explicit kernel, so p minus
their sum bounds the rank of the loss Hessian for ALL weights and residuals (theorem), with equality conjectured for
generic ones; ``functional_rank`` and ``loss_rank`` are conjectures, never broken by a random network
(docs/conjectures.md counts them). With S empty or all layers they agree with ``linear`` and ``linear_with_bias``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from hessmap.errors import require
from hessmap.theory.conditions import checked_count, checked_input_rank, checked_output, checked_widths
from hessmap.theory.fully_connected.nested_spaces import nested_sum_dimension


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
    facts = _facts(widths, biased_layers, input_rank, centred_input_rank, effective_output_dim)
    return _outer_product_rank(facts)


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

    Formula: the number of weights minus the kernel of every layer (``kernel_dimensions``), without the condition that
    the last layer leaves the outputs as they are. The last bias has no second derivative and is left out; if no other
    is left, or omega = 0, it is the formula of ``linear`` with s. If s = t, layer 1 counts as biased.

    Kind of truth: conjecture.

    By hand for 1-1-1 with S = {1}: second derivatives by (w_2, w_1) and (w_2, b_1).

    >>> functional_rank((1, 1, 1), [1], 1), functional_rank((1, 1, 1), [2], 1)
    (2, 2)
    """
    facts = _facts(widths, biased_layers, input_rank, centred_input_rank, effective_output_dim)
    return _functional_rank(facts, _residual(facts, residual_rank, uncentred_residual_rank, mean_residual_is_zero))


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
    hidden layers and S; its overlap is rk(H_o) + rk(H_f) - p + (sum of its ``kernel_dimensions``).

    Kind of truth: conjecture; for a generic residual it is p minus the sum of ``kernel_dimensions``, an upper bound
    for all weights (theorem).

    By hand for 1-1-1 with S = {1}: three parameters, and no direction in which nothing changes.

    >>> loss_rank((1, 1, 1), [1], 1), loss_rank((5, 1, 3), [1, 2], 5)
    (3, 12)
    """
    facts = _facts(widths, biased_layers, input_rank, centred_input_rank, effective_output_dim)
    residual = _residual(facts, residual_rank, uncentred_residual_rank, mean_residual_is_zero)
    functional = _functional_rank(facts, residual)
    if len(facts.vertices) == 2:
        return _outer_product_rank(facts)
    left = _left_by_residual(facts, residual)
    overlap = _outer_product_rank(left) + functional - sum(_layer_ranks(left))
    return _outer_product_rank(facts) + functional - overlap


def kernel_dimensions(
    widths: Iterable[int],
    biased_layers: Iterable[int],
    input_rank: int,
    *,
    centred_input_rank: int | None = None,
    effective_output_dim: int | None = None,
) -> tuple[int, ...]:
    """Directions of single layers in which neither the outputs nor any gradient changes: a kernel of the loss Hessian.

    Formula: D = (r, M_1, .., M_{L-1}, K), or rc for r and layer 1 in S where rc < r; m = min D, b its LAST argmin. With
    [..] one if true and zero if not, layer l holds (D_{l-1} + [l in S] - m)(D_l - m) directions for l <= b, and
    (D_{l-1} + [l in S] - m - [S meets b+1..l])(D_l - m - [S meets b+1..l-1]) for l > b; the first layer also the
    weights that no input reaches, the last those that the loss cannot see.

    Kind of truth: theorem that the kernel is at least that large, for all weights and residuals. Proof: for l <= b take
    dW_l = u v^T with W_b .. W_{l+1} u = 0 and v orthogonal to the inputs of layer l weighted by the residuals that
    reach vertex b: at most m conditions each. For l > b take v such that v^T (inputs of layer l) vanishes on every
    sample whatever vertex b says, and u orthogonal to the residuals at layer l weighted by vertex b, and by the
    constant if a bias lies between. That the kernel is no larger for generic weights is conjecture.

    By hand for 3-3-3 with S = {1} and r = 2: m = 2 at b = 0. Layer 1 has 3 weights that no input reaches and
    (2 + 1 - 2 - 1)(3 - 2) = 0 more directions, layer 2 has (3 - 2 - 1)(3 - 2 - 1) = 0.

    >>> kernel_dimensions((3, 3, 3), [1], 2)
    (3, 0)
    """
    widths, given = checked_widths(widths), frozenset(biased_layers)
    facts = _facts(widths, given, input_rank, centred_input_rank, effective_output_dim)
    weights = ((before + (layer in given)) * after for layer, (before, after) in enumerate(pairwise(widths), start=1))
    return tuple(count - rank for count, rank in zip(weights, _layer_ranks(facts), strict=True))


class _Facts(NamedTuple):
    """A network as the formulas take it: inputs in general position, and the layers that are or act as biased."""

    vertices: tuple[int, ...]
    biased: frozenset[int]
    input_rank: int
    centred_input_rank: int


class _Residual(NamedTuple):
    rank: int
    uncentred_rank: int
    mean_is_zero: bool


def _outer_product_rank(facts: _Facts) -> int:
    vertices, biased = facts.vertices, facts.biased
    to_output = [min(vertices[layer:]) for layer in range(1, len(vertices))]
    from_input, current = [], vertices[0]
    last_biased = max(biased, default=0)
    for layer in range(1, len(vertices)):
        from_input.append(current + (layer <= last_biased))
        current = min(current + (layer == last_biased), vertices[layer])
    return nested_sum_dimension(to_output, from_input)


def _layer_ranks(facts: _Facts, outputs_are_free: bool = False) -> list[int]:
    """By layer, its weights minus its kernel; ``outputs_are_free``: the last layer may change the outputs."""
    vertices, biased = facts.vertices, facts.biased
    m = min(vertices)
    b = max(place for place, width in enumerate(vertices) if width == m)
    ranks = []
    for layer, (before, after) in enumerate(pairwise(vertices), start=1):
        inputs = before + (layer in biased)
        constant_before = any(b < other < layer for other in biased)
        constant_here = constant_before or (layer > b and layer in biased)
        if outputs_are_free and layer == len(vertices) - 1:
            constant_here = False
        ranks.append(inputs * after - (inputs - m - constant_here) * (after - m - constant_before))
    return ranks


def _functional_rank(facts: _Facts, residual: _Residual) -> int:
    num_layers = len(facts.vertices) - 1
    if num_layers == 1:
        return 0
    left = _left_by_residual(facts, residual)
    biased = left.biased - {num_layers}
    if biased and left.vertices[0] == residual.rank:
        biased |= {1}
    inputs = residual.rank - 1 if biased else left.vertices[0]
    return sum(_layer_ranks(left._replace(vertices=(inputs, *left.vertices[1:]), biased=biased), outputs_are_free=True))


def _left_by_residual(facts: _Facts, residual: _Residual) -> _Facts:
    """The network between what the residual sees of the inputs and what it sees of the outputs."""
    hidden, num_layers = facts.vertices[1:-1], len(facts.vertices) - 1
    if residual.mean_is_zero or not facts.biased - {num_layers}:
        seen, biased = residual.uncentred_rank, frozenset[int]()
        return facts._replace(vertices=(seen, *hidden, seen), biased=biased)
    is_constant_seen_in_inputs = 1 not in facts.biased and residual.uncentred_rank == residual.rank
    inputs = residual.rank - (not is_constant_seen_in_inputs)
    return facts._replace(vertices=(inputs, *hidden, residual.rank))


def _facts(
    widths: Iterable[int],
    biased_layers: Iterable[int],
    input_rank: int,
    centred_input_rank: int | None,
    effective_output_dim: int | None,
) -> _Facts:
    widths = checked_widths(widths)
    last = len(widths) - 1
    biased = {checked_count("a biased layer", layer, 1, last, "the number of layers") for layer in biased_layers}
    rank = checked_input_rank(widths, input_rank)
    centred = checked_count("centred_input_rank", rank if centred_input_rank is None else centred_input_rank)
    must = "input_rank must be centred_input_rank or one more"
    require(centred <= rank <= centred + 1, must, f"input_rank is {rank}, centred_input_rank {centred}")
    first = rank
    if biased and centred < rank:
        biased, first = biased | {1}, centred
    vertices = (first, *widths[1:-1], checked_output(widths, effective_output_dim))
    return _Facts(vertices, frozenset(biased), rank, centred)


def _residual(facts: _Facts, rank: int | None, uncentred: int | None, mean_is_zero: bool) -> _Residual:
    """The ranks of the residual moments, completed by generic ones and checked against each other."""
    outputs = facts.vertices[-1]
    must = "uncentred_residual_rank needs residual_rank beside it"
    require(rank is not None or uncentred is None, must, f"uncentred_residual_rank is {uncentred}")
    largest = min(facts.centred_input_rank + (not mean_is_zero), outputs)
    rank = checked_count("residual_rank", largest if rank is None else rank, 0, largest, "by inputs and outputs")
    if uncentred is None:
        uncentred = min(rank, facts.input_rank)
    uncentred = checked_count("uncentred_residual_rank", uncentred, 0, min(rank, facts.input_rank), "by its data")
    adds_nothing = mean_is_zero or facts.centred_input_rank < facts.input_rank
    must = "uncentred_residual_rank must be residual_rank, or one less where the constant is no function of the inputs"
    require(rank - uncentred <= (not adds_nothing), must, f"they are {uncentred} and {rank}")
    return _Residual(rank, uncentred, mean_is_zero or rank == 0)
