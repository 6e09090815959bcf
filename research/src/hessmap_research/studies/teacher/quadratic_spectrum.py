"""Quadratic activation: a bulk that sinks towards zero, and one eigenvalue that grows with the number of hidden units.

g(t) = t + epsilon t^2 has a mean: E f = epsilon sum_k W2_k |w_k|^2. Its gradient J0 alone gives H an eigenvalue of at
least |J0|^2 = epsilon^2 sum_k (|w_k|^4 + 4 W2_k^2 |w_k|^2), epsilon^2 (Nh (1 + 2 / Ni) + 4) on average over teachers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, Series, View
from hessmap_research.studies.teacher.spectra_of_teachers import density_figure, extremes, log_density, sized_cases

EPSILON = 1.0


def cases() -> tuple[Case, ...]:
    return sized_cases(((5, 5, 80), (10, 10, 60), (20, 20, 30), (40, 40, 8), (10, 40, 20), (40, 10, 20)))


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.measurement import numerical_rank
    from hessmap.networks import Polynomial
    from hessmap.theory import effective_parameters
    from hessmap.theory.teacher_student import TeacherStudent

    inputs, hidden = case["inputs"], case["hidden"]
    network = TeacherStudent(inputs, hidden, (0, 1, EPSILON))
    spectra, means, rests, ranks, visible = [], [], [], [], []
    for seed in range(case["num_teachers"]):
        teacher = network.draw(seed)
        hessian, mean = network.population_hessian(teacher), network.hermite_jacobian(teacher, 0)
        spectra.append(np.linalg.eigvalsh(hessian)[::-1])
        means.append(float((mean**2).sum()))
        rests.append(float(np.linalg.eigvalsh(hessian - mean.T @ mean)[-1]))
        ranks.append(numerical_rank(_coefficient_jacobian(*teacher.layers)))
        visible.append(numerical_rank(np.diag(spectra[-1])).value)
    top = np.array([values[0] for values in spectra])
    return {
        "num_parameters": network.num_parameters,
        "spectrum": log_density(spectra),
        "rank": extremes([rank.value for rank in ranks]),
        "num_undecidable": sum(not rank.decidable for rank in ranks),
        "num_seen_by_eigenvalues": sum(seen == rank.value for seen, rank in zip(visible, ranks, strict=True)),
        "predicted_rank": effective_parameters(inputs, hidden, Polynomial((0, 1, EPSILON))),
        "top": extremes(top),
        "second": extremes([values[1] for values in spectra]),
        "median_positive": float(np.median([np.median(v[: r.value]) for v, r in zip(spectra, ranks, strict=True)])),
        "mean_part": extremes(means),
        "mean_part_error": float(np.std(means, ddof=1) / np.sqrt(len(means))),
        "mean_part_expected": EPSILON**2 * (hidden * (1 + 2 / inputs) + 4),
        "share_between_bounds": float(np.mean((top >= means) & (top <= np.add(means, rests) * (1 + 1e-12)))),
    }


def _coefficient_jacobian(rows: Any, outer: Any) -> Any:
    """d of the coefficients sum_m v_m w_m and epsilon sum_m v_m w_m w_m^T of the function: H without its squares.

    Its rank is that of H, and its singular values are of the size of the roots of the eigenvalues of H: a teacher whose
    W1 has a singular value of 2e-5 has an eigenvalue of 1e-20, which float64 takes for zero, and a root of 1e-10.
    """
    import numpy as np

    hidden, inputs = rows.shape
    upper = np.triu_indices(inputs)
    eye = np.eye(inputs)
    moved = eye[None, :, :, None] * rows[:, None, None, :]  # (m, n, a, b): e_n w_m^T
    squares = EPSILON * outer[0][:, None, None, None] * (moved + moved.transpose(0, 1, 3, 2))
    inner = np.concatenate([np.kron(outer.T, eye), squares[:, :, *upper].reshape(hidden * inputs, -1)], axis=1)
    products = EPSILON * rows[:, :, None] * rows[:, None, :]
    return np.concatenate([inner, np.concatenate([rows, products[:, *upper]], axis=1)], axis=0)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    square = sorted((row for row in rows if row["shape"] == "square"), key=lambda row: row["inputs"])
    if len(square) > 1:
        yield from _growth(square)
    for row in rows:
        distance = abs(row["mean_part.mean"] - row["mean_part_expected"]) / row["mean_part_error"]
        claim = f"{row['inputs']} inputs, {row['hidden']} hidden: |J0|^2 is Nh (1 + 2/Ni) + 4 on average"
        detail = f"{row['mean_part.mean']:.2f} against {row['mean_part_expected']:.2f}, {distance:.1f} standard errors"
        yield Claim(claim_id("mean-part", row["inputs"], row["hidden"]), claim, distance < 4, detail)


def _growth(square: Sequence[Row]) -> Iterator[Claim]:
    medians = [row["median_positive"] for row in square]
    listed = ", ".join(f"{row['inputs']}: {value:.3g}" for row, value in zip(square, medians, strict=True))
    yield Claim(
        "median-falls", "The median of the positive eigenvalues falls as N grows", _grows(medians[::-1]), listed
    )
    listed = ", ".join(f"{row['inputs']}: {row['top.mean']:.1f} and {row['second.mean']:.1f}" for row in square)
    holds = _grows([row["top.mean"] for row in square]) and not _grows([row["second.mean"] for row in square])
    yield Claim("largest-grows", "The largest eigenvalue grows with N, the second does not", holds, listed)


def _grows(values: Sequence[float]) -> bool:
    return all(before < after for before, after in pairwise(values))


STUDY = Study(
    name="teacher/quadratic-spectrum",
    question="Which eigenvalues does a quadratic teacher have, and what is the one away from all others?",
    reference="A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal Point, Figure 4, Section 4.1",
    cases=cases(),
    measure=measure,
    checks=(
        Check("rank.smallest", "predicted_rank"),
        Check("rank.largest", "predicted_rank"),
        Check("num_undecidable", 0),
        Check("share_between_bounds", 1.0),
    ),
    claims=claims,
    seconds=lambda case: 4e-10 * case["num_teachers"] * ((case["inputs"] + 1) * case["hidden"]) ** 3 + 0.2,
    view=View(
        figures=(
            Lines(
                title="N inputs and N hidden units: the largest two",
                where={"shape": "square"},
                x="hidden",
                series=(
                    Series(r"largest, predicted $|J_0|^2$", points="top.mean", line="mean_part_expected"),
                    Series("second", points="second.mean"),
                ),
                x_label="N",
                y_label="eigenvalue, mean over teachers",
            ),
            density_figure("N inputs and N hidden units", "square", "N = {inputs}"),
            density_figure("different numbers", "oblong", "{inputs} inputs, {hidden} hidden"),
        ),
        table=(
            "inputs",
            "hidden",
            Column("num_teachers", "teachers"),
            Column("num_parameters", "p"),
            Column("rank.largest", "rank", ".0f"),
            Column("predicted_rank", "predicted", ".0f"),
            Column("num_seen_by_eigenvalues", "seen by eigenvalues"),
            Column("top.mean", "largest"),
            Column("mean_part.mean", "|J0|^2"),
            Column("second.mean", "second"),
            Column("median_positive", "median > 0"),
        ),
    ),
    answered=Answer(
        "As many as the formula of the rank says, most of them nearing zero as N grows; the one away from all others"
        " grows with |J0|^2, which is Nh (1 + 2/Ni) + 4 on average.",
        num_claims=8,
        cases="agrees",
    ),
)
