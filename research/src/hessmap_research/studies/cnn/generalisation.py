"""Does the rank of the loss Hessian at the initialisation predict the test error better than the parameter count?

One convolution over the flattened image and one dense layer: half of the pairs of eight filter sizes and eight
numbers of filters, as on the black fields of a chessboard. The largest filters leave a few positions, so that the
networks differ in what they can compute and not in their size alone. The figure names neither data nor training; here
every network is trained alike with cross-entropy, from five seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Cloud, Column, View
from hessmap_research.studies.hessian_ranks import data_ranks

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data
    from hessmap.networks import Convolutional
    from hessmap.problem.problem import Problem
    from hessmap.records import RankValue


Floats = NDArray[np.float64]
_NUM_RESAMPLES, _COVERAGE = 4000, 0.95


class Interval(NamedTuple):
    """An estimate, and where 95 % of its resamples lie."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


class Comparison(NamedTuple):
    """How two quantities correlate with one target, and by how much the first is ahead in magnitude."""

    first: Interval
    second: Interval
    lead: Interval


def compared_correlations(
    first: Sequence[float], second: Sequence[float], target: ArrayLike, *, by_order: bool = False, seed: int = 0
) -> Comparison:
    """Which of two quantities correlates more with a target, over the same resamples of the cases.

    ``target`` has one value for each case, or a row of them, one for each seed; then the mean of the row counts. A
    resample draws cases with replacement, then seeds for each case that it drew. Pearson's coefficient, or with
    ``by_order`` Spearman's: Pearson's of the places in order, which any monotone curve brings to 1. Intervals hold the
    middle 95 % of 4,000 resamples, drawn from ``seed``.

    >>> found = compared_correlations([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], [-1, -2, -3, -4, -5])
    >>> str(found.first), round(found.second.value, 2)
    ('-1.00 [-1.00, -1.00]', -0.8)
    >>> round(found.lead.value, 2)
    0.2
    """
    from scipy.stats import rankdata

    targets = np.asarray(target, dtype=np.float64).reshape(len(first), -1)
    num_cases, num_seeds = targets.shape
    require(num_cases >= 3, "a correlation needs at least three cases", f"got {num_cases}")
    generator = np.random.default_rng(seed)
    places = generator.integers(num_cases, size=(_NUM_RESAMPLES, num_cases))
    seeds = generator.integers(num_seeds, size=(_NUM_RESAMPLES, num_cases, num_seeds))
    drawn = targets[places[..., None], seeds].mean(-1)
    places = np.concatenate([np.arange(num_cases)[None], places])  # the cases themselves first
    quantities = np.array([first, second], dtype=np.float64)[:, places]
    values = np.concatenate([quantities, np.concatenate([targets.mean(-1)[None], drawn])[None]])
    if by_order:
        values = rankdata(values, axis=-1)
    one, other = (_coefficients(quantity, values[2]) for quantity in values[:2])
    return Comparison(_interval(one), _interval(other), _interval(np.abs(one) - np.abs(other)))


def reliability(targets: ArrayLike) -> float:
    """The share of the variance between cases that is not the noise of their seeds: 1 - var(seeds) / S / var(means).

    ``targets`` has a row for each case and a column for each of the S seeds. 1 is a difference between the cases that
    no other seeds would change; 0 or less is none that these seeds can tell.

    >>> reliability([[1, 1], [2, 2], [3, 3]])
    1.0
    >>> reliability([[0, 2], [2, 0], [0, 2]])
    -inf
    """
    values = np.asarray(targets, dtype=np.float64)
    between, within = values.mean(1).var(ddof=1), values.var(axis=1, ddof=1).mean() / values.shape[1]
    return float(1 - within / between) if between > 0 else float("-inf")


def _coefficients(quantity: Floats, target: Floats) -> Floats:
    """Pearson's coefficient over the last axis; 0 where a resample holds only one value."""
    one, other = (values - values.mean(axis=-1, keepdims=True) for values in (quantity, target))
    spread = np.sqrt((one**2).sum(-1) * (other**2).sum(-1))
    coefficients: Floats = np.divide((one * other).sum(-1), spread, out=np.zeros(spread.shape), where=spread > 0)
    return coefficients


def _interval(values: Floats) -> Interval:
    """The first value, and the middle 95 % of the others."""
    low, high = np.quantile(values[1:], [(1 - _COVERAGE) / 2, (1 + _COVERAGE) / 2])
    return Interval(float(values[0]), float(low), float(high))


DATA = ("digits", "mnist", "cifar10", "fashion_mnist")
ACTIVATIONS = ("identity", "relu")
_FILTERS = (1, 2, 3, 4, 5, 6, 8, 10)
_KERNELS = {"digits": (2, 4, 6, 8, 10, 12, 14, 15)}
_OTHER_KERNELS = (2, 4, 6, 8, 12, 16, 20, 24)
_INIT = "glorot"
_SEEDS = range(5)
_TRAINING: dict[str, Any] = {"epochs": 60, "batch_size": 50, "learning_rate": 0.05, "record_every": 60}
_MATERIAL = 0.01  # a lead below it is none, however certain
_RELIABLE = 0.8  # less, and the seeds explain too much of what the networks differ by
_QUANTITIES = {"rank": "rank at the initialisation", "num_parameters": "parameters"}
_TARGETS = {
    "test error": ("test_errors", None),
    "test loss": ("test_losses", None),
    "test less training error": ("test_errors", "training_errors"),
    "test less training loss": ("test_losses", "training_losses"),
}


def cases(data: str) -> tuple[Case, ...]:
    kernels = _KERNELS.get(data, _OTHER_KERNELS)
    return tuple(
        {"activation": activation, "kernel": kernel, "filters": filters}
        for activation in ACTIVATIONS
        for row, kernel in enumerate(kernels)
        for column, filters in enumerate(_FILTERS)
        if (row + column) % 2 == 0
    )


def measure(case: Case) -> dict[str, Any]:
    from hessmap.hessians.operators import loss_hessian
    from hessmap.measurement import numerical_rank
    from hessmap_research.studies.trained_networks import trained_network

    training, test = training_and_test(case["data"])
    network = _network(case, training.inputs.shape[1])
    rank = numerical_rank(loss_hessian(_initial_problem(network, training)))
    models = [trained_network(network, training, seed=seed, init=_INIT, **_TRAINING).model for seed in _SEEDS]
    test_errors, test_losses = zip(*(_error_and_loss(model, test) for model in models), strict=True)
    training_errors, training_losses = zip(*(_error_and_loss(model, training) for model in models), strict=True)
    record: dict[str, Any] = {
        "num_parameters": network.num_parameters,
        "measured": rank,
        "rank": rank.value,
        "test_errors": np.array(test_errors),
        "test_losses": np.array(test_losses),
        "training_errors": np.array(training_errors),
        "training_losses": np.array(training_losses),
        "test_error": float(np.mean(test_errors)),
        "test_loss": float(np.mean(test_losses)),
        "training_error": float(np.mean(training_errors)),
    }
    if network.is_linear:
        record["predicted"] = predicted_rank(case)
    return record


def _initial_problem(network: Convolutional, training: Data) -> Problem:
    """The network at its initialisation, on its training samples."""
    from hessmap.problem.problem import Problem

    return Problem(network.build(seed=_SEEDS[0], init=_INIT), "cross_entropy", *training)


def predicted_rank(case: Case) -> RankValue:
    """The rank of H_L of a linear network that theory gives for the ranks of these data."""
    from hessmap.theory import predict_ranks

    training, _ = training_and_test(case["data"])
    network = _network(case, training.inputs.shape[1])
    known, _ = data_ranks(_initial_problem(network, training), network.has_bias)
    return predict_ranks(network, "cross_entropy", **known).loss


def training_and_test(data: str) -> tuple[Data, Data]:
    """400 digits of 4x4 to train, the other 1,397 to test; of other sets 1,000 of 5x5, and 4,000 of their test part.

    Pixels are standardised by the training samples.
    """
    from hessmap.datasets import Data, by_name, standardise

    if data == "digits":
        whole = by_name(data, side=4, seed=0)
        training, test = Data(whole.inputs[:400], whole.targets[:400]), Data(whole.inputs[400:], whole.targets[400:])
    else:
        training, test = by_name(data, num_samples=1000, side=5), by_name(data, split="test", num_samples=4000, side=5)
    return (
        Data(standardise(training.inputs), training.targets),
        Data(standardise(test.inputs, training.inputs), test.targets),
    )


def _network(case: Case, input_length: int) -> Convolutional:
    from hessmap.networks import Convolutional

    channels, kernels = (1, case["filters"]), (case["kernel"],)
    return Convolutional(input_length, channels, kernels, outputs=10, activation=case["activation"])


def _error_and_loss(model: nn.Module, data: Data) -> tuple[float, float]:
    """The share of wrong labels, and the mean cross-entropy."""
    import torch
    from torch.nn.functional import cross_entropy

    with torch.no_grad():
        outputs = model(data.inputs)
        error = (outputs.argmax(1) != data.targets).double().mean()
        return float(error), float(cross_entropy(outputs, data.targets))


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Section 4: the rank at initialisation has a higher correlation with the test error than the parameter count."""
    for data in DATA:
        for activation in ACTIVATIONS:
            swept = [row for row in rows if row["data"] == data and row["activation"] == activation]
            if len(swept) >= 3:
                yield from _correlations(swept, activation, data)


def _correlations(rows: Sequence[Row], activation: str, data: str) -> Iterator[Claim]:
    """The paper does not say which error: the test error, the test loss, and what they are above those of training."""
    ranks, counts = ([row.number(name) for row in rows] for name in _QUANTITIES)
    between = float(np.corrcoef(ranks, counts)[0, 1])
    for name, (tested, trained) in _TARGETS.items():
        target = np.array([row[tested] - (row[trained] if trained else 0.0) for row in rows])
        found = compared_correlations(ranks, counts, target)
        by_order = compared_correlations(ranks, counts, target, by_order=True)
        share = reliability(target)
        outcome, holds = _outcome(found.lead, share)
        detail = (
            f"{outcome}: rank {found.first}, parameters {found.second}, lead {found.lead}, of Spearman's coefficients "
            f"{by_order.lead}; {len(rows)} networks, of whose spread {share:.0%} is no noise of the seeds; rank and "
            f"parameters correlate by {between:.4f}"
        )
        yield Claim(
            claim_id("rank-correlates-more", activation, data, name),
            f"{activation} on {data}: the rank correlates more than the parameters, by over {_MATERIAL} ({name})",
            holds,
            detail,
        )


def _outcome(lead: Interval, share: float) -> tuple[str, bool | None]:
    """Decided where the interval of the lead lies on one side of what is material, and the networks differ at all."""
    if share < _RELIABLE:
        return "no spread", None
    if lead.low > _MATERIAL:
        return "higher", True
    return ("not higher", False) if lead.high < _MATERIAL else ("not significant", None)


def _clouds(activation: str) -> tuple[Cloud, ...]:
    return tuple(
        Cloud(
            title=f"{'linear' if activation == 'identity' else 'ReLU'}: {label}",
            where={"activation": activation},
            facet="data",
            x=name,
            y="test_error",
            colour="kernel",
            x_label=label,
            y_label="test error",
            x_scale="log",
            y_limits=(0.0, None),
        )
        for name, label in _QUANTITIES.items()
    )


STUDY = Study(
    name="cnn/generalisation",
    question="Does the rank at the initialisation predict the test error better than the number of parameters?",
    reference="Singh, Hofmann & Schoelkopf 2023, Section 4 and Figure 15",
    cases=cases,
    measure=measure,
    data=DATA,
    checks=(Check("measured", "predicted"),),
    claims=claims,
    version=2,
    seconds=lambda case: 2.0 if case["data"] == "digits" else 5.0,
    families={
        "rank-correlates-more-identity": "Linear: the rank correlates more than the parameters, by over 0.01",
        "rank-correlates-more-relu": "ReLU: the rank correlates more than the parameters, by over 0.01",
    },
    view=View(
        figures=tuple(cloud for activation in ACTIVATIONS for cloud in _clouds(activation)),
        panels_in_a_row=len(DATA),
        table=(
            "data",
            "activation",
            "kernel",
            "filters",
            Column("num_parameters", "p"),
            Column("rank", "rank H_L"),
            Column("predicted", "predicted"),
            Column("training_error", "training error", ".1%"),
            Column("test_error", "test error", ".1%"),
            Column("test_loss", "test loss", ".3f"),
        ),
    ),
    answered=Answer(
        "It depends: for the test error of linear networks on the digits yes, for the rest of linear networks it"
        " is not decided; under ReLU no, there rank and parameters correlate by 0.9999.",
        num_claims=32,
        cases="agrees",
        fails=(
            "rank-correlates-more-relu-digits-test-error",
            "rank-correlates-more-relu-digits-test-loss",
            "rank-correlates-more-relu-digits-test-less-training-error",
            "rank-correlates-more-relu-digits-test-less-training-loss",
            "rank-correlates-more-relu-mnist-test-error",
            "rank-correlates-more-relu-mnist-test-loss",
            "rank-correlates-more-relu-mnist-test-less-training-error",
            "rank-correlates-more-relu-mnist-test-less-training-loss",
            "rank-correlates-more-relu-cifar10-test-error",
            "rank-correlates-more-relu-cifar10-test-loss",
            "rank-correlates-more-relu-cifar10-test-less-training-error",
            "rank-correlates-more-relu-cifar10-test-less-training-loss",
            "rank-correlates-more-relu-fashion-mnist-test-error",
            "rank-correlates-more-relu-fashion-mnist-test-loss",
            "rank-correlates-more-relu-fashion-mnist-test-less-training-error",
            "rank-correlates-more-relu-fashion-mnist-test-less-training-loss",
        ),
        inconclusive=(
            "rank-correlates-more-identity-digits-test-loss",
            "rank-correlates-more-identity-digits-test-less-training-error",
            "rank-correlates-more-identity-digits-test-less-training-loss",
            "rank-correlates-more-identity-mnist-test-error",
            "rank-correlates-more-identity-mnist-test-loss",
            "rank-correlates-more-identity-mnist-test-less-training-error",
            "rank-correlates-more-identity-mnist-test-less-training-loss",
            "rank-correlates-more-identity-cifar10-test-error",
            "rank-correlates-more-identity-cifar10-test-loss",
            "rank-correlates-more-identity-cifar10-test-less-training-error",
            "rank-correlates-more-identity-cifar10-test-less-training-loss",
            "rank-correlates-more-identity-fashion-mnist-test-error",
            "rank-correlates-more-identity-fashion-mnist-test-loss",
            "rank-correlates-more-identity-fashion-mnist-test-less-training-error",
            "rank-correlates-more-identity-fashion-mnist-test-less-training-loss",
        ),
    ),
)
