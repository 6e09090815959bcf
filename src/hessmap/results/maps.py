"""The map of a network's curvature: three Hessians, a row per layer, and what to make of them."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from hessmap.errors import unknown_name
from hessmap.results.provenance import Provenance
from hessmap.results.ranks import Part, RankCertificate, RankMeasurement, RankPrediction, RankValue
from hessmap.results.record import Record
from hessmap.results.spectra import EffectiveDimension, Spectrum

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
        if self.prediction is None or self.prediction.relation == "close":
            return None
        if self.prediction.relation == "at_most":
            return self.rank <= self.prediction.value
        return self.rank == self.prediction.value


@dataclass(frozen=True, eq=False, repr=False)
class FactorCurvature(Record):
    """What the two factors of a layer's weight, E[x x^T] of its inputs and E[M] of its outputs, say of its curvature.

    ``input_ratio`` is lambda_1 / lambda_2 of E[x x^T], and ``mean_alignment`` the squared cosine between its first
    eigenvector and the mean input. ``outlier_share`` is the part of the sum of magnitudes of all eigenvalues of E[M],
    which may be indefinite, that the c - 1 largest hold for c classes (in older maps: of the trace), and
    ``outlier_ratio`` is lambda_{c-1} / lambda_c (both None where the layer has fewer than c outputs).
    ``kronecker_overlap`` compares the c - 1 leading eigenvectors of E[M] (x) E[x x^T] with those
    of the weight's block of H_L: 1 for the same space, ``chance`` for random ones.
    """

    num_classes: int
    input_ratio: float
    mean_alignment: float
    outlier_share: float | None
    outlier_ratio: float | None
    kronecker_overlap: float
    chance: float


@dataclass(frozen=True, eq=False, repr=False)
class LayerCurvature(Record):
    """The diagonal block of one layer, weights and biases together.

    ``rank``, ``top_eigenvalue`` and ``trace`` are those of the layer's block of the loss Hessian;
    ``curvature_share`` is the layer's part of the trace of the outer-product Hessian, which is positive
    semi-definite, so that the shares of all layers lie in [0, 1] and sum to 1. ``factors`` is None where the network
    has none (``factors_gap`` of the network says why) and in maps that are older than they.
    """

    name: str
    shape: str
    num_parameters: int
    rank: RankMeasurement
    top_eigenvalue: float
    trace: float
    curvature_share: float
    factors: FactorCurvature | None = None


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

    ``effective_dimension`` is that of the outer-product Hessian at one over the number of samples, as under a
    Gaussian prior of unit precision.
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
    effective_dimension: EffectiveDimension
    data_ranks: DataRankMeasurement | None
    prediction: RankPrediction | None = None
    prediction_gap: str = ""
    notes: tuple[str, ...] = ()
    factors_gap: str = ""
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "description", "loss", "num_parameters", "risk")

    def __getitem__(self, part: str) -> PartCurvature:
        for candidate in self.parts:
            if candidate.part == part:
                return candidate
        raise unknown_name("part", part, [candidate.part for candidate in self.parts])


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureMap(Record):
    """A network, its linear twin (same weights and data, no activations) where it has one, and verdicts."""

    title: str
    network: NetworkCurvature
    linear_twin: NetworkCurvature | None
    verdicts: tuple[str, ...]
    provenance: Provenance | None = field(default=None, compare=False)

    @property
    def networks(self) -> tuple[NetworkCurvature, ...]:
        """The network, then its linear twin if there is one."""
        return (self.network,) if self.linear_twin is None else (self.network, self.linear_twin)

    def rows(self) -> list[tuple[str, str]]:
        ranks = [
            (f"{network.name}, rank of the {part.part.replace('_', '-')} Hessian", rank_text(part))
            for network in self.networks
            for part in network.parts
        ]
        return [("title", self.title), *ranks, *(("verdict", verdict) for verdict in self.verdicts)]

    def _repr_html_(self) -> str:
        ranks = (
            (network.name, part.part.replace("_", "-"), rank_text(part), f"{part.measurement.gap:.3g}")
            for network in self.networks
            for part in network.parts
        )
        layers = (
            (
                layer.name,
                layer.shape,
                f"{layer.num_parameters:,}",
                f"{layer.rank.value:,}",
                f"{layer.top_eigenvalue:.3g}",
                f"{layer.curvature_share:.1%}",
            )
            for layer in self.network.layers
        )
        verdicts = "".join(f"<li>{html.escape(verdict)}</li>" for verdict in self.verdicts)
        return (
            f"<h4>{html.escape(self.title)}</h4><ul>{verdicts}</ul>"
            + _html_table(("network", "Hessian", "rank", "gap at the cut"), ranks)
            + _html_table(("layer", "shape", "parameters", "rank", "top eigenvalue", "share"), layers)
        )


def rank_text(part: PartCurvature) -> str:
    """The rank with what it was held against: "1,410 of 2,720 (predicted 1,410, exact)"."""
    text = f"{part.rank:,} of {part.measurement.size:,}"
    if part.certificate is not None:
        text = f"{text}, certified"
    if part.prediction is None:
        return text
    return f"{text} (predicted {part.prediction.value:,}, {part.prediction.truth})"


def _html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
