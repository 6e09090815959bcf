"""Data as users bring them: arrays, data sets, samplers, and loaders that lose or mix samples without a word."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

import hessmap as hm
from hessmap.errors import InvalidInput

INPUTS = torch.randn(10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.randn(10, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
DATA = TensorDataset(INPUTS, TARGETS)


class Stream(IterableDataset):
    def __iter__(self):
        return zip(INPUTS, TARGETS, strict=True)


def problem(data, targets=None) -> hm.Problem:
    return hm.Problem(nn.Linear(4, 3).double(), "squared", data, targets)


def test_numpy_arrays_are_taken_as_tensors():
    arrays = problem(INPUTS.numpy(), TARGETS.numpy())
    assert arrays.data_hash == problem(INPUTS, TARGETS).data_hash


def test_samples_lost_by_a_batch_sampler_are_noticed():
    losing = BatchSampler(SequentialSampler(DATA), 4, drop_last=True)
    with pytest.raises(InvalidInput, match="drop_last=True drops 2 of 10 in batches of 4"):
        problem(DataLoader(DATA, batch_sampler=losing))
    keeping = BatchSampler(SequentialSampler(DATA), 4, drop_last=False)
    assert problem(DataLoader(DATA, batch_sampler=keeping)).num_samples == 10


def test_drop_last_is_judged_by_the_samples_that_the_sampler_chose():
    with pytest.raises(InvalidInput, match="drop_last=True drops 1 of 6 in batches of 5"):
        problem(DataLoader(DATA, sampler=range(6), batch_size=5, drop_last=True))
    assert problem(DataLoader(DATA, sampler=range(6), batch_size=3, drop_last=True)).num_samples == 6


def test_drop_last_of_a_stream_is_refused():
    with pytest.raises(InvalidInput, match="may drop some, and their number is not known"):
        problem(DataLoader(Stream(), batch_size=3, drop_last=True))
    assert problem(DataLoader(Stream(), batch_size=3)).num_samples == 10


def test_batches_whose_targets_belong_to_other_inputs_are_refused():
    with pytest.raises(InvalidInput, match=r"as many targets as inputs; one has shapes \(6, 4\) and \(4, 3\)"):
        problem([(INPUTS[:6], TARGETS[:4]), (INPUTS[6:], TARGETS[4:])])


def test_a_data_set_and_a_pair_are_read_like_tensors():
    expected = problem(INPUTS, TARGETS)
    vector = torch.ones(15, dtype=torch.float64)
    for data in (DATA, Stream(), (INPUTS, TARGETS), [INPUTS, TARGETS], (INPUTS.numpy(), TARGETS.numpy())):
        found = hm.Problem(expected.model.requires_grad_(), "squared", data)
        assert found.num_samples == 10
        product = hm.loss_hessian(found) @ vector
        torch.testing.assert_close(product, hm.loss_hessian(expected) @ vector, rtol=1e-13, atol=1e-14)


def test_single_samples_in_place_of_batches_are_refused():
    with pytest.raises(InvalidInput, match="Set a batch_size if these are single samples"):
        problem(DataLoader(DATA, batch_size=None))
    with pytest.raises(InvalidInput, match=r"must yield \(inputs, targets\) pairs of tensors; it gave a Tensor"):
        problem([INPUTS, TARGETS, TARGETS])


def test_weights_with_a_loader_that_shuffles_are_refused():
    weights = torch.arange(1, 11)
    model = nn.Linear(4, 3).double()
    with pytest.raises(InvalidInput, match="weights need data in a fixed order.*shuffle=False"):
        hm.Problem(model, "squared", DataLoader(DATA, batch_size=4, shuffle=True), weights=weights)
    ordered = hm.Problem(model, "squared", DataLoader(DATA, batch_size=4), weights=weights)
    whole = hm.Problem(model, "squared", INPUTS, TARGETS, weights=weights)
    assert ordered.risk() == pytest.approx(whole.risk(), rel=1e-14)


def test_nan_in_a_loader_is_called_nan_and_not_augmentation():
    spoiled = INPUTS.clone()
    spoiled[2, 1] = float("nan")
    with pytest.raises(InvalidInput, match="inputs must be finite; sample 2 has NaN or inf"):
        problem(DataLoader(TensorDataset(spoiled, TARGETS), batch_size=4))


def test_weights_whose_sum_overflows_are_refused():
    weights = torch.full((10,), 1e308, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="and their sum finite"):
        hm.Problem(nn.Linear(4, 3).double(), "squared", INPUTS, TARGETS, weights=weights)
