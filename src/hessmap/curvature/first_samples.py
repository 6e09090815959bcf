"""What the first samples tell: whether model and loss can be differentiated, what leaves the model, the loss itself."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

from torch import nn

from hessmap.curvature.batch_formats import Pair
from hessmap.curvature.frozen_model import FrozenModel
from hessmap.curvature.losses import Loss
from hessmap.curvature.model_loss_reading import read_model_loss
from hessmap.curvature.nested_tensors import move_to, take_rows
from hessmap.curvature.probing import require_function, require_separate_losses
from hessmap.curvature.weight_access import require_module_weights, require_unwritten
from hessmap.curvature.weighted_samples import prepared_targets

_FEW = 8


class FirstSamples(NamedTuple):
    """The model as it is called from now on, its loss fitted to the shape of the outputs, and notes on both."""

    model: FrozenModel
    loss: Loss
    output_shape: tuple[int, ...]
    notes: tuple[str, ...]


def checked_first_samples(model: FrozenModel, loss: Loss | None, first: Pair, original: nn.Module) -> FirstSamples:
    """Evaluate the first samples and refuse what cannot be differentiated; without a loss, read the model's own."""
    targets = first[1]
    inputs = move_to(first[0], model.device, model.dtype)
    notes: tuple[str, ...] = ()
    versions = [value._version for value in model.named.values()]
    if loss is None:
        loss, forward, note = read_model_loss(model.returned, inputs, targets)
        model = replace(model, forward=forward)
        notes = (note,)
    few = take_rows(inputs, slice(_FEW))
    require_unwritten(model.named, versions)
    narrow, other = require_module_weights(lambda given: model.outputs(given, few), model.named, original, model.model)
    require_function(lambda few: model.outputs(model.named, few), inputs, narrow or model.dtype)
    outputs = model.outputs(model.named, inputs).detach()
    shape = tuple(outputs.shape[1:])
    fitted = loss.fitted(shape, targets).to(model.dtype, model.device)
    prepared = prepared_targets(fitted, targets, prod(shape), model.dtype, model.device)
    require_separate_losses(fitted, outputs.reshape(len(outputs), -1), prepared)
    return FirstSamples(model, fitted, shape, (*notes, *other))
