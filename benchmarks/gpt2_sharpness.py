"""The sharpness of GPT-2 with 124 million parameters within a few vectors of memory.

Random weights of GPT-2's shape (12 layers, width 768, 12 heads, 50,257 tokens, tied output layer), 8 sequences of 64
tokens, float32. The peak is that of the resident memory of the process (``VmHWM``, reset after the first product) above
what the model and its kept graph take. Products and bytes are stored; seconds are not, because they depend on the load.

    python benchmarks/gpt2_sharpness.py [--budget 4e9] [--tolerance 1e-2] [--layers 12]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from harness import environment, write
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=4e9)
    parser.add_argument("--tolerance", type=float, default=1e-2)
    parser.add_argument("--layers", type=int, default=12)
    given = parser.parse_args()
    torch.manual_seed(0)
    model = GPT2(given.layers)
    ids = torch.randint(50_257, (8, 64))
    problem = hm.Problem(model, hm.next_token(), ids, ids, dtype=torch.float32)
    hessian = hm.loss_hessian(problem)
    plan = hm.cost_plan(problem, "sharpness", tolerance=given.tolerance, memory_budget=given.budget)  # two products
    print(problem, plan, sep="\n", flush=True)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    found = hm.sharpness(hessian, tolerance=given.tolerance, memory_budget=given.budget)
    peak = resident("VmHWM") - before
    line = {
        "num_parameters": problem.num_parameters,
        "tolerance": given.tolerance,
        "memory_budget": int(given.budget),
        "method": plan.method,
        "predicted_bytes": plan.num_bytes,
        "predicted_products": plan.num_products,
        "peak_bytes_beyond_model_and_graph": peak,
        "predicted_over_peak": round(plan.num_bytes / peak, 3),
        "bytes_of_a_vector": 4 * problem.num_parameters,
        "resident_before": before,
        "num_products": found.num_products,
        "value": found.value,
        "residual": found.residual,
        "converged": found.converged,
        "notes": list(found.provenance.notes) if found.provenance else [],
    }
    print(line, flush=True)
    write("gpt2_sharpness", environment(), [line])


if __name__ == "__main__":
    main()
