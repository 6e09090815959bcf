"""The rank of the empirical neural tangent kernel of linear networks over the number of samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View
from hessmap_research.studies.fcn.rank_sweeps import DATA, network_and_problem
from hessmap_research.studies.hessian_ranks import data_ranks

if TYPE_CHECKING:
    from hessmap.hessians.jacobian import Kernel

_NUM_SAMPLES = (2, 5, 10, 20, 30, 40, 50, 60, 80, 100, 200, 300)
_WIDTHS = (64, 20, 20, 10)
_AT_START: dict[str, Any] = {"loss": ["squared"], "init": ["gaussian"], "seed": [0]}
_KERNELS: tuple[Kernel, ...] = ("full", "trace", "single_output")


def measure(case: Case) -> dict[str, Any]:
    """The three kernels of one network, and what the ranks of its inputs imply for each.

    The samples are the first of a pool that is standardised as a whole: they are not centred themselves, and the rank
    of the inputs, which counts without bias, differs from their centred rank, which counts with bias.
    """
    from hessmap.hessians.jacobian import tangent_kernel
    from hessmap.measurement import numerical_rank

    network, problem = network_and_problem(case)
    known, _ = data_ranks(problem, network.has_bias)
    input_rank, centred_rank = known["input_rank"], known["centred_input_rank"]
    return {
        "num_parameters": network.num_parameters,
        "input_rank": input_rank,
        "centred_input_rank": centred_rank,
        "predicted": _predicted_ranks(case, input_rank, centred_rank),
        "measured": {kind: numerical_rank(tangent_kernel(problem, kind)) for kind in _KERNELS},
    }


def _predicted_ranks(case: Case, input_rank: int, centred_rank: int) -> dict[str, int]:
    from hessmap_research.formulas import tangent_kernel as theory

    if case["bias"]:
        full = theory.tangent_kernel_rank_with_bias(case["widths"], centred_rank)
        scalar = theory.scalar_tangent_kernel_rank_with_bias(centred_rank)
    else:
        full = theory.tangent_kernel_rank(case["widths"], input_rank)
        scalar = theory.scalar_tangent_kernel_rank(input_rank)
    return {"full": full, "trace": scalar, "single_output": scalar}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """With bias the centred rank counts: the printed formula, with the uncentred one, is too large for few samples."""
    from hessmap_research.formulas.printed_fully_connected import theorem_12

    few = [row for row in rows if row["bias"] and row["centred_input_rank"] < row["input_rank"]]
    if few:
        printed = [theorem_12(row["widths"], row["input_rank"]) for row in few]
        above = sum(rank > row.number("measured.full") for rank, row in zip(printed, few, strict=True))
        detail = f"in {above} of {len(few)} cases whose centred inputs have a smaller rank"
        claim = "With bias, the rank of the uncentred inputs gives too much"
        yield Claim.counted("uncentred-too-large", claim, above, len(few), detail)


def _figure(bias: bool) -> Lines:
    labels = {"full": "all outputs", "trace": "trace over the outputs"}
    return Lines(
        title="with bias" if bias else "without bias",
        where={"bias": bias},
        facet="data",
        x="num_samples",
        series=tuple(Series(label, f"predicted.{kind}", f"measured.{kind}") for kind, label in labels.items()),
        x_label="number of samples",
        y_label="rank of the tangent kernel",
        y_scale="log",
    )


STUDY = Study(
    name="fcn/ntk",
    question="Does the rank of the tangent kernel follow the formula of the outer-product Hessian?",
    reference="Singh, Bachmann & Hofmann 2021, Figure S32",
    cases=grid(widths=[_WIDTHS], bias=[False, True], num_samples=_NUM_SAMPLES, **_AT_START),
    measure=measure,
    data=DATA,
    checks=tuple(Check(f"measured.{kind}", f"predicted.{kind}") for kind in _KERNELS),
    claims=claims,
    seconds=lambda case: 0.1 + 0.4 * (case["num_samples"] / 100) ** 3,
    view=View(
        figures=(_figure(bias=False), _figure(bias=True)),
        table=(
            "data",
            "bias",
            Column("num_samples", "N"),
            Column("input_rank", "r"),
            Column("centred_input_rank", "centred r"),
            Column("predicted.full", "predicted"),
            Column("measured.full", "all outputs"),
            Column("measured.full.gap", "gap", ".0e"),
            Column("predicted.trace", "predicted"),
            Column("measured.trace", "trace"),
            Column("measured.single_output", "one"),
        ),
    ),
    answered=Answer(
        "Yes, with the rank of the centred inputs where there is a bias; the rank of the uncentred ones gives too"
        " much there.",
        num_claims=1,
        cases="agrees",
    ),
)
