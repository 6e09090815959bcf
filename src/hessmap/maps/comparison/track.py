"""What to make of a track of curvature, in sentences: each is true or absent."""

from __future__ import annotations

from hessmap.records import CurvatureTrack, TrackPoint

_CLEAR = 2.0  # standard errors by which two traces must differ to be called different


def track_summary(track: CurvatureTrack) -> tuple[str, ...]:
    """The findings of a track in words, most important first.

    Args:
        track: The track.

    Returns:
        tuple[str, ...]: The sentences; one that states that nothing was measured yet if the track is empty.
    """
    if not track.points:
        return ("Nothing was measured yet.",)
    sentences = (
        _risk_sentence(track.points),
        _sharpness_sentence(track.points),
        _edge_sentence(track),
        _trace_sentence(track.points),
        _overlap_sentence(track.points),
        _gaps_sentence(track),
        _doubt_sentence(track.points),
        _cost_sentence(track),
    )
    return tuple(text for text in sentences if text)


def _change_text(old: float, new: float) -> str:
    if old == new:
        return f"stayed at {old:.3g}"
    return f"{'fell' if new < old else 'rose'} from {old:.3g} to {new:.3g}"


def _risk_sentence(points: tuple[TrackPoint, ...]) -> str:
    first, last = points[0], points[-1]
    if len(points) == 1:
        return f"At step {first.step:,} the risk is {first.risk:.3g}; a track needs another point."
    return f"From step {first.step:,} to {last.step:,} the risk {_change_text(first.risk, last.risk)}."


def _sharpness_sentence(points: tuple[TrackPoint, ...]) -> str:
    values = {point.step: point.sharpness for point in points if point.sharpness is not None}
    if len(values) < 2:
        return ""
    steps = list(values)
    sharpest = max(steps, key=lambda step: values[step] or 0.0)
    change = f"The sharpness (largest eigenvalue) {_change_text(values[steps[0]] or 0.0, values[steps[-1]] or 0.0)}"
    if sharpest in (steps[0], steps[-1]):
        return f"{change}."
    return f"{change}; it was largest, {values[sharpest]:.3g}, at step {sharpest:,}."


def _edge_sentence(track: CurvatureTrack) -> str:
    """Where the sharpness that the optimiser meets passed its stability threshold."""
    having = [point for point in track.points if point.stability_ratio is not None]
    if not having:
        return ""
    report = having[-1].step_report
    assert report is not None
    assert report.stability_threshold is not None
    line = f"the stability threshold of {report.optimizer}, {report.threshold_formula}"
    line += f" ({report.stability_threshold.value:.6g} at step {having[-1].step:,})"
    if not track.crossings:
        closest = max(point.stability_ratio or 0.0 for point in having)
        return f"The preconditioned sharpness stays below {line}; it comes to {closest:.0%} of it."
    above = sum(1 for point in having if (point.stability_ratio or 0.0) >= 1)
    rises = [step for step, is_above in track.crossings if is_above]
    more = "" if len(rises) == 1 else f" and {len(rises) - 1} more time{'s' if len(rises) > 2 else ''}"
    first = f"At step {rises[0]:,}{more} the preconditioned sharpness rises above {line}"
    return f"{first}: at {above} of {len(having)} points a step is unstable along the sharpest direction."


def _trace_sentence(points: tuple[TrackPoint, ...]) -> str:
    traces = [point.trace for point in points if point.trace is not None]
    if len(traces) < 2:
        return ""
    first, last = traces[0], traces[-1]
    doubt = (first.standard_error**2 + last.standard_error**2) ** 0.5
    values = f"from {first.with_error} to {last.with_error}"
    if abs(last.value - first.value) <= _CLEAR * doubt:
        return f"The trace went {values}, which is within the doubt of the estimates."
    return f"The trace {'fell' if last.value < first.value else 'rose'} {values}."


def _overlap_sentence(points: tuple[TrackPoint, ...]) -> str:
    last = points[-1].gradient_overlap
    if last is None:
        return ""
    return (
        f"At the end {last.value:.0%} of the gradient (of its squared norm) lies along the {last.num_vectors} sharpest "
        f"directions; of a random vector it would be {last.chance:.2g}."
    )


def _gaps_sentence(track: CurvatureTrack) -> str:
    if not track.gaps:
        return ""
    named = ", ".join(f"{left:,} and {right:,}" for left, right in track.gaps[:3]) + (", .." if track.gaps[3:] else "")
    return f"Nothing was measured between steps {named}: what is said of the track is about its points alone."


def _doubt_sentence(points: tuple[TrackPoint, ...]) -> str:
    open_steps = [point.step for point in points if not point.converged]
    if not open_steps:
        return ""
    named = ", ".join(f"{step:,}" for step in open_steps[:5]) + (", .." if len(open_steps) > 5 else "")
    return f"At {len(open_steps)} of {len(points)} points (steps {named}) the eigenvalues have not converged."


def _cost_sentence(track: CurvatureTrack) -> str:
    products = sum(point.num_products for point in track.points)
    work = f"{track.num_points} points, {products:,} Hessian products"
    if track.share is None:
        return f"Measuring took {track.spent:.3g} s: {work}."
    kept = "" if track.share_reached <= track.share else ", more: the training was too short to pay for its points"
    reached = f"Measuring took {track.share_reached:.1%} of {track.seconds:.3g} s; {track.share:.0%} was allowed{kept}"
    return f"{reached}. {work[0].upper()}{work[1:]}."
