"""Kernel ridge regression, the contrast: the rank of its Jacobian as printed, as corrected, and as measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Cloud, Column, View

_RIDGE, _NUM_POINTS = 0.1, 5
# Inputs, samples, outputs and the affine dimension of the samples; their plane passes through the origin or not.
_SHAPES = (
    (4, 10, 5, 1, "origin"),
    (5, 20, 8, 2, "origin"),
    (5, 20, 8, 5, "origin"),
    (3, 20, 8, 3, "origin"),
    (6, 4, 8, 3, "off"),
    (6, 20, 2, 4, "origin"),
    (4, 10, 5, 2, "off"),
    (6, 20, 8, 3, "off"),
)


def cases() -> tuple[Case, ...]:
    names = ("input_dim", "num_samples", "output_dim", "affine_dim", "plane")
    return tuple(
        {**dict(zip(names, shape, strict=True)), "kernel": kernel, "seed": seed}
        for shape in _SHAPES
        for kernel in ("gaussian", "laplace")
        for seed in range(2)
    )


def measure(case: Case) -> dict[str, Any]:
    import numpy as np
    import torch

    from hessmap.maps.functions import function_rank, input_jacobians
    from hessmap.theory.functions import kernel_ridge, kernel_ridge_jacobian_rank, printed_kernel_ridge_jacobian_rank

    generator = np.random.default_rng([case["seed"], case["input_dim"], case["num_samples"]])
    inputs = _inputs(case, generator)
    outputs = generator.normal(size=(case["num_samples"], case["output_dim"]))
    width = float(np.sqrt(case["input_dim"]))
    fit = kernel_ridge(inputs, outputs, ridge=_RIDGE, kernel=case["kernel"], width=width)
    points = generator.normal(size=(_NUM_POINTS, case["input_dim"]))
    regression = _module(inputs, fit.coefficients, case["kernel"], width)
    found = function_rank(regression, points)
    jacobians = input_jacobians(regression, torch.from_numpy(points)).numpy()
    formula = np.stack([fit.jacobian(point) for point in points])
    scale = float(np.abs(jacobians).max())
    input_rank = int(np.linalg.matrix_rank(inputs))
    sizes = (case["num_samples"], case["output_dim"])
    return {
        "input_rank": input_rank,
        "predicted": kernel_ridge_jacobian_rank(case["input_dim"], *sizes, case["affine_dim"]),
        "printed": printed_kernel_ridge_jacobian_rank(*sizes, input_rank),
        "measured": found.value,
        "smallest_gap": found.smallest_gap,
        "all_equal": len(found.distribution) == 1,
        "formula_error": float(np.abs(formula - jacobians).max()) / scale,
        "printed_sign_error": float(np.abs(-formula - jacobians).max()) / scale,
    }


def _inputs(case: Case, generator: Any) -> Any:
    """Samples that span a plane of the wanted dimension, through the origin or off it."""
    affine = case["affine_dim"]
    places = generator.normal(size=(case["num_samples"], affine))
    inputs = places @ generator.normal(size=(affine, case["input_dim"]))
    return inputs + generator.normal(size=case["input_dim"]) if case["plane"] == "off" else inputs


def _module(inputs: Any, coefficients: Any, kernel: str, width: float) -> Any:
    """The predictor as a network that automatic differentiation knows: no formula of its Jacobian is used."""
    import torch
    from torch import Tensor, nn

    class Regression(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            squares = (points[:, None] - samples).square().sum(dim=2) / width**2
            values = (-squares / 2).exp() if kernel == "gaussian" else (-squares.sqrt()).exp()
            return values @ mixture

    samples, mixture = torch.from_numpy(inputs), torch.from_numpy(coefficients)
    return Regression()


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    wrong = [row for row in rows if row["measured"] != row["printed"]]
    shapes = sorted({(row["input_dim"], row["num_samples"], row["output_dim"], row["affine_dim"]) for row in wrong})
    claim = "Printed, min(rank X + 1, N, d_out), fails where the inputs span the whole space or a plane off the origin"
    is_told = all(row["affine_dim"] == row["input_dim"] or row["plane"] == "off" for row in wrong)
    detail = f"{len(wrong)} of {len(rows)} cases, shapes (d_in, N, d_out, dim aff) {shapes}"
    yield Claim("printed-fails", claim, bool(wrong) and is_told, detail)
    right = max(row["formula_error"] for row in rows)
    other = min(row["printed_sign_error"] for row in rows)
    detail = f"differs from automatic differentiation by {right:.1e}, with the printed sign by {other:.2g}"
    yield Claim(
        "kernel-derivative", "The derivative of the kernel is -(X - x) k'(r) / r", right < 1e-12 and other > 1, detail
    )
    clear = min(row["smallest_gap"] for row in rows)
    yield Claim(
        "gaps-clear", "Every measured rank is clear: a gap above 1000", clear > 1000, f"the smallest is {clear:.2g}"
    )


STUDY = Study(
    name="function/krr",
    question="What is the rank of the Jacobian of kernel ridge regression?",
    reference="Jacot 2023, appendix D.1; corrected",
    cases=cases(),
    measure=measure,
    checks=(Check("measured", "predicted", "equal"),),
    claims=claims,
    view=View(
        figures=(
            Cloud(
                title=f"as corrected, {len(cases())} cases",
                x="predicted",
                y="measured",
                x_label=r"$\min(d_{in}, N, d_{out}, 1 + \dim\,{\rm aff}\,X)$",
                y_label="measured rank, several cases a point",
                diagonal="measured = formula",
            ),
            Cloud(
                title=f"as printed, {len(cases())} cases",
                x="printed",
                y="measured",
                x_label=r"$\min({\rm rank}\,X + 1, N, d_{out})$",
                y_label="measured rank, several cases a point",
                diagonal="measured = formula",
            ),
        ),
        table=(
            Column("input_dim", "d_in"),
            Column("num_samples", "N"),
            Column("output_dim", "d_out"),
            Column("affine_dim", "dim aff X"),
            "plane",
            Column("input_rank", "rank X"),
            "printed",
            Column("predicted", "corrected"),
            "measured",
        ),
        group_by=("input_dim", "num_samples", "output_dim", "affine_dim", "plane"),
    ),
    seconds=0.1,
    answered=Answer(
        "min(d_in, N, d_out, 1 + dim aff X), in every case; the printed min(rank X + 1, N, d_out) fails in 16 of 32.",
        num_claims=3,
        cases="agrees",
    ),
)
