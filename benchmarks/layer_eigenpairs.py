"""How fast are the top eigenpairs of one layer, beside scipy's eigsh on curvlinops' Hessian and hessian-eigenthings?

Top 200 eigenpairs of fc1 of F-200^2 (156,800 weights) and of conv2 of LeNet5 (2,400 weights) on 5,000 images of MNIST,
after a short training, float64. Every library must leave residuals ||H v - lambda v|| <= 1e-6 lambda_1, measured by our
operator for all of them. eigsh and Lanczos of hessian-eigenthings (full re-orthogonalisation) take products with the
Hessian restricted to the layer's weight by automatic differentiation over all samples at once. The last has no stopping
rule: it is given the fewest steps that leave such residuals. A peer whose products alone would take more than 100 s is
timed on three of them: its seconds are those of all its products, without what its iteration adds (``part`` says so).
The memory that is predicted is what is held and iterated with; temporaries of building it are bounded by the budget of
the problem, 64 MiB here. Each network is a process of its own: memory that one gave back would be the other's for free.

    make bench-peers    # or: HESSMAP_DATA=.. python benchmarks/layer_eigenpairs.py [--samples 5000] [--count 200]

With the kernels of processors without AVX-512:

    ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 python .. --only "fc1 of F-200^2" --name layer_eigenpairs_avx2
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness import RESULTS, environment, forget_peak, peak_bytes, timed, write
from torch import Tensor, nn

from hessmap.datasets import mnist
from hessmap.layers import layer_hessian, plan_layer_hessian
from hessmap.layers.eigenpairs import layer_eigenpairs, layer_eigenpairs_bytes
from hessmap.problem.problem import Problem

TOLERANCE = 1e-6
WANTED_SPEEDUP = 4.0
WANTED_MEMORY = 0.2
BUDGET = 2**26
LIMIT = 100.0  # seconds of products above which a peer is timed on three of them


def fully_connected() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)
    )


def lenet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


CASES: dict[str, tuple[Callable[[], nn.Module], str, float]] = {
    "fc1 of F-200^2": (fully_connected, "1", 0.01),
    "conv2 of LeNet5": (lenet, "3", 0.05),
}


def trained(made: Callable[[], nn.Module], inputs: Tensor, labels: Tensor, rate: float, epochs: int) -> nn.Module:
    torch.manual_seed(0)
    model = made()
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(epochs):
        for chosen in torch.randperm(len(inputs)).split(128):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
            optimiser.step()
    return model.double()


def clocked(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Seconds of the clock, and of the processor: on one thread those hold on a machine that others share."""
    start = time.process_time()
    seconds, result = timed(work)
    return {"seconds": seconds, "processor_seconds": time.process_time() - start}, result


class CountedHessian:
    """curvlinops' Hessian in one weight, products counted."""

    def __init__(self, model: nn.Module, weight: nn.Parameter, data: tuple[Tensor, Tensor]) -> None:
        from curvlinops import HessianLinearOperator

        self.operator = HessianLinearOperator(model, nn.CrossEntropyLoss(), [weight], [data], check_deterministic=False)
        self.num_products = 0
        self.size = weight.numel()

    def product(self, vector: np.ndarray) -> np.ndarray:
        self.num_products += 1
        return (self.operator @ torch.from_numpy(np.ascontiguousarray(vector).reshape(-1))).detach().numpy()


def by_scipy(
    hessian: Any, model: nn.Module, weight: nn.Parameter, data: tuple[Tensor, Tensor], count: int
) -> dict[str, Any]:
    """With curvlinops' products; with ours first, which tells how many it will be."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    theirs, num_products = CountedHessian(model, weight, data), 0

    def ours(vector: np.ndarray) -> np.ndarray:
        nonlocal num_products
        num_products += 1
        return hessian.matmat(torch.from_numpy(np.array(vector, dtype=np.float64).reshape(-1, 1)))[:, 0].numpy()

    def run(product: Callable[[np.ndarray], np.ndarray]) -> Any:
        operator = LinearOperator((theirs.size, theirs.size), matvec=product, dtype=np.float64)
        start = np.random.default_rng(0).standard_normal(theirs.size)
        return eigsh(operator, k=count, which="LA", tol=TOLERANCE, v0=start)

    values, vectors = run(ours)
    times, part = some_products(theirs.product, theirs.size, num_products)
    if part == 1.0:
        times, (values, vectors) = clocked(lambda: run(theirs.product))
    return times | {"products": num_products, "part": part, "values": values[::-1], "vectors": vectors[:, ::-1]}


def by_eigenthings(
    hessian: Any, model: nn.Module, name: str, data: tuple[Tensor, Tensor], count: int
) -> dict[str, Any]:
    """With the fewest steps that leave small residuals, found with our products from the same start."""
    import hessian_eigenthings as peer

    def loss(network: nn.Module, batch: Any) -> Tensor:
        return nn.functional.cross_entropy(network(batch[0]), batch[1])

    steps, values, vectors = enough_steps(hessian, count)
    operator = peer.HessianOperator(model, [data], loss, param_filter=lambda given, _: given == name)
    run = lambda: peer.lanczos(operator, k=count, max_iter=steps, reorthogonalize=True, which="LA", seed=0)  # noqa: E731
    times, part = some_products(lambda vector: operator.matvec(torch.from_numpy(vector)), operator.size, steps)
    if part == 1.0:
        times, found = clocked(run)
        order = found.eigenvalues.argsort(descending=True)
        values, vectors = found.eigenvalues[order].numpy(), found.eigenvectors[order].T.numpy()
    return times | {"products": steps, "part": part, "values": values, "vectors": vectors}


def some_products(product: Callable[[np.ndarray], Any], size: int, count: int) -> tuple[dict[str, float], float]:
    """The seconds of that many products, scaled up from a few; the part that was run, 1 if all of them fit the limit
    and are better run for themselves."""
    vector = np.ones(size) / size**0.5
    product(vector)
    times, _ = clocked(lambda: [product(vector) for _ in range(3)])
    if times["seconds"] / 3 * count <= LIMIT:
        return times, 1.0
    return {key: value / 3 * count for key, value in times.items()}, 3 / count


def enough_steps(hessian: Any, count: int) -> tuple[int, np.ndarray, np.ndarray]:
    """Lanczos with full re-orthogonalisation, until ``count`` residuals are small: steps, values and vectors."""
    size = hessian.size
    most = min(size, 8 * count)
    basis = torch.zeros(most, size, dtype=torch.float64)
    inner = torch.zeros(most, most, dtype=torch.float64)
    current = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for step in range(most):
        basis[step] = current / current.norm()
        current = hessian.matmat(basis[step][:, None])[:, 0]
        for _ in range(2):
            inside = basis[: step + 1] @ current
            current = current - inside @ basis[: step + 1]
            inner[step, : step + 1] += inside
        if (step + 1 >= 2 * count and step % 10 == 9) or step + 1 == most:
            values, vectors = torch.linalg.eigh((inner + inner.tril(-1).T)[: step + 1, : step + 1])
            residuals = float(current.norm()) * vectors[-1, -count:].abs()
            if float(residuals.max()) <= TOLERANCE * float(values[-1]) or step + 1 == most:
                break
    chosen = vectors[:, -count:].flip(1)
    return step + 1, values[-count:].flip(0).numpy(), (chosen.T @ basis[: step + 1]).T.numpy()


def measure(title: str, num_samples: int, count: int, epochs: int, with_eigenthings: bool) -> dict[str, Any]:
    made, layer, rate = CASES[title]
    images, labels = mnist()
    inputs = images[:num_samples].reshape(-1, 1, 28, 28).clone()
    del images
    inputs, labels = (inputs - inputs.mean()) / inputs.std(), labels[:num_samples]
    model = trained(made, inputs.float(), labels, rate, epochs)
    problem = Problem(model, "cross_entropy", inputs, labels, memory_budget=BUDGET)
    plan = plan_layer_hessian(problem, layer)
    weight = dict(model.named_parameters())[f"{layer}.weight"]
    before = forget_peak()
    build_times, hessian = clocked(lambda: layer_hessian(problem, layer))
    predicted = plan.stored_bytes + layer_eigenpairs_bytes(hessian, count, tolerance=TOLERANCE)
    times, found = clocked(lambda: layer_eigenpairs(hessian, count, tolerance=TOLERANCE))
    used = peak_bytes() - before
    ours: dict[str, Any] = {key: build_times[key] + times[key] for key in times}
    ours |= {"products": found.num_products, "build_seconds": build_times["seconds"]}
    ours |= {"values": found.eigenvalues, "vectors": found.eigenvectors, "converged": found.converged}
    libraries = {"ours": ours, "scipy": by_scipy(hessian, model, weight, (inputs, labels), count)}
    if with_eigenthings:
        libraries["eigenthings"] = by_eigenthings(hessian, model, f"{layer}.weight", (inputs, labels), count)
    for library in libraries.values():
        library["worst_residual"] = worst_residual(hessian, library)
        values = library.pop("values")
        library["largest_difference"] = float(np.abs(values - found.eigenvalues).max() / found.eigenvalues[0])
        library.pop("vectors")
    peers = {name: library for name, library in libraries.items() if name != "ours"}
    speedups = {name: library["seconds"] / ours["seconds"] for name, library in peers.items()}
    processor = {name: library["processor_seconds"] / ours["processor_seconds"] for name, library in peers.items()}
    memory = {"predicted_bytes": predicted, "used_bytes": used, "plan": str(plan)}
    passes = all(speedup >= WANTED_SPEEDUP for speedup in speedups.values()) and found.converged
    passes = passes and ours["worst_residual"] <= TOLERANCE and abs(used / predicted - 1) <= WANTED_MEMORY
    return {
        "case": title,
        "num_samples": num_samples,
        "count": count,
        "num_weights": weight.numel(),
        "libraries": libraries,
        "speedups": speedups,
        "processor_speedups": processor,
        "memory": memory,
        "wanted_speedup": WANTED_SPEEDUP,
        "passes": passes,
    }


def worst_residual(hessian: Any, library: dict[str, Any]) -> float:
    """max ||H v - lambda v|| / lambda_1, a block of vectors at a time."""
    worst, values = 0.0, torch.from_numpy(np.array(library["values"]))
    vectors = torch.from_numpy(np.array(library["vectors"]))
    for start in range(0, len(values), 16):
        part = vectors[:, start : start + 16]
        rest = hessian.matmat(part) - part * values[start : start + 16]
        worst = max(worst, float(rest.norm(dim=0).max()))
    return worst / float(values[0])


def line(row: dict[str, Any]) -> str:
    told = ", ".join(
        f"{name} {one['seconds']:.1f} s with {one['products']} products (residual {one['worst_residual']:.1e})"
        for name, one in row["libraries"].items()
    )
    speed = ", ".join(
        f"{value:.1f}x over {name} ({row['processor_speedups'][name]:.1f}x in processor seconds)"
        for name, value in row["speedups"].items()
    )
    memory = row["memory"]
    share = memory["used_bytes"] / memory["predicted_bytes"]
    return (
        f"{row['case']}: {told}; {speed}; memory {share:.2f} of the predicted; {'passes' if row['passes'] else 'FAILS'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=5000)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--without-eigenthings", action="store_true")
    parser.add_argument("--only", choices=list(CASES))
    parser.add_argument("--name", default="layer_eigenpairs", help="of the file, say for other kernels of torch")
    given = parser.parse_args()
    if given.only is None:
        codes = [subprocess.run([sys.executable, *sys.argv, "--only", title]).returncode for title in CASES]
        return max(codes)
    where = environment()
    row = measure(given.only, given.samples, given.count, given.epochs, not given.without_eigenthings)
    print(line(row), flush=True)
    if (given.samples, given.count, given.without_eigenthings) == (5000, 200, False):
        path = RESULTS / f"{given.name}.json"
        known = json.loads(path.read_text())["cases"] if path.exists() else []
        where |= {name: os.environ.get(name, "not set") for name in ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")}
        write(given.name, where, [*(case for case in known if case["case"] != given.only), row])
    return 0 if row["passes"] else 1


if __name__ == "__main__":
    sys.exit(main())
