"""What is done to data: each step against its definition."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from example_shares import share_of_examples
from hessmap.datasets import (
    Data,
    class_subset,
    digits,
    downscale,
    grayscale,
    one_hot,
    random_labels,
    standardise,
    subsample,
    two_halves,
)
from hessmap.errors import InvalidInput


def area_mean(image, side):
    """Every new pixel as a sum of old values times the covered area, in rationals."""
    height, width = image.shape

    def cover(size, new, old):
        low = max(Fraction(new * size, side), Fraction(old))
        high = min(Fraction((new + 1) * size, side), Fraction(old + 1))
        return max(Fraction(0), high - low)

    area = Fraction(height, side) * Fraction(width, side)
    return [
        [
            float(
                sum(
                    int(image[y, x]) * cover(height, row, y) * cover(width, column, x)
                    for y in range(height)
                    for x in range(width)
                )
                / area
            )
            for column in range(side)
        ]
        for row in range(side)
    ]


@share_of_examples(0.5)
@given(st.integers(2, 9), st.integers(2, 9), st.data())
def test_downscaling_is_the_correctly_rounded_mean_over_the_covered_area(height, width, data):
    side = data.draw(st.integers(1, min(height, width)))
    seed = data.draw(st.integers(0, 1000))
    image = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    assert downscale(torch.from_numpy(image), side).tolist() == area_mean(image, side)


@pytest.mark.parametrize("side", [8, 7, 5, 4, 1, 28])
def test_downscaling_keeps_the_mean_of_28x28_images(side):
    images = torch.rand(3, 1, 28, 28, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    small = downscale(images, side)
    assert small.shape == (3, 1, side, side)
    assert torch.allclose(small.mean(dim=(-2, -1)), images.mean(dim=(-2, -1)), rtol=1e-14)
    if 28 % side == 0:
        block = 28 // side
        tiles = images.reshape(3, 1, side, block, side, block).mean(dim=(3, 5))
        assert torch.allclose(small, tiles, rtol=1e-13)


def test_a_side_beyond_the_image_is_refused():
    with pytest.raises(InvalidInput, match=r"side must be in 1\.\.4 for images of 4x5; got 5"):
        downscale(torch.zeros(4, 5), 5)
    with pytest.raises(InvalidInput, match="got 0"):
        downscale(torch.zeros(4, 4), 0)


def test_gray_needs_three_channels():
    assert grayscale(torch.ones(2, 3, 4, 4)).shape == (2, 1, 4, 4)
    assert torch.allclose(grayscale(torch.ones(2, 3, 4, 4)), torch.ones(1, dtype=torch.float64), rtol=1e-15)
    with pytest.raises(InvalidInput, match=r"got \(2, 1, 4, 4\)"):
        grayscale(torch.ones(2, 1, 4, 4))


def test_one_hot_rows_are_rows_of_the_identity():
    assert one_hot(torch.tensor([1, 0]), 3).tolist() == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(InvalidInput, match=r"labels must be in 0\.\.2; they range from 0 to 3"):
        one_hot(torch.tensor([3, 0]), 3)
    with pytest.raises(InvalidInput, match=r"they range from -1 to 0"):
        one_hot(torch.tensor([-1, 0]))
    with pytest.raises(InvalidInput, match="integer labels"):
        one_hot(torch.tensor([1.0, 0.0]))


def test_standardised_features_have_mean_zero_and_deviation_one_or_are_zero():
    inputs = digits().inputs + 0.1  # the three constant pixels are now 0.1, whose mean rounds
    scaled = standardise(inputs)
    constant = (inputs == inputs[0]).all(dim=0)
    assert int(constant.sum()) == 3
    assert (scaled[:, constant] == 0).all()
    assert scaled.mean(dim=0).abs().max() < 1e-13
    assert torch.allclose(scaled[:, ~constant].std(dim=0, correction=0), torch.ones(61, dtype=torch.float64))


def test_standardising_by_a_reference_uses_its_statistics():
    reference = torch.tensor([[0.0, 1.0], [4.0, 1.0]])
    assert standardise(torch.tensor([[2.0, 3.0]]), reference).tolist() == [[0.0, 2.0]]
    assert standardise(torch.tensor([[6.0, 1.0]]), reference).tolist() == [[2.0, 0.0]]


@pytest.mark.parametrize(
    ("classes", "message"),
    [((), "at least one class"), ((1, 1), "must be distinct"), ((0, 5), r"among \[0, 1\]; got \[5\]")],
)
def test_classes_that_cannot_be_chosen_are_refused(classes, message):
    with pytest.raises(InvalidInput, match=message):
        class_subset(Data(torch.zeros(2, 1), torch.tensor([0, 1])), classes)


def test_a_seed_draws_without_replacement_and_without_the_global_state():
    data = Data(torch.arange(50.0)[:, None], torch.arange(50))
    before = torch.get_rng_state()
    chosen = subsample(data, 20, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(chosen.inputs[:, 0].long(), chosen.targets)
    assert len(set(chosen.targets.tolist())) == 20
    assert chosen.targets.tolist() == subsample(data, 20, seed=3).targets.tolist()
    assert chosen.targets.tolist() != subsample(data, 20, seed=4).targets.tolist()
    assert sorted(subsample(data, None, seed=3).targets.tolist()) == list(range(50))
    with pytest.raises(InvalidInput, match=r"num_samples must be in 1\.\.50; got 51"):
        subsample(data, 51)
    with pytest.raises(InvalidInput, match="got 0"):
        subsample(data, 0)


def test_digits_have_rank_61_in_exact_arithmetic_and_take_every_option():
    from flint import fmpz_mat

    inputs, targets = digits()
    assert fmpz_mat([[int(value) for value in row] for row in (16 * inputs).tolist()]).rank() == 61
    assert torch.equal((16 * inputs).round(), 16 * inputs)
    assert inputs.max() == 1
    assert torch.bincount(targets).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    small = digits(10, classes=(3, 8), side=4, one_hot=True, seed=1)
    assert small.inputs.shape == (10, 16)
    assert small.targets.shape == (10, 2)
    with pytest.raises(InvalidInput, match=r"classes must be among 0\.\.9; got \[10\]"):
        digits(classes=[10])


def test_random_labels_know_nothing_of_the_true_ones() -> None:
    data = Data(torch.zeros(6000, 1), torch.arange(6000) % 3)

    drawn = random_labels(data, seed=5)

    assert drawn.inputs is data.inputs
    assert torch.equal(drawn.targets, random_labels(data, seed=5).targets)
    counts = torch.bincount(3 * data.targets + drawn.targets, minlength=9)
    assert ((counts - 6000 / 9).abs() < 5 * (6000 / 9) ** 0.5).all()


def test_random_labels_need_a_class() -> None:
    with pytest.raises(InvalidInput, match="num_classes must be at least 1; got 0"):
        random_labels(Data(torch.zeros(2, 1), torch.tensor([0, 1])), num_classes=0)


def test_two_halves_of_an_odd_number_of_classes_favour_the_lower() -> None:
    assert two_halves(Data(torch.zeros(5, 1), torch.arange(5)), num_classes=5).targets.tolist() == [0, 0, 0, 1, 1]
    with pytest.raises(InvalidInput, match="num_classes must be at least 2; got 1"):
        two_halves(Data(torch.zeros(1, 1), torch.zeros(1)), num_classes=1)


def test_number_of_samples_that_is_no_count_is_refused() -> None:
    data = Data(torch.zeros(4, 1), torch.zeros(4, dtype=torch.long))
    for count in (2.0, "2", True):
        with pytest.raises(InvalidInput, match="num_samples must be an integer of at least 1"):
            subsample(data, count)
