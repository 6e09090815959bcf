"""Claims for networks whose filters meet many patches: with bias, and with activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hessmap.records import RankValue
from hessmap.theory.claims import Claims, claims_as_bounds
from hessmap.theory.conditions import checked_widths
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
