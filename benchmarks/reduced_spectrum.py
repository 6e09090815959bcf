"""How much faster is the spectrum of a deep linear loss Hessian without its explicit kernel?

Question: the whole spectrum and the rank of H_L of a linear network, from its weights and data, by the explicit kernel
(building the reduced matrix included), against LAPACK ``dsyevd`` for eigenvalues alone on the finished dense matrix
(building it not included). Both run in turn in one process, the best of several rounds counts. The driver is also run
from MKL (torch) on both matrices, so that the gain of the reduction is seen apart from that of a library. Processor
seconds stand beside the clock's: with one thread they hold even where other programs share the machine.

    python benchmarks/reduced_spectrum.py                        # writes benchmarks/results/reduced_spectrum.json
    OMP_NUM_THREADS=1 python benchmarks/reduced_spectrum.py      # the same on one thread
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import torch
from harness import ROUNDS, environment, write

from hessmap.measurement import numerical_rank
from hessmap.networks import FullyConnected
from hessmap.records import RankMeasurement, Spectrum
from hessmap_research.deep_linear import DeepLinear, DeepLinearHessian, reduce_deep_linear
from hessmap_research.deep_linear.reduction import reduced_spectrum

CASES = (
    {"widths": (64, 30, 20, 10), "num_samples": 300, "wanted_speedup": 3.0},
    {"widths": (49, 50, 40, 30, 10), "num_samples": 200, "wanted_speedup": 8.0},
)
WANTED_ERROR = 1e-9


def drawn(widths: tuple[int, ...], num_samples: int) -> tuple[list[torch.Tensor], torch.Tensor, torch.Tensor]:
    """Gaussian weights, standard normal inputs and targets."""
    generator = torch.Generator().manual_seed(0)
    model = FullyConnected(widths).build(seed=0)
    inputs = torch.randn(num_samples, widths[0], generator=generator, dtype=torch.float64)
    targets = torch.randn(num_samples, widths[-1], generator=generator, dtype=torch.float64)
    return [weight.detach() for weight in model.parameters()], inputs, targets


class Clock:
    """Seconds of the clock and of the processor, by name, round after round."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.processor_seconds: dict[str, list[float]] = {}

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        start, processor_start = time.perf_counter(), time.process_time()
        result = work()
        self.processor_seconds.setdefault(name, []).append(time.process_time() - processor_start)
        self.seconds.setdefault(name, []).append(time.perf_counter() - start)
        return result


def without_kernel(
    weights: list[torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor
) -> tuple[Spectrum, RankMeasurement]:
    found = reduced_spectrum(reduce_deep_linear(DeepLinear.from_data(weights, None, inputs, targets)))
    return found, numerical_rank(found)


def dsyevd(column_major: np.ndarray) -> np.ndarray:
    """Eigenvalues in ascending order; the matrix is overwritten."""
    return scipy.linalg.eigh(column_major, eigvals_only=True, driver="evd", overwrite_a=True, check_finite=False)


def measure(widths: tuple[int, ...], num_samples: int, wanted_speedup: float) -> dict[str, Any]:
    data = drawn(widths, num_samples)
    network = DeepLinear.from_data(data[0], None, *data[1:])
    dense = DeepLinearHessian(network).to_dense()
    reduction = reduce_deep_linear(network)
    clock = Clock()
    for _ in range(ROUNDS):
        found, rank = clock.timed("ours", lambda: without_kernel(*data))
        # The copies are made before the clock starts.
        for name, matrix in (("dense", dense), ("reduced", reduction.matrix)):
            copy = np.array(matrix.numpy(), order="F")
            eigenvalues = clock.timed(name, lambda copy=copy: dsyevd(copy))
            if name == "dense":
                known = eigenvalues[::-1]
            clock.timed(f"{name}_mkl", lambda matrix=matrix: torch.linalg.eigvalsh(matrix))
    best = {name: min(times) for name, times in clock.seconds.items()}
    best_processor = {name: min(times) for name, times in clock.processor_seconds.items()}
    errors = compared(found, known)
    speedup = best["dense"] / best["ours"]
    return {
        "widths": widths,
        "num_samples": num_samples,
        "num_parameters": network.num_parameters,
        "reduced_size": len(reduction.matrix),
        "rank": rank.to_dict(),
        "kernel_residual": reduction.kernel_residual,
        "seconds": clock.seconds,
        "processor_seconds": clock.processor_seconds,
        "best_seconds": best,
        "best_processor_seconds": best_processor,
        "speedup": speedup,
        "processor_speedup": best_processor["dense"] / best_processor["ours"],
        "wanted_speedup": wanted_speedup,
        "speedup_mkl": best["dense_mkl"] / best["reduced_mkl"],
        **errors,
        "passes": speedup >= wanted_speedup and errors["largest_error_relative_to_norm"] <= WANTED_ERROR,
    }


def compared(found: Spectrum, dense: np.ndarray) -> dict[str, float]:
    """Errors against the dense spectrum, relative to the norm and to each non-zero eigenvalue.

    Neither spectrum knows an eigenvalue better than a few eps ||H||: relative to the smallest one that is
    ``rounding_over_smallest``, below which a per-eigenvalue error says nothing about either of them.
    """
    differences = np.abs(found.eigenvalues - dense)
    non_zero = found.eigenvalues != 0
    relative = differences[non_zero] / np.abs(found.eigenvalues[non_zero])
    return {
        "norm": found.norm,
        "smallest_kept": found.smallest_kept,
        "largest_error_relative_to_norm": float(differences.max() / found.norm),
        "largest_error_relative_to_each": float(relative.max()),
        "rounding_over_smallest": float(np.finfo(float).eps * found.norm / found.smallest_kept),
    }


def line(result: dict[str, Any]) -> str:
    best = result["best_seconds"]
    return (
        f"{'-'.join(map(str, result['widths']))}: {result['num_parameters']} -> {result['reduced_size']}, "
        f"dense {best['dense']:.2f} s, ours {best['ours']:.2f} s: {result['speedup']:.1f}x "
        f"(wanted {result['wanted_speedup']:g}x; in processor seconds {result['processor_speedup']:.1f}x; "
        f"in MKL {result['speedup_mkl']:.1f}x); "
        f"error {result['largest_error_relative_to_norm']:.1e} of the norm, "
        f"{result['largest_error_relative_to_each']:.1e} of each eigenvalue; "
        f"rank {result['rank']['value']}; {'passes' if result['passes'] else 'FAILS'}"
    )


def main() -> int:
    where = environment()
    rows = [measure(**case) for case in CASES]
    for row in rows:
        print(line(row))
    write("reduced_spectrum", where, rows)
    return 0 if all(row["passes"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
