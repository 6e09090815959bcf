"""The data sets of images: digits (embedded), MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100 (from their original files).

All take the same options, applied in this order: ``split``, ``classes``, ``num_samples`` with a ``seed`` (classes are
not balanced), ``side``, ``standardise`` (test data need the training statistics: ``standardise(inputs, reference)``),
``one_hot``. Files are read as they are published: IDX files and CIFAR's binary batches, compressed or not.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.datasets import preprocessing
from hessmap.datasets.catalogue import (
    CIFAR10,
    CIFAR100,
    ENVIRONMENT_VARIABLE,
    FASHION_MNIST,
    MNIST,
    DataFile,
    ImageFiles,
    Split,
    data_folders,
    found_file,
    require_split,
    unpacked_bytes,
)
from hessmap.datasets.preprocessing import Data
from hessmap.errors import (
    DataFileError,
    InvalidInput,
    checked_count,
    checked_seed,
    integer_or_none,
    list_of,
    require,
    sentence,
    short_text,
)

Bytes = NDArray[np.uint8]

_UNSIGNED_BYTE = 0x08  # the only IDX element type these data sets use


def read_idx(content: bytes, num_dimensions: int, name: str) -> Bytes:
    """The array of an IDX file: two zero bytes, type, dimension count, big-endian sizes, then the values.

    >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), 1, "labels").tolist()
    [7, 8, 9]
    """
    expected = bytes([0, 0, _UNSIGNED_BYTE, num_dimensions])
    if content[:4] != expected:
        raise DataFileError(
            sentence(
                f"an IDX file of bytes in {num_dimensions} dimensions must begin with {expected.hex()}",
                f"{name} begins with {content[:4].hex()}",
                "It is another kind of file: download the original again",
            )
        )
    start = 4 + 4 * num_dimensions
    if len(content) < start:
        raise DataFileError(sentence(f"{name} must have a header of {start} bytes", f"it has {len(content)} bytes"))
    shape = struct.unpack(f">{num_dimensions}I", content[4:start])
    _check_size(name, f"a header that promises {'x'.join(map(str, shape))} values", start + prod(shape), content)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_cifar_batch(content: bytes, name: str, num_labels: int = 1) -> tuple[Bytes, Bytes]:
    """Images (n, 3, 32, 32) and labels (n,) of a CIFAR batch: rows of label bytes, the last of which counts, and 3,072
    pixels."""
    row = num_labels + 3 * 32 * 32
    num_rows = max(1, round(len(content) / row))
    _check_size(name, f"rows of {row} bytes, {num_rows} of them", num_rows * row, content)
    rows = np.frombuffer(content, np.uint8).reshape(num_rows, row)
    if num_labels == 2:
        _check_superclasses(rows[:, 0], rows[:, 1], name)
    return rows[:, num_labels:].reshape(num_rows, 3, 32, 32), rows[:, num_labels - 1]


def _check_superclasses(coarse: Bytes, fine: Bytes, name: str) -> None:
    """Every class of CIFAR-100 belongs to one of 20 superclasses."""
    pairs = {(int(of_class), int(label)) for of_class, label in zip(coarse, fine, strict=True)}
    if int(coarse.max()) >= 20 or len(pairs) != len({label for _, label in pairs}):
        must = "every class must belong to one superclass of 0..19"
        got = f"{name} has {len(pairs)} pairs of {len({label for _, label in pairs})} classes"
        raise DataFileError(sentence(must, got, "It is another data set or another kind of file"))


def check_labels(labels: Bytes, num_classes: int, name: str) -> None:
    """Refuse labels outside of 0 .. num_classes - 1."""
    if labels.size and int(labels.max()) >= num_classes:
        raise DataFileError(
            sentence(
                f"labels must be in 0..{num_classes - 1}",
                f"{name} holds the label {int(labels.max())}",
                "It is another data set or another kind of file",
            )
        )


def _check_size(name: str, what: str, expected: int, content: bytes) -> None:
    if len(content) != expected:
        fault = "It was cut short" if len(content) < expected else "Something was appended to it"
        raise DataFileError(
            sentence(
                f"{name} has {what}, so it must be {expected} bytes long",
                f"it is {len(content)}",
                f"{fault}: download the original again",
            )
        )


def labelled_images(source: ImageFiles, split: Split) -> Iterator[tuple[Bytes, Bytes]]:
    """Images (n, channels, height, width) and labels (n,), file by file, each checked before it is given.

    The form is checked before the hash: a wrong form names its cause, a wrong hash does not.
    """
    require_split(split)
    files = source.train if split == "train" else source.test
    groups = [files] if source.format == "idx" else [(file,) for file in files]
    for group in groups:
        contents = [_content(source, file) for file in group]
        if source.format == "idx":
            images, labels = (
                read_idx(contents[0], 3, group[0].stem)[:, None],
                read_idx(contents[1], 1, group[1].stem),
            )
        else:
            num_labels = 2 if source.format == "cifar100" else 1
            images, labels = read_cifar_batch(contents[0], group[0].stem, num_labels)
        num_samples = (source.num_train if split == "train" else source.num_test) // len(groups)
        _check_count(source, group[0], len(images), num_samples)
        _check_count(source, group[-1], len(labels), num_samples)
        _check_shape(source, group[0], images)
        check_labels(labels, source.num_classes, group[-1].stem)
        for file, content in zip(group, contents, strict=True):
            _check_original(source, file, content)
        yield images, labels


def _content(source: ImageFiles, file: DataFile) -> bytes:
    path = found_file(source.folder, file.stem)
    if path is None:
        searched = ", ".join(str(parent / source.folder) for parent in data_folders())
        raise DataFileError(
            sentence(
                f"{source.name} needs the file {file.stem} (plain, .gz or .xz)",
                f"it is in none of {searched}",
                f"{source.source}; put them there, or set {ENVIRONMENT_VARIABLE} to the folder that holds "
                f"{source.folder}",
            )
        )
    return unpacked_bytes(path)


def _check_count(source: ImageFiles, file: DataFile, found: int, expected: int) -> None:
    if found != expected:
        must = f"{file.stem} of {source.name} must contain {expected} samples"
        raise DataFileError(sentence(must, f"it contains {found}", source.source))


def _check_shape(source: ImageFiles, file: DataFile, images: Bytes) -> None:
    if images.shape[1:] != source.image_shape:
        must = f"images of {source.name} must have (channels, height, width) = {source.image_shape}"
        raise DataFileError(sentence(must, f"those of {file.stem} have {images.shape[1:]}", source.source))


def _check_original(source: ImageFiles, file: DataFile, content: bytes) -> None:
    if not file.is_original(content):
        must = f"{file.stem} must be the published file of {source.name}"
        got = f"{found_file(source.folder, file.stem)} has another SHA-256"
        raise DataFileError(sentence(must, got, f"It is another data set or was changed. {source.source}"))


_CHUNK = 4096  # images turned to float64 at a time, so that temporaries stay small beside the result


def digits(
    num_samples: int | None = None,
    *,
    split: Split = "train",
    classes: Iterable[int] | None = None,
    side: int | None = None,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """The 1,797 digits of 8 x 8 pixels of Alpaydin & Kaynak (1998), which come with hessmap.

    Values are k / 16 in [0, 1]. Division by 16 is exact, so that linear relations between pixels stay exact. Three
    pixels are zero in every image: the second moment of the inputs has rank 61.

    Args:
        num_samples: Number of samples. Defaults to all.
        split: "train"; there is no test split.
        classes: Labels to keep, relabelled 0, 1, .. in the order given. Defaults to all.
        side: Side length in pixels to which images are scaled down by area means. Defaults to their own.
        one_hot: Whether targets are one-hot rows in float64 instead of labels. Defaults to False.
        standardise: Whether each pixel gets mean zero and variance one over the chosen samples. Defaults to False.
        seed: Seed of a random choice of samples. Defaults to None: the first ones.

    Returns:
        Data: Inputs (num_samples, side^2) in float64 and labels, or one-hot rows.

    Raises:
        InvalidInput: If there are fewer samples than asked for, no such class, or the test split is asked for.

    Example:
        >>> inputs, targets = digits()
        >>> inputs.shape, targets.unique().tolist()
        (torch.Size([1797, 64]), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
        >>> torch.linalg.matrix_rank(inputs.T @ inputs).item()
        61
    """
    if isinstance(num_samples, str):  # as the other sets take their split
        got, remedy = f"got {num_samples!r}", "Pass the split by name: digits(split='train')"
        raise InvalidInput(sentence("num_samples of the digits must be an integer", got, remedy))
    require_split(split)
    remedy = "Draw samples with a seed, and hold some of them out"
    require(split == "train", "digits have no test part", "got split='test'", remedy)
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt") as file:
        lines = torch.from_numpy(np.loadtxt(file, delimiter=","))
    parts = iter([Data(lines[:, :64].reshape(-1, 1, 8, 8), lines[:, 64].long())])
    chosen, num_classes = _wanted_samples(parts, 10, classes, num_samples, seed)
    return _rows_and_targets(chosen, 16, side, False, num_classes if one_hot else None, standardise)


def mnist(
    split: Split = "train",
    num_samples: int | None = None,
    *,
    classes: Iterable[int] | None = None,
    side: int | None = None,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """MNIST: 60,000 training and 10,000 test images of handwritten digits, 28 x 28 (LeCun et al. 1998).

    Values are k / 255 in [0, 1].

    Args:
        split: "train" or "test". Defaults to "train".
        num_samples: Number of samples. Defaults to all.
        classes: Labels to keep, relabelled 0, 1, .. in the order given. Defaults to all.
        side: Side length in pixels to which images are scaled down by area means. Defaults to their own.
        one_hot: Whether targets are one-hot rows in float64 instead of labels. Defaults to False.
        standardise: Whether each pixel gets mean zero and variance one over the chosen samples. Defaults to False.
        seed: Seed of a random choice of samples. Defaults to None: the first ones.

    Returns:
        Data: Inputs (num_samples, side^2) in float64 and labels, or one-hot rows.

    Raises:
        DataFileError: If the files are in none of ``data_folders()``.
        InvalidInput: If there are fewer samples than asked for, or no such class.
    """
    return image_data(MNIST, split, num_samples, classes, side, False, one_hot, standardise, seed)


def fashion_mnist(
    split: Split = "train",
    num_samples: int | None = None,
    *,
    classes: Iterable[int] | None = None,
    side: int | None = None,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """Fashion-MNIST: 60,000 training and 10,000 test images of clothing, 28 x 28 (Xiao, Rasul & Vollgraf 2017).

    Values are k / 255 in [0, 1].

    Args:
        split: "train" or "test". Defaults to "train".
        num_samples: Number of samples. Defaults to all.
        classes: Labels to keep, relabelled 0, 1, .. in the order given. Defaults to all.
        side: Side length in pixels to which images are scaled down by area means. Defaults to their own.
        one_hot: Whether targets are one-hot rows in float64 instead of labels. Defaults to False.
        standardise: Whether each pixel gets mean zero and variance one over the chosen samples. Defaults to False.
        seed: Seed of a random choice of samples. Defaults to None: the first ones.

    Returns:
        Data: Inputs (num_samples, side^2) in float64 and labels, or one-hot rows.

    Raises:
        DataFileError: If the files are in none of ``data_folders()``.
        InvalidInput: If there are fewer samples than asked for, or no such class.
    """
    return image_data(FASHION_MNIST, split, num_samples, classes, side, False, one_hot, standardise, seed)


def cifar10(
    split: Split = "train",
    num_samples: int | None = None,
    *,
    classes: Iterable[int] | None = None,
    side: int | None = None,
    grayscale: bool = True,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """CIFAR-10: 50,000 training and 10,000 test images of ten classes, 32 x 32 (Krizhevsky 2009).

    Args:
        split: "train" or "test". Defaults to "train".
        num_samples: Number of samples. Defaults to all.
        classes: Labels to keep, relabelled 0, 1, .. in the order given. Defaults to all.
        side: Side length in pixels to which images are scaled down by area means. Defaults to their own.
        grayscale: Whether colours become luminance; otherwise an image has its red, green and blue channels one
            after the other. Defaults to True.
        one_hot: Whether targets are one-hot rows in float64 instead of labels. Defaults to False.
        standardise: Whether each pixel gets mean zero and variance one over the chosen samples. Defaults to False.
        seed: Seed of a random choice of samples. Defaults to None: the first ones.

    Returns:
        Data: Inputs (num_samples, side^2), in colour (num_samples, 3 side^2), in [0, 1], and labels, or one-hot rows.

    Raises:
        DataFileError: If the files are in none of ``data_folders()``.
        InvalidInput: If there are fewer samples than asked for, or no such class.
    """
    return image_data(CIFAR10, split, num_samples, classes, side, grayscale, one_hot, standardise, seed)


def cifar100(
    split: Split = "train",
    num_samples: int | None = None,
    *,
    classes: Iterable[int] | None = None,
    side: int | None = None,
    grayscale: bool = True,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """CIFAR-100: 50,000 training and 10,000 test images of a hundred classes, 32 x 32 (Krizhevsky 2009).

    Args:
        split: "train" or "test". Defaults to "train".
        num_samples: Number of samples. Defaults to all.
        classes: Labels to keep, relabelled 0, 1, .. in the order given. Defaults to all.
        side: Side length in pixels to which images are scaled down by area means. Defaults to their own.
        grayscale: Whether colours become luminance; otherwise an image has its red, green and blue channels one
            after the other. Defaults to True.
        one_hot: Whether targets are one-hot rows in float64 instead of labels. Defaults to False.
        standardise: Whether each pixel gets mean zero and variance one over the chosen samples. Defaults to False.
        seed: Seed of a random choice of samples. Defaults to None: the first ones.

    Returns:
        Data: Inputs (num_samples, side^2), in colour (num_samples, 3 side^2), in [0, 1], and labels, or one-hot rows.

    Raises:
        DataFileError: If the files are in none of ``data_folders()``.
        InvalidInput: If there are fewer samples than asked for, or no such class.

    Notes:
        Labels are those of the hundred classes, not of the twenty superclasses. No hash of the published files is
        known here: sizes, counts, labels and superclasses are checked instead.
    """
    return image_data(CIFAR100, split, num_samples, classes, side, grayscale, one_hot, standardise, seed)


def image_data(
    source: ImageFiles,
    split: Split = "train",
    num_samples: int | None = None,
    classes: Iterable[int] | None = None,
    side: int | None = None,
    grayscale: bool = False,
    one_hot: bool = False,
    standardise: bool = False,
    seed: int | None = None,
) -> Data:
    """The training or test part of a data set of files, with the options of the module; values k/255."""
    require_split(split)
    require(
        split == "train" or not standardise,
        "test data must be standardised with the statistics of the training data",
        "got split='test', standardise=True",
        "Use standardise(test_inputs, reference=training_inputs)",
    )
    parts = (
        Data(torch.tensor(images), torch.tensor(labels).long()) for images, labels in labelled_images(source, split)
    )
    chosen, num_classes = _wanted_samples(parts, source.num_classes, classes, num_samples, seed)
    return _rows_and_targets(chosen, 255, side, grayscale, num_classes if one_hot else None, standardise)


def _wanted_samples(
    parts: Iterator[Data],
    num_classes: int,
    classes: Iterable[int] | None,
    num_samples: int | None,
    seed: int | None,
) -> tuple[Data, int]:
    """The wanted samples as they come, and how many classes they have; reads no more parts than needed."""
    given = list(range(num_classes)) if classes is None else list_of("classes", classes)
    labels = [integer_or_none(label) for label in given]
    wanted = [label for label in labels if label is not None and 0 <= label < num_classes]
    require(len(wanted) == len(given), f"classes must be among 0..{num_classes - 1}", f"got {short_text(given)}")
    num_samples = None if num_samples is None else checked_count("num_samples", num_samples)
    seed = None if seed is None else checked_seed(seed)
    gathered: list[Data] = []
    num_found = 0
    for part in parts:
        gathered.append(part)
        num_found += int(torch.isin(part.targets, torch.tensor(wanted)).sum())
        if seed is None and num_samples is not None and num_found >= num_samples:
            break
    whole = Data(torch.cat([part.inputs for part in gathered]), torch.cat([part.targets for part in gathered]))
    if classes is not None:
        whole = preprocessing.class_subset(whole, wanted)
    return preprocessing.subsample(whole, num_samples, seed), len(wanted)


def _rows_and_targets(
    chosen: Data, white: int, side: int | None, grayscale: bool, num_classes: int | None, standardise: bool
) -> Data:
    """Float64 rows from images with ``white`` as brightest value; one-hot targets if num_classes is given."""
    rows = []
    for images in torch.split(chosen.inputs, _CHUNK):
        values: Tensor = preprocessing.grayscale(images) if grayscale else images.double()
        values = values if side is None else preprocessing.downscale(values, side)
        rows.append(values.flatten(1) / white)
    inputs = torch.cat(rows)
    targets = chosen.targets if num_classes is None else preprocessing.one_hot(chosen.targets, num_classes)
    return Data(preprocessing.standardise(inputs) if standardise else inputs, targets)
