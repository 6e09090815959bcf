"""Claims for networks whose filters meet many patches: with bias, and with activations.

One convolution and one dense layer behind it, in integers, and sums over numbers that are as equal as can be.

Hessian ranks of one convolutional layer (1D, no padding) and one dense layer behind it, linear, without bias.

A filter of k taps over m0 input channels meets the inputs only through their phases modulo the stride: with
g = min(stride, k), phase rho holds the taps rho, rho + g, .. below k. So the network is a sum of n = g m0 networks of
stride 1, whose numbers of taps differ by at most one, and every formula below is a count of two bounds at points spread
as evenly as possible (``balanced``). Those of the outer-product and the functional Hessian are proved in
research/docs/convolutional.md; that of the loss Hessian is a conjecture (study cnn/claims) with an argument there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from hessmap.errors import require
from hessmap.records import RankValue
from hessmap.theory.claims import Claims, claims_as_bounds
from hessmap.theory.conditions import checked_count, checked_widths
from hessmap.theory.convolutional.chains import sum_over_balanced
from hessmap.theory.fully_connected.activation_bounds import POSITIVELY_HOMOGENEOUS
from hessmap.theory.fully_connected.prediction import linear_claims
from hessmap.theory.losses_and_data.data_facts import DataFacts

_PAPER = "Singh, Hofmann & Schoelkopf 2023"
_ALL = "the number of parameters that the loss can see"
_COLUMNS = f"{_PAPER}, Theorem 6, its last terms: no layer has a block of its own"
_DENSE_BIAS = "the dense network of these widths with bias, of which this one is a linear restriction"
_RESCALING = "rescaling symmetry of each filter, as Singh, Bachmann & Hofmann 2021, Fact 11"
_UNITWISE = f"{_PAPER}, Theorem 8, filter by filter: holds for piecewise linear activations as well"

_NOTHING = (RankValue(0, "exact", "a softmax over one output is constant"),)

# The claims where the loss can tell no output from another.
NO_OUTPUTS: Claims = (_NOTHING, _NOTHING, _NOTHING)


def own_block_upper_bound(layer_parameters: Sequence[int]) -> int:
    """The functional Hessian has rank at most the sum over layers of min(p_l, p - p_l).

    Assumptions: outputs that are linear in the parameters of each single layer where the activation is piecewise
    linear: its diagonal blocks vanish. Any weights, with or without bias.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 6, sharpened by p - p_l.

    >>> own_block_upper_bound((8, 6, 72))
    28
    """
    total = sum(layer_parameters)
    return sum(min(own, total - own) for own in layer_parameters)


def claims_with_bias(
    widths: tuple[int, ...], biases: tuple[bool, ...], layer_parameters: Sequence[int], facts: DataFacts
) -> Claims:
    """Linear networks with a bias in some or all layers: the dense formulas as bounds, cut at the parameters.

    The Hessian of tied layers is R^T H R, H that of the dense network with the same weights and biases and R linear.
    ``widths`` are of the dense network, ``layer_parameters`` those that the loss can see.

    Reference: none in print; no closed form is known for convolutions with bias.
    """
    dense = linear_claims(checked_widths(widths), biases, facts)
    outer, functional, loss = (
        [replace(claim, reference=f"{_DENSE_BIAS}: {claim.reference}") for claim in claims_as_bounds(claims)]
        for claims in dense
    )
    every = _rank_bound(sum(layer_parameters), _ALL)
    columns = _rank_bound(own_block_upper_bound(layer_parameters), _COLUMNS)
    return [*outer, every], [*functional, columns], [*loss, every]


def non_linear_claims(
    activation: object, layer_parameters: Sequence[int], num_filters: int, unitwise: int | None
) -> Claims:
    """Any activation: at most p; positively homogeneous ones lose a direction per filter in the outer product.

    ``layer_parameters`` are those that the loss can see, ``num_filters`` the hidden filters (scaling one by c and what
    leaves it by 1/c changes no output), ``unitwise`` the sum over the filters of one hidden layer of
    2 min(parameters in, weights out), None for more layers. Any weights (``activation_bounds.rescaling_upper_bound``).

    Reference: Singh, Bachmann & Hofmann 2021, Fact 11, and Singh, Hofmann & Schoelkopf 2023, Theorem 8, both for
    convolutions and piecewise linear activations.
    """
    total = sum(layer_parameters)
    outer, functional, loss = ([_rank_bound(total, _ALL)] for _ in range(3))
    if activation in POSITIVELY_HOMOGENEOUS:
        outer.append(_rank_bound(max(total - num_filters, 0), _RESCALING))
        functional.append(_rank_bound(own_block_upper_bound(layer_parameters), _COLUMNS))
        if unitwise is not None:
            functional.append(_rank_bound(unitwise, _UNITWISE))
    return outer, functional, loss


def _rank_bound(value: int, reference: str) -> RankValue:
    return RankValue(value, "upper_bound", reference)


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
        return self.channels * int(sum_over_balanced(term, self.kernel, min(self.stride, self.kernel)))


Integers = npt.NDArray[Any]


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
    the inputs that some filter meets if those are fewer.

    Assumptions: generic residual of rank s. In general the rank is 2 m times that of the K x kt moments of residual and
    patch, stacked over the d1 positions.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 8, there an upper bound with s = K; exact if generic, proof in
    research/docs/convolutional.md.

    By hand for three inputs, two taps, one filter, one output: two taps times two moments, an off-diagonal 2 x 2 block.

    >>> functional_rank(OneHiddenConvolution(3, kernel=2, filters=1, outputs=1))
    4
    """
    rank = _visible_residual_rank(net, residual_rank)
    return 2 * net.filters * min(net.num_taps, rank * net.positions)


def loss_rank(net: OneHiddenConvolution, residual_rank: int | None = None) -> int:
    """The loss Hessian of one convolution and one dense layer, for full input rank and generic residual.

    Formula, s the residual rank: 2 m min(kt, s d1), the functional rank, plus (K - s) min(m d1, D) for the outputs that
    the residual does not see, plus, for kt <= s d1, the sum over x in balanced(sum_y (d1 + y), s + n) of
    min(m (d1 - x)+, sum_y (d1 + y - 1 - x)+), y over the taps of the phases; for kt > s d1, the sum over x in
    balanced(s (dmax + 1) + sum_y (kmax - y), s + n) of min(m (kmax - x)+, s (dmax - x)+), where kmax is the most taps
    of a phase and dmax = d1 + kmax - 1. Known unless s < K, kt > s d1 and m d1 < D (``has_loss_rank``).

    Kind of truth: a theorem, proof in research/docs/convolutional.md.

    Assumptions: generic weights, full input rank, generic residual of rank s (min(D, K) unless given).

    Reference: none in print. Singh, Hofmann & Schoelkopf 2023 bound it by the sum of
    Theorems 7 and 8, which is loose: (d0, k, m, K) = (7, 4, 3, 2) has rank 35, the bound is 38.

    By hand for three inputs, two taps, one filter, one output: all four parameters.

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

    >>> has_loss_rank(OneHiddenConvolution(9, kernel=8, filters=3, outputs=5), residual_rank=2)
    False
    """
    sees_taps = net.num_taps <= residual_rank * net.positions
    is_onto = net.filters * net.positions >= net.num_visible_inputs
    return residual_rank == net.outputs or sees_taps or is_onto


def _visible_residual_rank(net: OneHiddenConvolution, residual_rank: int | None) -> int:
    """The rank of the residual moment with the inputs that some filter meets; the largest unless given."""
    largest = min(net.num_inputs, net.outputs)
    rank = largest if residual_rank is None else residual_rank
    rank = checked_count("residual_rank", rank, at_most=largest, why="the smaller of inputs and outputs")
    return min(rank, net.num_visible_inputs)


def _checked_input_rank(net: OneHiddenConvolution, input_rank: int) -> int:
    return checked_count("input_rank", input_rank, at_most=net.num_inputs, why="the number of inputs")
