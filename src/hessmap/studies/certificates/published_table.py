"""What the two tables of the paper share: cases by network and basis, our bound beside the published one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hessmap.studies import Case, Cloud, Column, Finding, Row, View, grid
from hessmap.studies.certificates.certificate_record import LABELS
from hessmap.studies.certificates.order import by_seed

DRAWS = 600_000


def table_cases(networks: tuple[str, ...], iterations: int) -> tuple[Case, ...]:
    return grid(network=networks, basis=tuple(LABELS), iterations=[iterations], draws=[DRAWS], seed=[0])


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
    figures=(
        Cloud(
            title="bound and error on test data",
            x="bound",
            y="stochastic_test_error",
            colour="basis",
            x_label="bound",
            y_label="error of the stochastic network on test data",
        ),
    ),
    table=(
        "network",
        "basis",
        Column("bound", "bound", ".4f"),
        Column("published", "published", ".4f"),
        Column("kl", "KL", ".0f"),
        Column("sampled_error_bound", "error, samples", ".4f"),
        Column("stochastic_test_error", "error, test", ".4f"),
        Column("test_error", "mean weights", ".4f"),
        Column("seconds", "s", ".0f"),
    ),
)
