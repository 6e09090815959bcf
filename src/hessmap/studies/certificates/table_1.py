"""The bounds of Table 1 on MNIST, 0-4 against 5-9: the paper's networks in every basis."""

from __future__ import annotations

from hessmap.studies import Study
from hessmap.studies.certificates.certificate_record import measure
from hessmap.studies.certificates.published_table import TABLE_VIEW, table_cases, table_findings

_NETWORKS = ("T-600", "T-300^2", "T-1200", "T-600^2", "R-600")
_ITERATIONS = 6000
_SECONDS = {"T-600": 120, "T-300^2": 100, "T-1200": 230, "T-600^2": 220, "R-600": 130}

STUDY = Study(
    name="certificates/table-1",
    question="How tight are certificates of the paper's networks on MNIST, and in which basis?",
    reference="Wu et al. 2022, Tables 1 and 10; Dziugaite & Roy 2017, Table 1",
    cases=table_cases(_NETWORKS, _ITERATIONS),
    measure=measure,
    data=("mnist",),
    findings=table_findings,
    seconds=lambda case: float(_SECONDS[case["network"]]),
    view=TABLE_VIEW,
)
