"""PAC-Bayes posteriors fitted in a curvature basis, the certificates that follow, and their verification.

Certificates are made for an honest user with an unusual model or data set. What such a user can run into unawares is
refused or named: repeated samples, a sample in both parts, buffers or attributes that training changed, weights that
act twice or outside of the network, outputs that depend on other samples or on earlier calls. A file is bound to its
samples, its architecture and its posterior by hashes, and verification recomputes the bound. Nothing here defends
against someone who wants to deceive: who hides labels in code, writes a certificate by hand or tries seeds until one
pleases, can. Ask such a person for the code and the data, and certify yourself.
"""

from hessmap.certificates.bases import BASES
from hessmap.certificates.certificate import Certificate
from hessmap.certificates.certify import DATA_PRIOR_GRID, certify, certify_from_data
from hessmap.certificates.fit import FitDiverged, FitMoment, FitSettings
from hessmap.certificates.losses import bounded_loss
from hessmap.certificates.samples import NormalStart, SampleSplit, Task, digits_example, split_digits
from hessmap.certificates.verification import Verification
from hessmap.theory.pac_bayes import PriorGrid

__all__ = [
    "BASES",
    "DATA_PRIOR_GRID",
    "Certificate",
    "FitDiverged",
    "FitMoment",
    "FitSettings",
    "NormalStart",
    "PriorGrid",
    "SampleSplit",
    "Task",
    "Verification",
    "bounded_loss",
    "certify",
    "certify_from_data",
    "digits_example",
    "split_digits",
]
