"""How many products does top_eigenpairs make beyond the minimum of single-vector Lanczos?

For 20 eigenvalues of diagonal operators of size 20,000, given as operators of a user without any hint, to residuals of
1e-3 and 1e-6 of the norm. The minimum is the number of steps of single-vector Lanczos with full orthogonalisation from
a random start until the 20 largest Ritz pairs have these residuals, without any check. The default call also checks
symmetry, excludes missed eigenvalues with a probability of 1e-3 and compares its first product and its vectors with
further products. Products are counted, not timed: the counts are the same on every machine.

    python benchmarks/krylov_minimum.py [--seeds 3]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from harness import environment, write
from torch import Tensor

from hessmap.linalg import as_operator
from hessmap.measurement import top_eigenpairs

SIZE, COUNT = 20_000, 20
TOLERANCES = 1e-3, 1e-6


def spectra() -> dict[str, np.ndarray]:
    places = np.arange(1, SIZE + 1)
    outliers = np.concatenate([np.linspace(10, 1, COUNT), 0.1 * np.linspace(1, 0, SIZE - COUNT)])
    return {"1/k": 1 / places, "20 outliers over a bulk": outliers, "1/sqrt(k)": places**-0.5}


def minimum(values: Tensor, tolerance: float, seed: int) -> int:
    """Steps of single-vector Lanczos until the 20 largest Ritz pairs have the residual."""
    vector = torch.randn(len(values), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    basis, diagonal, beside = [vector / vector.norm()], [], []
    while True:
        image = values * basis[-1]
        diagonal.append(float(image @ basis[-1]))
        for _ in range(2):
            stacked = torch.stack(basis)
            image = image - stacked.T @ (stacked @ image)
        coupling = float(image.norm())
        found, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
        residuals = coupling * np.abs(vectors[-1, -COUNT:])
        if len(diagonal) >= COUNT and residuals.max() <= tolerance * np.abs(found).max():
            return len(diagonal)
        beside.append(coupling)
        basis.append(image / coupling)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    lines = []
    for name, values in spectra().items():
        diagonal = torch.from_numpy(values)
        for tolerance in TOLERANCES:
            for seed in range(given.seeds):
                operator = as_operator(lambda vector, diagonal=diagonal: diagonal * vector, SIZE)
                found = top_eigenpairs(operator, COUNT, tolerance=tolerance, seed=seed)
                least = minimum(diagonal, tolerance, seed)
                error = float(np.abs(found.eigenvalues - np.sort(values)[::-1][:COUNT]).max() / values.max())
                lines.append(
                    {
                        "spectrum": name,
                        "tolerance": tolerance,
                        "seed": seed,
                        "num_products": found.num_products,
                        "minimum": least,
                        "ratio": round(found.num_products / least, 3),
                        "converged": found.converged,
                        "largest_error": error,
                        "num_probes": found.num_probes,
                        "num_restarts": found.num_restarts,
                    }
                )
                print(lines[-1], flush=True)
    write("krylov_minimum", environment(), lines)


if __name__ == "__main__":
    main()
