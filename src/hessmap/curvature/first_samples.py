"""What the first samples tell: whether model and loss can be differentiated, what leaves the model, the loss itself."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from hessmap.curvature.batch_formats import Pair
from hessmap.curvature.error_origin import fitting_inputs
from hessmap.curvature.frozen_model import FrozenModel
from hessmap.curvature.losses import Loss
from hessmap.curvature.model_copy import private_copy
from hessmap.curvature.model_loss_reading import read_model_loss
from hessmap.curvature.nested_tensors import Inputs, move_to, take_rows
from hessmap.curvature.operation_reader import OperationReader
from hessmap.curvature.probing import (
    changed_attribute,
    plain_attributes,
    require_function,
    require_no_memory,
    require_separate_losses,
    require_separate_rows,
)
from hessmap.curvature.weight_access import LossWeights, require_module_weights, require_unwritten
from hessmap.curvature.weighted_samples import prepared_targets

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem
    from hessmap.curvature.risk import Look

_FEW = 8
_MOST_SIZES = 16  # of batches that are asked whether samples see each other


class FirstSamples(NamedTuple):
    """The model as it is called from now on, its loss fitted to the shape of the outputs, and notes on both."""

    model: FrozenModel
    loss: Loss
    output_shape: tuple[int, ...]
    notes: tuple[str, ...]
    loss_weights: LossWeights


def checked_first_samples(model: FrozenModel, loss: Loss | None, first: Pair, original: nn.Module) -> FirstSamples:
    """Evaluate the first samples and refuse what cannot be differentiated; without a loss, read the model's own."""
    targets = first[1]
    inputs = move_to(first[0], model.device, model.dtype)
    notes: tuple[str, ...] = ()
    versions = [value._version for value in model.named.values()]
    attributes = plain_attributes(model.model)
    if loss is None:
        with fitting_inputs(inputs):
            loss, forward, note = read_model_loss(model.returned, inputs, targets)
        model = replace(model, forward=forward)
        notes = (note,)
    few = take_rows(inputs, slice(_FEW))
    require_unwritten(model.named, versions)
    with fitting_inputs(few):
        narrow, other = require_module_weights(
            lambda given: model.outputs(given, few), model.named, original, model.model
        )
    require_function(lambda few: model.outputs(model.named, few), inputs, narrow or model.dtype)
    if (changed := changed_attribute(model.model, attributes)) is not None:
        _require_no_memory(model, changed, original, few, narrow or model.dtype)
    outputs = model.outputs(model.named, inputs).detach()
    shape = tuple(outputs.shape[1:])
    fitted = loss.fitted(shape, targets).to(model.dtype, model.device)
    prepared = prepared_targets(fitted, targets, prod(shape), model.dtype, model.device)
    flat = outputs.reshape(len(outputs), -1)
    weights = LossWeights(fitted, original, model.named)
    with torch.enable_grad(), OperationReader(weights.read):
        losses = fitted.value(flat, prepared)
    weights.require_unused(losses)
    require_separate_losses(fitted, flat, prepared, losses.detach())
    found = (*notes, *other, *weights.notes)
    return FirstSamples(replace(model, narrowest=narrow), fitted, shape, found, weights)


def look_at_batches(problem: Problem, weights: LossWeights) -> Look:
    """What every batch of the first pass is asked: whether its loss uses weights of the model; and, once for every
    size, whether some of its samples have the same outputs and losses in a batch of their own."""
    seen: set[int] = set()

    def look(inputs: Inputs, targets: Tensor, outputs: Tensor, losses: Tensor) -> None:
        weights.require_unused(losses)
        if len(outputs) in seen or len(seen) == _MOST_SIZES:
            return
        seen.add(len(outputs))
        require_separate_rows(problem, (inputs, targets), outputs, losses.detach())

    return look


@torch.no_grad()
def _require_no_memory(
    model: FrozenModel, changed: str, original: nn.Module, few: Inputs, narrowest: torch.dtype
) -> None:
    """A model that keeps something gives with other weights what a fresh copy of it gives."""
    fresh = replace(model, model=private_copy(original, model.dtype, model.device)[0])
    moved = {name: 1.5 * value + 0.1 for name, value in model.named.items()}
    require_no_memory(changed, model.outputs(moved, few), fresh.outputs(moved, few), narrowest)
