"""How long does the exact rank of a given network take?

The certified rank of the loss Hessian of a linear network with 2,720 parameters and of a ReLU network with about 1,000,
standard-normal weights and data, from the problem to the certificate.

    make bench    # or: python benchmarks/certified_rank.py
"""

from __future__ import annotations

import sys
from typing import Any

from harness import best_seconds, environment, write

from hessmap.exact import certified_rank
from networks import problem

CASES = (((64, 30, 20, 10), 300, "identity", 20.0), ((20, 25, 15, 8), 200, "relu", 10.0))


def measure(widths: tuple[int, ...], num_samples: int, activation: str, wanted_seconds: float) -> dict[str, Any]:
    made = problem(widths, num_samples, activation)
    certificate = certified_rank(made, "loss")
    seconds = best_seconds(lambda: certified_rank(made, "loss"))
    return {
        "widths": widths,
        "num_samples": num_samples,
        "activation": activation,
        "num_parameters": made.num_parameters,
        "rank": certificate.value,
        "failure_bound": certificate.failure_bound,
        "seconds": seconds,
        "wanted_seconds": wanted_seconds,
        "passes": seconds <= wanted_seconds,
    }


def main() -> int:
    where = environment()
    rows = [measure(*case) for case in CASES]
    for row in rows:
        print(
            f"{'-'.join(map(str, row['widths']))} {row['activation']}, {row['num_parameters']} parameters: "
            f"rank {row['rank']} in {row['seconds']:.1f} s (wanted {row['wanted_seconds']:g} s), "
            f"{'passes' if row['passes'] else 'FAILS'}"
        )
    write("certified_rank", where, rows)
    return 0 if all(row["passes"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
