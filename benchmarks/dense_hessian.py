"""How fast is the exact dense Hessian, beside torch.func.hessian, jax.jit(jax.hessian) and one GEMM of its size?

Tanh, squared loss, float64, standard-normal data. The GEMM is the product of a p x N with an N x p matrix: the flops of
the outer-product term alone, without symmetry. Every road runs in this process, in turn, on the stated threads.

    make bench    # or: python benchmarks/dense_hessian.py
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch
from harness import best_seconds, environment, timed, write

from hessmap.curvature import functional_hessian, loss_hessian, outer_product_hessian
from networks import SIZES, jax_risk, problem, torch_risk

WANTED = {"torch": 20.0, "jax": 8.0, "gemm": {1: 1.5, 2: 2.0}, "parts": 2.5, "agreement": 1e-12}


def measure(widths: tuple[int, ...], num_samples: int, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    made = problem(widths, num_samples, "tanh")
    size = made.num_parameters
    left = torch.randn(size, num_samples, dtype=torch.float64)
    loss_hessian(made).to_dense()  # warm
    right = left.T.contiguous()
    seconds = {
        "gemm": best_seconds(lambda: left @ right),
        "loss": best_seconds(lambda: loss_hessian(made).to_dense()),
        "outer_product": best_seconds(lambda: outer_product_hessian(made).to_dense()),
        "functional": best_seconds(lambda: functional_hessian(made).to_dense()),
    }
    row: dict[str, Any] = {"widths": widths, "num_samples": num_samples, "num_parameters": size, "threads": threads}
    row["over_gemm"] = seconds["loss"] / seconds["gemm"]
    row["parts_over_loss"] = (seconds["outer_product"] + seconds["functional"]) / seconds["loss"]
    passes = row["over_gemm"] <= WANTED["gemm"][threads] and row["parts_over_loss"] <= WANTED["parts"]
    if threads == os.cpu_count():
        ours = loss_hessian(made).to_dense()
        seconds["torch"], theirs = timed(lambda: torch.func.hessian(torch_risk(made))(made.parameters))
        row["torch_disagreement"] = float((ours - theirs).abs().max() / theirs.abs().max())
        row["torch_speedup"] = seconds["torch"] / seconds["loss"]
        seconds["jax"], row["jax_disagreement"] = against_jax(made, widths, ours)
        row["jax_speedup"] = seconds["jax"] / seconds["loss"]
        passes = passes and row["torch_speedup"] >= WANTED["torch"] and row["jax_speedup"] >= WANTED["jax"]
        passes = passes and max(row["torch_disagreement"], row["jax_disagreement"]) <= WANTED["agreement"]
    return row | {"seconds": seconds, "wanted": WANTED, "passes": passes}


def against_jax(made: Any, widths: tuple[int, ...], ours: torch.Tensor) -> tuple[float, float]:
    import jax
    import numpy as np

    risk, parameters = jax_risk(made, widths, "tanh")
    hessian = jax.jit(jax.hessian(risk))
    theirs = np.asarray(hessian(parameters))  # compiles
    seconds = best_seconds(lambda: hessian(parameters).block_until_ready())
    return seconds, float(np.abs(ours.numpy() - theirs).max() / np.abs(theirs).max())


def main() -> int:
    where = environment()
    rows = [measure(widths, count, threads) for threads in (1, 2) for widths, count in SIZES]
    for row in rows:
        peers = [name for name in ("torch", "jax") if f"{name}_speedup" in row]
        speed = "".join(f", {name} {row[f'{name}_speedup']:.1f}x" for name in peers)
        widths = "-".join(map(str, row["widths"]))
        print(
            f"{widths} on {row['threads']} threads: H_L {row['seconds']['loss'] * 1e3:.0f} ms, "
            f"{row['over_gemm']:.2f} GEMM, parts {row['parts_over_loss']:.2f}{speed}: "
            f"{'passes' if row['passes'] else 'FAILS'}"
        )
    write("dense_hessian", where, rows)
    return 0 if all(row["passes"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
