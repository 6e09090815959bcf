"""The Hessian at the teacher is the Fisher information, and how the two part away from it.

For the model y | x ~ N(f(x), I) the Fisher information is E[score score^T] over x and over labels y of the model,
score = J^T (y - f). It equals H_o = E[J^T J]; at the teacher H_f is zero and H_L = H_o. Here the scores come from the
exact engine on Gaussian inputs and drawn labels, the Hessians from closed forms: the two share nothing. With the labels
of the teacher in the place of drawn ones ("empirical Fisher") the matrix is zero at the teacher, and not H.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Cloud, Column, Lines, Series, View

ACTIVATIONS = {"identity": "identity", "quadratic": "polynomial(0,1,0.5)", "relu": "relu", "tanh": "tanh"}
DISTANCES = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
INPUTS, HIDDEN = 3, 3
_NUM_BATCHES, _NUM_SAMPLES = 20, 2000
_FAR = 6.0  # standard errors of the mean of 20 batches, over about a hundred entries


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.theory.teacher_student import TeacherStudent

    network = TeacherStudent(INPUTS, HIDDEN, ACTIVATIONS[case["activation"]], case["outputs"])
    teacher = network.draw(0)
    student = network.from_vector(teacher.vector + case["distance"] * network.draw(1).vector)
    hessian, fisher = network.population_hessian(student, teacher), network.outer_product_hessian(student)
    sampled, empirical = _sampled_fishers(network, student, teacher)
    error = sampled.std(axis=0, ddof=1) / np.sqrt(len(sampled))
    upper = np.triu_indices(len(fisher))
    gap = float(np.linalg.norm(hessian - fisher) / np.linalg.norm(fisher))
    return {
        "num_parameters": network.num_parameters,
        "deviation": float((np.abs(sampled.mean(axis=0) - fisher)[error > 0] / error[error > 0]).max()),
        "gap": gap,
        **({"gap_at_teacher": gap, "empirical_at_teacher": float(np.abs(empirical).max())} if gap < 1e-9 else {}),
        "empirical_norm": float(np.linalg.norm(empirical) / np.linalg.norm(fisher)),
        "hessian_entries": hessian[upper],
        "fisher_entries": sampled.mean(axis=0)[upper],
        "loss": max(float(network.population_loss(student, teacher)), 0.0),  # rounding at the teacher
    }


def _sampled_fishers(network: Any, student: Any, teacher: Any) -> tuple[Any, Any]:
    """E[score score^T] with drawn labels on each of some batches, and with the labels of the teacher on all of them."""
    import numpy as np
    import torch

    from hessmap.hessians.jacobian import output_jacobian
    from hessmap.problem.problem import Problem

    student_model, teacher_model = _model(network, student), _model(network, teacher)
    generator = torch.Generator().manual_seed(3)
    drawn: list[Any] = []
    given: list[Any] = []
    for _ in range(_NUM_BATCHES):
        inputs = torch.randn(_NUM_SAMPLES, network.inputs, generator=generator, dtype=torch.float64)
        targets = teacher_model(inputs).detach()
        jacobian = output_jacobian(Problem(student_model, "squared", inputs, targets)).numpy()
        noise = torch.randn(targets.shape, generator=generator, dtype=torch.float64).numpy()
        residual = (targets - student_model(inputs)).detach().numpy()
        for found, label in ((drawn, noise), (given, residual)):
            score = np.einsum("so,sop->sp", label, jacobian)
            found.append(score.T @ score / len(score))
    return np.stack(drawn), np.mean(given, axis=0)


def _model(network: Any, weights: Any) -> Any:
    """The built network with these weights."""
    import torch

    from hessmap.networks import FullyConnected

    model = FullyConnected(network.widths, activation=_built_name(network.activation)).build()
    with torch.no_grad():
        for parameter, array in zip(model.parameters(), weights.arrays, strict=True):
            parameter.copy_(torch.from_numpy(array))
    return model


def _built_name(activation: Any) -> Any:
    from hessmap.networks import Polynomial

    return activation if isinstance(activation, str) else Polynomial(activation)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """H_f is linear in the residual, which is linear in a small distance."""
    for activation in ACTIVATIONS:
        curve = {row["distance"]: row["gap"] for row in rows if row["activation"] == activation and row["outputs"] == 1}
        if not {0.01, 0.1} <= set(curve):
            continue
        ratio = curve[0.1] / curve[0.01]
        detail = f"{curve[0.01]:.3g} of the Fisher's norm at 0.01, {curve[0.1]:.3g} at 0.1, {ratio:.1f} times"
        yield Claim(
            claim_id("gap-linear", activation),
            f"{activation}: the gap of Hessian and Fisher is linear in the distance",
            8 < ratio < 12,
            detail,
        )


STUDY = Study(
    name="teacher/fisher",
    question="Is the Hessian at the teacher the Fisher information, and what happens away from it?",
    reference="A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal Point, Appendix D",
    cases=grid(activation=ACTIVATIONS, outputs=[1, 2], distance=DISTANCES),
    measure=measure,
    checks=(
        Check("deviation", _FAR, relation="at_most"),
        Check("gap_at_teacher", 1e-14, relation="at_most"),
        Check("empirical_at_teacher", 0.0),
    ),
    claims=claims,
    seconds=1.0,
    view=View(
        figures=(
            Cloud(
                title="at the teacher",
                where={"distance": 0.0},
                x="hessian_entries",
                y="fisher_entries",
                x_label="Hessian, closed form",
                y_label="Fisher, sampled scores",
                diagonal="both equal",
            ),
            Cloud(
                title="at distance 1",
                where={"distance": 1.0},
                x="hessian_entries",
                y="fisher_entries",
                x_label="Hessian, closed form",
                y_label="Fisher, sampled scores",
                diagonal="both equal",
            ),
            Lines(
                title="Hessian against Fisher",
                where={"outputs": 1},
                x="distance",
                split="activation",
                series=(Series("{activation}", line="gap", points="gap"),),
                x_label="distance from the teacher",
                y_label="norm of the difference / of Fisher",
                x_scale="log",
                y_scale="log",
                x_limits=(0.008, 1.3),
                y_limits=(4e-3, 1.0),
            ),
        ),
        table=(
            "activation",
            "outputs",
            "distance",
            Column("deviation", "standard errors", ".2f"),
            Column("gap", "|H - F| / |F|", ".2g"),
            Column("empirical_norm", "empirical F / F", ".2g"),
            Column("loss", "loss", ".2g"),
        ),
    ),
    answered=Answer(
        "It depends on the place: at the teacher it is; away from it their gap is linear in the distance.",
        num_claims=4,
        cases="agrees",
    ),
)
