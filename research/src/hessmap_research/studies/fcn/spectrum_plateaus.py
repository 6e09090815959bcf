"""Repeated eigenvalues: of H_o below a wide output, and of H_f with one hidden linear layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hessmap.networks import FullyConnected
from hessmap.records import Part
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
    from hessmap_research.formulas.plateaus import outer_product_plateaus

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
    from hessmap_research.formulas.plateaus import functional_spectrum

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
