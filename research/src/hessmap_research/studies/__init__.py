"""One question a file: what is predicted, what is measured, how it is seen, and the claims.

`hessmap_research.runner` finds, runs and stores studies.
"""

from hessmap_research.runner.claims import FEWEST, Answer, Check, Claim, StudyOutcome, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import (
    INDEX,
    Cloud,
    Column,
    Heatmap,
    Histogram,
    Lines,
    Mark,
    Plane,
    Reading,
    Series,
    Slope,
    View,
)

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
