"""Points at which a function is not differentiable, and points beside them at which it is.

At a kink (a ReLU at 0, a maximum that is attained twice, the ends of a hard tanh) torch returns a derivative that need
be none of the function: relu(x) - relu(-x) is the identity, and torch's derivative at 0 is 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.functions.network_function import NetworkFunction

# How far a point is moved, of its largest entry: far above rounding, far below what changes a smooth function.
_STEP = 2.0**-26
# Gradients that differ by more than this of the larger one, at so small a distance, lie on two sides of a kink.
_JUMP = 1e-4
_AT_ONCE = 2**11  # samples


def points_beside(points: Tensor, seed: int, step: float = _STEP) -> Tensor:
    """The points, each moved in a random direction by about ``step`` times its largest entry.

    >>> points = torch.tensor([[4.0, 0.0]], dtype=torch.float64)
    >>> (points_beside(points, seed=0) - points).abs().max().item() < 1e-6
    True
    """
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(points.shape, generator=generator, dtype=torch.float64)
    sizes = points.flatten(1).abs().amax(dim=1)
    whole = float(sizes.max()) or 1.0
    sizes = torch.where(sizes > 0, sizes, whole).reshape(-1, *[1] * (points.ndim - 1))
    return points + step * sizes * directions


def is_on_kink(function: NetworkFunction, seed: int = 0) -> Tensor:
    """Which points sit on a kink: the gradient of a random combination of outputs jumps there.

    It is compared with the gradients a little to both sides along a random direction, and a jump must not shrink with
    the distance, as the change of a smooth function does. A kink that does not change the function on either side (a
    unit of zero weights, which sits at 0 wherever it is asked) is none.
    """
    found = torch.zeros(function.num_samples, dtype=torch.bool)
    for start in range(0, function.num_samples, _AT_ONCE):
        points = function.inputs[start : start + _AT_ONCE]
        jumps, size = _jumps(function, points, seed, _STEP)
        in_doubt = torch.nonzero(jumps > _JUMP * size).squeeze(1)
        if len(in_doubt):
            nearer, _ = _jumps(function, points, seed, _STEP / 16)
            found[start + in_doubt] = nearer[in_doubt] > 0.5 * jumps[in_doubt]
    return found


def function_off_kinks(function: NetworkFunction, seed: int = 0) -> tuple[NetworkFunction, int]:
    """Move points that are on a kink of a function beside it, and keep all others.

    Args:
        function: The network and its points.
        seed: Seed of the directions. Defaults to 0.

    Returns:
        The function at the new points, and the number of points that were moved.
    """
    found = is_on_kink(function, seed)
    if not found.any():
        return function, 0
    points = function.inputs.clone()
    points[found] = points_beside(function.inputs, seed)[found]
    return function.at(points), int(found.sum())


def _jumps(function: NetworkFunction, points: Tensor, seed: int, step: float) -> tuple[Tensor, Tensor]:
    """By how much the gradient at each point differs from that beside it, on the worse side, and its size there."""
    generator = torch.Generator().manual_seed(seed + 1)
    mixture = torch.randn(len(points), function.output_dim, generator=generator, dtype=torch.float64)
    ahead = points_beside(points, seed, step)
    here, one, other = (function.vjp(values, mixture) for values in (points, ahead, 2 * points - ahead))
    jumps = torch.maximum((here - one).norm(dim=1), (here - other).norm(dim=1))
    return jumps, torch.stack([part.norm(dim=1) for part in (here, one, other)]).amax(dim=0)
