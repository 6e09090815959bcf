"""Does the rank of the loss Hessian at the initialisation predict the test error better than the parameter count?

One convolution over the flattened image and one dense layer, for every pair of a filter size and a number of filters.
The figure names neither data nor training; here every network is trained alike with cross-entropy, twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import require
from hessmap.studies import Case, Check, Cloud, Column, Finding, Row, Study, View, grid
from hessmap.studies.hessian_ranks import data_ranks

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data
    from hessmap.networks import Convolutional

Floats = NDArray[np.float64]
DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
ACTIVATIONS = ("identity", "relu")
_FILTERS = (1, 2, 3, 4, 5, 6, 8, 10)
_INIT = "glorot"
_SEEDS = range(2)
_TRAINING: dict[str, Any] = {"epochs": 60, "batch_size": 20, "learning_rate": 0.05, "record_every": 60}
_NUM_RESAMPLES, _COVERAGE = 4000, 0.95
_MATERIAL = 0.01  # a lead below it is none, however certain
_SAME = 0.99  # two quantities that correlate by more than this cannot be told apart by what they correlate with
_QUANTITIES = {"rank": "rank at the initialisation", "num_parameters": "parameters"}


def cases(data: str) -> tuple[Case, ...]:
    kernels = (2, 3, 4, 5, 6, 8, 10, 12) if data == "digits" else (2, 3, 4, 6, 8, 12, 16, 20)
    return grid(activation=ACTIVATIONS, kernel=kernels, filters=_FILTERS)


def measure(case: Case) -> dict[str, Any]:
    from hessmap.curvature import Problem, loss_hessian
    from hessmap.measurement import numerical_rank
    from hessmap.studies.trained_networks import trained_network
    from hessmap.theory import predict_ranks

    training, test = training_and_test(case["data"])
    network = _network(case, training.inputs.shape[1])
    problem = Problem(network.build(seed=_SEEDS[0], init=_INIT), "cross_entropy", *training)
    rank = numerical_rank(loss_hessian(problem))
    found = [trained_network(network, training, seed=seed, init=_INIT, **_TRAINING) for seed in _SEEDS]
    errors = [_error(model, test) for model, _ in found]
    record: dict[str, Any] = {
        "num_parameters": network.num_parameters,
        "measured": rank,
        "rank": rank.value,
        "test_error": sum(errors) / len(errors),
        "training_error": sum(_error(model, training) for model, _ in found) / len(found),
        "spread": max(errors) - min(errors),
    }
    if network.is_linear:
        known, _ = data_ranks(problem, network.has_bias)
        record["predicted"] = predict_ranks(network, "cross_entropy", **known).loss
    return record


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


def _error(model: nn.Module, data: Data) -> float:
    """The share of wrong labels."""
    import torch

    with torch.no_grad():
        return float((model(data.inputs).argmax(1) != data.targets).double().mean())


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """Section 4: the rank at initialisation has a higher correlation with the test error than the parameter count."""
    for data in DATA:
        for activation in ACTIVATIONS:
            swept = [row for row in rows if row["data"] == data and row["activation"] == activation]
            if len(swept) >= 3:
                yield from _correlations(swept, f"{activation} on {data}")


def _correlations(rows: Sequence[Row], where: str) -> Iterator[Finding]:
    """The paper does not say which error and which coefficient: test error, and what it is above the training error.

    The intervals come from other choices of networks, not from other trainings, of which there are two: how far these
    differ is said beside them.
    """
    ranks, counts = ([row.number(name) for row in rows] for name in _QUANTITIES)
    errors = [row["test_error"] for row in rows]
    between = float(np.corrcoef(ranks, counts)[0, 1])
    is_one_quantity = between > _SAME
    spread = float(np.mean([row["spread"] for row in rows]))
    evidence = (
        f"rank and parameters correlate by {between:.3f} with each other; the two trainings of a network differ by "
        f"{spread:.1%}, the {len(rows)} networks by {float(np.std(errors)):.1%}"
    )
    gaps = [row["test_error"] - row["training_error"] for row in rows]
    for target, by_order, name in (
        (errors, False, "test error, Pearson"),
        (errors, True, "test error, Spearman"),
        (gaps, False, "generalisation gap, Pearson"),
    ):
        found = compared_correlations(ranks, counts, target, by_order=by_order)
        detail = f"rank {found.first}, parameters {found.second}; the rank leads by {found.lead}; {evidence}"
        claim = f"{where}: the rank correlates more than the parameters, by over {_MATERIAL} ({name})"
        yield Finding(claim, None if is_one_quantity else _outcome(found.lead), detail)


def _outcome(lead: Interval) -> bool | None:
    """Decided where the interval lies on one side: above what is material, or below zero."""
    if lead.low > _MATERIAL:
        return True
    return False if lead.high < 0 else None


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
    first: Sequence[float], second: Sequence[float], target: Sequence[float], *, by_order: bool = False, seed: int = 0
) -> Comparison:
    """Which of two quantities correlates more with a target, over the same resamples of the cases.

    Pearson's coefficient, or with ``by_order`` Spearman's: Pearson's of the places in order, which any monotone curve
    brings to 1. Intervals hold the middle 95 % of 4,000 resamples, drawn with replacement from ``seed``.

    >>> found = compared_correlations([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], [-1, -2, -3, -4, -5])
    >>> str(found.first), round(found.second.value, 2)
    ('-1.00 [-1.00, -1.00]', -0.8)
    >>> round(found.lead.value, 2)
    0.2
    """
    from scipy.stats import rankdata

    given = np.array([first, second, target], dtype=np.float64)
    num_cases = given.shape[1]
    require(num_cases >= 3, "a correlation needs at least three cases", f"got {num_cases}")
    places = np.random.default_rng(seed).integers(num_cases, size=(_NUM_RESAMPLES, num_cases))
    places = np.concatenate([np.arange(num_cases)[None], places])  # the cases themselves first
    resampled = given[:, places]
    values = rankdata(resampled, axis=-1) if by_order else resampled
    one, other = (_coefficients(quantity, values[2]) for quantity in values[:2])
    return Comparison(_interval(one), _interval(other), _interval(np.abs(one) - np.abs(other)))


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


def _clouds(activation: str) -> tuple[Cloud, ...]:
    return tuple(
        Cloud(
            title=f"{activation}: {label}",
            where={"activation": activation},
            facet="data",
            x=name,
            y="test_error",
            colour="kernel",
            x_label=label,
            y_label="test error",
            x_scale="log",
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
    findings=findings,
    seconds=lambda case: 1.6 if case["data"] == "digits" else 5.0,
    view=View(
        figures=tuple(cloud for activation in ACTIVATIONS for cloud in _clouds(activation)),
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
        ),
    ),
)
