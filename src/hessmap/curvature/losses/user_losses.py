"""A torch loss module with its options, or a user's function, differentiated by autograd."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, jacrev, vmap

from hessmap.curvature.losses.loss import Loss, checked_labels
from hessmap.errors import HessmapError, require

PerSample = Callable[[Tensor, Tensor], Tensor]


class FunctionLoss(Loss):
    """A user's ``function(outputs, targets) -> one value per sample``, where no sample looks at another."""

    def __init__(self, function: PerSample, name: str | None = None) -> None:
        self.function = function
        self.name = name or str(getattr(function, "__name__", type(function).__name__))

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        try:
            values = self.function(outputs, targets)
        except HessmapError:
            raise
        except Exception as error:
            shapes = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}"
            error.add_note(f"raised in the loss '{self.name}', on {shapes}")
            raise
        require(
            isinstance(values, Tensor) and values.shape == (len(outputs),),
            f"the loss '{self.name}' must return one value per sample, shape ({len(outputs)},)",
            f"it returned {tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__}",
            "Do not average inside of it; the risk is the weighted mean over samples",
        )
        require(
            values.dtype == outputs.dtype,
            f"the loss '{self.name}' must compute in {str(outputs.dtype).removeprefix('torch.')}",
            f"it returned {str(values.dtype).removeprefix('torch.')}",
            "Remove casts such as .float() from it",
        )
        return values

    def fitted(self, output_shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Loss:
        """The function sees outputs in the shape that the model gave them."""
        if len(output_shape) <= 1:
            return self
        function = self.function
        return FunctionLoss(lambda outputs, targets: function(outputs.reshape(-1, *output_shape), targets), self.name)

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        gradient: Tensor = vmap(grad(self._one))(outputs, targets)
        return gradient

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # Reverse over reverse: not every torch loss has a forward derivative of its gradient.
        matrices: Tensor = vmap(jacrev(grad(self._one)))(outputs, targets)
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

    def fitted(self, output_shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Loss:
        Loss.fitted(self, output_shape, dtype, device)
        twin = copy.copy(self)
        twin.module = copy.deepcopy(self.module).to(device, dtype)
        twin.function = twin._per_sample
        return twin

    def prepare(self, targets: Tensor, output_dim: int) -> Tensor:
        """Real targets in the shape of the outputs, because torch would broadcast (N,) against (N, 1) to (N, N); class
        labels checked, but for those that are ignored."""
        if targets.dtype.is_floating_point:
            fits = targets.numel() == len(targets) * output_dim
            return targets.reshape(len(targets), output_dim) if fits else targets
        if hasattr(self.module, "ignore_index") and targets.ndim == 1:
            labels = targets.long()
            checked_labels(labels.where(labels != self.module.ignore_index, 0), output_dim)
            return labels
        return targets

    def _per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        values: Tensor = self.module(outputs, targets)
        return values.reshape(len(outputs), -1).mean(1)

    def mass(self, targets: Tensor) -> Tensor:
        """torch divides a weighted or ignoring cross-entropy by the class weights that took part."""
        ones = torch.ones(targets.shape[0], dtype=torch.float64, device=targets.device)
        if targets.dtype.is_floating_point or not hasattr(self.module, "ignore_index"):
            return ones
        used = targets != self.module.ignore_index
        weight = self.module.weight
        masses = ones if weight is None else weight[targets.where(used, torch.zeros_like(targets))]
        return torch.where(used, masses, 0.0)
