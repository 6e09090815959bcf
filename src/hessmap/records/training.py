"""Records of a training run and of the data sets on this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
from hessmap.records.record import Record

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRun(Record):
    """What was recorded along a training: one entry per recorded moment, the first before any step.

    ``moments`` counts epochs (or iterations, for a method without epochs). ``loss`` is the mean over all training
    samples without any penalty; ``gradient_norm`` is the Euclidean norm of the gradient of what was minimised, the
    penalty included; ``accuracy`` is empty unless the targets are labels. ``converged`` says whether the goal of
    the training was reached (None if it had none but its length), ``ending`` says in words why it stopped.
    """

    moments: NDArray[np.int64]
    loss: Floats
    accuracy: Floats
    gradient_norm: Floats
    converged: bool | None
    ending: str
    settings: dict[str, object]
    seconds: float = field(default=0.0, compare=False)
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "num_moments",
        "final_loss",
        "final_accuracy",
        "final_gradient_norm",
        "converged",
        "ending",
    )

    @property
    def num_moments(self) -> int:
        return int(self.moments[-1])

    @property
    def final_loss(self) -> float:
        return float(self.loss[-1])

    @property
    def final_accuracy(self) -> float | None:
        return float(self.accuracy[-1]) if self.accuracy.size else None

    @property
    def final_gradient_norm(self) -> float:
        return float(self.gradient_norm[-1])


@dataclass(frozen=True, eq=False, repr=False)
class DataSetStatus(Record):
    """One data set: what it holds, whether all its files were found, where, and where they can be had.

    ``image_shape`` is (channels, height, width); ``folder`` is where the files are, or where they are wanted.
    ``is_original`` tells whether the unpacked content is that of the published files; None if not verified.
    """

    name: str
    is_present: bool
    folder: str
    num_train: int
    num_test: int
    image_shape: tuple[int, ...]
    num_classes: int
    files: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    num_bytes: int = 0
    source: str = ""
    is_original: bool | None = None
    summary_fields: ClassVar[tuple[str, ...]] = (
        "name",
        "is_present",
        "folder",
        "num_train",
        "num_test",
        "image_shape",
        "num_bytes",
        "missing",
    )
