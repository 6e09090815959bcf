"""Erf teachers have full rank: the smallest eigenvalue enclosed in ball arithmetic, where float64 cannot see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, Reading, Series, View

_SQUARE = tuple((size, size) for size in range(1, 8))
_WIDE = ((1, 2), (1, 4), (1, 6), (1, 8), (2, 4), (2, 8), (2, 12), (2, 16), (2, 24), (2, 32), (4, 12))


def cases() -> tuple[Case, ...]:
    square = [(inputs, hidden, seed) for inputs, hidden in _SQUARE for seed in range(3)]
    wide = [(inputs, hidden, 0) for inputs, hidden in _WIDE]
    return tuple({"inputs": inputs, "hidden": hidden, "seed": seed} for inputs, hidden, seed in (*square, *wide))


def measure(case: Case) -> dict[str, Any]:
    from hessmap.measurement import numerical_rank
    from hessmap.theory import effective_parameters
    from hessmap.theory.teacher_student import TeacherStudent
    from hessmap_research.formulas.erf_balls import erf_hessian_balls
    from hessmap_research.instruments.ball_eigenvalue import smallest_eigenvalue_enclosure

    network = TeacherStudent(case["inputs"], case["hidden"], "erf")
    teacher = network.draw(1000 * case["inputs"] + case["seed"])
    bits = 128 + 16 * case["hidden"]
    enclosure = smallest_eigenvalue_enclosure(erf_hessian_balls(teacher.layers[0], teacher.layers[1][0], bits), bits)
    return {
        "predicted": effective_parameters(case["inputs"], case["hidden"], "erf"),
        "certified_rank": enclosure.size if enclosure.is_positive else 0,
        "smallest": enclosure.upper,
        "relative_width": (enclosure.upper - enclosure.lower) / enclosure.upper,
        "bits": bits,
        "rank_in_floats": numerical_rank(network.population_hessian(teacher)),
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    full = sum(row["certified_rank"] == row.number("predicted") for row in rows)
    yield Claim.counted(
        "full-rank", "Every erf teacher has full rank, certified", full, len(rows), f"{full} of {len(rows)} teachers"
    )
    short = [row for row in rows if row.number("rank_in_floats") < row["certified_rank"]]
    detail = ", ".join(
        f"({row['inputs']}, {row['hidden']}): {row.number('rank_in_floats'):.0f} of {row['certified_rank']}"
        for row in short
    )
    claim = "Float64 with a threshold of 1e-12 sees less than the rank for some teachers"
    yield Claim("floats-see-less", claim, bool(short), detail)


STUDY = Study(
    name="teacher/erf-full-rank",
    question="Does every erf teacher have full rank, and how small is the smallest eigenvalue?",
    reference="A Teacher-Student Perspective on .. Learning Near the Optimal Point, Section 5.1",
    cases=cases(),
    measure=measure,
    checks=(Check("certified_rank", "predicted", "equal"), Check("relative_width", 1e-3, "at_most")),
    claims=claims,
    view=View(
        figures=(
            Lines(
                title="smallest eigenvalue, enclosed",
                x="hidden",
                series=(Series("inputs {inputs}", points="smallest", line="smallest"),),
                split="inputs",
                y_scale="log",
                x_label="hidden units",
                y_label="smallest eigenvalue",
                reading=Reading(points="enclosed to 1e-6", bands="over teachers"),
            ),
        ),
        table=(
            "inputs",
            "hidden",
            "seed",
            Column("predicted", "size"),
            Column("certified_rank", "rank"),
            Column("smallest", "smallest", ".3e"),
            Column("relative_width", "width", ".0e"),
            Column("rank_in_floats", "in float64"),
        ),
    ),
    seconds=lambda case: 1e-5 * (case["hidden"] * (case["inputs"] + 1)) ** 2.6,
    answered=Answer(
        "Yes, certified for 32 of 32 teachers; the smallest eigenvalue is so small that float64 with a threshold"
        " of 1e-12 misses it for some.",
        num_claims=2,
        cases="agrees",
    ),
)
