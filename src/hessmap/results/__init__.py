"""Frozen records that carry their own doubt."""

from hessmap.results.costs import CostBound, RepresentationCost
from hessmap.results.datasets import DataSetStatus
from hessmap.results.effective_parameters import CountTruth, EffectiveParameters
from hessmap.results.enclosures import EigenvalueEnclosure
from hessmap.results.estimates import (
    DensityEstimate,
    DiagonalEstimate,
    GradientOverlap,
    MethodChoice,
    SharpnessMeasurement,
    ShiftedSolution,
    SpectralEstimate,
)
from hessmap.results.function_layers import (
    BalanceMeasurement,
    BottleneckView,
    ClassRegions,
    DenoisingScore,
    LayerRepresentation,
)
from hessmap.results.functions import (
    FunctionRank,
    FunctionRankCertificate,
    RankInterval,
    RankRange,
    SchattenMeasurement,
)
from hessmap.results.layers import (
    AutocorrelationMeasurement,
    ClusterMeasurement,
    DecouplingMeasurement,
    KroneckerFit,
    OutlierMeasurement,
    OverlapCurve,
    OverlapSummary,
)
from hessmap.results.learning import (
    ChainSettings,
    LearningCheck,
    LearningCoefficient,
    LearningCoefficientEstimate,
)
from hessmap.results.map_comparison import Change, FactorChange, LayerChange, MapComparison, MapIdentity, PartChange
from hessmap.results.maps import CurvatureMap, FactorCurvature, LayerCurvature, NetworkCurvature, PartCurvature
from hessmap.results.provenance import Provenance, data_hash, provenance
from hessmap.results.ranks import (
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
from hessmap.results.record import Record
from hessmap.results.spectra import (
    EffectiveDimension,
    EigenpairsMeasurement,
    LinearSolution,
    ReconstructionErrors,
    Spectrum,
    SubspaceOverlap,
)
from hessmap.results.tracks import CurvatureTrack, TrackPoint
from hessmap.results.training import TrainingRun
from hessmap.results.whole_curvature import CurvatureSpread, DensityCurve, MapWork, WholeCurvature

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
    "EigenvalueEnclosure",
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
