"""From the files of a data set to checked arrays: the two binary formats, IDX (MNIST and its kin) and CIFAR batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

from hessmap.datasets.catalogue import (
    ENVIRONMENT_VARIABLE,
    DataFile,
    ImageFiles,
    Split,
    data_folders,
    found_file,
    require_split,
    unpacked_bytes,
)
from hessmap.errors import DataFileError, sentence

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
                "It is another kind of file: fetch the original again",
            )
        )
    start = 4 + 4 * num_dimensions
    if len(content) < start:
        raise DataFileError(sentence(f"{name} must have a header of {start} bytes", f"it holds {len(content)} bytes"))
    shape = struct.unpack(f">{num_dimensions}I", content[4:start])
    _check_size(name, f"a header that promises {'x'.join(map(str, shape))} values", start + prod(shape), content)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_cifar_batch(content: bytes, name: str) -> tuple[Bytes, Bytes]:
    """Images (n, 3, 32, 32) and labels (n,) of a CIFAR-10 batch: rows of one label byte and 3,072 pixels."""
    row = 1 + 3 * 32 * 32
    num_rows = max(1, round(len(content) / row))
    _check_size(name, f"rows of {row} bytes, {num_rows} of them", num_rows * row, content)
    rows = np.frombuffer(content, np.uint8).reshape(num_rows, row)
    return rows[:, 1:].reshape(num_rows, 3, 32, 32), rows[:, 0]


def check_labels(labels: Bytes, num_classes: int, name: str) -> None:
    """Refuse labels outside of 0 .. num_classes - 1."""
    if labels.size and int(labels.max()) >= num_classes:
        raise DataFileError(
            sentence(
                f"labels must lie in 0..{num_classes - 1}",
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
                f"{fault}: fetch the original again",
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
            images, labels = read_cifar_batch(contents[0], group[0].stem)
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
        must = f"{file.stem} of {source.name} must hold {expected} samples"
        raise DataFileError(sentence(must, f"it holds {found}", source.source))


def _check_shape(source: ImageFiles, file: DataFile, images: Bytes) -> None:
    if images.shape[1:] != source.image_shape:
        must = f"images of {source.name} must have (channels, height, width) = {source.image_shape}"
        raise DataFileError(sentence(must, f"those of {file.stem} have {images.shape[1:]}", source.source))


def _check_original(source: ImageFiles, file: DataFile, content: bytes) -> None:
    if not file.is_original(content):
        must = f"{file.stem} must be the published file of {source.name}"
        got = f"{found_file(source.folder, file.stem)} has another SHA-256"
        raise DataFileError(sentence(must, got, f"It is another data set or was changed. {source.source}"))
