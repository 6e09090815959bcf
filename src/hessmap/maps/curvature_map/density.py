"""The density of a map from Gauss rules: the bulk as far as the steps resolve it, outliers apart from it."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, stdtrit

from hessmap.measurement import Floats, form_errors
from hessmap.records import DENSITY_WIDTH, DensityCurve, DensityEstimate, SymmetricLogScale, smoothed_kernels

_FEW = 10.0  # eigenvalues: a random probe gives one of them more than ten times its share once in 600 times


def resolved_density(found: DensityEstimate) -> DensityCurve:
    """The mean of the rules of all probes on a symmetric logarithmic scale, with its band over the probes; the density
    of the eigenvalues where all of them are known.

    On that scale an outlier has the same width wherever it is. A node whose weight is that of a few eigenvalues is
    drawn as one; a node with more weight stands for eigenvalues anywhere between its neighbours, which the steps did
    not tell apart (Chebyshev, Markov & Stieltjes), and its weight is spread evenly between the middles to these.

    >>> from hessmap.measurement import density_estimate
    >>> estimate = density_estimate(np.diag([100.0, 1.0, 1.0, 0.5]), num_probes=4, method="quadrature")
    >>> curve = resolved_density(estimate)
    >>> round(float(np.trapezoid(curve.density, curve.grid)), 2)
    1.0
    """
    if found.method == "exact":
        return DensityCurve.of_eigenvalues(found.nodes[0])
    used = [weights > 0 for weights in found.weights]
    rules = [
        (nodes[kept], weights[kept]) for nodes, weights, kept in zip(found.nodes, found.weights, used, strict=True)
    ]
    everywhere = np.concatenate([nodes for nodes, _ in rules])
    scale = SymmetricLogScale.of(everywhere, float(np.median([_resolution(*rule) for rule in rules])))
    grid = scale.grid(everywhere)
    kernels = [_kernels(grid, scale.places(nodes), weights, found.size) for nodes, weights in rules]
    curves = np.stack([kernel @ weights for kernel, (_, weights) in zip(kernels, rules, strict=True)])
    squares = np.stack([np.square(kernel) @ weights for kernel, (_, weights) in zip(kernels, rules, strict=True)])
    half = form_errors(curves, squares.mean(0), found.size) * float(
        stdtrit(len(curves) - 1, (1 + found.confidence) / 2)
    )
    mean = curves.mean(0)
    return scale.curve(
        grid, mean, np.maximum(0.0, mean - half), mean + half, found.confidence, found.num_probes, found.size
    )


def _resolution(nodes: Floats, weights: Floats) -> float:
    """A quarter of the distance from the node with the most weight to the nearest other one."""
    others = np.delete(nodes, weights.argmax())
    return float(np.abs(others - nodes[weights.argmax()]).min()) / 4 if len(others) else 0.0


def _kernels(grid: Floats, places: Floats, weights: Floats, size: int) -> Floats:
    """What each node of a rule adds to the density for its weight, as columns; nodes come in ascending order."""
    middles = (places[1:] + places[:-1]) / 2
    left, right = np.concatenate([places[:1], middles]), np.concatenate([middles, places[-1:]])
    is_spread = (weights * size >= _FEW) & (right - left > DENSITY_WIDTH)
    even = ndtr((grid[:, None] - left) / DENSITY_WIDTH) - ndtr((grid[:, None] - right) / DENSITY_WIDTH)
    length = np.where(is_spread, right - left, 1.0)
    found: Floats = np.where(is_spread, even / length, smoothed_kernels(grid, places, DENSITY_WIDTH))
    return found
