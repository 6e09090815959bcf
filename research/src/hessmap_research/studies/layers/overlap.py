"""Top eigenspaces of one layer in two models: where their overlap peaks, and what the factors predict of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View
from hessmap_research.studies.layers.layer_cases import ON_ALL_IMAGES, OWN_RECIPE

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem
    from hessmap.theory.layers import FactorSpectra


Floats = NDArray[np.float64]
_SHORT = 60  # dimensions up to which most curves go


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield from _random_labels(rows)
    yield from _separable_classes(rows)
    yield from _published_early_peak(rows)
    yield from _output_layer(rows)
    yield from _output_dimension(rows)
    yield from _hypothesis(rows)
    yield from _other_comparisons(rows)


def _random_labels(rows: Sequence[Row]) -> Iterator[Claim]:
    """A narrow layer with a heavy-tailed E[M]: the peak is near m."""
    chosen = _chosen(rows, data="digits", network="F-16", layer="fc1", compared="seeds")
    first = [row for row in chosen if max(row["pair"]) < 3]
    yield Claim.about(
        "random-labels-peak",
        "Random labels, fc1 of F-16: every pair peaks between k* - 2 and its live units + 1",
        chosen,
        lambda row: row["growth_end"] - 2 <= row["peak"] <= row["num_live"] + 1,
        detail="",
        said=lambda row: f"{row['peak']} in [{row['growth_end'] - 2}, {row['num_live'] + 1}]",
    )
    yield Claim.about(
        "random-labels-height",
        "Of the first three networks every pair peaks above 0.6",
        first,
        lambda row: row["peak_value"] > 0.6,
        detail="",
        said=lambda row: f"{row['peak_value']:.3f}",
    )
    yield Claim.about(
        "random-labels-decline",
        "And 0.15 above its overlap at 2m",
        first,
        lambda row: row["peak_value"] - row["at_twice"] > 0.15,
        detail="",
        said=lambda row: f"{row['peak_value']:.3f} to {row['at_twice']:.3f}",
    )
    if chosen:
        peak, later = (float(np.mean([row[name] for row in chosen])) for name in ("peak_value", "at_twice"))
        above = sum(row["peak_value"] > 0.6 for row in chosen)
        detail = f"{peak:.3f} and {later:.3f}; {above} of {len(chosen)} pairs are above 0.6"
        claim = "In the mean over all pairs the peak is above 0.6, and 0.15 above the overlap at 2m"
        yield Claim("random-labels-mean", claim, peak > 0.6 and peak - later > 0.15, detail)


def _separable_classes(rows: Sequence[Row]) -> Iterator[Claim]:
    """True labels: E[M] has c - 1 large eigenvalues, and there the overlap has a first, low maximum."""
    for data, layer, last in (("digits", "fc1", 10), ("digits", "fc2", 10), ("mnist", "fc1", 11)):
        chosen = _chosen(rows, data=data, network="F-200^2", layer=layer, compared="seeds")
        where = f"True labels, {layer} of F-200^2 on {data}"
        yield Claim.about(
            claim_id("near-nine", data, layer),
            f"{where}: of k = 1 to {_SHORT} every pair overlaps most near c - 1 = 9, between 8 and {last}",
            [row for row in chosen if row.array("overlap").size == _SHORT],
            partial(_is_between, 8, last),
            detail="",
            said=lambda row: f"{row['peak']} ({row['peak_value']:.3f})",
        )
        claim = f"{where}: no k beyond it overlaps more"
        yield _of_long_curves(claim_id("none-beyond", data, layer), claim, chosen, lambda row: row["peak"] < 12)
        claim = f"{where}: as in the paper, every pair peaks within a quarter of m"
        yield _of_long_curves(claim_id("at-outputs", data, layer), claim, chosen, _is_at_outputs)


def _published_early_peak(rows: Sequence[Row]) -> Iterator[Claim]:
    """Figures 9 and 23: fc2 of F-200^2 on MNIST, whose mean overlap is about 0.012 at k = 9 and falls behind it."""
    chosen = _chosen(rows, data="mnist", network="F-200^2", layer="fc2", compared="seeds")
    if chosen:
        mean = np.mean([row.array("overlap") for row in chosen], axis=0)
        at = int(mean[:20].argmax()) + 1
        claim = "Figure 9, fc2 of F-200^2 on mnist: of k = 1 to 20 the mean overlap is largest between 8 and 10"
        detail = f"{mean[at - 1]:.4f} at k = {at}, {mean[19]:.4f} at 20; at k = 9 {mean[8]:.4f}, the paper about 0.012"
        yield Claim("figure-9", claim, 8 <= at <= 10, detail)


def _is_between(first: int, last: int, row: Row) -> bool:
    return bool(first <= row["peak"] <= last)


def _is_at_outputs(row: Row) -> bool:
    return bool(abs(row["peak"] - row["num_outputs"]) <= 0.25 * row["num_outputs"])


def _of_long_curves(name: str, claim: str, rows: Sequence[Row], is_right: Callable[[Row], bool]) -> Claim:
    """A claim about the largest overlap of all: decided by curves that go on beyond the output dimension m."""
    long = [row for row in rows if row.array("overlap").size >= 1.25 * row["num_outputs"]]
    if long or not rows:
        return Claim.about(name, claim, long, is_right, detail="", said=_peak)
    longest = max(row.array("overlap").size for row in rows)
    return Claim(name, claim, None, f"the curves end at k = {longest} of m = {rows[0]['num_outputs']}")


def _peak(row: Row) -> str:
    size = row.array("overlap").size
    rises = ", where the curve ends" if row["peak"] == size else ""
    return f"{row['peak']} for m = {row['num_outputs']} ({row['peak_value']:.3f}{rises})"


def _output_layer(rows: Sequence[Row]) -> Iterator[Claim]:
    """Units of the last layer cannot be permuted: flat up to c - 1, and falling behind."""
    for data in ("digits", "mnist"):
        chosen = _chosen(rows, data=data, network="F-200^2", layer="fc3", compared="seeds")
        yield Claim.about(
            claim_id("output-layer-flat", data),
            f"Output layer, {data}: flat from k = 3 to 9 (smallest above 0.75 of the largest)",
            chosen,
            lambda row: _part(row, 3, 9).min() > 0.75 * _part(row, 3, 9).max(),
            detail="",
            said=lambda row: f"{_part(row, 3, 9).min():.3f} to {_part(row, 3, 9).max():.3f}",
        )
        yield Claim.about(
            claim_id("output-layer-share-at-nine", data),
            f"Output layer, {data}: at k = 9 above 0.7 of (t.t')^2",
            chosen,
            lambda row: row["at_nine"] > 0.7 * row["input_overlap"],
            detail="",
            said=lambda row: f"{row['at_nine']:.3f} of {row['input_overlap']:.3f}",
        )
        yield Claim.about(
            claim_id("output-layer-falls-at-18", data),
            f"Output layer, {data}: at k = 18 a tenth or more below k = 9",
            chosen,
            lambda row: _part(row, 18, 18)[0] < 0.9 * row["at_nine"],
            detail="",
            said=lambda row: f"{row['at_nine']:.3f} to {_part(row, 18, 18)[0]:.3f}",
        )


def _output_dimension(rows: Sequence[Row]) -> Iterator[Claim]:
    """The paper's own claims for LeNet5: of hidden layers, and Figure 22 of the output layer."""
    for data in ("mnist", "cifar10"):
        for layer in ("conv2", "fc1"):
            chosen = _chosen(rows, data=data, network="LeNet5", layer=layer, compared="seeds")
            claim = f"As in the paper, {layer} of LeNet5 on {data}: every pair peaks within a quarter of m"
            small = [row for row in chosen if "size" not in row]
            yield _of_long_curves(claim_id("lenet-at-outputs", data, layer), claim, small, _is_at_outputs)
    for row in rows:
        if "size" not in row:
            continue
        where = f"{row['layer']} of LeNet5 on all images of {row['data']}"
        name: tuple[Any, ...] = ("lenet-all-images", row["data"], row["layer"])
        if row["size"] == "published":
            where += f", {row['epochs']} epochs of the paper's recipe"
            name = ("lenet-own-recipe", row["epochs"], row["layer"])
        on = f"Hessians on {row['num_measured']:,}"
        if row["layer"] == _OUTPUT:
            flat = _part(row, 2, 9)
            claim = f"As in Figure 22, {where}: flat from k = 2 to 9 (smallest above 0.75 of the largest)"
            detail = f"{flat.min():.3f} to {flat.max():.3f}; (t.t')^2 {row['input_overlap']:.3f}; {on}"
            yield Claim(claim_id(*name), claim, bool(flat.min() > 0.75 * flat.max()) or None, detail)
        else:  # one pair, and Hessians on some of the images: what is not found there decides nothing
            claim = f"As in the paper, {where}: two models peak within a quarter of m"
            yield Claim(claim_id(*name), claim, _is_at_outputs(row) or None, f"{_peak(row)}; {on}")


def _hypothesis(rows: Sequence[Row]) -> Iterator[Claim]:
    wide = [row for row in _chosen(rows, labels="true") if row["num_outputs"] >= 84]
    yield Claim.about(
        "hypothesis-fails",
        "The hypothesis of Theorem G.1, k* = m, fails in hidden layers of 84 units and more",
        wide,
        lambda row: row["growth_end"] < row["num_outputs"],
        detail="",
        said=lambda row: f"{row['growth_end']} of {row['num_outputs']}",
    )


def _other_comparisons(rows: Sequence[Row]) -> Iterator[Claim]:
    """Other recipes keep the pattern; checkpoints of one training share their units."""
    for network, layer in (("F-16", "fc1"), ("F-200^2", "fc1"), ("F-200^2", "fc2")):
        chosen = [
            row
            for row in _chosen(rows, data="digits", network=network, layer=layer)
            if row.array("overlap").size <= _SHORT
        ]
        sets = {name: _chosen(chosen, compared=name) for name in ("seeds", "recipes", "checkpoints")}
        peaks = {name: int(_mean(found).argmax()) + 1 for name, found in sets.items() if found}
        if {"seeds", "recipes"} <= peaks.keys():
            claim = f"{layer} of {network}: the mean curve of other recipes peaks within 2 of that of seeds"
            near, size = abs(peaks["seeds"] - peaks["recipes"]) <= 2, chosen[0].array("overlap").size
            is_long = size >= chosen[0]["num_outputs"]
            detail = f"{peaks['seeds']} and {peaks['recipes']}" + ("" if is_long else f" of k = 1 to {size}")
            yield Claim(claim_id("recipes", network, layer), claim, near if is_long else None, detail)
        if {"seeds", "checkpoints"} <= peaks.keys():
            nines = [float(_mean(sets[name])[8]) for name in ("checkpoints", "seeds")]
            claim = f"{layer} of {network}: checkpoints of one training overlap more than two trainings, k = 9"
            yield Claim(
                claim_id("checkpoints", network, layer),
                claim,
                nines[0] > nines[1],
                f"{nines[0]:.3f} against {nines[1]:.3f}",
            )


def _chosen(rows: Sequence[Row], **fields: str) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


def _mean(rows: Sequence[Row]) -> Floats:
    return np.asarray(np.mean([row.array("overlap") for row in rows], axis=0))


def _part(row: Row, first: int, last: int) -> Floats:
    return row.array("overlap")[first - 1 : last]


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
_OUTPUT = "fc3"
# The same pair by the paper's own recipe, on the way and at the end, with the output layer of Figure 22.
_OWN_EPOCHS = (100, 300)
_OWN_COUNTS = {**_COUNTS, _OUTPUT: 60}


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
    own = [
        {**training, **OWN_RECIPE, "epochs": epochs, "layer": layer, "count": count}
        for training in trained[:1]
        for epochs in (_OWN_EPOCHS if data == "cifar10" else ())
        for layer, count in _OWN_COUNTS.items()
    ]
    return (*few, *more, *(_LONG if data == "digits" else ()), *trained, *own)


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
    data: str,
    network: str,
    labels: str,
    layer: str,
    compared: str = "seeds",
    count: int | None = None,
    training: Mapping[str, Any] | None = None,
) -> Lines:
    """``training``: the size and epochs of a training on all images."""
    which = ({} if count is None else {"count": count}) | {"size": None} | dict(training or {})
    named = f"{layer} of {network}, {data}" + (", random labels" if labels == "random" else "")
    named += ", all images" if training else ""
    named += f", {which['epochs']} epochs of the paper's recipe" if which["size"] == "published" else ""
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
        _figure(data, "LeNet5", "true", layer, count=count, training={"size": "long"})
        for data in ("cifar10", "mnist")
        for layer, count in _COUNTS.items()
    ),
    *(
        _figure("cifar10", "LeNet5", "true", layer, count=count, training={"size": "published", "epochs": epochs})
        for epochs in _OWN_EPOCHS
        for layer, count in _OWN_COUNTS.items()
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
            Column("size", "images", said={"long": "all", "published": "all, paper's recipe"}),
            "epochs",
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
        group_by=("data", "network", "labels", "layer", "compared", "size", "epochs", "count"),
    ),
    answered=Answer(
        "It depends on width and data: the narrow F-16 agrees most between k* - 2 and its live units + 1, by"
        " 0.635 on average, LeNet5 on all of CIFAR-10 near its outputs m; F-200^2 on digits has a low first"
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
