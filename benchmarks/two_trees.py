"""Is this version slower than another one? The same questions to two source trees, in turn, each round a new process.

    git worktree add ../before v0.1.0
    python benchmarks/two_trees.py ../before/src src [--rounds 3]

A question is timed inside of its process, best of three after a first call that warms up; the peak of memory is that
of the process. A question that a tree cannot answer is left out with the reason. Writes
``benchmarks/results/two_trees.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ALLOWED = 1.10  # of the seconds and bytes of the tree before


def _fully_connected() -> Any:
    import torch

    import hessmap as hm

    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(300, 64, generator=generator, dtype=torch.float64)
    targets = torch.randn(300, 10, generator=generator, dtype=torch.float64)
    return hm.Problem(hm.FullyConnected((64, 30, 20, 10), activation="tanh").build(seed=0), "squared", inputs, targets)


def _convolutional() -> Any:
    import torch
    from torch import nn

    import hessmap as hm

    torch.manual_seed(0)
    convolutions = nn.Conv2d(1, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 12, 3), nn.ReLU(), nn.Flatten()
    model = nn.Sequential(*convolutions, nn.Linear(108, 10)).double()
    return hm.Problem(model, "cross_entropy", torch.randn(200, 1, 12, 12).double(), torch.randint(10, (200,)))


def _large() -> Any:
    import torch
    from torch import nn

    import hessmap as hm

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10)).double()
    kind = getattr(hm, "LargeProblem", hm.Problem)  # two classes in 0.1.0
    return kind(model, "cross_entropy", torch.randn(1000, 784).double(), torch.randint(10, (1000,)))


def _questions() -> dict[str, Callable[[], Callable[[], object]]]:
    """Each prepares what is not timed, and returns the work that is."""
    import torch

    import hessmap as hm

    def product(problem: Any, columns: int) -> Callable[[], object]:
        hessian, block = hm.loss_hessian(problem), torch.randn(problem.num_parameters, columns).double()
        return lambda: [hessian @ block for _ in range(5)]

    def of(problem: Any, ask: Callable[[Any], object]) -> Callable[[], object]:
        return lambda: ask(hm.loss_hessian(problem))

    diagonal = hm.measurement.diagonal_estimate
    return {
        "dense Hessian, fully connected": lambda: of(_fully_connected(), lambda hessian: hessian.to_dense()),
        "dense Hessian, convolutional": lambda: of(_convolutional(), lambda hessian: hessian.to_dense()),
        "product, fully connected": lambda: product(_fully_connected(), 1),
        "product, convolutional": lambda: product(_convolutional(), 1),
        "product, F-200^2": lambda: product(_large(), 1),
        "block of 8, F-200^2": lambda: product(_large(), 8),
        "diagonal, fully connected": lambda: of(_fully_connected(), lambda hessian: diagonal(hessian, method="exact")),
        "diagonal, convolutional": lambda: of(_convolutional(), lambda hessian: diagonal(hessian, method="exact")),
        "top 20, F-200^2": lambda: of(_large(), lambda hessian: hm.top_eigenpairs(hessian, 20, tolerance=1e-3)),
        "density, convolutional": lambda: of(
            _convolutional(), lambda hessian: hm.density_estimate(hessian, num_probes=2, num_steps=20)
        ),
        "spectrum, fully connected": lambda: of(_fully_connected(), hm.spectrum),
        "layer Hessian, convolutional": lambda: of(
            _convolutional(), lambda hessian: hm.layer_hessian(hessian.problem, "3").to_dense()
        ),
        "certified rank": lambda: lambda: hm.certified_rank(_dyadic(), "outer_product"),
        "construction of a problem": lambda: _fully_connected,
    }


def _dyadic() -> Any:
    import hessmap as hm

    model = hm.FullyConnected((16, 12, 8)).build(seed=0)
    return hm.Problem(model, "squared", *hm.datasets.dyadic(60, 16, output_dim=8))


def answer(name: str) -> dict[str, Any]:
    """Seconds and bytes of one question in this process."""
    try:
        work = _questions()[name]()
        work()
        seconds = min(_seconds(work) for _ in range(3))
    except Exception as error:
        return {"reason": f"{type(error).__name__}: {error}"}
    return {"seconds": seconds, "bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def _seconds(work: Callable[[], object]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def asked(tree: str, name: str) -> dict[str, Any]:
    """The answer of a tree, from a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(Path(tree).resolve())}
    command = [sys.executable, __file__, "--question", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else {"reason": done.stderr[-300:]}


def compared(name: str, before: str, now: str, rounds: int) -> dict[str, Any]:
    """Best seconds and least bytes of both trees, and the ratios of now to before."""
    answers: dict[str, list[dict[str, Any]]] = {"before": [], "now": []}
    for _ in range(rounds):
        for side, tree in (("before", before), ("now", now)):
            answers[side].append(asked(tree, name))
    reasons = {side: found[0]["reason"] for side, found in answers.items() if "reason" in found[0]}
    if reasons:
        return {"question": name, "not compared": reasons}
    best = {
        side: {key: min(one[key] for one in found) for key in ("seconds", "bytes")} for side, found in answers.items()
    }
    ratios = {key: best["now"][key] / best["before"][key] for key in ("seconds", "bytes")}
    return {"question": name, **best, "ratios": ratios, "within": max(ratios.values()) <= ALLOWED}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", nargs="?")
    parser.add_argument("now", nargs="?")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--question", help="asked of the tree that is imported, by this program itself")
    given = parser.parse_args()
    if given.question:
        print(json.dumps(answer(given.question)))
        return 0
    from harness import environment, write

    where, cases = environment(), []
    for name in _questions():
        cases.append(compared(name, given.before, given.now, given.rounds))
        print(cases[-1], flush=True)
    write("two_trees", where, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
