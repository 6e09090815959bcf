"""A linear network with a bias in some layers, and its residual, as the formulas of ``partial_bias`` take them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hessmap.errors import require
from hessmap.theory.conditions import checked_count, checked_input_rank, checked_output, checked_widths


class BiasedNetwork(NamedTuple):
    """A network with inputs in general position, and the layers that have or act as if they had a bias."""

    vertices: tuple[int, ...]
    biased: frozenset[int]
    input_rank: int
    centred_input_rank: int


class ResidualRanks(NamedTuple):
    """The ranks of [Omega, omega] and of Omega, and whether omega is zero."""

    rank: int
    uncentred_rank: int
    mean_is_zero: bool


def biased_network(
    widths: Iterable[int],
    biased_layers: Iterable[int],
    input_rank: int,
    centred_input_rank: int | None,
    effective_output_dim: int | None,
) -> BiasedNetwork:
    """The network of checked integers; inputs on a hyperplane that misses the origin act as a bias of layer 1."""
    widths = checked_widths(widths)
    last = len(widths) - 1
    biased = frozenset(biased_layers)
    for layer in (min(biased), max(biased)) if biased else ():
        checked_count("a biased layer", layer, 1, last, "the number of layers")
    rank = checked_input_rank(widths, input_rank)
    centred = checked_count("centred_input_rank", rank if centred_input_rank is None else centred_input_rank)
    must = "input_rank must be centred_input_rank or one more"
    require(centred <= rank <= centred + 1, must, f"input_rank is {rank}, centred_input_rank {centred}")
    first = rank
    if biased and centred < rank:
        biased, first = biased | {1}, centred
    vertices = (first, *widths[1:-1], checked_output(widths, effective_output_dim))
    return BiasedNetwork(vertices, biased, rank, centred)


def residual_ranks(
    network: BiasedNetwork, rank: int | None, uncentred: int | None, mean_is_zero: bool
) -> ResidualRanks:
    """The ranks of the residual moments, completed by generic ones and checked against each other."""
    outputs = network.vertices[-1]
    must = "uncentred_residual_rank needs residual_rank beside it"
    require(rank is not None or uncentred is None, must, f"uncentred_residual_rank is {uncentred}")
    largest = min(network.centred_input_rank + (not mean_is_zero), outputs)
    rank = checked_count("residual_rank", largest if rank is None else rank, 0, largest, "by inputs and outputs")
    if uncentred is None:
        uncentred = min(rank, network.input_rank)
    uncentred = checked_count("uncentred_residual_rank", uncentred, 0, min(rank, network.input_rank), "by its data")
    adds_nothing = mean_is_zero or network.centred_input_rank < network.input_rank
    must = "uncentred_residual_rank must be residual_rank, or one less where the constant is no function of the inputs"
    require(rank - uncentred <= (not adds_nothing), must, f"they are {uncentred} and {rank}")
    return ResidualRanks(rank, uncentred, mean_is_zero or rank == 0)
