"""How much of added noise an autoencoder takes away."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor, nn

from hessmap.errors import require
from hessmap.functions import NetworkFunction
from hessmap.records import DenoisingScore


def denoising_score(
    model: nn.Module,
    data: Tensor | NDArray[Any],
    *,
    noise: float = 0.2,
    num_points: int = 2000,
    seed: int = 0,
) -> DenoisingScore:
    """dist(f(x + e), data) / dist(x + e, data), e Gaussian of standard deviation ``noise``, x drawn from the data.

    ``data`` should cover what the autoencoder was trained on densely (a curve by thousands of points): the distance is
    that to the nearest of its points. Reference: Jacot 2023, section 5 (Figure 3) asserts that rank-recovering
    autoencoders denoise; the score is ours.

    >>> denoising_score(nn.Identity(), np.random.default_rng(0).normal(size=(50, 2)), num_points=10).mean
    1.0
    """
    require(noise > 0, "noise must be positive", f"got {noise}")
    require(num_points >= 2, "num_points must be at least 2", f"got {num_points}")
    function = NetworkFunction(model, data)
    must = "an autoencoder must give as many outputs as it has inputs"
    sizes = f"it has {function.input_dim} inputs and {function.output_dim} outputs"
    require(function.inputs.ndim == 2 and function.input_dim == function.output_dim, must, sizes)
    generator = np.random.default_rng(seed)
    points = function.inputs.numpy()
    chosen = points[generator.integers(len(points), size=num_points)]
    noisy = chosen + noise * generator.normal(size=chosen.shape)
    cleaned = function.outputs(torch.from_numpy(noisy)).numpy()
    tree = cKDTree(points)
    before, after = tree.query(noisy)[0], tree.query(cleaned)[0]
    scores = np.divide(after, before, out=np.ones_like(after), where=before > 0)
    error = float(scores.std(ddof=1) / num_points**0.5)
    return DenoisingScore(float(scores.mean()), float(np.median(scores)), error, noise, num_points, seed, scores)
