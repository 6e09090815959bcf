"""Bags of embeddings: torch's kernel has no second derivative, the formula has."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessmap as hm
from hessmap.problem.evaluation import OperationRewriter

WORDS = torch.randint(7, (6, 4), generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6) % 3
MODES = ("mean", "sum", "max")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [None, 0, -1])
def test_the_formula_is_torchs_kernel(mode: str, padding: int | None) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(7, 5, generator=generator, dtype=torch.float64)
    flat = torch.randint(7, (11,), generator=generator)
    calls = [
        {"input": WORDS},
        {"input": flat, "offsets": torch.tensor([0, 3, 3, 8])},
        {"input": flat, "offsets": torch.tensor([0, 3, 8, 11]), "include_last_offset": True},
    ]
    if mode == "sum":
        calls.append({"input": WORDS, "per_sample_weights": torch.rand(6, 4, generator=generator).double()})
    for call in calls:
        expected = F.embedding_bag(weight=weight, mode=mode, padding_idx=padding, **call)
        with OperationRewriter():
            found = F.embedding_bag(weight=weight, mode=mode, padding_idx=padding, **call)
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("mode", MODES)
def test_the_hessian_is_that_of_a_sum_over_words(mode: str) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = nn.Sequential(nn.EmbeddingBag(7, 5, mode=mode), nn.Tanh(), nn.Linear(5, 3)).double()
    problem = hm.Problem(model, "cross_entropy", WORDS, LABELS)

    def risk(flat: Tensor) -> Tensor:
        named = problem.unflatten(flat)
        words = named["0.weight"][WORDS]
        hidden = {"mean": words.mean(1), "sum": words.sum(1), "max": words.amax(1)}[mode]
        return F.cross_entropy(F.linear(torch.tanh(hidden), named["2.weight"], named["2.bias"]), LABELS)

    expected = torch.autograd.functional.hessian(risk, problem.parameters)
    torch.testing.assert_close(hm.loss_hessian(problem).to_dense(), expected, rtol=1e-12, atol=1e-14)
    place = problem.layout["0.weight"]
    found = hm.layer_hessian(problem, "0").to_dense()
    torch.testing.assert_close(torch.linalg.eigvalsh(found), torch.linalg.eigvalsh(expected[place, place]))


def test_indices_of_one_axis_need_offsets() -> None:
    with OperationRewriter(), pytest.raises(ValueError, match="bags of embeddings need indices"):
        F.embedding_bag(WORDS[0], torch.zeros(7, 5))
