"""Synthetic data drawn from stated laws, or of an exact rank; every number comes from the seed.

A product of float matrices is rounded, and the rounded matrix has full rank over the rationals. The factors of
``dyadic`` are integers of a few bits over a power of two, so that every product and partial sum is exact.
"""

from __future__ import annotations

from math import log2, sqrt

import torch
from flint import nmod_mat
from torch import Tensor

from hessmap.datasets.preprocessing import Data
from hessmap.errors import InvalidInput, checked_count, checked_number, checked_seed, require, sentence


def gaussian(num_samples: int, dim: int, output_dim: int = 1, seed: int = 0) -> Data:
    """Independent N(0, 1) inputs and targets.

    Targets that are independent of the inputs leave generic residuals, which rank formulas assume.

    Args:
        num_samples: Number of samples.
        dim: Number of inputs.
        output_dim: Number of targets per sample. Defaults to 1.
        seed: Seed of the random numbers. Defaults to 0.

    Returns:
        Data: Inputs (num_samples, dim) and targets (num_samples, output_dim).

    Example:
        >>> inputs, targets = gaussian(5, 3, output_dim=2)
        >>> inputs.shape, targets.shape
        (torch.Size([5, 3]), torch.Size([5, 2]))
    """
    num_samples, dim, output_dim = _counts(num_samples=num_samples, dim=dim, output_dim=output_dim)
    generator = _generator(seed)
    inputs = torch.randn(num_samples, dim, dtype=torch.float64, generator=generator)
    return Data(inputs, torch.randn(num_samples, output_dim, dtype=torch.float64, generator=generator))


def gaussian_mixture(num_samples: int, dim: int, num_classes: int, separation: float = 3.0, seed: int = 0) -> Data:
    """Classes N(mean_c, identity), with mean_c uniform on a sphere.

    Sample i belongs to class i mod num_classes, so that class sizes differ by at most one.

    Args:
        num_samples: Number of samples.
        dim: Number of inputs.
        num_classes: Number of classes.
        separation: Radius of the sphere of the means. Defaults to 3.
        seed: Seed of the random numbers. Defaults to 0.

    Returns:
        Data: Inputs (num_samples, dim) and labels.

    Example:
        >>> gaussian_mixture(5, 2, num_classes=2).targets
        tensor([0, 1, 0, 1, 0])
    """
    num_samples, dim, num_classes = _counts(num_samples=num_samples, dim=dim, num_classes=num_classes)
    separation = _not_negative("separation", separation)
    generator = _generator(seed)
    directions = torch.randn(num_classes, dim, dtype=torch.float64, generator=generator)
    means = separation * directions / directions.norm(dim=1, keepdim=True)
    labels = torch.arange(num_samples) % num_classes
    noise = torch.randn(num_samples, dim, dtype=torch.float64, generator=generator)
    return Data(means[labels] + noise, labels)


def linear_teacher(
    num_samples: int,
    dim: int,
    output_dim: int,
    rank: int | None = None,
    noise: float = 0.0,
    seed: int = 0,
) -> Data:
    """N(0, 1) inputs with targets of a linear teacher of given rank, teacher @ input + noise * N(0, 1).

    The teacher is a product (output_dim, rank) (rank, dim) of N(0, 1) matrices over sqrt(rank * dim), so that
    targets without noise have variance 1 on average over teachers.

    Args:
        num_samples: Number of samples.
        dim: Number of inputs.
        output_dim: Number of targets per sample.
        rank: Rank of the teacher. Defaults to full rank.
        noise: Standard deviation of the noise. Defaults to 0.
        seed: Seed of the random numbers. Defaults to 0.

    Returns:
        Data: Inputs (num_samples, dim) and targets (num_samples, output_dim).

    Example:
        >>> inputs, targets = linear_teacher(50, 6, 4, rank=2)
        >>> torch.linalg.matrix_rank(targets).item()
        2
    """
    num_samples, dim, output_dim = _counts(num_samples=num_samples, dim=dim, output_dim=output_dim)
    full = min(dim, output_dim)
    inner = full if rank is None else checked_count("rank", rank, at_least=None)
    require(1 <= inner <= full, f"rank of the teacher must be in 1..{full}", f"got {rank}")
    noise = _not_negative("noise", noise)
    generator = _generator(seed)
    left = torch.randn(output_dim, inner, dtype=torch.float64, generator=generator)
    right = torch.randn(inner, dim, dtype=torch.float64, generator=generator)
    inputs = torch.randn(num_samples, dim, dtype=torch.float64, generator=generator)
    disturbance = torch.randn(num_samples, output_dim, dtype=torch.float64, generator=generator)
    targets = inputs @ right.T @ left.T / sqrt(inner * dim) + noise * disturbance
    return Data(inputs, targets)


def _counts(**given: object) -> list[int]:
    """Sizes as plain integers of at least 1."""
    counts = {name: checked_count(name, count, at_least=None) for name, count in given.items()}
    for name, count in counts.items():
        require(count >= 1, f"{name} must be at least 1", f"got {count}")
    return list(counts.values())


def _not_negative(name: str, given: object) -> float:
    value = checked_number(name, given)
    require(0 <= value < float("inf"), f"{name} must not be negative, and finite", f"got {value}")
    return value


def _generator(seed: object) -> torch.Generator:
    return torch.Generator().manual_seed(checked_seed(seed))


_PRIME = 2**61 - 1
_ATTEMPTS = 20


def dyadic(
    num_samples: int,
    dim: int,
    rank: int | None = None,
    seed: int = 0,
    *,
    output_dim: int = 1,
    bits: int = 3,
    is_centred: bool = False,
) -> Data:
    """Inputs of exactly the given rank over the rationals, and generic dyadic targets.

    inputs = left @ right with factors (num_samples, rank) and (rank, dim) whose entries are uniform integers in
    -2^bits .. 2^bits, times a power of two that brings the entries near 1. Both factors are redrawn until their
    rank modulo a prime is full, which proves it full over the rationals.

    Args:
        num_samples: Number of samples.
        dim: Number of inputs.
        rank: Rank of the matrix of inputs. Defaults to full rank.
        seed: Seed of the random numbers. Defaults to 0.
        output_dim: Number of targets per sample. Defaults to 1.
        bits: Bits of the factors' entries. Defaults to 3.
        is_centred: Whether every input sums to exactly zero over the samples, so that the rank is also the centred
            rank. Defaults to False.

    Returns:
        Data: Inputs (num_samples, dim) and targets (num_samples, output_dim).

    Raises:
        InvalidInput: If no matrix of these sizes has the rank.

    Example:
        >>> dyadic(3, 2, rank=1).inputs.tolist()
        [[-0.5, 0.375], [-2.5, 1.875], [2.0, -1.5]]
        >>> dyadic(6, 4, is_centred=True).inputs.sum(dim=0).tolist()
        [0.0, 0.0, 0.0, 0.0]
    """
    given = {"num_samples": num_samples, "dim": dim, "output_dim": output_dim, "bits": bits}
    num_samples, dim, output_dim, bits = (checked_count(name, size, at_least=None) for name, size in given.items())
    require(min(num_samples, dim, output_dim) >= 1, "all sizes must be at least 1", f"got {(num_samples, dim)}")
    largest = min(num_samples - is_centred, dim)
    inner = largest if rank is None else checked_count("rank", rank, at_least=None)
    centred = " centred" if is_centred else ""
    require(
        1 <= inner <= largest,
        f"the rank of {num_samples}{centred} samples in dimension {dim} must be in 1..{largest}",
        f"got {inner}",
    )
    # Centring moves an entry by at most 2^bits + 1, so that 2^(bits + 1) + 1 bounds the left factor.
    fits = inner * (2 ** (bits + 1) + 1) * 2**bits < 2**53
    require(bits >= 1 and fits, f"bits must be at least 1 and leave sums of {inner} products exact", f"got {bits}")
    generator = _generator(seed)
    left = _full_rank(num_samples, inner, bits, is_centred, generator)
    right = _full_rank(inner, dim, bits, False, generator)
    # An entry of either factor has variance close to 4^bits / 3.
    scale = 2.0 ** -round(log2(inner**0.5 * 4**bits / 3))
    targets = _integers((num_samples, output_dim), bits, generator) / 2**bits
    return Data(left @ right * scale, targets)


def _full_rank(num_rows: int, num_columns: int, bits: int, is_centred: bool, generator: torch.Generator) -> Tensor:
    """Random integers of full rank; with ``is_centred`` every column sums to zero."""
    for _ in range(_ATTEMPTS):
        matrix = _integers((num_rows, num_columns), bits, generator)
        if is_centred:
            matrix = _centred_columns(matrix, generator)
        if _rank_modulo_prime(matrix) == min(num_rows - is_centred, num_columns):
            return matrix
    raise InvalidInput(
        sentence(
            f"{_ATTEMPTS} draws of a {num_rows}x{num_columns} matrix must contain one of full rank",
            f"none had with bits={bits}",
            "Use more bits",
        )
    )


def _rank_modulo_prime(matrix: Tensor) -> int:
    """The rank of a matrix of integers modulo a prime: never above its rank over the rationals."""
    rows = [[int(value) % _PRIME for value in row] for row in matrix.tolist()]
    return int(nmod_mat(rows, _PRIME).rank())


def _integers(shape: tuple[int, int], bits: int, generator: torch.Generator) -> Tensor:
    return torch.randint(-(2**bits), 2**bits + 1, shape, generator=generator).double()


def _centred_columns(matrix: Tensor, generator: torch.Generator) -> Tensor:
    """Take each column's sum away from it in near-equal integers, the odd ones from rows chosen at random."""
    num_rows = len(matrix)
    shares, odd = matrix.sum(dim=0) // num_rows, matrix.sum(dim=0) % num_rows
    places = torch.rand(matrix.shape, generator=generator).argsort(dim=0).argsort(dim=0)
    return matrix - shares - (places < odd).double()
