"""PAC-Bayes posteriors fitted in a curvature basis, and the certificates that follow."""

from hessmap.certificates.bases import BASES
from hessmap.certificates.certificate import Certificate
from hessmap.certificates.certify import certify
from hessmap.certificates.fit import FitDiverged
from hessmap.certificates.fit_settings import FitMoment, FitSettings

__all__ = ["BASES", "Certificate", "FitDiverged", "FitMoment", "FitSettings", "certify"]
