"""Repeated eigenvalues: of H_o below a wide output, and of H_f with one hidden linear layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from hessmap.errors import require
from hessmap.networks import FullyConnected
from hessmap.records import Part
from hessmap.theory.data_ranks import checked_count
from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import INDEX, Column, Lines, Series, View
from hessmap_research.studies.plotted_curves import four_digits

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from hessmap.datasets import Data
    from hessmap.problem.problem import Problem


class Plateaus(NamedTuple):
    """How many plateaus, and the number of equal non-zero eigenvalues in each; (0, 0) if none is implied."""

    num_plateaus: int
    multiplicity: int


class Eigenvalue(NamedTuple):
    value: float
    multiplicity: int


def outer_product_plateaus(penultimate_width: int, output_dim: int, penultimate_moment_rank: int) -> Plateaus:
    """With squared loss and K > M_{L-1}, each non-zero eigenvalue of E[h h^T] repeats K - M_{L-1} times.

    They are eigenvalues of the outer-product Hessian, and their number is the rank of E[h h^T]: h is the input of the
    last layer (with bias, h with a one appended). ``penultimate_width`` is M_{L-1} (never counting the one),
    ``penultimate_moment_rank`` that rank. Outputs orthogonal to all M_{L-1} columns of the last weight feel the last
    layer only, and there the Hessian is the identity on outputs times E[h h^T].

    Assumptions: squared loss, at least one hidden layer, any activation; the multiplicity is exact for generic
    linear and tanh networks and a lower bound for ReLU. It does not hold for cross-entropy or log-cosh, whose second
    derivative by the outputs differs from sample to sample.

    Reference: Singh, Bachmann & Hofmann 2021, S8.1 ("repeated eigenvalues"). Their Figure S2 counts q plateaus; in
    general the number is the rank of the moment.

    >>> outer_product_plateaus(penultimate_width=3, output_dim=20, penultimate_moment_rank=3)
    Plateaus(num_plateaus=3, multiplicity=17)
    """
    width = checked_count("penultimate_width", penultimate_width, at_least=1)
    outputs = checked_count("output_dim", output_dim, at_least=1)
    why = "the penultimate width, and one for a bias"
    rank = checked_count("penultimate_moment_rank", penultimate_moment_rank, at_most=width + 1, why=why)
    return Plateaus(rank, outputs - width) if outputs > width and rank else Plateaus(0, 0)


def functional_spectrum(
    singular_values: Sequence[float], input_dim: int, hidden_width: int, output_dim: int
) -> tuple[Eigenvalue, ...]:
    """One hidden linear layer: the functional Hessian has eigenvalues +sigma and -sigma, M_1 times each, and zeros.

    ``singular_values`` are those of the residual moment Omega = E[residual x^T], K x d (zeros may be left out); for s
    non-zero ones there are (d + K - 2 s) M_1 zeros. Equal eigenvalues are merged; largest first.

    Assumptions: d-M_1-K, identity activation, no bias; exact for every weight, since H_f is Omega (x) I off the
    diagonal and does not depend on the weights otherwise.

    Reference: Singh, Bachmann & Hofmann 2021, S8.2.

    By hand for 2-1-1 and Omega = (3, 4): w2 (v1 x1 + v2 x2) has the matrix [[0,0,3],[0,0,4],[3,4,0]].

    >>> [tuple(pair) for pair in functional_spectrum([5.0], input_dim=2, hidden_width=1, output_dim=1)]
    [(5.0, 1), (0.0, 1), (-5.0, 1)]
    """
    values = [float(value) for value in singular_values]
    largest = min(input_dim, output_dim)
    require(len(values) <= largest, f"there are at most {largest} singular values", f"got {len(values)}")
    require(min(values, default=0.0) >= 0.0, "singular values must be non-negative", f"got {min(values, default=0)}")
    counts: Counter[float] = Counter()
    for sigma in filter(None, values):
        counts[sigma] += hidden_width
        counts[-sigma] += hidden_width
    counts[0.0] = (input_dim + output_dim) * hidden_width - counts.total()
    return tuple(Eigenvalue(value, counts[value]) for value in sorted(counts, reverse=True) if counts[value])


_NUM_SAMPLES = 300
_MIXTURE = {"source": "mixture", "input_dim": 5}
_IMAGES = {"source": "images", "input_dim": 25}
_WITHOUT_PLATEAUS = ("cross_entropy", "log_cosh")
# Relative to the norm: above the error of the eigenvalues (1e-13 for 400 parameters), and the threshold of ranks.
_EQUAL = 1e-12


def cases(data: str) -> tuple[Case, ...]:
    """Figures S2 to S5, with more activations, depth and bias, and two losses that have no plateaus.

    The Gaussian mixtures know nothing of the data set: they go with the default one.
    """
    settings: list[Case] = []
    if data == "digits":
        settings += _outer_product(_MIXTURE, 20, (2, 3, 4)) + _functional(_MIXTURE, hidden_width=15)
    return (*settings, *_outer_product(_IMAGES, 10, (3, 4, 5)), *_functional(_IMAGES, hidden_width=10))


def _outer_product(source: Case, output_dim: int, widths: Sequence[int]) -> list[Case]:
    axes: dict[str, Any] = {"part": ["outer_product"], "penultimate_width": widths, "output_dim": [output_dim]}
    with_plateaus = grid(
        **axes, hidden=[(), (8,)], activation=["identity", "tanh", "relu"], bias=[False, True], loss=["squared"]
    )
    without = grid(**axes, hidden=[()], activation=["identity"], bias=[False], loss=_WITHOUT_PLATEAUS)
    return [{**source, **case} for case in (*with_plateaus, *without)]


def _functional(source: Case, hidden_width: int) -> list[Case]:
    axes: dict[str, Any] = {"part": ["functional"], "penultimate_width": [hidden_width], "output_dim": [3, 4, 5]}
    return [{**source, **case} for case in grid(**axes, hidden=[()], activation=["identity"], bias=[False])]


def measure(case: Case) -> dict[str, Any]:
    from hessmap.hessians.operators import functional_hessian
    from hessmap.measurement import spectrum
    from hessmap.problem.problem import Problem

    widths = (case["input_dim"], *case["hidden"], case["penultimate_width"], case["output_dim"])
    network = FullyConnected(widths, case["bias"], case["activation"])
    data = _samples(case)
    source = case["data"] if case["source"] == "images" else "a mixture"
    name = f"{'-'.join(map(str, widths))} on {source}"
    if case["part"] == "outer_product":
        problem = Problem(network.build(seed=0), case["loss"], *data)
        if case["loss"] in _WITHOUT_PLATEAUS:
            return {"network": name, **unrepeated_record(problem)}
        return {"network": name, **outer_product_record(network, problem)}
    problem, curved = (
        Problem(FullyConnected(widths, activation=activation).build(seed=0), "squared", *data)
        for activation in ("identity", "relu")
    )
    with_relu = four_digits(spectrum(functional_hessian(curved)).eigenvalues)
    return {"network": name, "with_relu": with_relu, **functional_record(network, problem)}


def _samples(case: Case) -> Data:
    """A Gaussian mixture, or images of 5 x 5 pixels as they are; one class for each output."""
    from hessmap.datasets import by_name, gaussian_mixture

    if case["source"] == "mixture":
        return gaussian_mixture(_NUM_SAMPLES, case["input_dim"], case["output_dim"])
    return by_name(case["data"], num_samples=_NUM_SAMPLES, side=5, classes=range(case["output_dim"]))


def outer_product_record(network: FullyConnected, problem: Problem) -> dict[str, Any]:
    """How often each non-zero eigenvalue of the penultimate moment E[h h^T] is an eigenvalue of H_o.

    ``printed`` K - M_{L-1} is what the paper gives each under squared loss, exact in linear and tanh networks. Units
    that no sample activates do not count: outputs orthogonal to the columns of the M~ active ones feel the last layer
    alone, and each level repeats at least K - M~ times. Under ReLU there is no ``largest`` count: two units that are
    never active together do not see each other, and their levels have K - 1 copies.
    """
    from hessmap.hessians.operators import outer_product_hessian
    from hessmap.measurement import numerical_rank, spectrum

    inner = _penultimate(problem)
    moment = spectrum(_moment(inner, problem, network.has_bias))
    levels = moment.eigenvalues[: numerical_rank(moment).value]
    found = spectrum(outer_product_hessian(problem))
    values = found.eigenvalues[: numerical_rank(found).value]
    expected = outer_product_plateaus(int(inner.any(0).sum()), network.output_dim, len(levels))
    distances = np.abs(values[:, None] - levels) / found.norm
    counts = (distances <= _EQUAL).sum(0)
    return {
        "single": four_digits(np.where(distances.min(1) > _EQUAL, values, np.nan)),
        "repeated": four_digits(np.where(distances.min(1) <= _EQUAL, values, np.nan)),
        "expected_plateaus": expected.num_plateaus,
        "num_plateaus": int((counts >= expected.multiplicity).sum()),
        "printed": network.output_dim - network.widths[-2],
        "smallest": expected.multiplicity,
        "largest": np.inf if network.activation == "relu" else expected.multiplicity,
        "fewest": int(counts.min()),
        "most": int(counts.max()),
    }


def unrepeated_record(problem: Problem) -> dict[str, Any]:
    """Losses whose second derivative differs from sample to sample: no non-zero eigenvalue of H_o repeats."""
    from hessmap.hessians.operators import outer_product_hessian
    from hessmap.measurement import numerical_rank, spectrum

    found = spectrum(outer_product_hessian(problem))
    runs = _runs(found.eigenvalues[: numerical_rank(found).value], found.norm)
    plateaus = {"expected_plateaus": 0, "num_plateaus": sum(length > 1 for length in runs)}
    return plateaus | {"smallest": 1, "largest": 1, "fewest": min(runs), "most": max(runs)}


def functional_record(network: FullyConnected, problem: Problem) -> dict[str, Any]:
    """The whole spectrum of H_f of one hidden linear layer beside the one that the singular values of Omega give.

    ``deviation`` is the largest distance of any two, relative to the norm.
    """
    from hessmap.hessians.operators import functional_hessian
    from hessmap.measurement import numerical_rank, spectrum

    moment = problem.residuals().T @ (problem.weights[:, None] * problem.inputs)
    residual_rank = numerical_rank(moment).value
    sigmas = np.linalg.svd(moment.numpy(), compute_uv=False)[:residual_rank]
    predicted = functional_spectrum(sigmas.tolist(), *network.widths)
    levels = np.array([level.value for level in predicted if level.value])
    found = spectrum(functional_hessian(problem))
    counts = (np.abs(found.eigenvalues[:, None] - levels) <= _EQUAL * found.norm).sum(0)
    eigenvalues = np.repeat([level.value for level in predicted], [level.multiplicity for level in predicted])
    return {
        "eigenvalues": four_digits(found.eigenvalues),
        "predicted": four_digits(eigenvalues),
        "deviation": float(np.abs(found.eigenvalues - eigenvalues).max() / found.norm),
        "residual_rank": residual_rank,
        "expected_plateaus": 2 * residual_rank,
        "num_plateaus": int((counts >= network.widths[1]).sum()),
        "smallest": network.widths[1],
        "largest": network.widths[1],
        "fewest": int(counts.min()),
        "most": int(counts.max()),
    }


def _penultimate(problem: Problem) -> Tensor:
    """The inputs h of the last layer, one row a sample."""
    *inner, _ = cast("nn.Sequential", problem.model)
    values: Tensor = problem.inputs
    for module in inner:
        values = module(values)
    return values


def _moment(inner: Tensor, problem: Problem, bias: bool) -> Tensor:
    """E[h h^T], with a one appended to h where there is a bias."""
    import torch

    if bias:
        inner = torch.column_stack([inner, inner.new_ones(len(inner))])
    return inner.T @ (problem.weights[:, None] * inner)


def _runs(values: NDArray[np.float64], norm: float) -> list[int]:
    """The lengths of the runs of equal neighbours in a descending list; 1 for an eigenvalue that stands alone."""
    breaks = np.flatnonzero(np.abs(np.diff(values)) > _EQUAL * norm) + 1
    return [int(length) for length in np.diff([0, *breaks, len(values)])]


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """What no single case can show, where the rows are there to show it."""
    functional = [row["deviation"] for row in rows if row["part"] == "functional"]
    if functional:
        detail = f"{max(functional):.1e} of the norm in {len(functional)} cases"
        yield Claim(
            "functional-to-rounding",
            "Every eigenvalue of H_f is predicted to rounding",
            max(functional) < 1e-12,
            detail,
        )
    more = [row for row in rows if "printed" in row and row["most"] > row["printed"]]
    if more:
        detail = f"in {len(more)} cases"
        is_relu = all(row["activation"] == "relu" for row in more)
        yield Claim(
            "relu-repeats-more",
            "Eigenvalues of H_o repeat more often than K - M_{L-1} under ReLU alone",
            is_relu,
            detail,
        )


_SERIES = {
    "outer_product": (Series("single", points="single"), Series("repeated", points="repeated")),
    "functional": (
        Series("linear", line="eigenvalues"),
        Series("predicted", dashed="predicted"),
        Series("ReLU", line="with_relu"),
    ),
}
_AS_PRINTED = {"hidden": (), "activation": "relu", "bias": False, "loss": "squared"}


def _figure(title: str, part: Part, **where: Any) -> Lines:
    return Lines(
        title=title,
        part=part,
        where={"part": part, **where},
        facet="network",
        x=INDEX,
        series=_SERIES[part],
        x_label="index",
        y_label="eigenvalue",
        y_scale="log" if part == "outer_product" else "linear",
    )


STUDY = Study(
    name="fcn/spectrum-plateaus",
    question="How often do eigenvalues repeat in the outer-product and in the functional Hessian?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 2 and S2 to S5",
    cases=cases,
    measure=measure,
    data=("digits", "mnist", "fashion_mnist", "cifar10"),
    seconds=0.2,
    checks=(
        Check("num_plateaus", "expected_plateaus"),
        Check("fewest", "smallest", "at_least"),
        Check("most", "largest", "at_most"),
    ),
    claims=claims,
    view=View(
        figures=(
            *(_figure("$H_o$, ReLU", "outer_product", **_AS_PRINTED, penultimate_width=width) for width in (3, 4)),
            *(_figure("$H_f$", "functional", output_dim=outputs) for outputs in (3, 5)),
        ),
        table=(
            *("network", "part", "activation", "bias", "loss"),
            *(Column("expected_plateaus", "plateaus"), Column("num_plateaus", "found"), Column("printed", "K-M")),
            *("smallest", "fewest", "most"),
        ),
        group_by=("network", "part", "activation", "bias", "loss"),
    ),
    answered=Answer(
        "In H_o K - M_{L-1} times where the last hidden layer is narrower than the output, more often only under"
        " ReLU; in H_f of one hidden layer every eigenvalue is as predicted, to rounding.",
        num_claims=2,
        cases="agrees",
    ),
)
