"""The rank rule of locally connected networks: which formula applies, and what kind of truth it holds."""

from __future__ import annotations

from hessmap.networks import LocallyConnected
from hessmap.records import RankPrediction, RankValue
from hessmap.theory.claims import Claims, rank_prediction
from hessmap.theory.convolutional import deep_bounds
from hessmap.theory.convolutional.patch_bounds import NO_OUTPUTS, non_linear_claims
from hessmap.theory.fully_connected import linear
from hessmap.theory.locally_connected import low_input_rank
from hessmap.theory.locally_connected.one_layer import locally_connected_ranks, shared_weights_ranks
from hessmap.theory.losses_and_data.data_facts import DataFacts, data_facts
from hessmap.theory.prediction import RankQuestion, rank_rule

_PAPER = "Singh, Hofmann & Schoelkopf 2023"
_PROOF = "proof in research/docs/convolutional.md"
_OWN = (
    f"{_PAPER}, Theorem 9, an equality, {_PROOF}",
    f"{_PAPER}, Theorem 9, an equality, {_PROOF}",
    f"{_PAPER}, Fact 13, corrected for low residual rank (1 patch of 2, 2 filters, 2 outputs, 0: 4, not 8), {_PROOF}",
)
_SHARED = (
    f"{_PAPER}, Theorem 10, an equality, {_PROOF}",
    f"{_PAPER}, Theorem 10, an equality, {_PROOF}",
    f"{_PAPER}, Fact 14 with q = min(k, K t, m) (1 patch of 2, 1 filter, 4 outputs: 6, printed 5), {_PROOF}",
)
_LOW_OUTER = "the dense formula with the input rank"
_SUBSPACES = f"sums of products of subspaces, inputs in general position, not in print, {_PROOF}"
_GENERIC = "the rank for inputs of full rank"
_DENSE = "the dense network of these widths, of which this one is a linear restriction"


@rank_rule.register
def locally_connected_network_ranks(network: LocallyConnected, question: RankQuestion) -> RankPrediction:
    """Linear filters on disjoint patches, own or shared: exact for inputs of full rank and any residual rank.

    For inputs of lower rank in general position the functional rank stays exact; with own filters the other two are
    exact for up to three patches and a generic residual (``low_input_rank``), else upper bounds. Under
    cross-entropy all formulas hold with one output less. Non-linear networks: the linear value as numerical rank, or
    upper bounds.

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
    return rank_prediction(
        network,
        question,
        facts,
        lambda: _linear_claims(network, seen, facts),
        lambda: non_linear_claims(network.activation, seen, num_filters, unitwise),
    )


def _linear_claims(network: LocallyConnected, seen: tuple[int, int], facts: DataFacts) -> Claims:
    """A residual of rank s has moments of rank min(k, s) with each patch, stacked over the patches min(k, s t)."""
    outputs, rank, residual = facts.effective_output_dim, facts.entering_rank, facts.residual_rank
    if outputs == 0:
        return NO_OUTPUTS
    sizes = network.patches, network.patch_size, network.filters, outputs
    full = (
        shared_weights_ranks(*sizes, min(network.patch_size, residual * network.patches))
        if network.shared_weights
        else locally_connected_ranks(*sizes, min(network.patch_size, residual))
    )
    references = _SHARED if network.shared_weights else _OWN
    outer, functional, loss = (RankValue(value, "exact", text) for value, text in zip(full, references, strict=True))
    if rank == network.input_dim:
        return [outer], [functional], [loss]
    widths = (*network.widths[:-1], outputs)
    dense = deep_bounds.loss_upper_bound(widths, seen, residual, rank)
    low_outer, low_loss = _low_rank_claims(network, sizes, facts)
    return (
        [
            *low_outer,
            _rank_bound(full.outer_product, _GENERIC),
            _rank_bound(linear.outer_product_rank(widths, rank), _LOW_OUTER),
        ],
        [functional],
        [*low_loss, _rank_bound(full.loss, _GENERIC), _rank_bound(dense, _DENSE)],
    )


def _low_rank_claims(
    network: LocallyConnected, sizes: tuple[int, int, int, int], facts: DataFacts
) -> tuple[list[RankValue], list[RankValue]]:
    """Own filters: the dimension of sums of products of subspaces, exact for up to three patches and often beyond.

    The loss rank is that of a generic residual; of lower rank it is a bound.
    """
    if network.shared_weights:
        return [], []
    outer = low_input_rank.outer_product_rank(*sizes, facts.entering_rank)
    loss = low_input_rank.loss_rank(*sizes, facts.entering_rank)
    is_generic = facts.residual_rank == min(facts.entering_rank, facts.effective_output_dim)
    return [_claim(outer)], [_claim(loss) if is_generic else _rank_bound(loss.value, _SUBSPACES)]


def _claim(rank: low_input_rank.PatchRank) -> RankValue:
    return RankValue(rank.value, "exact" if rank.is_exact else "upper_bound", _SUBSPACES)


def _rank_bound(value: int, reference: str) -> RankValue:
    return RankValue(value, "upper_bound", reference)
