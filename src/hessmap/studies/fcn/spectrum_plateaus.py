"""Repeated eigenvalues: of H_o below a wide output, and of H_f with one hidden linear layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap.studies import INDEX, Case, Check, Column, Finding, Lines, Row, Series, Study, View, grid

if TYPE_CHECKING:
    from hessmap.datasets import Data

_NUM_SAMPLES = 300
_MIXTURE = {"source": "mixture", "input_dim": 5}
_IMAGES = {"source": "images", "input_dim": 25}
_WITHOUT_PLATEAUS = ("cross_entropy", "log_cosh")


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
    from hessmap.curvature import Problem, functional_hessian
    from hessmap.measurement import spectrum
    from hessmap.networks import FullyConnected
    from hessmap.studies.drawn_curves import rounded
    from hessmap.studies.fcn.plateau_record import functional_record, outer_product_record, unrepeated_record

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
    with_relu = rounded(spectrum(functional_hessian(curved)).eigenvalues)
    return {"network": name, "with_relu": with_relu, **functional_record(network, problem)}


def _samples(case: Case) -> Data:
    """A Gaussian mixture, or images of 5 x 5 pixels as they are; one class for each output."""
    from hessmap.datasets import by_name, gaussian_mixture

    if case["source"] == "mixture":
        return gaussian_mixture(_NUM_SAMPLES, case["input_dim"], case["output_dim"])
    return by_name(case["data"], num_samples=_NUM_SAMPLES, side=5, classes=range(case["output_dim"]))


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """What no single case can show, where the rows are there to show it."""
    functional = [row["deviation"] for row in rows if row["part"] == "functional"]
    if functional:
        detail = f"{max(functional):.1e} of the norm in {len(functional)} cases"
        yield Finding("Every eigenvalue of H_f is predicted to rounding", max(functional) < 1e-12, detail)
    more = [row for row in rows if "printed" in row and row["most"] > row["printed"]]
    if more:
        detail = f"in {len(more)} cases"
        is_relu = all(row["activation"] == "relu" for row in more)
        yield Finding("Eigenvalues of H_o repeat more often than K - M_{L-1} under ReLU alone", is_relu, detail)


_SERIES = {
    "outer_product": (Series("single", points="single"), Series("repeated", points="repeated")),
    "functional": (
        Series("linear", line="eigenvalues"),
        Series("predicted", dashed="predicted"),
        Series("ReLU", line="with_relu"),
    ),
}
_AS_PRINTED = {"hidden": (), "activation": "relu", "bias": False, "loss": "squared"}


def _figure(title: str, part: str, **where: Any) -> Lines:
    return Lines(
        title=title,
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
    findings=findings,
    view=View(
        figures=(_figure("$H_o$, ReLU", "outer_product", **_AS_PRINTED), _figure("$H_f$", "functional")),
        table=(
            "network",
            "part",
            "activation",
            "bias",
            "loss",
            Column("expected_plateaus", "plateaus"),
            Column("num_plateaus", "found"),
            Column("printed", "K - M"),
            "smallest",
            "fewest",
            "most",
        ),
    ),
)
