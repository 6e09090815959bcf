"""How many products does top_eigenpairs make beyond the minimum of single-vector Lanczos?

For 20 eigenvalues of diagonal operators of size 20,000 and of the loss Hessians of six networks on digits, all given as
operators of a user without any hint, to residuals of 1e-3 and 1e-6 of the norm. The minimum is the number of steps of
single-vector Lanczos with full orthogonalisation from a random start until the 20 largest Ritz pairs have these
residuals and the right values (residuals can be small before, while an eigenvalue is still missing), without any check.
The default call also checks symmetry, excludes missed eigenvalues with a probability of 1e-3 and verifies its first
product and its vectors by one more; ``by_phase`` has the products of the iteration (with that of the symmetry), of the
probes for missed eigenvalues, and of the check at the end. Products are counted, not timed: the counts are the same on
every machine.

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
from torch import Tensor, nn

from hessmap.datasets import digits
from hessmap.hessians import loss_hessian
from hessmap.linalg import as_operator
from hessmap.measurement import eigenpair_iteration, top_eigenpairs
from hessmap.problem import Problem
from hessmap.training import train

SIZE, COUNT = 20_000, 20
TOLERANCES = 1e-3, 1e-6


def spectra() -> dict[str, np.ndarray]:
    places = np.arange(1, SIZE + 1)
    outliers = np.concatenate([np.linspace(10, 1, COUNT), 0.1 * np.linspace(1, 0, SIZE - COUNT)])
    return {"1/k": 1 / places, "20 outliers over a bulk": outliers, "1/sqrt(k)": places**-0.5}


class Encoder(nn.Module):
    """Rows of an image as tokens, one layer of attention, the mean token classified."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Linear(8, 16), nn.Linear(16, 10)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, activation="gelu", batch_first=True)

    def forward(self, images: Tensor) -> Tensor:
        hidden: Tensor = self.layer(self.embedding(images.view(len(images), 8, 8)))
        return self.head(hidden.mean(1))


def convolutional() -> nn.Module:
    layers = nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(256, 10))


def connected() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 10))


def hessians() -> dict[str, Callable[[Tensor], Tensor]]:
    """Products with the loss Hessians of three networks on 120 digits, untrained and after 20 epochs."""
    inputs, labels = (torch.as_tensor(part)[:120] for part in digits())
    data, products = (inputs.double().flatten(1), labels), {}
    for name, make in (("MLP", connected), ("two convolutions", convolutional), ("attention", Encoder)):
        for epochs in (0, 20):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                model = make().double().eval()
            if epochs:
                train(model, data, "cross_entropy", epochs=epochs, batch_size=32, learning_rate=0.05, seed=0)
            hessian = loss_hessian(Problem(model.eval(), "cross_entropy", *data))
            products[f"{name}, {epochs} epochs"] = hessian
    return products


def minimum(product: Callable[[Tensor], Tensor], expected: np.ndarray, size: int, tolerance: float, seed: int) -> int:
    """Steps of single-vector Lanczos until the 20 largest Ritz pairs have the residual and the expected values."""
    vector = torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    basis, diagonal, beside = [vector / vector.norm()], [], []
    while True:
        image = product(basis[-1])
        diagonal.append(float(image @ basis[-1]))
        for _ in range(2):
            stacked = torch.stack(basis)
            image = image - stacked.T @ (stacked @ image)
        coupling = float(image.norm())
        found, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
        residuals = coupling * np.abs(vectors[-1, -COUNT:])
        allowed = tolerance * np.abs(found).max()
        if (
            len(diagonal) >= COUNT
            and max(residuals.max(), np.abs(found[: -COUNT - 1 : -1] - expected).max()) <= allowed
        ):
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
    asked: list[tuple[str, int, Callable[[Tensor], Tensor], np.ndarray]] = []
    for name, values in spectra().items():
        asked.append((name, SIZE, partial(torch.mul, torch.from_numpy(values)), values))
    for name, hessian in hessians().items():
        values = np.linalg.eigvalsh(hessian.to_dense().numpy())
        asked.append((name, len(values), hessian.__matmul__, values))
    for name, size, product, values in asked:
        for tolerance in TOLERANCES:
            for seed in range(given.seeds):
                operator = as_operator(product, size)
                work = partial(top_eigenpairs, operator, COUNT, tolerance=tolerance, seed=seed)
                found, by_phase = products_by_phase(work)
                expected = np.sort(values)[::-1][:COUNT]
                least = minimum(product, expected, size, tolerance, seed)
                error = float(np.abs(found.eigenvalues - expected).max() / np.abs(values).max())
                lines.append(
                    {
                        "spectrum": name,
                        "size": size,
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
