"""Options of data sets that are no counts, seeds or classes get a sentence; integers of numpy and torch are counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from hessmap import datasets
from hessmap.datasets import Data
from hessmap.errors import InvalidInput

LABELLED = Data(torch.zeros(4, 1), torch.tensor([0, 1, 0, 1]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: datasets.digits("nonsense"), r"num_samples of the digits must be an integer; got 'nonsense'"),
        (lambda: datasets.digits("test"), r"got 'test'. Pass the split by name"),
        (lambda: datasets.digits(2.5), "num_samples must be an integer of at least 1; got 2.5"),
        (lambda: datasets.digits(True), "num_samples must be an integer of at least 1; got True"),
        (lambda: datasets.digits([5]), r"num_samples must be an integer of at least 1; got \[5\]"),
        (lambda: datasets.digits(5, seed="a"), "seed must be an integer of at least 0; got 'a'"),
        (lambda: datasets.digits(5, seed=1.5), "seed must be an integer of at least 0; got 1.5"),
        (lambda: datasets.digits(5, side="4"), "side must be an integer; got '4'"),
        (lambda: datasets.digits(5, side=4.0), "side must be an integer; got 4.0"),
        (lambda: datasets.digits(classes="38"), r"classes must be among 0\.\.9; got \['3', '8'\]"),
        (lambda: datasets.digits(classes=3), "classes must be a list; got 3"),
        (lambda: datasets.digits(classes=[1.5]), r"classes must be among 0\.\.9; got \[1.5\]"),
        (lambda: datasets.by_name("digits", num_samples="all"), "num_samples of the digits must be an integer"),
        (lambda: datasets.gaussian("5", 3), "num_samples must be an integer; got '5'"),
        (lambda: datasets.gaussian(5, 3, seed=None), "seed must be an integer of at least 0; got None"),
        (lambda: datasets.gaussian_mixture(5, 2, 2, separation="3"), "separation must be a number; got '3'"),
        (lambda: datasets.gaussian_mixture(5, 2, 2, separation=float("nan")), "separation must not be negative"),
        (lambda: datasets.linear_teacher(5, 2, 2, rank=1.0), "rank must be an integer; got 1.0"),
        (lambda: datasets.linear_teacher(5, 2, 2, noise=float("inf")), "noise must not be negative, and finite"),
        (lambda: datasets.dyadic(5, None), "dim must be an integer; got None"),
        (lambda: datasets.dyadic(5, 2, bits=2.5), "bits must be an integer; got 2.5"),
        (lambda: datasets.random_labels(LABELLED, "2"), "num_classes must be an integer; got '2'"),
        (lambda: datasets.two_halves(LABELLED, 2.0), "num_classes must be an integer; got 2.0"),
        (lambda: datasets.class_subset(LABELLED, ["0"]), "a class must be an integer; got '0'"),
        (lambda: datasets.one_hot(LABELLED.targets, 2.0), "num_classes must be an integer; got 2.0"),
        (lambda: datasets.ImageAugmentation(28), "shape must be a list; got 28"),
        (lambda: datasets.ImageAugmentation((1, 28, 2.5)), r"shape must be \(channels, height, width\)"),
        (lambda: datasets.ImageAugmentation((1, 28, 28), shift="2"), "shift must be a number; got '2'"),
        (lambda: datasets.ImageAugmentation((1, 28, 28), scale=float("nan")), "scale must be finite and not negative"),
    ],
)
def test_odd_options_get_a_sentence(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make()


@pytest.mark.parametrize("as_integer", [np.int64, np.uint8, np.array, torch.tensor])
def test_integers_of_numpy_and_torch_are_counts(as_integer: Callable[[int], object]) -> None:
    plain = datasets.digits(5, classes=[3, 8], side=4, seed=1)
    given = datasets.digits(
        as_integer(5), classes=[as_integer(3), as_integer(8)], side=as_integer(4), seed=as_integer(1)
    )
    assert torch.equal(given.inputs, plain.inputs)
    assert torch.equal(given.targets, plain.targets)
    drawn = datasets.linear_teacher(as_integer(5), as_integer(3), as_integer(2), rank=as_integer(1), seed=as_integer(1))
    assert torch.equal(drawn.inputs, datasets.linear_teacher(5, 3, 2, rank=1, seed=1).inputs)
