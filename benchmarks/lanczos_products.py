"""How many products does top_eigenpairs need per eigenpair, and how many does a start from an earlier checkpoint save?

Loss Hessians of real networks, untrained and trained, the eigenvalues that are largest in magnitude, as
``auto_spectrum`` asks for them, by blocks of 1, 4 and 16 vectors. Products are counted, not timed: the counts hold on
any machine. Their median over the operators is fitted by a plane in the number of eigenpairs and the width of the
blocks; ``measurement.choose_method`` predicts seconds from that plane.

    HESSMAP_DATA=.. python benchmarks/lanczos_products.py [--samples 60] [--counts 5 20 50]
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from harness import environment, write
from torch import Tensor, nn

from hessmap.datasets import digits, mnist
from hessmap.hessians.operators import loss_hessian
from hessmap.measurement import top_eigenpairs
from hessmap.problem.problem import Problem
from hessmap.training import train
from hessmap_research.instruments.zoo import zoo_network

Data = tuple[Tensor, Tensor]
TOLERANCES = (1e-6, 1e-8)
WIDTHS = (1, 4, 16)
NETWORKS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "F-30-20 on digits": ("digits", lambda: zoo_network("F-30-20", (1, 8, 8))),
    "two convolutions on digits": ("digits", lambda: convolutional()),
    "F-100^2 on digits": ("digits", lambda: zoo_network("F-100^2", (1, 8, 8))),
    "F-50^2 on MNIST": ("mnist", lambda: zoo_network("F-50^2", (1, 28, 28))),
}


def convolutional() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(256, 10)).double()


def loaded(name: str, num_samples: int) -> Data:
    inputs, labels = digits() if name == "digits" else mnist()
    chosen = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))[:num_samples]
    return inputs[chosen].flatten(1), labels[chosen]


def trained(model: nn.Module, data: Data, epochs: int) -> nn.Module:
    """A copy after some epochs of SGD."""
    made = copy.deepcopy(model)
    train(made, data, "cross_entropy", epochs=epochs, batch_size=32, learning_rate=0.02, seed=0)
    return made


def found_pairs(
    model: nn.Module, data: Data, count: int, tolerance: float, width: int | None = None, start: Any = None
) -> Any:
    hessian = loss_hessian(Problem(model, "cross_entropy", *data))
    return top_eigenpairs(hessian, count, which="magnitude", tolerance=tolerance, block_size=width, start=start)


def per_pair(name: str, model: nn.Module, data: Data, counts: list[int]) -> list[dict[str, Any]]:
    lines = []
    for count, tolerance, width in product(counts, TOLERANCES, WIDTHS):
        found = found_pairs(model, data, count, tolerance, width)
        asked = {"count": count, "tolerance": tolerance, "width": width}
        got = {"products": found.num_products, "converged": found.converged}
        lines.append({"question": "products", "operator": name, "num_parameters": found.size, **asked, **got})
        print(f"{name}: {asked} took {found.num_products} products", flush=True)
    return lines


def warm_starts(name: str, model: nn.Module, data: Data, count: int = 10) -> list[dict[str, Any]]:
    """From the eigenvectors of the checkpoint before: products with and without them."""
    lines = []
    for tolerance in (1e-3, 1e-6):
        before = found_pairs(trained(model, data, 8), data, count, tolerance)
        later = trained(model, data, 9)
        cold = found_pairs(later, data, count, tolerance)
        warm = found_pairs(later, data, count, tolerance, start=before.eigenvectors)
        asked = {"count": count, "tolerance": tolerance}
        got = {"cold": cold.num_products, "warm": warm.num_products}
        lines.append({"question": "warm start", "operator": name, **asked, **got})
        print(f"{name}: {asked} from epoch 8 to 9: {got}", flush=True)
    return lines


def fitted(lines: list[dict[str, Any]], tolerance: float) -> dict[str, Any]:
    """products = base + per_pair k + per_vector width, through the medians over operators; how far single ones are."""
    chosen = [line for line in lines if line["tolerance"] == tolerance]
    asked = sorted({(line["count"], line["width"]) for line in chosen})
    medians = {
        key: float(np.median([line["products"] for line in chosen if (line["count"], line["width"]) == key]))
        for key in asked
    }
    design = np.array([[1.0, count, width] for count, width in asked])
    base, per_pair, per_vector = np.linalg.lstsq(design, np.array(list(medians.values())), rcond=None)[0]
    ratios = [line["products"] / (base + per_pair * line["count"] + per_vector * line["width"]) for line in chosen]
    numbers = {"base": float(base), "per_pair": float(per_pair), "per_vector": float(per_vector)}
    median_lines = [{"count": count, "width": width, "median": median} for (count, width), median in medians.items()]
    spread = {"least_ratio": min(ratios), "largest_ratio": max(ratios)}
    return {"question": "fit", "tolerance": tolerance, **numbers, **spread, "medians": median_lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--counts", type=int, nargs="+", default=[5, 20, 50])
    given = parser.parse_args()
    where = environment()
    lines: list[dict[str, Any]] = []
    warm: list[dict[str, Any]] = []
    for name, (source, make) in NETWORKS.items():
        data, model = loaded(source, given.samples), make()
        lines += per_pair(f"{name}, untrained", model, data, given.counts)
        lines += per_pair(f"{name}, 10 epochs", trained(model, data, 10), data, given.counts)
        warm += warm_starts(name, model, data)
    fits = [fitted(lines, tolerance) for tolerance in TOLERANCES]
    for fit in fits:
        print(fit)
    write("lanczos_products", where, [*lines, *warm, *fits])


if __name__ == "__main__":
    main()
