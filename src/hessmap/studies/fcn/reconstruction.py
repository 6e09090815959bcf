"""How much of a Hessian is lost when only as many eigenvectors are kept as the linear formula counts?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.results import PARTS
from hessmap.studies import Case, Column, Finding, Lines, Mark, Row, Series, Study, View, grid
from hessmap.studies.drawn_curves import few_places, rounded
from hessmap.studies.fcn.nonlinear_record import (
    ACTIVATIONS,
    CHECKS,
    DATA,
    DIGITS_NETWORKS,
    LOSSES,
    PAPERS_NETWORKS,
    measured_case,
    networks_on,
    numerical_below_certified,
    seconds,
)
from hessmap.studies.rank_comparison import SYMBOLS

_SMALL = 0.01
_INPUTS = ("as they are", "standardised")


def cases(data: str) -> tuple[Case, ...]:
    """The paper's settings, and the same with standardised inputs, of which it does not speak."""
    return grid(network=networks_on(data), loss=LOSSES, inputs=_INPUTS, activation=ACTIVATIONS, seed=[0])


def measure(case: Case) -> dict[str, Any]:
    from hessmap.measurement import reconstruction_error

    record, spectra = measured_case(case)
    places = few_places(record["num_parameters"])
    errors = {part: reconstruction_error(spectra[part]).errors[1:] for part in PARTS}
    return record | {
        "kept": places,
        "error": {part: rounded(errors[part][places - 1]) for part in PARTS},
        "kept_for_one_percent": {part: 1 + int((errors[part] > _SMALL).sum()) for part in PARTS},
    }


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """Section 5.3: the linear rank gives an excellent reconstruction. It depends on the inputs."""
    curved = [row for row in rows if row["activation"] != "identity"]
    plain, standardised = ([row for row in curved if row["inputs"] == kind] for kind in _INPUTS)
    for part in PARTS:
        symbol = SYMBOLS[part].strip("$")
        if plain:
            errors = [row[f"error_at_formula.{part}"] for row in plain]
            claim = f"{symbol}: the linear formula's eigenvalues miss less than {_SMALL:.0%} (inputs as they are)"
            detail = f"{min(errors):.2%} to {max(errors):.2%} in {len(plain)} cases"
            yield Finding(claim, max(errors) < _SMALL, detail)
        if plain and standardised:
            yield _dearer(symbol, f"error_at_formula.{part}", plain, standardised)
    yield from numerical_below_certified(rows)


def _dearer(symbol: str, name: str, plain: Sequence[Row], standardised: Sequence[Row]) -> Finding:
    """Images as they are have one large eigenvalue, their mean, that hides what is missed behind the norm."""
    twins = {_setting(row): row[name] for row in plain}
    pairs = [(twins[_setting(row)], row[name]) for row in standardised if _setting(row) in twins]
    larger = sum(after > before for before, after in pairs)
    errors = [after for _, after in pairs]
    detail = f"in {larger} of {len(pairs)} cases, {min(errors, default=0):.2%} to {max(errors, default=0):.2%}"
    return Finding(f"{symbol}: with standardised inputs they miss more", larger == len(pairs), detail)


def _setting(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("data", "network", "loss", "activation", "seed"))


def _figure(network: str, loss: str, part: str) -> Lines:
    return Lines(
        title=f"{SYMBOLS[part]}, {network}, {loss.replace('_', '-')}",
        where={"network": network, "loss": loss, "inputs": _INPUTS[0]},
        facet="data",
        x="kept",
        split="activation",
        series=(Series("{activation}", line=f"error.{part}"),),
        marks=(
            Mark(f"linear_formula.{part}", "formula"),
            Mark(f"measured.{part}", "numerical"),
            Mark(f"certified.{part}", "certified"),
            Mark("sample_bound", "$N K$"),
        ),
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
    data=DATA,
    checks=CHECKS,
    findings=findings,
    seconds=seconds,
    view=View(
        figures=tuple(
            _figure(network, loss, part)
            for smaller, larger in (DIGITS_NETWORKS, PAPERS_NETWORKS)
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
            *(Column(f"error_at_formula.{part}", SYMBOLS[part].strip("$"), ".2%") for part in PARTS),
            Column("kept_for_one_percent.loss", "kept for 1 %"),
        ),
    ),
)
