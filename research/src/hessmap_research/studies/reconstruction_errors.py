"""What is lost of a Hessian by keeping its leading eigenvectors alone, and how that depends on the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hessmap.records import Part
from hessmap_research.runner.claims import Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.studies.plotted_curves import few_places, four_digits

if TYPE_CHECKING:
    from hessmap.records import Spectrum

SMALL = 0.01
INPUTS = ("as they are", "standardised")


def error_curves(spectra: Mapping[Part, Spectrum]) -> dict[str, Any]:
    """The error of each Hessian over the number of eigenvectors kept, and how many leave at most one percent."""
    from hessmap.measurement import reconstruction_error

    errors = {part: reconstruction_error(found).errors[1:] for part, found in spectra.items()}
    places = few_places(len(errors["loss"]))
    return {
        "kept": places,
        "error": {part: four_digits(errors[part][places - 1]) for part in errors},
        "kept_for_one_percent": {part: 1 + int((errors[part] > SMALL).sum()) for part in errors},
    }


def standardised_inputs_claim(
    part: Part, symbol: str, name: str, plain: Sequence[Row], standardised: Sequence[Row]
) -> Claim:
    """Images as they are have one large eigenvalue, their mean, that hides what is missed behind the norm."""
    twins = {_setting(row): row[name] for row in plain}
    pairs = [(twins[_setting(row)], row[name]) for row in standardised if _setting(row) in twins]
    errors = [after for _, after in pairs]
    detail = f"in {{right}} of {{total}} cases, {min(errors, default=0):.2%} to {max(errors, default=0):.2%}"
    claim = f"{symbol}: with standardised inputs they miss more"
    return Claim.about(claim_id("standardised", part), claim, pairs, lambda pair: pair[1] > pair[0], detail)


def _setting(row: Row) -> tuple[Any, ...]:
    return tuple(value for name, value in sorted(row.case.items()) if name != "inputs")
