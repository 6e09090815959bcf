"""What the two tables of the paper share: cases by network and basis, our bound beside the published one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hessmap.studies import Case, Column, Finding, Row, View, grid
from hessmap.studies.certificates.bound_view import BOUND, BOUND_AND_TEST_ERROR, PARTS_OF_BOUND
from hessmap.studies.certificates.certificate_record import LABELS
from hessmap.studies.certificates.order import by_seed

DRAWS = 600_000


def table_cases(iterations: Mapping[str, int]) -> tuple[Case, ...]:
    """Every network in every basis; ``iterations`` by network."""
    return tuple(
        case
        for network, number in iterations.items()
        for case in grid(network=[network], basis=tuple(LABELS), iterations=[number], draws=[DRAWS], seed=[0])
    )


def table_findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """The order of the bases, and every bound against the published one."""
    found = by_seed(rows)
    for claim, one, other in (
        ("The iterative basis beats the approximate one", "iterative", "approximate"),
        ("The approximate basis beats the standard one", "approximate", "standard"),
    ):
        networks = {key[1]: bounds for key, bounds in found.items() if one in bounds and other in bounds}
        if networks:
            holds = all(bounds[one] < bounds[other] for bounds in networks.values())
            detail = ", ".join(f"{name}: {b[one]:.4f} against {b[other]:.4f}" for name, b in networks.items())
            yield Finding(claim, holds, detail)
    compared = [row for row in rows if "published" in row]
    if compared:
        below = [row for row in compared if row.number("bound") <= row.number("published")]
        others = [f"{row['network']} {row['basis']}" for row in compared if row not in below]
        detail = f"{len(below)} of {len(compared)}" + (f"; above: {', '.join(others)}" if others else "")
        yield Finding("Every bound is at most the published one", not others, detail)
    safe = [row.number("stochastic_test_error") < row.number("bound") for row in rows]
    yield Finding("No bound is below the error on test data", all(safe), f"in {sum(safe)} of {len(safe)} cases")


TABLE_VIEW = View(
    figures=(BOUND_AND_TEST_ERROR,),
    table=(
        "network",
        "basis",
        BOUND,
        Column("published", "published", ".4f"),
        *PARTS_OF_BOUND,
        Column("test_error", "mean weights", ".4f"),
        Column("seconds", "s", ".0f"),
    ),
)
