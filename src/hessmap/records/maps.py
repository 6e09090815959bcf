"""The map of a network's curvature, the comparison of two maps, and the track of curvature along a training."""

from __future__ import annotations

import html
import math
import os
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import unknown_name
from hessmap.records.applications import StepReport
from hessmap.records.curvature import CurvatureSpread, MapWork, WholeCurvature
from hessmap.records.provenance import Provenance
from hessmap.records.ranks import Part, RankCertificate, RankMeasurement, RankPrediction, RankValue
from hessmap.records.record import Record, html_table
from hessmap.records.spectra import EffectiveDimension, GradientOverlap, SpectralEstimate, Spectrum

HESSIAN_SYMBOLS: dict[Part, str] = {"outer_product": "H_o", "functional": "H_f", "loss": "H_L"}
Floats = NDArray[np.float64]
_LONG = 3  # times the usual distance between points makes a gap


@dataclass(frozen=True, eq=False, repr=False)
class PartCurvature(Record):
    """One of the three Hessians of a network: its spectrum and its rank.

    Attributes:
        part: Which Hessian: "outer_product" (H_o, the GGN), "functional" (H_f) or "loss" (H_L, their sum).
        measurement: The numerical rank, with threshold and gap.
        spectrum: All eigenvalues.
        prediction: What a theorem, bound or conjecture claims of the rank. Default: None, as none applies.
        certificate: The rank in exact arithmetic. Default: None.
    """

    part: Part
    measurement: RankMeasurement
    spectrum: Spectrum
    prediction: RankValue | None = None
    certificate: RankCertificate | None = None
    summary_fields: ClassVar[tuple[str, ...]] = ("part", "measurement", "prediction", "certificate")

    @property
    def rank(self) -> int:
        """The certified rank where there is one, else the measured."""
        return self.measurement.value if self.certificate is None else self.certificate.value

    @property
    def agrees(self) -> bool | None:
        """Whether the claim of ``prediction`` admits the rank; None without a claim."""
        return None if self.prediction is None else self.prediction.allows(self.rank)


@dataclass(frozen=True, eq=False, repr=False)
class FactorCurvature(Record):
    """The two Kronecker factors of a layer's weight, E[x x^T] of its inputs and E[M] of its outputs.

    Attributes:
        num_classes: Number of classes c.
        input_ratio: lambda_1 / lambda_2 of E[x x^T].
        mean_alignment: Squared cosine between the first eigenvector of E[x x^T] and the mean input.
        outlier_share: Part of the sum of magnitudes of all eigenvalues of E[M] in the c - 1 largest; None if the layer
            has fewer than c outputs.
        outlier_ratio: lambda_{c-1} / lambda_c of E[M]; None as above.
        kronecker_overlap: Overlap of the c - 1 leading eigenvectors of E[M] (x) E[x x^T] with those of the weight's
            block of H_L, 1 for the same space; None if that block was not formed.
        chance: The overlap of random spaces; None as above.
    """

    num_classes: int
    input_ratio: float
    mean_alignment: float
    outlier_share: float | None
    outlier_ratio: float | None
    kronecker_overlap: float | None
    chance: float | None


@dataclass(frozen=True, eq=False, repr=False)
class LayerCurvature(Record):
    """The diagonal block of one layer in the loss Hessian, weights and biases together.

    A weight that combines query, key and value counts as three layers. Without a dense Hessian the numbers are
    estimates with the errors stated.

    Attributes:
        name: Name of the layer.
        shape: Shape of its weight, such as "30×64".
        num_parameters: Number of its parameters.
        rank: Numerical rank of the block; None if it was not formed.
        top_eigenvalue: Largest eigenvalue of the block; a lower bound if ``top_converged`` is False.
        trace: Trace of the block.
        curvature_share: The layer's part of the trace of the GGN, which is positive semi-definite, so that shares are
            in [0, 1] and sum to 1; of the trace of H_L where the network's ``shares_of`` is "loss".
        factors: Kronecker factors of the weight. Default: None; ``factors_gap`` of the network states why.
        kind: Role of the layer: "query", "mlp", "embedding", "norm", .. Default: empty.
        trace_error: Standard error of ``trace``. Defaults to 0.
        share_error: Standard error of ``curvature_share``. Defaults to 0.
        top_residual: Bound on the distance of ``top_eigenvalue`` to an eigenvalue of the block. Default: None.
        direction_share: Part of the squared norm of the network's sharpest direction in this layer. Default: None.
        top_converged: Whether ``top_eigenvalue`` is accurate to one percent. Default: None, not computed.
    """

    name: str
    shape: str
    num_parameters: int
    rank: RankMeasurement | None
    top_eigenvalue: float | None
    trace: float
    curvature_share: float
    factors: FactorCurvature | None = None
    kind: str = ""
    trace_error: float = 0.0
    share_error: float = 0.0
    top_residual: float | None = None
    direction_share: float | None = None
    top_converged: bool | None = None


@dataclass(frozen=True, eq=False, repr=False)
class DataRankMeasurement(Record):
    """The ranks of the data that rank formulas need, measured; centred and bias variants are for networks with bias.

    Attributes:
        input_rank: Rank of the inputs.
        centred_input_rank: Rank of the inputs minus their mean.
        residual_rank: Rank of the moment of residuals and inputs.
        residual_rank_with_bias: Rank of the moment of residuals and centred inputs, next to the mean residual.
        mean_residual_is_zero: Whether the mean residual vanishes.
    """

    input_rank: RankMeasurement
    centred_input_rank: RankMeasurement
    residual_rank: RankMeasurement
    residual_rank_with_bias: RankMeasurement
    mean_residual_is_zero: bool


@dataclass(frozen=True, eq=False, repr=False)
class NetworkCurvature(Record):
    """The curvature of one network on its data.

    Attributes:
        name: "network", or "network without activations".
        description: The architecture, or the name of the model's class.
        loss: Name of the loss.
        num_samples: Number of samples.
        num_parameters: Number of parameters.
        risk: The loss at the weights.
        gradient_norm: Norm of its gradient.
        parts: The Hessians that were formed: H_o and H_L, with ranks also H_f; empty if all numbers are estimates from
            products, for the ``reason`` stated.
        layers: One row per layer.
        effective_dimension: That of the GGN at one over the number of samples, as under a Gaussian prior of unit
            precision; None without dense Hessians (``whole`` has an estimate).
        data_ranks: Ranks of the data; None without ranks or if the inputs are not one tensor.
        prediction: Ranks by the formulas of theory. Default: None; ``prediction_gap`` states why.
        prediction_gap: Why there is no prediction. Default: empty.
        notes: How the numbers were computed, and which parts failed. Default: none.
        factors_gap: Why no layer has Kronecker factors. Default: empty.
        whole: The numbers of the whole network. Default: None.
        spread: How unevenly the layers are curved. Default: None.
        reason: Why no Hessian was formed. Default: empty.
        shares_of: The Hessian whose trace the shares of the layers are parts of. Defaults to "outer_product".
    """

    name: str
    description: str
    loss: str
    num_samples: int
    num_parameters: int
    risk: float
    gradient_norm: float
    parts: tuple[PartCurvature, ...]
    layers: tuple[LayerCurvature, ...]
    effective_dimension: EffectiveDimension | None
    data_ranks: DataRankMeasurement | None
    prediction: RankPrediction | None = None
    prediction_gap: str = ""
    notes: tuple[str, ...] = ()
    factors_gap: str = ""
    whole: WholeCurvature | None = None
    spread: CurvatureSpread | None = None
    reason: str = ""
    shares_of: Part = "outer_product"
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "description", "loss", "num_parameters", "risk")

    @property
    def is_dense(self) -> bool:
        """Whether its Hessians were formed."""
        return bool(self.parts)

    @property
    def has_ranks(self) -> bool:
        """Whether the ranks of all three Hessians were asked for."""
        return any(part.part == "functional" for part in self.parts)

    def table_rows(self) -> tuple[Record, ...] | None:
        return self.layers

    def __getitem__(self, part: str) -> PartCurvature:
        for candidate in self.parts:
            if candidate.part == part:
                return candidate
        raise unknown_name("part", part, [candidate.part for candidate in self.parts])


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureMap(Record):
    """A map of the curvature of a network.

    Attributes:
        title: Title of the map.
        network: The network.
        linear_counterpart: The network without activations (same weights and data), with ranks; None otherwise.
        summary: At most five findings in words.
        provenance: Versions, number format, seed and data. Default: None.
        work: The planned and the actual cost. Default: None.
    """

    title: str
    network: NetworkCurvature
    linear_counterpart: NetworkCurvature | None
    summary: tuple[str, ...]
    provenance: Provenance | None = field(default=None, compare=False)
    work: MapWork | None = None

    @property
    def networks(self) -> tuple[NetworkCurvature, ...]:
        """The network, and the network without activations if the map has it."""
        return (self.network,) if self.linear_counterpart is None else (self.network, self.linear_counterpart)

    def save_to_store(
        self, name: str | None = None, path: str | os.PathLike[str] | None = None, replace: bool = False
    ) -> str:
        """Store the map under a name: ``hessmap maps list`` and the explorer then show it.

        Args:
            name: The name. Default: the title, with a number if another map has it.
            path: The store, created if it does not exist. Default: that of the command line, ``HESSMAP_STORE`` or
                ``hessmap-runs/hessmap.sqlite`` in the working directory.
            replace: Replace a stored map of this name. Defaults to False.

        Returns:
            The name; ``hessmap.load(path, name)`` reads the map.

        Raises:
            InvalidInput: If another map has the name and ``replace`` is False.
        """
        from hessmap.records.store import DEFAULT_STORE, Store, add_map, free_name  # which stores this record

        with Store(Path(path or os.environ.get("HESSMAP_STORE") or DEFAULT_STORE), create=True) as store:
            chosen = name or free_name(store, "map", self.title)
            add_map(store, chosen, self, replace=replace)
        return chosen

    def table_rows(self) -> tuple[Record, ...] | None:
        return self.network.layers

    def rows(self) -> list[tuple[str, str]]:
        ranks = [
            (f"{network.name}, rank of the {part.part.replace('_', '-')} Hessian", rank_text(part))
            for network in self.networks
            if network.has_ranks
            for part in network.parts
        ]
        findings = [("finding", text) for text in self.summary]
        return [("title", self.title), *whole_of(self.network).rows(), *ranks, *findings]

    def __repr__(self) -> str:
        network, whole = self.network, whole_of(self.network)
        numbers = f"sharpness {whole.sharpness_text}, trace {whole.trace.with_error}"
        how = "exact" if network.is_dense else "estimated"
        return f"CurvatureMap({self.title}; {network.num_parameters:,} parameters, {how}:\n  {numbers})"

    def _repr_html_(self) -> str:
        ranks = [
            (network.name, part.part.replace("_", "-"), rank_text(part), f"{part.measurement.gap:.3g}")
            for network in self.networks
            if network.has_ranks
            for part in network.parts
        ]
        layers = (
            (
                layer.name,
                layer.shape,
                f"{layer.num_parameters:,}",
                "–" if layer.top_eigenvalue is None else f"{layer.top_eigenvalue:.3g}",
                f"{layer.trace:.3g}",
                f"{layer.curvature_share:.1%}",
            )
            for layer in self.network.layers
        )
        findings = "".join(f"<li>{html.escape(text)}</li>" for text in self.summary)
        whole = html_table(("whole network", ""), whole_of(self.network).rows())
        return (
            f"<h4>{html.escape(self.title)}</h4>{whole}"
            + html_table(("layer", "shape", "parameters", "largest eigenvalue", "trace", "share of curvature"), layers)
            + (html_table(("network", "Hessian", "rank", "gap"), ranks) if ranks else "")
            + f"<ul>{findings}</ul>"
        )


def whole_of(network: NetworkCurvature) -> WholeCurvature:
    """The numbers of the whole network of a map.

    Args:
        network: The network.

    Returns:
        Its ``whole``, or one computed from its spectrum.
    """
    if network.whole is not None:
        return network.whole
    assert network.effective_dimension is not None  # which every network with a spectrum has
    return WholeCurvature.of_spectrum(network["loss"].spectrum, network.effective_dimension)


def rank_text(part: PartCurvature) -> str:
    """The rank with what it is compared with: "1,410 of 2,720 (predicted 1,410, exact)"."""
    text = f"{part.rank:,} of {part.measurement.size:,}"
    if part.certificate is not None:
        text = f"{text}, certified"
    if part.prediction is None:
        return text
    return f"{text} (predicted {part.prediction.value:,}, {part.prediction.kind_text})"


@dataclass(frozen=True, eq=False, repr=False)
class Change(Record):
    """A number before and after.

    Attributes:
        old: The number before.
        new: The number after.
        ratio: new / old; None if a value is not positive or the units differ.
        error: Standard error of the difference. Defaults to 0, as for exact numbers.
    """

    old: float
    new: float
    ratio: float | None
    error: float = 0.0

    @property
    def is_unchanged(self) -> bool:
        return self.old == self.new

    @property
    def is_within_error(self) -> bool:
        """Whether two estimates differ by no more than two standard errors: nothing may have changed."""
        return self.error > 0 and abs(self.new - self.old) <= 2 * self.error


def change(old: float, new: float, same_units: bool = True, errors: tuple[float, float] = (0.0, 0.0)) -> Change:
    """Compare two numbers, given their standard errors.

    Args:
        old: The number before.
        new: The number after.
        same_units: Whether the ratio of the two makes sense. Defaults to True.
        errors: Standard errors of ``old`` and ``new``. Defaults to 0, as for exact numbers.

    Returns:
        The change, with a ratio if both numbers are positive and finite.

    Example:
        >>> change(2.0, 3.0).ratio, change(-1.0, 1.0).ratio, change(0.0, 1.0).ratio
        (1.5, None, None)
        >>> change(2.0, 3.0, errors=(0.3, 0.4)).is_within_error
        True
    """
    has_ratio = same_units and 0 < old < math.inf and 0 < new < math.inf
    return Change(old, new, new / old if has_ratio else None, math.hypot(*errors))


@dataclass(frozen=True, eq=False, repr=False)
class MapIdentity(Record):
    """Which map is meant, and what it was made of.

    Attributes:
        name: Name of the map.
        description: The network.
        loss: Name of the loss.
        num_samples: Number of samples.
        num_parameters: Number of parameters.
        data_hash: Hash of the data; empty if unknown.
        created: Time of its making (UTC).
    """

    name: str
    description: str
    loss: str
    num_samples: int
    num_parameters: int
    data_hash: str
    created: str

    @property
    def brief(self) -> str:
        return repr(self.name)


@dataclass(frozen=True, eq=False, repr=False)
class PartChange(Record):
    """Rank and spectral norm of one of the three Hessians before and after.

    Attributes:
        part: The Hessian.
        rank: Its rank (certified if it was).
        norm: Its spectral norm.
        is_decidable: Whether both ranks are certified or have a clear gap.
    """

    part: Part
    rank: Change
    norm: Change
    is_decidable: bool


@dataclass(frozen=True, eq=False, repr=False)
class FactorChange(Record):
    """The Kronecker factors of one layer before and after.

    Attributes:
        num_classes: Number of classes c.
        input_ratio: lambda_1 / lambda_2 of E[x x^T].
        outlier_share: Part of E[M] in its c - 1 largest eigenvalues; None if the layer has fewer outputs than classes.
        kronecker_overlap: Overlap of the top eigenvectors with those of the block; None if one map does not have it.
    """

    num_classes: int
    input_ratio: Change
    outlier_share: Change | None
    kronecker_overlap: Change | None


@dataclass(frozen=True, eq=False, repr=False)
class LayerChange(Record):
    """The block of one layer before and after, and the layer's share of the curvature.

    Attributes:
        name: Name of the layer.
        shape: Shape of its weight.
        num_parameters: Number of its parameters.
        rank: Rank of the block; None if one map has no ranks.
        top_eigenvalue: Largest eigenvalue of the block; None if one map does not have it.
        trace: Trace of the block.
        curvature_share: Share of the curvature.
        is_decidable: Whether both ranks have a clear gap.
        factors: Kronecker factors. Default: None, as one map has none.
    """

    name: str
    shape: str
    num_parameters: int
    rank: Change | None
    top_eigenvalue: Change | None
    trace: Change
    curvature_share: Change
    is_decidable: bool
    factors: FactorChange | None = None


@dataclass(frozen=True, eq=False, repr=False)
class MapComparison(Record):
    """The changes from one map to another.

    Attributes:
        old: The first map.
        new: The second map.
        risk: The loss.
        gradient_norm: Norm of the gradient.
        effective_dimension: Effective dimension; None if the numbers of samples, and so its scale, differ.
        parts: The three Hessians; empty unless both maps have ranks.
        layers: The layers that both have, equal in name and shape.
        caveats: What differs besides the weights, and what therefore cannot be compared; empty for two checkpoints of
            one model.
        summary: The main changes in words.
        sharpness: Largest eigenvalue of the loss Hessian. Default: None.
        trace: Trace of the loss Hessian. Default: None.
        negative_share: Share of negative curvature. Default: None.
    """

    old: MapIdentity
    new: MapIdentity
    risk: Change
    gradient_norm: Change
    effective_dimension: Change | None
    parts: tuple[PartChange, ...]
    layers: tuple[LayerChange, ...]
    caveats: tuple[str, ...]
    summary: tuple[str, ...]
    sharpness: Change | None = None
    trace: Change | None = None
    negative_share: Change | None = None
    summary_fields: ClassVar[tuple[str, ...]] = ("old", "new", "caveats", "summary")

    def table_rows(self) -> tuple[Record, ...] | None:
        return self.layers


@dataclass(frozen=True, eq=False, repr=False)
class TrackPoint(Record):
    """The measurements of a network at one step of its training.

    Attributes:
        step: Step of the training.
        risk: Loss on the tracked data, including the l2 penalty of the problem.
        gradient_norm: Euclidean norm of the gradient of ``risk``.
        eigenvalues: Largest eigenvalues of the Hessian, in descending order; empty if they were not requested.
        residuals: ||H v - lambda v|| of each eigenpair.
        converged: Whether all eigenpairs converged; True if none were requested.
        trace: Estimate of the trace; None if it was not requested.
        gradient_overlap: Share of the gradient in the leading eigenvectors; None if it was not requested.
        learning_rate: Learning rate at this step; None if unknown.
        num_products: Matrix-vector products that the point took.
        is_warm: Whether the iteration started from the eigenvectors of an earlier point.
        weights_hash: Hash of parameters and buffers.
        seconds: Seconds of training up to this point, earlier measurements included.
        cost: Seconds that this point took.
        spent: Seconds that all points up to and including this one took.
        step_report: Report of the optimiser's next step. Default: None, the tracker has no optimiser.
    """

    step: int
    risk: float
    gradient_norm: float
    eigenvalues: Floats
    residuals: Floats
    converged: bool
    trace: SpectralEstimate | None
    gradient_overlap: GradientOverlap | None
    learning_rate: float | None
    num_products: int
    is_warm: bool
    weights_hash: str
    seconds: float = field(compare=False)
    cost: float = field(compare=False)
    spent: float = field(compare=False)
    step_report: StepReport | None = None
    frame_properties: ClassVar[tuple[str, ...]] = ("sharpness", "stability_ratio")
    summary_fields: ClassVar[tuple[str, ...]] = ("step", "risk", "sharpness", "trace", "num_products", "cost")

    @property
    def sharpness(self) -> float | None:
        """The largest eigenvalue; None where no eigenvalue was asked for."""
        return float(self.eigenvalues[0]) if self.eigenvalues.size else None

    @property
    def largest_stable_step(self) -> float | None:
        """2 / sharpness: a larger step of gradient descent grows along the sharpest direction."""
        if self.sharpness is None:
            return None
        return 2 / self.sharpness if self.sharpness > 0 else inf

    @property
    def stability_ratio(self) -> float | None:
        """The preconditioned sharpness over the stability threshold of the optimiser in use; None without one."""
        return None if self.step_report is None else self.step_report.stability_ratio

    @property
    def sharpness_threshold(self) -> float | None:
        """The stability threshold, where it applies to the plain sharpness: the preconditioner of the step is 1."""
        report = self.step_report
        if report is None or report.stability_threshold is None or report.preconditioned_sharpness is None:
            return None
        return report.stability_threshold.value if report.preconditioned_sharpness.value == self.sharpness else None


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureTrack(Record):
    """The points of one training in the order of their steps, and how they were measured.

    Attributes:
        name: Name of the track in its store.
        network: Description of the network.
        loss: Name of the loss.
        part: The Hessian: "loss", "outer_product" or "functional".
        num_parameters: Number of parameters.
        num_samples: Number of samples that are measured on.
        data_hash: Fingerprint of these samples, independent of their order.
        share: Largest part of the time that measuring may take; None for no limit.
        seconds: Seconds of training that were tracked, measurements included.
        spent: Seconds of them that measurements took.
        settings: Settings of the measurements and of the problem (l2, parameters, number format, available samples).
        points: The points.
        provenance: Versions, number format, seed and data. Default: None, as for a track loaded from a store.
    """

    name: str
    network: str
    loss: str
    part: Part
    num_parameters: int
    num_samples: int
    data_hash: str
    share: float | None
    seconds: float = field(compare=False)
    spent: float = field(compare=False)
    settings: dict[str, object]
    points: tuple[TrackPoint, ...]
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "network", "loss", "num_points", "share_reached")

    @property
    def num_points(self) -> int:
        return len(self.points)

    @property
    def share_reached(self) -> float:
        """The part of the time that went into measuring."""
        return self.spent / self.seconds if self.seconds > 0 else 0.0

    @property
    def gaps(self) -> tuple[tuple[int, int], ...]:
        """Neighbouring steps more than three times as far apart as usual: nothing is known of what lies between."""
        steps = [point.step for point in self.points]
        distances = sorted(right - left for left, right in pairwise(steps))
        if len(distances) < 2:
            return ()
        usual = distances[(len(distances) - 1) // 2]
        return tuple((left, right) for left, right in pairwise(steps) if right - left > _LONG * usual)

    @property
    def crossings(self) -> tuple[tuple[int, bool], ...]:
        """Points at which the preconditioned sharpness first is on the other side of the stability threshold: the step,
        and whether it is above. A track that begins above has its first point among them."""
        found: list[tuple[int, bool]] = []
        is_above = False
        for point in self.points:
            if point.stability_ratio is not None and (point.stability_ratio >= 1) != is_above:
                is_above = not is_above
                found.append((point.step, is_above))
        return tuple(found)

    def column(self, name: str) -> Floats:
        """One number of every point, nan where a point has none: "risk", "sharpness", "trace", "gradient_overlap", or a
        quantity of its step report, as "preconditioned_sharpness" and "stability_threshold"."""
        values = [
            getattr(point, name) if hasattr(point, name) else getattr(point.step_report, name, None)
            for point in self.points
        ]
        return np.array([np.nan if value is None else getattr(value, "value", value) for value in values], dtype=float)
