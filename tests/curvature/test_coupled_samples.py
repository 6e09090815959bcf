"""Samples that see each other in larger batches, in smaller ones or in the last: refused, whatever the budget is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from hessmap.errors import NotReproducible

COUNT = 1000
INPUTS = torch.randn(COUNT, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.randn(COUNT, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class Coupled(nn.Module):
    """Couples batches of some sizes."""

    def __init__(self, sizes: Callable[[int], bool], couple: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.layers = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
        self.sizes, self.couple = sizes, couple

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.layers(inputs)
        return self.couple(outputs) if self.sizes(len(inputs)) else outputs


COUPLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": lambda outputs: outputs - outputs.mean(0),
    "neighbour": lambda outputs: outputs + 0.1 * outputs.roll(1, 0),
    "largest": lambda outputs: outputs / outputs.abs().max(),
    "softmax over samples": lambda outputs: outputs.softmax(0),
    "count": lambda outputs: outputs * (1 + 1 / len(outputs)),
    "last from first": lambda outputs: torch.cat([outputs[:-1], outputs[:1]]),
}
SIZES: dict[str, Callable[[int], bool]] = {
    "above 8": lambda count: count > 8,
    "above 16": lambda count: count > 16,
    "above 100": lambda count: count > 100,
    "above 700": lambda count: count > 700,
    "even": lambda count: count % 2 == 0,
    "whole": lambda count: count == COUNT,
}


def measured(data: object, targets: object, model: nn.Module, **options: object) -> Tensor:
    problem = hm.Problem(model, "squared", data, targets, **options)
    return hm.loss_hessian(problem) @ torch.ones(problem.num_parameters, dtype=problem.dtype)


@pytest.mark.parametrize("coupling", COUPLINGS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("budget", [None, 2**20])
def test_coupling_of_some_sizes_is_refused(coupling: str, sizes: str, budget: int | None) -> None:
    model = Coupled(SIZES[sizes], COUPLINGS[coupling])
    with pytest.raises(NotReproducible, match="the model must treat samples independently; .* batch, here of"):
        measured(INPUTS, TARGETS, model, memory_budget=budget)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("coupling", ["mean", "largest", "neighbour"])
def test_coupling_is_refused_in_any_format(coupling: str, dtype: torch.dtype) -> None:
    with pytest.raises(NotReproducible, match="the model must treat samples independently"):
        measured(INPUTS, TARGETS, Coupled(SIZES["above 100"], COUPLINGS[coupling]), dtype=dtype)


@pytest.mark.parametrize("coupling", COUPLINGS)
def test_coupling_in_the_last_batch_alone_is_refused(coupling: str) -> None:
    """1,000 samples in batches of 300 leave 100."""
    loader = DataLoader(TensorDataset(INPUTS, TARGETS), batch_size=300)
    with pytest.raises(NotReproducible, match="batch, here of 100"):
        measured(loader, None, Coupled(lambda count: count == 100, COUPLINGS[coupling]))


@pytest.mark.parametrize("count", [2, 3, 5, 9, 17, 33])
def test_coupling_of_odd_numbers_of_samples_is_refused(count: int) -> None:
    with pytest.raises(NotReproducible, match="the model must treat samples independently"):
        measured(INPUTS[:count], TARGETS[:count], Coupled(lambda size: size > 1, COUPLINGS["mean"]))
    if count > 3:
        with pytest.raises(NotReproducible, match="the model must treat samples independently"):
            measured(INPUTS[:count], TARGETS[:count], Coupled(lambda size: size == count, COUPLINGS["mean"]))


def test_the_last_batch_of_a_product_is_looked_at() -> None:
    """With a small budget a product goes through several batches; the model couples those of the last one's size."""
    plain = Coupled(lambda size: False, COUPLINGS["mean"])
    sizes: list[int] = []

    class Counting(Coupled):
        def forward(self, inputs: Tensor) -> Tensor:
            sizes.append(len(inputs))
            return super().forward(inputs)

    count, width = 20_011, 4
    inputs = INPUTS.repeat(21, 1)[:count, :width]
    targets = TARGETS.repeat(21, 1)[:count]
    problem = hm.Problem(Counting(plain.sizes, plain.couple), "squared", inputs, targets, memory_budget=2**21)
    hessian = hm.loss_hessian(problem)
    hessian @ torch.ones(problem.num_parameters).double()
    sizes.clear()
    hessian @ torch.ones(problem.num_parameters).double()
    last = sizes[-1]
    assert len(sizes) > 1
    assert last != sizes[0]
    with pytest.raises(NotReproducible, match="the model must treat samples independently"):
        measured(inputs, targets, Coupled(lambda size: size == last, COUPLINGS["mean"]), memory_budget=2**21)


@pytest.mark.parametrize("threshold", [8, 20, 500])
def test_a_loss_that_couples_larger_batches_is_refused(threshold: int) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        losses = (outputs - targets).square().sum(1)
        return losses / losses.mean().detach() if len(losses) > threshold else losses

    with pytest.raises(NotReproducible, match="the loss must treat samples independently"):
        hm.Problem(nn.Linear(4, 3), loss, INPUTS, TARGETS)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 65, COUNT])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_that_do_not_see_each_other_are_taken(count: int, dtype: torch.dtype) -> None:
    class Routed(nn.Module):
        """Every sample goes through one of two experts: a decision that rounding could change."""

        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = nn.Linear(4, 2), nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])

        def forward(self, inputs: Tensor) -> Tensor:
            chosen = self.gate(inputs).argmax(1)[:, None]
            return torch.where(chosen == 0, self.experts[0](inputs), self.experts[1](inputs)).tanh()

    for model in (Coupled(lambda size: False, COUPLINGS["mean"]), Routed()):
        assert measured(INPUTS[:count], TARGETS[:count], model, dtype=dtype).isfinite().all()


@pytest.mark.parametrize("threshold", [8, 100])
def test_a_function_of_inputs_that_couples_larger_batches_is_refused(threshold: int) -> None:
    with pytest.raises(NotReproducible, match="the model must treat samples independently"):
        hm.function_rank(Coupled(lambda count: count > threshold, COUPLINGS["mean"]), INPUTS)
