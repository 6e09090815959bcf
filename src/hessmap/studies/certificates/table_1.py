"""The bounds of Table 1 on MNIST, 0-4 against 5-9: the paper's networks in every basis."""

from __future__ import annotations

from hessmap.studies import Study
from hessmap.studies.certificates.certificate_record import measure
from hessmap.studies.certificates.published_table import TABLE_VIEW, table_cases, table_findings

# T-100 is not in the paper: small enough for anybody to try. T-600 has the longest fit, to see what patience buys.
_ITERATIONS = {"T-100": 6000, "T-600": 12_000, "T-300^2": 6000, "T-1200": 6000, "T-600^2": 6000, "R-600": 6000}
_SECONDS = {"T-100": 45, "T-600": 300, "T-300^2": 100, "T-1200": 230, "T-600^2": 220, "R-600": 130}

STUDY = Study(
    name="certificates/table-1",
    question="How tight are certificates of the paper's networks on MNIST, and in which basis?",
    reference="Wu et al. 2022, Tables 1 and 10; Dziugaite & Roy 2017, Table 1",
    cases=table_cases(_ITERATIONS),
    measure=measure,
    data=("mnist",),
    findings=table_findings,
    seconds=lambda case: float(_SECONDS[case["network"]]),
    view=TABLE_VIEW,
    version=3,
)
