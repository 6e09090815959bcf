"""Hessian ranks of one convolutional layer (1D, no padding) and one dense layer behind it, linear, without bias.

A filter of k taps over m0 input channels meets the inputs only through their phases modulo the stride: with
g = min(stride, k), phase rho holds the taps rho, rho + g, .. below k. So the network is a sum of n = g m0 networks of
stride 1, whose numbers of taps differ by at most one, and every formula below is a count of two bounds at points spread
as evenly as possible (``balanced``). That of the outer-product Hessian is proved in docs/convolutional.md; that of the
loss Hessian is not proved, but held for every random architecture tried in exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hessmap.errors import require
from hessmap.theory.conditions import checked_count


@dataclass(frozen=True)
class OneHiddenConvolution:
    """``filters`` m of ``kernel`` k taps and ``channels`` m0 over inputs of ``input_length`` d0, then a dense layer.

    ``outputs`` are the K outputs that the loss can tell apart: K - 1 of them under cross-entropy.

    >>> net = OneHiddenConvolution(input_length=11, kernel=5, filters=4, outputs=4, stride=3)
    >>> net.positions, net.num_phases, net.num_taps, net.num_visible_inputs, net.num_parameters
    (3, 3, 5, 11, 68)
    """

    input_length: int
    kernel: int
    filters: int
    outputs: int
    channels: int = 1
    stride: int = 1

    def __post_init__(self) -> None:
        for name in ("input_length", "kernel", "filters", "channels", "stride"):
            checked_count(name, getattr(self, name), at_least=1)
        checked_count("outputs", self.outputs)
        must = "a kernel must fit into its input"
        require(self.kernel <= self.input_length, must, f"kernel is {self.kernel}, input_length {self.input_length}")

    @property
    def positions(self) -> int:
        """d1 = (d0 - k) // stride + 1."""
        return (self.input_length - self.kernel) // self.stride + 1

    @property
    def num_inputs(self) -> int:
        """m0 d0."""
        return self.channels * self.input_length

    @property
    def num_phases(self) -> int:
        """n = min(stride, k) m0."""
        return min(self.stride, self.kernel) * self.channels

    @property
    def num_taps(self) -> int:
        """k m0."""
        return self.kernel * self.channels

    @property
    def most_taps(self) -> int:
        """The taps of the longest phase."""
        return -(-self.kernel // min(self.stride, self.kernel))

    @property
    def num_visible_inputs(self) -> int:
        """The inputs that some filter meets: sum over phases of d1 + taps - 1; all m0 d0 for stride 1."""
        return self.num_phases * (self.positions - 1) + self.num_taps

    @property
    def num_parameters(self) -> int:
        return self.filters * (self.num_taps + self.outputs * self.positions)

    def sum_over_phases(self, term: Callable[[int], int]) -> int:
        """The sum of ``term`` at each phase's number of taps."""
        return self.channels * sum_over_balanced(term, self.kernel, min(self.stride, self.kernel))


def sum_over_balanced(term: Callable[[int], int], total: int, parts: int) -> int:
    """The sum of ``term`` over ``parts`` integers of sum ``total`` that differ by at most one.

    Seven in three parts are 2, 2 and 3.

    >>> sum_over_balanced(lambda part: part * part, 7, 3)
    17
    """
    low, num_high = divmod(total, parts)
    return (parts - num_high) * term(low) + num_high * term(low + 1)


def outer_product_rank(net: OneHiddenConvolution) -> int:
    """The outer-product Hessian of one convolution and one dense layer, exactly, for inputs of full rank.

    Formula, D visible inputs, kt taps, n phases: K D if m d1 >= D or m >= kt; otherwise K m d1 + extra, at most K D,
    where extra = sum over b in balanced(kt - m, m - n) of min(K (b - d1 + 1)+, m b) if m > n; (kt - m) m if m = n;
    sum over a in balanced(kt - m, n - m) of min(m a, K (a + d1 - 1)) if m < n.

    Assumptions: generic weights, inputs of full rank m0 d0.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 7, there an upper bound for stride 1 and one channel, and no
    equality: (d0, k, m, K) = (9, 8, 3, 5) has rank 44, the bound is 45; (7, 6, 3, 9) has 60, the bound is 63.

    One filter of two taps on three inputs, one output: 2 + 2 weights, less the rescaling between them.

    >>> outer_product_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1))
    3
    >>> outer_product_rank(OneHiddenConvolution(9, kernel=8, filters=3, outputs=5))
    44
    """
    outputs, positions, filters = net.outputs, net.positions, net.filters
    taps, phases, most = net.num_taps, net.num_phases, outputs * net.num_visible_inputs
    if filters * positions >= net.num_visible_inputs or filters >= taps:
        return most
    left = taps - filters
    if filters > phases:
        parts = filters - phases
        extra = sum_over_balanced(lambda b: min(outputs * max(b - positions + 1, 0), filters * b), left, parts)
    elif filters == phases:
        extra = left * filters
    else:
        parts = phases - filters
        extra = sum_over_balanced(lambda a: min(filters * a, outputs * (a + positions - 1)), left, parts)
    return min(most, outputs * filters * positions + extra)


def outer_product_upper_bound(net: OneHiddenConvolution, input_rank: int) -> int:
    """For inputs of rank r the outer-product Hessian has rank at most min(full, q (r + K - q)).

    Here full is ``outer_product_rank`` and q = min(r, m d1, K); ``input_rank`` is r. Nearly always reached, but no
    equality: (d0, k, m, K) = (11, 10, 3, 5) with r = 10 has rank 49, the bound is 50.

    Assumptions: none on the inputs; the full value is that of generic weights, the largest for any weights.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorems 5 and 7, each with r for d0.

    By hand for three inputs of rank 1, two taps, one filter, one output: one direction is left.

    >>> outer_product_upper_bound(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1), input_rank=1)
    1
    >>> outer_product_upper_bound(OneHiddenConvolution(11, kernel=10, filters=3, outputs=5), input_rank=10)
    50
    """
    rank = _checked_input_rank(net, input_rank)
    q = min(rank, net.filters * net.positions, net.outputs)
    return min(outer_product_rank(net), q * (rank + net.outputs - q))


def functional_rank(net: OneHiddenConvolution, residual_rank: int | None = None) -> int:
    """The functional Hessian has rank 2 m min(kt, s d1): every filter feels the moments of residual and patch.

    ``residual_rank`` s is the rank of sum residual x^T, at most min(r, K); generic for full input rank: K, or all
    the inputs if those are fewer.

    Assumptions: generic residual of rank s. In general the rank is 2 m times that of the K x kt moments of residual and
    patch, stacked over the d1 positions.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 8, there an upper bound with s = K; exact if generic.

    By hand for three inputs, two taps, one filter, one output: two taps times two moments, an off-diagonal 2 x 2 block.

    >>> functional_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1))
    4
    """
    largest = min(net.num_inputs, net.outputs)
    rank = largest if residual_rank is None else residual_rank
    rank = checked_count("residual_rank", rank, at_most=largest, why="the smaller of inputs and outputs")
    return 2 * net.filters * min(net.num_taps, rank * net.positions)


def loss_rank(net: OneHiddenConvolution) -> int:
    """The loss Hessian of one convolution and one dense layer, exactly, for full input rank and generic residual.

    Formula: the functional rank, plus, for kt <= K d1, the sum over x in balanced(sum_y (d1 + y), K + n) of
    min(m (d1 - x)+, sum_y (d1 + y - 1 - x)+), y over the taps of the phases; for kt > K d1, the sum over x in
    balanced(K (dmax + 1) + sum_y (kmax - y), K + n) of min(m (kmax - x)+, K (dmax - x)+), where kmax is the most taps
    of a phase and dmax = d1 + kmax - 1.

    Assumptions: generic weights, full input rank, generic residual.

    Reference: none in print; Singh, Hofmann & Schoelkopf 2023 bound it by the sum of Theorems 7 and 8, which is loose:
    (d0, k, m, K) = (7, 4, 3, 2) has rank 35, the bound is 38.

    By hand for three inputs, two taps, one filter, one output: all four parameters.

    >>> loss_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1))
    4
    >>> loss_rank(OneHiddenConvolution(7, kernel=4, filters=3, outputs=2))
    35
    """
    outputs, positions, most, filters = net.outputs, net.positions, net.most_taps, net.filters
    parts = outputs + net.num_phases
    if net.num_taps <= outputs * positions:
        total = net.sum_over_phases(lambda taps: positions + taps)

        def term(x: int) -> int:
            inputs = net.sum_over_phases(lambda taps: max(positions + taps - 1 - x, 0))
            return min(filters * max(positions - x, 0), inputs)

    else:
        longest = positions + most - 1
        total = outputs * (longest + 1) + net.sum_over_phases(lambda taps: most - taps)

        def term(x: int) -> int:
            return min(filters * max(most - x, 0), outputs * max(longest - x, 0))

    return functional_rank(net) + sum_over_balanced(term, total, parts)


def loss_rank_upper_bound(net: OneHiddenConvolution, input_rank: int, residual_rank: int) -> int:
    """For inputs of rank r < m0 d0 the loss Hessian has rank at most min(p, H_o + H_f - 1).

    H_o is ``outer_product_upper_bound``, H_f the functional rank; without residual it is H_o alone. The one comes off
    because H_f maps the parameters themselves to the gradient, which lies in the range of both parts. No closed form
    is known.

    Assumptions: residual of rank s and a gradient that is not zero.

    Reference: Singh, Hofmann & Schoelkopf 2023, Section 6, bounds it by H_o + H_f. Their "r < d without loss of
    generality" is false for convolutions: a change of input coordinates does not keep the sharing of weights.

    By hand for three inputs of rank 1, two taps, one filter, one output: at most 4 + 1 - 1.

    >>> loss_rank_upper_bound(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1), input_rank=1, residual_rank=1)
    4
    """
    rank = _checked_input_rank(net, input_rank)
    why = "the smaller of input rank and outputs"
    residual = checked_count("residual_rank", residual_rank, at_most=min(rank, net.outputs), why=why)
    outer, functional = outer_product_upper_bound(net, rank), functional_rank(net, residual)
    if functional == 0:
        return outer
    return min(net.num_parameters, outer + functional - 1)


def _checked_input_rank(net: OneHiddenConvolution, input_rank: int) -> int:
    return checked_count("input_rank", input_rank, at_most=net.num_inputs, why="the number of inputs")
