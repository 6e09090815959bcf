"""Which kind of truth was asked for, and how three ranks of a linear network become a prediction of that kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hessmap.errors import InvalidInput, sentence
from hessmap.networks import Activation
from hessmap.results import PARTS, RankPrediction, RankValue, Truth
from hessmap.theory.conditions import checked_widths
from hessmap.theory.fully_connected import linear
from hessmap.theory.losses_and_data.data_facts import DataFacts
from hessmap.theory.prediction import RankQuestion

Ranks = tuple[RankValue, RankValue, RankValue]

MEANINGS: dict[Truth, str] = {
    "exact": "generic weights and generic residual, its scale included",
    "upper_bound": "any weights, any residual of the given rank",
    "numerical": "the linear formula, read as the size of the bulk: no theorem and no bound",
}


class Described(Protocol):
    """What an architecture tells of itself."""

    @property
    def widths(self) -> tuple[int, ...]: ...
    @property
    def bias(self) -> bool: ...
    @property
    def activation(self) -> Activation: ...
    @property
    def is_linear(self) -> bool: ...
    @property
    def num_parameters(self) -> int: ...


def smallest(*bounds: tuple[int, str]) -> RankValue:
    """The lowest of several upper bounds, each with its reference; the first of equals.

    >>> smallest((7, "one theorem"), (5, "another"))
    RankValue(value: 5, kind: upper_bound, reference: another)
    """
    value, reference = min(bounds, key=lambda bound: bound[0])
    return RankValue(value, "upper_bound", reference)


def answered(
    network: Described,
    question: RankQuestion,
    facts: DataFacts,
    linear_ranks: Callable[[], Ranks],
    non_linear_bounds: Callable[[], Ranks],
) -> RankPrediction:
    """The prediction: for a linear network each rank with the strongest truth known of it, unless a kind was asked for;
    for another the linear ranks as numerical ones, or the upper bounds where asked for.

    An exact rank of generic weights is an upper bound for all, since a rank can only drop where a minor vanishes.
    """
    if question.kind == "exact" and not network.is_linear:
        got = f"this one has activation {str(network.activation)!r}"
        remedy = "Use kind='numerical' or kind='upper_bound'"
        raise InvalidInput(sentence("an exact rank formula needs a linear network", got, remedy))
    kind = question.kind or (None if network.is_linear else "numerical")
    ranks = non_linear_bounds() if kind == "upper_bound" and not network.is_linear else linear_ranks()
    if kind == "exact":
        _require_exact(network, ranks)
    outer, functional, loss = (RankValue(rank.value, kind or rank.kind, rank.reference) for rank in ranks)
    return RankPrediction(
        outer,
        functional,
        loss,
        num_parameters=network.num_parameters,
        assumptions=(*_meanings((outer, functional, loss), ranks), *facts.notes),
        inputs=_inputs(network, question.loss, facts),
    )


def _require_exact(network: Described, ranks: Ranks) -> None:
    for part, rank in zip(PARTS, ranks, strict=True):
        if rank.kind != "exact":
            must = "kind='exact' needs a case whose exact rank is known by formula"
            got = f"of the {part} Hessian of {network} only an upper bound is ({rank.value})"
            raise InvalidInput(sentence(must, got, "Use kind='upper_bound', or generic_rank for the exact value"))


def _meanings(ranks: Ranks, linear_ranks: Ranks) -> list[str]:
    """What each kind of truth among the ranks stands for, named where there is more than one."""
    kinds = list(dict.fromkeys(rank.kind for rank in ranks))
    if kinds == ["numerical"] and any(rank.kind == "upper_bound" for rank in linear_ranks):
        return ["the formula or bound of the linear network, read as the size of the bulk: no theorem and no bound"]
    if len(kinds) == 1:
        return [MEANINGS[kinds[0]]]
    return [f"{kind.replace('_', ' ')}: {MEANINGS[kind]}" for kind in kinds]


def _inputs(network: Described, loss: str, facts: DataFacts) -> dict[str, object]:
    widths, outputs = checked_widths(network.widths), facts.effective_output_dim
    return {
        "widths": network.widths,
        "bias": network.bias,
        "activation": str(network.activation),
        "loss": loss,
        "input_rank": facts.input_rank,
        "centred_input_rank": facts.centred_input_rank,
        "residual_rank": facts.residual_rank,
        "mean_residual_is_zero": facts.mean_residual_is_zero,
        "effective_output_dim": outputs,
        "bottleneck_rank": linear.bottleneck_rank(widths, facts.entering_rank, effective_output_dim=outputs),
        "active_bottleneck_rank": linear.active_bottleneck_rank(widths, facts.residual_rank),
    }
