"""Symmetric matrices with a known spectrum: every numerical routine must pass all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.linalg.operator import SymmetricOperator

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class KnownMatrix:
    """A random rotation of a diagonal; the non-zero entries of ``eigenvalues`` are its rank."""

    name: str
    eigenvalues: Floats
    rank: int

    @property
    def matrix(self) -> Floats:
        return rotated(self.eigenvalues, seed=len(self.name))

    @property
    def norm(self) -> float:
        return float(np.abs(self.eigenvalues).max(initial=0.0))

    @property
    def rounding(self) -> float:
        """How far rounding in the construction and in a backward stable method may move an eigenvalue."""
        return 4 * len(self.eigenvalues) * float(np.finfo(float).eps) * self.norm


def random_orthogonal(size: int, seed: int) -> Floats:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((size, size)))[0]


def known(name: str, *values: float, zeros: int = 0) -> KnownMatrix:
    descending = np.sort(np.array([*values, *[0.0] * zeros]))[::-1].copy()
    return KnownMatrix(name, descending, len(values))


KNOWN_MATRICES = [
    known("full rank", 5.0, 4.0, 3.0, 2.0, 1.0),
    known("rank 3 of 40", 7.0, 2.0, 0.5, zeros=37),
    known("clustered", *(1 + 1e-9 * np.arange(6)), *(3 + 1e-9 * np.arange(6)), zeros=8),
    known("repeated", 2.0, 2.0, 2.0, 2.0, -1.0, -1.0, zeros=5),
    known("zero", zeros=6),
    known("indefinite", 4.0, 1.0, -1.0, -6.0, zeros=3),
    known("negative definite", -1.0, -2.0, -3.0),
    known("graded to 2e-9", *(1.5 * 10.0 ** -np.arange(9)), zeros=20),
    known("spread bulk", *np.linspace(-2, 30, 120)[np.abs(np.linspace(-2, 30, 120)) > 0.1], zeros=80),
    known("scaled by 1e-14", 5e-14, 2e-14, -1e-14, zeros=4),
    known("scaled by 1e14", 5e14, 2e14, -1e14, zeros=4),
    known("scaled by 1e-150", 5e-150, 2e-150, -1e-150, zeros=4),
    known("scaled by 1e150", 5e150, 2e150, -1e150, zeros=4),
    known("size 1", 3.0),
    known("size 1 negative", -3.0),
    known("size 1 zero", zeros=1),
    known("size 0"),
]
NAMES = [case.name for case in KNOWN_MATRICES]


class Counted(SymmetricOperator):
    """A matrix that counts the vectors it was multiplied with."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix, self.count = torch.from_numpy(matrix), 0

    @property
    def size(self) -> int:
        return len(self.matrix)

    def matmat(self, vectors: Tensor) -> Tensor:
        self.count += vectors.shape[1]
        return self.matrix @ vectors


def rotated(eigenvalues: Floats, seed: int = 1) -> Floats:
    rotation = random_orthogonal(len(eigenvalues), seed)
    matrix = (rotation * eigenvalues) @ rotation.T
    return (matrix + matrix.T) / 2
