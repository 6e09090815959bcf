"""Students with more hidden units than their teacher, at the teacher's function: rank and spectrum.

The extra units can be idle in four ways: both weights zero, a unit of the teacher split into equal parts, no output
weight, no input weights. The function is the same, the Hessian is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import INDEX, Column, Lines, Mark, Series, View

POLYNOMIALS = {
    "identity": (0, 1),
    "quadratic": (0, 1, 1),
    "cubic": (0, 1, 1, 1),
    "x + x^3": (0, 1, 0, 1),
    "quartic": (0, 1, 1, 1, 1),
}
WAYS = ("zero", "split", "output_zero", "input_zero")
_INPUTS, _HIDDEN, _EXTRA = range(1, 5), range(1, 5), (1, 2)
_EXCEPTION = ("cubic", "input_zero", (4, 6, 1))  # the one cell that is not min(T + Ni, full)
_DRAWN = (3, 2, 2)  # the teacher whose spectra are drawn: inputs, hidden, extra


def cases() -> tuple[Case, ...]:
    """One case for each activation and way: all sizes; a rectifier has no Hessian where a row is zero."""
    smooth = [(name, way) for name in (*POLYNOMIALS, "erf") for way in WAYS]
    rectified = [("relu", "split"), ("relu", "output_zero")]
    return tuple({"activation": name, "extra": way} for name, way in (*smooth, *rectified))


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    name, way = case["activation"], case["extra"]
    cells = [(i, h, e) for i in _INPUTS for h in _HIDDEN for e in _EXTRA if _is_known(name, i)]
    if (name, way) == _EXCEPTION[:2]:
        cells.append(_EXCEPTION[2])
    predicted = np.array([_predicted_rank(name, way, *cell) for cell in cells])
    found = _exact_rank if name in POLYNOMIALS else _numerical_rank
    measured = np.array([found(name, way, *cell) for cell in cells])
    teacher, student = _spectra(name, way)
    return {
        "num_cells": len(cells),
        "num_agree": int((predicted == measured).sum()),
        "inputs_hidden_extra": np.array(cells),
        "predicted": predicted,
        "measured": measured,
        "teacher_spectrum": teacher,
        "student_spectrum": student,
        "top_ratio": float(student[0] / teacher[0]),
        "trace_ratio": float(student.sum() / teacher.sum()),
        "spectrum_is_the_teachers": bool(
            np.abs(student[: len(teacher)] - teacher).max() < 1e-12 * teacher[0]
            and np.abs(student[len(teacher) :]).max() < 1e-12 * teacher[0]
        ),
    }


def _is_known(name: str, inputs: int) -> bool:
    """With one input the rank of relu depends on signs, and float64 does not see that of erf."""
    return name in POLYNOMIALS or inputs > 1


def _predicted_rank(name: str, way: str, inputs: int, hidden: int, extra: int) -> int:
    """Polynomials: `wider_student_rank`. Otherwise a new unit is a new function, and so are the linear ones (erf)."""
    from hessmap.theory import effective_parameters
    from hessmap.theory.teacher_student.two_layers import wider_student_rank

    if name in POLYNOMIALS:
        degrees = [degree for degree, coefficient in enumerate(POLYNOMIALS[name]) if coefficient]
        return wider_student_rank(inputs, hidden, degrees, extra, way).value  # type: ignore[arg-type]
    more = {"zero": 0, "split": 0, "output_zero": extra, "input_zero": inputs}[way]
    return effective_parameters(inputs, hidden, name).value + more


def wider_student(rows: Any, outer: Any, extra: int, way: str, fresh: Any) -> tuple[Any, Any]:
    """The weights of a student with ``extra`` more units and the teacher's function; ``fresh`` are rows to take."""
    import numpy as np

    if way == "split":
        share = outer[..., -1:] / (extra + 1) if outer.dtype == float else outer[..., -1:] // (extra + 1)
        last = np.repeat(share, extra + 1, axis=-1)
        return np.concatenate([rows, np.repeat(rows[-1:], extra, axis=0)]), np.concatenate([outer[:-1], last])
    new_rows = fresh if way == "output_zero" else 0 * fresh
    new_outer = np.ones_like(outer, shape=extra) if way == "input_zero" else np.zeros_like(outer, shape=extra)
    return np.concatenate([rows, new_rows]), np.concatenate([outer, new_outer])


def _exact_rank(name: str, way: str, inputs: int, hidden: int, extra: int) -> int:
    """The rank of the Hessian of integer weights, over the rationals."""
    import flint
    import numpy as np

    from hessmap.theory.teacher_student import TeacherStudent

    generator = np.random.default_rng([inputs, hidden, extra])
    rows, fresh = (generator.integers(-20, 21, size=(number, inputs)) for number in (hidden, extra))
    outer = (extra + 1) * generator.integers(1, 21, size=hidden)
    student = TeacherStudent(inputs, hidden + extra, POLYNOMIALS[name])
    hessian = student.population_hessian(*wider_student(rows, outer, extra, way, fresh))
    return int(flint.fmpz_mat([[int(value) for value in row] for row in hessian]).rank())


def _numerical_rank(name: str, way: str, inputs: int, hidden: int, extra: int) -> int:
    """The numerical rank for normal weights."""
    import numpy as np

    from hessmap.measurement import numerical_rank
    from hessmap.theory.teacher_student import TeacherStudent

    teacher = TeacherStudent(inputs, hidden, name).draw(7)
    fresh = np.random.default_rng(8).normal(size=(extra, inputs)) / np.sqrt(inputs)
    weights = wider_student(teacher.layers[0], teacher.layers[1][0], extra, way, fresh)
    hessian = TeacherStudent(inputs, hidden + extra, name).population_hessian(*weights)
    return int(numerical_rank(hessian).value)


def _spectra(name: str, way: str) -> tuple[Any, Any]:
    """The eigenvalues of a teacher and of its wider student."""
    import numpy as np

    from hessmap.theory.teacher_student import TeacherStudent

    inputs, hidden, extra = _DRAWN
    activation = POLYNOMIALS.get(name, name)
    network, wide = TeacherStudent(inputs, hidden, activation), TeacherStudent(inputs, hidden + extra, activation)
    teacher = network.draw(0)
    fresh = np.random.default_rng(8).normal(size=(extra, inputs)) / np.sqrt(inputs)
    student = wider_student(teacher.layers[0], teacher.layers[1][0], extra, way, fresh)
    return (
        np.linalg.eigvalsh(network.population_hessian(teacher))[::-1],
        np.linalg.eigvalsh(wide.population_hessian(*student))[::-1],
    )


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    zero = [row for row in rows if row["extra"] == "zero"]
    if zero:
        same = [row for row in zero if row["spectrum_is_the_teachers"]]
        claim = "With both weights zero the spectrum is the teacher's and zeros"
        yield Claim.counted(
            "zero-same-spectrum", claim, len(same), len(zero), f"{len(same)} of {len(zero)} activations"
        )
    for way in WAYS[1:]:
        some = [row for row in rows if row["extra"] == way]
        if not some:
            continue
        moved = [row for row in some if not row["spectrum_is_the_teachers"]]
        ratios = [row["trace_ratio"] for row in some]
        detail = f"{len(moved)} of {len(some)} activations; trace {min(ratios):.2f} to {max(ratios):.3g} times as large"
        claim = f"{way.replace('_', ' ')}: the same function has another spectrum than the teacher"
        yield Claim.counted(claim_id("other-spectrum", way), claim, len(moved), len(some), detail)


def _rank_marks(activation: str) -> tuple[Mark, ...]:
    """Behind as many eigenvalues as the rank says, for each of the ways."""
    labels = {"zero": "zero and split", "output_zero": "output zero", "input_zero": "input zero"}
    return tuple(
        Mark(_predicted_rank(activation, way, *_DRAWN) + 0.5, f"predicted rank, {label}")
        for way, label in labels.items()
    )


STUDY = Study(
    name="teacher/overparameterised",
    question="What do rank and spectrum become when the student has more hidden units than its teacher?",
    reference="A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal Point, Section 6 (outlook)",
    cases=cases(),
    measure=measure,
    checks=(Check("num_agree", "num_cells"),),
    claims=claims,
    seconds=lambda case: 8.0 if case["activation"] == "quartic" else 3.0,
    view=View(
        figures=tuple(
            Lines(
                title=f"{activation}, {_DRAWN[0]} inputs, {_DRAWN[1]} hidden and {_DRAWN[2]} more",
                where={"activation": activation},
                x=INDEX,
                split="extra",
                series=(Series("measured, {extra}", points="student_spectrum"),),
                x_label="index",
                y_label="eigenvalue",
                y_scale="log",
                y_limits=(1e-7, 1e3),
                marks=_rank_marks(activation),
            )
            for activation in ("quadratic", "cubic", "erf")
        ),
        table=(
            "activation",
            "extra",
            Column("num_cells", "cells"),
            Column("num_agree", "agree"),
            Column("top_ratio", "largest / teacher's", ".3f"),
            Column("trace_ratio", "trace / teacher's", ".3f"),
        ),
    ),
    answered=Answer(
        "That depends on where the extra units are: with both weights zero the spectrum is the teacher's and"
        " zeros; split, or with one weight zero, the same function has another spectrum. All ranks are as"
        " predicted.",
        num_claims=4,
        cases="agrees",
    ),
)
