"""A torch loss module with its options, or a user's function, differentiated by autograd."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import grad, jacrev, vmap

from hessmap.errors import HessmapError, require
from hessmap.linalg import storage_address
from hessmap.losses.base import Loss, VectorProduct, checked_labels

PerSample = Callable[[Tensor, Tensor], Tensor]
_SMALL = 64  # outputs up to which the Hessian of the loss in them is written down


class FunctionLoss(Loss):
    """A user's ``function(outputs, targets)`` that returns one value per sample, differentiated by autograd.

    Args:
        function: The function. The value of a sample must not depend on other samples.
        name: Name of the loss. Defaults to that of the function.
    """

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

    def for_output_shape(self, output_shape: tuple[int, ...], targets: Tensor) -> Loss:
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

    def hessian_product(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> VectorProduct:
        if outputs.shape[1] <= _SMALL:
            return super().hessian_product(outputs, targets, weights)
        point = outputs.detach().clone().requires_grad_()
        with torch.enable_grad():
            gradient = self.gradient(point, targets).to(point.dtype)

        def product(vectors: Tensor) -> Tensor:
            if vectors.ndim > outputs.ndim:
                return torch.stack([product(one) for one in vectors])
            if not gradient.requires_grad:
                return torch.zeros_like(vectors)
            given = weights[:, None] * vectors
            return torch.autograd.grad(gradient, point, given, retain_graph=True)[0]

        return product

    def _one(self, output: Tensor, target: Tensor) -> Tensor:
        return self.function(output[None], target[None])[0]


class ModuleLoss(FunctionLoss):
    """A loss module of torch with its options, evaluated per sample and differentiated by autograd.

    Args:
        module: The module. It is copied; its ``reduction`` decides whether the risk is a mean or a sum.
    """

    def __init__(self, module: nn.Module) -> None:
        reduction = getattr(module, "reduction", None)
        require(
            reduction in ("mean", "none", "sum"),
            "a torch loss module must have reduction='mean', 'sum' or 'none'",
            f"{type(module).__name__} has reduction={reduction!r}",
            "Pass a function (outputs, targets) -> one value per sample, or objective=",
        )
        self.is_sum = reduction == "sum"
        copied: dict[int, Any] = {}
        own: Any = copy.deepcopy(module, copied).double()
        own.reduction = "none"
        self.module = own
        originals = [value for value in copied.get(id(copied), ()) if isinstance(value, Tensor)]  # deepcopy keeps them
        self.copies = {storage_address(value): copied[id(value)] for value in originals if id(value) in copied}
        self.output_shape: tuple[int, ...] | None = None
        super().__init__(self._per_sample, type(module).__name__)

    def for_output_shape(self, output_shape: tuple[int, ...], targets: Tensor) -> Loss:
        """The module sees outputs and targets as the model and the user gave them."""
        own = self._copy(self.module)
        own.output_shape = output_shape if len(output_shape) > 1 else None
        return own

    def to(self, dtype: torch.dtype, device: torch.device) -> ModuleLoss:
        copied: dict[int, Any] = {}
        own = self._copy(copy.deepcopy(self.module, copied).to(device, dtype))
        own.copies = {place: copied.get(id(value), value) for place, value in self.copies.items()}
        return own

    def _copy(self, module: nn.Module) -> ModuleLoss:
        own = copy.copy(self)
        own.module, own.function = module, own._per_sample
        return own

    def prepare(self, targets: Tensor, output_dim: int) -> Tensor:
        """Real targets in the shape of the outputs, because torch would broadcast (N,) against (N, 1) to (N, N); class
        labels checked, but for those that are ignored."""
        if targets.dtype.is_floating_point:
            fits = targets.numel() == len(targets) * output_dim
            return targets.reshape(len(targets), *(self.output_shape or (output_dim,))) if fits else targets
        if not hasattr(self.module, "ignore_index"):
            return targets
        num_classes = output_dim if self.output_shape is None else self.output_shape[0]
        checked_labels(targets.flatten(), num_classes, self.module.ignore_index)
        return targets.long()

    def _per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        shaped = outputs if self.output_shape is None else outputs.reshape(-1, *self.output_shape)
        values: Tensor = self.module(shaped, targets)
        values = values.reshape(len(outputs), -1)
        return values.sum(1) if self.is_sum or self._has_mass(targets) else values.mean(1)

    def target_weights(self, targets: Tensor) -> Tensor:
        """torch divides a weighted or ignoring loss of labels by the class weights that took part."""
        if not self._has_mass(targets):
            return super().target_weights(targets)
        used = targets != self.module.ignore_index
        weight = self.module.weight
        masses = 1.0 if weight is None else weight[targets.where(used, torch.zeros_like(targets))].double()
        return torch.where(used, masses, 0.0).double().reshape(len(targets), -1).sum(1)

    def _has_mass(self, targets: Tensor) -> bool:
        return not targets.dtype.is_floating_point and hasattr(self.module, "ignore_index")
