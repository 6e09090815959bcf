"""How many products does top_eigenpairs make beyond the minimum of single-vector Lanczos?

For 20 eigenvalues of diagonal operators of size 20,000, given as operators of a user without any hint, to residuals of
1e-3 and 1e-6 of the norm. The minimum is the number of steps of single-vector Lanczos with full orthogonalisation from
a random start until the 20 largest Ritz pairs have these residuals, without any check. The default call also checks
symmetry, excludes missed eigenvalues with a probability of 1e-3 and compares its first product and its vectors with
further products; ``by_phase`` has the products of the iteration (with that of the symmetry), of the probes for missed
eigenvalues, and of the checks at the end. Products are counted, not timed: the counts are the same on every machine.

    python benchmarks/krylov_minimum.py [--seeds 3]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from harness import environment, write
from torch import Tensor

from hessmap.linalg import as_operator
from hessmap.measurement import eigenpair_iteration, top_eigenpairs

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


def products_by_phase(work: Callable[[], Any]) -> tuple[Any, dict[str, int]]:
    """What a call of top_eigenpairs gave, and its products in the iteration, in probes and in checks."""
    spent = {"probes": 0, "iteration": 0}

    def counted(phase: str, owner: Any, name: str, process_of: Callable[..., Any]) -> Callable[[], None]:
        original = getattr(owner, name)

        def wrapped(*given: Any, **options: Any) -> Any:
            product = process_of(*given)
            before = product.num_products
            found = original(*given, **options)
            spent[phase] += product.num_products - before
            return found

        setattr(owner, name, wrapped)
        return lambda: setattr(owner, name, original)

    iteration = eigenpair_iteration.EigenpairIteration
    undo = [
        counted("probes", iteration, "_probed", lambda own, process, *rest: process.product),
        counted("iteration", iteration, "_iterated_pairs", lambda own, process: process.product),
    ]
    try:
        found = work()
    finally:
        for restore in undo:
            restore()
    spent["iteration"] -= spent["probes"]
    return found, spent | {"checks": found.num_products - sum(spent.values())}


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
                work = partial(top_eigenpairs, operator, COUNT, tolerance=tolerance, seed=seed)
                found, by_phase = products_by_phase(work)
                least = minimum(diagonal, tolerance, seed)
                error = float(np.abs(found.eigenvalues - np.sort(values)[::-1][:COUNT]).max() / values.max())
                lines.append(
                    {
                        "spectrum": name,
                        "tolerance": tolerance,
                        "seed": seed,
                        "num_products": found.num_products,
                        "by_phase": by_phase,
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
