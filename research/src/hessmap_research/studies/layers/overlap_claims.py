"""What is claimed of the overlap between models: where it peaks, how high, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hessmap_research.runner.claims import Claim, claim_id
from hessmap_research.runner.row import Row

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
        claim = f"{where}: as the paper has it, every pair peaks within a quarter of m"
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
    """The paper's own claim for LeNet5."""
    for data in ("mnist", "cifar10"):
        for layer in ("conv2", "fc1"):
            chosen = _chosen(rows, data=data, network="LeNet5", layer=layer, compared="seeds")
            claim = f"As the paper has it, {layer} of LeNet5 on {data}: every pair peaks within a quarter of m"
            small = [row for row in chosen if "size" not in row]
            yield _of_long_curves(claim_id("lenet-at-outputs", data, layer), claim, small, _is_at_outputs)
    for row in rows:
        if "size" in row:  # one pair, and Hessians on some of the images: what is not found there decides nothing
            where = f"{row['layer']} of LeNet5 on all images of {row['data']}"
            claim = f"As the paper has it, {where}: two models peak within a quarter of m"
            yield Claim(
                claim_id("lenet-all-images", row["data"], row["layer"]),
                claim,
                _is_at_outputs(row) or None,
                f"{_peak(row)}; Hessians on {row['num_measured']:,}",
            )


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
