"""Points of a track as numbers by name, for the loggers that people use."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

from hessmap.records import StepQuantity, TrackPoint

Log = Callable[[dict[str, float], int], object]
_OF_POINT = ("risk", "gradient_norm", "sharpness", "trace", "gradient_overlap", "learning_rate")
_OF_STEP = (
    "preconditioned_sharpness",
    "stability_threshold",
    "batch_sharpness",
    "gradient_noise_scale",
    "directional_sharpness",
    "predicted_change",
    "measured_change",
    "critical_learning_rate",
)


def logged_values(point: TrackPoint) -> dict[str, float]:
    """Compute what is logged of a point.

    Args:
        point: A point of a track.

    Returns:
        Every number that the point has, by its name below "curvature/", with "_error" for uncertainties of estimates.
    """
    found: dict[str, float] = {}
    named: dict[str, Any] = {name: getattr(point, name) for name in _OF_POINT}
    if point.step_report is not None:
        named |= {name: getattr(point.step_report, name) for name in _OF_STEP}
    for name, value in named.items():
        if value is None:
            continue
        found[f"curvature/{name}"] = float(getattr(value, "value", value))
        error = getattr(value, "standard_error", None)
        if isinstance(value, StepQuantity) and value.error_kind in ("standard_error", "bracket"):
            error = value.error
        if error:
            found[f"curvature/{name}_error"] = float(error)
    return {name: value for name, value in found.items() if isfinite(value)}


def tensorboard_log(writer: Any) -> Log:
    """Make a ``log=`` of a TensorBoard writer.

    Args:
        writer: A ``torch.utils.tensorboard.SummaryWriter``.

    Returns:
        A function of values and step. ``wandb.log`` and ``mlflow.log_metrics`` are such functions already.

    Example:
        >>> from types import SimpleNamespace
        >>> log = tensorboard_log(SimpleNamespace(add_scalar=print))
        >>> log({"curvature/sharpness": 2.5}, 10)
        curvature/sharpness 2.5 10
    """

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)

    return log
