"""Objectives: a scalar of a whole batch, or one value per sample, computed by the user from the model itself.

Each batch is one row of the problem's data, evaluated as a whole, and its value is the only output. Products with the
Hessian, and whatever is computed from them, work as for any problem; what needs outputs and targets of single samples
(H_o, H_f, Fisher, layers, certificates) is not defined.

A model that computes its own loss, as those of Hugging Face do when their inputs hold labels, has its loss read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hessmap.errors import InvalidInput, require, sentence, short_text
from hessmap.linalg import is_answerable, iterate_seeded, preserved_random_state, reason_of
from hessmap.losses import AnyLoss, LabelledCall, Loss, ModelLoss, as_loss, is_torch_function, recognised_loss
from hessmap.problem.data import Inputs, WholeBatch, batch_pair, label_name, move_to, num_rows, take_rows, with_tensors
from hessmap.problem.evaluation import FrozenModel, call_arguments, main_output, named_output
from hessmap.problem.model import Forward, private_copy
from hessmap.problem.samples import ObjectiveBatches, prepared_targets

Objective = Callable[[nn.Module, Any], Tensor]  # (model, batch) -> a scalar, or one value per sample
BatchWeights = Literal["size", "equal"]


def objective_name(objective: Objective) -> str:
    """The name of an objective in notes and errors.

    Args:
        objective: The user's function or object.

    Returns:
        str: Its own name, or that of its type.
    """
    return str(getattr(objective, "__name__", type(objective).__name__))


def objective_forward(objective: Objective, seeds: range | None) -> Forward:
    """The mean of an objective over a batch, (1, 1); with seeds, its mean over as many fixed draws."""
    name = objective_name(objective)

    def value(model: nn.Module, batch: WholeBatch) -> Tensor:
        found = objective(model, batch.content)
        must = f"the objective '{name}' must return a tensor: a scalar, or one value per sample"
        require(isinstance(found, Tensor), must, f"it returned a {type(found).__name__}")
        is_real = found.numel() > 0 and found.is_floating_point()
        is_flat = found.numel() <= 1 or found.numel() == len(found)  # not a matrix, such as the outputs themselves
        require(is_real and is_flat, must, f"it returned shape {tuple(found.shape)}, {found.dtype}")
        return found.mean().reshape(1, 1)

    def forward(model: nn.Module, batch: WholeBatch) -> Tensor:
        if seeds is None:
            return value(model, batch)
        draws = []
        for seed in seeds:
            with preserved_random_state(seed):
                draws.append(value(model, batch))
        return torch.stack(draws).mean(0)

    return forward


def averaged_batches(
    model: FrozenModel, objective: Objective, batches: ObjectiveBatches, rule: BatchWeights | Sequence[float]
) -> tuple[Tensor, str]:
    """The weight of every batch in the mean, and a note on how batches are averaged.

    The size of a batch is the normaliser of a loss (its number of counted labels), the number of values of an objective
    that returns one a sample, else the common first dimension of its tensors.
    """
    count = batches.num_samples
    of_batches = f"{count} batch{'' if count == 1 else 'es'}"
    if not isinstance(rule, str):
        note = f"the objective is averaged over {of_batches} with the given weights"
        return _given_batch_weights(rule, count), note
    is_sum = isinstance(objective, LossObjective) and objective.loss.is_sum
    if is_sum and rule == "size":
        note = f"the loss is summed over {of_batches} (reduction='sum'): its Hessian is that of the sum"
        return torch.ones(count, dtype=torch.float64), note
    if rule == "equal":
        note = f"the objective is averaged over {of_batches} with equal weights"
        return torch.ones(count, dtype=torch.float64), note
    if isinstance(objective, LossObjective):
        sizes = _normalisers(model, objective, batches)
        is_whole = all(size == int(size) for size in sizes)
        total = f"{int(sum(sizes))} counted targets" if is_whole else f"targets of total weight {sum(sizes):.6g}"
        return torch.tensor(sizes, dtype=torch.float64), f"the loss is the mean over {of_batches} with {total}"
    lengths = _lengths(model, objective, batches)
    has_lengths = len(lengths) == count and (lengths[0] > 1 or all(size == 1 for size in batches.sizes))
    sizes = [float(size) for size in (lengths if has_lengths else batches.sizes)]
    note = f"the objective is averaged over {of_batches} of {int(sum(sizes))} samples, weighted by size"
    return torch.tensor(sizes, dtype=torch.float64), note


def _given_batch_weights(given: Sequence[float], count: int) -> Tensor:
    weights = torch.as_tensor(given, dtype=torch.float64, device="cpu").detach().clone()
    is_valid = weights.shape == (count,) and bool(torch.isfinite(weights).all() and (weights >= 0).all())
    must = f"batch_weights must be 'size', 'equal' or {count} finite numbers, not negative and not all zero"
    require(is_valid and float(weights.sum()) > 0, must, f"got {short_text(given)}")
    return weights


def _normalisers(model: FrozenModel, objective: LossObjective, batches: ObjectiveBatches) -> list[float]:
    """The normaliser of every batch of a loss, from one pass."""
    found: list[float] = []

    def noted(given: nn.Module, batch: WholeBatch) -> Tensor:
        found.append(float(objective.sum_and_normaliser(given, batch.content)[1].detach()))
        return torch.zeros(1, 1, dtype=model.dtype, device=model.device)

    for batch, _ in batches.batches():
        with preserved_random_state(0), torch.no_grad():
            model.returned(move_to(batch, model.device, model.dtype), noted)
        must, got = (
            "every batch must have targets that count",
            f"the loss ignores all targets of batch {len(found) - 1}",
        )
        require(found[-1] > 0, must, got, "Leave this batch out")
    return found


def _lengths(model: FrozenModel, objective: Objective, batches: ObjectiveBatches) -> list[int]:
    """The number of values of an objective on every batch; on the first batch alone if it returns a scalar."""
    lengths: list[int] = []

    def noted(given: nn.Module, batch: WholeBatch) -> Tensor:
        found = objective(given, batch.content)
        lengths.append(1 if not isinstance(found, Tensor) or found.numel() == 1 else len(found))
        return torch.zeros(1, 1, dtype=model.dtype, device=model.device)

    for batch, _ in batches.batches():
        with preserved_random_state(0):
            model.returned(move_to(batch, model.device, model.dtype), noted)
        if lengths == [1]:
            break
    return lengths


def require_dependence(model: FrozenModel, batches: ObjectiveBatches, name: str) -> None:
    """Raise unless the objective depends on the parameters of the model that it is given."""
    batch = move_to(batches.first[0], model.device, model.dtype)
    leaves = {key: value.detach().requires_grad_() for key, value in model.named.items()}
    with torch.enable_grad():
        found = model.outputs(leaves, batch)
    reached = found.requires_grad and any(
        part is not None for part in torch.autograd.grad(found.sum(), list(leaves.values()), allow_unused=True)
    )
    if not reached:
        must = "the objective must depend on the parameters of the model that it is given"
        got = f"'{name}' does not: it uses another model, or detaches its result"
        raise InvalidInput(sentence(must, got, "Use the first argument of the objective: f(model, batch)"))


# How torch's losses of several outputs, or of targets that are no tensor, are called with both.
_CALLS: dict[type[nn.Module], Callable[[nn.Module, Any, Any], Tensor]] = {
    nn.TripletMarginLoss: lambda loss, outputs, _: loss(*outputs),
    nn.TripletMarginWithDistanceLoss: lambda loss, outputs, _: loss(*outputs),
    nn.CosineEmbeddingLoss: lambda loss, outputs, targets: loss(*outputs, targets),
    nn.MarginRankingLoss: lambda loss, outputs, targets: loss(*outputs, targets),
    nn.GaussianNLLLoss: lambda loss, outputs, targets: loss(outputs[0], targets, outputs[1]),
    nn.CTCLoss: lambda loss, outputs, targets: loss(outputs, *targets),
    nn.KLDivLoss: lambda loss, outputs, targets: loss(outputs, targets),
}


def structured_objective(
    model: nn.Module, loss: Any, data: Any, targets: Any, forward: Forward | None
) -> Objective | None:
    """The objective of a loss of structured outputs or targets; None where both are tensors, one row a sample.

    Losses of torch get outputs and targets where they take them; a function gets both as they are.
    """
    call = _CALLS.get(type(loss))
    if type(loss) is nn.KLDivLoss and loss.reduction != "batchmean":
        call = None
    is_function = callable(loss) and not isinstance(loss, nn.Module | type | Loss) and not is_torch_function(loss)
    if call is None and not (is_function and _is_structured(model, data, targets, forward)):
        return None

    def objective(given: nn.Module, batch: Any) -> Tensor:
        inputs, own = _parts(batch)
        outputs = _called(given, inputs, forward)
        found: Tensor = loss(outputs, own) if call is None else call(loss, outputs, own)
        return found

    objective.__name__ = str(getattr(loss, "__name__", type(loss).__name__))
    return objective


def _is_structured(model: nn.Module, data: Any, targets: Any, forward: Forward | None) -> bool:
    """Whether targets are no tensor, or the model returns something else than one."""
    if isinstance(data, Mapping | Iterator) and targets is None:
        return False  # a dictionary with its labels, or what can be read only once
    if targets is not None:
        batch: Any = (data, targets)
    elif isinstance(data, tuple):
        batch = data
    else:
        loader = DataLoader(data, batch_size=2) if isinstance(data, Dataset) else data
        is_batches = not isinstance(data, Tensor | np.ndarray) and hasattr(loader, "__iter__")
        batch = next(iterate_seeded(loader, 0), None) if is_batches else None
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        return False
    inputs, own = batch
    if not isinstance(own, Tensor | np.ndarray):
        return isinstance(own, Mapping | tuple | list) or is_dataclass(own)
    try:
        few = take_rows(with_tensors(inputs), slice(2))
        parameter = next(model.parameters())
        with torch.no_grad(), preserved_random_state(0):
            copied, _ = private_copy(model, parameter.dtype, parameter.device)
            outputs = _called(copied, move_to(few, parameter.device, parameter.dtype), forward)
    except Exception:  # a model that fails on its data is reported by the checks of the problem, with the reason
        return False
    return not isinstance(outputs, Tensor) and named_output(outputs, "logits") is None


def _parts(batch: Any) -> tuple[Any, Any]:
    """Inputs and targets of a batch; anything but a pair is inputs alone."""
    return (batch[0], batch[1]) if isinstance(batch, tuple | list) and len(batch) == 2 else (batch, None)


def _called(model: nn.Module, inputs: Any, forward: Forward | None) -> Any:
    if forward is not None:
        return forward(model, inputs)
    args, keywords = call_arguments(inputs)
    return model(*args, **keywords)


class LossObjective:
    """A loss of outputs and targets as an objective of whole batches, whose samples share the statistics of their batch
    or its random numbers: the batch's sum over its normaliser, the sum of what its samples count in the mean.

    Args:
        loss: The loss of outputs and targets.
        forward: How to call the model; None for a call with its inputs.
    """

    def __init__(self, loss: Loss, forward: Forward | None) -> None:
        self.loss, self.forward = loss, forward
        self.__name__ = loss.name

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        total, normaliser = self.sum_and_normaliser(model, batch)
        return total if self.loss.is_sum else total / normaliser

    def sum_and_normaliser(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The sum of the losses of a batch, and what it is divided by in a mean: labels that the loss ignores do not
        count, those of a class with a weight count with it."""
        inputs, targets = batch_pair(batch)
        outputs, _ = main_output(_called(model, inputs, self.forward))
        shape, count = tuple(outputs.shape[1:]), num_rows(inputs)
        own = self.loss.for_output_shape(shape, targets).to(outputs.dtype, outputs.device)
        flat = outputs.reshape(count, -1)
        prepared = prepared_targets(own, targets, flat.shape[1], outputs.dtype, outputs.device)
        return own.value(flat, prepared).sum(), own.target_weights(prepared).sum().to(outputs.dtype)


def loss_objective(loss: AnyLoss | None, forward: Forward | None, class_axis: int | None) -> LossObjective:
    """The objective of a loss on whole batches, for ``batch_norm="train"``, ``randomness="fixed"`` and models in place.

    Args:
        loss: A loss as ``Problem`` takes it.
        forward: How to call the model; None for a call with its inputs.
        class_axis: Axis of the classes, or None.

    Returns:
        LossObjective: The function ``(model, batch)``.
    """
    must = "batch_norm='train' and randomness='fixed' need a loss or an objective"
    require(loss is not None, must, "loss is None")
    return LossObjective(as_loss(loss, class_axis), forward)  # type: ignore[arg-type]


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
    note = (
        "the model's own loss was not recognised: the risk is its mean over the samples, "
        "and only the loss Hessian exists"
    )
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
