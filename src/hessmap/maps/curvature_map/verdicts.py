"""What to make of a map of curvature, in sentences: each is true or absent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hessmap.results import RankValue
from hessmap.results.maps import HESSIAN_SYMBOLS, NetworkCurvature, PartCurvature

# A gradient below this fraction of the norm of H_L marks a point that may be stationary: weights trained that
# far are not generic, and the formulas need not hold.
_NEARLY_STATIONARY = 1e-6


def verdicts(network: NetworkCurvature, twin: NetworkCurvature | None) -> tuple[str, ...]:
    """The sentences of a map, most important first."""
    sentences = [agreement_with_theory(twin) if twin is not None else ""]
    sentences += [agreement_with_theory(network), bulk(network), curvature_sign(network)]
    sentences += [heaviest_layer(network), factors(network), effective_dimension(network)]
    return tuple(text for text in sentences if text)


def agreement_with_theory(network: NetworkCurvature) -> str:
    """Whether every rank is what a theorem or a conjecture says of it; empty where neither speaks."""
    spoken_of = [part for part in network.parts if part.agrees is not None]
    judged = [(part, part.prediction) for part in spoken_of if part.prediction is not None]
    if not judged:
        return ""
    departing = [(part, prediction) for part, prediction in judged if not part.agrees]
    if departing:
        texts = [f"{HESSIAN_SYMBOLS[part.part]} has rank {part.rank:,}, {_claim(claim)}" for part, claim in departing]
        claims = [claim for _, claim in departing]
        why = _why_it_departs(network, claims)
        return f"The {network.name} departs from the {_sources(claims)}: {'; '.join(texts)}. {why}"
    ranks = ", ".join(f"{HESSIAN_SYMBOLS[part.part]} {part.rank:,}" for part, _ in judged)
    has_bounds = any(claim.relation == "at_most" for _, claim in judged)
    return (
        f"The {network.name} obeys the {_sources([claim for _, claim in judged])}: its ranks ({ranks} of "
        f"{network.num_parameters:,}) are {'within the bounds' if has_bounds else 'the predicted ones'}, "
        f"{_why_to_believe([part for part, _ in judged])}."
    )


def _claim(prediction: RankValue) -> str:
    word = "conjectured" if prediction.kind == "conjecture" else "predicted"
    return f"{word}{' to be at most' if prediction.relation == 'at_most' else ''} {prediction.value:,}"


def _sources(predictions: Sequence[RankValue]) -> str:
    """Whether theorems speak, or conjectures, or both."""
    is_conjecture = {prediction.kind == "conjecture" for prediction in predictions}
    if is_conjecture == {True}:
        return "conjecture"
    return "theorem" if is_conjecture == {False} else "theorem and the conjecture"


def _why_to_believe(judged: Sequence[PartCurvature]) -> str:
    doubtful = [part for part in judged if not part.measurement.decidable]
    if not doubtful:
        return f"with a gap of at least {min(part.measurement.gap for part in judged):.1e} at every cut"
    if all(part.certificate is not None for part in doubtful):
        return "by exact arithmetic where the spectrum has no clear cut"
    return "though not every cut is clear"


def _why_it_departs(network: NetworkCurvature, predictions: Sequence[RankValue]) -> str:
    """The likely cause of a disagreement, from what was measured."""
    if any(not part.measurement.decidable and part.certificate is None for part in network.parts):
        return "Its spectrum has no clear cut there, so that the measured rank depends on the threshold."
    if network.gradient_norm <= _NEARLY_STATIONARY * network["loss"].measurement.scale:
        return "Its gradient is nearly zero, and what is predicted is about generic weights."
    tried = [prediction.num_cases for prediction in predictions if prediction.num_cases is not None]
    if len(tried) == len(predictions):
        before = f"the first after {min(tried):,} networks without one"
        return f"Unless its weights are special, it is a counterexample of the conjecture, {before}."
    return "The theorem is about generic weights: products of consecutive weight matrices of maximal rank."


def bulk(network: NetworkCurvature) -> str:
    """How well the linear formula describes the bulk of a non-linear network."""
    part = network["loss"]
    if part.prediction is None or part.prediction.kind != "numerical":
        return ""
    formula = part.prediction.value
    rank = f"H_L of the {network.name} has rank {_rank(part)}"
    if formula >= part.rank:
        return f"{rank}; the linear formula, {formula:,}, the size of a bulk and no bound, is not exceeded."
    magnitudes = np.sort(np.abs(part.spectrum.eigenvalues))[::-1]
    covered = float(magnitudes[:formula].sum() / magnitudes.sum())
    return (
        f"{rank}; the linear formula gives {formula:,}, the size of the bulk: that many eigenvalues hold "
        f"{covered:.3%} of the sum of all magnitudes. It is no bound for a network with activations."
    )


def _rank(part: PartCurvature) -> str:
    """The rank with what makes it believable: a certificate, a gap, or nothing."""
    trust = f"gap {part.measurement.gap:.1e}" if part.measurement.decidable else "no clear cut"
    if part.certificate is not None:
        trust = f"certified, wrong with probability {part.certificate.failure_bound:.0e} at most"
    return f"{part.rank:,} of {part.measurement.size:,} ({trust})"


def curvature_sign(network: NetworkCurvature) -> str:
    """Negative curvature, and how near to stationary the point is."""
    part = network["loss"]
    eigenvalues = part.spectrum.eigenvalues
    negative = int((eigenvalues < -part.measurement.threshold).sum())
    slope = f"The gradient norm is {network.gradient_norm:.2e}"
    if negative == 0:
        return f"{slope}, and H_L has no negative eigenvalue beyond rounding."
    lowest = float(eigenvalues.min()) / part.measurement.scale
    return (
        f"{slope}, and H_L has {negative:,} negative eigenvalues, the lowest {lowest:.1e} of its norm: not a minimum."
    )


def heaviest_layer(network: NetworkCurvature) -> str:
    """The layer with the most curvature, and the sharpest one."""
    if len(network.layers) < 2:
        return ""
    heaviest = max(network.layers, key=lambda layer: layer.curvature_share)
    sharpest = max(network.layers, key=lambda layer: layer.top_eigenvalue)
    parameters = heaviest.num_parameters / network.num_parameters
    also = "it is also the sharpest" if sharpest is heaviest else f"the sharpest is layer {sharpest.name}"
    return (
        f"Layer {heaviest.name} holds {heaviest.curvature_share:.0%} of the curvature with {parameters:.0%} "
        f"of the parameters; {also} (top eigenvalue {sharpest.top_eigenvalue:.3g})."
    )


def factors(network: NetworkCurvature) -> str:
    """Why the sharp directions of a layer are few, and whether the two factors find them."""
    layers = [(layer.name, layer.factors) for layer in network.layers if layer.factors is not None]
    if not layers:
        return ""
    few = layers[0][1].num_classes - 1
    ratio = min(found.input_ratio for _, found in layers)
    shares = [found.outlier_share for _, found in layers if found.outlier_share is not None]
    text = f"In every layer the strongest direction of the inputs has at least {ratio:.3g} times the weight of the next"
    if shares:
        share = f"{min(shares):.0%} of all magnitudes"
        text += f", and {few} directions of the outputs, one less than the classes, hold at least {share}"
    worst, best = (pick(layers, key=lambda layer: layer[1].kronecker_overlap) for pick in (min, max))
    overlap = f"{worst[1].kronecker_overlap:.0%} (layer {worst[0]})"
    if len(layers) > 1:
        overlap += f" to {best[1].kronecker_overlap:.0%} (layer {best[0]})"
    return f"{text}. The product of both, as K-FAC uses it, finds {overlap} of the space of a layer's {few} sharpest."


def effective_dimension(network: NetworkCurvature) -> str:
    """How many directions the data determine."""
    measured = network.effective_dimension
    return (
        f"The data determine {measured.value:,.0f} of {measured.size:,} directions: the effective dimension "
        f"of H_o at {measured.epsilon:.1e}, one over the number of samples."
    )
