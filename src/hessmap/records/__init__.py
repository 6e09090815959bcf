"""Frozen records that carry their own doubt."""

from hessmap.records.costs import CostBound, RepresentationCost
from hessmap.records.datasets import DataSetStatus
from hessmap.records.effective_parameters import CountTruth, EffectiveParameters
from hessmap.records.estimates import (
    DensityEstimate,
    DiagonalEstimate,
    GradientOverlap,
    MethodChoice,
    SharpnessMeasurement,
    ShiftedSolution,
    SpectralEstimate,
)
from hessmap.records.function_layers import (
    BalanceMeasurement,
    BottleneckView,
    ClassRegions,
    DenoisingScore,
    LayerRepresentation,
)
from hessmap.records.functions import (
    FunctionRank,
    FunctionRankCertificate,
    RankInterval,
    RankRange,
    SchattenMeasurement,
)
from hessmap.records.layers import (
    AutocorrelationMeasurement,
    ClusterMeasurement,
    DecouplingMeasurement,
    KroneckerFit,
    OutlierMeasurement,
    OverlapCurve,
    OverlapSummary,
)
from hessmap.records.learning import ChainSettings, LearningCheck, LearningCoefficient, LearningCoefficientEstimate
from hessmap.records.map_comparison import Change, FactorChange, LayerChange, MapComparison, MapIdentity, PartChange
from hessmap.records.maps import CurvatureMap, FactorCurvature, LayerCurvature, NetworkCurvature, PartCurvature
from hessmap.records.provenance import Provenance, data_hash, provenance
from hessmap.records.ranks import (
    PARTS,
    DataRanks,
    Part,
    RankBounds,
    RankCertificate,
    RankMeasurement,
    RankPrediction,
    RankValue,
    Truth,
)
from hessmap.records.record import Record
from hessmap.records.spectra import (
    EffectiveDimension,
    EigenpairsMeasurement,
    LinearSolution,
    ReconstructionErrors,
    Spectrum,
    SubspaceOverlap,
)
from hessmap.records.tracks import CurvatureTrack, TrackPoint
from hessmap.records.training import TrainingRun
from hessmap.records.whole_curvature import CurvatureSpread, DensityCurve, MapWork, WholeCurvature

__all__ = [
    "PARTS",
    "AutocorrelationMeasurement",
    "BalanceMeasurement",
    "BottleneckView",
    "ChainSettings",
    "Change",
    "ClassRegions",
    "ClusterMeasurement",
    "CostBound",
    "CountTruth",
    "CurvatureMap",
    "CurvatureSpread",
    "CurvatureTrack",
    "DataRanks",
    "DataSetStatus",
    "DecouplingMeasurement",
    "DenoisingScore",
    "DensityCurve",
    "DensityEstimate",
    "DiagonalEstimate",
    "EffectiveDimension",
    "EffectiveParameters",
    "EigenpairsMeasurement",
    "FactorChange",
    "FactorCurvature",
    "FunctionRank",
    "FunctionRankCertificate",
    "GradientOverlap",
    "KroneckerFit",
    "LayerChange",
    "LayerCurvature",
    "LayerRepresentation",
    "LearningCheck",
    "LearningCoefficient",
    "LearningCoefficientEstimate",
    "LinearSolution",
    "MapComparison",
    "MapIdentity",
    "MapWork",
    "MethodChoice",
    "NetworkCurvature",
    "OutlierMeasurement",
    "OverlapCurve",
    "OverlapSummary",
    "Part",
    "PartChange",
    "PartCurvature",
    "Provenance",
    "RankBounds",
    "RankCertificate",
    "RankInterval",
    "RankMeasurement",
    "RankPrediction",
    "RankRange",
    "RankValue",
    "ReconstructionErrors",
    "Record",
    "RepresentationCost",
    "SchattenMeasurement",
    "SharpnessMeasurement",
    "ShiftedSolution",
    "SpectralEstimate",
    "Spectrum",
    "SubspaceOverlap",
    "TrackPoint",
    "TrainingRun",
    "Truth",
    "WholeCurvature",
    "data_hash",
    "provenance",
]
