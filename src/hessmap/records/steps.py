"""A step of an optimiser, before it is taken: the curvature that it meets and the change of the loss that it makes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
from hessmap.records.record import Record
from hessmap.records.spectra import number_with_error

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class StepQuantity(Record):
    """A number with its uncertainty.

    Attributes:
        value: The number.
        error: Its error, of kind ``error_kind``.
        error_kind: "exact" (computed from hyperparameters, 0), "rounding" (of the number format or of finite
            differences), "residual" (an eigenvalue of the matrix is within it), "standard_error" (over mini-batches;
            inf for a single one) or "bracket" (half of the interval that contains the number).
        converged: False for an eigenvalue whose iteration ended early. Defaults to True.
    """

    value: float
    error: float
    error_kind: str
    converged: bool = True

    def __float__(self) -> float:
        return self.value

    @property
    def with_error(self) -> str:
        """The value for people, with the errors that are not rounding."""
        shown = self.error if self.error_kind in ("standard_error", "bracket", "residual") else 0.0
        if shown < 1e-4 * abs(self.value):
            shown = 0.0
        return f"{self.value:.3g} (one batch)" if np.isinf(shown) else number_with_error(self.value, shown)


@dataclass(frozen=True, eq=False, repr=False)
class LayerTerms(Record):
    """u^T H u of a step u, split over layers.

    Attributes:
        names: Names of the layers.
        terms: u_i^T (H u)_i of each layer i: its own term and half of every pair with another layer. They sum to
            u^T H u.
        pairs: Symmetric matrix of u_i^T H_ij u_j, whose rows sum to ``terms``; None if there are more layers than
            ``max_layers``.
        error: Rounding error of u^T H u or largest asymmetry removed from ``pairs``, whichever is larger.
    """

    names: tuple[str, ...]
    terms: Floats
    pairs: Floats | None
    error: float

    @property
    def total(self) -> float:
        """u^T H u."""
        return float(self.terms.sum())


@dataclass(frozen=True, eq=False, repr=False)
class StepReport(Record):
    """The effect of an optimiser's next step u on the loss. Quantities are None if undefined or not requested.

    Attributes:
        optimizer: Class of the optimiser.
        learning_rate: Its first positive learning rate over the parameter groups; None if no group has one, or some are
            maximised and some minimised.
        risk: Loss of the problem before the step, including its l2 penalty.
        gradient_norm: Norm of the gradient g of that loss.
        step_norm: Norm of u.
        sharpness: Largest eigenvalue of the loss Hessian H.
        preconditioned_sharpness: Largest eigenvalue of P^-1/2 (H + W) P^-1/2 with the preconditioner P of the step and
            the coupled weight decay W.
        stability_threshold: Preconditioned sharpness above which the step is unstable along its eigenvector.
        threshold_formula: Formula of the threshold, or "given"; None without a threshold.
        batch_sharpness: Mean of g^T H g / g^T g over mini-batches, each with its own gradient and Hessian.
        gradient_noise_scale: Variance of the samples' gradients over the squared norm of their mean.
        directional_sharpness: u^T H u / u^T u.
        layer_terms: u^T H u split over layers.
        first_order_change: g^T u.
        predicted_change: g^T u + u^T H u / 2.
        measured_change: Difference of the loss after and before the step.
        critical_learning_rate: Smallest learning rate found at which the step raises the loss; 0 if it does not go
            downhill.
        batch_size: Samples of the largest mini-batch; None if none was evaluated.
        num_batches: Number of mini-batches that were evaluated.
        num_samples: Number of samples of the problem, on which all quantities are measured.
        num_products: Matrix-vector products that it took.
        num_passes: Evaluations of the loss that it took.
        seed: Seed of mini-batches and start vectors.
        notes: Reasons for undefined quantities, and what was folded into P.
        provenance: Versions, number format, seed and data. Default: None.
    """

    optimizer: str
    learning_rate: float | None
    risk: float
    gradient_norm: float
    step_norm: float
    sharpness: StepQuantity | None
    preconditioned_sharpness: StepQuantity | None
    stability_threshold: StepQuantity | None
    threshold_formula: str | None
    batch_sharpness: StepQuantity | None
    gradient_noise_scale: StepQuantity | None
    directional_sharpness: StepQuantity | None
    layer_terms: LayerTerms | None
    first_order_change: StepQuantity | None
    predicted_change: StepQuantity | None
    measured_change: StepQuantity | None
    critical_learning_rate: StepQuantity | None
    batch_size: int | None
    num_batches: int
    num_samples: int
    num_products: int
    num_passes: int
    seed: int
    notes: tuple[str, ...]
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "sharpness",
        "preconditioned_sharpness",
        "stability_threshold",
        "batch_sharpness",
        "gradient_noise_scale",
        "directional_sharpness",
        "predicted_change",
        "measured_change",
        "critical_learning_rate",
    )

    @property
    def stability_ratio(self) -> float | None:
        """Preconditioned sharpness over the stability threshold: above 1 the step is unstable."""
        if self.preconditioned_sharpness is None or self.stability_threshold is None:
            return None
        return self.preconditioned_sharpness.value / self.stability_threshold.value

    @property
    def is_stable(self) -> bool | None:
        """Whether the preconditioned sharpness is below the stability threshold; None where one is undefined."""
        return None if self.stability_ratio is None else self.stability_ratio < 1

    @property
    def _sharpness_text(self) -> str:
        """The preconditioned sharpness, or the sharpness where there is none."""
        shown = self.preconditioned_sharpness or self.sharpness
        name = "preconditioned sharpness" if self.preconditioned_sharpness is not None else "sharpness"
        return "not measured" if shown is None else f"{name} {shown.with_error}"

    @property
    def _threshold_text(self) -> str:
        """The stability threshold, and the sharpness as a part of it."""
        if self.stability_threshold is None:
            return "no threshold"
        ratio = "" if self.stability_ratio is None else f" ({self.stability_ratio:.3g} of it reached)"
        return f"{self.stability_threshold.value:.6g}{ratio}"

    @property
    def _change_text(self) -> str:
        """The change of the loss."""
        predicted, measured = self.predicted_change, self.measured_change
        parts = [f"predicted {predicted.value:.3g}"] if predicted is not None else []
        parts += [f"measured {measured.value:.3g}"] if measured is not None else []
        return ", ".join(parts) or "not measured"

    def rows(self) -> list[tuple[str, str]]:
        """Every quantity with its error; "undefined" where there is none, or where it was not asked for."""
        found = [("optimizer", self.optimizer), ("learning rate", f"{self.learning_rate}")]
        for name in self.summary_fields:
            quantity: StepQuantity | None = getattr(self, name)
            found.append((name.replace("_", " "), "undefined" if quantity is None else quantity.with_error))
        return found

    def __repr__(self) -> str:
        rate = "" if self.learning_rate is None else f", lr {self.learning_rate:g}"
        first = f"StepReport({self.optimizer}{rate}: {self._sharpness_text}, threshold {self._threshold_text},"
        critical = self.critical_learning_rate
        last = "" if critical is None else f"; critical lr {critical.with_error}"
        return f"{first}\n           loss {self.risk:.4g}, change {self._change_text}{last})"
