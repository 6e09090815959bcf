"""A GPT of characters, trained on the documentation of Python's own topics, with the curvature of its blocks."""

import pydoc_data.topics

import torch
from torch import Tensor, nn

import hessmap as hm

torch.manual_seed(0)
text = "".join(pydoc_data.topics.topics.values())[:200_000]
letters = sorted(set(text))
codes = torch.tensor([letters.index(letter) for letter in text])
LENGTH, WIDTH = 32, 32


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, hidden: Tensor) -> Tensor:
        future = torch.ones(hidden.shape[1], hidden.shape[1], dtype=torch.bool).triu(1)
        given = self.norms[0](hidden)
        hidden = hidden + self.attention(given, given, given, attn_mask=future, need_weights=False)[0]
        return hidden + self.mlp(self.norms[1](hidden))


class CharacterGPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(len(letters), WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(letters))

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.embed(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(hidden)))


def windows(count: int) -> Tensor:
    starts = torch.randint(0, len(codes) - LENGTH, (count,))
    return torch.stack([codes[start : start + LENGTH] for start in starts.tolist()])


model, probe = CharacterGPT(), windows(8)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
parts = {"attention": "blocks.*.attention.*", "mlp": "blocks.*.mlp.*", "embedding": "embed", "head": "head"}
print("step  loss  largest eigenvalue of " + ", ".join(["all", *parts]))
for step in range(201):
    if step % 100 == 0:
        tops = []
        for names in (None, *parts.values()):
            problem = hm.Problem(model, hm.next_token(), probe, probe, parameters=names, dtype=torch.float32)
            tops.append(hm.sharpness(hm.loss_hessian(problem), tolerance=3e-2).value)
        print(f"{step:4d}  {problem.risk():.2f}  " + "  ".join(f"{top:7.2f}" for top in tops))
    ids = windows(32)
    loss = nn.functional.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
