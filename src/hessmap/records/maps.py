"""The map of a network's curvature, and the comparison of two maps."""

from __future__ import annotations

import html
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from hessmap.errors import unknown_name
from hessmap.records.provenance import Provenance
from hessmap.records.ranks import Part, RankCertificate, RankMeasurement, RankPrediction, RankValue
from hessmap.records.record import Record, html_table
from hessmap.records.spectra import EffectiveDimension, Spectrum
from hessmap.records.whole_curvature import CurvatureSpread, MapWork, WholeCurvature

HESSIAN_SYMBOLS: dict[Part, str] = {"outer_product": "H_o", "functional": "H_f", "loss": "H_L"}


@dataclass(frozen=True, eq=False, repr=False)
class PartCurvature(Record):
    """One of the three Hessians of a network: its spectrum and measured rank, and beside them the predicted
    and the certified rank where there are such."""

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
        """Whether the rank is what a theorem or a conjecture says; None where there is none to hold it against."""
        return None if self.prediction is None else self.prediction.allows(self.rank)


@dataclass(frozen=True, eq=False, repr=False)
class FactorCurvature(Record):
    """What the two factors of a layer's weight, E[x x^T] of its inputs and E[M] of its outputs, say of its curvature.

    ``input_ratio`` is lambda_1 / lambda_2 of E[x x^T], and ``mean_alignment`` the squared cosine between its first
    eigenvector and the mean input. ``outlier_share`` is the part of the sum of magnitudes of all eigenvalues of E[M],
    which may be indefinite, that the c - 1 largest hold for c classes (in older maps: of the trace), and
    ``outlier_ratio`` is lambda_{c-1} / lambda_c (both None where the layer has fewer than c outputs).
    ``kronecker_overlap`` compares the c - 1 leading eigenvectors of E[M] (x) E[x x^T] with those
    of the weight's block of H_L: 1 for the same space, ``chance`` for random ones (both None where that block was not
    formed).
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
    """The diagonal block of one layer, weights and biases together; of one that holds query, key and value, a third.

    ``rank``, ``top_eigenvalue`` and ``trace`` are those of the layer's block of the loss Hessian;
    ``curvature_share`` is the layer's part of the trace of the outer-product Hessian, which is positive
    semi-definite, so that the shares of all layers lie in [0, 1] and sum to 1. ``factors`` is None where the network
    has none (``factors_gap`` of the network says why) and in maps that are older than they.

    Where no Hessian was formed these are estimates: ``rank`` is None, ``trace_error`` and ``share_error`` are standard
    errors, ``top_residual`` bounds how far ``top_eigenvalue`` is from an eigenvalue of the block, and ``top_converged``
    says whether that is within one percent; if not, ``top_eigenvalue`` is a lower bound (all three are None for layers
    that older maps had no time for). ``kind`` is what the layer does ("query", "mlp", "embedding", "norm", ..),
    ``direction_share`` its part of the squared norm of the sharpest direction of the whole network (None: not known).
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
    """What rank formulas need of the data, measured; centred and bias variants are for networks with bias.

    ``residual_rank`` is that of the moment of residuals and inputs, ``residual_rank_with_bias`` that of the
    moment against centred inputs with the mean residual beside it.
    """

    input_rank: RankMeasurement
    centred_input_rank: RankMeasurement
    residual_rank: RankMeasurement
    residual_rank_with_bias: RankMeasurement
    mean_residual_is_zero: bool


@dataclass(frozen=True, eq=False, repr=False)
class NetworkCurvature(Record):
    """What was measured of one network on its data, beside what was predicted.

    ``whole`` holds the numbers of the whole network, sharpness first; ``spread`` how unevenly its layers are curved.
    Both are None in maps that are older than they. ``parts`` are the three Hessians, none where they were not formed:
    ``reason`` then says why, and everything is an estimate from products.
    ``effective_dimension`` is that of the outer-product Hessian at one over the number of samples, as under a
    Gaussian prior of unit precision (None where no Hessian was formed: the whole has its estimate).
    ``data_ranks`` is None where the inputs are not one tensor.
    ``prediction`` is None where no formula covers the network; ``prediction_gap`` then says why, as ``factors_gap``
    does for layers without factors.
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
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "description", "loss", "num_parameters", "risk")

    @property
    def is_dense(self) -> bool:
        """Whether its Hessians were formed."""
        return bool(self.parts)

    def table_rows(self) -> tuple[Record, ...] | None:
        return self.layers

    def __getitem__(self, part: str) -> PartCurvature:
        for candidate in self.parts:
            if candidate.part == part:
                return candidate
        raise unknown_name("part", part, [candidate.part for candidate in self.parts])


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureMap(Record):
    """A network, its linear twin (same weights and data, no activations) where it has one, and verdicts.

    ``work`` is what was planned and what it took (None in maps that are older than it).
    """

    title: str
    network: NetworkCurvature
    linear_twin: NetworkCurvature | None
    verdicts: tuple[str, ...]
    provenance: Provenance | None = field(default=None, compare=False)
    work: MapWork | None = None

    @property
    def networks(self) -> tuple[NetworkCurvature, ...]:
        """The network, then its linear twin if there is one."""
        return (self.network,) if self.linear_twin is None else (self.network, self.linear_twin)

    def save_to_store(
        self, name: str | None = None, path: str | os.PathLike[str] | None = None, replace: bool = False
    ) -> str:
        """Store the map under a name: ``hessmap maps list`` and the explorer then show it.

        Args:
            name: The name. Default: the title, with a number if another map has it.
            path: The store, created if it does not exist. Default: that of the command line,
                ``hessmap-runs/hessmap.sqlite`` in the working directory.
            replace: Replace a stored map of this name. Defaults to False.

        Returns:
            The name; ``hessmap.load(path, name)`` reads the map.

        Raises:
            InvalidInput: If another map has the name and ``replace`` is False.
        """
        from hessmap.records.store import DEFAULT_STORE, Store, add_map, free_name  # which stores this record

        with Store(Path(path or DEFAULT_STORE), create=True) as store:
            chosen = name or free_name(store, "map", self.title)
            add_map(store, chosen, self, replace=replace)
        return chosen

    def table_rows(self) -> tuple[Record, ...] | None:
        return self.network.layers

    def rows(self) -> list[tuple[str, str]]:
        ranks = [
            (f"{network.name}, rank of the {part.part.replace('_', '-')} Hessian", rank_text(part))
            for network in self.networks
            for part in network.parts
        ]
        verdicts = [("verdict", verdict) for verdict in self.verdicts]
        return [("title", self.title), *whole_of(self.network).rows(), *ranks, *verdicts]

    def __repr__(self) -> str:
        network, whole = self.network, whole_of(self.network)
        numbers = f"sharpness {whole.sharpness.value:.4g}, trace {whole.trace.value:.4g}"
        how = "dense" if network.is_dense else "estimates"
        return f"CurvatureMap({self.title}; {network.num_parameters:,} parameters, {how}, {numbers})"

    def _repr_html_(self) -> str:
        ranks = [
            (network.name, part.part.replace("_", "-"), rank_text(part), f"{part.measurement.gap:.3g}")
            for network in self.networks
            for part in network.parts
        ]
        layers = (
            (
                layer.name,
                layer.shape,
                f"{layer.num_parameters:,}",
                "–" if layer.rank is None else f"{layer.rank.value:,}",
                "–" if layer.top_eigenvalue is None else f"{layer.top_eigenvalue:.3g}",
                f"{layer.trace:.3g}",
                f"{layer.curvature_share:.1%}",
            )
            for layer in self.network.layers
        )
        verdicts = "".join(f"<li>{html.escape(verdict)}</li>" for verdict in self.verdicts)
        whole = html_table(("whole network", ""), whole_of(self.network).rows())
        return (
            f"<h4>{html.escape(self.title)}</h4>{whole}<ul>{verdicts}</ul>"
            + (html_table(("network", "Hessian", "rank", "gap at the cut"), ranks) if ranks else "")
            + html_table(("layer", "shape", "parameters", "rank", "top eigenvalue", "trace", "share"), layers)
        )


def whole_of(network: NetworkCurvature) -> WholeCurvature:
    """The whole of a network, also of one from a map that is older than this record."""
    if network.whole is not None:
        return network.whole
    assert network.effective_dimension is not None  # maps that are so old are all of dense Hessians
    return WholeCurvature.of_spectrum(network["loss"].spectrum, network.effective_dimension)


def rank_text(part: PartCurvature) -> str:
    """The rank with what it was compared with: "1,410 of 2,720 (predicted 1,410, exact)"."""
    text = f"{part.rank:,} of {part.measurement.size:,}"
    if part.certificate is not None:
        text = f"{text}, certified"
    if part.prediction is None:
        return text
    return f"{text} (predicted {part.prediction.value:,}, {part.prediction.truth})"


@dataclass(frozen=True, eq=False, repr=False)
class Change(Record):
    """A number before and after, and the second over the first.

    ``ratio`` is None where a ratio says nothing: a value is not positive, or the two are in different units. ``error``
    is the standard error of the difference: 0 where both numbers are exact.
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
    """From one number to another, known to their standard errors.

    >>> change(2.0, 3.0).ratio, change(-1.0, 1.0).ratio, change(0.0, 1.0).ratio
    (1.5, None, None)
    >>> change(2.0, 3.0, errors=(0.3, 0.4)).is_within_error
    True
    """
    has_ratio = same_units and 0 < old < math.inf and 0 < new < math.inf
    return Change(old, new, new / old if has_ratio else None, math.hypot(*errors))


@dataclass(frozen=True, eq=False, repr=False)
class MapIdentity(Record):
    """Which map is meant, and on what it was made."""

    name: str
    description: str
    loss: str
    num_samples: int
    num_parameters: int
    data_hash: str
    created: str


@dataclass(frozen=True, eq=False, repr=False)
class PartChange(Record):
    """One of the three Hessians: its rank (certified where it was) and its spectral norm.

    ``is_decidable`` says whether both ranks are: certified, or with a clear cut.
    """

    part: Part
    rank: Change
    norm: Change
    is_decidable: bool


@dataclass(frozen=True, eq=False, repr=False)
class FactorChange(Record):
    """The factors of one layer before and after; ``outlier_share`` is None where the layer has fewer outputs than
    classes, and ``kronecker_overlap`` where one map does not know the sharpest directions of the layer."""

    num_classes: int
    input_ratio: Change
    outlier_share: Change | None
    kronecker_overlap: Change | None


@dataclass(frozen=True, eq=False, repr=False)
class LayerChange(Record):
    """The block of one layer of the loss Hessian before and after, and the layer's share of the curvature.

    ``factors`` is None where one of the two maps has none for the layer, as are ``rank`` and ``top_eigenvalue``.
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
    """What changed from an old map to a new one.

    ``layers`` holds the layers that both have, equal in name and shape. ``caveats`` says what differs between the
    two apart from the weights, and what therefore cannot be compared; it is empty for two checkpoints of one model.
    ``effective_dimension`` is None where the numbers of samples, and with them what it is measured at, differ.
    ``sharpness`` is the largest eigenvalue of the whole loss Hessian. ``parts`` are empty where one of the two maps
    was made without forming Hessians.
    """

    old: MapIdentity
    new: MapIdentity
    risk: Change
    gradient_norm: Change
    effective_dimension: Change | None
    parts: tuple[PartChange, ...]
    layers: tuple[LayerChange, ...]
    caveats: tuple[str, ...]
    verdicts: tuple[str, ...]
    sharpness: Change | None = None
    trace: Change | None = None
    negative_share: Change | None = None
    summary_fields: ClassVar[tuple[str, ...]] = ("old", "new", "caveats", "verdicts")

    def table_rows(self) -> tuple[Record, ...] | None:
        return self.layers
