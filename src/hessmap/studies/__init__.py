"""One question a file: what is predicted, what is measured, how it is seen, and the claims.

`hessmap.runs.run.run` runs a study, `hessmap.runs.registry` finds it, `hessmap.runs.store` keeps its records.
"""

from hessmap.runs.claims import FEWEST, Answer, Check, Claim, StudyOutcome, claim_id
from hessmap.runs.row import Row
from hessmap.runs.study import Case, Study, grid
from hessmap.runs.view import INDEX, Cloud, Column, Heatmap, Histogram, Lines, Mark, Plane, Reading, Series, Slope, View

__all__ = [
    "FEWEST",
    "INDEX",
    "Answer",
    "Case",
    "Check",
    "Claim",
    "Cloud",
    "Column",
    "Heatmap",
    "Histogram",
    "Lines",
    "Mark",
    "Plane",
    "Reading",
    "Row",
    "Series",
    "Slope",
    "Study",
    "StudyOutcome",
    "View",
    "claim_id",
    "grid",
]
