"""The spectrum and rank of a linear network's loss Hessian, the papers' way and ours, from weights to numbers.

Theirs: jax.jit(jax.hessian), then a full singular value decomposition (numpy.linalg.svd with vectors, as their scripts
do through matrix_rank and svd). Ours: the explicit kernel of deep linear networks, then eigenvalues alone. The same
number of rounds for both, taken in turn; the speedup is best over best, medians and spreads stand beside it.

    make bench    # or: python benchmarks/papers_way.py
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from harness import environment, seconds_in_turn, speedups, write

from hessmap.measurement import numerical_rank
from hessmap_research.deep_linear import deep_linear_of, reduce_deep_linear
from hessmap_research.deep_linear.reduction import reduced_spectrum
from networks import SIZES, jax_risk, problem

WANTED = {(64, 30, 20, 10): 15.0, (49, 50, 40, 30, 10): 30.0}


def measure(widths: tuple[int, ...], num_samples: int) -> dict[str, Any]:
    import jax

    made = problem(widths, num_samples, "identity")
    risk, parameters = jax_risk(made, widths, "identity")
    hessian = jax.jit(jax.hessian(risk))
    hessian(parameters).block_until_ready()  # compiles, not counted

    def theirs() -> Any:
        return np.linalg.svd(np.asarray(hessian(parameters)))[1]

    def ours() -> Any:
        found = reduced_spectrum(reduce_deep_linear(deep_linear_of(made)))
        return found, numerical_rank(found)

    seconds, values = seconds_in_turn({"theirs": theirs, "ours": ours})
    speedup, singular_values = speedups(seconds, "ours", "theirs"), values["theirs"]
    found, rank = values["ours"]
    magnitudes = np.sort(np.abs(found.eigenvalues))[::-1]
    return {
        "widths": widths,
        "num_samples": num_samples,
        "num_parameters": made.num_parameters,
        "seconds": seconds,
        "speedup": speedup,
        "wanted_speedup": WANTED[widths],
        "rank": rank.value,
        "disagreement_relative_to_norm": float(np.abs(magnitudes - singular_values).max() / singular_values[0]),
        "passes": speedup["best"] >= WANTED[widths],
    }


def main() -> int:
    where = environment()
    rows = [measure(*size) for size in SIZES]
    for row in rows:
        spent, speedup = row["seconds"], row["speedup"]
        print(
            f"{'-'.join(map(str, row['widths']))}: theirs {spent['theirs']['best']:.1f} s, "
            f"ours {spent['ours']['best']:.2f} s, {speedup['best']:.1f}x (medians {speedup['median']:.1f}x, "
            f"wanted {row['wanted_speedup']:g}x), rank {row['rank']}, "
            f"{'passes' if row['passes'] else 'FAILS'}"
        )
    write("papers_way", where, rows)
    return 0 if all(row["passes"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
