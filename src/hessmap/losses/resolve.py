"""A loss from what a user passes for one: a name, a module or function of torch, a function of the user.

A loss that a model computes itself, as those of Hugging Face do when they are called with labels, is recognised by its
value: if a known loss has the same value on several batches, that one is used and all Hessians exist. Otherwise the
risk is the mean of the model's own loss over the samples, and only the loss Hessian exists.

A torch loss module with its options, or a user's function, is differentiated by autograd.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import grad, jacrev, vmap
from torch.nn import functional as F

from hessmap.errors import HessmapError, InvalidInput, integer_or_none, require, require_name, sentence, unknown_name
from hessmap.linalg import is_answerable, storage_address
from hessmap.losses.base import Loss, VectorProduct, checked_labels
from hessmap.losses.cross_entropy import CrossEntropy
from hessmap.losses.elementwise import LogCosh, Squared

LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (Squared, CrossEntropy, LogCosh)}

# torch's losses by name and as functions; "squared" is half the sum of squares of a sample, "mse" torch's mean.
_MODULES: dict[str, type[nn.Module]] = {"mse": nn.MSELoss, "l1": nn.L1Loss, "bce": nn.BCEWithLogitsLoss}
_FUNCTIONS: tuple[tuple[object, type[nn.Module]], ...] = (
    (F.mse_loss, nn.MSELoss),
    (F.l1_loss, nn.L1Loss),
    (F.smooth_l1_loss, nn.SmoothL1Loss),
    (F.huber_loss, nn.HuberLoss),
    (F.cross_entropy, nn.CrossEntropyLoss),
    (F.nll_loss, nn.NLLLoss),
    (F.binary_cross_entropy_with_logits, nn.BCEWithLogitsLoss),
    (F.soft_margin_loss, nn.SoftMarginLoss),
    (F.poisson_nll_loss, nn.PoissonNLLLoss),
)

PerSample = Callable[[Tensor, Tensor], Tensor]
AnyLoss = str | Loss | nn.Module | PerSample
_SMALL = 64  # outputs up to which the Hessian of the loss in them is written down


def as_loss(loss: AnyLoss, class_axis: int | None = None) -> Loss:
    """Convert what a user passes for a loss.

    Args:
        loss: A name ("squared", "cross_entropy", "log_cosh", "mse", "l1", "bce"), a loss module or function of
            torch, or a function (outputs, targets) that returns one value per sample.
        class_axis: Axis of the classes for outputs at several positions: 1 or -1. Defaults to what the shape of the
            targets determines.

    Returns:
        Loss: Value, gradient and Hessian in the outputs.

    Raises:
        UnknownName: If there is no loss of this name.
        InvalidInput: If it is a class instead of an object, or ``class_axis`` is given for a loss without classes.

    Example:
        >>> as_loss("squared").name
        'squared'
    """
    found = _loss(loss)
    if class_axis is None:
        return found
    must, got = "class_axis must be for a loss over classes", f"the loss is '{found.name}'"
    require(isinstance(found, CrossEntropy | Squared | LogCosh), must, got)
    found = copy.copy(found)
    axis = integer_or_none(class_axis)
    found.class_axis = class_axis if axis is None else axis  # type: ignore[attr-defined]
    return found


def _loss(loss: AnyLoss) -> Loss:
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        require_name("loss", loss, (*LOSSES, *_MODULES))
        return LOSSES[loss]() if loss in LOSSES else _loss(_MODULES[loss]())
    if is_torch_function(loss):
        return _loss(next(module for function, module in _FUNCTIONS if loss is function)())
    if isinstance(loss, type):
        must, got = "a loss must be an instance, not a class", f"got the class {loss.__name__}"
        raise InvalidInput(sentence(must, got, f"Write {loss.__name__}()"))
    if type(loss) is nn.CrossEntropyLoss and loss.reduction in ("mean", "none", "sum"):
        return CrossEntropy.of_module(loss)
    if isinstance(loss, nn.Module):
        return ModuleLoss(loss)
    if callable(loss):
        return FunctionLoss(loss)
    raise unknown_name("loss", loss, LOSSES)


def is_torch_function(loss: object) -> bool:
    """Check for a loss of ``torch.nn.functional`` that is treated as its module.

    Args:
        loss: Any object.

    Returns:
        True for ``F.mse_loss``, ``F.cross_entropy`` and the like.
    """
    return any(loss is function for function, _ in _FUNCTIONS)


def next_token(loss: AnyLoss = "cross_entropy") -> CrossEntropy:
    """Cross-entropy of output t with label t + 1, where the labels are the tokens of the inputs themselves.

    The first label and the last output are unused, so that a sample of T tokens counts T - 1 times; labels that are
    ``ignore_index`` (-100) do not count. Outputs are (samples, tokens, classes).

    Args:
        loss: A cross-entropy, by name or as a module of torch. Defaults to "cross_entropy".

    Returns:
        CrossEntropy: The loss with shifted labels.

    Raises:
        InvalidInput: If it is another loss.

    Example:
        >>> next_token().name
        'next-token cross_entropy'
    """
    base = as_loss(loss)
    if not isinstance(base, CrossEntropy):
        remedy = 'Use next_token("cross_entropy") or next_token(nn.CrossEntropyLoss(...))'
        raise InvalidInput(sentence("shifted labels need a cross-entropy", f"the loss is '{base.name}'", remedy))
    shifted = copy.copy(base)
    shifted.name, shifted.predicts_next = f"next-token {base.name}", True
    shifted.class_axis = -1 if base.class_axis is None else base.class_axis
    return shifted


_SAME = 1e-5  # relative: Hugging Face takes the loss of a float64 model in float32


class LabelledCall(NamedTuple):
    """A model called with its labels.

    Args:
        outputs: The main output of the model.
        loss: The loss that the model computed.
        labels: The labels.
    """

    outputs: Tensor
    loss: Tensor
    labels: Tensor


class ModelLoss(Loss):
    """The outputs are the losses of the samples themselves."""

    name = "the model's own"

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs[:, 0]

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.ones_like(outputs)

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return outputs.new_zeros(len(outputs), 1, 1)


class ObjectiveLoss(ModelLoss):
    """The loss of a problem whose outputs are the values of an objective on whole batches.

    Args:
        name: Name of the objective.
        is_sum: Whether the risk is the sum over batches instead of their mean. Defaults to False.
    """

    def __init__(self, name: str, is_sum: bool = False) -> None:
        self.name, self.is_sum = name, is_sum


def recognised_loss(calls: Sequence[LabelledCall]) -> Loss | None:
    """Recognise a model's own loss by its value.

    Args:
        calls: Calls of the model on several batches.

    Returns:
        The first known loss that has the same value on all batches; None if there is none.
    """
    is_elementwise = all(call.labels.numel() == call.outputs.numel() for call in calls)
    return next((loss for loss in _candidates(is_elementwise) if all(_is_same(loss, call) for call in calls)), None)


def _candidates(is_elementwise: bool) -> Iterator[Loss]:
    """The losses that a model's own is compared with: those of torch with a target for every output only where there
    is one, because torch would broadcast the others with a warning."""
    yield next_token()
    yield as_loss("cross_entropy", class_axis=-1)
    yield as_loss(nn.CrossEntropyLoss())
    yield as_loss("squared")
    if is_elementwise:
        yield as_loss(nn.MSELoss())
        yield as_loss(nn.BCEWithLogitsLoss())


def _is_same(loss: Loss, call: LabelledCall) -> bool:
    outputs = call.outputs.detach().double()
    labels = call.labels.to(outputs.device)
    try:
        fitted = loss.for_output_shape(tuple(outputs.shape[1:]), labels).to(outputs.dtype, outputs.device)
        flat = outputs.reshape(len(outputs), -1)
        targets = fitted.prepare(labels, flat.shape[1])
        normaliser = fitted.target_weights(targets).sum()
        value = float(fitted.value(flat, targets).double().sum() / normaliser)
    except (RuntimeError, ValueError, TypeError) as error:  # labels of another kind than this loss takes
        if not is_answerable(error, refusals=True):
            raise
        return False
    own = float(call.loss)
    return abs(value - own) <= _SAME * max(abs(own), 1e-3)


def require_parts(loss: Loss, what: str) -> None:
    """Raise unless a loss is a known function of the outputs, so that H_L = H_o + H_f is defined.

    Args:
        loss: The loss of a problem.
        what: What was asked for, in words for the error.

    Raises:
        InvalidInput: If the outputs are the losses themselves (a model's own loss, or an objective).
    """
    if isinstance(loss, ObjectiveLoss):
        must = f"{what} is not defined for this objective"
        got = f"'{loss.name}' is not a loss of the outputs and targets of single samples"
        raise InvalidInput(sentence(must, got, "Use loss_hessian(problem), or pass loss= and targets= to Problem"))
    if isinstance(loss, ModelLoss):
        must = f"{what} needs a loss that is a known function of the outputs"
        got = "the model computes its own loss, so only the loss Hessian exists"
        raise InvalidInput(sentence(must, got, "Use loss_hessian(problem), or pass the loss to Problem"))


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
        labels are checked, except those that are ignored."""
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
