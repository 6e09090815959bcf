"""A model with its data and loss: the mean loss, its gradient and the accuracy over all samples, and their history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parameter import UninitializedParameter

from hessmap.datasets import Data
from hessmap.errors import HessmapError, InvalidInput, require, require_name, sentence, short_text
from hessmap.losses import LOSSES, PerSample
from hessmap.training.modes import evaluation_mode


class Evaluation(NamedTuple):
    """A model evaluated on all samples.

    Attributes:
        loss: Mean loss, without the penalty of weight decay.
        accuracy: Share of correctly classified samples; None without labels.
        gradient_norm: Euclidean norm of the gradient, including the penalty.
    """

    loss: float
    accuracy: float | None
    gradient_norm: float


class ProgressUpdate(NamedTuple):
    """A progress update, as passed to a ``progress`` callback.

    Attributes:
        done: Epochs done; evaluations done for a method without epochs.
        total: Largest number of them.
        evaluation: The model at this point.
    """

    done: int
    total: int
    evaluation: Evaluation


History = list[tuple[int, Evaluation]]


def history_arrays(history: History) -> dict[str, Any]:
    """The arrays of a TrainingRun.

    >>> history_arrays([(0, Evaluation(2.5, None, 0.1))])["loss"]
    array([2.5])
    """
    accuracies = [evaluation.accuracy for _, evaluation in history if evaluation.accuracy is not None]
    return {
        "moments": np.array([moment for moment, _ in history], dtype=np.int64),
        "loss": np.array([evaluation.loss for _, evaluation in history]),
        "accuracy": np.array(accuracies, dtype=np.float64),
        "gradient_norm": np.array([evaluation.gradient_norm for _, evaluation in history]),
    }


def per_sample(loss: str | PerSample) -> PerSample:
    """Find the function of a loss that training minimises.

    Args:
        loss: Name of a loss of ``hessmap.losses``, or a function (outputs, targets) that returns one value per sample.

    Returns:
        The function; targets are those that ``fitting_targets`` returns. Cross-entropy is torch's kernel, one call,
        while that of ``hessmap.losses`` keeps the digits of second derivatives at fitted samples.

    Raises:
        UnknownName: If there is no loss of this name.

    Example:
        >>> per_sample("squared")(torch.tensor([[1.0, 3.0]]), torch.tensor([[0.0, 1.0]]))
        tensor([2.5000])
    """
    if not isinstance(loss, str):
        return loss
    require_name("loss", loss, LOSSES)
    if loss == "cross_entropy":
        return lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none")
    known = LOSSES[loss]()
    return lambda outputs, targets: known.value(outputs.flatten(1), targets.flatten(1))


def loss_name(loss: str | PerSample) -> str:
    """The name of a loss in results.

    Args:
        loss: Name or function.

    Returns:
        The name, or that of the function.
    """
    return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)


def fitting_targets(loss: str | PerSample, targets: Tensor, outputs: Tensor) -> Tensor:
    """Bring targets into the form that a loss takes.

    Args:
        loss: Name or function.
        targets: Labels, or target vectors.
        outputs: Outputs of the model for some sample.

    Returns:
        Tensor: One-hot rows of labels under "squared" and "log_cosh"; a column of a vector of numbers, because
        subtracting it from a column of outputs would silently give a matrix; otherwise the targets, real ones in the
        dtype of the outputs.

    Raises:
        InvalidInput: If labels or shapes do not fit the outputs.

    Example:
        >>> fitting_targets("squared", torch.tensor([1]), torch.zeros(1, 2))
        tensor([[0., 1.]])
    """
    is_real = targets.is_floating_point()
    if not isinstance(loss, str) or (loss == "cross_entropy" and is_real):
        return targets.to(outputs.dtype) if is_real else targets
    if is_real and targets.ndim > 1:
        must = f"targets must have one value per output of the model, {tuple(outputs.shape[1:])}"
        require(targets.shape[1:] == outputs.shape[1:], must, f"each has {tuple(targets.shape[1:])}")
    prepared = LOSSES[loss]().prepare(targets, outputs[0].numel() if loss != "cross_entropy" else outputs.shape[1])
    return targets if loss == "cross_entropy" else prepared.to(outputs.dtype).reshape(len(targets), *outputs.shape[1:])


_CHUNK = 8192  # samples differentiated at a time when all are
_RECORDED = (
    512  # for a record of a training: what a convolution leaves of more samples is past any cache, 3 times slower
)


class TrainingDiverged(HessmapError, ArithmeticError):
    """The loss became NaN or infinite."""


@dataclass(frozen=True, eq=False)
class Objective:
    """mean over samples of loss(model(input), target) + weight_decay / 2 * ||parameters||^2."""

    model: nn.Module
    loss: PerSample
    inputs: Tensor
    targets: Tensor
    labels: Tensor | None
    weight_decay: float = 0.0

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters)

    @property
    def num_samples(self) -> int:
        return len(self.inputs)

    def batch_loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of a batch, without penalty."""
        return self._mean_loss(self.model(inputs), targets)

    def _mean_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        values = self.loss(outputs, targets)
        require(
            values.shape == (len(targets),),
            f"the loss must give one value per sample, {len(targets)} of them",
            f"it gave shape {tuple(values.shape)}",
            "Use reduction='none' for torch's losses",
        )
        return values.mean()

    def value_and_gradient(self) -> tuple[Tensor, list[Tensor]]:
        """Mean loss and its gradient with penalty, over all samples, in the mode the model is in."""
        return self._over_samples(_CHUNK)[:2]

    def evaluate(self) -> Evaluation:
        """Loss, accuracy and gradient norm over all samples, with the model in evaluation mode."""
        with evaluation_mode(self.model):
            loss, gradient, num_right = self._over_samples(_RECORDED)
        norm = torch.stack([entry.norm() for entry in gradient]).norm()
        accuracy = None if num_right is None else num_right / self.num_samples
        return Evaluation(float(loss), accuracy, float(norm))

    def _over_samples(self, at_a_time: int) -> tuple[Tensor, list[Tensor], int | None]:
        """Mean loss, its gradient with penalty, and how many labels are right, from one pass over the samples."""
        total = torch.zeros((), dtype=self.parameters[0].dtype)
        gradient = [self.weight_decay * parameter.detach() for parameter in self.parameters]
        num_right = 0
        for start in range(0, self.num_samples, at_a_time):
            some = slice(start, start + at_a_time)
            outputs, targets = self.model(self.inputs[some]), self.targets[some]
            value = len(targets) / self.num_samples * self._mean_loss(outputs, targets)
            total += value.detach()
            parts = torch.autograd.grad(value, self.parameters, materialize_grads=True)
            for entry, part in zip(gradient, parts, strict=True):
                entry += part
            if self.labels is not None:
                num_right += int((outputs.argmax(dim=1) == self.labels[some]).sum())
        return total, gradient, None if self.labels is None else num_right


def objective(
    model: nn.Module, data: Data | tuple[Tensor, Tensor], loss: str | PerSample, weight_decay: float = 0.0
) -> Objective:
    """The objective of training a model on (inputs, targets), both in the model's number format."""
    require(isinstance(model, nn.Module), "model must be a torch.nn.Module", f"got {short_text(model)}")
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    require(is_pair, "data must be a pair of inputs and targets", f"got {short_text(data)}")
    inputs, targets = data
    must, got = "training needs tensors", f"got {type(inputs).__name__} and {type(targets).__name__}"
    require(isinstance(inputs, Tensor) and isinstance(targets, Tensor), must, got, "Use torch.from_numpy for arrays")
    is_plain = all(part.layout == torch.strided and not part.is_meta for part in (inputs, targets))
    require(is_plain, "training needs plain dense tensors", f"got {inputs.layout} on {inputs.device}")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    has_values = not any(isinstance(one, UninitializedParameter) or one.is_meta for one in parameters)
    must, got = "every parameter must have its values", "some belong to a lazy module or to the meta device"
    require(has_values, must, got, "Call the model once on a batch, or load its weights, first")
    require(bool(parameters), "training needs a model with parameters to train", "it has none")
    require(
        0 < len(inputs) == len(targets),
        "inputs and targets must contain the same number of samples, at least one",
        f"there are {len(inputs)} inputs and {len(targets)} targets",
    )
    require(weight_decay >= 0, "weight_decay must not be negative", f"got {weight_decay}")
    function = per_sample(loss)
    inputs = inputs.to(parameters[0].dtype) if inputs.is_floating_point() else inputs
    with torch.no_grad(), evaluation_mode(model):
        outputs = _first_outputs(model, inputs)
        if not isinstance(loss, str):
            _require_single_samples(function, model, inputs, fitting_targets(loss, targets, outputs))
    labels = targets if targets.ndim == 1 and not targets.is_floating_point() and outputs.ndim == 2 else None
    return Objective(model, function, inputs, fitting_targets(loss, targets, outputs), labels, weight_decay)


def _first_outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    try:
        outputs: Tensor = model(inputs[:1])
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        given = f"{tuple(inputs.shape)} and type {str(inputs.dtype).removeprefix('torch.')}"
        must, got = "the inputs must fit the model", f"inputs of shape {given} gave: {error}"
        raise InvalidInput(sentence(must, got)) from error
    must = "a model that is trained must return a tensor"
    require(isinstance(outputs, Tensor), must, f"it returned a {type(outputs).__name__}")
    return outputs


def _require_single_samples(loss: PerSample, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """The loss of a sample is the same alone and among others: (N,) targets broadcast against (N, 1) outputs."""
    chosen = torch.linspace(0, len(inputs) - 1, min(len(inputs), 16)).long()
    outputs, wanted = model(inputs[chosen]), targets[chosen]
    together = loss(outputs, wanted)
    if together.shape != (len(chosen),):
        return  # that is said where the loss is used
    alone = torch.cat([loss(outputs[n : n + 1], wanted[n : n + 1]).reshape(1) for n in range(len(chosen))])
    require(
        torch.allclose(together, alone, rtol=1e-3, atol=1e-3 * float(alone.abs().max()), equal_nan=True),
        "the loss must treat samples independently",
        "the loss of a sample in a batch differs from its loss alone",
        f"Look for broadcasting: outputs have shape {tuple(outputs.shape)} and targets {tuple(wanted.shape)}",
    )


def divergence_error(value: float, where: str, remedy: str) -> TrainingDiverged:
    return TrainingDiverged(sentence("the loss must stay finite", f"it became {value} in {where}", remedy))
