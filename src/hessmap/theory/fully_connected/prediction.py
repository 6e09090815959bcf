"""The rank rule of fully connected networks: which formula applies, and whether it is proved."""

from __future__ import annotations

from itertools import compress
from typing import Any

from hessmap.networks import FullyConnected, is_homogeneous
from hessmap.records import RankPrediction, RankValue
from hessmap.theory.data_ranks import RankInputs, RankQuestion, Widths, checked_widths, data_ranks
from hessmap.theory.fully_connected import activations, linear
from hessmap.theory.prediction import Claims, Conjecture, ManySamples, rank_prediction, rank_rule

_PAPER = "Singh, Bachmann & Hofmann 2021"
_PROOF = "proof in research/docs/conjectures.md"
_REFERENCES = (
    f"{_PAPER}, Corollary 4, for products of weights of maximal rank (A1 alone fails: 2-3-2-3-2)",
    f"{_PAPER}, Corollary 6, an equality, {_PROOF}",
    f"{_PAPER}, Fact 7, corrected for low residual rank (6-5-4, residual rank 1: 33, printed 48), {_PROOF}",
)
_BIAS_OUTER = f"{_PAPER}, Theorem 12, with the centred input rank (3-4-2, two samples: 4, printed 6), {_PROOF}"
_SOME_BIAS_OUTER = f"only the last bias counts, {_PROOF}"
_NO_MEAN = f"residuals of zero mean see no bias, {_PROOF}"
_LAST_BIAS = f"the last bias has no second derivative: as without bias, {_PROOF}"
_ONE_LAYER = "one layer has no second derivative"
_CARRIED = f"as weights of a unit that is always one, {_PROOF}"
_KERNEL = f"the explicit kernel of single layers, {_PROOF}"
_ALL_BIASES = (
    Conjecture(f"{_PAPER}, S7.3, corrected for bottlenecks (2-1-3-3: 16, printed 12); study fcn/conjectures", 10_800),
    Conjecture(f"{_PAPER}, Fact 13, corrected for bottlenecks (5-1-3: 12, printed 10); study fcn/conjectures", 10_800),
)
_SOME_BIASES = Conjecture("a bias in some layers, not in print; study fcn/bias-in-some-layers", 1_800)
_RESCALING = f"{_PAPER}, Fact 11, from the rescaling symmetry"
_REACHABLE = f"{_PAPER}, Fact 11, its first terms: parameters that inputs and loss can reach"
_UNITWISE = f"{_PAPER}, S8.2, unit by unit"
_MANY = "one hidden layer on many samples, proof in research/docs/fully-connected.md"
_MANY_SAMPLES = (
    "many samples of inputs with a density; at a critical point H_L has rank {critical:,}; kind='numerical' gives the"
    " size of the bulk"
)


@rank_rule.register
def fully_connected_ranks(network: FullyConnected, question: RankQuestion) -> RankPrediction:
    """Linear networks: exact, with bias in part conjectured. One hidden layer of ReLUs: exact for many samples. Others:
    the linear formula as numerical rank, or bounds.

    Assumptions: those of ``linear`` and ``activations.one_hidden_ranks``; the prediction names the kind of each claim,
    the integers it was made from, and which of them are generic values.

    >>> net = FullyConnected((4, 5, 2), activation="relu")
    >>> fully_connected_ranks(net, RankQuestion()).outer_product
    RankValue(value=25, kind='exact', reference='one hidden layer on many samples, proof in research/docs..')
    >>> fully_connected_ranks(net, RankQuestion(kind="numerical")).outer_product.value
    8
    >>> bounds = fully_connected_ranks(net, RankQuestion(kind="upper_bound"))
    >>> bounds.outer_product.value, bounds.functional.value, bounds.loss.value
    (25, 20, 30)
    >>> fully_connected_ranks(FullyConnected((4, 5, 2), bias=(True, False)), RankQuestion()).loss
    RankValue(value=26, kind='conjecture', reference='a bias in some layers, not in print; ...
    """
    widths = checked_widths(network.widths)
    data = data_ranks(network.input_dim, network.output_dim, network.has_bias, question)
    return rank_prediction(
        network,
        question,
        data,
        lambda: linear_claims(widths, network.biases, data),
        lambda: _non_linear_claims(network, widths, data),
        many_samples=_many_samples_claims(network, widths, data, question),
    )


def linear_claims(widths: Widths, biases: tuple[bool, ...], data: RankInputs) -> Claims:
    """What is claimed about the dense linear network with a bias in none, some or all of its layers."""
    biased = list(compress(range(1, len(widths)), biases))
    rank = data.centred_input_rank if data.input_rank is None else data.input_rank
    known: dict[str, Any] = {
        "biased_layers": biased,
        "centred_input_rank": data.centred_input_rank,
        "effective_output_dim": data.effective_output_dim,
    }
    ranks = linear.hessian_ranks(
        widths,
        rank,
        data.residual_rank,
        uncentred_residual_rank=data.uncentred_residual_rank if any(biases) and not all(biases) else None,
        mean_residual_is_zero=data.mean_residual_is_zero,
        **known,
    )
    if not biased:
        exact = [[RankValue(rank, "exact", text)] for rank, text in zip(ranks, _REFERENCES, strict=True)]
        return exact[0], exact[1], exact[2]
    outer = RankValue(ranks.outer_product, "exact", _BIAS_OUTER if all(biases) else _SOME_BIAS_OUTER)
    functional = [_functional_claim(ranks.functional, biases, data)]
    if functional[0].kind == "conjecture":
        carried = linear.functional_upper_bound(widths, rank, data.residual_rank, **known)
        functional.append(RankValue(carried, "upper_bound", _CARRIED))
    loss = [_loss_claim(ranks.loss, biases, data)]
    if loss[0].kind == "conjecture":
        loss.append(RankValue(linear.loss_upper_bound(widths, rank, **known), "upper_bound", _KERNEL))
    return [outer], functional, loss


def _functional_claim(rank: int, biases: tuple[bool, ...], data: RankInputs) -> RankValue:
    if len(biases) == 1:
        return RankValue(rank, "exact", _ONE_LAYER)
    if data.mean_residual_is_zero or data.residual_rank == 0:
        return RankValue(rank, "exact", _NO_MEAN)
    if not any(biases[:-1]):
        return RankValue(rank, "exact", _LAST_BIAS)
    return (_ALL_BIASES[0] if all(biases) else _SOME_BIASES).value(rank)


def _loss_claim(rank: int, biases: tuple[bool, ...], data: RankInputs) -> RankValue:
    if len(biases) == 1 or data.residual_rank == 0:
        return RankValue(rank, "exact", _ONE_LAYER if len(biases) == 1 else _NO_MEAN)
    if data.mean_residual_is_zero and biases[-1]:
        return RankValue(rank, "exact", _NO_MEAN)
    return (_ALL_BIASES[1] if all(biases) else _SOME_BIASES).value(rank)


def _non_linear_claims(network: FullyConnected, widths: Widths, data: RankInputs) -> Claims:
    """Upper bounds; with a bias in the first layer it is the centred rank of the inputs that reaches its weights."""
    first, *_ = network.biases
    rank = data.centred_input_rank if first or data.input_rank is None else data.input_rank
    outputs, biases = data.effective_output_dim, network.biases
    reachable = activations.reachable_parameters_upper_bound(widths, rank, biases, effective_output_dim=outputs)
    outer, functional, loss = ([RankValue(reachable, "upper_bound", _REACHABLE)] for _ in range(3))
    if is_homogeneous(network.activation):
        fewer = activations.rescaling_upper_bound(widths, rank, biases, effective_output_dim=outputs)
        outer.append(RankValue(fewer, "upper_bound", _RESCALING))
        if network.num_layers == 2:
            unitwise = 2 * widths[1] * min(rank + first, outputs)
            functional.append(RankValue(unitwise, "upper_bound", _UNITWISE))
    return outer, functional, loss


def _many_samples_claims(
    network: FullyConnected, widths: Widths, data: RankInputs, question: RankQuestion
) -> ManySamples | None:
    """The exact ranks of one hidden layer of ReLUs, where the question leaves samples and residual general."""
    is_general = question.num_samples is None and question.residual_rank is None and not question.mean_residual_is_zero
    is_covered = is_homogeneous(network.activation) and not network.is_linear and network.num_layers == 2
    if not (is_general and is_covered and data.effective_output_dim):
        return None
    first, _ = network.biases
    rank = data.centred_input_rank if first or data.input_rank is None else data.input_rank
    if rank + first < 2 and (rank < 1 or widths[1] > 1):
        return None
    known: dict[str, Any] = {"effective_output_dim": data.effective_output_dim}
    ranks = activations.one_hidden_ranks(widths, rank, network.biases, **known)
    outer, functional, loss = ([RankValue(value, "exact", _MANY)] for value in ranks)
    critical = activations.one_hidden_ranks(widths, rank, network.biases, **known, num_stationary_units=widths[1]).loss
    return ManySamples((outer, functional, loss), _MANY_SAMPLES.format(critical=critical))
