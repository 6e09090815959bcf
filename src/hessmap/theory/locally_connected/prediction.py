"""The rank rule of locally connected networks: which formula applies, and what kind of truth it holds."""

from __future__ import annotations

from hessmap.networks import LocallyConnected
from hessmap.results import RankPrediction, RankValue
from hessmap.theory.convolutional import deep_bounds as deep_convolutional
from hessmap.theory.convolutional.patch_bounds import NO_OUTPUTS, non_linear_ranks
from hessmap.theory.fully_connected import linear
from hessmap.theory.fully_connected.hessian_ranks import HessianRanks
from hessmap.theory.kinds_of_truth import Ranks, answered, smallest
from hessmap.theory.locally_connected.one_layer import locally_connected_ranks, shared_weights_ranks
from hessmap.theory.losses_and_data.data_facts import DataFacts, data_facts
from hessmap.theory.prediction import RankQuestion, rank_rule

_PAPER = "Singh, Hofmann & Schoelkopf 2023"
_OWN = (
    f"{_PAPER}, Theorem 9, an equality",
    f"{_PAPER}, Theorem 9, an equality",
    f"{_PAPER}, Fact 13, corrected for residuals of lower rank (1 patch of 2, 2 filters, 2 outputs, rank 0: 4, not 8)",
)
_SHARED = (
    f"{_PAPER}, Theorem 10, an equality",
    f"{_PAPER}, Theorem 10, an equality",
    f"{_PAPER}, Fact 14 with q = min(k, K t, m) (1 patch of 2, 1 filter, 4 outputs: 6, printed 5)",
)
_LOW_OUTER = "the dense formula with the input rank"
_LOW_LOSS = "both parts added, less the gradient that they share; no exact formula is known for input_rank < input_dim"
_GENERIC = "the rank for inputs of full rank"
_DENSE = "the dense network of these widths, of which this one is a linear restriction"


@rank_rule.register
def locally_connected_network_ranks(network: LocallyConnected, question: RankQuestion) -> RankPrediction:
    """Linear filters on disjoint patches, own or shared: exact for inputs of full rank and any residual rank.

    For inputs of lower rank the functional rank stays exact, the other two are upper bounds. Under cross-entropy all
    formulas hold with one output less. Non-linear networks: the linear value as numerical rank, or upper bounds.

    >>> net = LocallyConnected(patches=2, patch_size=2, filters=1, outputs=4)
    >>> locally_connected_network_ranks(net, RankQuestion()).loss.value
    12
    """
    facts = data_facts(network.input_dim, network.output_dim, False, question)
    outputs, patches = facts.effective_output_dim, network.patches
    seen = (network.layer_parameters[0], outputs * network.widths[1])
    num_filters = network.filters * (1 if network.shared_weights else patches)
    leaving = outputs * (patches if network.shared_weights else 1)
    unitwise = 2 * num_filters * min(network.patch_size, leaving)
    return answered(
        network,
        question,
        facts,
        lambda: _linear_ranks(network, seen, facts),
        lambda: non_linear_ranks(network.activation, seen, num_filters, unitwise),
    )


def _linear_ranks(network: LocallyConnected, seen: tuple[int, int], facts: DataFacts) -> Ranks:
    if facts.effective_output_dim == 0:
        return NO_OUTPUTS
    full = _full_rank_values(network, facts)
    references = _SHARED if network.shared_weights else _OWN
    outer, functional, loss = (RankValue(value, "exact", text) for value, text in zip(full, references, strict=True))
    rank, residual = facts.entering_rank, facts.residual_rank
    if rank == network.input_dim:
        return outer, functional, loss
    widths = (*network.widths[:-1], facts.effective_output_dim)
    outer = smallest((full.outer_product, _GENERIC), (linear.outer_product_rank(widths, rank), _LOW_OUTER))
    if full.functional == 0:
        return outer, functional, outer
    dense = deep_convolutional.loss_upper_bound(widths, seen, residual, rank)
    shared = min(sum(seen), outer.value + full.functional - 1)
    return outer, functional, smallest((shared, _LOW_LOSS), (full.loss, _GENERIC), (dense, _DENSE))


def _full_rank_values(network: LocallyConnected, facts: DataFacts) -> HessianRanks:
    """The formulas for inputs of full rank: a residual of rank s has moments of rank min(k, s) with each patch, and
    stacked over the patches of rank min(k, s t)."""
    patches, size, outputs, residual = (
        network.patches,
        network.patch_size,
        facts.effective_output_dim,
        facts.residual_rank,
    )
    if network.shared_weights:
        return shared_weights_ranks(patches, size, network.filters, outputs, min(size, residual * patches))
    return locally_connected_ranks(patches, size, network.filters, outputs, [min(size, residual)] * patches)
