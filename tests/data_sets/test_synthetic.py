"""Synthetic data: their laws, and ranks that are exact over the rationals."""

import pytest
import torch
from flint import fmpq, fmpq_mat
from hypothesis import given
from hypothesis import strategies as st

from hessmap.datasets import dyadic, gaussian, gaussian_mixture, linear_teacher
from hessmap.errors import InvalidInput


def rational_rank(matrix):
    rows = [[fmpq(*value.as_integer_ratio()) for value in row] for row in matrix.tolist()]
    return fmpq_mat(rows).rank()


@given(st.integers(2, 9), st.integers(1, 9), st.booleans(), st.integers(1, 5), st.data())
def test_dyadic_data_have_exactly_the_rank_asked_for(num_samples, dim, is_centred, bits, data):
    rank = data.draw(st.integers(1, min(num_samples - is_centred, dim)))
    seed = data.draw(st.integers(0, 100))
    inputs, targets = dyadic(num_samples, dim, rank, seed, bits=bits, is_centred=is_centred, output_dim=2)
    assert inputs.shape == (num_samples, dim)
    assert targets.shape == (num_samples, 2)
    assert rational_rank(inputs) == rank
    if is_centred:
        totals = [sum(fmpq(*value.as_integer_ratio()) for value in column) for column in inputs.T.tolist()]
        assert totals == [0] * dim


def test_a_product_of_random_floats_does_not_have_its_structural_rank():
    left, right = gaussian(6, 2, seed=0).inputs, gaussian(2, 5, seed=1).inputs
    assert rational_rank(left @ right) > 2


def test_dyadic_data_are_of_order_one_and_full_rank_by_default():
    inputs, _ = dyadic(200, 30, seed=5)
    assert 0.5 < inputs.std() < 2
    assert torch.linalg.matrix_rank(inputs) == 30
    assert torch.linalg.matrix_rank(dyadic(20, 30, is_centred=True).inputs) == 19


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 5}, r"the rank of 4 samples in dimension 6 must be in 1\.\.4; got 5"),
        ({"rank": 4, "is_centred": True}, r"4 centred samples in dimension 6 must be in 1\.\.3; got 4"),
        ({"rank": 0}, "got 0"),
        ({"bits": 0}, "bits must be at least 1"),
        ({"bits": 30}, "leave sums of 4 products exact; got 30"),
        ({"output_dim": 0}, "sizes must be at least 1"),
    ],
)
def test_dyadic_data_that_cannot_exist_are_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        dyadic(4, 6, **options)


LOADERS = [
    lambda seed: gaussian(30, 4, 2, seed=seed),
    lambda seed: gaussian_mixture(30, 4, 3, seed=seed),
    lambda seed: linear_teacher(30, 4, 2, noise=0.1, seed=seed),
    lambda seed: dyadic(30, 4, seed=seed),
]


@pytest.mark.parametrize("loader", LOADERS)
def test_synthetic_data_depend_on_their_seed_and_on_nothing_else(loader):
    before = torch.get_rng_state()
    first, again, other = loader(1), loader(1), loader(2)
    assert torch.equal(torch.get_rng_state(), before)
    assert first.inputs.dtype == torch.float64
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.targets, again.targets)
    assert not torch.equal(first.inputs, other.inputs)


def test_mixture_means_lie_on_the_sphere_and_classes_are_balanced():
    inputs, labels = gaussian_mixture(3000, 5, 3, separation=10.0)
    assert torch.bincount(labels).tolist() == [1000, 1000, 1000]
    for label in range(3):
        members = inputs[labels == label]
        # The mean of 1,000 unit normals in 5 dimensions is off by about sqrt(5/1000) = 0.07.
        assert members.mean(dim=0).norm().item() == pytest.approx(10.0, abs=0.3)
        assert members.std(dim=0).mean().item() == pytest.approx(1.0, abs=0.05)


def test_a_linear_teacher_has_its_rank_variance_and_noise():
    clean = linear_teacher(4000, 20, 10, rank=3)
    noisy = linear_teacher(4000, 20, 10, rank=3, noise=0.5)
    assert torch.linalg.matrix_rank(clean.targets) == 3
    assert torch.equal(clean.inputs, noisy.inputs)
    assert (noisy.targets - clean.targets).std().item() == pytest.approx(0.5, rel=0.02)
    wide = linear_teacher(400, 300, 300)
    assert wide.targets.var().item() == pytest.approx(1.0, rel=0.05)
    teacher = torch.linalg.lstsq(clean.inputs, clean.targets)
    assert torch.allclose(clean.inputs @ teacher.solution, clean.targets, atol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: gaussian(0, 3), "num_samples must be at least 1; got 0"),
        (lambda: gaussian_mixture(3, 2, 0), "num_classes must be at least 1"),
        (lambda: gaussian_mixture(3, 2, 2, separation=-1), "separation must not be negative"),
        (lambda: linear_teacher(3, 2, 2, rank=3), r"rank of the teacher must be in 1\.\.2; got 3"),
        (lambda: linear_teacher(3, 2, 2, noise=-1), "noise must not be negative"),
    ],
)
def test_synthetic_data_that_cannot_exist_are_refused(make, message):
    with pytest.raises(InvalidInput, match=message):
        make()
