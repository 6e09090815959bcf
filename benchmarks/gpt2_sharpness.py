"""The sharpness of GPT-2 with 124 million parameters within a few vectors of memory.

Random weights of GPT-2's shape (12 layers, width 768, 12 heads, 50,257 tokens, tied output layer), 8 sequences of 64
tokens, float32. The peak is that of the resident memory of the process (``VmHWM``, reset after the first product) above
what the model and its kept graph take. Every row runs in a process of its own. Rows of the peers need `.venv-peers`:
their own products and their own iterations from their own random start, stopped by the same criterion (residual of the
Ritz pair at most tolerance times the eigenvalue; PyHessian, which has no residual: its relative change). Seconds are
the best of the products of a row, with the load of the machine beside them. Every row is written when it is done, and
a row of the same model and settings that is in the file is not measured again.

    python benchmarks/gpt2_sharpness.py [--rows sharpness,top5,hessian-eigenthings,PyHessian] [--again]
    python benchmarks/gpt2_sharpness.py --layers 1 --tokens 1000 --output gpt2_small  # a trial
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from harness import RESULTS, environment, write
from torch import Tensor, nn

import hessmap as hm


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, states: Tensor) -> Tensor:
        samples, length, width = states.shape
        parts = self.attention(self.before_attention(states)).view(samples, length, 3, self.heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.mT / queries.shape[-1] ** 0.5
        later = torch.ones(length, length, dtype=torch.bool, device=states.device).triu(1)
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ values
        states = states + self.projection(mixed.transpose(1, 2).reshape(samples, length, width))
        return states + self.mlp(self.before_mlp(states))


class GPT2(nn.Module):
    def __init__(self, layers: int = 12, width: int = 768, heads: int = 12, tokens: int = 50_257) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        states = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        return self.norm(self.blocks(states)) @ self.tokens.weight.T


def resident(name: str) -> int:
    """``VmRSS`` now, or ``VmHWM``, the highest since the last reset, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {name} in /proc/self/status")


def next_token_loss(logits: Tensor, ids: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Timed:
    """A product that counts and times itself."""

    def __init__(self, product: Callable[[Tensor], Tensor]) -> None:
        self.product, self.seconds = product, list[float]()

    def __call__(self, vector: Tensor) -> Tensor:
        start = time.perf_counter()
        image = self.product(vector)
        self.seconds.append(time.perf_counter() - start)
        return image


def measured(setup: Callable[[], Timed], run: Callable[[Timed], dict[str, Any]]) -> dict[str, Any]:
    """What ``run`` finds, with its products and its peak beyond what there is after the first product."""
    product = setup()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    product.seconds.clear()
    line = run(product)
    return line | {
        "peak_bytes_beyond_model_and_graph": resident("VmHWM") - before,
        "resident_before": before,
        "num_timed_products": len(product.seconds),
        "seconds_per_product": round(min(product.seconds), 2),
        "load": round(os.getloadavg()[0], 1),
    }


def ours(model: nn.Module, ids: Tensor, task: str, given: argparse.Namespace) -> dict[str, Any]:
    problem = hm.Problem(model, hm.next_token(), ids, ids, dtype=torch.float32)
    hessian = hm.loss_hessian(problem)
    budget, arguments = (given.budget, {}) if task == "sharpness" else (2 * given.budget, {"count": 5})
    plan = hm.cost_plan(problem, task, tolerance=given.tolerance, memory_budget=budget, **arguments)  # two products
    print(problem, plan, sep="\n", flush=True)

    def setup() -> Timed:
        product = Timed(hessian.matmat)
        hessian.matmat = product  # type: ignore[method-assign]
        return product

    def run(product: Timed) -> dict[str, Any]:
        if task == "sharpness":
            found = hm.sharpness(hessian, tolerance=given.tolerance, memory_budget=budget)
            values = {"value": found.value, "residual": found.residual}
        else:
            found = hm.top_eigenpairs(
                hessian, 5, tolerance=given.tolerance, memory_budget=budget, max_products=given.products
            )
            values = {"value": found.eigenvalues.tolist(), "residual": found.residuals.tolist()}
        return values | {
            "num_products": found.num_products,
            "converged": found.converged,
            "method": plan.method,
            "memory_budget": int(budget),
            "predicted_bytes": plan.num_bytes,
            "predicted_products": plan.num_products,
            "notes": list(found.provenance.notes) if found.provenance else [],
        }

    line = measured(setup, run)
    return line | {"predicted_over_peak": round(plan.num_bytes / line["peak_bytes_beyond_model_and_graph"], 3)}


def eigenthings(model: nn.Module, ids: Tensor, given: argparse.Namespace) -> dict[str, Any]:
    """Lanczos with full orthogonalisation, as many steps as its own residual needs."""
    import hessian_eigenthings as peer

    operator = peer.HessianOperator(model, [(ids, ids)], lambda m, batch: next_token_loss(m(batch[0]), batch[1]))
    vector = torch.randn(operator.size)

    def setup() -> Timed:
        operator.matvec(vector)
        product = Timed(operator.matvec)
        operator.matvec = product
        return product

    def run(product: Timed) -> dict[str, Any]:
        start = torch.randn(operator.size, generator=torch.Generator().manual_seed(0))
        found = peer.lanczos_tridiagonal(operator, start, given.steps)
        diagonal, beside = found.alphas.double(), torch.cat([found.betas, torch.tensor([found.last_beta])]).double()
        for steps in range(2, len(diagonal) + 1):
            inner = beside[: steps - 1]
            matrix = torch.diag(diagonal[:steps]) + torch.diag(inner, 1) + torch.diag(inner, -1)
            values, vectors = torch.linalg.eigh(matrix)
            residual = float(beside[steps - 1] * vectors[-1, -1].abs())
            if residual <= given.tolerance * values[-1]:
                break
        return {"value": float(values[-1]), "residual": residual, "num_products": steps, "steps_made": len(diagonal)}

    return measured(setup, run)


def pyhessian(model: nn.Module, ids: Tensor, given: argparse.Namespace) -> dict[str, Any]:
    """Power iteration until the eigenvalue changes by less than the tolerance."""
    peer: Any = importlib.import_module("pyhessian.hessian")  # the package has a class of that name

    operator = peer.hessian(model, next_token_loss, data=(ids, ids), cuda=False)
    torch.manual_seed(0)

    def setup() -> Timed:
        plain = peer.hessian_vector_product
        product = Timed(lambda vector: plain(operator.gradsH, operator.params, vector))
        product([torch.randn_like(parameter) for parameter in operator.params])
        peer.hessian_vector_product = lambda gradients, parameters, vector: product(vector)
        return product

    def run(product: Timed) -> dict[str, Any]:
        values, _ = operator.eigenvalues(maxIter=given.steps, tol=given.tolerance, top_n=1)
        return {"value": values[0], "num_products": len(product.seconds)}

    return measured(setup, run)


ROWS = ("sharpness", "top5", "hessian-eigenthings", "PyHessian")


def rows_of(stored: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(stored.read_text())["cases"] if stored.exists() else []
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--budget", type=float, default=4e9)
    parser.add_argument("--tolerance", type=float, default=1e-2)
    parser.add_argument(
        "--steps", type=int, default=24, help="at most, for the peers, of which one stores a vector a step"
    )
    parser.add_argument("--products", type=int, default=150, help="at most, for the five eigenpairs")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=50_257)
    parser.add_argument("--output", default="gpt2_sharpness")
    parser.add_argument("--again", action="store_true", help="measure rows that are in the file as well")
    given = parser.parse_args()
    names = given.rows.split(",")
    settings = {name: getattr(given, name) for name in ("budget", "tolerance", "steps", "products", "layers", "tokens")}
    stored = RESULTS / f"{given.output}.json"
    if len(names) > 1:
        rest = [f"--{name}={value}" for name, value in (settings | {"output": given.output}).items()]
        done = [] if given.again else [row["row"] for row in rows_of(stored) if row.get("settings") == settings]
        for name in names:
            if name in done:
                print(f"{name}: measured before")
            else:
                subprocess.run([sys.executable, __file__, f"--rows={name}", *rest], check=False)
        return
    torch.manual_seed(0)
    model = GPT2(given.layers, tokens=given.tokens)
    ids = torch.randint(given.tokens, (8, 64))
    where = environment()
    if names[0] == "hessian-eigenthings":
        line = eigenthings(model, ids, given)
    elif names[0] == "PyHessian":
        line = pyhessian(model, ids, given)
    else:
        line = ours(model, ids, {"sharpness": "sharpness", "top5": "top_eigenpairs"}[names[0]], given)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    line = {"row": names[0], "num_parameters": num_parameters, "bytes_of_a_vector": 4 * num_parameters} | line
    print(line, flush=True)
    others = [row for row in rows_of(stored) if row["row"] != names[0]]
    write(given.output, where, [*others, line | {"settings": settings}])


if __name__ == "__main__":
    main()
