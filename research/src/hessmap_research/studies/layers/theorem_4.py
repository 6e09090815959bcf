"""Wide networks at initialisation: c - 1 large eigenvalues, and which closed form of their space is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hessmap.theory.layers import printed_subspace_overlap_limit
from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Series, View

if TYPE_CHECKING:
    from torch import Tensor

    from hessmap.problem.problem import Problem

_NUM_CLASSES = 4
_WIDTHS = (16, 64, 256, 512, 1024)
_NUM_SAMPLES = 4000
_WIDEST_HESSIAN = 512  # of wider layers the output factor alone is measured


def measure(case: Case) -> dict[str, Any]:
    """Overlaps of the top c - 1 eigenspace of the measured E[M] with that of every form of M*, and H with its factors.

    ``exact`` takes the joint activities of the units as they are sampled, independent of A; ``corrected`` has a
    probability for every unit, ``printed`` one half. The ``*_space`` are their limits for many units.
    """
    import torch

    from hessmap.layers import layer_factors, mean_output_hessian
    from hessmap.theory.layers import (
        activity,
        limit_subspace,
        logit_subspace,
        output_factor_limit,
        printed_output_factor_limit,
    )

    first, second, problem = _random_problem(case)
    measured = layer_factors(problem, "0").output_factor
    middle = mean_output_hessian(problem)
    active = (problem.inputs @ first.T > 0).to(torch.float64)
    joint = active.T @ active / len(active)
    probabilities = activity(first)
    forms = {
        "exact": joint * (second.T @ middle @ second),
        "corrected": output_factor_limit(second, middle, probabilities),
        "printed": printed_output_factor_limit(second, middle),
    }
    spaces = {
        **{name: _top_space(form) for name, form in forms.items()},
        "corrected_space": limit_subspace(second, probabilities),
        "printed_space": logit_subspace(second),
    }
    found = _top_space(measured)
    record: dict[str, Any] = {
        "num_inputs": first.shape[1],
        "output_ratio": _ratio(torch.linalg.eigvalsh(measured).flip(0)),
        "overlap": {name: _overlap(found, space) for name, space in spaces.items()},
        "scale": {name: _largest(measured) / _largest(form) for name, form in forms.items()},
        "mean_squared_activity": float((probabilities**2).mean()),
    }
    if case["width"] <= _WIDEST_HESSIAN:
        record |= _layer_hessian(problem)
    return record


def _layer_hessian(problem: Problem) -> dict[str, Any]:
    from hessmap.layers import layer_hessian
    from hessmap.layers.eigenpairs import layer_eigenpairs

    hessian = layer_hessian(problem, "0")
    found = layer_eigenpairs(hessian, _NUM_CLASSES, tolerance=1e-6)
    assert found.eigenvectors is not None
    product = hessian.kronecker_approximation()
    factors = product.eigenvectors(product.leading(_NUM_CLASSES - 1))
    return {
        "hessian_ratio": _ratio(found.eigenvalues),
        "hessian_overlap": _overlap(found.eigenvectors[:, : _NUM_CLASSES - 1], factors),
        "converged": found.converged,
    }


def _random_problem(case: Case) -> tuple[Tensor, Tensor, Problem]:
    """W1 with entries N(0, 1/d), W2 with N(0, 1/n), inputs max(0, N(0, I)); d grows a little faster than n."""
    import torch
    from torch import nn

    from hessmap.problem.problem import Problem

    width, count = case["width"], case["num_samples"]
    inputs = round(width ** (1.25 if width <= _WIDEST_HESSIAN else 1.1))
    generator = torch.Generator().manual_seed(case["seed"])

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    first, second = normal(width, inputs) / inputs**0.5, normal(_NUM_CLASSES, width) / width**0.5
    layers = [nn.Linear(inputs, width, bias=False), nn.Linear(width, _NUM_CLASSES, bias=False)]
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1]).to(torch.float64)
    for layer, weight in zip(layers, (first, second), strict=True):
        layer.weight = nn.Parameter(weight)
    labels = torch.arange(count) % _NUM_CLASSES  # M does not depend on them
    return first, second, Problem(model, "cross_entropy", normal(count, inputs).relu(), labels)


def _ratio(eigenvalues: Any) -> float:
    """lambda_c / lambda_{c-1}."""
    return float(eigenvalues[_NUM_CLASSES - 1] / eigenvalues[_NUM_CLASSES - 2])


def _top_space(factor: Any) -> Any:
    import numpy as np

    return np.linalg.eigh(np.asarray(factor))[1][:, ::-1][:, : _NUM_CLASSES - 1]


def _largest(factor: Any) -> float:
    import numpy as np

    return float(np.linalg.eigvalsh(np.asarray(factor))[-1])


def _overlap(first: Any, second: Any) -> float:
    from hessmap.measurement.overlap import overlap_curve

    return overlap_curve(first, second).at(_NUM_CLASSES - 1)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Theorems 4.1 and 4.2 as they are, and the closed form of equation 8 with its correction; means over seeds."""
    for name, of in (("output_ratio", "E[M]"), ("hessian_ratio", "the layer Hessian")):
        means = _means(rows, name)
        if len(means) > 1:
            falls = all(after < before for before, after in pairwise(means.values()))
            yield Claim(
                claim_id("falls-with-width", name),
                f"lambda_c / lambda_(c-1) of {of} falls with the width",
                falls,
                _listed(means),
            )
    for base, claim, name, narrowest in (
        (
            "kronecker",
            "Layer Hessian and Kronecker product: overlap above 0.99 from 64 units on",
            "hessian_overlap",
            64,
        ),
        ("exact", "Theorem 4.2 with M* as defined: overlap above 0.99", "overlap.exact", 16),
        ("corrected", "Corrected closed form of M*: overlap above 0.99 from 64 units on", "overlap.corrected", 64),
        (
            "corrected-space",
            "Corrected limit of the space: overlap above 0.99 from 64 units on",
            "overlap.corrected_space",
            64,
        ),
    ):
        means = {width: mean for width, mean in _means(rows, name).items() if width >= narrowest}
        if means:
            yield Claim(claim_id("overlap", base), claim, min(means.values()) > 0.99, _listed(means))
    for base, claim, name in (
        ("printed", "Equation 8 as printed: overlap between 0.75 and 0.90", "overlap.printed"),
        ("printed-space", "Its limit as printed: overlap between 0.75 and 0.90", "overlap.printed_space"),
    ):
        means = _means(rows, name)
        yield Claim(
            claim_id("overlap", base), claim, all(0.75 < mean < 0.90 for mean in means.values()), _listed(means)
        )


def _means(rows: Sequence[Row], name: str) -> dict[int, float]:
    """The mean over seeds for every width, in the order of widths."""
    values: dict[int, list[float]] = {}
    for row in sorted(rows, key=lambda row: int(row["width"])):
        if name in row:
            values.setdefault(row["width"], []).append(row.number(name))
    return {width: sum(found) / len(found) for width, found in values.items()}


def _listed(means: dict[int, float]) -> str:
    return ", ".join(f"n = {width}: {mean:.4f}" for width, mean in means.items())


def _joined(label: str, name: str) -> Series:
    """Circles that a line joins."""
    return Series(label, line=name, points=name)


STUDY = Study(
    name="layers/theorem-4",
    question="Do wide random networks keep c - 1 large eigenvalues, and is the space of them what the weights say?",
    reference="Wu et al. 2022, Theorems 4.1 and 4.2, equation 8 (corrected: units are not active half of the time)",
    cases=grid(width=_WIDTHS, num_samples=[_NUM_SAMPLES], seed=range(3)),
    measure=measure,
    claims=claims,
    seconds=lambda case: {16: 1.0, 64: 2.0, 256: 9.0, 512: 40.0, 1024: 8.0}.get(case["width"], 10.0),
    view=View(
        figures=(
            Lines(
                title="the eigengap behind c - 1 = 3 eigenvalues",
                x="width",
                series=(_joined("$E[M]$", "output_ratio"), _joined("layer Hessian", "hessian_ratio")),
                x_scale="log",
                y_scale="log",
                x_label="units n",
                y_label="$\\lambda_c / \\lambda_{c-1}$",
            ),
            Lines(
                title="top c - 1 space of E[M] against closed forms",
                x="width",
                series=(
                    _joined("$M^*$, sampled activities", "overlap.exact"),
                    _joined("$M^*$ corrected, $q_i$", "overlap.corrected"),
                    _joined("$M^*$ printed, 1/2", "overlap.printed"),
                    _joined("layer Hessian and factors", "hessian_overlap"),
                ),
                x_scale="log",
                x_label="units n",
                y_label="overlap",
                y_limits=(0.0, None),
                marks=(Mark(printed_subspace_overlap_limit(), "limit of the printed form", axis="y"),),
            ),
        ),
        table=(
            "width",
            "num_inputs",
            Column("output_ratio", "ratio of E[M]", ".3f"),
            Column("hessian_ratio", "ratio of H", ".3f"),
            Column("hessian_overlap", "H and factors", ".4f"),
            Column("overlap.exact", "M* exact", ".4f"),
            Column("overlap.corrected", "corrected", ".4f"),
            Column("overlap.printed", "printed", ".3f"),
            Column("scale.printed", "lambda1 over printed", ".2f"),
        ),
        group_by=("width",),
    ),
    answered=Answer(
        "It depends on how activities are counted: both hold with those of the units, by overlaps above 0.99 from"
        " 64 units on; with one half for all, as printed, the overlap is between 0.75 and 0.90.",
        num_claims=8,
    ),
)
