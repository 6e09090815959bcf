"""One question for every architecture: which ranks do the theorems give?

``predict_ranks`` dispatches to the rule of an architecture, registered with ``rank_rule.register`` beside its formulas.
A rule lists its claims about each Hessian; ``rank_prediction`` chooses the strongest one and applies the limits that
hold for every network. An exact rank of generic weights is an upper bound for all weights, since a rank can only drop
where a minor vanishes.

``INDEX`` lists the formulas among which ``predict_ranks`` chooses (network x Hessian -> function, kind of result,
reference), for readers who look for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Literal, NamedTuple, Protocol

from hessmap.errors import InvalidInput, UnsupportedNetwork, require, sentence
from hessmap.networks import Activation, SelfAttention
from hessmap.records import PARTS, ClaimKind, Part, RankPrediction, RankValue
from hessmap.theory.data_ranks import RankInputs, RankQuestion, checked_widths, outer_product_sample_upper_bound
from hessmap.theory.fully_connected import linear

# The claims of the outer-product, the functional and the loss Hessian.
Claims = tuple[Sequence[RankValue], Sequence[RankValue], Sequence[RankValue]]

MEANINGS: dict[ClaimKind, str] = {
    "exact": "generic weights and generic residual, its scale included",
    "conjecture": "generic weights and generic residual, its scale included; not proved, no counterexample is known",
    "upper_bound": "any weights, any residual of the given rank",
    "numerical": "the linear formula, read as the size of the bulk: neither a theorem nor a bound",
}
_PARAMETERS = "the number of parameters"
_SAMPLES = "Jacot, Gabriel & Hongler 2019: samples times outputs"
_SUM = "the ranks of the two other Hessians added"
_SHARED = "both parts added, less the gradient, which lies in the range of either"
Hessian = Literal["H_o", "H_f", "H_L"]
Kind = Literal["theorem", "conjecture", "upper bound", "conjectured bound"]


def predict_ranks(
    network: object,
    loss: str = "squared",
    input_rank: int | None = None,
    residual_rank: int | None = None,
    centred_input_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    kind: ClaimKind | None = None,
    num_samples: int | None = None,
    uncentred_residual_rank: int | None = None,
    num_tokens: int | None = None,
) -> RankPrediction:
    """The ranks of the three Hessians that theory gives for an architecture, with the kind of each claim.

    Args:
        network: An architecture such as ``FullyConnected``, ``Convolutional`` or ``SelfAttention``.
        loss: "squared", "log_cosh", "cross_entropy" (softmax), or "positive_definite" for any other loss whose second
            derivative by the outputs is positive definite at every sample. Defaults to "squared".
        input_rank: Rank of sum x x^T; generic: the input dimension.
        residual_rank: Rank of sum residual x^T; with bias, x with a one appended. Generic: the largest possible.
        centred_input_rank: Rank of the centred inputs, ``input_rank`` or one less; generic: ``input_rank``.
        mean_residual_is_zero: The residuals sum to zero over the samples, as wherever the last bias is stationary.
            Defaults to False.
        kind: "exact" (proved, for linear networks with generic weights), "upper_bound" (proved, for all weights),
            "conjecture" (the strongest claim of a linear network, proved or not), "numerical" (the linear formula as
            the size of the bulk of a non-linear network: no theorem, no bound). Without it, for a linear network the
            strongest claim of each rank, for another numerical.
        num_samples: The number of samples, where the ranks above are not known: generic ones are then at most that, and
            the outer-product Hessian has at most the rank samples times outputs.
        uncentred_residual_rank: For a bias in some layers only: rank of sum residual x^T without the one,
            ``residual_rank`` (as far as the inputs allow, the generic value) or one less.
        num_tokens: For self-attention, the tokens of a sample. Default, for samples and tokens: enough that more
            change no rank. Of the ranks above self-attention takes ``input_rank`` alone, that of all tokens.

    Returns:
        The three ranks, each with its kind and reference, the assumptions and the integers that were used.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        No rank is above the number of parameters or above the sum of the two others.

    Example:
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
    """The rank rule of an architecture; a new rule is registered with ``rank_rule.register`` beside its formulas.

    Args:
        network: The architecture; its type selects the rule.
        question: What is specified about loss and data.

    Returns:
        The three ranks, each with its kind and reference.

    Raises:
        InvalidInput: If integers contradict each other.
        UnsupportedNetwork: If no rule is registered for the type.
    """
    must = "predict_ranks needs an architecture such as FullyConnected, Convolutional or SelfAttention"
    if isinstance(network, str | tuple | list):
        remedy = "Use FullyConnected(widths), or networks.parse_network for a text"
        raise InvalidInput(sentence(must, f"got {network!r}", remedy))
    remedy = "Use networks.describe(model) to read the architecture of a module"
    raise UnsupportedNetwork(sentence(must, f"got a {type(network).__name__}", remedy))


class Conjecture(NamedTuple):
    """A formula without a proof, and the number of networks that it met in exact arithmetic, all in agreement."""

    reference: str
    num_cases: int

    def value(self, rank: int) -> RankValue:
        """The rank itself, conjectured."""
        return RankValue(rank, "conjecture", self.reference, "value", self.num_cases)

    def bound(self, rank: int) -> RankValue:
        """An upper bound, conjectured."""
        return RankValue(rank, "conjecture", self.reference, "bound", self.num_cases)


class ManySamples(NamedTuple):
    """Exact claims about a network with activations on many samples, and the note that belongs to them."""

    claims: Claims
    note: str


class Described(Protocol):
    """What an architecture tells of itself; ``widths`` too, where the integers of its prediction are not given."""

    @property
    def bias(self) -> bool | tuple[bool, ...]: ...
    @property
    def activation(self) -> Activation: ...
    @property
    def is_linear(self) -> bool: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_parameters(self) -> int: ...


def strongest_claim(claims: Sequence[RankValue]) -> RankValue:
    """An exact rank if there is one, else the claim that leaves the least room.

    Of equal values a conjectured rank says most, then a theorem; but no conjecture stands above a theorem's bound.

    >>> law = Conjecture("a law", num_cases=500)
    >>> strongest_claim([RankValue(7, "upper_bound", "a theorem"), law.value(5)])
    RankValue(value=5, kind='conjecture', reference='a law', conjectured='value', num_cases=500)
    >>> strongest_claim([RankValue(7, "upper_bound", "a theorem"), law.bound(7)]).kind
    'upper_bound'
    """
    exact = next((claim for claim in claims if claim.kind == "exact"), None)
    return exact or min(claims, key=lambda claim: (claim.value, claim.relation != "equal", claim.kind == "conjecture"))


def claims_as_bounds(claims: Sequence[RankValue]) -> list[RankValue]:
    """The claims as bounds, for a restriction of the network that they are about: a theorem stays one.

    >>> claims_as_bounds([RankValue(7, "exact", "a theorem"), Conjecture("a law", 500).value(5)])[1].conjectured
    'bound'
    """
    return [_as_bound(claim) for claim in claims]


def rank_prediction(
    network: Described,
    question: RankQuestion,
    data: RankInputs,
    linear_claims: Callable[[], Claims],
    non_linear_claims: Callable[[], Claims],
    *,
    inputs: dict[str, object] | None = None,
    is_homogeneous: bool = True,
    many_samples: ManySamples | None = None,
) -> RankPrediction:
    """The prediction: for a linear network each rank with the strongest claim there is, unless a kind was asked for;
    for another what is exact for many samples, else the linear ranks as numerical ones, or the upper bounds where
    asked for.

    ``inputs`` are the integers that it was made from; default: those of a sequence of layers. ``is_homogeneous``: the
    outputs are a homogeneous polynomial of the parameters, as those of linear layers without bias are.
    """
    has_exact = many_samples is not None and question.kind in (None, "exact")
    kind = question.kind or (None if network.is_linear or has_exact else "numerical")
    if kind in ("exact", "conjecture") and not network.is_linear and not has_exact:
        got = f"this one has activation {str(network.activation)!r}"
        what = "an exact rank formula" if kind == "exact" else "a conjecture"
        must = f"{what} needs a linear network"
        raise InvalidInput(sentence(must, got, "Use kind='numerical' or kind='upper_bound'"))
    notes: tuple[str, ...] = data.notes
    if has_exact and many_samples is not None:
        claims, notes = many_samples.claims, (many_samples.note, *notes)
    else:
        claims = non_linear_claims() if kind == "upper_bound" and not network.is_linear else linear_claims()
    known = {part: _of_kind(network, found, kind) for part, found in zip(PARTS, claims, strict=True)}
    limited = _within_limits(network, data, known, is_homogeneous)
    if kind == "exact":
        _require_exact(network, limited)
    ranks = {part: RankValue(rank.value, "numerical", rank.reference) for part, rank in limited.items()}
    ranks = ranks if kind == "numerical" else limited
    return RankPrediction(
        ranks["outer_product"],
        ranks["functional"],
        ranks["loss"],
        num_parameters=network.num_parameters,
        assumptions=(*_meanings(ranks, limited), *notes),
        inputs=_inputs(network, question.loss, data) if inputs is None else inputs,
    )


def _of_kind(network: Described, claims: Sequence[RankValue], kind: ClaimKind | None) -> RankValue:
    """The strongest claim of all or, for upper bounds, of all that are proved."""
    if kind != "upper_bound":
        return strongest_claim(claims)
    theorems = [claim for claim in claims if claim.kind != "conjecture"]
    return _as_bound(strongest_claim([*theorems, _parameters_bound(network)]))


def _require_exact(network: Described, ranks: dict[Part, RankValue]) -> None:
    for part, rank in ranks.items():
        must = "kind='exact' needs a case whose exact rank is proved"
        got = f"of the {part} Hessian of {network} only a {rank.kind_text} is known ({rank.value})"
        remedy = "Leave kind out for the strongest claim, or use generic_rank for the exact value"
        require(rank.kind == "exact", must, got, remedy)


def _as_bound(claim: RankValue) -> RankValue:
    if claim.kind == "conjecture":
        return RankValue(claim.value, "conjecture", claim.reference, "bound", claim.num_cases)
    return RankValue(claim.value, "upper_bound", claim.reference)


def _parameters_bound(network: Described) -> RankValue:
    return RankValue(network.num_parameters, "upper_bound", _PARAMETERS)


def _within_limits(
    network: Described, data: RankInputs, known: dict[Part, RankValue], is_homogeneous: bool
) -> dict[Part, RankValue]:
    """The claims, none above the parameters, the samples times the outputs, or the two other ranks added.

    Without bias the functional Hessian of L >= 2 linear layers maps the parameters to L - 1 times the gradient, which
    is in the range of the outer-product Hessian too: the ranges of both parts meet, but where the functional one is 0.
    """
    outer, functional, loss = (strongest_claim([known[part], _parameters_bound(network)]) for part in PARTS)
    if data.num_samples is not None:
        most = outer_product_sample_upper_bound(data.num_samples, data.effective_output_dim)
        outer = strongest_claim([outer, RankValue(most, "upper_bound", _SAMPLES)])
    if functional.value == 0 and functional.kind != "conjecture":
        return {"outer_product": outer, "functional": functional, "loss": outer}
    if is_homogeneous and network.is_linear and not network.bias and network.num_layers > 1:
        loss = strongest_claim([loss, _sum(outer, functional, -1, _SHARED)])
    loss = strongest_claim([loss, _sum(outer, functional, 0, _SUM)])
    outer = strongest_claim([outer, _sum(loss, functional, 0, _SUM)])
    functional = strongest_claim([functional, _sum(loss, outer, 0, _SUM)])
    return {"outer_product": outer, "functional": functional, "loss": loss}


def _sum(first: RankValue, second: RankValue, less: int, reference: str) -> RankValue:
    """A bound from two others: as sure as the less sure of them."""
    total = first.value + second.value + less
    tried = [claim.num_cases for claim in (first, second) if claim.num_cases is not None]
    return Conjecture(reference, min(tried)).bound(total) if tried else RankValue(total, "upper_bound", reference)


def _meanings(ranks: dict[Part, RankValue], claimed: dict[Part, RankValue]) -> list[str]:
    """What each kind among the ranks stands for, named where there is more than one."""
    kinds = list(dict.fromkeys(rank.kind for rank in ranks.values()))
    if kinds == ["numerical"] and any(rank.relation == "at_most" for rank in claimed.values()):
        return ["the linear formula or bound, read as the size of the bulk: neither a theorem nor a bound"]
    if len(kinds) == 1:
        return [MEANINGS[kinds[0]]]
    return [f"{kind.replace('_', ' ')}: {MEANINGS[kind]}" for kind in kinds]


def _inputs(network: Described, loss: str, data: RankInputs) -> dict[str, object]:
    widths, outputs = checked_widths(getattr(network, "widths", ())), data.effective_output_dim
    known: dict[str, object] = {
        "widths": tuple(widths),
        "bias": network.bias,
        "activation": str(network.activation),
        "loss": loss,
        "input_rank": data.input_rank,
        "centred_input_rank": data.centred_input_rank,
        "residual_rank": data.residual_rank,
        "mean_residual_is_zero": data.mean_residual_is_zero,
        "effective_output_dim": outputs,
        "bottleneck_rank": linear.bottleneck_rank(widths, data.entering_rank, effective_output_dim=outputs),
        "active_bottleneck_rank": linear.active_bottleneck_rank(widths, data.residual_rank),
    }
    given = {"num_samples": data.num_samples, "uncentred_residual_rank": data.uncentred_residual_rank}
    return known | {name: value for name, value in given.items() if value is not None}


class Formula(NamedTuple):
    """One row of the index.

    Attributes:
        network: The networks that the formula is about.
        hessian: "H_o" (outer product), "H_f" (functional) or "H_L" (loss).
        function: Name of the function below ``hessmap.theory``.
        kind: "theorem" (the rank of generic weights), "upper bound" (a theorem), "conjecture" (the rank, not proved)
            or "conjectured bound".
        reference: Paper and statement, or the page with the proof.
    """

    network: str
    hessian: Hessian
    function: str
    kind: Kind
    reference: str


_FCN, _CNN = "Singh, Bachmann & Hofmann 2021", "Singh, Hofmann & Schoelkopf 2023"
_LINEAR, _BIAS = "fully connected, linear, no bias", "fully connected, linear, bias in some or all layers"
_ANY_WEIGHTS = "fully connected, linear, no bias, any weights"
_RELU_1, _ACTIVATION = "fully connected, one hidden layer, ReLU", "fully connected, any activation"
_RELU_MANY = "fully connected, one hidden layer, ReLU or leaky ReLU, many samples"
_RELU_PAGE = "research/docs/fully-connected.md"
_CONV_1 = "one linear convolution and a dense layer"
_CONV_1_BIAS = "one linear convolution with bias and a dense layer"
_CONV = "deep linear convolutions"
_LOCAL, _SHARED_FILTERS = "locally connected, linear, own filters", "disjoint patches, linear, shared filters"
_LOW = "locally connected, linear, own filters, inputs of low rank, up to three patches"
_LOW_MANY = "locally connected, linear, own filters, inputs of low rank, four patches or more"
_HEAD, _LAST = "linear self-attention, one head, many samples", "linear self-attention, one head, last token read"
_CAUSAL, _HEADS = "causal linear self-attention, one head", "linear self-attention, several heads"
_BLOCK_1, _BLOCK_2 = "linear residual blocks I + W", "linear residual blocks I + U D"
_CONJECTURES, _CONV_PAGE = "research/docs/conjectures.md", "research/docs/convolutional.md"
_ATTENTION_PAGE = "research/docs/attention-residual.md"

INDEX: tuple[Formula, ...] = (
    Formula(_LINEAR, "H_o", "fully_connected.linear.outer_product_rank", "theorem", f"{_FCN}, Corollary 4, corrected"),
    Formula(_LINEAR, "H_f", "fully_connected.linear.functional_rank", "theorem", f"{_FCN}, Corollary 6, an equality"),
    Formula(_LINEAR, "H_L", "fully_connected.linear.loss_rank", "theorem", f"{_FCN}, Fact 7, corrected"),
    Formula(_BIAS, "H_o", "fully_connected.linear.outer_product_rank", "theorem", f"{_FCN}, Theorem 12, corrected"),
    Formula(_BIAS, "H_f", "fully_connected.linear.functional_rank", "conjecture", f"{_FCN}, S7.3, corrected"),
    Formula(_BIAS, "H_f", "fully_connected.linear.functional_upper_bound", "upper bound", _CONJECTURES),
    Formula(_BIAS, "H_L", "fully_connected.linear.loss_rank", "conjecture", f"{_FCN}, Fact 13, corrected"),
    Formula(_BIAS, "H_L", "fully_connected.linear.loss_upper_bound", "upper bound", _CONJECTURES),
    Formula(_ANY_WEIGHTS, "H_o", "fully_connected.products.outer_product_rank", "theorem", _CONJECTURES),
    Formula(_ANY_WEIGHTS, "H_f", "fully_connected.products.functional_rank", "theorem", _CONJECTURES),
    Formula(_ANY_WEIGHTS, "H_L", "fully_connected.products.loss_rank", "theorem", _CONJECTURES),
    Formula(
        _RELU_1, "H_o", "fully_connected.activations.active_units_upper_bound", "upper bound", f"{_FCN}, Theorem 9"
    ),
    Formula(
        _RELU_1,
        "H_o",
        "fully_connected.activations.activation_groups_upper_bound",
        "upper bound",
        f"{_FCN}, Theorem 9, sharpened",
    ),
    Formula(_RELU_1, "H_f", "fully_connected.activations.one_hidden_functional_rank", "theorem", f"{_FCN}, S8.2"),
    *(
        Formula(_RELU_MANY, hessian, "fully_connected.activations.one_hidden_ranks", "theorem", _RELU_PAGE)
        for hessian in ("H_o", "H_f", "H_L")
    ),
    Formula(
        "fully connected, ReLU or leaky ReLU",
        "H_o",
        "fully_connected.activations.rescaling_upper_bound",
        "upper bound",
        f"{_FCN}, Fact 11",
    ),
    *(
        Formula(
            _ACTIVATION,
            hessian,
            "fully_connected.activations.reachable_parameters_upper_bound",
            "upper bound",
            f"{_FCN}, Fact 11, first terms",
        )
        for hessian in ("H_o", "H_f", "H_L")
    ),
    Formula("any network", "H_o", "outer_product_sample_upper_bound", "upper bound", "Jacot, Gabriel & Hongler 2019"),
    Formula(_CONV_1, "H_o", "convolutional.one_layer.outer_product_rank", "theorem", f"{_CNN}, Theorem 7, corrected"),
    Formula(
        f"{_CONV_1}, inputs of low rank",
        "H_o",
        "convolutional.one_layer.outer_product_upper_bound",
        "upper bound",
        f"{_CNN}, Theorems 5 and 7",
    ),
    Formula(_CONV_1, "H_f", "convolutional.one_layer.functional_rank", "theorem", f"{_CNN}, Theorem 8, an equality"),
    Formula(_CONV_1, "H_L", "convolutional.one_layer.loss_rank", "theorem", _CONV_PAGE),
    Formula(_CONV_1_BIAS, "H_f", "convolutional.one_layer.biased_functional_rank", "theorem", _CONV_PAGE),
    Formula(_CONV_1_BIAS, "H_L", "convolutional.one_layer.biased_loss_rank", "conjecture", _CONV_PAGE),
    Formula(_CONV, "H_o", "convolutional.deep_law.outer_product_rank", "conjecture", _CONV_PAGE),
    Formula(_CONV, "H_o", "convolutional.deep_law.proved_outer_product_rank", "theorem", _CONV_PAGE),
    Formula(_CONV, "H_o", "convolutional.deep_bounds.outer_product_upper_bound", "upper bound", f"{_CNN}, Theorem 5"),
    Formula(_CONV, "H_o", "convolutional.chains.channel_mixing_upper_bound", "upper bound", _CONV_PAGE),
    Formula(
        _CONV,
        "H_f",
        "convolutional.deep_bounds.functional_column_upper_bounds",
        "upper bound",
        f"{_CNN}, Theorem 6, sharpened",
    ),
    Formula(_CONV, "H_f", "convolutional.deep_bounds.hidden_units_upper_bound", "upper bound", f"{_CNN}, Corollary 12"),
    Formula(_CONV, "H_f", "convolutional.deep_columns.functional_upper_bound", "conjectured bound", _CONV_PAGE),
    Formula(_CONV, "H_L", "convolutional.deep_bounds.loss_upper_bound", "upper bound", f"{_CNN}, Section 6, sharpened"),
    Formula(_CONV, "H_L", "convolutional.deep_bounds.loss_column_upper_bounds", "upper bound", _CONV_PAGE),
    Formula(_CONV, "H_L", "convolutional.deep_columns.loss_upper_bound", "conjectured bound", _CONV_PAGE),
    Formula(_CONV, "H_L", "convolutional.deep_columns.loss_kernel_upper_bound", "upper bound", _CONV_PAGE),
    *(
        Formula(_LOCAL, hessian, "locally_connected.locally_connected_ranks", "theorem", f"{_CNN}, Theorem 9, Fact 13")
        for hessian in ("H_o", "H_f", "H_L")
    ),
    *(
        Formula(
            _SHARED_FILTERS,
            hessian,
            "locally_connected.shared_weights_ranks",
            "theorem",
            f"{_CNN}, Theorem 10, Fact 14",
        )
        for hessian in ("H_o", "H_f", "H_L")
    ),
    Formula(_LOW, "H_o", "locally_connected.outer_product_rank", "theorem", _CONV_PAGE),
    Formula(_LOW, "H_L", "locally_connected.loss_rank", "theorem", _CONV_PAGE),
    Formula(_LOW_MANY, "H_o", "locally_connected.outer_product_rank", "upper bound", _CONV_PAGE),
    Formula(_LOW_MANY, "H_L", "locally_connected.loss_rank", "upper bound", _CONV_PAGE),
    Formula(_HEAD, "H_o", "attention.single_head.outer_product_rank", "theorem", _ATTENTION_PAGE),
    Formula(_HEAD, "H_f", "attention.single_head.functional_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_HEAD, "H_L", "attention.single_head.loss_rank", "theorem", _ATTENTION_PAGE),
    Formula(_LAST, "H_o", "attention.last_token.outer_product_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_LAST, "H_f", "attention.last_token.functional_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_LAST, "H_L", "attention.last_token.loss_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_CAUSAL, "H_o", "attention.causal.outer_product_rank_bound", "upper bound", _ATTENTION_PAGE),
    Formula(_CAUSAL, "H_f", "attention.causal.functional_rank_bound", "upper bound", _ATTENTION_PAGE),
    Formula(_CAUSAL, "H_L", "attention.causal.loss_rank_bound", "conjecture", _ATTENTION_PAGE),
    Formula(_HEADS, "H_o", "attention.heads.outer_product_upper_bound", "upper bound", _ATTENTION_PAGE),
    Formula(_HEADS, "H_f", "attention.heads.functional_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_HEADS, "H_L", "attention.heads.loss_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_HEADS, "H_L", "attention.heads.loss_upper_bound", "upper bound", _ATTENTION_PAGE),
    *(
        Formula(_BLOCK_1, hessian, "residual.single_layer_block_ranks", "theorem", _ATTENTION_PAGE)
        for hessian in ("H_o", "H_f", "H_L")
    ),
    Formula(_BLOCK_2, "H_o", "residual.two_layer_block_ranks", "theorem", _ATTENTION_PAGE),
    Formula(_BLOCK_2, "H_f", "residual.two_layer_block_ranks", "conjecture", _ATTENTION_PAGE),
    Formula(_BLOCK_2, "H_L", "residual.two_layer_block_ranks", "conjecture", _ATTENTION_PAGE),
)


def find_formulas(network: str = "", hessian: Hessian | None = None, kind: Kind | None = None) -> list[Formula]:
    """Search the index of rank formulas.

    Args:
        network: Words that the description of the network must contain, in any order and case. Defaults to any.
        hessian: "H_o", "H_f" or "H_L". Defaults to all.
        kind: "theorem", "upper bound", "conjecture" or "conjectured bound". Defaults to all.

    Returns:
        The matching rows of ``INDEX``.

    Example:
        >>> [formula.function for formula in find_formulas("one linear convolution", "H_L")]
        ['convolutional.one_layer.loss_rank', 'convolutional.one_layer.biased_loss_rank']
    """
    words = network.lower().split()
    return [
        formula
        for formula in INDEX
        if all(word in formula.network.lower() for word in words)
        and hessian in (None, formula.hessian)
        and kind in (None, formula.kind)
    ]
