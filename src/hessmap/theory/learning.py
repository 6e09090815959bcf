"""Learning coefficients of deep linear networks, over all optimal weights or at given ones.

Over all weights whose product is the true map:

Let K(w) = |W_L .. W_1 - W*|^2 with widths H_0, .., H_L and a true map W* of rank r. The volume of {K < e} shrinks like
e^lambda (-log e)^(m-1): lambda is the learning coefficient (real log canonical threshold), m its multiplicity. Inputs
of full rank and any loss that is comparable to the squared one change K by bounded factors only, and neither number.

The codimension of the set of optima near given weights:

The optima {W_L .. W_1 = W*} are a union of strata, one for each chain of ranks s_k = rk(W_k .. W_1), from s_0 = H_0
down to s_L = r. Each is irreducible, of codimension r (H_0 + H_L - r) + sum_k (s_{k-1} - s_k)(H_k - s_k), and at its
generic point rk(W_j .. W_{i+1}) = s_j + min_{i<=k<=j} (H_k - s_k). The closure of a stratum holds the weights w exactly
where these ranks are at least those of w (Abeasis & Del Fra 1985).

In the steps x_k = s_{k-1} - s_k >= 0 that is a bound H_k - rho[j][k] on the sum of x over every interval k+1 .. j, and
the codimension is a constant and sum_k H_k x_k + x_k^2 / 2. By Frobenius' inequality the bounds are submodular on
intervals that meet, so the steps are the bases of a polymatroid, and the greedy algorithm finds the cheapest.

The learning coefficient at given weights, from the ranks of their products:

lambda(w) is the exponent of the volume of {K < e} in a small neighbourhood of weights w with K(w) = 0. ``table`` is rho
of ``fully_connected.products``: rho[j][i] = rank of W_j .. W_{i+1} on the data. With rk H_o that of
``products`` and c(w) the codimension of the largest component of the optima through w (``components``),

    max(rk H_o / 2, lambda) <= lambda(w) <= c(w) / 2,

and rk H_o / 2 is lambda(w) exactly where the optima near w are a manifold of codimension rk H_o.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import InvalidInput, UnsupportedNetwork, require, sentence
from hessmap.networks import FullyConnected
from hessmap.records import LearningCoefficient
from hessmap.theory.data_ranks import checked_count, effective_output_dim
from hessmap.theory.fully_connected.products import RankTable, checked_product_ranks, outer_product_rank

__all__ = [
    "Coefficient",
    "LocalCoefficient",
    "largest_component_codimension",
    "learning_coefficient",
    "linear_learning_coefficient",
    "local_learning_coefficient",
    "two_layer_coefficient",
]


class Coefficient(NamedTuple):
    """The exponent lambda of the volume and the multiplicity m, one more than the exponent of its logarithm.

    Attributes:
        value: The exponent lambda of the volume.
        multiplicity: The multiplicity m, one more than the exponent of the logarithm.
    """

    value: Fraction
    multiplicity: int


def linear_learning_coefficient(widths: Iterable[int], rank: int) -> Coefficient:
    """lambda = r (H_0 + H_L - r)/2 + a (l-a)/(4l) - (l-1) T^2/(4l) + sum_{i<j} N_i N_j / 2, and m = a (l-a) + 1.

    Args:
        widths: Widths H_0, .., H_L; 0 where loss or inputs do not depend on them.
        rank: Rank r of the true map W*.

    Returns:
        lambda and its multiplicity m.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        N_0 <= .. <= N_L are the H_k - r in order, l the largest k >= 1 with N_0 + .. + N_k >= k N_k, T = N_0 + .. +
        N_l, a = T mod l, read as l where it is 0; i and j run over 0..l. Twice lambda is the codimension of {W_L .. W_1
        = W*}, an integer. Widths may be 0, where loss or inputs see nothing.

        Assumptions: inputs whose second moment has full rank H_0, no bias, a loss that is comparable to the squared
        one.

        Theorem. Reference: Aoyagi & Watanabe 2005 (two layers), Aoyagi 2024 (any depth; the formula as secondary
        sources print it), and for lambda the proof through codimensions in research/docs/learning-coefficients.md.

    Example:
        2-2-2 and W* = 0: where W_1 has rank s, 2 s weights of W_2 and (2-s)^2 of W_1 are bound: 4, 3, 4.

        >>> linear_learning_coefficient((2, 2, 2), rank=0)
        Coefficient(value=Fraction(3, 2), multiplicity=1)
        >>> linear_learning_coefficient((1, 1, 1), rank=0)
        Coefficient(value=Fraction(1, 2), multiplicity=2)
    """
    dims = _checked_dims(widths)
    r = checked_count("rank", rank, at_most=min(dims), why="the narrowest width")
    excess = sorted(dim - r for dim in dims)
    sums = list(accumulate(excess))
    last = max(k for k in range(1, len(excess)) if sums[k] >= k * excess[k])
    total = sums[last]
    a = total % last or last
    pairs = total * total - sum(n * n for n in excess[: last + 1])  # twice the sum over i < j
    doubled_ends = r * (dims[0] + dims[-1] - r)
    quarters = 2 * doubled_ends * last + a * (last - a) - (last - 1) * total * total + pairs * last
    return Coefficient(Fraction(quarters, 4 * last), a * (last - a) + 1)


def _checked_dims(widths: Iterable[int]) -> list[int]:
    must = "widths must be integers of at least 0, input first and output last"
    try:
        dims = list(map(operator.index, widths))
    except TypeError:
        raise InvalidInput(sentence(must, f"got {widths!r}")) from None
    require(len(dims) >= 2, "widths must contain an input and an output", f"got {tuple(dims)}")
    require(min(dims) >= 0, must, f"the narrowest is {min(dims)}")
    return dims


Integers = NDArray[np.int64]
_LARGEST = 1 << 50  # sums of up to 2^13 of these stay below 2^63


def largest_component_codimension(table: RankTable) -> int:
    """c = r (H_0 + H_L - r) + min sum_k (s_{k-1} - s_k)(H_k - s_k), over the components of the optima through w.

    Args:
        table: Table rho of product ranks, as ``checked_product_ranks`` returns it.

    Returns:
        The codimension c.

    Notes:
        The minimum is over integers s_0 = H_0, s_L = r with rho[k][0] <= s_k and, for k < j, 0 <= s_k - s_j <= H_k -
        rho[j][k]. ``table`` is rho, as ``checked_product_ranks`` returns it.

        Theorem (proof in research/docs/learning-coefficients.md).

    Example:
        1-1-1, both weights 0: the two axes, of codimension 1.

        >>> largest_component_codimension(((1,), (0, 1), (0, 0, 1)))
        1
    """
    widths = [row[-1] for row in table]
    rank = table[-1][0]
    chain = [widths[0]]
    for step in _cheapest_steps(table, widths):
        chain.append(chain[-1] - int(step))
    costs = zip(pairwise(chain), widths[1:], strict=True)
    return rank * (widths[0] + widths[-1] - rank) + sum((a - b) * (width - b) for (a, b), width in costs)


def _cheapest_steps(table: RankTable, widths: Sequence[int]) -> Integers:
    """Greedy: the unit that costs least, H_k + x_k, is added wherever the bounds allow it; what cannot grow stays so.

    Kind of result: theorem (Federgruen & Groenevelt 1986). Between two steps that stop all others grow to one level of
    costs, which is found by bisection.
    """
    dtype, none = (np.int64 if max(widths) < _LARGEST else object), len(widths) * max(widths)
    vertices = range(len(widths))
    bounds = np.array([[widths[k] - table[j][k] if k < j else none for j in vertices] for k in vertices], dtype=dtype)
    costs = np.array(widths[1:], dtype=dtype)
    steps, is_free = np.zeros_like(costs), np.ones(len(costs), dtype=bool)
    level, highest = min(widths), max(widths) + widths[0] + 1
    while is_free.any():
        level = _highest_level(bounds, steps, np.where(is_free, costs, highest), level, highest)
        steps = np.where(is_free, np.maximum(steps, level - costs), steps)
        slack = bounds - _sums(steps)
        for k in np.flatnonzero(is_free & (costs <= level)):
            around = slack[: k + 1, k + 1 :]  # the intervals that hold step k
            if around.min():
                around -= 1
                steps[k] += 1
        is_free &= _least_around(slack) > 0
        level += 1
    return steps


def _highest_level(bounds: Integers, steps: Integers, costs: Integers, low: int, high: int) -> int:
    """The largest level to which the steps can grow, known to lie in low .. high - 1."""
    while high - low > 1:
        middle = (low + high) // 2
        allowed = bounds - _sums(np.maximum(steps, middle - costs))
        low, high = (middle, high) if allowed.min() >= 0 else (low, middle)
    return low


def _sums(steps: Integers) -> Integers:
    """The sum of the steps k+1 .. j at [k, j], 0 below the diagonal or less."""
    reached = np.concatenate([np.zeros_like(steps[:1]), np.cumsum(steps)])
    return np.asarray(reached[None, :] - reached[:, None])


def _least_around(slack: Integers) -> Integers:
    """For each step the least of all intervals that hold it."""
    from_left = np.minimum.accumulate(slack, axis=0)
    return np.asarray(np.minimum.accumulate(from_left[:, ::-1], axis=1)[:, ::-1].diagonal(1))


class LocalCoefficient(NamedTuple):
    """lambda(w), at least ``lower_bound`` by theorems; ``multiplicity`` is None where no claim is known.

    Attributes:
        value: The coefficient lambda(w).
        multiplicity: The multiplicity; None where no claim is known.
        lower_bound: Lower bound of lambda(w) by theorems.
        hessian_rank: Rank of H_o at these weights.
    """

    value: Fraction
    multiplicity: int | None
    lower_bound: Fraction
    hessian_rank: int

    @property
    def is_proved(self) -> bool:
        return self.value == self.lower_bound

    @property
    def is_smooth(self) -> bool:
        """Whether the optima near the weights are a manifold whose tangent space is the kernel of H_o."""
        return 2 * self.value == self.hessian_rank


def local_learning_coefficient(product_ranks: RankTable) -> LocalCoefficient:
    """lambda(w) = c(w) / 2: a theorem for two layers and wherever a proved lower bound reaches it, else a conjecture.

    Args:
        product_ranks: Table rho: row j has the ranks of W_j .. W_{i+1} for i < j, and the dimension of vertex j.

    Returns:
        lambda(w) with its lower bound; multiplicity where known.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Kind of result: ``is_proved`` says which. The proved lower bounds are rk H_o / 2, the global lambda, and c of
        the weaker conditions s_k >= rho[k][0] alone, of the network and of its transpose. The multiplicity is 1 where
        the optima are smooth, that of ``two_layer_coefficient`` for two layers, and the global one at weights whose
        partial products all have the rank of the truth; elsewhere it is not known.

    Example:
        1-1-1-1 with w_1 = w_2 = 0 and w_3 = 1: (w_1 w_2)^2, the two axes of 1-1-1.

        >>> point = local_learning_coefficient([[1], [0, 1], [0, 0, 1], [0, 0, 1, 1]])
        >>> point.value, point.hessian_rank, point.is_proved, point.is_smooth
        (Fraction(1, 2), 0, True, False)
    """
    table = checked_product_ranks(product_ranks)
    rank, codimension = outer_product_rank(table), largest_component_codimension(table)
    widths = [row[-1] for row in table]
    whole = linear_learning_coefficient(widths, table[-1][0])
    if len(table) == 3:
        value, multiplicity = two_layer_coefficient(table)
        return LocalCoefficient(value, multiplicity, value, rank)
    relaxed = [largest_component_codimension(_from_inputs_alone(seen)) for seen in (table, _transposed_table(table))]
    lower_bound = max(whole.value, Fraction(max(rank, *relaxed), 2))
    is_most_singular = all(entry == table[-1][0] for row in table for entry in row[:-1])
    known = 1 if rank == codimension else whole.multiplicity if is_most_singular else None
    return LocalCoefficient(Fraction(codimension, 2), known, lower_bound, rank)


def two_layer_coefficient(table: RankTable) -> Coefficient:
    """lambda(w) = (b d + (K - b) a) / 2 + lambda_0(d - a, H - a - b + r, K - b), with the multiplicity of lambda_0.

    Args:
        table: Table rho of product ranks, as ``checked_product_ranks`` returns it.

    Returns:
        lambda(w) and its multiplicity.

    Notes:
        a = rk W_1, b = rk W_2, r = rk W_2 W_1 for the widths d, H, K; lambda_0 is the coefficient of these three widths
        at rank 0, and 0 with multiplicity 1 where one of them is 0.

        Theorem. Where W_1 and W_2 have full rank, changes of basis and the implicit function theorem leave squares of b
        d + (K - b) a coordinates and the product of two smaller matrices, near 0.

    Example:
        3-3-3 and W_1 = W_2 = 0: nothing is bound, the network itself is left.

        >>> two_layer_coefficient(((3,), (0, 3), (0, 0, 3)))
        Coefficient(value=Fraction(7, 2), multiplicity=2)
    """
    (inputs,), (a, hidden), (r, b, outputs) = table
    left = linear_learning_coefficient((inputs - a, hidden - a - b + r, outputs - b), 0)
    return Coefficient(Fraction(b * inputs + (outputs - b) * a, 2) + left.value, left.multiplicity)


def _from_inputs_alone(table: RankTable) -> RankTable:
    """The table with no condition on products that do not begin at the inputs beyond those that they imply."""
    return [[*(row[0] for _ in row[:-1]), row[-1]] for row in table]


def _transposed_table(table: RankTable) -> RankTable:
    """The table of W_1^T .. W_L^T."""
    last = len(table) - 1
    return [[table[last - i][last - j] for i in range(j + 1)] for j in range(last + 1)]


_PAGE = "research/docs/learning-coefficients.md"
_GLOBAL = f"Aoyagi 2024 (two layers: Aoyagi & Watanabe 2005); codimension of the optima, {_PAGE}"
_REACHED = "half the codimension of the largest component of the optima, which a lower bound reaches"
_TWO_LAYERS = f"two layers, {_PAGE}"
_SMOOTH = "half the rank of the outer-product Hessian, where the optima are smooth of that codimension (Morse-Bott)"
_CONJECTURE = "half the codimension of the largest component of the optima through these weights (an upper bound)"
_ESTIMATE = "Use learning_coefficient_estimate, which works for any model"


@dataclass(frozen=True)
class _Seen:
    """What inputs and loss see of a network: its widths, coordinates that are free and bound, what was assumed."""

    widths: tuple[int, ...]
    num_free_outputs: int
    notes: tuple[str, ...]


def learning_coefficient(
    network: object,
    rank: int | None = None,
    *,
    loss: str = "squared",
    input_rank: int | None = None,
    centred_input_rank: int | None = None,
    product_ranks: RankTable | None = None,
) -> LearningCoefficient:
    """The learning coefficient of a linear network where it computes a map W* of the given rank.

    Args:
        network: A linear architecture.
        rank: Rank of the true map W* on the inputs: at most every width. Under softmax cross-entropy that of W* less
            its mean row; with a bias in the last layer W* on the centred inputs; with a bias in the first layer alone
            that of W* with the constant appended as a column.
        loss: As for ``predict_ranks``; the true map is finite, so that softmax probabilities lie between 0 and 1.
            Defaults to "squared".
        input_rank: Rank of the inputs. Defaults to the input dimension.
        centred_input_rank: Rank of the centred inputs. Defaults to the input dimension.
        product_ranks: For the coefficient at given weights: a row for each vertex j = 0..L, rk(W_j .. W_{i+1}) for i <
            j, then the dimension of the vertex (that of the inputs is their rank, under cross-entropy that of the
            outputs is one less). The rank is then its last row's first entry.

    Returns:
        lambda, its multiplicity, kind and reference.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        The volume of weights with excess risk below e shrinks like e^lambda (-log e)^(m-1); lambda is the ``value`` and
        m the ``multiplicity``. Half the number of parameters is what lambda would be without any symmetry.

        Theorem over all optima, for two layers, and wherever ``lower_bound`` equals ``value``; at singular weights of
        three or more layers that is a conjecture, and ``value`` an upper bound.

    Example:
        >>> from hessmap.networks import FullyConnected
        >>> found = learning_coefficient(FullyConnected((5, 5, 5)), rank=2)
        >>> found.value, found.multiplicity, found.kind
        (Fraction(23, 2), 2, 'exact')
        >>> at_zero = learning_coefficient(FullyConnected((3, 3, 3)), product_ranks=[[3], [0, 3], [0, 0, 3]])
        >>> at_zero.value, at_zero.hessian_rank
        (Fraction(7, 2), 0)
    """
    if not isinstance(network, FullyConnected):
        must = "learning_coefficient needs a FullyConnected architecture"
        raise UnsupportedNetwork(sentence(must, f"got a {type(network).__name__}", _ESTIMATE))
    if not network.is_linear:
        must, got = "exact learning coefficients need a linear network", f"this one has activation {network.activation}"
        raise UnsupportedNetwork(sentence(must, got, _ESTIMATE))
    seen = _effective_network(network, loss, input_rank, centred_input_rank)
    if product_ranks is not None:
        return _at_weights(network, seen, product_ranks, rank)
    if rank is None:
        remedy = f"Give rank=0..{min(seen.widths)}, or product_ranks of given weights"
        raise InvalidInput(
            sentence("a learning coefficient depends on the rank of the true map", "rank is missing", remedy)
        )
    found = linear_learning_coefficient(seen.widths, rank)
    value, narrowest = found.value + Fraction(seen.num_free_outputs, 2), min(seen.widths)
    generic_rank = narrowest * (seen.widths[0] + seen.widths[-1] - narrowest) + seen.num_free_outputs
    return LearningCoefficient(
        value,
        found.multiplicity,
        "exact",
        _GLOBAL,
        rank=int(rank),
        is_local=False,
        lower_bound=value,
        hessian_rank=generic_rank,
        num_parameters=network.num_parameters,
        assumptions=seen.notes,
        inputs=_inputs(network, loss, seen),
    )


def _at_weights(
    network: FullyConnected, seen: _Seen, product_ranks: RankTable, rank: int | None
) -> LearningCoefficient:
    table = checked_product_ranks(product_ranks)
    dims = tuple(row[-1] for row in table)
    must = f"product_ranks must end its rows with the dimensions {seen.widths} that inputs and loss see of {network}"
    require(dims == seen.widths, must, f"they are {dims}")
    must, reached = "rank must be that of the whole product, the last row's first entry", table[-1][0]
    require(rank is None or rank == reached, must, f"rank is {rank}, the entry {reached}", "Leave rank out")
    point, extra = local_learning_coefficient(table), seen.num_free_outputs
    reference = _SMOOTH if point.is_smooth else _TWO_LAYERS if len(dims) == 3 else _REACHED
    return LearningCoefficient(
        point.value + Fraction(extra, 2),
        point.multiplicity,
        "exact" if point.is_proved else "conjecture",
        reference if point.is_proved else _CONJECTURE,
        rank=reached,
        is_local=True,
        lower_bound=point.lower_bound + Fraction(extra, 2),
        hessian_rank=point.hessian_rank + extra,
        num_parameters=network.num_parameters,
        assumptions=seen.notes,
        inputs={"widths": network.widths, "product_ranks": table},
    )


def _effective_network(
    network: FullyConnected, loss: str, input_rank: int | None, centred_input_rank: int | None
) -> _Seen:
    """The network as inputs and loss see it.

    With the last bias the mean of the outputs is a free coordinate: K = |(W - W*) Sigma_c^(1/2)|^2 + |b|^2 after a
    shift of b that keeps volumes; so K/2 is added, and only centred inputs are left. A bias in the first layer alone is
    one more column of W_1, for an input that is always one.
    """
    outputs = effective_output_dim(network.output_dim, loss)
    notes = ["the truth is a map of the network, and the loss is smallest there"]
    if outputs < network.output_dim:
        notes.append(
            "softmax probabilities of the truth strictly between 0 and 1; its rank is that without the mean row"
        )
    first, last = network.biases[0], network.biases[-1]
    entering, text = _entering_rank(network, input_rank, centred_input_rank)
    notes.append(text)
    if last:
        notes.append("the total bias is a free coordinate; the rank is that of the truth on centred inputs")
        return _Seen((entering, *network.hidden_widths, outputs), outputs, tuple(notes))
    if any(network.biases[1:]):
        must = "a learning coefficient with bias is known with a bias in the last layer, or in the first alone"
        raise UnsupportedNetwork(sentence(must, f"the biases of {network} are {network.biases}", _ESTIMATE))
    if first:
        notes.append("a bias in the first layer alone is one more input, always one; the rank is that of [W*, b*]")
        entering += 1
    return _Seen((entering, *network.hidden_widths, outputs), 0, tuple(notes))


def _entering_rank(network: FullyConnected, input_rank: int | None, centred: int | None) -> tuple[int, str]:
    """The rank of the inputs, centred ones where there is a bias, and in words where it comes from."""
    dims, why = network.input_dim, "the input dimension"
    if input_rank is not None:
        input_rank = checked_count("input_rank", input_rank, at_most=dims, why=why)
    if centred is not None:
        centred = checked_count("centred_input_rank", centred, at_most=dims, why=why)
        must, got = "input_rank must be centred_input_rank or one more", f"they are {input_rank} and {centred}"
        require(input_rank is None or centred <= input_rank <= centred + 1, must, got, "Give both as measured")
    if not network.has_bias:
        rank = dims if input_rank is None else input_rank
        return rank, f"inputs of rank {rank}"
    rank = next(value for value in (centred, input_rank, dims) if value is not None)
    return rank, f"centred inputs of rank {rank}"


def _inputs(network: FullyConnected, loss: str, seen: _Seen) -> dict[str, object]:
    return {"widths": network.widths, "bias": network.bias, "loss": loss, "widths_seen": seen.widths}
