"""How long does one point of a Tracker take on a small language model, and where does the time go?

A GPT-2 in plain torch of about 236,000 parameters (4 blocks of width 64, 4 heads, a vocabulary of 512), 8 sequences of
32 random tokens, the default settings: 5 eigenvalues, the trace, the overlap of the gradient. A point is to take less
than 5 seconds. Times are those of the processor, which other programs disturb less than the clock; use one thread.

    python benchmarks/tracker_point.py [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from harness import environment, write
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

import hessmap as hm

TOKENS, VOCABULARY = 32, 512


class Block(nn.Module):
    """Attention and an MLP, each behind a layer norm and beside the identity."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.c_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        samples, tokens, width = inputs.shape
        heads = self.c_attn(self.ln_1(inputs)).view(samples, tokens, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(samples, tokens, width)
        inputs = inputs + self.c_proj(mixed)
        found: Tensor = inputs + self.c_out(gelu(self.c_fc(self.ln_2(inputs))))
        return found


class LanguageModel(nn.Module):
    """The logits of the next token at every place, with the embedding as the last layer's weight."""

    def __init__(self, width: int = 64, num_blocks: int = 4, num_heads: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.wte, self.wpe = nn.Embedding(VOCABULARY, width), nn.Embedding(TOKENS, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(num_blocks)))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        found = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        logits: Tensor = self.ln_f(self.blocks(found)) @ self.wte.weight.T
        return logits.flatten(1)


def token_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy over the tokens of every sequence."""
    logits = outputs.view(len(outputs), TOKENS, -1).transpose(1, 2)
    return cross_entropy(logits, targets, reduction="none").mean(1)


def measured(num_points: int, profile: bool) -> dict[str, Any]:
    """The seconds of the processor for successive points, between which the weights move by a step of SGD."""
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(VOCABULARY, (8, TOKENS + 1), generator=generator)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    model = LanguageModel()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    seconds, products = [], []
    with tempfile.TemporaryDirectory() as folder:
        tracker = hm.Tracker(model, token_loss, (inputs, targets), share=None, store=Path(folder) / "store.sqlite")
        for step in range(num_points):
            start = time.process_time()
            if profile:
                with cProfile.Profile() as profiler:
                    point = tracker(step)
                pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)
            else:
                point = tracker(step)
            seconds.append(round(time.process_time() - start, 3))
            products.append(point.num_products if point is not None else 0)
            optimiser.zero_grad()
            token_loss(model(inputs), targets).mean().backward()
            optimiser.step()
    count = sum(parameter.numel() for parameter in model.parameters())
    return {"num_parameters": count, "seconds": seconds, "products": products}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--name", default="tracker_point")
    options = parser.parse_args()
    where = environment()
    case = measured(options.points, options.profile)
    print(case)
    if not options.profile:
        write(options.name, where, [case])
