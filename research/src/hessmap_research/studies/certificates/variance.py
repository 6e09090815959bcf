"""Does a fitted posterior become narrow where the curvature is large?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import INDEX, Column, Lines, Series, View
from hessmap_research.studies.certificates.certificate_record import stored_certificate

_BASES = ("approximate", "iterative", "iterative_weights", "iterative_activity")


def measure(case: Case) -> dict[str, Any]:
    """Log deviations of the first layer ordered by the product of the factors' eigenvalues, and their correlation."""
    import numpy as np
    from scipy.stats import spearmanr

    from hessmap.layers import kronecker_approximation
    from hessmap.problem.problem import Problem
    from hessmap_research.studies.certificates.task import task

    log_deviations = stored_certificate(case)["log_deviations"].double().numpy()
    model, _, data, _ = task(case["network"], case["data"], case["seed"])
    problem = Problem(model, "cross_entropy", data.inputs[:2000].double(), data.targets[:2000])
    product = kronecker_approximation(problem, "0")
    outputs, inputs = (values.numpy() for values, _ in (product.output_eigenpairs, product.input_eigenpairs))
    eigenvalues = np.outer(outputs, inputs).ravel()
    order = np.argsort(-eigenvalues)
    ordered = log_deviations.ravel()[order]
    window = max(1, len(ordered) // 60)
    means = ordered[: len(ordered) // window * window].reshape(-1, window).mean(1)
    correlation = spearmanr(2 * log_deviations.ravel(), eigenvalues).statistic
    return {"correlation": float(correlation), "log_variance": 2 * means, "window": window}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Figure 31: directions of larger eigenvalue have smaller variance."""
    values = [row.number("correlation") for row in rows]
    detail = f"Spearman correlations from {min(values):.2f} to {max(values):.2f}"
    yield Claim(
        "curvature-lowers-variance", "The larger the curvature the smaller the variance", max(values) < 0, detail
    )


def cases(data: str) -> tuple[Case, ...]:
    """The posteriors of ``certificates/digits`` and of ``certificates/table-1``."""
    if data == "digits":
        return grid(network=["T-20"], basis=_BASES, iterations=[2000], draws=[100_000], seed=range(3))
    return grid(network=["T-600"], basis=_BASES, iterations=[12_000], draws=[600_000], seed=[0])


STUDY = Study(
    name="certificates/variance",
    question="Does a fitted posterior become narrow where the curvature is large?",
    reference="Wu et al. 2022, Figure 31",
    cases=cases,
    measure=measure,
    data=("digits", "mnist"),
    claims=claims,
    seconds=lambda case: 5.0 if case["data"] == "digits" else 150.0,
    version=2,
    view=View(
        figures=tuple(
            Lines(
                title=f"{network} on {data}: variance by decreasing eigenvalue",
                where={"data": data},
                x=INDEX,
                series=(Series("{basis}", line="log_variance", points="log_variance"),),
                split="basis",
                x_label="directions, a sixtieth of them at a time",
                y_label="mean log variance",
            )
            for data, network in (("digits", "T-20"), ("mnist", "T-600"))
        ),
        table=("network", "basis", "seed", Column("correlation", "Spearman", ".3f")),
        group_by=("network", "basis"),
    ),
    answered=Answer(
        "Yes: the larger the curvature the smaller the variance, by Spearman correlations from -0.93 to -0.43.",
        num_claims=1,
    ),
)
