"""How much of a Hessian is lost when only as many eigenvectors are kept as the linear formula counts?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.records import PARTS, Part
from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View
from hessmap_research.studies.fcn import nonlinear_record as shared
from hessmap_research.studies.hessian_ranks import NAMES, SYMBOLS, certified_rank_claim
from hessmap_research.studies.reconstruction_errors import INPUTS, SMALL, error_curves, standardised_inputs_claim


def cases(data: str) -> tuple[Case, ...]:
    """The paper's settings, and the same with standardised inputs, of which it does not speak."""
    return grid(
        network=shared.networks_on(data), loss=shared.LOSSES, inputs=INPUTS, activation=shared.ACTIVATIONS, seed=[0]
    )


def measure(case: Case) -> dict[str, Any]:
    record, spectra = shared.case_record(case)
    return record | error_curves(spectra)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Section 5.3: the linear rank gives an excellent reconstruction. It depends on the inputs."""
    curved = [row for row in rows if row["activation"] != "identity"]
    plain, standardised = ([row for row in curved if row["inputs"] == kind] for kind in INPUTS)
    for part in PARTS:
        symbol = NAMES[part]
        if plain:
            errors = [row[f"error_at_formula.{part}"] for row in plain]
            claim = f"{symbol}: the linear formula's eigenvalues miss less than {SMALL:.0%} (inputs as they are)"
            detail = f"{min(errors):.2%} to {max(errors):.2%} in {len(plain)} cases"
            yield Claim(claim_id("small-error", part), claim, max(errors) < SMALL, detail)
        if plain and standardised:
            yield standardised_inputs_claim(part, symbol, f"error_at_formula.{part}", plain, standardised)
    yield certified_rank_claim(rows)


def _figure(network: str, loss: str, part: Part) -> Lines:
    return Lines(
        title=f"{SYMBOLS[part]}, {network}, {loss.replace('_', '-')}",
        part=part,
        where={"network": network, "loss": loss, "inputs": INPUTS[0]},
        facet="data",
        x="kept",
        split="activation",
        series=(Series("{activation}", line=f"error.{part}"),),
        marks=shared.rank_marks(part),
        x_label="eigenvectors kept",
        y_label="reconstruction error",
        y_scale="log",
        y_limits=(1e-10, 1.5),
    )


STUDY = Study(
    name="fcn/reconstruction",
    question="How much of a non-linear Hessian is lost at the rank that the linear formula gives?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 7 and S18 to S26",
    cases=cases,
    measure=measure,
    data=shared.DATA,
    checks=shared.CHECKS,
    claims=claims,
    seconds=shared.seconds,
    view=View(
        figures=tuple(
            _figure(network, loss, part)
            for smaller, larger in (shared.DIGITS_NETWORKS, shared.PAPERS_NETWORKS)
            for network, loss in ((smaller, "squared"), (smaller, "cross_entropy"), (larger, "squared"))
            for part in PARTS
        ),
        table=(
            "data",
            "network",
            "loss",
            "inputs",
            "activation",
            Column("linear_formula.loss", "linear"),
            *(Column(f"error_at_formula.{part}", NAMES[part], ".2%") for part in PARTS),
            Column("kept_for_one_percent.loss", "kept for 1 %"),
        ),
    ),
    answered=Answer(
        "For inputs as they are at most 0.48% of H_o, 2.27% of H_f and 1.42% of H_L; more with standardised"
        " inputs, up to 11.75% of H_f.",
        num_claims=7,
        cases="agrees",
        fails=(
            "small-error-functional",
            "small-error-loss",
        ),
    ),
)
