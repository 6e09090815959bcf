"""The rank rule of residual networks: which formula applies, and what kind of truth it holds."""

from __future__ import annotations

from hessmap.networks import Residual
from hessmap.records import RankPrediction, RankValue
from hessmap.theory.claims import Claims, Conjecture, rank_prediction
from hessmap.theory.losses_and_data.data_facts import DataFacts, data_facts
from hessmap.theory.prediction import RankQuestion, rank_rule
from hessmap.theory.residual.linear import ResidualSizes, single_layer_block_ranks, two_layer_block_ranks

_PROOF = "proof in research/docs/attention-residual.md"
_TRANSLATION = f"the fully connected network of the same layers: W -> I + W is a translation, {_PROOF}"
_OUTER = f"a skip over two layers makes a bottleneck of width blocks times inner width, {_PROOF}"
_TWO_LAYERS = Conjecture("residual blocks of two layers, not in print; study residual/ranks", 2_000)
_NO_RESIDUAL = "no residual, no functional part"
_FITTED = "no residual: the outer-product Hessian is all"
_PARAMETERS = "the number of parameters"


@rank_rule.register
def residual_ranks(network: Residual, question: RankQuestion) -> RankPrediction:
    """Blocks of one layer: exact. Of two layers: the outer product exact, the other two conjectured.

    With an activation: the linear formula as numerical rank, or the number of parameters as a bound.

    >>> ranks = residual_ranks(Residual(3, 2, inner_width=1), RankQuestion(residual_rank=1))
    >>> ranks.outer_product.value, ranks.functional.value, ranks.loss.value
    (8, 8, 12)
    >>> ranks.outer_product.kind, ranks.loss.kind
    ('exact', 'conjecture')
    """
    facts = data_facts(network.input_dim, network.output_dim, False, question)
    sizes = residual_sizes(network, facts)
    bound = [RankValue(network.num_parameters, "upper_bound", _PARAMETERS)]
    return rank_prediction(
        network,
        question,
        facts,
        lambda: _linear_claims(sizes),
        lambda: (bound, bound, bound),
        inputs=_inputs(network, question.loss, facts),
        is_homogeneous=network.inner_width is None,
    )


def residual_sizes(network: Residual, facts: DataFacts) -> ResidualSizes:
    """What the blocks meet: a frozen end lets through no more than the width."""
    is_input_trained, is_output_trained = (end in network.trained_ends for end in ("input", "output"))
    rank, outputs = facts.entering_rank, facts.effective_output_dim
    rank = rank if is_input_trained else min(rank, network.width)
    outputs = outputs if is_output_trained else min(outputs, network.width)
    residual_rank = min(facts.residual_rank, rank, outputs)
    return ResidualSizes(
        network.width,
        network.num_blocks,
        network.inner_width,
        rank,
        outputs,
        residual_rank,
        is_input_trained,
        is_output_trained,
    )


def _linear_claims(sizes: ResidualSizes) -> Claims:
    if sizes.inner_width is None:
        outer, functional, loss = ([RankValue(rank, "exact", _TRANSLATION)] for rank in single_layer_block_ranks(sizes))
        return outer, functional, loss
    ranks = two_layer_block_ranks(sizes)
    outer = [RankValue(ranks.outer_product, "exact", _OUTER)]
    if sizes.residual_rank == 0:
        return outer, [RankValue(0, "exact", _NO_RESIDUAL)], [RankValue(ranks.outer_product, "exact", _FITTED)]
    return outer, [_TWO_LAYERS.value(ranks.functional)], [_TWO_LAYERS.value(ranks.loss)]


def _inputs(network: Residual, loss: str, facts: DataFacts) -> dict[str, object]:
    known: dict[str, object] = {
        "network": str(network),
        "loss": loss,
        "input_rank": facts.input_rank,
        "residual_rank": facts.residual_rank,
        "effective_output_dim": facts.effective_output_dim,
    }
    return known if facts.num_samples is None else known | {"num_samples": facts.num_samples}
