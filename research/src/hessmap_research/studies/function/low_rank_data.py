"""Inputs of many coordinates with targets that depend on a few of them."""

from __future__ import annotations

from math import exp, pi, sqrt
from typing import TYPE_CHECKING, Any, Literal

from hessmap.errors import require, unknown_name

if TYPE_CHECKING:
    from torch import Tensor

    from hessmap.datasets import Data

Law = Literal["uniform", "gaussian", "truncated"]
Target = Literal["relu", "homogeneous", "linear"]
DEVIATION = 0.3  # of a coordinate that is uniform on [-0.52, 0.52]
NUM_COORDINATES = 15
_CUT = 1.5  # of a truncated Gaussian, in deviations of the whole one


def low_rank_data(
    true_rank: int,
    *,
    law: Law = "uniform",
    deviation: float = DEVIATION,
    target: Target = "relu",
    num_samples: int = 300,
    constant: float = 0.0,
    seed: int = 0,
) -> Data:
    """Inputs of 15 independent coordinates and 15 targets, functions of the first ``true_rank`` coordinates.

    A coordinate has mean 0 and the given standard deviation under every law. The targets are those of a random network
    of 100 ReLU units with Gaussian biases, which sees the coordinates in units of 0.3, each brought to mean 0 and
    variance 1 over the samples ("relu"); or of one without biases ("homogeneous") or of a random matrix ("linear"),
    divided by one number so that they have variance 1 together. Scaling the inputs leaves the targets as they are.
    A ``constant`` that is not 0 takes the place of the last coordinate.
    """
    import torch

    from hessmap.datasets import Data

    require(1 <= true_rank < NUM_COORDINATES, "true_rank must be between 1 and 14", f"got {true_rank}")
    generator = torch.Generator().manual_seed(seed)
    units = _unit_coordinates(law, num_samples, generator)
    values = _targets(units[:, :true_rank], target, generator)
    inputs = deviation * units
    if constant:
        inputs[:, -1] = constant
    return Data(inputs, values)


def _targets(units: Tensor, target: Target, generator: Any) -> Tensor:
    import torch

    true_rank = units.shape[1]
    draw: dict[str, Any] = {"generator": generator, "dtype": torch.float64}
    if target == "relu":
        first, bias = torch.randn(true_rank, 100, **draw), torch.randn(100, **draw)
        hidden: Tensor = (DEVIATION * units @ first * (2 / true_rank) ** 0.5 + bias / true_rank**0.5).relu()
        values = hidden @ torch.randn(100, NUM_COORDINATES, **draw)
        return (values - values.mean(0)) / values.std(0, correction=0)
    if target == "homogeneous":
        units = (units @ torch.randn(true_rank, 100, **draw)).relu()
    elif target != "linear":
        raise unknown_name("target", target, ("relu", "homogeneous", "linear"))
    values = units @ torch.randn(units.shape[1], NUM_COORDINATES, **draw)
    return values / values.std()


def _unit_coordinates(law: Law, num_samples: int, generator: Any) -> Tensor:
    """Coordinates of mean 0 and variance 1, each a growing function of the same uniform numbers under every law."""
    import torch

    uniform = torch.rand(num_samples, NUM_COORDINATES, generator=generator, dtype=torch.float64)
    if law == "uniform":
        return (2 * uniform - 1) * 3**0.5
    if law == "gaussian":
        whole: Tensor = torch.special.ndtri(uniform)
        return whole
    if law == "truncated":
        chance = float(torch.special.ndtr(torch.tensor(_CUT, dtype=torch.float64)))
        density = exp(-(_CUT**2) / 2) / sqrt(2 * pi)
        variance = 1 - 2 * _CUT * density / (2 * chance - 1)
        cut: Tensor = torch.special.ndtri(1 - chance + (2 * chance - 1) * uniform)
        return cut / sqrt(variance)
    raise unknown_name("law", law, ("uniform", "gaussian", "truncated"))
