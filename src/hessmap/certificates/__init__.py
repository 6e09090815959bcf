"""PAC-Bayes posteriors fitted in a curvature basis, the certificates that follow, and their verification."""

from hessmap.certificates.bases import BASES
from hessmap.certificates.certificate import Certificate
from hessmap.certificates.certify import certify
from hessmap.certificates.fit import FitDiverged
from hessmap.certificates.fit_settings import FitMoment, FitSettings
from hessmap.certificates.from_data import certify_from_data
from hessmap.certificates.split import SampleSplit
from hessmap.certificates.subject import DATA_PRIOR_GRID
from hessmap.certificates.verification import Verification
from hessmap.theory.pac_bayes import PriorGrid

__all__ = [
    "BASES",
    "DATA_PRIOR_GRID",
    "Certificate",
    "FitDiverged",
    "FitMoment",
    "FitSettings",
    "PriorGrid",
    "SampleSplit",
    "Verification",
    "certify",
    "certify_from_data",
]
