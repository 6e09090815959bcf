"""One question for every architecture: which ranks do the theorems give?

An architecture answers by a rule of its own, registered with ``rank_rule.register``; this file knows none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import get_args

from hessmap.errors import InvalidInput, UnsupportedNetwork, require, require_name, sentence, unknown_name
from hessmap.networks import SelfAttention
from hessmap.records import RankPrediction, Truth
from hessmap.theory.losses_and_data.losses import LOSSES

KINDS: tuple[str, ...] = get_args(Truth)


@dataclass(frozen=True)
class RankQuestion:
    """What is known of loss and data; ``None`` stands for the generic value. ``predict_ranks`` says what each means."""

    loss: str = "squared"
    input_rank: int | None = None
    residual_rank: int | None = None
    centred_input_rank: int | None = None
    mean_residual_is_zero: bool = False
    kind: Truth | None = None
    num_samples: int | None = None
    uncentred_residual_rank: int | None = None
    num_tokens: int | None = None

    def __post_init__(self) -> None:
        require_name("loss", self.loss, LOSSES)
        if self.kind is not None and self.kind not in KINDS:
            raise unknown_name("kind", self.kind, KINDS)
        is_bool = isinstance(self.mean_residual_is_zero, bool)
        require(is_bool, "mean_residual_is_zero must be True or False", f"got {self.mean_residual_is_zero!r}")


def predict_ranks(
    network: object,
    loss: str = "squared",
    input_rank: int | None = None,
    residual_rank: int | None = None,
    centred_input_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    kind: Truth | None = None,
    num_samples: int | None = None,
    uncentred_residual_rank: int | None = None,
    num_tokens: int | None = None,
) -> RankPrediction:
    """The ranks of the three Hessians that theory gives for an architecture, with the kind of truth of each.

    loss: "squared", "log_cosh", "cross_entropy" (softmax), or "positive_definite" for any other loss whose second
        derivative by the outputs is positive definite at every sample.
    input_rank: rank of sum x x^T; generic: the input dimension.
    centred_input_rank: rank of the centred inputs, ``input_rank`` or one less; generic: ``input_rank``.
    residual_rank: rank of sum residual x^T; with bias, x with a one appended. Generic: the largest possible.
    uncentred_residual_rank: for a bias in some layers only: rank of sum residual x^T without the one, ``residual_rank``
        (as far as the inputs allow, the generic value) or one less.
    mean_residual_is_zero: the residuals sum to zero over the samples, as wherever the last bias is stationary.
    num_samples: the number of samples, where the ranks above are not known: generic ones are then at most that, and the
        outer-product Hessian has at most the rank samples times outputs.
    num_tokens: for self-attention, the tokens of a sample. Samples and tokens that are not given are so many that
        more change nothing. Of the ranks above self-attention takes ``input_rank`` alone, that of all tokens.
    kind: "exact" (proved, for linear networks with generic weights), "upper_bound" (proved, for all weights),
        "conjecture" (the strongest claim of a linear network, proved or not), "numerical" (the linear formula as the
        size of the bulk of a non-linear network: no theorem, no bound). Without it, for a linear network the strongest
        claim of each rank, for another numerical.

    No rank is above the number of parameters or above the two others added.

    >>> from hessmap.networks import FullyConnected
    >>> prediction = predict_ranks(FullyConnected((64, 30, 20, 10)), loss="squared", input_rank=61)
    >>> prediction.outer_product.value, prediction.functional.value, prediction.loss.value
    (610, 900, 1410)
    >>> prediction.loss.kind
    'exact'
    """
    question = RankQuestion(
        loss,
        input_rank,
        residual_rank,
        centred_input_rank,
        mean_residual_is_zero,
        kind,
        num_samples,
        uncentred_residual_rank,
        num_tokens,
    )
    if num_tokens is not None and not isinstance(network, SelfAttention):
        got = f"it is {num_tokens} for a {type(network).__name__}"
        raise InvalidInput(sentence("num_tokens is for self-attention", got, "Leave it out"))
    return rank_rule(network, question)


@singledispatch
def rank_rule(network: object, question: RankQuestion) -> RankPrediction:
    """The rule of an architecture; a new one is registered beside its formulas.

    Rules raise InvalidInput for integers that contradict each other, and never guess an architecture.
    """
    must = "predict_ranks needs an architecture such as FullyConnected, Convolutional or SelfAttention"
    if isinstance(network, str | tuple | list):
        remedy = "Use FullyConnected(widths), or networks.parse_network for a text"
        raise InvalidInput(sentence(must, f"got {network!r}", remedy))
    remedy = "Use networks.describe(model) to read the architecture of a module"
    raise UnsupportedNetwork(sentence(must, f"got a {type(network).__name__}", remedy))
