"""Estimate the learning coefficient of a small convolutional network and of a small transformer.

Both are trained first: an estimate speaks of the weights it is taken at. ``python
examples/learning_coefficients_of_small_models.py 600`` draws long enough for the checks to say something; the default,
for a first look, does not, and the verdict says so.
"""

import sys

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hessmap as hm

NUM_DRAWS = int(sys.argv[1]) if sys.argv[1:] and sys.argv[1].isdigit() else 40
CLASSES, CONTEXT, WIDTH = 5, 6, 6


class SmallTransformer(nn.Module):
    """One layer of causal attention and an MLP, each behind a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(CLASSES, WIDTH), nn.Parameter(0.1 * torch.randn(CONTEXT, WIDTH))
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("future", torch.ones(CONTEXT, CONTEXT).triu(1).bool())

    def forward(self, tokens: Tensor) -> Tensor:
        inner = self.tokens(tokens) + self.places
        query, key, value = self.attention(self.norm_1(inner)).chunk(3, dim=-1)
        scores = (query @ key.transpose(-1, -2) / WIDTH**0.5).masked_fill(self.future, -1e9)
        inner = inner + scores.softmax(-1) @ value
        return self.head(inner + self.mlp(self.norm_2(inner)))


def markov_chains(num_samples: int, seed: int) -> Tensor:
    """Sequences whose next token depends on the last one alone."""
    generator = torch.Generator().manual_seed(seed)
    law = torch.softmax(2 * torch.randn(CLASSES, CLASSES, generator=generator), dim=1)
    steps = [torch.randint(CLASSES, (num_samples,), generator=generator)]
    for _ in range(CONTEXT):
        steps.append(torch.multinomial(law[steps[-1]], 1, generator=generator)[:, 0])
    return torch.stack(steps, dim=1)


def trained(model: nn.Module, inputs: Tensor, labels: Tensor, num_steps: int) -> hm.Problem:
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(num_steps):
        optimiser.zero_grad()
        cross_entropy(model(inputs).flatten(0, -2), labels.flatten()).backward()
        optimiser.step()
    return hm.Problem(model, "cross_entropy", inputs, labels)


torch.manual_seed(0)
digits, labels = hm.datasets.digits(num_samples=150)
layers = (nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 10))
sequences = markov_chains(100, seed=1)
problems = {
    "convolutional network": trained(nn.Sequential(*layers).double(), digits, labels, 600),
    "transformer": trained(SmallTransformer().double(), sequences[:, :-1], sequences[:, 1:], 600),
}
for name, problem in problems.items():
    found = hm.maps.learning.learning_coefficient_estimate(
        problem, num_draws=NUM_DRAWS, num_chains=4, localisation=10.0
    )
    print(f"{name}, {found.num_parameters} parameters: {found.with_error}, {found.verdict}")
    for check in found.checks:
        print(f"  {check.name:11} {check.outcome:12} {check.sentence}")
