"""A torch loss module with its options, or a user's function, differentiated by autograd."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, hessian, vmap

from hessmap.curvature.losses.loss import Loss
from hessmap.errors import require

PerSample = Callable[[Tensor, Tensor], Tensor]


class FunctionLoss(Loss):
    """A user's ``function(outputs, targets) -> one value per sample``, where no sample looks at another."""

    def __init__(self, function: PerSample, name: str | None = None) -> None:
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        values = self.function(outputs, targets)
        require(
            isinstance(values, Tensor) and values.shape == (len(outputs),),
            f"the loss '{self.name}' must return one value per sample, shape ({len(outputs)},)",
            f"it returned {tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__}",
            "Do not average inside of it; the risk is the weighted mean over samples",
        )
        return values

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        gradient: Tensor = vmap(grad(self._one))(outputs, targets)
        return gradient

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        matrices: Tensor = vmap(hessian(self._one))(outputs, targets)
        return matrices

    def _one(self, output: Tensor, target: Tensor) -> Tensor:
        return self.function(output[None], target[None])[0]


class ModuleLoss(FunctionLoss):
    """A torch loss module. Its ``reduction="mean"`` becomes our mean over samples, with torch's denominator:
    elements within a sample are averaged, ignored samples do not count, class weights are normalised."""

    def __init__(self, module: nn.Module) -> None:
        reduction = getattr(module, "reduction", None)
        require(
            reduction in ("mean", "none"),
            "a torch loss module must average, because the risk is a mean over samples",
            f"{type(module).__name__} has reduction={reduction!r}",
            "Use reduction='mean', or pass a function (outputs, targets) -> one value per sample",
        )
        own: Any = copy.deepcopy(module).double()
        own.reduction = "none"
        self.module = own
        super().__init__(self._per_sample, type(module).__name__)

    def _per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        values: Tensor = self.module(outputs, targets)
        return values.reshape(len(outputs), -1).mean(1)

    def mass(self, targets: Tensor) -> Tensor:
        """torch divides a weighted or ignoring cross-entropy by the class weights that took part."""
        ones = torch.ones(targets.shape[0], dtype=torch.float64)
        if targets.dtype.is_floating_point or not hasattr(self.module, "ignore_index"):
            return ones
        used = targets != self.module.ignore_index
        weight = self.module.weight
        masses = ones if weight is None else weight[targets.where(used, torch.zeros_like(targets))]
        return torch.where(used, masses, 0.0)
