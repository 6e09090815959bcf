"""Calls of a model that computes its own loss, as those of Hugging Face do when their inputs hold labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hessmap.errors import InvalidInput, require, sentence
from hessmap.linalg import is_answerable, reason_of
from hessmap.losses import LabelledCall, Loss, ModelLoss, recognised_loss
from hessmap.problem.data import Inputs, label_name, num_rows, take_rows
from hessmap.problem.evaluation import main_output, named_output
from hessmap.problem.model import Forward

_BATCH = 256  # samples at a time of a data set that comes without a loader
_SAME = 1e-4  # relative, of losses that may be taken in float32
_MUST, _REMEDY = "a model without a loss of its own needs one", 'Pass one to Problem, such as "cross_entropy"'


def labelled_data(data: Any, targets: Any, forward: Forward | None) -> Any:
    """Dictionaries with labels as (inputs with the labels among them, labels), whenever they are read."""
    must, remedy = "a model's own loss needs data of dictionaries with labels", "Pass a loss to Problem"
    require(forward is None, must, "the model is called by a forward function", remedy)
    if isinstance(data, Mapping):
        labelled = dict(data) if targets is None else {**data, "labels": targets}
        return labelled, labelled[label_name(labelled)]
    is_batches = not isinstance(data, Tensor | tuple | str | bytes) and hasattr(data, "__iter__") and targets is None
    got = f"the loss is None and the data are a {type(data).__name__}{'' if targets is None else ' with targets'}"
    require(is_batches or isinstance(data, Dataset), must, got, remedy)
    return _LabelledBatches(DataLoader(data, batch_size=_BATCH) if isinstance(data, Dataset) else data)


class _LabelledBatches:
    """Batches of a loader of dictionaries; what belongs to its random numbers is the loader's own."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.sampler, self.generator = getattr(loader, "sampler", None), getattr(loader, "generator", None)

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]:
        for batch in self.loader:
            must = "a model's own loss needs batches that are dictionaries with labels"
            require(isinstance(batch, Mapping), must, f"the loader gave a {type(batch).__name__}")
            yield dict(batch), batch[label_name(batch)]


class ModelLossReading(NamedTuple):
    """The loss of a model that computes its own, how it is called from now on, and a note."""

    loss: Loss
    forward: Forward | None
    note: str


def read_model_loss(
    call: Callable[[Inputs, Forward | None], Any], inputs: dict[str, Any], labels: Tensor
) -> ModelLossReading:
    """``call(inputs, forward)`` evaluates the model; ``inputs`` are the first samples, with their labels."""
    count, name = num_rows(inputs), label_name(inputs)
    parts = [slice(0, count), slice(0, 1), slice(count // 2, count)]
    try:
        returned = [(call(take_rows(inputs, part), None), labels[part]) for part in parts]
    except TypeError as error:
        if f"'{name}'" not in str(error):
            raise
        raise InvalidInput(sentence(_MUST, f"its forward takes no '{name}'", _REMEDY)) from error
    own = [(_loss_of(given), given, some) for given, some in returned]
    loss = recognised_loss([LabelledCall(main_output(given)[0], value, some) for value, given, some in own])
    if loss is not None:
        forward, why = _without_labels(call, inputs, name, main_output(returned[0][0])[0])
        note = f"the model's own loss was recognised as '{loss.name}', by its value{why}"
        return ModelLossReading(loss, forward, note)
    for part, (value, _, _) in zip(parts, own, strict=True):
        alone = call(take_rows(inputs, part), _losses).mean()
        if not bool((alone - value).abs() <= _SAME * value.abs().clamp(min=1e-3)):
            must = "the model's own loss must be a mean over its samples, or a cross-entropy or squared loss"
            got = f"on some samples it is {float(value):.6g}, and {float(alone):.6g} is the mean of theirs alone"
            raise InvalidInput(sentence(must, got, "Pass the loss to Problem as a function (outputs, targets)"))
    note = "the model's own loss is none that is known: the risk is its mean over the samples, and has one Hessian"
    return ModelLossReading(ModelLoss(), _losses, note)


def _loss_of(returned: Any) -> Tensor:
    loss = named_output(returned, "loss")
    if loss is None or loss.numel() != 1:
        got = f"called with labels it gave a {type(returned).__name__} without 'loss'"
        raise InvalidInput(sentence(_MUST, got, _REMEDY))
    return loss.detach()


def _losses(model: nn.Module, inputs: Inputs) -> Tensor:
    """The model's own loss of every sample alone, (num_samples, 1)."""
    dtype = next(model.parameters()).dtype
    returned = [model(**take_rows(inputs, slice(n, n + 1))) for n in range(num_rows(inputs))]
    losses = [loss for loss in (named_output(one, "loss") for one in returned) if loss is not None]
    return torch.stack([loss.reshape(()) for loss in losses])[:, None].to(dtype)


def _without_labels(
    call: Callable[[Inputs, Forward | None], Any], inputs: dict[str, Any], name: str, outputs: Tensor
) -> tuple[Forward | None, str]:
    """A call that does not compute the loss, where the outputs are the same without labels (those of T5 are not), or
    why there is none."""

    def forward(model: nn.Module, given: Any) -> Any:
        return model(**{key: value for key, value in given.items() if key != name})

    try:
        alone, _ = main_output(call(inputs, forward))
    except Exception as error:  # a user's model that needs its labels may raise anything
        if not is_answerable(error, refusals=True):
            raise
        return None, f"; it is called with its labels, because it fails without them ({reason_of(error)})"
    is_same = alone.shape == outputs.shape and torch.allclose(alone, outputs)
    return (forward, "") if is_same else (None, "; it is called with its labels, because its outputs depend on them")
