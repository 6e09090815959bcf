"""Effective parameters, counted side by side: rank, sum of h / (h + epsilon), and nuclear over spectral norm.

h are the magnitudes of the eigenvalues of H_L and epsilon is taken relative to the largest. The networks grow in width
and in depth, with and without bias, at their initialisation and after training with cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from operator import eq, ge, lt
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Series, View
from hessmap_research.studies.hessian_ranks import data_ranks

if TYPE_CHECKING:
    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem

DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
ACTIVATIONS = ("identity", "tanh", "relu")
EPSILONS = tuple(10.0 ** (-half / 2) for half in range(25))
_LABELS = {
    "rank": "rank",
    "effective_1e-4": r"$\epsilon$ = 1e-4",
    "effective_1e-2": r"$\epsilon$ = 1e-2",
    "nuclear_ratio": "nuclear / spectral",
}
_SIDE, _NUM_SAMPLES = 4, 300
_TRAINING: dict[str, Any] = {"epochs": 200, "batch_size": 30, "learning_rate": 0.02}


def cases() -> tuple[Case, ...]:
    """16-M-M-10 for growing M, 16-15-..-15-10 for growing depth: no layer is narrower than the output."""
    shapes = [(width, 2) for width in (10, 12, 15, 20, 25)] + [(15, num_hidden) for num_hidden in (1, 3, 4, 5)]
    settings = grid(activation=ACTIVATIONS, bias=[False, True], state=["initial", "trained"], seed=[0])
    return tuple(
        {"width": width, "num_hidden": num_hidden, "widths": (16, *[width] * num_hidden, 10), **setting}
        for setting in settings
        for width, num_hidden in shapes
    )


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.hessians.operators import loss_hessian
    from hessmap.measurement import effective_dimension, numerical_rank, spectrum

    network, problem = _network_and_problem(case)
    found = spectrum(loss_hessian(problem))
    rank, formula = numerical_rank(found), _linear_formula(network, problem)
    coarse = effective_dimension(found, 1e-2 * found.norm)
    values = {
        "rank": rank.value,
        "effective_1e-4": effective_dimension(found, 1e-4 * found.norm).value,
        "effective_1e-2": coarse.value,
        "nuclear_ratio": coarse.nuclear_ratio,
    }
    return {
        "num_parameters": network.num_parameters,
        "linear_formula": formula,
        **({"exact": formula} if network.is_linear else {}),
        "measured": rank,
        "epsilon": np.array(EPSILONS),
        "effective": np.array([effective_dimension(found, epsilon * found.norm).value for epsilon in EPSILONS]),
        "num_negative": coarse.num_negative,
        "count": values,
        "fraction": {name: value / network.num_parameters for name, value in values.items()},
        "risk": problem.risk(),
        "gradient_norm": float(problem.gradient().norm()),
    }


def _network_and_problem(case: Case) -> tuple[FullyConnected, Problem]:
    from hessmap.datasets import by_name
    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem
    from hessmap_research.studies.trained_networks import trained_network

    network = FullyConnected(case["widths"], bias=case["bias"], activation=case["activation"])
    data = by_name(case["data"], num_samples=_NUM_SAMPLES, side=_SIDE, standardise=True)
    if case["state"] == "trained":
        model, _ = trained_network(network, data, seed=case["seed"], **_TRAINING)
    else:
        model = network.build(seed=case["seed"])
    return network, Problem(model, "cross_entropy", *data)


def _linear_formula(network: FullyConnected, problem: Problem) -> int:
    """The rank of H_L that the linear network of these widths has on these data."""
    from hessmap.theory import predict_ranks

    known, _ = data_ranks(problem, network.has_bias)
    return int(predict_ranks(network, problem.loss.name, **known).loss)


def _neighbours(
    rows: Sequence[Row], along: Sequence[str], ends_only: bool = False, **fields: str
) -> list[tuple[Row, Row]]:
    """Pairs of cases that differ in one of the fields ``along`` and agree in all others; those with these ``fields``.

    Compared are neighbours in the order of the field, or with ``ends_only`` its first and last value.
    """
    pairs: list[tuple[Row, Row]] = []
    for field in along:
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if all(row[name] == value for name, value in fields.items()):
                # The widths follow from the field that varies.
                key = tuple(value for name, value in row.case.items() if name not in (field, "widths"))
                groups.setdefault(key, []).append(row)
        for group in groups.values():
            ordered = sorted(group, key=lambda row: row[field])
            pairs += pairwise(ordered[:: len(ordered) - 1] if ends_only and len(ordered) > 1 else ordered)
    return pairs


def _claim(
    name: str, text: str, pairs: Sequence[tuple[Row, Row]], value: str, relation: Callable[[float, float], bool]
) -> Claim:
    """The claim that ``relation(after, before)`` holds for a value of every pair."""
    detail = "in {right} of {total} comparisons"
    return Claim.about(name, text, pairs, lambda pair: relation(pair[1][value], pair[0][value]), detail)


_GROWTH = ("width", "num_hidden")


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Section 8 (iii) of the paper on rank / parameters, and what becomes of it by the counts proposed in its place."""
    grown = _neighbours(rows, _GROWTH, activation="identity")
    text = "In linear networks rank / parameters falls with width and depth"
    yield _claim("linear-fraction-falls", text, grown, "fraction.rank", lt)
    biased = _neighbours(rows, ("bias",), activation="identity")
    text = "In linear networks rank / parameters is lower with bias"
    yield _claim("linear-bias-lowers", text, biased, "fraction.rank", lt)
    text = "In tanh networks rank / parameters never falls with width and depth"
    yield _claim("tanh-never-falls", text, _neighbours(rows, _GROWTH, activation="tanh"), "fraction.rank", ge)
    text = "Training leaves the rank of linear networks as it was"
    yield _claim("training-keeps-rank", text, _neighbours(rows, ("state",), activation="identity"), "count.rank", eq)
    text = "Training lowers the count at epsilon = 1e-2 of every network"
    yield _claim("training-lowers-count", text, _neighbours(rows, ("state",)), "count.effective_1e-2", lt)
    ends = _neighbours(rows, _GROWTH, ends_only=True, state="trained")
    text = "By norms, the widest and deepest trained networks have a lower fraction than the first of their kind"
    yield _claim("norms-fall", text, ends, "fraction.nuclear_ratio", lt)


_FRACTIONS = tuple(Series(label, line=f"fraction.{name}", points=f"fraction.{name}") for name, label in _LABELS.items())
_OVER_EPSILON: dict[str, Any] = {
    "x": "epsilon",
    "series": (Series("{activation}", line="effective"),),
    "split": "activation",
    "marks": (Mark("linear_formula", "linear formula", axis="y"),),
    "x_label": r"$\epsilon$ / largest eigenvalue",
    "y_label": r"sum of h / (h + $\epsilon$)",
    "x_scale": "log",
}
_FRACTION: dict[str, Any] = {"y_label": "effective / parameters", "y_scale": "log", "y_limits": (3e-4, 1.5)}
_X_LABELS = {"width": "width of both hidden layers", "num_hidden": "number of hidden layers"}


def _figures(data: str) -> Iterator[Lines]:
    """The counts of one network over epsilon; then all as fractions of the parameters, with depth and with width."""

    def fractions(activation: str, x: str, **fixed: int) -> Lines:
        where = {"data": data, "state": "trained", "bias": False, "activation": activation, **fixed}
        name = "linear" if activation == "identity" else activation
        title = f"{name}, trained, {data.replace('_', '-')}"
        return Lines(title=title, where=where, x=x, series=_FRACTIONS, x_label=_X_LABELS[x], **_FRACTION)

    for state in ("initial", "trained"):
        one = {"data": data, "state": state, "width": 15, "num_hidden": 2, "bias": False}
        yield Lines(title=f"16-15-15-10, {state}, {data.replace('_', '-')}", where=one, **_OVER_EPSILON)
    yield fractions("tanh", "num_hidden", width=15)
    for activation in ACTIVATIONS:
        yield fractions(activation, "width", num_hidden=2)


STUDY = Study(
    name="fcn/effective-parameters",
    question="How many parameters are effective, by rank, by sum of h / (h + epsilon), and by norms?",
    reference="Singh, Bachmann & Hofmann 2021, Section 8 (i) and (iii)",
    cases=cases(),
    measure=measure,
    data=DATA,
    checks=(Check("measured", "exact"),),
    claims=claims,
    seconds=lambda case: 0.3 + (case["state"] == "trained"),
    view=View(
        figures=tuple(figure for data in DATA for figure in _figures(data)),
        table=(
            *("data", "widths", "activation", "bias", "state"),
            Column("num_parameters", "p"),
            *(
                Column(f"count.{name}", label.replace("$", "").replace("\\", ""), ".0f")
                for name, label in _LABELS.items()
            ),
        ),
    ),
    answered=Answer(
        "By rank a share that falls with width, depth and bias in linear networks and never falls with width and"
        " depth in tanh networks; by the sum at epsilon = 1e-2 fewer after training in every network; by norms a"
        " lower share in the widest and deepest.",
        num_claims=6,
        cases="agrees",
    ),
)
