"""How fast is the exact dense Hessian, beside torch.func.hessian, jax.jit(jax.hessian) and one GEMM of its size?

Tanh, squared loss, float64, standard-normal data. The GEMM is the product of a p x N with an N x p matrix: the flops of
the outer-product term alone, without symmetry. All run in this process on the stated threads, the same number of
rounds, taken in turn; speedups are best over best, medians and spreads stand beside them.

    make bench    # or: python benchmarks/dense_hessian.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import environment, seconds_in_turn, speedups, write

from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
from networks import SIZES, jax_risk, problem, torch_risk

WANTED = {"torch": 20.0, "jax": 8.0, "gemm": {1: 1.5, 2: 2.0}, "parts": 2.5, "agreement": 1e-12}


def measure(widths: tuple[int, ...], num_samples: int, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    made = problem(widths, num_samples, "tanh")
    size = made.num_parameters
    left = torch.randn(size, num_samples, dtype=torch.float64)
    loss_hessian(made).to_dense()  # warm
    right = left.T.contiguous()
    works = {
        "gemm": lambda: left @ right,
        "loss": lambda: loss_hessian(made).to_dense(),
        "outer_product": lambda: outer_product_hessian(made).to_dense(),
        "functional": lambda: functional_hessian(made).to_dense(),
    }
    with_peers = threads == os.cpu_count()
    if with_peers:
        works |= {
            "torch": lambda: torch.func.hessian(torch_risk(made))(made.parameters),
            "jax": compiled_jax_hessian(made, widths),
        }
    seconds, found = seconds_in_turn(works)
    row: dict[str, Any] = {"widths": widths, "num_samples": num_samples, "num_parameters": size, "threads": threads}
    row["over_gemm"] = seconds["loss"]["best"] / seconds["gemm"]["best"]
    parts = seconds["outer_product"]["best"] + seconds["functional"]["best"]
    row["parts_over_loss"] = parts / seconds["loss"]["best"]
    passes = row["over_gemm"] <= WANTED["gemm"][threads] and row["parts_over_loss"] <= WANTED["parts"]
    for peer in ("torch", "jax") if with_peers else ():
        row[f"{peer}_speedup"] = speedups(seconds, "loss", peer)
        theirs = torch.as_tensor(np.array(found[peer]))
        row[f"{peer}_disagreement"] = float((found["loss"] - theirs).abs().max() / theirs.abs().max())
        passes = passes and row[f"{peer}_speedup"]["best"] >= WANTED[peer]
        passes = passes and row[f"{peer}_disagreement"] <= WANTED["agreement"]
    return row | {"seconds": seconds, "wanted": WANTED, "passes": passes}


def compiled_jax_hessian(made: Any, widths: tuple[int, ...]) -> Callable[[], Any]:
    import jax

    risk, parameters = jax_risk(made, widths, "tanh")
    hessian = jax.jit(jax.hessian(risk))
    hessian(parameters).block_until_ready()  # compiles, not counted
    return lambda: hessian(parameters).block_until_ready()


def main() -> int:
    where = environment()
    rows = [measure(widths, count, threads) for threads in (1, 2) for widths, count in SIZES]
    for row in rows:
        peers = [name for name in ("torch", "jax") if f"{name}_speedup" in row]
        speed = "".join(
            f", {name} {ratio['best']:.1f}x (medians {ratio['median']:.1f}x)"
            for name, ratio in ((name, row[f"{name}_speedup"]) for name in peers)
        )
        widths = "-".join(map(str, row["widths"]))
        print(
            f"{widths} on {row['threads']} threads: H_L {row['seconds']['loss']['best'] * 1e3:.0f} ms, "
            f"{row['over_gemm']:.2f} GEMM, parts {row['parts_over_loss']:.2f}{speed}: "
            f"{'passes' if row['passes'] else 'FAILS'}"
        )
    write("dense_hessian", where, rows)
    return 0 if all(row["passes"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
