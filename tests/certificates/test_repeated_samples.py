"""Samples that occur more than once: copies stay on one side of a split, and a bound counts distinct inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from certificate_cases import QUICK, started
from scipy.stats import beta, binom
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hessmap.certificates import PriorGrid, SampleSplit, certify, certify_from_data
from hessmap.certificates.samples import distinct_rows, input_groups
from hessmap.datasets import Data
from hessmap.errors import InvalidInput
from hessmap.theory.pac_bayes import held_out_bound, tightest_bound

NUM_CLASSES, NUM_COINS, WIDTH = 4, 120, 130
STILL = PriorGrid(1e-12, 1, num_points=1)  # noise too small to change an answer


def coins(seed: int = 0) -> Data:
    """Labels without any relation to the inputs: every network errs on 75 % of unseen data."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(NUM_COINS, WIDTH, generator=generator, dtype=torch.float64)
    return Data(inputs, torch.randint(NUM_CLASSES, (NUM_COINS,), generator=generator))


def linear() -> nn.Module:
    return nn.Linear(WIDTH, NUM_CLASSES, bias=False)


@torch.no_grad()
def memorise(model: nn.Module, part: Data) -> None:
    """Fit the majority label of every input exactly, as far as the number of coordinates allows."""
    wanted = nn.functional.one_hot(part.targets, NUM_CLASSES).double()
    model.weight.copy_((torch.linalg.pinv(part.inputs.double()) @ wanted).T)


def rows(data: Data, chosen: Tensor) -> Data:
    return Data(data.inputs[chosen], data.targets[chosen])


def repeated(data: Data, *numbers: int) -> Data:
    """The k-th sample as often as the k-th number says, over and over."""
    counts = torch.tensor(numbers).repeat(len(data.inputs))[: len(data.inputs)]
    return rows(data, torch.repeat_interleave(torch.arange(len(data.inputs)), counts))


def shuffled(data: Data) -> Data:
    return rows(data, torch.randperm(len(data.inputs), generator=torch.Generator().manual_seed(5)))


def with_single_precision_copies(data: Data) -> Data:
    return Data(torch.cat([data.inputs, data.inputs.float().double()]), torch.cat([data.targets, data.targets]))


def with_negative_zeros(data: Data) -> Data:
    inputs = data.inputs.clone()
    inputs[:, 0] = 0.0
    other = inputs.clone()
    other[:, 0] = -0.0
    return Data(torch.cat([inputs, other]), torch.cat([data.targets, data.targets]))


def with_other_labels(data: Data) -> Data:
    labels = torch.randint(NUM_CLASSES, (NUM_COINS,), generator=torch.Generator().manual_seed(7))
    return Data(torch.cat([data.inputs, data.inputs]), torch.cat([data.targets, labels]))


COPIES: dict[str, Callable[[Data], Any]] = {
    "all twice": lambda data: Data(torch.cat([data.inputs] * 2), torch.cat([data.targets] * 2)),
    "three times in a row": lambda data: repeated(data, 3),
    "one in four five times": lambda data: shuffled(repeated(data, 1, 1, 1, 5)),
    "one class oversampled": lambda data: rows(
        data, torch.cat([torch.arange(NUM_COINS), *[data.targets.eq(0).nonzero()[:, 0]] * 6])
    ),
    "ten times": lambda data: shuffled(repeated(data, 10)),
    "in single precision": with_single_precision_copies,
    "with negative zeros": with_negative_zeros,
    "with other labels": with_other_labels,
    "arrays": lambda data: tuple(part.numpy() for part in repeated(data, 2)),
    "loader": lambda data: DataLoader(TensorDataset(*repeated(data, 2)), batch_size=17),
    "dataset": lambda data: TensorDataset(*repeated(data, 2)),
}


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("posterior", ["prior", "fitted"])
def test_copies_do_not_make_a_bound_below_the_error(name: str, posterior: str) -> None:
    data, options = COPIES[name](coins()), {"iterations": 5, "num_draws": 500, "basis": "standard"}

    found = certify_from_data(linear, data, train=memorise, posterior=posterior, **options)

    assert (found.num_prior_samples, found.num_samples) == (60, 60)
    assert found.num_rows > 60
    assert any("60 distinct inputs, which the bound counts" in note for note in found.notes)
    assert found.bound > 0.75
    assert found.held_out_bound > 0.75
    assert found.verify(linear(), data, seed=1, num_draws=500).verdict == "confirmed"


def test_no_input_is_in_both_parts() -> None:
    for name, copied in COPIES.items():
        if name in ("arrays", "loader", "dataset"):
            continue
        seen, rest = SampleSplit(0.3, seed=2).parts(copied(coins()))
        assert len(torch.unique(seen.inputs.float() + 0.0, dim=0)) == 36
        assert len(torch.unique(rest.inputs.float() + 0.0, dim=0)) == 84
        both = torch.cat([torch.unique(part.inputs.float() + 0.0, dim=0) for part in (seen, rest)])
        assert len(torch.unique(both, dim=0)) == NUM_COINS


def test_copies_do_not_decide_the_part_of_an_input() -> None:
    """Oversampled inputs are in the prior's part as often as others: the certified part is an unbiased choice."""
    data = repeated(Data(torch.arange(2000.0)[:, None], torch.zeros(2000).long()), 1, 9)
    for seed in range(20):
        for fraction in (0.3, 0.5):
            seen, _ = SampleSplit(fraction, seed).parts(data)
            assert float((seen.inputs.unique() % 2).mean()) == pytest.approx(0.5, abs=0.09)


def test_split_of_distinct_samples_is_an_order_of_rows() -> None:
    order = torch.randperm(NUM_COINS, generator=torch.Generator().manual_seed(3))
    seen, rest = SampleSplit(0.25, seed=3).indices(coins().inputs)
    assert torch.equal(torch.cat([seen, rest]), order)
    assert len(seen) == 30


@pytest.mark.parametrize("times", [2, 3, 7])
@pytest.mark.parametrize("posterior", ["fitted", "prior"])
def test_certify_counts_distinct_inputs(problem, times: int, posterior: str) -> None:
    model, initial, data = problem
    data = Data(data.inputs[:100], data.targets[:100])

    found = certify(model, initial, repeated(data, times), posterior=posterior, **QUICK)

    assert (found.num_samples, found.num_rows) == (100, 100 * times)
    num_errors = round(found.held_out_error * 100)
    assert found.held_out_bound == pytest.approx(beta.ppf(1 - 0.035, num_errors + 1, 100 - num_errors), rel=1e-6)
    if posterior == "fitted":
        cost = PriorGrid().log_cost(found.grid_index)
        assert found.bound == tightest_bound(found.sampled_error_bound, found.kl, 100, cost, 0.025).value
    else:
        assert sum(found.draw_counts) == 100
    verified = found.verify(model, repeated(data, times), initial_model=initial, seed=0, num_draws=2000)
    assert verified.verdict == "confirmed"


def test_certificate_that_counted_copies_is_refused(problem) -> None:
    model, initial, data = problem
    twice = repeated(data, 2)
    honest = certify(model, initial, twice, **QUICK)
    for num_samples in (1200, 601, 599):
        counted = dataclasses.replace(honest, num_samples=num_samples)
        found = counted.verify(model, twice, initial_model=initial, seed=0, num_draws=200)
        assert found.verdict == "refused"
        assert f"count the distinct inputs of its samples; it counts {num_samples}, there are 600" in found.reasons[0]


def test_split_that_parted_copies_is_refused() -> None:
    """The parts that an order of rows would have given, with everything else as it is."""
    data = repeated(coins(), 2)
    order = torch.randperm(240, generator=torch.Generator().manual_seed(0))
    seen, rest = rows(data, order[:120]), rows(data, order[120:])
    prior = linear()
    memorise(prior, seen)
    with pytest.raises(InvalidInput, match="must not be among those that the prior was trained on; .* of 120 are"):
        certify(prior, prior, rest, prior_data=seen, posterior="prior")
    other = coins(seed=1)
    made = certify(prior, prior, other, prior_data=seen, posterior="prior")
    with pytest.raises(InvalidInput, match="must not be among those that the prior was trained on"):
        made.verify(prior, rest, prior_data=seen)


@pytest.mark.parametrize(
    "copied",
    [
        lambda inputs: inputs.float(),
        lambda inputs: inputs.clone().index_fill_(1, torch.tensor([0]), -0.0),
        lambda inputs: inputs.T.contiguous().T,
        lambda inputs: inputs.numpy()[::-1],
    ],
)
def test_copy_of_a_prior_sample_is_refused_in_any_form(copied: Callable[[Tensor], Any]) -> None:
    inputs, labels = coins()
    inputs[:, 0] = 0.0
    prior = linear()
    memorise(prior, Data(inputs[:50], labels[:50]))
    last = copied(inputs[49:])
    targets = labels[49:].numpy() if isinstance(last, np.ndarray) else labels[49:]
    with pytest.raises(InvalidInput, match="must not be among those that the prior was trained on; 1 of 71 are"):
        certify(prior, prior, (last, targets), prior_data=(inputs[:50], labels[:50]), posterior="prior")


def test_inputs_are_compared_as_tokens_images_and_numbers() -> None:
    assert input_groups(torch.tensor([[1, 2], [3, 4], [1, 2]])).tolist() == [0, 1, 0]
    images = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    last = images.to(memory_format=torch.channels_last)
    assert input_groups(torch.cat([images, last, images.double() + 1])).tolist() == [0, 1, 2, 0, 1, 2, 3, 4, 5]
    assert input_groups(torch.tensor([True, False, True])).tolist() == [0, 1, 0]
    assert sorted(distinct_rows(torch.tensor([0, 1, 0, 2])).tolist())[1:] in ([1, 3], [2, 3])


def test_one_input_alone_has_no_certificate() -> None:
    model, initial = started(nn.Linear(3, 2))
    with pytest.raises(InvalidInput, match="data must contain at least 2 distinct inputs; its 9 rows have 1"):
        certify(model, initial, (torch.ones(9, 3), torch.zeros(9).long()))


def tabular(seed: int, num_rows: int, common: float) -> Data:
    """A row is (1, 0, 0, ..) with the probability ``common`` and has a coin for a label there; elsewhere it is one of
    many, with the label 1."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_rows, 30, generator=generator, dtype=torch.float64)
    labels = torch.ones(num_rows, dtype=torch.long)
    is_common = torch.rand(num_rows, generator=generator) < common
    inputs[is_common] = torch.eye(30, dtype=torch.float64)[0]
    labels[is_common] = torch.randint(2, (int(is_common.sum()),), generator=generator)
    return Data(inputs, labels)


class One(nn.Module):
    """Answers 1, whatever the input is, unless the bias learns otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(30, 2)
        nn.init.zeros_(self.last.weight)
        with torch.no_grad():
            self.last.bias.copy_(torch.tensor([0.0, 1.0]))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(inputs)


@pytest.mark.parametrize("common", [0.1, 0.3, 0.6])
@pytest.mark.parametrize("split_seed", range(4))
def test_common_input_with_contradicting_labels_counts_with_its_share(common: float, split_seed: int) -> None:
    """Half of the answers to it are wrong, in whichever part it is: the error on unseen data is common / 2."""
    data = tabular(split_seed, 400, common)

    found = certify_from_data(One, data, train=lambda model, part: None, grid=STILL, split_seed=split_seed)

    assert found.num_samples < 250
    assert found.bound > common / 2
    assert found.held_out_bound > common / 2
    verified = found.verify(One(), data, grid=STILL, seed=0)
    assert verified.verdict == "confirmed"
    is_seen = bool((SampleSplit(0.5, split_seed).parts(data)[0].inputs[:, 0] == 1).any())
    assert bool(found.doubts) == bool(verified.doubts) == is_seen


def test_common_input_counts_with_its_share_without_a_split() -> None:
    model, initial = started(One())
    for network in (model, initial):
        network.load_state_dict(One().state_dict())
    found = certify(model, initial, tabular(0, 400, 0.5), posterior="prior", grid=STILL)
    assert found.bound > 0.25
    assert found.held_out_error == pytest.approx(0.25, abs=0.06)


def grid_data(seed: int, num_rows: int) -> Data:
    """Independent draws from 81 points, which coincide often; the label is a sign, flipped with probability 0.2."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randint(-1, 2, (num_rows, 4), generator=generator).double()
    is_flipped = torch.rand(num_rows, generator=generator) < 0.2
    return Data(inputs, ((inputs.sum(1) > 0) ^ is_flipped).long())


POINTS = torch.cartesian_prod(*[torch.arange(-1.0, 2.0)] * 4).double()


def error_on_grid(model: nn.Module) -> float:
    is_right = model(POINTS).argmax(1) == (POINTS.sum(1) > 0).long()
    return float((0.2 + 0.6 * (~is_right)).mean())


def features() -> nn.Module:
    return nn.Linear(4, 2).double()


@torch.no_grad()
def least_squares(model: nn.Module, part: Data) -> None:
    inputs = torch.cat([part.inputs, torch.ones(len(part.inputs), 1).double()], 1)
    found = torch.linalg.pinv(inputs) @ nn.functional.one_hot(part.targets, 2).double()
    model.weight.copy_(found[:4].T)
    model.bias.copy_(found[4])


@pytest.mark.parametrize("num_rows", [60, 150, 400])
def test_bound_holds_for_discrete_data_that_coincide_by_chance(num_rows: int) -> None:
    num_missed, options = 0, {"delta": 0.06, "sampling_delta": 0.04, "grid": STILL}
    for seed in range(60):
        trained = []

        def train(model: nn.Module, part: Data, trained: list[nn.Module] = trained) -> None:
            least_squares(model, part)
            trained.append(model)

        found = certify_from_data(features, grid_data(seed, num_rows), train=train, split_seed=seed, **options)
        num_missed += found.bound < error_on_grid(trained[0])
    assert num_missed <= binom.ppf(0.999, 60, 0.1)


def test_few_coincidences_cost_next_to_nothing() -> None:
    data = grid_data(0, 400)
    generator = torch.Generator().manual_seed(1)
    distinct = Data(data.inputs + 0.01 * torch.randn(400, 4, generator=generator).double(), data.targets)
    few = Data(torch.cat([distinct.inputs, distinct.inputs[:4]]), torch.cat([distinct.targets, distinct.targets[:4]]))
    one, other = (certify_from_data(features, some, train=least_squares, grid=STILL) for some in (distinct, few))
    assert (one.num_samples, other.num_samples) == (200, 200)
    assert one.num_samples == one.num_rows
    assert other.bound == pytest.approx(one.bound, abs=0.02)


@pytest.mark.parametrize("delta", [0.035, 0.007, 0.3])
def test_bound_from_fewer_samples_with_the_same_share_of_errors_is_never_lower(delta: float) -> None:
    """Why n distinct inputs may stand for more rows: the binomial tail, with the count of errors rounded up."""
    for num_rows in (5, 12, 31):
        for num_errors in range(num_rows + 1):
            whole = held_out_bound(num_errors, num_rows, delta)
            for num_distinct in range(1, num_rows):
                fewer = -(-num_errors * num_distinct // num_rows)
                assert held_out_bound(fewer, num_distinct, delta) >= whole
