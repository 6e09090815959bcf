"""Synthetic data drawn from stated laws; every number comes from the seed."""

from __future__ import annotations

from math import sqrt

import torch

from hessmap.datasets.data import Data
from hessmap.errors import require


def gaussian(num_samples: int, dim: int, output_dim: int = 1, seed: int = 0) -> Data:
    """Inputs (num_samples, dim) and targets (num_samples, output_dim), all entries independent N(0, 1).

    Targets that know nothing of the inputs leave generic residuals, which rank formulas assume.

    >>> inputs, targets = gaussian(5, 3, output_dim=2)
    >>> inputs.shape, targets.shape
    (torch.Size([5, 3]), torch.Size([5, 2]))
    """
    _check_counts(num_samples=num_samples, dim=dim, output_dim=output_dim)
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_samples, dim, dtype=torch.float64, generator=generator)
    return Data(inputs, torch.randn(num_samples, output_dim, dtype=torch.float64, generator=generator))


def gaussian_mixture(num_samples: int, dim: int, num_classes: int, separation: float = 3.0, seed: int = 0) -> Data:
    """Each class c is N(mean_c, identity), with mean_c uniform on the sphere of radius ``separation``.

    Sample i belongs to class i mod num_classes, so that the classes are balanced to one sample.

    >>> gaussian_mixture(5, 2, num_classes=2).targets
    tensor([0, 1, 0, 1, 0])
    """
    _check_counts(num_samples=num_samples, dim=dim, num_classes=num_classes)
    require(separation >= 0, "separation must not be negative", f"got {separation}")
    generator = torch.Generator().manual_seed(seed)
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
    """Inputs N(0, 1); targets = teacher @ input + noise * N(0, 1), with a teacher of the given rank.

    The teacher is a product (output_dim, rank) (rank, dim) of N(0, 1) matrices over sqrt(rank * dim), so that
    targets without noise have variance 1 on average over teachers. By default the rank is full.

    >>> inputs, targets = linear_teacher(50, 6, 4, rank=2)
    >>> torch.linalg.matrix_rank(targets).item()
    2
    """
    full = min(dim, output_dim)
    inner = full if rank is None else rank
    _check_counts(num_samples=num_samples, dim=dim, output_dim=output_dim)
    require(1 <= inner <= full, f"rank of the teacher must lie in 1..{full}", f"got {rank}")
    require(noise >= 0, "noise must not be negative", f"got {noise}")
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(output_dim, inner, dtype=torch.float64, generator=generator)
    right = torch.randn(inner, dim, dtype=torch.float64, generator=generator)
    inputs = torch.randn(num_samples, dim, dtype=torch.float64, generator=generator)
    disturbance = torch.randn(num_samples, output_dim, dtype=torch.float64, generator=generator)
    targets = inputs @ right.T @ left.T / sqrt(inner * dim) + noise * disturbance
    return Data(inputs, targets)


def _check_counts(**counts: int) -> None:
    for name, count in counts.items():
        require(count >= 1, f"{name} must be at least 1", f"got {count}")
