"""The findings of a map in at most five sentences, none of which repeats a number of its tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hessmap.records import HESSIAN_SYMBOLS, NetworkCurvature, PartCurvature, RankValue

# A gradient below this fraction of the norm of H_L marks a point that may be stationary: weights trained that
# far are not generic, and the formulas need not apply.
_NEARLY_STATIONARY = 1e-6
_NEARLY_ALL = 0.9999  # of the curvature, above which no more digits are shown
_EVEN = 2.0  # a ratio between layers below which it is not reported


def summary(network: NetworkCurvature, counterpart: NetworkCurvature | None) -> tuple[str, ...]:
    """The findings of a map, most important first; ``counterpart`` is the network without activations."""
    findings = [negative_curvature(network), uneven_layers(network), kronecker_fit(network)]
    if network.has_ranks:
        findings += [rank_agreement(counterpart) if counterpart is not None else ""]
        findings += [rank_agreement(network) or linear_formula(network)]
    return tuple(text for text in findings if text)


def negative_curvature(network: NetworkCurvature) -> str:
    """How many eigenvalues are negative, and how large the lowest is; empty where they were not computed."""
    if not network.is_dense:
        return ""
    part = network["loss"]
    eigenvalues = part.spectrum.eigenvalues
    negative = int((eigenvalues < -part.measurement.threshold).sum())
    if negative == 0:
        return "No eigenvalue of the Hessian is negative beyond rounding."
    lowest = float(eigenvalues.min())
    are, verb = ("eigenvalues are", "the lowest is") if negative > 1 else ("eigenvalue is", "it is")
    return (
        f"{negative:,} of {len(eigenvalues):,} {are} negative ({verb} {lowest:.2g}, "
        f"{abs(lowest) / part.measurement.scale:.1%} of the spectral norm), so the weights are not at a minimum."
    )


def uneven_layers(network: NetworkCurvature) -> str:
    """Which layer the sharpest direction is in, and how unevenly the layers are curved."""
    if len(network.layers) < 2:
        return ""
    texts = []
    shares = {layer.name: layer.direction_share for layer in network.layers if layer.direction_share is not None}
    if len(shares) == len(network.layers):
        most = max(shares, key=lambda name: shares[name])
        texts.append(f"{shares[most]:.0%} of the sharpest direction (squared norm) is in layer {most}")
    found = network.spread
    if found is not None and found.ratio >= _EVEN:
        texts.append(
            f"per parameter, layer {found.most} is curved {found.ratio:.2g} times as much as layer {found.least} "
            "(mean diagonal of the GGN)"
        )
    text = "; ".join(texts)
    return f"{text[0].upper()}{text[1:]}." if text else ""


def kronecker_fit(network: NetworkCurvature) -> str:
    """How well the product of the two Kronecker factors of a layer finds its sharpest directions."""
    known = [(layer.name, layer.factors) for layer in network.layers if layer.factors and layer.curvature_share]
    overlaps = {name: found.kronecker_overlap for name, found in known if found.kronecker_overlap is not None}
    if not overlaps:
        return ""
    few = known[0][1].num_classes - 1
    worst, best = (pick(overlaps, key=lambda name: overlaps[name]) for pick in (min, max))
    overlap = f"{overlaps[worst]:.0%}"
    if len(overlaps) == 1:
        overlap += f" (layer {worst})"
    elif f"{overlaps[best]:.0%}" != overlap:
        overlap += f" (layer {worst}) to {overlaps[best]:.0%} (layer {best})"
    if few == 1:
        return f"The top K-FAC eigenvector of a layer overlaps by {overlap} with that of its exact block."
    return f"The top {few} K-FAC eigenvectors of a layer overlap by {overlap} with those of its exact block."


def rank_agreement(network: NetworkCurvature) -> str:
    """Whether every rank is what a theorem, bound or conjecture claims; empty where none applies."""
    judged = [(part, part.prediction) for part in network.parts if part.prediction is not None]
    if not judged:
        return ""
    where = "" if network.name == "network" else "Without activations (same weights), "
    departing = [(part, claim) for part, claim in judged if not part.agrees]
    if departing:
        texts = [f"{HESSIAN_SYMBOLS[part.part]} has rank {part.rank:,}, {_claim(claim)}" for part, claim in departing]
        claims = [claim for _, claim in departing]
        text = f"{where}the measured ranks contradict the {_sources(claims)}: {'; '.join(texts)}"
        return f"{text[0].upper()}{text[1:]}. {_likely_cause(network, claims)}"
    ranks = ", ".join(f"{HESSIAN_SYMBOLS[part.part]} {part.rank:,}" for part, _ in judged)
    has_bounds = any(claim.relation == "at_most" for _, claim in judged)
    agree = "are within the bounds of" if has_bounds else "match"
    sources = _sources([claim for _, claim in judged])
    text = f"{where}the measured ranks {agree} the {sources}: {ranks} of {network.num_parameters:,}"
    return f"{text[0].upper()}{text[1:]}{_reliability([part for part, _ in judged])}."


def _claim(prediction: RankValue) -> str:
    word = "conjectured" if prediction.kind == "conjecture" else "predicted"
    return f"{word}{' to be at most' if prediction.relation == 'at_most' else ''} {prediction.value:,}"


def _sources(predictions: Sequence[RankValue]) -> str:
    """Whether theorems apply, or conjectures, or both."""
    is_conjecture = {prediction.kind == "conjecture" for prediction in predictions}
    if is_conjecture == {True}:
        return "conjecture"
    return "theorem" if is_conjecture == {False} else "theorem and the conjecture"


def _reliability(judged: Sequence[PartCurvature]) -> str:
    undecided = [part for part in judged if not part.measurement.decidable]
    if not undecided:
        return ""
    if all(part.certificate is not None for part in undecided):
        return ", confirmed in exact arithmetic where the spectrum has no clear gap"
    return ", although not every spectrum has a clear gap"


def _likely_cause(network: NetworkCurvature, predictions: Sequence[RankValue]) -> str:
    """The likely cause of a disagreement, from what was measured."""
    if any(not part.measurement.decidable and part.certificate is None for part in network.parts):
        return "Its spectrum has no clear gap there, so the measured rank depends on the threshold."
    if network.gradient_norm <= _NEARLY_STATIONARY * network["loss"].measurement.scale:
        return "Its gradient is nearly zero, and the prediction is for generic weights."
    tried = [prediction.num_cases for prediction in predictions if prediction.num_cases is not None]
    if len(tried) == len(predictions):
        before = f"the first after {min(tried):,} networks without one"
        return f"Unless its weights are special, this is a counterexample to the conjecture, {before}."
    cut = network["loss"].measurement
    return (
        "The theorem is about generic weights, products of consecutive weight matrices of maximal rank, and counts "
        f"every nonzero eigenvalue; those below {cut.threshold / (cut.scale or 1.0):.0e} of the largest are not "
        "counted here."
    )


def linear_formula(network: NetworkCurvature) -> str:
    """The rank of the network without activations as a comparison, where no theorem covers the network itself."""
    if network.prediction is None or network.prediction.loss.kind != "numerical":
        return ""
    part, formula = network["loss"], network.prediction.loss.value
    none = "No theorem covers the ranks of this network"
    if formula >= part.rank:
        return f"{none}; the rank of H_L is at most that of a linear network of this shape, {formula:,}."
    magnitudes = np.sort(np.abs(part.spectrum.eigenvalues))[::-1]
    covered = float(magnitudes[:formula].sum() / magnitudes.sum())
    share = f"{covered:.2%}" if covered < _NEARLY_ALL else f"over {_NEARLY_ALL:.2%}"
    return (
        f"{none}; a linear one of this shape has rank {formula:,}, and here the {formula:,} largest eigenvalues carry "
        f"{share} of the curvature (sum of magnitudes)."
    )
