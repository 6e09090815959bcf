"""What is proved of linear networks with a bias in some layers: an explicit kernel, and upper bounds for all weights.

Notation of ``partial_bias``: widths d = M_0, M_1, .., M_L = K, biased layers S, input rank r, centred rank rc.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hessmap.theory.conditions import checked_widths
from hessmap.theory.fully_connected import linear
from hessmap.theory.fully_connected.biased_network import BiasedNetwork, biased_network


def loss_upper_bound(
    widths: Iterable[int],
    biased_layers: Iterable[int],
    input_rank: int,
    *,
    centred_input_rank: int | None = None,
    effective_output_dim: int | None = None,
) -> int:
    """The loss Hessian has at most the rank p minus the dimension of an explicit kernel, for all weights and residuals.

    Formula: D = (r, M_1, .., M_{L-1}, K), or rc for r and layer 1 in S where rc < r; m = min D, b its LAST argmin. With
    [..] one if true and zero if not, layer l holds (D_{l-1} + [l in S] - m)(D_l - m) directions of the kernel for
    l <= b, and (D_{l-1} + [l in S] - m - [S meets b+1..l])(D_l - m - [S meets b+1..l-1]) for l > b; the first layer
    also the weights that no input reaches, the last those that the loss cannot see.

    Kind of truth: theorem, proof in research/docs/conjectures.md. That generic weights with a generic residual have no
    other kernel is a theorem without bias, a conjecture with.

    By hand for 3-3-3 with S = {1} and r = 2: m = 2 at b = 0. Layer 1 has 3 weights that no input reaches and
    (2 + 1 - 2 - 1)(3 - 2) = 0 more directions, layer 2 has (3 - 2 - 1)(3 - 2 - 1) = 0: of 21 parameters 18 are left.

    >>> loss_upper_bound((3, 3, 3), [1], 2)
    18
    """
    network = biased_network(widths, biased_layers, input_rank, centred_input_rank, effective_output_dim)
    return sum(layer_ranks(network))


def functional_upper_bound(
    widths: Iterable[int],
    biased_layers: Iterable[int],
    input_rank: int,
    residual_rank: int,
    *,
    centred_input_rank: int | None = None,
    effective_output_dim: int | None = None,
) -> int:
    """The functional Hessian has at most the rank of a network without bias that carries the constant along.

    Formula: ``linear.functional_rank`` with one unit more at every vertex before the last biased hidden layer, inputs
    of rank rc + 1 and residual rank t; and at most the sum over layers of min(p_l, p - p_l), p_l the parameters of
    layer l that inputs and loss can reach, without the last bias. With a bias in the last layer alone the constant is
    carried nowhere, and it is the formula of ``linear`` (s <= t).

    Kind of truth: theorem, for all weights and residuals. Proof: a unit that is always one turns biases into weights,
    so the Hessian is R^T H R with H that of the larger network and R linear; and no layer has a block of its own.

    By hand for 1-1-1 with S = {1}: 2-1-1 without bias has rank 4, of which no more than two layers' min(2, 1) count.

    >>> functional_upper_bound((1, 1, 1), [1], 1, 1)
    2
    """
    widths = checked_widths(widths)
    network = biased_network(widths, biased_layers, input_rank, centred_input_rank, effective_output_dim)
    vertices, outputs = network.vertices, network.vertices[-1]
    biased = network.biased - {len(widths) - 1}
    if not biased:
        seen = min(residual_rank, network.input_rank)
        return linear.functional_rank(widths, network.input_rank, seen, effective_output_dim=outputs)
    last = max(biased)
    larger = tuple(width + (vertex < last) for vertex, width in enumerate((*vertices[:-1], widths[-1])))
    layers = [(before + (place in biased)) * after for place, (before, after) in enumerate(pairwise(vertices), start=1)]
    total = sum(layers)
    carried = linear.functional_rank(larger, larger[0], residual_rank, effective_output_dim=outputs)
    return min(carried, sum(min(own, total - own) for own in layers))


def layer_ranks(network: BiasedNetwork, outputs_are_free: bool = False) -> list[int]:
    """By layer, its visible weights minus its kernel; ``outputs_are_free``: the last layer may change the outputs."""
    vertices, biased = network.vertices, network.biased
    m = min(vertices)
    b = max(place for place, width in enumerate(vertices) if width == m)
    ranks, constant_before = [], False
    for layer, (before, after) in enumerate(pairwise(vertices), start=1):
        inputs = before + (layer in biased)
        constant_after = constant_before or (layer > b and layer in biased)
        constant_here = constant_after and not (outputs_are_free and layer == len(vertices) - 1)
        ranks.append(inputs * after - (inputs - m - constant_here) * (after - m - constant_before))
        constant_before = constant_after
    return ranks
