"""The rank rule of convolutional networks: which formula applies, and what kind of truth it holds."""

from __future__ import annotations

from hessmap.networks import Convolutional
from hessmap.results import RankPrediction, RankValue
from hessmap.theory.convolutional import deep_bounds as deep_convolutional
from hessmap.theory.convolutional import deep_columns as deep_convolutional_columns
from hessmap.theory.convolutional import deep_law as deep_convolutional_law
from hessmap.theory.convolutional import one_layer as convolutional
from hessmap.theory.convolutional.filter_chains import convolutional_chain
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution
from hessmap.theory.convolutional.patch_bounds import NO_OUTPUTS, non_linear_ranks, with_bias_ranks
from hessmap.theory.kinds_of_truth import Ranks, answered, smallest
from hessmap.theory.losses_and_data.data_facts import DataFacts, data_facts
from hessmap.theory.prediction import RankQuestion, rank_rule

_PAPER = "Singh, Hofmann & Schoelkopf 2023"
_TRIED = "held in every case tried in exact arithmetic, not proved"
_CORRECTED = "corrected (input 9, kernel 8, filters 3, outputs 5: 44, not 45), proof in docs/convolutional.md"
_OUTER = f"{_PAPER}, Theorem 7, there a bound; {_CORRECTED}"
_FUNCTIONAL = f"{_PAPER}, Theorem 8, an equality, with the residual rank for the outputs"
_LOSS = f"{_PAPER}, Section 6, there the sum of Theorems 7 and 8; this value {_TRIED}"
_LOW_OUTER = f"{_PAPER}, Theorems 5 and 7 with the input rank; not always reached"
_LOW_LOSS = "both parts added, less the gradient that they share; no exact formula is known for these data"
_GENERIC = "the rank for data in general position"
_DEEP_OUTER = f"{_PAPER}, Theorem 5, with channels times positions and the input rank"
_DEEP_FUNCTIONAL = f"{_PAPER}, Theorem 6, sharpened: no layer has a block of its own"
_DEEP_LOSS = f"{_PAPER}, Section 6, sharpened by the dense formula and the shared gradient"
_NOT_PRINTED = "products of polynomial matrices, not in print"
_CHAIN_OUTER = f"{_NOT_PRINTED}; never smaller in any case tried in exact arithmetic, equality is conjectured"
_CHAIN_FUNCTIONAL = f"{_NOT_PRINTED}; block columns layer by layer, never exceeded in any case tried"
_CHAIN_LOSS = f"{_NOT_PRINTED}; what the other layers tell of each, never exceeded in any case tried"
_COROLLARY = f"{_PAPER}, Corollary 12"


@rank_rule.register
def convolutional_ranks(network: Convolutional, question: RankQuestion) -> RankPrediction:
    """One linear convolution: exact for data in general position. Deeper, padded or biased ones: upper bounds.

    Assumptions: those of ``convolutional``, ``deep_convolutional`` and ``patch_bounds``. Under cross-entropy all
    formulas hold with one output less. Non-linear networks: the linear value as numerical rank, or upper bounds.

    >>> net = Convolutional(9, channels=(1, 3), kernels=(8,), outputs=5)
    >>> prediction = convolutional_ranks(net, RankQuestion())
    >>> prediction.outer_product.value, prediction.outer_product.kind
    (44, 'exact')
    >>> deep = convolutional_ranks(Convolutional(9, channels=(1, 2, 2), kernels=(3, 3), outputs=4), RankQuestion())
    >>> deep.loss.value, deep.loss.kind
    (58, 'upper_bound')
    """
    facts = data_facts(network.input_dim, network.output_dim, network.bias, question)
    seen = _visible_parameters(network, facts)
    num_filters = sum(network.channels[1:])
    return answered(
        network,
        question,
        facts,
        lambda: _linear_ranks(network, seen, facts),
        lambda: non_linear_ranks(network.activation, seen, num_filters, _unitwise(network, facts)),
    )


def _visible_parameters(network: Convolutional, facts: DataFacts) -> tuple[int, ...]:
    """The parameters of each layer, without those of the last that no loss can see."""
    *hidden, _ = network.layer_parameters
    return (*hidden, facts.effective_output_dim * (network.widths[-2] + network.bias))


def _unitwise(network: Convolutional, facts: DataFacts) -> int | None:
    if network.num_layers > 2:
        return None
    entering = network.channels[0] * network.kernels[0] + network.bias
    return 2 * network.channels[1] * min(entering, facts.effective_output_dim * network.lengths[1])


def _linear_ranks(network: Convolutional, seen: tuple[int, ...], facts: DataFacts) -> Ranks:
    if facts.effective_output_dim == 0:
        return NO_OUTPUTS
    if network.bias:
        return with_bias_ranks(network.widths, seen, facts)
    if network.num_layers == 2:
        return _one_hidden_ranks(network, facts)
    return _deep_ranks(network, seen, facts)


def _deep_ranks(network: Convolutional, seen: tuple[int, ...], facts: DataFacts) -> Ranks:
    sizes = (*network.widths[:-1], facts.effective_output_dim)
    rank, residual = facts.entering_rank, facts.residual_rank
    outer = deep_convolutional.outer_product_upper_bound(sizes, seen, rank)
    columns = sum(deep_convolutional.functional_column_upper_bounds(sizes, seen, residual, rank))
    functional = [(columns, _DEEP_FUNCTIONAL)]
    if residual == min(rank, *sizes[1:]):
        functional.append((deep_convolutional.hidden_units_upper_bound(sizes, residual, rank), _COROLLARY))
    loss = deep_convolutional.loss_upper_bound(sizes, seen, residual, rank)
    found = [(outer, _DEEP_OUTER)], functional, [(loss, _DEEP_LOSS)]
    if not any(network.paddings):
        outputs = facts.effective_output_dim
        chain = convolutional_chain(network.input_length, network.channels, network.kernels, outputs, network.strides)
        found[0].append((deep_convolutional_law.outer_product_rank(chain), _CHAIN_OUTER))
        found[1].append((deep_convolutional_columns.functional_upper_bound(chain), _CHAIN_FUNCTIONAL))
        found[2].append((deep_convolutional_columns.loss_upper_bound(chain), _CHAIN_LOSS))
    outer_value, functional_value, loss_value = (smallest(*candidates) for candidates in found)
    return outer_value, functional_value, loss_value


def _one_hidden_ranks(network: Convolutional, facts: DataFacts) -> Ranks:
    """Exact for generic residuals of inputs in general position; padding zeros make the inputs special."""
    ((kernel,), (stride,), (padding,)) = network.kernels, network.strides, network.paddings
    channels, filters = network.channels
    length, outputs = network.input_length + 2 * padding, facts.effective_output_dim
    net = OneHiddenConvolution(length, kernel, filters, outputs, channels, stride)
    rank, residual = min(facts.entering_rank, net.num_visible_inputs), min(facts.residual_rank, net.num_visible_inputs)
    is_full = rank == net.num_visible_inputs and not padding
    generic = convolutional.outer_product_rank(net)
    outer = RankValue(generic, "exact", _OUTER)
    if not is_full:
        outer = smallest((convolutional.outer_product_upper_bound(net, rank), _LOW_OUTER), (generic, _GENERIC))
    moments = convolutional.functional_rank(net, residual)
    functional = RankValue(moments, "upper_bound" if padding else "exact", _FUNCTIONAL)
    if moments == 0:
        return outer, functional, outer
    if is_full and residual == min(outputs, rank):
        return outer, functional, RankValue(convolutional.loss_rank(net), "exact", _LOSS)
    widths = (*network.widths[:-1], outputs)
    parameters = (filters * net.num_taps, outputs * widths[1])
    dense = deep_convolutional.loss_upper_bound(widths, parameters, facts.residual_rank, facts.entering_rank)
    shared = min(sum(parameters), outer.value + moments - 1)
    loss = smallest((shared, _LOW_LOSS), (dense, _DEEP_LOSS), (convolutional.loss_rank(net), _GENERIC))
    return outer, functional, loss
