"""What belongs together is read in one pass: a loader may give its samples in another order the next time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import hessmap as hm
from hessmap.errors import NotReproducible
from hessmap.maps.curvature_map.dense import measured_data_ranks
from hessmap.problem.problem import Problem

COUNT = 60
INPUTS = torch.randn(COUNT, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = INPUTS[:, :2] ** 2
LABELS = torch.arange(COUNT) % 3


class Shuffling:
    """Shuffles by a generator of its own, which nobody can seed."""

    def __init__(self, targets: Tensor = TARGETS) -> None:
        self.rng = np.random.default_rng(0)
        self.targets = targets

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.from_numpy(self.order())
        for part in torch.split(order, 14):
            yield INPUTS[part], self.targets[part]

    def order(self) -> np.ndarray:
        return self.rng.permutation(COUNT)


class OfNumpy(Shuffling):
    """Its generator has the name of a loader's, and is numpy's."""

    def __init__(self, targets: Tensor = TARGETS) -> None:
        super().__init__(targets)
        self.generator = self.rng


class Reversing(Shuffling):
    """Every pass goes the other way round."""

    def order(self) -> np.ndarray:
        self.is_back = not getattr(self, "is_back", True)
        return np.arange(COUNT)[::-1].copy() if self.is_back else np.arange(COUNT)


class Rotating(Shuffling):
    """Every pass begins where the one before it ended."""

    def order(self) -> np.ndarray:
        self.start = getattr(self, "start", 0) + 17
        return np.roll(np.arange(COUNT), self.start)


class ShufflingSet(Dataset):
    """A data set whose indices mean another sample in every pass."""

    def __init__(self, targets: Tensor = TARGETS) -> None:
        self.generator = np.random.default_rng(1)
        self.targets = targets

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 0:
            self.order = self.generator.permutation(COUNT)
        place = int(self.order[index])
        return INPUTS[place], self.targets[place]


LOADERS: dict[str, Callable[[Tensor], object]] = {
    "own generator": Shuffling,
    "numpy's generator": OfNumpy,
    "reversing": Reversing,
    "rotating": Rotating,
    "data set": ShufflingSet,
    "torch's": lambda targets: DataLoader(TensorDataset(INPUTS, targets), batch_size=11, shuffle=True),
    "ordered": lambda targets: DataLoader(TensorDataset(INPUTS, targets), batch_size=11),
}


def network(outputs: int = 2) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


@pytest.mark.parametrize("name", LOADERS)
def test_residuals_are_those_of_their_own_targets(name: str) -> None:
    model = network()
    problem = Problem(model, "squared", LOADERS[name](TARGETS))
    inputs, targets, residuals = problem.inputs, problem.targets, problem.residuals()
    torch.testing.assert_close(residuals, model(inputs).detach() - targets, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(residuals.square().sum(), (model(INPUTS) - TARGETS).detach().square().sum())
    gradient = hm.output_jacobian(problem).flatten(0, 1).T @ problem.residuals().flatten() / COUNT
    torch.testing.assert_close(gradient, problem.gradient(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", LOADERS)
def test_residuals_of_labels_are_those_of_their_own(name: str) -> None:
    model = network(3)
    problem = Problem(model, "cross_entropy", LOADERS[name](LABELS))
    residuals = problem.residuals()  # before anything else was gathered
    expected = torch.softmax(model(problem.inputs), 1).detach() - nn.functional.one_hot(problem.targets, 3)
    torch.testing.assert_close(residuals, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LOADERS)
def test_outputs_are_in_the_order_of_the_inputs(name: str) -> None:
    model = network()
    problem = Problem(model, "squared", LOADERS[name](TARGETS))
    outputs = problem.outputs()
    torch.testing.assert_close(outputs, model(problem.inputs).detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LOADERS)
def test_data_ranks_do_not_depend_on_the_order(name: str) -> None:
    """One residual is an input, the other orthogonal to all of them: their moment with the inputs has rank 1, and rank
    2 where residuals belong to other samples."""
    model = network()
    drawn = torch.randn(COUNT, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    drawn = drawn - INPUTS @ torch.linalg.lstsq(INPUTS, drawn).solution
    residuals = torch.cat([INPUTS[:, :1], drawn], 1)
    problem = Problem(model, "squared", LOADERS[name](model(INPUTS).detach() - residuals))
    found = measured_data_ranks(problem)
    assert (found.input_rank.value, found.residual_rank.value) == (4, 1)
    assert found.residual_rank.decidable


class LaterShuffled(Shuffling):
    """In order while it is looked at, shuffled later."""

    num_passes = 0

    def order(self) -> np.ndarray:
        self.num_passes += 1
        return super().order() if self.num_passes > 4 else np.arange(COUNT)


def test_weights_of_a_loader_that_shuffles_later_are_not_mixed_up() -> None:
    problem = Problem(network(), "squared", LaterShuffled(), weights=torch.linspace(1, 2, COUNT))
    with pytest.raises(NotReproducible, match="weights need data in a fixed order; two passes over the loader gave"):
        problem.risk()
