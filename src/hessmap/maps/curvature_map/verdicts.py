"""What to make of a map of curvature, in sentences: each is true or absent."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from hessmap.records import HESSIAN_SYMBOLS, NetworkCurvature, PartCurvature, RankValue, share_text, whole_of

# A gradient below this fraction of the norm of H_L marks a point that may be stationary: weights trained that
# far are not generic, and the formulas need not hold.
_NEARLY_STATIONARY = 1e-6
_EVEN = 2.0  # a ratio between layers below which nothing is said of it


def verdicts(network: NetworkCurvature, twin: NetworkCurvature | None) -> tuple[str, ...]:
    """The sentences of a map, most important first."""
    of_all = (
        *(sharpness_sentence, curvature_sign_sentence, heaviest_layer_sentence),
        *(spread_sentence, effective_dimension_sentence, factors_sentence),
    )
    sentences = [sentence(network) for sentence in of_all]
    if network.is_dense:
        sentences += [agreement_sentence(twin) if twin is not None else ""]
        sentences += [agreement_sentence(network), bulk_sentence(network)]
    else:
        sentences += [no_ranks_sentence(network)]
    return tuple(text for text in sentences if text)


def sharpness_sentence(network: NetworkCurvature) -> str:
    """The largest eigenvalue of the whole network and what step it allows, and the trace."""
    whole = whole_of(network)
    found = whole.sharpness
    step = "which limits no step"
    if found.value > 0:
        up_to = "up to a step of" if found.converged else "at most up to a step of"
        step = f"so gradient descent is stable {up_to} {found.largest_stable_step:.3g}"
    elif not found.converged:
        step = "and no step is known to be unstable"
    return (
        f"The largest eigenvalue of H_L, the sharpness of the whole network, is {whole.sharpness_text}, {step}; "
        f"the trace is {whole.trace.with_error}."
    )


def agreement_sentence(network: NetworkCurvature) -> str:
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
    cut = network["loss"].measurement
    return (
        "The theorem is about generic weights, products of consecutive weight matrices of maximal rank, and counts "
        f"every curvature but zero; what is below {cut.threshold / (cut.scale or 1.0):.0e} of the largest is not "
        "counted here."
    )


def bulk_sentence(network: NetworkCurvature) -> str:
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


def curvature_sign_sentence(network: NetworkCurvature) -> str:
    """Negative curvature, and how near to stationary the point is."""
    slope = f"The gradient norm is {network.gradient_norm:.2e}"
    share = share_text(whole_of(network).negative_share)
    if not network.is_dense:
        return f"{slope}, and {share} of the curvature (sum of the magnitudes of all eigenvalues) is negative."
    part = network["loss"]
    eigenvalues = part.spectrum.eigenvalues
    negative = int((eigenvalues < -part.measurement.threshold).sum())
    if negative == 0:
        return f"{slope}, and H_L has no negative eigenvalue beyond rounding."
    lowest = float(eigenvalues.min()) / part.measurement.scale
    return (
        f"{slope}, and H_L has {negative:,} negative eigenvalues, the lowest {lowest:.1e} of its norm: not a minimum. "
        f"They hold {share} of the sum of all magnitudes."
    )


def heaviest_layer_sentence(network: NetworkCurvature) -> str:
    """The layer with the most curvature, if its share is resolved, and the one whose own block is the sharpest."""
    if len(network.layers) < 2:
        return ""
    heaviest = max(network.layers, key=lambda layer: layer.curvature_share)
    text = ""
    if heaviest.curvature_share > 2 * heaviest.share_error:
        parameters = heaviest.num_parameters / network.num_parameters
        error = f" (± {heaviest.share_error:.0%})" if heaviest.share_error >= 0.005 else ""
        text = (
            f"Layer {heaviest.name} holds {heaviest.curvature_share:.0%}{error} of the curvature with "
            f"{parameters:.0%} of the parameters; "
        )
    elif not heaviest.curvature_share:
        return ""  # no layer has any
    tops = {layer.name: layer for layer in network.layers if layer.top_eigenvalue is not None}
    if not tops:
        return f"{text.removesuffix('; ')}." if text else ""
    top = max(tops.values(), key=lambda layer: layer.top_eigenvalue or 0.0)
    where = "its own block" if text and top.name == heaviest.name else f"the block of layer {top.name}"
    value = f"{top.top_eigenvalue:.3g}" if top.top_converged is not False else f"at least {top.top_eigenvalue:.3g}"
    whole = whole_of(network).sharpness
    against = f"{whole.value:.3g}" if whole.converged else f"at least {whole.value:.3g}"
    found = "" if all(layer.top_converged is not False for layer in tops.values()) else " found"
    text += f"among single layers {where} has the largest eigenvalue{found}, {value} against {against} of the whole"
    return f"{text[0].upper()}{text[1:]}."


def spread_sentence(network: NetworkCurvature) -> str:
    """How unevenly the layers are curved."""
    found = network.spread
    if found is None or found.ratio < _EVEN:
        return ""
    return (
        f"A parameter of layer {found.most} is curved {found.ratio:.2g} times as much as one of layer {found.least} "
        f"(mean diagonal entry of H_o; standard deviation over the layers {found.log_deviation:.2g} decades)."
    )


def no_ranks_sentence(network: NetworkCurvature) -> str:
    """Why there are none."""
    return f"There are no ranks, because no dense Hessian was formed: {network.reason}."


def factors_sentence(network: NetworkCurvature) -> str:
    """Why the sharp directions of a layer are few, and whether the two factors find them."""
    known = [(layer, layer.factors) for layer in network.layers if layer.factors is not None]
    layers = [(layer.name, factors) for layer, factors in known if layer.curvature_share]
    if not layers:
        return ""
    where = _layers_in_words([name for name, _ in layers], len(network.layers))
    few = layers[0][1].num_classes - 1
    ratio = min(found.input_ratio for _, found in layers)
    shares = [found.outlier_share for _, found in layers if found.outlier_share is not None]
    text = f"In {where} the strongest direction of the inputs has at least {ratio:.3g} times the weight of the next"
    if ratio == inf:
        text = f"In {where} the inputs have a single direction"
    if shares:
        share = f"{min(shares):.0%} of all magnitudes"
        strongest = f"{few} directions of the outputs, one less than the classes, hold"
        text += f", and {strongest if few > 1 else 'one direction of the outputs holds'} at least {share}"
    overlaps = {name: found.kronecker_overlap for name, found in layers if found.kronecker_overlap is not None}
    if not overlaps:
        return f"{text}."
    worst, best = (pick(overlaps, key=lambda name: overlaps[name]) for pick in (min, max))
    overlap = f"{overlaps[worst]:.0%}"
    if len(overlaps) == 1:
        overlap += f" (layer {worst})"
    elif f"{overlaps[best]:.0%}" != overlap:
        overlap += f" (layer {worst}) to {overlaps[best]:.0%} (layer {best})"
    sharpest = f"the space of a layer's {few} sharpest" if few > 1 else "a layer's sharpest direction"
    return f"{text}. The product of both, as K-FAC uses it, finds {overlap} of {sharpest}."


def _layers_in_words(names: Sequence[str], num_layers: int) -> str:
    """Those that something is said of: all of them, or which."""
    if len(names) == num_layers:
        return "every layer"
    some = f"{len(names)} of {num_layers} layers"
    return f"layer {names[0]}" if len(names) == 1 else f"each of layers {', '.join(names)}" if len(names) < 5 else some


def effective_dimension_sentence(network: NetworkCurvature) -> str:
    """How many directions the data determine."""
    whole = whole_of(network)
    measured = whole.effective_dimension
    if measured is None:
        return f"There is no effective dimension: {whole.gap.removesuffix('.')}." if whole.gap else ""
    return (
        f"The data determine {whole.dimension_text} of {measured.size:,} directions: the effective dimension "
        f"of H_o at {whole.epsilon:.1e}, one over the number of samples."
    )
