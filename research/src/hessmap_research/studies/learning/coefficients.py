"""Half the rank, the exact learning coefficient and its estimate: linear networks, ReLU networks at their teachers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem

NUM_OBSERVATIONS = 10_000
CHAINS: dict[str, Any] = {"num_chains": 8, "num_draws": 12_000, "num_burn_in": 6_000, "check_settings": False}
_ALONG = {
    "rank of the truth, 5-5-5": [("5-5-5", rank, rank) for rank in range(6)],
    "hidden width, 5-h-5, rank 1": [(f"5-{width}-5", 1, width) for width in (1, 2, 3, 6)],
    "layers of width 3, rank 1": [("-".join(["3"] * (depth + 1)), 1, depth) for depth in (1, 2, 3, 4)],
    "rank of the truth, 4-4-4-4": [("4-4-4-4", rank, rank) for rank in (0, 2, 4)],
}


def measure(case: Case) -> dict[str, Any]:
    from hessmap.maps.learning import learning_coefficient_estimate
    from hessmap.networks import FullyConnected
    from hessmap.theory import learning_coefficient

    network, rank = FullyConnected.parse(case["widths"]), case["rank"]
    exact = learning_coefficient(network, rank=rank)
    widths = network.widths
    table = [[*(rank for _ in range(vertex)), width] for vertex, width in enumerate(widths)]
    at_weights = learning_coefficient(network, product_ranks=table)
    estimate = learning_coefficient_estimate(
        _problem(network, rank), num_observations=NUM_OBSERVATIONS, seed=case["seed"], **CHAINS
    )
    found = {
        "exact": float(exact.value),
        "multiplicity": exact.multiplicity,
        "half_rank_at_weights": at_weights.hessian_rank / 2,
        "half_generic_rank": exact.hessian_rank / 2,
        "half_parameters": exact.num_parameters / 2,
        "estimate": estimate.value,
        "standard_error": estimate.standard_error,
        "split_r_hat": estimate.split_r_hat,
        "verdict": estimate.verdict,
        "ratio": estimate.value / float(exact.value),
    }
    return found | ({"exact_without_logarithm": float(exact.value)} if exact.multiplicity == 1 else {})


def _problem(network: Any, rank: int) -> Problem:
    """The network at the weights whose products all have the rank of the truth, on inputs of second moment one."""
    import torch

    from hessmap.problem.problem import Problem

    model = network.build(seed=0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
            weight[range(rank), range(rank)] = 1.0
    inputs = network.input_dim**0.5 * torch.eye(network.input_dim, dtype=torch.float64)
    return Problem(model, "squared", inputs, model(inputs).detach())


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    singular = [row for row in rows if row["half_rank_at_weights"] < row["exact"]]
    several = [row for row in rows if row["multiplicity"] > 1]
    if singular:
        claim = (
            "At these weights half the rank is never above the exact coefficient, and below it where they are singular"
        )
        holds = all(row["half_rank_at_weights"] <= row["exact"] for row in rows)
        yield Claim("half-rank-below", claim, holds, f"below in {len(singular)} of {len(rows)} cases")
    if several:
        claim = "Where the multiplicity is above 1 the estimate is at most 15 % low, and never high beyond its error"
        excesses = [(row["ratio"], row["estimate"] - row["exact"] - 3 * row["standard_error"]) for row in several]
        holds = all(ratio >= 0.85 and excess <= 0 for ratio, excess in excesses)
        yield Claim("multiplicity", claim, holds, _range([ratio for ratio, _ in excesses]))
    if singular:
        claim = "At singular weights the estimate is nearer to the exact coefficient than half the rank is"
        nearer = [
            abs(row["estimate"] - row["exact"]) < abs(row["half_rank_at_weights"] - row["exact"]) for row in singular
        ]
        yield Claim.counted(
            "estimate-nearer", claim, sum(nearer), len(nearer), f"in {sum(nearer)} of {len(singular)} cases"
        )


def _range(values: Sequence[float]) -> str:
    return f"estimate / exact from {min(values):.3f} to {max(values):.3f}"


STUDY = Study(
    name="learning/coefficients",
    question="Does half the rank of the Hessian give the learning coefficient of a linear network?",
    reference="Aoyagi 2024; Lau et al. 2023",
    cases=[
        {"along": along, "at": at, "widths": widths, "rank": rank, "seed": 0}
        for along, cases in _ALONG.items()
        for widths, rank, at in cases
    ],
    measure=measure,
    checks=(Check("estimate", "exact_without_logarithm", "close", 0.08),),
    claims=claims,
    seconds=25.0,
    view=View(
        figures=tuple(
            Lines(
                title=along,
                where={"along": along},
                x="at",
                series=(
                    Series("exact", line="exact"),
                    Series("estimate", points="estimate"),
                    Series("half the rank at these weights", dashed="half_rank_at_weights"),
                    Series("half the generic rank", dashed="half_generic_rank"),
                ),
                x_label=along.split(",")[0],
                y_label="learning coefficient",
                y_limits=(0, None),
            )
            for along in _ALONG
        ),
        table=(
            "widths",
            "rank",
            Column("half_rank_at_weights", "rank / 2, here"),
            Column("half_generic_rank", "generic"),
            Column("exact"),
            Column("multiplicity", "m"),
            Column("estimate", "", ".3f"),
            Column("standard_error", "error", ".2g"),
            Column("ratio", "estimate / exact", ".3f"),
            Column("split_r_hat", "R-hat", ".3f"),
        ),
    ),
    answered=Answer(
        "It depends: where the optima are smooth it does, at singular weights it is below (12 of 16 cases); there"
        " the estimate is nearer, and down to 0.780 of the exact value where the multiplicity is above 1.",
        num_claims=3,
        cases="agrees",
        fails=("multiplicity",),
    ),
)


# ReLU networks at their own teachers.

_INPUTS, _OUTPUTS, _NUM_SAMPLES = 4, 2, 120
_RELU_OBSERVATIONS = 1_000_000
RELU_CHAINS: dict[str, Any] = {"num_chains": 8, "num_draws": 8_000, "num_burn_in": 4_000, "check_settings": False}
STUDENTS = ("its own teacher", "one unit at zero")


def measure_relu(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.hessians.operators import outer_product_hessian
    from hessmap.maps.learning import learning_coefficient_estimate
    from hessmap.measurement import numerical_rank, spectrum

    problem = _relu_problem(case["hidden"], case["student"] == STUDENTS[1], case["seed"])
    hessian = outer_product_hessian(problem)
    estimate = learning_coefficient_estimate(
        problem, num_observations=_RELU_OBSERVATIONS, localisation=10.0, seed=case["seed"], **RELU_CHAINS
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


def _relu_problem(hidden: int, has_zero_unit: bool, seed: int) -> Problem:
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


def relu_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    own, zero = ([row for row in rows if row["student"] == student] for student in STUDENTS)
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


RELU_NETWORKS = Study(
    name="learning/relu-networks",
    question="Is half the rank of the Hessian the learning coefficient of a ReLU network at its own teacher?",
    reference="Lau et al. 2023; no exact value is known for ReLU networks",
    cases=grid(student=list(STUDENTS), hidden=[1, 2, 4], seed=range(1)),
    measure=measure_relu,
    claims=relu_claims,
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
            for student in STUDENTS
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
