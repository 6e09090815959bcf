"""One question: the learning coefficient of a network, over all optima or at given weights."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from hessmap.errors import InvalidInput, UnsupportedNetwork, require, sentence
from hessmap.networks import FullyConnected
from hessmap.records.learning import LearningCoefficient
from hessmap.theory.conditions import checked_count
from hessmap.theory.fully_connected.representations import RankTable, checked_product_ranks
from hessmap.theory.learning.global_coefficient import linear_learning_coefficient
from hessmap.theory.learning.local_coefficient import local_learning_coefficient
from hessmap.theory.losses_and_data.losses import effective_output_dim

_PAGE = "research/docs/learning-coefficients.md"
_GLOBAL = f"Aoyagi 2024 (two layers: Aoyagi & Watanabe 2005); codimension of the optima, {_PAGE}"
_REACHED = "half the codimension of the largest component of the optima, which a lower bound reaches"
_TWO_LAYERS = f"two layers, {_PAGE}"
_SMOOTH = "half the rank of the outer-product Hessian, where the optima are smooth of that codimension (Morse-Bott)"
_CONJECTURE = "half the codimension of the largest component of the optima through these weights (an upper bound)"
_ESTIMATE = "Use learning_coefficient_estimate, which takes every model"


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

    The volume of weights with excess risk below e shrinks like e^lambda (-log e)^(m-1); lambda is the ``value`` and m
    the ``multiplicity``. Half the number of parameters is what lambda would be without any symmetry.

    rank: the rank of the truth W* on the inputs: at most every width. Under softmax cross-entropy that of W* less its
        mean row; with a bias in the last layer W* on the centred inputs; with a bias in the first layer alone that of
        W* with the constant appended as a column.
    loss: as for ``predict_ranks``; the truth is finite, so that softmax probabilities lie between 0 and 1.
    input_rank, centred_input_rank: ranks of the inputs; the input dimension unless given.
    product_ranks: for the coefficient at given weights: a row for each vertex j = 0..L, rk(W_j .. W_{i+1}) for i < j,
        then the dimension of the vertex (that of the inputs is their rank, under cross-entropy that of the outputs is
        one less). The rank is then its last row's first entry.

    Kind of truth: theorem over all optima, for two layers, and wherever ``lower_bound`` equals ``value``; at singular
    weights of three or more layers that is a conjecture, and ``value`` an upper bound.

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
        raise InvalidInput(sentence("a learning coefficient is that of a truth", "its rank is missing", remedy))
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
