"""Where do the seconds of top eigenpairs go: products, orthogonality, memory, or what comes after?

The top 20 eigenvalues of the large networks as ``rows.py`` asks for them, not compiled, and the top 200 eigenpairs of a
layer as ``layer_eigenpairs.py`` does: the seconds that each part of the iteration takes of all of them.

    HESSMAP_DATA=.. python benchmarks/peers/eigenpair_parts.py [--only "fc1 of F-200^2"]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))

from harness import RESULTS, environment, now
from layer_eigenpairs import BUDGET, TOLERANCE, fully_connected, trained
from libraries import Ours, ready

import hessmap as hm
from cases import LARGE_CASES, case
from hessmap.datasets import mnist
from hessmap.layers.eigenpairs import layer_eigenpairs
from hessmap.linalg.lanczos import BlockLanczos

PATH = RESULTS / "eigenpair_parts.json"
LAYER = "fc1 of F-200^2"
PARTS = {
    "products": "_images",
    "earlier vectors taken out": "_remove_basis",
    "new vectors made orthonormal": "_make_block",
    "new vectors stored": "_store_block",
    "eigenvalues of the projection": "ritz",
    "restarts": "restrict",
    "vectors of the answer": "combine",
}


@contextmanager
def timed_parts() -> Iterator[dict[str, float]]:
    """The seconds of the parts of every block Lanczos process within."""
    spent = dict.fromkeys(PARTS, 0.0)
    own = {name: getattr(BlockLanczos, name) for name in PARTS.values()}

    def timed(part: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def run(*given: Any) -> Any:
            start = now()
            value = method(*given)
            spent[part] += now() - start
            return value

        return run

    for part, name in PARTS.items():
        setattr(BlockLanczos, name, timed(part, own[name]))
    try:
        yield spent
    finally:
        for name, method in own.items():
            setattr(BlockLanczos, name, method)


def of_network(name: str) -> Callable[[], Any]:
    made = case(name)

    def run() -> Any:
        with ready(made):
            return hm.top_eigenpairs(Ours(made).operator, 20, tolerance=1e-3, relative_to="eigenvalue")

    return run


def of_layer() -> Callable[[], Any]:
    images, labels = mnist()
    inputs = images[:5000].reshape(-1, 1, 28, 28)
    inputs, labels = (inputs - inputs.mean()) / inputs.std(), labels[:5000]
    model = trained(fully_connected, inputs.float(), labels, 0.01, 20)

    def run() -> Any:
        problem = hm.Problem(model, "cross_entropy", inputs, labels, memory_budget=BUDGET)
        return layer_eigenpairs(hm.layer_hessian(problem, "1"), 200, tolerance=TOLERANCE)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[LAYER, *LARGE_CASES], action="append")
    given = parser.parse_args()
    known = json.loads(PATH.read_text()) if PATH.exists() else {}
    for name in given.only or [LAYER, *LARGE_CASES]:
        work = of_layer() if name == LAYER else of_network(name)
        where = environment()
        with timed_parts() as spent:
            start = now()
            found = work()
            seconds = now() - start
        counts = {"products": found.num_products, "restarts": found.num_restarts, "converged": found.converged}
        known[name] = {"environment": where, "seconds": seconds, "parts": spent, "counts": counts}
        PATH.write_text(json.dumps(known, indent=1) + "\n")
        told = ", ".join(f"{part} {value:.1f}" for part, value in spent.items())
        print(f"{name}: {seconds:.1f} s with {found.num_products} products: {told}", flush=True)


if __name__ == "__main__":
    main()
