"""Hessian ranks of one convolutional layer (1D, no padding) followed by one dense layer, linear.

A filter of k taps over m0 input channels acts on the inputs only through their phases modulo the stride: with
g = min(stride, k), phase rho has the taps rho, rho + g, .. below k. So the network is a sum of n = g m0 networks of
stride 1, whose numbers of taps differ by at most one, and every formula below is a count of two bounds at points spread
as evenly as possible (``balanced``). All three ranks without bias are theorems, proved in
research/docs/convolutional.md; ``has_loss_rank`` states where the formula of the loss Hessian applies.

With a bias (``biased_functional_rank``, a theorem; ``biased_loss_rank``, a conjecture) a constant over the positions is
added: the value at x = 1 of the polynomials. The sum omega of the residuals and the residual moment of rank K are then
in general position; no padding, inputs of full rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hessmap.errors import require
from hessmap.theory.convolutional.chains import balanced_degrees, sum_over_balanced
from hessmap.theory.data_ranks import checked_count

__all__ = [
    "OneHiddenConvolution",
    "biased_functional_rank",
    "biased_loss_rank",
    "functional_rank",
    "has_biased_ranks",
    "has_loss_rank",
    "loss_rank",
    "outer_product_rank",
    "outer_product_upper_bound",
]


@dataclass(frozen=True)
class OneHiddenConvolution:
    """``filters`` m of ``kernel`` k taps and ``channels`` m0 over inputs of ``input_length`` d0, then a dense layer.

    Attributes:
        input_length: Length d0 of the input.
        kernel: Taps k of a filter.
        filters: Number of filters m (of each patch where patches have their own).
        outputs: Number of outputs K in which the loss curves.
        channels: Input channels m0.
        stride: Stride of the convolution.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``outputs`` are the K outputs that the loss can tell apart: K - 1 of them under cross-entropy.

    Example:
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
        return self.channels * int(sum_over_balanced(term, self.kernel, min(self.stride, self.kernel)))


Integers = npt.NDArray[Any]


def outer_product_rank(net: OneHiddenConvolution) -> int:
    """The outer-product Hessian of one convolution and one dense layer, exactly, for inputs of full rank.

    Args:
        net: The network in integers.

    Returns:
        The rank.

    Notes:
        Formula, D visible inputs, kt taps, n phases: K D if m d1 >= D or m >= kt; otherwise K m d1 + extra, at most K
        D, where extra = sum over b in balanced(kt - m, m - n) of min(K (b - d1 + 1)+, m b) if m > n; (kt - m) m if m =
        n; sum over a in balanced(kt - m, n - m) of min(m a, K (a + d1 - 1)) if m < n.

        Assumptions: generic weights, inputs of full rank m0 d0.

        Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 7, there an upper bound for stride 1 and one channel, and
        no equality: (d0, k, m, K) = (9, 8, 3, 5) has rank 44, the bound is 45; (7, 6, 3, 9) has 60, the bound is 63.

    Example:
        One filter of two taps on three inputs, one output: 2 + 2 weights, less the rescaling between them.

        >>> outer_product_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1))
        3
        >>> outer_product_rank(OneHiddenConvolution(9, kernel=8, filters=3, outputs=5))
        44
    """
    integers = (net.outputs, net.positions, net.filters, net.num_taps, net.num_phases)
    return int(outer_product_ranks(*(np.array(value, dtype=object) for value in integers)))


def outer_product_ranks(
    outputs: Integers, positions: Integers, filters: Integers, taps: Integers, phases: Integers
) -> Integers:
    """``outer_product_rank`` of many networks at once: K, d1, m, kt and n of each."""
    left, visible = taps - filters, phases * (positions - 1) + taps

    def wide(b: Any) -> Any:
        return np.minimum(outputs * np.maximum(b - positions + 1, 0), filters * b)

    def narrow(a: Any) -> Any:
        return np.minimum(filters * a, outputs * (a + positions - 1))

    extra = np.where(
        filters > phases,
        sum_over_balanced(wide, left, np.maximum(filters - phases, 1)),
        sum_over_balanced(narrow, left, np.maximum(phases - filters, 1)),
    )
    extra = np.where(filters == phases, left * filters, extra)
    is_onto = (filters * positions >= visible) | (filters >= taps)
    most = outputs * visible
    ranks: Integers = np.where(is_onto, most, np.minimum(most, outputs * filters * positions + extra))
    return ranks


def outer_product_upper_bound(net: OneHiddenConvolution, input_rank: int) -> int:
    """For inputs of rank r the outer-product Hessian has rank at most min(full, q (r + K - q)).

    Args:
        net: The network in integers.
        input_rank: Rank r of the inputs.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Here full is ``outer_product_rank`` and q = min(r, m d1, K); ``input_rank`` is r. Nearly always reached, but no
        equality: (d0, k, m, K) = (11, 10, 3, 5) with r = 10 has rank 49, the bound is 50.

        Assumptions: none on the inputs; the full value is that of generic weights, the largest for any weights.

        Reference: Singh, Hofmann & Schoelkopf 2023, Theorems 5 and 7, each with r for d0.

    Example:
        Three inputs of rank 1, two taps, one filter, one output: one direction is left.

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

    Args:
        net: The network in integers.
        residual_rank: Rank s of the residual moment sum residual x^T. Defaults to the generic value.

    Returns:
        The rank.

    Notes:
        ``residual_rank`` s is the rank of sum residual x^T, at most min(r, K); generic for full input rank: K, or all
        the inputs that some filter meets if those are fewer.

        Assumptions: generic residual of rank s. In general the rank is 2 m times that of the K x kt moments of residual
        and patch, stacked over the d1 positions.

        Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 8, there an upper bound with s = K; exact if generic, proof
        in research/docs/convolutional.md.

    Example:
        Three inputs, two taps, one filter, one output: two taps times two moments, an off-diagonal 2 x 2 block.

        >>> functional_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1))
        4
    """
    rank = _visible_residual_rank(net, residual_rank)
    return 2 * net.filters * min(net.num_taps, rank * net.positions)


def loss_rank(net: OneHiddenConvolution, residual_rank: int | None = None) -> int:
    """The loss Hessian of one convolution and one dense layer, for full input rank and generic residual.

    Args:
        net: The network in integers.
        residual_rank: Rank s of the residual moment sum residual x^T. Defaults to the generic value.

    Returns:
        The rank.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Formula, s the residual rank: 2 m min(kt, s d1), the functional rank, plus (K - s) min(m d1, D) for the outputs
        that the residual does not see, plus, for kt <= s d1, the sum over x in balanced(sum_y (d1 + y), s + n) of min(m
        (d1 - x)+, sum_y (d1 + y - 1 - x)+), y over the taps of the phases; for kt > s d1, the sum over x in balanced(s
        (dmax + 1) + sum_y (kmax - y), s + n) of min(m (kmax - x)+, s (dmax - x)+), where kmax is the most taps of a
        phase and dmax = d1 + kmax - 1. Known unless s < K, kt > s d1 and m d1 < D (``has_loss_rank``).

        Theorem, proof in research/docs/convolutional.md.

        Assumptions: generic weights, full input rank, generic residual of rank s (default: min(D, K)).

        Reference: none in print. Singh, Hofmann & Schoelkopf 2023 bound it by the sum of Theorems 7 and 8, which is
        loose: (d0, k, m, K) = (7, 4, 3, 2) has rank 35, the bound is 38.

    Example:
        Three inputs, two taps, one filter, one output: all four parameters.

        >>> loss_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1))
        4
        >>> loss_rank(OneHiddenConvolution(7, kernel=4, filters=3, outputs=2))
        35
    """
    residual = _visible_residual_rank(net, residual_rank)
    must = "the loss rank is known where the residual sees all outputs, all taps, or the filters all inputs"
    got = f"residual_rank is {residual} of {net.outputs}, with {net.num_taps} taps and {net.positions} positions"
    require(has_loss_rank(net, residual), must, got, "Use predict_ranks for bounds, or generic_rank")
    positions, most, filters = net.positions, net.most_taps, net.filters
    parts = residual + net.num_phases
    if net.num_taps <= residual * positions:
        total = net.sum_over_phases(lambda taps: positions + taps)

        def term(x: int) -> int:
            inputs = net.sum_over_phases(lambda taps: max(positions + taps - 1 - x, 0))
            return min(filters * max(positions - x, 0), inputs)

    else:
        longest = positions + most - 1
        total = residual * (longest + 1) + net.sum_over_phases(lambda taps: most - taps)

        def term(x: int) -> int:
            return min(filters * max(most - x, 0), residual * max(longest - x, 0))

    unseen = (net.outputs - residual) * min(filters * positions, net.num_visible_inputs)
    return functional_rank(net, residual) + unseen + int(sum_over_balanced(term, total, parts))


def has_loss_rank(net: OneHiddenConvolution, residual_rank: int) -> bool:
    """Whether ``loss_rank`` is known for this residual rank: of low rank, it must see all taps, or filters all inputs.

    Args:
        net: The network in integers.
        residual_rank: Rank s of the residual moment sum residual x^T.

    Returns:
        The rank.

    Example:
        >>> has_loss_rank(OneHiddenConvolution(9, kernel=8, filters=3, outputs=5), residual_rank=2)
        False
    """
    sees_taps = net.num_taps <= residual_rank * net.positions
    is_onto = net.filters * net.positions >= net.num_visible_inputs
    return residual_rank == net.outputs or sees_taps or is_onto


def _visible_residual_rank(net: OneHiddenConvolution, residual_rank: int | None) -> int:
    """The rank of the residual moment with the inputs that a filter covers; default: the largest."""
    largest = min(net.num_inputs, net.outputs)
    rank = largest if residual_rank is None else residual_rank
    rank = checked_count("residual_rank", rank, at_most=largest, why="the smaller of inputs and outputs")
    return min(rank, net.num_visible_inputs)


def _checked_input_rank(net: OneHiddenConvolution, input_rank: int) -> int:
    return checked_count("input_rank", input_rank, at_most=net.num_inputs, why="the number of inputs")


def has_biased_ranks(net: OneHiddenConvolution) -> bool:
    """Whether the formulas hold: the residual sees all outputs, which must not be more than the inputs.

    Args:
        net: The network in integers.

    Returns:
        The ranks of the three Hessians.

    Example:
        >>> has_biased_ranks(OneHiddenConvolution(3, kernel=2, filters=1, outputs=4))
        False
    """
    return net.outputs <= net.num_visible_inputs


def biased_functional_rank(net: OneHiddenConvolution) -> int:
    """The functional Hessian has rank 2 m min(kt + 1, K d1): the bias of a filter is one tap more.

    Args:
        net: The network in integers.

    Returns:
        The rank.

    Notes:
        Theorem, proof in research/docs/convolutional.md.

    Example:
        Three inputs, two taps, one filter, one output: no more than two moments.

        >>> biased_functional_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1))
        4
    """
    return 2 * net.filters * min(net.num_taps + 1, net.outputs * net.positions)


def biased_loss_rank(net: OneHiddenConvolution, has_last_bias: bool) -> int:
    """The loss Hessian: ``biased_functional_rank`` plus the sums of ``loss_rank`` with one degree changed.

    Args:
        net: The network in integers.
        has_last_bias: Whether the dense layer has a bias.

    Returns:
        The rank.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Formula, degrees x as there with s = K: for kt < K d1 one of the least x is one more; a last bias adds K, none
        adds min(K - 1, the number of other x with m (d1 - x) above sum_y (d1 + y - 1 - x)). For kt >= K d1 one of the
        largest x is one less; a last bias adds K, none adds nothing.

        Derivation: ker H_f holds the v of ``one_layer`` with omega . v(1) = 0, or the w whose moments are omega at
        every position: the module there, cut or extended at the point x = 1. A cut in general position takes the
        generator of least degree, an extension the one of largest.

        Conjecture, the degrees after the change not being proved.

    Example:
        Three inputs, two taps, one filter, one output: all of 2 + 1 + 2 + 1 parameters.

        >>> biased_loss_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1), has_last_bias=True)
        6
    """
    must = "the ranks of a biased convolution are known for no more outputs than inputs"
    require(has_biased_ranks(net), must, f"got {net.outputs} for {net.num_visible_inputs}")
    sees_taps = net.num_taps < net.outputs * net.positions
    changed, others = _degrees(net, sees_taps)
    found = sum(_term(net, x, sees_taps) for x in (changed, *others)) + biased_functional_rank(net)
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
