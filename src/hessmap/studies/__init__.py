"""One question a file: what is predicted, what is measured, how it is seen, and the verdict.

`hessmap.runs.run.run` runs a study, `hessmap.runs.registry` finds it, `hessmap.runs.store` keeps its records.
"""

from hessmap.runs.row import Row
from hessmap.runs.study import Case, Study, grid
from hessmap.runs.verdict import Answer, Check, Finding, Verdict
from hessmap.runs.view import INDEX, Cloud, Column, Heatmap, Histogram, Lines, Mark, Plane, Series, Slope, View

__all__ = [
    "INDEX",
    "Answer",
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
    "Slope",
    "Study",
    "Verdict",
    "View",
    "grid",
]
