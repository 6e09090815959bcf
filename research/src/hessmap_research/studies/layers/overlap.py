"""Top eigenspaces of one layer in two models: where their overlap peaks, and what the factors predict of it."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

from hessmap_research.runner.claims import Answer
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View
from hessmap_research.studies.layers.layer_cases import ON_ALL_IMAGES
from hessmap_research.studies.layers.overlap_claims import claims

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem
    from hessmap.theory.layers import FactorSpectra

_PAIRS = tuple(combinations(range(3), 2))
_MORE_PAIRS = tuple(pair for pair in combinations(range(7), 2) if pair not in _PAIRS)
_RANDOM = {"network": "F-16", "labels": "random"}
_WIDE = {"network": "F-200^2", "labels": "true"}
_LENET = {"network": "LeNet5", "labels": "true"}
_FAR = 400
# As far as twice the 200 outputs: 60 dimensions do not show whether the overlap peaks at them.
_LONG = grid(network=["F-200^2"], labels=["true"], layer=["fc1", "fc2"], count=[_FAR], compared=["seeds"], pair=_PAIRS)
# How far the curves of LeNet5 on all images go, layer by layer.
_COUNTS = {"conv1": 24, "conv2": 64, "fc1": 240}


def cases(data: str) -> tuple[Case, ...]:
    """Every pair among three models, of small ones among seven; of the digits also other recipes, checkpoints, and
    longer curves of two layers."""
    layers: dict[str, tuple[Case, ...]] = {
        "digits": (
            *({**_WIDE, "layer": layer, "count": 60} for layer in ("fc1", "fc2", "fc3")),
            *({**_RANDOM, "layer": layer, "count": 48} for layer in ("fc1", "fc2")),
        ),
        "mnist": (
            *({**_WIDE, "layer": layer, "count": 60} for layer in ("fc1", "fc2", "fc3")),
            {**_LENET, "layer": "conv2", "count": 60},
        ),
        "cifar10": ({**_LENET, "layer": "conv2", "count": 60}, {**_LENET, "layer": "fc1", "count": 200}),
    }
    compared = ("seeds", "recipes", "checkpoints") if data == "digits" else ("seeds",)
    few = [{**layer, **pair} for layer in layers[data] for pair in grid(compared=compared, pair=_PAIRS)]
    narrow = [layer for layer in layers[data] if layer["network"] == "F-16"]
    more = [{**layer, "compared": "seeds", "pair": pair} for layer in narrow for pair in _MORE_PAIRS]
    trained = [
        {**_LENET, **ON_ALL_IMAGES[data], "layer": layer, "count": count, "compared": "seeds", "pair": (0, 1)}
        for layer, count in (_COUNTS.items() if data in ON_ALL_IMAGES else ())
    ]
    return (*few, *more, *(_LONG if data == "digits" else ()), *trained)


class _LayerOfModel(NamedTuple):
    """Of one model: eigenvectors of its layer's Hessian, the spectra of its factors, and its live output units."""

    eigenvectors: Any
    converged: bool
    spectra: FactorSpectra
    num_live: int
    is_output: bool


def measure(case: Case) -> dict[str, Any]:
    """The overlap of two models for k = 1 .. count, what random spaces have, and what their factors alone give."""
    import numpy as np

    from hessmap.measurement.overlap import overlap_curve
    from hessmap.theory.layers import growth_end, predicted_overlap
    from hessmap_research.studies.plotted_curves import four_digits

    first, second = (_layer_of_model(_model(case, number), case) for number in case["pair"])
    curve = overlap_curve(first.eigenvectors, second.eigenvectors)
    predicted = predicted_overlap(first.spectra, second.spectra, case["count"])
    ends = [growth_end(seen.spectra.output_values, seen.spectra.input_values) for seen in (first, second)]
    units = len(first.spectra.output_values)
    means = float(first.spectra.input_vectors[:, 0] @ second.spectra.input_vectors[:, 0]) ** 2
    twice = min(2 * units, case["count"])
    record = {
        "overlap": four_digits(curve.values),
        "chance": four_digits(curve.chance),
        "predicted": four_digits(predicted),
        "peak": int(np.argmax(curve.values)) + 1,
        "peak_value": float(curve.values.max()),
        "predicted_peak": int(np.argmax(predicted)) + 1,
        "at_nine": curve.at(min(9, case["count"])),
        "at_twice": curve.at(twice),
        "num_outputs": units,
        "num_live": min(first.num_live, second.num_live),
        "growth_end": min(ends),
        "input_overlap": means,
        "converged": first.converged and second.converged,
    }
    if case["compared"] == "checkpoints":  # of one model, whose units keep their order
        return record
    return record | {"theorem": four_digits(_theorem(units, means, min(*ends, case["count"]), first.is_output))}


def _model(case: Case, number: int) -> Problem:
    from hessmap_research.studies.layers.measured_layer import problem_of
    from hessmap_research.studies.layers.trained_layers import compared_model

    if "size" in case:
        return problem_of({**case, "seed": number})
    return compared_model(case["network"], case["data"], case["labels"], case["compared"], number)


def _theorem(num_outputs: int, input_overlap: float, end: int, is_output: bool) -> Any:
    """Theorem G.1 up to k*: linear growth where units may be permuted, a constant for the outputs, which may not."""
    import numpy as np

    from hessmap.theory.layers import linear_growth

    return np.full(end, input_overlap) if is_output else linear_growth(num_outputs, input_overlap, end)


def _layer_of_model(problem: Problem, case: Case) -> _LayerOfModel:
    from hessmap.layers import layer_hessian, layer_names
    from hessmap.theory.layers import FactorSpectra
    from hessmap_research.studies.layers.measured_layer import eigenpairs_of, stored_eigenpairs

    hessian = layer_hessian(problem, case["layer"])
    found = eigenpairs_of(case, hessian) if "size" in case else stored_eigenpairs(hessian, case["count"])
    assert found.eigenvectors is not None
    factors = hessian.factors["uncorrelated_patches"]
    curvatures = factors.output_factor.diagonal()
    num_live = int((curvatures > 1e-12 * curvatures.max()).sum())
    spectra = FactorSpectra.of(factors.output_factor, factors.input_factor)
    is_output = case["layer"] == layer_names(problem)[-1]
    vectors = found.eigenvectors[:, : case["count"]]
    return _LayerOfModel(vectors, bool(found.converged), spectra, num_live, is_output)


def _figure(
    data: str, network: str, labels: str, layer: str, compared: str = "seeds", count: int | None = None
) -> Lines:
    which = {} if count is None else {"count": count}
    named = f"{layer} of {network}, {data}" + (", random labels" if labels == "random" else "")
    named += ", all images" if count in _COUNTS.values() else ""
    return Lines(
        title=named + ("" if compared == "seeds" else f", {compared}") + (f", to {count}" if count == _FAR else ""),
        where={"data": data, "network": network, "labels": labels, "layer": layer, "compared": compared, **which},
        x=INDEX,
        series=(
            Series("measured", points="overlap"),
            Series("predicted from the factors", line="predicted"),
            Series("random spaces", dashed="chance"),
            *((Series("predicted by Theorem G.1, to $k^*$", line="theorem"),) if compared != "checkpoints" else ()),
        ),
        x_label="dimension k",
        y_label="overlap of top k",
        marks=(Mark("growth_end", "smaller $k^*$"), Mark("num_outputs", "outputs m")),
    )


# A peak at the outputs in narrow layers, none in wide ones, and the output layer; then LeNet5 on all images and on
# some. The table has all pairs.
_FIGURES = (
    _figure("digits", "F-16", "random", "fc1"),
    _figure("digits", "F-200^2", "true", "fc1", count=_FAR),
    _figure("mnist", "F-200^2", "true", "fc3"),
    *(
        _figure(data, "LeNet5", "true", layer, count=count)
        for data in ("cifar10", "mnist")
        for layer, count in _COUNTS.items()
    ),
    _figure("cifar10", "LeNet5", "true", "conv2", count=60),
    _figure("mnist", "LeNet5", "true", "conv2", count=60),
    _figure("cifar10", "LeNet5", "true", "fc1", count=200),
)

_SECONDS = {"digits": 1.5, "mnist": 40.0, "cifar10": 45.0}


def _seconds(case: Case) -> float:
    """Of networks on all images also the training of both."""
    if "size" in case:
        return 30.0 * int(case["epochs"])
    return _SECONDS[case["data"]] if case["count"] < _FAR else 60.0


STUDY = Study(
    name="layers/overlap",
    question="How far do the top eigenspaces of one layer agree between models, and do the factors say where most?",
    reference="Wu et al. 2022, Figures 1, 4, 6, 9 and 22; Theorem G.1 with k* for m",
    cases=cases,
    measure=measure,
    data=("digits", "mnist", "cifar10"),
    claims=claims,
    seconds=_seconds,
    families={
        "random-labels": "Random labels, fc1 of F-16: the peak is near m, above 0.6, and 0.15 above the overlap at 2m",
        "near-nine": "True labels, F-200^2: of k = 1 to 60 every pair overlaps most near c - 1 = 9",
        "none-beyond": "True labels, F-200^2: no k beyond it overlaps more",
        "at-outputs": "True labels, F-200^2: every pair peaks within a quarter of m",
        "output-layer": "Output layer: flat from k = 3 to 9, above 0.7 of (t.t')^2, at k = 18 a tenth or more below",
        "lenet-at-outputs": "LeNet5: every pair peaks within a quarter of m",
        "lenet-all-images": "LeNet5 on all images: two models peak within a quarter of m",
        "recipes": "The mean curve of other recipes peaks within 2 of that of seeds",
        "checkpoints": "Checkpoints of one training overlap more than two trainings, k = 9",
    },
    view=View(
        figures=_FIGURES,
        table=(
            "data",
            "network",
            "labels",
            "layer",
            "compared",
            Column("size", "images", said={"long": "all"}),
            Column("num_outputs", "m"),
            Column("count", "to k"),
            Column("num_live", "live"),
            Column("growth_end", "k*"),
            Column("peak", "peak at"),
            Column("predicted_peak", "predicted"),
            Column("peak_value", "overlap", ".3f"),
            Column("at_twice", "at 2m", ".3f"),
            Column("input_overlap", "(t.t')^2", ".3f"),
        ),
        group_by=("data", "network", "labels", "layer", "compared", "size", "count"),
    ),
    answered=Answer(
        "It depends on width and data: the narrow F-16 agrees most between k* - 2 and its live units + 1, by"
        " 0.635 on average, LeNet5 on all photographs near its outputs m; F-200^2 on digits has a low first"
        " maximum near c - 1 = 9, and none at m.",
        num_claims=36,
        fails=(
            "random-labels-height",
            "random-labels-decline",
            "none-beyond-digits-fc1",
            "at-outputs-digits-fc1",
            "none-beyond-digits-fc2",
            "at-outputs-digits-fc2",
            "output-layer-flat-digits",
            "lenet-at-outputs-cifar10-fc1",
            "recipes-f-16-fc1",
        ),
        inconclusive=(
            "none-beyond-mnist-fc1",
            "at-outputs-mnist-fc1",
            "lenet-all-images-mnist-conv1",
            "lenet-all-images-mnist-conv2",
            "lenet-all-images-mnist-fc1",
            "recipes-f-200-2-fc1",
            "recipes-f-200-2-fc2",
        ),
    ),
)
