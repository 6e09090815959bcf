"""The bounds of Table 10 for all ten classes of MNIST."""

from __future__ import annotations

from hessmap.studies import Study
from hessmap.studies.certificates.certificate_record import measure
from hessmap.studies.certificates.published_table import TABLE_VIEW, table_cases, table_findings

_ITERATIONS = {"T-600_10": 6000, "T-200^2_10": 6000}
_SECONDS = {"T-600_10": 150, "T-200^2_10": 90}

STUDY = Study(
    name="certificates/table-10",
    question="How tight are certificates for ten classes?",
    reference="Wu et al. 2022, Table 10, rows T-600_10 and T-200^2_10",
    cases=table_cases(_ITERATIONS),
    measure=measure,
    data=("mnist",),
    findings=table_findings,
    seconds=lambda case: float(_SECONDS[case["network"]]),
    view=TABLE_VIEW,
    version=3,
)
