"""What to make of a map of curvature, in sentences: each is true or absent."""

from __future__ import annotations

import numpy as np

from hessmap.results.maps import NetworkCurvature, PartCurvature

_SYMBOLS = {"outer_product": "H_o", "functional": "H_f", "loss": "H_L"}
# A gradient below this fraction of the norm of H_L marks a point that may be stationary: weights trained that
# far are not generic, and the formulas need not hold.
_NEARLY_STATIONARY = 1e-6


def verdicts(network: NetworkCurvature, twin: NetworkCurvature | None) -> tuple[str, ...]:
    """The sentences of a map, most important first."""
    sentences = [held_against_theory(twin) if twin is not None else ""]
    sentences += [held_against_theory(network), bulk(network), curvature_sign(network)]
    sentences += [heaviest_layer(network), effective_dimension(network)]
    return tuple(text for text in sentences if text)


def held_against_theory(network: NetworkCurvature) -> str:
    """Whether every measured rank is what a theorem says of it; empty where no theorem speaks."""
    held = [part for part in network.parts if part.agrees is not None and part.prediction is not None]
    if not held:
        return ""
    broken = [part for part in held if not part.agrees]
    if not broken:
        ranks = ", ".join(f"{_SYMBOLS[part.part]} {part.rank:,}" for part in held)
        is_exact = all(part.prediction is not None and part.prediction.kind == "exact" for part in held)
        gap = min(part.measurement.gap for part in held)
        return (
            f"The {network.name} obeys the theorem: the measured ranks ({ranks} of "
            f"{network.num_parameters:,}) are {'equal to' if is_exact else 'within'} the predicted ones, "
            f"with a gap of at least {gap:.1e} at every cut."
        )
    texts = [
        f"{_SYMBOLS[part.part]} has rank {part.rank:,}, predicted {part.prediction.value:,}"
        for part in broken
        if part.prediction is not None
    ]
    return f"The {network.name} departs from the theorem: {'; '.join(texts)}. {_why_it_departs(network)}"


def _why_it_departs(network: NetworkCurvature) -> str:
    """The likely cause of a disagreement, from what was measured."""
    unclear = [part.measurement for part in network.parts if not part.measurement.decidable]
    if unclear:
        return "Its spectrum has no clear cut there, so that the measured rank depends on the threshold."
    if network.gradient_norm <= _NEARLY_STATIONARY * network["loss"].measurement.scale:
        return "Its gradient is nearly zero, and the theorem is about generic weights."
    return "The theorem is about generic weights: products of consecutive weight matrices of maximal rank."


def bulk(network: NetworkCurvature) -> str:
    """How well the linear formula describes the bulk of a non-linear network."""
    part = network["loss"]
    if part.prediction is None or part.prediction.kind != "numerical":
        return ""
    magnitudes = np.sort(np.abs(part.spectrum.eigenvalues))[::-1]
    total = float(magnitudes.sum())
    covered = float(magnitudes[: part.prediction.value].sum()) / total if total > 0 else 1.0
    return (
        f"H_L of the {network.name} has rank {_rank(part)}; the linear formula gives "
        f"{part.prediction.value:,}, the size of the bulk: that many eigenvalues hold {covered:.3%} of the "
        "sum of all magnitudes. It is no bound for a network with activations."
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
        f"{slope}, and H_L has {negative:,} negative eigenvalues, the lowest {lowest:.1e} of its norm: "
        "not a minimum."
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


def effective_dimension(network: NetworkCurvature) -> str:
    """How many directions the data determine."""
    measured = network.effective_dimension
    return (
        f"The data determine {measured.value:,.0f} of {measured.size:,} directions: the effective dimension "
        f"of H_o at {measured.epsilon:.1e}, one over the number of samples."
    )
