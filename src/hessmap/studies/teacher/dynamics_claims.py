"""What is claimed of learning near the teacher: where the quadratic form holds, where it breaks, and the last rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hessmap.studies import Finding, Row


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    flows = [row for row in rows if row["item"] == "flow"]
    for deviation, most in ((1e-3, 0.01), (1e-2, 0.2)):
        chosen = [row for row in flows if row["deviation"] == deviation]
        if chosen:
            claim = f"Perturbations of {deviation:g}: flow and quadratic form agree within {most:.0%} up to t = 8"
            worst = max(row["farthest_ratio"] for row in chosen)
            yield Finding(claim, worst < most, _farthest(chosen))
    broken = [row for row in flows if row["deviation"] == 0.1 and row["network"] == "linear"]
    if broken:
        times = [", ".join(f"{row[f'ratio_at.t{time}']:.2g}" for row in broken) for time in (2, 4, 8)]
        detail = f"flow / form {times[0]} at t = 2, {times[1]} at t = 4, {times[2]} at t = 8"
        claim = (
            "Perturbations of 0.1: the quadratic picture breaks for linear networks, by more than 2 for some teacher"
        )
        yield Finding(claim, max(row["ratio_at.t8"] for row in broken) > 2, detail)
        pairs = [(row["ratio_at.t8"], row["shifted_excess"]) for row in broken]
        claim = (
            "Half an order of magnitude apart at most: that ratio, and what the eigenvalues at the students' ends give"
        )
        detail = ", ".join(f"{ratio:.2g} and {excess:.2g}" for ratio, excess in pairs)
        yield Finding(claim, all(1 / 3.2 < ratio / excess < 3.2 for ratio, excess in pairs), detail)
    curved = [row for row in flows if row["deviation"] == 0.1 and row["network"] != "linear"]
    if curved:
        worst = max(row["farthest_ratio"] for row in curved)
        yield Finding("Perturbations of 0.1: the curved networks stay within 25 %", worst < 0.25, _farthest(curved))
    yield from _late_findings([row for row in rows if row["item"] == "late"])


def _farthest(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row['network']} {row['farthest_ratio']:.2%}" for row in rows)


def _late_findings(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        rate, exponent = row["last_rate"], row["exponent"]
        detail = f"rate {rate:.4g}, 2 lambda_min {exponent:.4g}"
        if row["network"] == "erf":
            claim = "The erf network does not reach the rate of its smallest eigenvalue in 1,500 units of time"
            yield Finding(claim, rate > 2 * exponent, detail)
        else:
            claim = f"The smallest non-zero eigenvalue sets the last rate, {row['network']}"
            yield Finding(claim, abs(rate / exponent - 1) < 0.05, detail)
