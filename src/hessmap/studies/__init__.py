"""One question a file: what is predicted, what is measured, how it is seen, and the verdict.

`hessmap.studies.run.run` runs a study, `hessmap.studies.registry` finds it, `hessmap.studies.store` keeps its records.
"""

from hessmap.studies.row import Row
from hessmap.studies.study import Case, Study, grid
from hessmap.studies.verdict import Check, Finding, Verdict
from hessmap.studies.view import INDEX, Cloud, Column, Heatmap, Histogram, Lines, Mark, Plane, Series, View

__all__ = [
    "INDEX",
    "Case",
    "Check",
    "Cloud",
    "Column",
    "Finding",
    "Heatmap",
    "Histogram",
    "Lines",
    "Mark",
    "Plane",
    "Row",
    "Series",
    "Study",
    "Verdict",
    "View",
    "grid",
]
