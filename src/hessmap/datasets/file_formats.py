"""The two binary formats: IDX (MNIST and its kin) and CIFAR batches, checked byte for byte."""

from __future__ import annotations

import struct
from math import prod

import numpy as np
from numpy.typing import NDArray

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
