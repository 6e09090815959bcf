"""The distribution function of simulated linear spectra with ||W2||^2 integrated out, and its distance from laws."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_NUM_BINS = 2500
_NUM_POINTS = 801
_NUM_BATCHES = 10


def random_weights(distribution: str, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
    """Independent entries of mean 0 and variance 1.

    ``distribution`` is "normal", "uniform", "laplace", "two-point" (plus or minus one) or "student" (10 degrees).
    """
    match distribution:
        case "normal":
            return generator.normal(size=shape)
        case "uniform":
            return generator.uniform(-np.sqrt(3), np.sqrt(3), size=shape)
        case "laplace":
            return generator.laplace(scale=np.sqrt(0.5), size=shape)
        case "two-point":
            return generator.choice([-1.0, 1.0], size=shape)
        case "student":
            return np.asarray(generator.standard_t(10, size=shape) / np.sqrt(1.25))
    raise ValueError(distribution)


def squared_singular_values(inputs: int, hidden: int, num_teachers: int, seed: int, distribution: str) -> Floats:
    """Eigenvalues of W1^T W1, (num_teachers, inputs), zeros included; entries of variance 1 / inputs."""
    generator = np.random.default_rng(seed)
    small = min(inputs, hidden)
    values = np.zeros((num_teachers, inputs))
    for start in range(0, num_teachers, 2000):
        count = min(2000, num_teachers - start)
        weights = random_weights(distribution, (count, hidden, inputs), generator) / np.sqrt(inputs)
        gram = weights @ weights.mT if hidden <= inputs else weights.mT @ weights
        values[start : start + count, :small] = np.maximum(np.linalg.eigvalsh(gram), 0.0)
    return values


def distances(law: Any, printed: Any, squares: Floats) -> dict[str, float]:
    """Kolmogorov-Smirnov distances of simulated spectra from two laws, ||W2||^2 averaged over its own law.

    Non-zero eigenvalues are counted in fine bins, whose middles stand for them; zeros are as many for every teacher.
    ``standard_error`` is that of the simulated distribution function where it is farthest from ``law``, by batches of
    teachers: eigenvalues of one teacher are not independent.
    """
    points = grid_of(law)
    edges = np.linspace(0.0, squares.max(), _NUM_BINS + 1)
    below = law.output_norm_cdf(points[:, None] - (edges[1:] + edges[:-1]) / 2)
    parts = np.array_split(squares, _NUM_BATCHES)
    zero, at_zero = float((squares[0] == 0).mean()), law.output_norm_cdf(points)
    counts = np.stack([np.histogram(part[part > 0], bins=edges)[0] / (part > 0).sum() for part in parts])
    batches = zero * at_zero + (1 - zero) * counts @ below.T
    mean = batches.mean(0)
    gap = np.abs(mean - law.cdf(points))
    worst = int(gap.argmax())
    error = batches[:, worst].std(ddof=1) / np.sqrt(_NUM_BATCHES)
    away = np.abs(mean - printed.cdf(points)).max()
    return {"corrected": float(gap.max()), "printed": float(away), "standard_error": float(error)}


def grid_of(law: Any) -> Floats:
    """Points at which distribution functions are compared: from zero to eight deviations above the mean."""
    return np.linspace(0.0, law.mean + 8 * np.sqrt(law.variance), _NUM_POINTS)[1:]
