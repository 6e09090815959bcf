"""What curvature is used for: an optimiser's next step, compression, loss planes, weights in an eigenbasis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import require
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


@dataclass(frozen=True, eq=False, repr=False)
class QuantisationCost(Record):
    """What rounding one layer to a bit width costs, with all other layers as they are.

    Attributes:
        bits: Bits per weight.
        step_norm: Norm of the change of the weights.
        gradient_term: g.d of the change d.
        curvature_term: d^T H d / 2, with the layer's whole block of H or with its diagonal alone.
        measured_increase: The increase of the loss; None if it was not measured.
    """

    bits: int
    step_norm: float
    gradient_term: float
    curvature_term: float
    measured_increase: float | None
    summary_fields: ClassVar[tuple[str, ...]] = ("bits", "predicted_increase", "measured_increase")

    @property
    def predicted_increase(self) -> float:
        """Second-order prediction of the increase of the loss."""
        return self.gradient_term + self.curvature_term


@dataclass(frozen=True, eq=False, repr=False)
class LayerPruning(Record):
    """What removing the weights of one layer with the lowest scores costs, with all other layers as they are.

    Attributes:
        name: Name of the weight.
        num_weights: Number of weights of the layer.
        num_removed: Number of weights set to zero.
        gradient_term: g.d of the change d, compensation included.
        curvature_term: d^T H d / 2.
        scored_increase: Sum of the scores of the removed weights, which counts no interaction between them.
        measured_increase: The increase of the loss; None if it was not measured.
    """

    name: str
    num_weights: int
    num_removed: int
    gradient_term: float
    curvature_term: float
    scored_increase: float
    measured_increase: float | None
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "num_removed", "predicted_increase", "measured_increase")

    @property
    def predicted_increase(self) -> float:
        """Second-order prediction of the increase of the loss."""
        return self.gradient_term + self.curvature_term


@dataclass(frozen=True, eq=False, repr=False)
class LayerCompression(Record):
    """The costs of compressing one layer, and the bit width that a plan gives it.

    Attributes:
        name: Name of the weight.
        num_weights: Number of weights.
        bits: Bit width in the plan.
        costs: The cost of every bit width, ascending.
        pruning: The cost of removing the weights with the lowest scores; None if it was not asked for.
    """

    name: str
    num_weights: int
    bits: int
    costs: tuple[QuantisationCost, ...]
    pruning: LayerPruning | None
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "num_weights", "bits")

    @property
    def planned_cost(self) -> QuantisationCost:
        """The cost of the bit width in the plan."""
        return next(cost for cost in self.costs if cost.bits == self.bits)


@dataclass(frozen=True, eq=False, repr=False)
class CompressionPlan(Record):
    """Bit widths of all layers under a budget, with predicted and measured costs.

    Attributes:
        layers: Every compressed layer.
        bits: The bit widths to choose from.
        mean_bits: The budget: bits per weight on average over the compressed weights.
        used_mean_bits: Mean bits of the plan.
        per: "tensor" or "channel": what shares a scale.
        prediction: "block" (the layer's whole block) or "diagonal".
        part: "loss" or "outer_product": the Hessian of the prediction.
        interactions: Whether the plan counts interactions between layers; else it is optimal for separate costs.
        risk: Loss before compression.
        gradient_norm: Norm of the gradient: above zero the gradient terms matter.
        separate_increase: Sum of the predicted increases of the layers, each with all others as they are.
        joint_increase: Second-order prediction for all layers at once, interactions between layers included.
        measured_increase: Increase of the loss with all layers quantised; None if it was not measured.
        uniform_bits: The largest single bit width within the budget.
        uniform_measured_increase: Increase of the loss with that bit width in every layer.
        sparsity: Share of each layer's weights whose removal is priced; None if it was not asked for.
        diagonal_error: Norm of the standard errors of an estimated diagonal over its own norm; 0 for an exact one,
            None if no diagonal was used.
        num_products: Products with the Hessian that the predictions took, without those of a diagonal.
        num_samples: Number of samples of the loss.
        provenance: Versions, data and notes.
    """

    layers: tuple[LayerCompression, ...]
    bits: tuple[int, ...]
    mean_bits: float
    used_mean_bits: float
    per: str
    prediction: str
    part: str
    interactions: bool
    risk: float
    gradient_norm: float
    separate_increase: float
    joint_increase: float
    measured_increase: float | None
    uniform_bits: int
    uniform_measured_increase: float | None
    sparsity: float | None
    diagonal_error: float | None
    num_products: int
    num_samples: int
    provenance: Provenance = field(compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "used_mean_bits",
        "risk",
        "separate_increase",
        "joint_increase",
        "measured_increase",
        "uniform_bits",
        "uniform_measured_increase",
    )

    @property
    def chosen_bits(self) -> dict[str, int]:
        """Bit width of every layer."""
        return {layer.name: layer.bits for layer in self.layers}

    def rank_correlation(self, bits: int | None = None) -> float:
        """Spearman correlation of predicted and measured increases.

        Args:
            bits: A bit width, compared over the layers. Default: all bit widths and layers together.

        Returns:
            The correlation.

        Raises:
            InvalidInput: If nothing was measured, there is one layer only, or ``bits`` is not one of the plan's widths.
        """
        from scipy.stats import spearmanr

        must = "bits must be one of the plan's bit widths"
        require(bits is None or bits in self.bits, must, f"got {bits}", f"They are {self.bits}")
        costs = [cost for layer in self.layers for cost in layer.costs if bits is None or cost.bits == bits]
        measured = [cost.measured_increase for cost in costs if cost.measured_increase is not None]
        require(len(measured) == len(costs), "a correlation needs measured increases", "measure=False was passed")
        require(len(self.layers) > 1, "a correlation over layers needs two of them", "the plan has one")
        return float(spearmanr([cost.predicted_increase for cost in costs], measured).statistic)

    def table(self) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]:
        """One row per layer: bits, and predicted beside measured increase for every bit width and for pruning.

        Returns:
            Column names and rows.
        """
        heads = ["layer", "weights", "bits"]
        for width in self.bits:
            heads += [f"predicted, {width} bits", f"measured, {width} bits"]
        heads += [] if self.sparsity is None else ["predicted, pruned", "measured, pruned"]
        rows = []
        for layer in self.layers:
            priced: list[QuantisationCost | LayerPruning] = [*layer.costs]
            priced += [] if layer.pruning is None else [layer.pruning]
            pairs = [(cost.predicted_increase, cost.measured_increase) for cost in priced]
            rows.append((layer.name, layer.num_weights, layer.bits, *(number for pair in pairs for number in pair)))
        return tuple(heads), tuple(rows)


@dataclass(frozen=True, eq=False, repr=False)
class PruningPlan(Record):
    """Which weights to remove, with predicted and measured costs.

    Attributes:
        method: "obd" (diagonal) or "obs" (block inverse, the other weights of the block compensate).
        sparsity: Share of the weights that are removed.
        scope: "global" (the lowest scores of all layers) or "layer" (the same share of each).
        damping: Number added to the eigenvalues of each block, relative to their mean; None for "obd".
        layers: Every layer with its own cost.
        scores: Predicted increase of the loss by removing each weight alone, over the weights of all layers in order.
        removed: Which of these weights are removed.
        parameters: All parameters of the problem after pruning, flat.
        risk: Loss before pruning.
        gradient_norm: Norm of the gradient, which the scores leave out: they assume a minimum.
        joint_increase: Second-order prediction for all layers at once, gradient term included.
        measured_increase: Increase of the loss with all layers pruned; None if it was not measured.
        diagonal_error: Norm of the standard errors of an estimated diagonal over its own norm; 0 for an exact one,
            None for "obs".
        num_samples: Number of samples of the loss.
        provenance: Versions, data and notes.
    """

    method: str
    sparsity: float
    scope: str
    damping: float | None
    layers: tuple[LayerPruning, ...]
    scores: Floats
    removed: NDArray[np.bool_]
    parameters: Floats
    risk: float
    gradient_norm: float
    joint_increase: float
    measured_increase: float | None
    diagonal_error: float | None
    num_samples: int
    provenance: Provenance = field(compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "method",
        "sparsity",
        "scope",
        "risk",
        "joint_increase",
        "measured_increase",
    )


@dataclass(frozen=True, eq=False, repr=False)
class LossBarrier(Record):
    """How far the loss between two models rises above the straight line between their losses.

    Attributes:
        height: max over the grid of L(t) - (1 - t) L(0) - t L(1), t from 0 (the problem's model) to 1 (the other one).
        position: The t of that maximum.
        start: L(0).
        end: L(1).
        spacing: Distance of the grid's points in t.
    """

    height: float
    position: float
    start: float
    end: float
    spacing: float
    summary_fields: ClassVar[tuple[str, ...]] = ("height", "position", "start", "end")


@dataclass(frozen=True, eq=False, repr=False)
class LossPlane(Record):
    """The loss at parameters + D a for coordinates a on a grid, and its quadratic model.

    The model is risk + g.Da + a^T D^T H D a / 2, with the gradient g and the Hessian H of the loss.

    Attributes:
        directions: "sharpest", "random", "models" or "vectors".
        labels: What each axis is.
        coordinates: Grid of every axis, one or two arrays.
        loss: Loss on the grid: (points,) or (points of the first axis, points of the second axis).
        quadratic: The quadratic model on the same grid; None where buffers of two models differ, because the model
            describes parameters alone.
        explained: 1 - (sum of squared differences from the quadratic model) / (sum of squared differences of the loss
            from its mean), over the finite points of the grid; 1 where the loss is quadratic, negative where a
            constant would fit better; None without a quadratic model or for a constant loss.
        gradient: D^T g.
        curvature: D^T H D.
        norms: Norm of every direction: 1 for "sharpest" and "random".
        orthogonality_error: Largest entry of |D^T D - I| for "sharpest" and "random"; None for given directions.
        barrier: Barrier towards the other model; None unless the direction is one other model.
        risk: Loss at the problem's own parameters.
        num_not_finite: Grid points whose loss is infinite or NaN.
        converged: Whether the eigenvectors of "sharpest" converged; None for other directions.
        num_samples: Number of samples of the loss.
        seed: Seed of random directions and of the eigenvectors' start.
        provenance: Versions, data and notes.
    """

    directions: str
    labels: tuple[str, ...]
    coordinates: tuple[Floats, ...]
    loss: Floats
    quadratic: Floats | None
    explained: float | None
    gradient: Floats
    curvature: Floats
    norms: Floats
    orthogonality_error: float | None
    barrier: LossBarrier | None
    risk: float
    num_not_finite: int
    converged: bool | None
    num_samples: int
    seed: int
    provenance: Provenance = field(compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("directions", "labels", "risk", "explained", "barrier")


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedWeight(Record):
    """One parameter of the layer, and its two parts, which add up to it.

    Attributes:
        name: Name of the parameter.
        kept: The part in the eigenvectors of the largest eigenvalues.
        rest: The part in all other eigenvectors.
    """

    name: str
    kept: Floats
    rest: Floats
    summary_fields: ClassVar[tuple[str, ...]] = ("name",)


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureProjection(Record):
    """The weights of a layer in the eigenbasis of their curvature, split by the mass of the eigenvalues.

    Attributes:
        layer: Name of the layer.
        curvature: "kfac", "ekfac", "best", "diagonal" or "block": what the eigenbasis is of.
        form: Form of the layer's block, as in ``KroneckerCurvature.blocks``.
        keep: Share of the mass that was asked for.
        kept_mass: Share of the sum of eigenvalues of the kept components, at least ``keep``.
        num_components: Number of components: parameters of the layer.
        num_kept: Number of kept components.
        kept_norm_share: ||kept||^2 / ||weights||^2.
        eigenvalues: Eigenvalues in descending order (products of those of both factors for a Kronecker product).
        components: The weights' components in the eigenvectors, in the same order.
        parts: Every parameter of the layer with its two parts.
        risk: Loss with the weights as they are.
        risk_of_kept: Loss with the kept part in place of the layer's weights.
        risk_of_rest: Loss with the rest in place of the layer's weights.
        num_samples: Number of samples.
        provenance: Versions, data and notes.
    """

    layer: str
    curvature: str
    form: str
    keep: float
    kept_mass: float
    num_components: int
    num_kept: int
    kept_norm_share: float
    eigenvalues: Floats
    components: Floats
    parts: tuple[ProjectedWeight, ...]
    risk: float
    risk_of_kept: float
    risk_of_rest: float
    num_samples: int
    provenance: Provenance = field(compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "layer",
        "curvature",
        "num_kept",
        "num_components",
        "kept_mass",
        "kept_norm_share",
        "risk",
        "risk_of_kept",
        "risk_of_rest",
    )
