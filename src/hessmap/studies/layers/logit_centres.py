"""Where weights alone, or weights and activities, put the centres of logit gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.curvature.layers import LogitGradients


def centre_cosines(problem: Problem, layer: str, gradients: LogitGradients) -> dict[str, float]:
    """Mean squared cosine of the centres of logit gradients with (S^T E[Q]^T)_j, in weights times E[x].

    "weights" takes S as the product of the weights behind the layer, "activities" S_q.

    Reference: Wu et al. 2022, equation 273, corrected: Q is transposed and the Kronecker order reversed.
    """
    import torch

    from hessmap.curvature.layers import fully_connected_tail, layer_factors
    from hessmap.theory.layers import activity_weighted_product, weight_product

    tail = fully_connected_tail(problem, layer)
    factors = layer_factors(problem, layer)
    weights, slopes = ([part.numpy() for part in parts] for parts in (tail.weights, tail.slopes))
    num_outputs = len(factors.output_factor)
    roots = problem.loss.hessian_root(problem.outputs(), problem.targets).mT
    mean_root = torch.einsum("n,nab->ab", problem.weights / problem.weights.sum(), roots).numpy()
    centres = gradients.means.numpy().mean(axis=0)
    found = {}
    for name, product in (
        ("weights", weight_product(weights, num_outputs)),
        ("activities", activity_weighted_product(weights, slopes, num_outputs)),
    ):
        guessed = mean_root @ product
        if gradients.space == "weights":
            guessed = np.einsum("jm,a->jma", guessed, factors.mean_input.numpy()).reshape(len(guessed), -1)
        inner = (guessed * centres).sum(axis=1)
        sizes = np.square(guessed).sum(axis=1) * np.square(centres).sum(axis=1)
        found[name] = float(np.mean(inner**2 / sizes))
    return found
