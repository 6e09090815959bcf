"""What compressing a network costs, predicted beside measured: quantisation by layer and bit width, and pruning."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from hessmap.errors import require
from hessmap.records.provenance import Provenance
from hessmap.records.record import Record

Floats = npt.NDArray[np.float64]


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
    removed: npt.NDArray[np.bool_]
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
