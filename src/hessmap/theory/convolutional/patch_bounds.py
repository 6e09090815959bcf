"""Upper bounds for networks whose filters meet many patches: with bias, and with activations."""

from __future__ import annotations

from collections.abc import Sequence

from hessmap.results import RankValue
from hessmap.theory.fully_connected.hessian_ranks import linear_hessian_ranks_with_bias
from hessmap.theory.fully_connected.symmetry_bounds import POSITIVELY_HOMOGENEOUS
from hessmap.theory.kinds_of_truth import Ranks, smallest
from hessmap.theory.losses_and_data.data_facts import DataFacts

_PAPER = "Singh, Hofmann & Schoelkopf 2023"
_ALL = "the number of parameters that the loss can see"
_COLUMNS = f"{_PAPER}, Theorem 6, its last terms: no layer has a block of its own"
_DENSE_BIAS = "the dense network of these widths with bias, of which this one is a linear restriction"
_RESCALING = "rescaling symmetry of each filter, as Singh, Bachmann & Hofmann 2021, Fact 11"
_UNITWISE = f"{_PAPER}, Theorem 8, filter by filter: holds for piecewise linear activations as well"

_NOTHING = RankValue(0, "exact", "a softmax over one output is constant")

# The ranks where the loss can tell no output from another.
NO_OUTPUTS: Ranks = (_NOTHING, _NOTHING, _NOTHING)


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


def with_bias_ranks(widths: tuple[int, ...], layer_parameters: Sequence[int], facts: DataFacts) -> Ranks:
    """Linear networks with bias: the dense formulas with bias, cut at the number of parameters.

    The Hessian of tied layers is R^T H R, H that of the dense network with the same weights and biases and R linear.
    ``widths`` are of the dense network, ``layer_parameters`` those that the loss can see.

    Reference: none in print; no closed form is known for convolutions with bias.
    """
    total = sum(layer_parameters)
    dense = linear_hessian_ranks_with_bias(
        widths,
        facts.centred_input_rank,
        facts.residual_rank,
        mean_residual_is_zero=facts.mean_residual_is_zero,
        effective_output_dim=facts.effective_output_dim,
    )
    return (
        smallest((dense.outer_product, _DENSE_BIAS), (total, _ALL)),
        smallest((dense.functional, _DENSE_BIAS), (own_block_upper_bound(layer_parameters), _COLUMNS)),
        smallest((dense.loss, _DENSE_BIAS), (total, _ALL)),
    )


def non_linear_ranks(
    activation: object, layer_parameters: Sequence[int], num_filters: int, unitwise: int | None
) -> Ranks:
    """Any activation: at most p; positively homogeneous ones lose a direction per filter in the outer product.

    ``layer_parameters`` are those that the loss can see, ``num_filters`` the hidden filters (scaling one by c and what
    leaves it by 1/c changes no output), ``unitwise`` the sum over the filters of one hidden layer of
    2 min(parameters in, weights out), None for more layers.

    Assumptions: for the outer product, weights generic enough that these directions are independent.

    Reference: Singh, Bachmann & Hofmann 2021, Fact 11, and Singh, Hofmann & Schoelkopf 2023, Theorem 8, both for
    convolutions and piecewise linear activations.
    """
    total = sum(layer_parameters)
    outer = functional = loss = smallest((total, _ALL))
    if activation in POSITIVELY_HOMOGENEOUS:
        outer = smallest((max(total - num_filters, 0), _RESCALING))
        functional = smallest((total, _ALL), (own_block_upper_bound(layer_parameters), _COLUMNS))
        if unitwise is not None and unitwise < functional.value:
            functional = smallest((unitwise, _UNITWISE))
    return outer, functional, loss
