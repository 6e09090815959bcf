"""The published data sets, where their files are."""

import subprocess
import sys

import pytest
import torch

from hessmap import datasets

pytestmark = pytest.mark.data

STATUS = {status.name: status for status in datasets.available()}
LOADERS = {"mnist": datasets.mnist, "fashion_mnist": datasets.fashion_mnist, "cifar10": datasets.cifar10}


def loaded(name, **options):
    status = STATUS[name]
    if not status.is_present:
        pytest.skip(f"{name} is not here: {', '.join(status.missing)} not found; set HESSMAP_DATA")
    return LOADERS[name](**options)


@pytest.mark.parametrize(("name", "dim"), [("mnist", 784), ("fashion_mnist", 784), ("cifar10", 1024)])
def test_the_test_part_holds_10000_balanced_samples_in_the_unit_interval(name, dim):
    inputs, targets = loaded(name, split="test")
    assert inputs.shape == (10_000, dim)
    assert (inputs.min(), inputs.max()) == (0, 1)
    counts = torch.bincount(targets)
    assert len(counts) == 10
    assert counts.min() > 850
    if name != "mnist":
        assert counts.tolist() == [1000] * 10


def test_the_first_mnist_labels_are_those_everybody_knows():
    assert loaded("mnist", num_samples=10).targets.tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert loaded("mnist", split="test", num_samples=5).targets.tolist() == [7, 2, 1, 0, 4]


@pytest.mark.parametrize(("side", "rank"), [(28, 717), (7, 49), (5, 25), (4, 16)])
def test_mnist_training_pixels_are_zero_where_it_is_known(side, rank):
    inputs, _ = loaded("mnist", side=side)
    assert inputs.shape == (60_000, side**2)
    assert int((inputs != 0).any(dim=0).sum()) == rank


def test_mnist_mean_and_deviation_are_the_published_ones():
    inputs, _ = loaded("mnist")
    assert inputs.mean().item() == pytest.approx(0.1307, abs=5e-5)
    assert inputs.std().item() == pytest.approx(0.3081, abs=5e-5)


def test_fashion_mnist_mean_and_deviation_are_the_published_ones():
    inputs, _ = loaded("fashion_mnist")
    assert inputs.mean().item() == pytest.approx(0.2860, abs=5e-5)
    assert inputs.std().item() == pytest.approx(0.3530, abs=5e-5)


@pytest.mark.slow
def test_cifar10_channel_means_are_the_published_ones():
    inputs, targets = loaded("cifar10", grayscale=False)
    assert torch.bincount(targets).tolist() == [5000] * 10
    means = inputs.reshape(50_000, 3, -1).mean(dim=(0, 2)).tolist()
    assert means == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)


@pytest.mark.slow
def test_the_files_here_are_the_published_ones():
    for status in datasets.available(verify=True):
        if status.is_present:
            assert status.is_original, status.name


def test_loading_digits_for_the_first_time_leaves_every_random_state_alone():
    """Importing scikit-learn draws from python's generator; only a fresh process imports it for the first time."""
    code = (
        "import random, numpy, torch, hessmap\n"
        "states = lambda: (random.getstate(), str(numpy.random.get_state()), torch.get_rng_state().tolist())\n"
        "before = states(); hessmap.datasets.digits(); assert states() == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
