"""One linear convolution with a bias, a dense layer behind it with or without one, residuals not of sum zero.

A bias adds a constant over the positions: the value at x = 1 of the polynomials of ``one_layer``. omega is the sum of
the residuals, of general position, as the residual moment of rank K is; no padding, inputs of full rank.
"""

from __future__ import annotations

from hessmap.errors import require
from hessmap.networks import Convolutional
from hessmap.networks.convolutional import Convolutions
from hessmap.records import RankValue
from hessmap.theory.claims import Conjecture
from hessmap.theory.convolutional.chains import balanced_degrees
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution
from hessmap.theory.losses_and_data.data_facts import DataFacts

_FUNCTIONAL = "the bias of a filter is one tap more, not in print, proof in research/docs/convolutional.md"
_LOSS = Conjecture("modules cut at the point of the constants, not in print; study cnn/biased-convolution", 2_000)


def one_biased_claims(network: Convolutions, facts: DataFacts) -> tuple[list[RankValue], list[RankValue]]:
    """What is claimed of H_f and H_L where the formulas hold, and nothing elsewhere."""
    if not isinstance(network, Convolutional) or network.num_layers != 2 or network.paddings[0]:
        return [], []
    ((kernel,), (stride,), (channels, filters)) = network.kernels, network.strides, network.channels
    outputs = facts.effective_output_dim
    net = OneHiddenConvolution(network.input_length, kernel, filters, outputs, channels, stride)
    is_full = facts.entering_rank >= net.num_visible_inputs and stride <= kernel
    is_generic = facts.residual_rank == outputs and not facts.mean_residual_is_zero
    if not (network.biases[0] and is_full and is_generic and has_biased_ranks(net)):
        return [], []
    loss = _LOSS.value(loss_rank(net, network.biases[1]))
    return [RankValue(functional_rank(net), "exact", _FUNCTIONAL)], [loss]


def has_biased_ranks(net: OneHiddenConvolution) -> bool:
    """Whether the formulas hold: the residual sees all outputs, which must not be more than the inputs.

    >>> has_biased_ranks(OneHiddenConvolution(3, kernel=2, filters=1, outputs=4))
    False
    """
    return net.outputs <= net.num_visible_inputs


def functional_rank(net: OneHiddenConvolution) -> int:
    """The functional Hessian has rank 2 m min(kt + 1, K d1): the bias of a filter is one tap more.

    Kind of truth: a theorem, proof in research/docs/convolutional.md.

    By hand for three inputs, two taps, one filter, one output: no more than two moments.

    >>> functional_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1))
    4
    """
    return 2 * net.filters * min(net.num_taps + 1, net.outputs * net.positions)


def loss_rank(net: OneHiddenConvolution, has_last_bias: bool) -> int:
    """The loss Hessian: ``functional_rank`` plus the sums of ``one_layer.loss_rank`` with one degree changed.

    Formula, degrees x as there with s = K: for kt < K d1 one of the least x is one more; a last bias adds K, none adds
    min(K - 1, the number of other x with m (d1 - x) above sum_y (d1 + y - 1 - x)). For kt >= K d1 one of the largest
    x is one less; a last bias adds K, none adds nothing.

    Derivation: ker H_f holds the v of ``one_layer`` with omega . v(1) = 0, or the w whose moments are omega at every
    position: the module there, cut or extended at the point x = 1. A cut in general position takes the generator of
    least degree, an extension the one of largest.

    Kind of truth: a conjecture, the degrees after the change not being proved.

    By hand for three inputs, two taps, one filter, one output: all of 2 + 1 + 2 + 1 parameters.

    >>> loss_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1), has_last_bias=True)
    6
    """
    must = "the ranks of a biased convolution are known for no more outputs than inputs"
    require(has_biased_ranks(net), must, f"got {net.outputs} for {net.num_visible_inputs}")
    sees_taps = net.num_taps < net.outputs * net.positions
    changed, others = _degrees(net, sees_taps)
    found = sum(_term(net, x, sees_taps) for x in (changed, *others)) + functional_rank(net)
    if has_last_bias:
        return found + net.outputs
    if not sees_taps:
        return found
    spare = sum(net.filters * max(net.positions - x, 0) > _inputs_from(net, x) for x in others)
    return found + min(net.outputs - 1, spare)


def _degrees(net: OneHiddenConvolution, sees_taps: bool) -> tuple[int, list[int]]:
    """The changed degree, and the others."""
    parts, longest = net.outputs + net.num_phases, net.positions + net.most_taps - 1
    if sees_taps:
        total = net.sum_over_phases(lambda taps: net.positions + taps)
    else:
        total = net.outputs * (longest + 1) + net.sum_over_phases(lambda taps: net.most_taps - taps)
    degrees = [degree for degree, count in balanced_degrees(total, parts) for _ in range(count)]
    if sees_taps:
        return degrees[0] + 1, degrees[1:]
    return degrees[-1] - 1, degrees[:-1]


def _term(net: OneHiddenConvolution, x: int, sees_taps: bool) -> int:
    if sees_taps:
        return min(net.filters * max(net.positions - x, 0), _inputs_from(net, x))
    longest = net.positions + net.most_taps - 1
    return min(net.filters * max(net.most_taps - x, 0), net.outputs * max(longest - x, 0))


def _inputs_from(net: OneHiddenConvolution, x: int) -> int:
    return net.sum_over_phases(lambda taps: max(net.positions + taps - 1 - x, 0))
