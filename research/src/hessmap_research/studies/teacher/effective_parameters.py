"""The rank of polynomial teachers in exact arithmetic against the formulas, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View

_FULL = {f"degree {degree}": (0, *(3, 5, 7, 11, 13, 17)[:degree]) for degree in (1, 2, 3, 4, 5, 6)}
_MONOMIALS = {f"x^{degree}": (*[0] * degree, 1) for degree in (2, 3, 4, 5)}
_GAPS = {
    "x + x^3": (0, 1, 0, 1),
    "x + x^4": (0, 1, 0, 0, 1),
    "x + x^5": (0, 1, 0, 0, 0, 1),
    "x^2 + x^3": (0, 0, 1, 1),
    "x^2 + x^4": (0, 0, 1, 0, 1),
    "x^3 + x^4": (0, 0, 0, 1, 1),
    "x^2 + x^5": (0, 0, 1, 0, 0, 1),
    "x + x^3 + x^5": (0, 1, 0, 1, 0, 1),
    "x^2 + x^3 + x^4": (0, 0, 1, 1, 1),
}
_COEFFICIENTS = {**_FULL, **_MONOMIALS, **_GAPS}
_LARGEST_INPUTS = {1: 8, 2: 10, 3: 6, 4: 5, 5: 4, 6: 3}
_BIASED = ("degree 1", "degree 2", "degree 3", "degree 4", "degree 5", "x^2", "x^3", "x^4")


def cases() -> tuple[Case, ...]:
    """One row of cells for each activation, bias and number of inputs; the hidden units go past saturation."""
    plain = [case for name in _COEFFICIENTS for case in _rows(name, "none", 0)]
    biased = [case for bias in ("hidden", "output", "both") for name in _BIASED for case in _rows(name, bias, 1)]
    return (*plain, *biased)


def _rows(name: str, bias: str, fewer: int) -> tuple[Case, ...]:
    largest = max(2, _LARGEST_INPUTS[len(_COEFFICIENTS[name]) - 1] - fewer)
    return grid(activation=[name], bias=[bias], inputs=range(1, largest + 1))


def measure(case: Case) -> dict[str, Any]:
    """The rank of every cell of a row, as predicted and in GF(P)."""
    from hessmap.exact import generic_rank
    from hessmap.networks import FullyConnected, Polynomial
    from hessmap.theory import effective_parameters

    activation, inputs, bias = Polynomial(_COEFFICIENTS[case["activation"]]), case["inputs"], case["bias"]
    hidden = np.arange(1, _num_hidden(inputs, activation.degree) + 1)
    predicted = [effective_parameters(inputs, int(width), activation, bias) for width in hidden]
    biased = (bias in ("hidden", "both"), bias in ("output", "both"))
    exact = [
        generic_rank(
            FullyConnected((inputs, int(width), 1), biased, activation),
            "outer_product",
            num_samples=_num_samples(count.num_parameters, count.function_space_dim),
            seed=int(width),
        )
        for width, count in zip(hidden, predicted, strict=True)
    ]
    ranks, claimed = np.array([rank.value for rank in exact]), np.array([count.value for count in predicted])
    return {
        "hidden": hidden,
        "exact": ranks,
        "predicted": claimed,
        "num_parameters": np.array([count.num_parameters for count in predicted]),
        "num_cells": len(hidden),
        "num_right": int((ranks == claimed).sum()),
        "share_right": float((ranks == claimed).mean()),
        "num_theorems": sum(count.kind == "exact" for count in predicted),
        "plus_one": int((ranks == _without_bias(inputs, hidden, activation) + 1).sum()),
        "triangular": int((np.array([rank.size for rank in exact]) - ranks == hidden * (hidden - 1) // 2).sum()),
        "failure_bound": max(rank.failure_bound for rank in exact),
    }


def _num_hidden(inputs: int, degree: int) -> int:
    """Past the width at which all polynomials of the degree are reached; at least ten for degree 1 and 2."""
    from math import comb

    return max(10, -(-comb(inputs + degree, degree) // (inputs + 1)) + 2) if degree > 2 else 10


def _num_samples(num_parameters: int, function_space_dim: int | None) -> int:
    """No more samples than functions there are: their values already have the rank of the functions."""
    assert function_space_dim is not None
    return min(num_parameters, function_space_dim + 2)


def _without_bias(inputs: int, hidden: Any, activation: Any) -> Any:
    from hessmap.theory import effective_parameters

    return np.array([effective_parameters(inputs, int(width), activation).value for width in hidden])


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    cells, right = sum(row["num_cells"] for row in rows), sum(row["num_right"] for row in rows)
    theorems = sum(row["num_theorems"] for row in rows)
    detail = f"{right:,} of {cells:,} cells, {theorems:,} of them by theorem"
    yield Claim.counted("formulas-exact", "The formulas give the exact rank in every cell", right, cells, detail)
    quadratic = [row for row in rows if (row["activation"], row["bias"]) == ("degree 2", "none")]
    if quadratic:
        agreeing = sum(int((row.array("exact") == _equation_14(row)).sum()) for row in quadratic)
        total = sum(row["num_cells"] for row in quadratic)
        yield Claim.counted(
            "equation-14", "Equation 14 holds for x + x^2", agreeing, total, f"{agreeing} of {total} cells"
        )
        yield _zeros(quadratic)
    biased = [row for row in rows if row["bias"] != "none" and row["activation"].startswith("degree")]
    if biased:
        yield from _one_more(biased)


def _equation_14(row: Row) -> Any:
    inputs = row["inputs"]
    lack = np.maximum(0, inputs - row.array("hidden"))
    return inputs + inputs * (inputs + 1) / 2 - (lack**2 + 3 * lack) / 2


def _zeros(rows: Sequence[Row]) -> Claim:
    """The paper has Nh (Nh - 1) / 2 zeros above a threshold of Nh; it is below one."""
    narrow = sum(int((row.array("hidden") <= row["inputs"]).sum()) for row in rows)
    met = sum(row["triangular"] for row in rows)
    coincidences = sum(int((row.array("hidden") == row["inputs"] + 3).sum()) for row in rows)
    claim = "Nh(Nh-1)/2 zeros hold for Nh <= Ni (the paper: for large Nh), and beyond at Nh = Ni + 3 only"
    return Claim("triangular-zeros", claim, met == narrow + coincidences, f"{met} cells: {narrow} and {coincidences}")


def _one_more(rows: Sequence[Row]) -> Iterator[Claim]:
    for bias in ("hidden", "output", "both"):
        for words, is_low in (("degree 1 and 2", True), ("degree 3 to 5", False)):
            chosen = [row for row in rows if row["bias"] == bias and (row["activation"] <= "degree 2") == is_low]
            met, cells = sum(row["plus_one"] for row in chosen), sum(row["num_cells"] for row in chosen)
            if chosen and (is_low or bias == "output"):
                claim = f"A bias ({bias}) adds exactly one, {words}"
                yield Claim.counted(
                    claim_id("bias-adds-one", bias, "low" if is_low else "high"),
                    claim,
                    met,
                    cells,
                    f"{met} of {cells} cells",
                )
            elif chosen:
                claim = f"A bias ({bias}) adds more than the one that the paper expects, {words}"
                yield Claim(
                    claim_id("bias-adds-more", bias, "high"),
                    claim,
                    met < cells,
                    f"exactly one in {met} of {cells} cells",
                )


_RANKS = (Series("inputs {inputs}", line="predicted", points="exact"),)

STUDY = Study(
    name="teacher/effective-parameters",
    question="Is the rank of every polynomial teacher the one that the theorem of Alexander and Hirschowitz gives?",
    reference="A Teacher-Student Perspective on .. Learning Near the Optimal Point, equation 14, Sections 4 and 6",
    cases=cases(),
    measure=measure,
    checks=(Check("num_right", "num_cells", "equal"),),
    claims=claims,
    view=View(
        figures=(
            *(
                Lines(
                    title=f"{name}, bias {bias}",
                    x="hidden",
                    series=_RANKS,
                    split="inputs",
                    where={"activation": name, "bias": bias},
                    x_label="hidden units",
                    y_label="rank",
                )
                for name, bias in (
                    ("degree 2", "none"),
                    ("degree 3", "none"),
                    ("degree 4", "none"),
                    ("x^4", "none"),
                    ("x^2 + x^4", "none"),
                    ("degree 3", "hidden"),
                )
            ),
        ),
        table=(
            "activation",
            "bias",
            "inputs",
            Column("num_cells", "cells"),
            Column("num_right", "right"),
            Column("num_theorems", "by theorem"),
            Column("failure_bound", "failure bound", ".1e"),
        ),
    ),
    seconds=0.2,
    answered=Answer(
        "Yes: in 2,781 of 2,781 cells, 2,572 of them by theorem.",
        num_claims=9,
        cases="agrees",
    ),
)
