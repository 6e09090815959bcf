"""What is kept of any network along its training: the ranks of its weights and of its Hessians at each moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hessmap.results import PARTS
from hessmap.studies.drawn_curves import rounded
from hessmap.studies.hessian_spectra import hessian_spectra

if TYPE_CHECKING:
    from torch import nn

    from hessmap.curvature import Problem
    from hessmap.studies.training_course import TrainingCourse


def measured_course(course: TrainingCourse, problems: Sequence[Problem]) -> dict[str, Any]:
    """Ranks of the weights and of the Hessians at each moment; those of the first and the last with their doubt.

    ``problems`` holds the models of the course with their data. ``functional_share`` is ||H_f|| / ||H_L||: the rank of
    H_f is relative to ||H_L||, as that of H_L.
    """
    measured = [_measured(problem) for problem in problems]
    return {
        "num_parameters": problems[0].num_parameters,
        "moments": np.array(course.moments),
        "risk": rounded(np.array([problem.risk() for problem in problems])),
        "gradient_norms": rounded(np.array([float(problem.gradient().norm()) for problem in problems])),
        "functional_share": rounded(np.array([at["functional_share"] for at in measured])),
        "ranks": {part: np.array([at["ranks"][part].value for at in measured]) for part in PARTS},
        "num_undecidable": sum(not rank.decidable for at in measured for rank in at["ranks"].values()),
        "weight_ranks": _weight_ranks(course.models),
        "initial": measured[0]["ranks"],
        "final": measured[-1]["ranks"],
        "final_risk": problems[-1].risk(),
        "gradient_norm": float(problems[-1].gradient().norm()),
        "ending": course.ending,
    }


def _measured(problem: Problem) -> dict[str, Any]:
    from hessmap.measurement import numerical_rank

    spectra = hessian_spectra(problem)
    return {
        "ranks": {part: numerical_rank(spectra[part]) for part in PARTS},
        "functional_share": spectra["functional"].norm / spectra["loss"].norm,
    }


def _weight_ranks(models: Sequence[nn.Module]) -> dict[str, Any]:
    """The numerical rank of each weight, one filter or unit a row, relative to its own norm, at each moment."""
    from hessmap.measurement import numerical_rank

    by_layer = zip(*(model.parameters() for model in models), strict=True)
    return {
        f"layer_{number}": np.array([numerical_rank(weight.flatten(1)).value for weight in weights])
        for number, weights in enumerate(by_layer, start=1)
    }
