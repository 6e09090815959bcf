"""A GPT-2 of ten million parameters in plain torch: pre-norm blocks, attention by its formula, tied embedding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, LENGTH = 8000, 128


class Block(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widened, self.narrowed = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.num_heads = num_heads

    def forward(self, hidden: Tensor) -> Tensor:
        count, length, width = hidden.shape
        parts = self.attention(self.first_norm(hidden)).view(count, length, 3, self.num_heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(-2, -1) * queries.shape[-1] ** -0.5
        hides = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)
        mixed = scores.masked_fill(hides, float("-inf")).softmax(-1) @ values
        hidden = hidden + self.projection(mixed.transpose(1, 2).reshape(count, length, width))
        return hidden + self.narrowed(F.gelu(self.widened(self.second_norm(hidden)), approximate="tanh"))


class GPT2(nn.Module):
    """Tokens (samples, length) to logits (samples, vocabulary, length)."""

    def __init__(self, width: int = 320, num_layers: int = 6, num_heads: int = 8) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*(Block(width, num_heads) for _ in range(num_layers)))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        return F.linear(self.norm(self.blocks(hidden)), self.tokens.weight).transpose(1, 2)
