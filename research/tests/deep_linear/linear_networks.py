"""Deep linear networks drawn from a seed, and their Hessians by automatic differentiation as the oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from hessmap.records import Part
from hessmap_research.deep_linear import DeepLinear


@dataclass(frozen=True)
class Drawn:
    """Weights, biases and data of a linear network; ``masses`` are the weights of the samples."""

    weights: list[Tensor]
    biases: list[Tensor] | None
    inputs: Tensor
    targets: Tensor
    masses: Tensor

    @property
    def network(self) -> DeepLinear:
        return DeepLinear.from_data(self.weights, self.biases, self.inputs, self.targets, self.masses)

    @property
    def parameters(self) -> Tensor:
        biases = self.biases or [torch.zeros(0, dtype=torch.float64)] * len(self.weights)
        pieces = [piece.reshape(-1) for pair in zip(self.weights, biases, strict=True) for piece in pair]
        return torch.cat(pieces)

    def outputs(self, flat: Tensor) -> Tensor:
        hidden = self.inputs
        for place, weight in enumerate(self.weights):
            hidden = hidden @ flat[: weight.numel()].reshape(weight.shape).T
            flat = flat[weight.numel() :]
            if self.biases is not None:
                hidden = hidden + flat[: len(self.biases[place])]
                flat = flat[len(self.biases[place]) :]
        return hidden

    def hessian(self, part: Part) -> Tensor:
        """By torch.func alone: of the risk, of the output Jacobian, or of the outputs weighted with fixed residuals."""
        if part == "loss":

            def risk(flat: Tensor) -> Tensor:
                return 0.5 * self.masses @ (self.outputs(flat) - self.targets).square().sum(1)

            return torch.func.hessian(risk)(self.parameters)
        if part == "outer_product":
            jacobian = torch.func.jacrev(self.outputs)(self.parameters)
            return torch.einsum("n,nki,nkj->ij", self.masses, jacobian, jacobian)
        residuals = self.masses[:, None] * (self.outputs(self.parameters) - self.targets)
        return torch.func.hessian(lambda flat: (residuals * self.outputs(flat)).sum())(self.parameters)


def drawn(widths: Sequence[int], bias: bool = False, num_samples: int = 40, seed: int = 0) -> Drawn:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    weights = [normal(after, before) / before**0.5 for before, after in pairwise(widths)]
    biases = [normal(after) for after in widths[1:]] if bias else None
    masses = torch.rand(num_samples, generator=generator, dtype=torch.float64) + 0.1
    inputs, targets = normal(num_samples, widths[0]), normal(num_samples, widths[-1])
    return Drawn(weights, biases, inputs, targets, masses / masses.sum())


def relative_error(found: Tensor, known: Tensor) -> float:
    return float((found - known).abs().max() / known.abs().max())
