"""Frozen records that carry their own doubt."""

from hessmap.results.provenance import Provenance, data_hash, provenance
from hessmap.results.ranks import PARTS, Part, RankCertificate, RankMeasurement, RankPrediction, RankValue, Truth
from hessmap.results.record import Record
from hessmap.results.spectra import Spectrum

__all__ = [
    "PARTS",
    "Part",
    "Provenance",
    "RankCertificate",
    "RankMeasurement",
    "RankPrediction",
    "RankValue",
    "Record",
    "Spectrum",
    "Truth",
    "data_hash",
    "provenance",
]
