"""The orthonormal bases in which a posterior is diagonal, layer by layer.

The prior is isotropic, so any basis is legal, even one that was found from the data: the divergence of the posterior
depends on its variances alone. What a basis buys is a posterior that is wide where the loss is flat.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from hessmap.certificates.model_copies import in_format
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets import Data
from hessmap.errors import HessmapError, InvalidInput, require, sentence, unknown_name
from hessmap.layers import LayerFactors, downstream_weights, layer_factors, mean_output_hessian
from hessmap.problem import Problem
from hessmap.theory.layers import activity_weighted_product, output_factor_from_weights, weight_product

GivenBases = Mapping[str, tuple[Tensor, Tensor]]
OutputFactor = Literal["measured", "weights", "activity"]

# A network may do what cannot be differentiated twice, or say so in words of torch; then it has no curvature basis.
_UNKNOWN = (HessmapError, RuntimeError)
_ORTHONORMAL = 1e-5  # error of U^T U = I in single precision, for a few hundred columns


@dataclass(frozen=True)
class BasisRule:
    """How a basis is computed, and when it is recomputed.

    ``output_factor`` is None for coordinates as they are, "measured" for E[M], "weights" for M~ = S^T E[A] S from the
    weights after the layer, "activity" for the same with every unit weighted by how often it is active.
    ``is_refreshed``: every so often during the fit, and not once before it; ``decays``: ten times as rarely whenever
    the step size falls.
    """

    output_factor: OutputFactor | None
    is_refreshed: bool = False
    decays: bool = False


BASES: dict[str, BasisRule] = {
    "standard": BasisRule(None),
    "approximate": BasisRule("measured"),
    "iterative": BasisRule("measured", is_refreshed=True),
    "iterative_decay": BasisRule("measured", is_refreshed=True, decays=True),
    "iterative_weights": BasisRule("weights", is_refreshed=True),
    "iterative_activity": BasisRule("activity", is_refreshed=True),
}


def basis_rule(basis: str | GivenBases) -> BasisRule:
    if isinstance(basis, Mapping):
        return BasisRule(None)
    if basis not in BASES:
        raise unknown_name("basis", basis, tuple(BASES))
    return BASES[basis]


@torch.no_grad()
def take_curvature_bases(
    network: StochasticNetwork,
    data: Data,
    rule: BasisRule,
    fixed_inputs: str | None = None,
    loss: str = "cross_entropy",
) -> tuple[str, ...]:
    """Turn every layer to the eigenvectors of its two Kronecker factors at the means, largest eigenvalue first.

    Deviations stay with their index: the k-th largest curvature keeps the k-th deviation. The layer ``fixed_inputs``
    keeps the basis of its inputs: what enters the first layer never changes. What comes back names the layers whose
    measured factors are not known; they stay in the basis they have.
    """
    problem = _mean_problem(network, data, loss)
    left = []
    for name, layer in network.layers.items():
        factors = None if problem is None or layer.output_basis is None else _known_factors(problem, name)
        if problem is None or factors is None or layer.output_basis is None or layer.input_basis is None:
            left.append(name)
            continue
        output_factor = factors.output_factor
        if rule.output_factor != "measured":
            output_factor = _from_weights(problem, name, len(output_factor), rule.output_factor)
        layer.output_basis.copy_(_descending_eigenvectors(output_factor))
        if name != fixed_inputs:
            layer.input_basis.copy_(_descending_eigenvectors(factors.input_factor))
    return tuple(left)


def take_given_bases(network: StochasticNetwork, bases: GivenBases) -> None:
    """Turn every layer to the pair (output basis, input basis) that is given under its name."""
    known = {name: layer for name, layer in network.layers.items() if layer.output_basis is not None}
    unknown = sorted(set(bases) - set(known))
    if unknown:
        raise unknown_name("layer", unknown[0], tuple(known))
    for name, pair in bases.items():
        for kind, given in zip(("output", "input"), pair, strict=True):
            stored = getattr(known[name], f"{kind}_basis")
            basis = torch.as_tensor(given)
            require(
                basis.shape == stored.shape,
                f"the {kind} basis of {name} must have shape {tuple(stored.shape)}",
                f"got {tuple(basis.shape)}",
            )
            square = basis.double().T @ basis.double()
            defect = float((square - torch.eye(len(basis), dtype=torch.float64)).abs().max())
            if not defect < _ORTHONORMAL:
                broken = f"U^T U differs from the identity by {defect:.2g}"
                raise InvalidInput(sentence(f"the {kind} basis of {name} must be orthonormal", broken))
            stored.copy_(basis)


def _mean_problem(network: StochasticNetwork, data: Data, loss: str) -> Problem | None:
    inputs, targets = in_format(data.inputs, torch.float64), data.targets
    kind: str | nn.Module = loss
    if loss == "bce":
        kind, targets = nn.BCEWithLogitsLoss(), targets[:, None].double()
    elif loss == "squared":
        targets = targets.double()
    try:
        return Problem(network.mean_model(), kind, inputs, targets)
    except _UNKNOWN:
        return None


def _known_factors(problem: Problem, name: str) -> LayerFactors | None:
    """None for a layer whose factors cannot be measured: one that acts twice, say."""
    try:
        return layer_factors(problem, name)
    except _UNKNOWN:
        return None


def _from_weights(problem: Problem, name: str, num_outputs: int, kind: str | None) -> Tensor:
    """S^T E[A] S of the weights behind a layer, as they are or weighted by the activity of their units."""
    tail = downstream_weights(problem, name)
    weights = [weight.detach().numpy() for weight in tail.weights]
    if kind == "activity":
        product = activity_weighted_product(weights, [slope.numpy() for slope in tail.derivatives], num_outputs)
    else:
        product = weight_product(weights, num_outputs)
    return torch.from_numpy(output_factor_from_weights(product, mean_output_hessian(problem).numpy()))


def _descending_eigenvectors(factor: Tensor) -> Tensor:
    _, ascending = torch.linalg.eigh(factor)
    return torch.flip(ascending, (1,))
