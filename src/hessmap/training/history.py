"""What is recorded while a model is trained."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Evaluation(NamedTuple):
    """Mean loss without penalty, share of right labels (None without labels), gradient norm with penalty."""

    loss: float
    accuracy: float | None
    gradient_norm: float


class Moment(NamedTuple):
    """What a progress callback is told: how much is done, of how much at most, and how the model does.

    ``done`` and ``total`` count epochs, or evaluations for a method without epochs.
    """

    done: int
    total: int
    evaluation: Evaluation


History = list[tuple[int, Evaluation]]


def history_arrays(history: History) -> dict[str, Any]:
    """The arrays of a TrainingRun.

    >>> history_arrays([(0, Evaluation(2.5, None, 0.1))])["loss"]
    array([2.5])
    """
    accuracies = [evaluation.accuracy for _, evaluation in history if evaluation.accuracy is not None]
    return {
        "moments": np.array([moment for moment, _ in history], dtype=np.int64),
        "loss": np.array([evaluation.loss for _, evaluation in history]),
        "accuracy": np.array(accuracies, dtype=np.float64),
        "gradient_norm": np.array([evaluation.gradient_norm for _, evaluation in history]),
    }
