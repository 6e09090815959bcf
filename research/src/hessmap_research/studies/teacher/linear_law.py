"""Spectra of random linear teachers against their law: the two blocks, the whole, and one teacher alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Histogram, Lines, Reading, Series, View

_WIDE = ((2, 4), (5, 10), (10, 20), (20, 40), (40, 80), (80, 160))
_NARROW = ((4, 2), (10, 5), (20, 10), (40, 20), (80, 40), (160, 80))
_SQUARE = ((10, 10), (20, 20), (40, 40), (80, 80))
_SHAPES = {"Ni < Nh": _WIDE, "Ni > Nh": _NARROW, "Ni = Nh": _SQUARE}
_PICTURES = ((20, 40), (40, 20))
_LARGE = ((200, 400), (400, 200))


def cases() -> tuple[Case, ...]:
    swept = [
        {"item": "distance", "shape": shape, "inputs": inputs, "hidden": hidden, "num_teachers": _num_teachers(inputs)}
        for shape, sizes in _SHAPES.items()
        for inputs, hidden in sizes
    ]
    drawn = [
        {"item": item, "shape": _shape(*sizes), "inputs": sizes[0], "hidden": sizes[1], "num_teachers": 100}
        for item in ("spectrum", "norms", "second block")
        for sizes in _PICTURES
    ]
    alone = [
        {"item": "one teacher", "shape": _shape(*sizes), "inputs": sizes[0], "hidden": sizes[1], "num_teachers": 20}
        for sizes in _LARGE
    ]
    return (*swept, *drawn, *alone)


def _num_teachers(inputs: int) -> int:
    """Enough for a standard error well below the distance, which falls like 1 / inputs."""
    return {2: 400_000, 4: 400_000, 5: 200_000, 10: 100_000, 20: 40_000, 40: 10_000, 80: 2_500, 160: 1_000}[inputs]


def _shape(inputs: int, hidden: int) -> str:
    return "Ni < Nh" if inputs < hidden else "Ni > Nh" if inputs > hidden else "Ni = Nh"


def measure(case: Case) -> dict[str, Any]:
    from hessmap.theory.teacher_student import LinearSpectrumLaw

    inputs, hidden = case["inputs"], case["hidden"]
    law, printed = LinearSpectrumLaw(inputs, hidden), LinearSpectrumLaw(inputs, hidden, scale=1 / inputs)
    if case["item"] == "distance":
        return _distance(case, law, printed)
    return _one_teacher(case, law) if case["item"] == "one teacher" else _picture(case, law)


def _distance(case: Case, law: Any, printed: Any) -> dict[str, Any]:
    import numpy as np

    from hessmap.theory.teacher_student import exact_moments
    from hessmap_research.studies.teacher.simulated_law import distances, squared_singular_values

    inputs, hidden = case["inputs"], case["hidden"]
    squares = squared_singular_values(inputs, hidden, case["num_teachers"], case["inputs"] + case["hidden"], "normal")
    found = distances(law, printed, squares)
    first, second = exact_moments(inputs, hidden)
    means = squares.mean(1) + 1
    seconds = (squares**2 + 2 * squares).mean(1) + 1 + 2 / hidden
    errors = [float(np.std(values) / np.sqrt(len(values))) for values in (means, seconds)]
    return {
        "distance": found,
        "distance_times_inputs": inputs * found["corrected"],
        "moment_error": {
            "first": abs(float(means.mean()) - first) / errors[0],
            "second": abs(float(seconds.mean()) - second) / errors[1],
        },
    }


def _one_teacher(case: Case, law: Any) -> dict[str, Any]:
    """The mean distance of the spectra of single teachers from their own law and from the averaged one."""
    import numpy as np

    own, averaged = [], []
    for values, norm in _teachers(case):
        own.append(law.of_teacher(norm).kolmogorov_smirnov(values))
        averaged.append(law.kolmogorov_smirnov(values))
    return {"own_distance": float(np.mean(own)), "averaged_distance": float(np.mean(averaged))}


def _picture(case: Case, law: Any) -> dict[str, Any]:
    """Values for a histogram and the predicted density of what is not an atom."""
    import numpy as np

    teachers = list(_teachers(case))
    if case["item"] == "norms":
        values = np.random.default_rng(1).normal(size=(4000, case["hidden"]))
        norms = (values**2).mean(1)
        at = np.linspace(0.2, 2.2, 200)
        return {"values": norms, "at": at, "density": law.output_norm_pdf(at)}
    if case["item"] == "second block":
        squares = np.concatenate([values - norm for values, norm in teachers])
        low, high = law.shifted.edges
        at = np.linspace(low, high, 200)
        share = min(1.0, law.shifted.ratio)
        return {"values": squares[squares > 1e-9], "at": at, "density": law.shifted.pdf(at) / share}
    at = np.linspace(0.01, law.mean + 4 * np.sqrt(law.variance), 300)
    return {"values": np.concatenate([values for values, _ in teachers]), "at": at, "density": law.pdf(at)}


def _teachers(case: Case) -> Iterator[tuple[Any, float]]:
    """The non-zero eigenvalues and ||W2||^2 of each teacher."""
    import numpy as np

    from hessmap.theory.teacher_student import linear_eigenvalues

    generator = np.random.default_rng(case["inputs"])
    for _ in range(case["num_teachers"]):
        first = generator.normal(size=(case["hidden"], case["inputs"])) / np.sqrt(case["inputs"])
        second = generator.normal(size=case["hidden"]) / np.sqrt(case["hidden"])
        yield linear_eigenvalues(first, second), float(second @ second)


_NAMES = {"Ni < Nh": "wide", "Ni > Nh": "narrow", "Ni = Nh": "square"}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    swept = [row for row in rows if row["item"] == "distance"]
    for shape, group in groupby(swept, key=lambda row: row["shape"]):
        curve = list(group)
        values = [row["distance.corrected"] for row in curve]
        falls = all(later < earlier for earlier, later in pairwise(values))
        detail = f"from {values[0]:.4f} at Ni = {curve[0]['inputs']} to {values[-1]:.4f} at Ni = {curve[-1]['inputs']}"
        yield Claim(
            claim_id("distance-falls", _NAMES[shape]),
            f"The distance from the corrected law falls with the size, {shape}",
            falls,
            detail,
        )
    if swept:
        products = [row["distance_times_inputs"] for row in swept]
        detail = f"{min(products):.2f} to {max(products):.2f}"
        yield Claim(
            "distance-times-inputs",
            "The distance times Ni stays between 0.05 and 0.2",
            min(products) > 0.05 and max(products) < 0.2,
            detail,
        )
        printed = [row["distance.printed"] for row in swept]
        detail = f"{min(printed):.3f} to {max(printed):.3f}"
        yield Claim("printed-scale", "With the printed scale 1 / Ni it is never below 0.1", min(printed) > 0.1, detail)
    for row in (row for row in rows if row["item"] == "one teacher"):
        own, averaged = row["own_distance"], row["averaged_distance"]
        claim = f"One teacher follows its own law better than the averaged one, {row['shape']}"
        yield Claim(
            claim_id("own-law", _NAMES[row["shape"]]), claim, own < averaged, f"{own:.3f} against {averaged:.3f}"
        )


def _histogram(title: str, item: str, shape: str, label: str) -> Histogram:
    return Histogram(
        title=title,
        values="values",
        density="density",
        density_at="at",
        where={"item": item, "shape": shape},
        x_label=label,
    )


STUDY = Study(
    name="teacher/linear-law",
    question="Do the Hessian eigenvalues of linear teachers follow chi-squared plus Marchenko-Pastur?",
    reference="A Teacher-Student Perspective on .. Learning Near the Optimal Point, Figures 2, 6 and 7, equation 15",
    cases=cases(),
    measure=measure,
    checks=(
        Check("moment_error.first", 5.0, "at_most"),
        Check("moment_error.second", 5.0, "at_most"),
        Check("own_distance", 0.03, "at_most"),
    ),
    claims=claims,
    view=View(
        figures=(
            _histogram("Figure 2, 20 inputs, 40 hidden", "spectrum", "Ni < Nh", "non-zero eigenvalue"),
            _histogram("Figure 2, 40 inputs, 20 hidden", "spectrum", "Ni > Nh", "non-zero eigenvalue"),
            _histogram("Figure 6, $||W_2||^2$, 40 hidden", "norms", "Ni < Nh", "eigenvalue of the first block"),
            _histogram("Figure 7, 20 inputs, 40 hidden", "second block", "Ni < Nh", "eigenvalue of the second block"),
            _histogram("Figure 7, 40 inputs, 20 hidden", "second block", "Ni > Nh", "eigenvalue of the second block"),
            Lines(
                title="Kolmogorov-Smirnov distance",
                x="inputs",
                series=(Series("{shape}", points="distance.corrected", dashed="distance.printed"),),
                split="shape",
                reading=Reading(points="from the corrected law", dashed="from the printed law"),
                where={"item": "distance"},
                x_scale="log",
                y_scale="log",
                x_label="inputs",
                y_label="distance from the law",
            ),
        ),
        table=(
            "item",
            "inputs",
            "hidden",
            Column("distance.corrected", "distance", ".4f"),
            Column("distance.standard_error", "error", ".5f"),
            Column("distance.printed", "printed", ".3f"),
            Column("moment_error.first", "mean", ".1f"),
            Column("moment_error.second", "second", ".1f"),
            Column("own_distance", "own law", ".3f"),
            Column("averaged_distance", "averaged law", ".3f"),
        ),
    ),
    seconds=lambda case: 8.0 if case["item"] == "distance" else 2.0,
    answered=Answer(
        "It depends on the scale: they do with scale 1, the nearer the larger the teacher; with the printed scale"
        " 1 / Ni the distance is never below 0.1.",
        num_claims=7,
        cases="agrees",
    ),
)
