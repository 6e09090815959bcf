"""Error function: as many large eigenvalues as inputs, not as hidden units, and the reason.

The part of the Hessian that is linear in the inputs, J1^T J1 with J1 = d E[f x^T], has a row for each input. Where its
smallest eigenvalue exceeds the largest of all the rest, Weyl's inequalities put exactly that many eigenvalues above the
gap: the count is then proved for that teacher, not read off a picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View
from hessmap_research.studies.teacher.spectra_of_teachers import density_figure, extremes, log_density, sized_cases

_SQUARE = ((5, 5, 80), (10, 10, 60), (20, 20, 30), (40, 40, 8))
_OBLONG = ((8, 16, 20), (16, 8, 20), (5, 20, 20), (20, 5, 20), (10, 40, 8), (40, 10, 8), (20, 30, 8), (30, 20, 8))
_DRAWN = ((20, 20), (20, 5), (5, 20), (40, 10))


def cases() -> tuple[Case, ...]:
    return sized_cases((*_SQUARE, *_OBLONG))


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.theory.teacher_student import TeacherStudent

    inputs, hidden = case["inputs"], case["hidden"]
    network = TeacherStudent(inputs, hidden, "erf")
    spectra, linear, rests, positions = [], [], [], []
    for seed in range(case["num_teachers"]):
        teacher = network.draw(seed)
        hessian, jacobian = network.population_hessian(teacher), network.hermite_jacobian(teacher, 1)
        spectra.append(np.linalg.eigvalsh(hessian)[::-1])
        linear.append(float(np.linalg.eigvalsh(jacobian @ jacobian.T)[0]))
        rests.append(float(np.linalg.eigvalsh(hessian - jacobian.T @ jacobian)[-1]))
        top = spectra[-1][: max(inputs, hidden) + 6]
        positions.append(int(np.argmax(top[:-1] / top[1:])) + 1)
    shown = min(3 * max(inputs, hidden), network.num_parameters)
    return {
        "num_parameters": network.num_parameters,
        "spectrum": log_density(spectra),
        "first_teacher": spectra[0][:shown],
        "num_large": extremes(positions),
        "num_as_printed": sum(position == hidden for position in positions),
        "num_proved": sum(part > rest for part, rest in zip(linear, rests, strict=True)),
        "linear_part": extremes(linear),
        "rest": extremes(rests),
        "large_mean": float(np.mean([values[:inputs].mean() for values in spectra])),
        "bulk_median": float(np.median([np.median(values[inputs:]) for values in spectra])),
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    proved, teachers = sum(row["num_proved"] for row in rows), sum(row["num_teachers"] for row in rows)
    claim = "The smallest eigenvalue of the linear part exceeds the largest of the rest: the count is proved"
    yield Claim.counted("count-proved", claim, proved, teachers, f"{proved} of {teachers} teachers")
    oblong = [row for row in rows if row["shape"] == "oblong"]
    printed, others = sum(row["num_as_printed"] for row in oblong), sum(row["num_teachers"] for row in oblong)
    if oblong:
        claim = "The number of hidden units, as printed, is not that of large eigenvalues where inputs differ from it"
        yield Claim("printed-count-wrong", claim, printed == 0, f"it is in {printed} of {others} teachers")
    square = sorted((row for row in rows if row["shape"] == "square"), key=lambda row: row["inputs"])
    if len(square) < 2:
        return
    bulk, large = ([row[name] for row in square] for name in ("bulk_median", "large_mean"))
    listed = ", ".join(f"{row['inputs']}: {value:.2g}" for row, value in zip(square, bulk, strict=True))
    yield Claim(
        "bulk-falls", "The median of the bulk near zero falls as N grows", all(b < a for a, b in pairwise(bulk)), listed
    )
    listed = ", ".join(f"{row['inputs']}: {value:.2f}" for row, value in zip(square, large, strict=True))
    yield Claim("large-stay", "The mean of the large ones stays within a fifth", max(large) < 1.2 * min(large), listed)


STUDY = Study(
    name="teacher/erf-spectrum",
    question="How many eigenvalues stand apart from the bulk under the error function, and why?",
    reference="A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal Point, Figure 5, Section 5",
    cases=cases(),
    measure=measure,
    checks=(Check("num_large.smallest", "inputs"), Check("num_large.largest", "inputs")),
    claims=claims,
    seconds=lambda case: 3e-10 * case["num_teachers"] * ((case["inputs"] + 1) * case["hidden"]) ** 3 + 0.2,
    view=View(
        figures=(
            *(
                Lines(
                    title=f"{inputs} inputs, {hidden} hidden",
                    where={"inputs": inputs, "hidden": hidden},
                    x=INDEX,
                    series=(Series("measured, one teacher", points="first_teacher"),),
                    marks=(Mark("inputs", "inputs"), Mark("hidden", "hidden (printed)")),
                    x_label="index",
                    y_label="eigenvalue",
                    y_scale="log",
                )
                for inputs, hidden in _DRAWN
            ),
            density_figure("N inputs and N hidden units, all teachers", "square", "N = {inputs}"),
        ),
        table=(
            "inputs",
            "hidden",
            Column("num_teachers", "teachers"),
            Column("num_parameters", "p"),
            Column("num_large.smallest", "large, from", ".0f"),
            Column("num_large.largest", "to", ".0f"),
            Column("num_proved", "proved"),
            Column("num_as_printed", "as printed"),
            Column("linear_part.smallest", "linear part >="),
            Column("rest.largest", "rest <="),
        ),
    ),
    answered=Answer(
        "As many as there are inputs, proved for 290 of 290 teachers: the linear part of the Jacobian has that"
        " many rows, and its eigenvalues exceed all of the rest.",
        num_claims=4,
        cases="agrees",
    ),
)
