"""ReLU networks at their own teachers: half the rank beside the estimated learning coefficient."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem

_INPUTS, _OUTPUTS, _NUM_SAMPLES = 4, 2, 120
_NUM_OBSERVATIONS = 1_000_000
_CHAINS: dict[str, Any] = {"num_chains": 8, "num_draws": 8_000, "num_burn_in": 4_000, "check_settings": False}
_STUDENTS = ("its own teacher", "one unit at zero")


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.hessians.operators import outer_product_hessian
    from hessmap.maps.learning import learning_coefficient_estimate
    from hessmap.measurement import numerical_rank, spectrum

    problem = _problem(case["hidden"], case["student"] == _STUDENTS[1], case["seed"])
    hessian = outer_product_hessian(problem)
    estimate = learning_coefficient_estimate(
        problem, num_observations=_NUM_OBSERVATIONS, localisation=10.0, seed=case["seed"], **_CHAINS
    )
    curvatures = np.clip(spectrum(hessian).eigenvalues, 0, None)
    stiffness = estimate.settings.num_observations * estimate.settings.inverse_temperature * curvatures
    return {
        "half_rank": numerical_rank(hessian).value / 2,
        "half_parameters": problem.num_parameters / 2,
        "harmonic": float((stiffness / (stiffness + estimate.settings.localisation)).sum() / 2),
        "estimate": estimate.value,
        "standard_error": estimate.standard_error,
        "split_r_hat": estimate.split_r_hat,
        "verdict": estimate.verdict,
    }


def _problem(hidden: int, has_zero_unit: bool, seed: int) -> Problem:
    """A network on the outputs of its own weights; with one unit more whose weights are all zero, where asked for."""
    import torch

    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem

    model = FullyConnected((_INPUTS, hidden + has_zero_unit, _OUTPUTS), activation="relu").build(seed=seed)
    if has_zero_unit:
        with torch.no_grad():
            first, last = model.parameters()
            first[-1], last[:, -1] = 0.0, 0.0
    inputs = torch.randn(_NUM_SAMPLES, _INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return Problem(model, "squared", inputs, model(inputs).detach())


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    own, zero = ([row for row in rows if row["student"] == student] for student in _STUDENTS)
    if own:
        ratios = [row.number("estimate") / row.number("half_rank") for row in own]
        claim = "At its own teacher, a smooth optimum, the estimate is half the rank within 10 %"
        yield Claim("own-teacher", claim, all(abs(ratio - 1) <= 0.1 for ratio in ratios), _ratios(ratios))
    if zero:
        above = [(row.number("estimate") - row.number("half_rank")) / row.number("standard_error") for row in zero]
        claim = "With a unit at zero, which the rank does not see, the estimate is above half the rank"
        yield Claim(
            "unit-at-zero", claim, all(z > 3 for z in above), f"by {min(above):.1f} to {max(above):.1f} standard errors"
        )


def _ratios(ratios: Sequence[float]) -> str:
    return f"estimate / (rank / 2) from {min(ratios):.3f} to {max(ratios):.3f}"


STUDY = Study(
    name="learning/relu-networks",
    question="Is half the rank of the Hessian the learning coefficient of a ReLU network at its own teacher?",
    reference="Lau et al. 2023; no exact value is known for ReLU networks",
    cases=grid(student=list(_STUDENTS), hidden=[1, 2, 4], seed=range(1)),
    measure=measure,
    claims=claims,
    seconds=40.0,
    view=View(
        figures=tuple(
            Lines(
                title=student,
                where={"student": student},
                x="hidden",
                series=(
                    Series("estimate", points="estimate"),
                    Series("half the rank", line="half_rank"),
                    Series("half the parameters", dashed="half_parameters"),
                ),
                x_label="hidden units of the teacher",
                y_label="learning coefficient",
                y_limits=(0, None),
            )
            for student in _STUDENTS
        ),
        table=(
            "student",
            "hidden",
            Column("half_rank", "rank / 2"),
            Column("harmonic", "at this n", ".3f"),
            Column("estimate", "", ".3f"),
            Column("standard_error", "error", ".2g"),
            Column("half_parameters", "parameters / 2"),
            Column("split_r_hat", "R-hat", ".3f"),
        ),
        group_by=("student", "hidden"),
    ),
    answered=Answer(
        "It depends: within 10 % it is where every unit is at work; with a unit at zero the estimate is above"
        " half the rank by 0.6 to 5.9 standard errors, too little to decide for every network.",
        num_claims=2,
        fails=("unit-at-zero",),
    ),
)
