"""The rank of the Hessian along training: gradient flow on the population loss, from random weights to the teacher.

H_L = H_o + H_f. H_o has the rank N_eff of a generic student from the start; what comes on top is H_f, which dies with
the residual. By Weyl's inequality the (N_eff + 1)-th eigenvalue of H_L, by magnitude, is at most the norm of H_f: the
rank falls to N_eff in the limit only, and the norm of H_f says how far it has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, Mark, Series, View

ACTIVATIONS: dict[str, str] = {
    "identity": "identity",
    "quadratic": "polynomial(0,1,0.5)",
    "cubic": "polynomial(0,1,0.5,0.25)",
    "erf": "erf",
    "relu": "relu",
}
INPUTS, TEACHER = 3, 2
_REACHED = 1e-12  # norm of H_f against that of H_L
_AT_REST, _MOST_STEPS = 1e-14, 3000


def cases() -> tuple[Case, ...]:
    """Students as wide as the teacher from four beginnings, wider ones from two."""
    widths = ((TEACHER, 4), (TEACHER + 1, 2))
    return tuple(
        {"activation": activation, "student": student, "seed": seed}
        for activation in ACTIVATIONS
        for student, num_seeds in widths
        for seed in range(num_seeds)
    )


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.theory import effective_parameters
    from hessmap.theory.teacher_student import TeacherStudent

    activation = ACTIVATIONS[case["activation"]]
    student = TeacherStudent(INPUTS, case["student"], activation)
    teacher = TeacherStudent(INPUTS, TEACHER, activation).draw(100 + case["seed"])
    times, points = _flow(student, student.draw(case["seed"]).vector, teacher)
    effective = effective_parameters(INPUTS, case["student"], activation).value
    along = [_hessians(student, student.from_vector(point), teacher, effective) for point in points]
    record: dict[str, Any] = {name: np.array([found[name] for found in along]) for name in along[0]}
    has_reached = bool(record["functional_norm"][-1] < _REACHED)
    ranks = {
        "outer_product_from": int(record["outer_product_rank"].min()),
        "outer_product_to": int(record["outer_product_rank"].max()),
        "start": int(record["rank"][0]),
        "end": int(record["rank"][-1]),
    }
    return {
        "time": times,
        "num_parameters": student.num_parameters,
        "effective": effective,
        "teacher_effective": effective_parameters(INPUTS, TEACHER, activation).value,
        "ranks": ranks,
        **({"judged": ranks} if has_reached and case["student"] == TEACHER else {}),
        "has_reached": has_reached,
        "num_negative_at_start": int(record["num_negative"][0]),
        "num_negative_at_end": int(record["num_negative"][-1]),
        "largest_excess": float((record["next"] - record["functional_norm"]).max()),
        **record,
    }


def _flow(student: Any, start: Any, teacher: Any) -> tuple[Any, Any]:
    """Gradient flow at times from 0.01 to 1e6, by an implicit method with the exact Hessian; held where it rests."""
    import numpy as np
    from scipy.integrate import BDF

    def velocity(_: float, point: Any) -> Any:
        return -student.population_gradient(student.from_vector(point), teacher)

    def velocity_jacobian(_: float, point: Any) -> Any:
        return -student.population_hessian(student.from_vector(point), teacher)

    times = np.concatenate([[0.0], np.logspace(-2, 6, 33)])
    solver = BDF(velocity, 0.0, start, times[-1], jac=velocity_jacobian, rtol=1e-8, atol=1e-14)
    points = [start]
    for _ in range(_MOST_STEPS):
        solver.step()
        between = solver.dense_output()
        points += [between(time) for time in times[len(points) :] if time <= solver.t]
        if solver.status != "running" or np.linalg.norm(velocity(0.0, solver.y)) < _AT_REST:
            break
    return times, np.array(points + [solver.y] * (len(times) - len(points)))


def _hessians(student: Any, weights: Any, teacher: Any, effective: int) -> dict[str, float]:
    """Ranks of the three Hessians at 1e-12 of the norm of H_L, and magnitudes relative to it."""
    import numpy as np

    from hessmap.measurement import numerical_rank

    outer_product, functional = student.outer_product_hessian(weights), student.functional_hessian(weights, teacher)
    eigenvalues = np.linalg.eigvalsh(outer_product + functional)
    magnitudes = np.sort(np.abs(eigenvalues))[::-1]
    norm = magnitudes[0]
    return {
        "loss": max(float(student.population_loss(weights, teacher)), 1e-17),
        "rank": numerical_rank(outer_product + functional).value,
        "outer_product_rank": numerical_rank(outer_product, scale=norm).value,
        "functional_rank": numerical_rank(functional, scale=norm).value,
        "num_negative": int((eigenvalues < -1e-12 * norm).sum()),
        "next": float(magnitudes[effective] / norm) if effective < len(magnitudes) else 0.0,
        "functional_norm": float(np.linalg.norm(functional, 2) / norm),
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    excess = max(row["largest_excess"] for row in rows)
    claim = "The (N_eff + 1)-th eigenvalue never exceeds the norm of H_f"
    detail = f"at most by {max(excess, 0.0):.1e} of the norm of H_L, in {len(rows)} trainings of 34 times"
    yield Claim("next-eigenvalue-small", claim, excess < 1e-14, detail)
    curved = [row for row in rows if row["activation"] != "identity"]
    if curved:
        yield _full_rank_at_start(curved)
    wider = [row for row in rows if row["student"] > TEACHER and row["has_reached"]]
    if wider:
        yield _wider_ends(wider)
    negative = [row["num_negative_at_end"] for row in rows if row["has_reached"]]
    starts = [row["num_negative_at_start"] for row in rows]
    detail = f"{min(starts)} to {max(starts)} negative eigenvalues at the start"
    yield Claim(
        "no-negative-at-teacher", "No eigenvalue is negative at the teacher", max(negative, default=0) == 0, detail
    )


def _full_rank_at_start(rows: Sequence[Row]) -> Claim:
    full = sum(row["ranks.start"] == row["num_parameters"] for row in rows)
    detail = f"{full} of {len(rows)}; linear ones do not, by the formula of H_L"
    return Claim.counted(
        "full-rank-at-start", "Non-linear students begin with a Hessian of full rank", full, len(rows), detail
    )


def _wider_ends(rows: Sequence[Row]) -> Claim:
    ends = ", ".join(f"{row['activation']} {row['ranks.end']} ({row['teacher_effective']})" for row in rows)
    holds = all(row["teacher_effective"] <= row["ranks.end"] <= row["effective"] for row in rows)
    claim = "Wider students that reach the teacher end between the N_eff of the teacher and their own"
    return Claim("wider-ends", claim, holds, f"rank at the end (N_eff of the teacher): {ends}")


STUDY = Study(
    name="teacher/rank-in-time",
    question="How does the rank of the Hessian change along training?",
    reference="A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal Point, Section 6 (outlook)",
    cases=cases(),
    measure=measure,
    checks=(
        Check("judged.outer_product_from", "effective"),
        Check("judged.outer_product_to", "effective"),
        Check("judged.end", "effective"),
    ),
    claims=claims,
    seconds=6.0,
    view=View(
        figures=(
            *(
                Lines(
                    title=f"{activation}, {INPUTS} inputs, {TEACHER} hidden",
                    where={"activation": activation, "student": TEACHER, "seed": 0},
                    x="time",
                    series=(
                        Series(
                            "$H_L$", line="rank", points="rank", part="loss"
                        ),  # under the others, which it often equals
                        Series("$H_o$", points="outer_product_rank", part="outer_product"),
                        Series("$H_f$", points="functional_rank", part="functional"),
                    ),
                    marks=(Mark("effective", r"$N_{\rm eff}$", axis="y"),),
                    x_label="time",
                    y_label="rank",
                    x_scale="symlog",
                )
                for activation in ("identity", "quadratic", "relu")
            ),
            *(
                Lines(
                    title=f"{activation}: what is left of $H_f$",
                    part="functional",
                    where={"activation": activation, "student": TEACHER, "seed": 0},
                    x="time",
                    series=(
                        Series(r"$\|H_f\| / \|H_L\|$", line="functional_norm", points="functional_norm"),
                        Series(r"eigenvalue $N_{\rm eff} + 1$", line="next", points="next"),
                        Series("loss", line="loss", points="loss"),
                    ),
                    x_label="time",
                    x_scale="symlog",
                    y_scale="log",
                    y_limits=(1e-18, 10.0),
                )
                for activation in ("identity", "quadratic", "relu")
            ),
        ),
        table=(
            "activation",
            "student",
            "seed",
            Column("num_parameters", "p"),
            Column("effective", "N_eff"),
            Column("ranks.outer_product_from", "H_o, from"),
            Column("ranks.outer_product_to", "to"),
            Column("ranks.start", "H_L, start"),
            Column("ranks.end", "end"),
            Column("num_negative_at_start", "negative"),
            Column("has_reached", "reached"),
        ),
    ),
    answered=Answer(
        "It falls to that of the teacher, which H_o has all along; non-linear students begin with full rank (24"
        " of 24), and wider ones end between the N_eff of the teacher and their own.",
        num_claims=4,
        cases="agrees",
    ),
)
