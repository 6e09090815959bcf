"""Training by gradients of batches, with a history, and checkpoints from which it goes on to the same bits."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from pathlib import Path

import torch
from torch import nn

from hessmap.datasets.data import Data
from hessmap.errors import checked_count, checked_number, checked_seed, require
from hessmap.records.provenance import provenance
from hessmap.records.training import TrainingRun
from hessmap.training.checkpoints import Location
from hessmap.training.losses import PerSample, loss_name
from hessmap.training.modes import channels_last, threads, training_mode
from hessmap.training.objective import Moment, history_arrays, objective
from hessmap.training.training_state import Augmentation, TrainingState


def train(
    model: nn.Module,
    data: Data | tuple[torch.Tensor, torch.Tensor],
    loss: str | PerSample = "cross_entropy",
    *,
    optimiser: str = "sgd",
    epochs: int = 100,
    batch_size: int | None = 32,
    learning_rate: float = 0.05,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    drop_rate_after: int | None = None,
    augmentation: Augmentation | None = None,
    seed: int = 0,
    stop_at_accuracy: float | None = None,
    record_every: int = 1,
    num_threads: int | None = None,
    checkpoint: Location | None = None,
    checkpoint_every: int = 10,
    progress: Callable[[Moment], None] | None = None,
) -> TrainingRun:
    """Train the model that is given, in place, and return its history.

    Minimised is the mean loss + weight_decay / 2 * ||parameters||^2 (a Problem with l2 = weight_decay / 2 has
    the same risk), by "sgd" with momentum or by "adam", which has no use for ``momentum``; ``batch_size`` None
    means full batches. ``loss`` is "cross_entropy", "squared" (1/2 ||output - target||^2, labels one-hot),
    "log_cosh" or a function (outputs, targets) -> one value per sample. Every epoch draws a new order of the
    samples from ``seed``. After ``drop_rate_after`` epochs the learning rate is a tenth: the noise of batches keeps
    a large one from fitting every sample. ``augmentation``, a function of a batch of inputs and a generator such as
    ``datasets.ImageAugmentation``, changes the inputs of every batch; what is recorded is of the samples as they are.
    The global random state and the model's mode stay as they were.

    Loss, accuracy and gradient norm over all samples are recorded before the first epoch, then every
    ``record_every`` epochs. Training ends after ``epochs``, or once a record reaches ``stop_at_accuracy``. With
    a ``checkpoint`` path the state is saved every ``checkpoint_every`` epochs and at the end; if the file is
    there, training goes on from it and ends with the same bits as one that was never interrupted.
    ``num_threads`` None means one thread for small models.

    >>> from hessmap.datasets import gaussian_mixture
    >>> from hessmap.networks import FullyConnected
    >>> model = FullyConnected((4, 8, 2), activation="relu").build(seed=0)
    >>> run = train(model, gaussian_mixture(200, 4, num_classes=2, separation=4.0), epochs=20)
    >>> run.final_accuracy > 0.95, run.ending
    (True, '20 epochs done')
    """
    checked_count("epochs", epochs, 0)
    _check_positive(batch_size=batch_size, record_every=record_every, checkpoint_every=checkpoint_every)
    _check_positive(drop_rate_after=drop_rate_after)
    rate = checked_number("learning_rate", learning_rate)
    require(rate > 0, "learning_rate must be positive", f"got {rate}")
    for name, number in {"momentum": momentum, "weight_decay": weight_decay}.items():
        require(0 <= checked_number(name, number) < inf, f"{name} must be finite and not negative", f"got {number}")
    goal = objective(model, data, loss, weight_decay)
    settings = {
        "loss": loss_name(loss),
        "optimiser": optimiser,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "weight_decay": weight_decay,
        "seed": checked_seed(seed),
    }
    if drop_rate_after is not None:
        settings["drop_rate_after"] = drop_rate_after
    if augmentation is not None:
        settings["augmentation"] = repr(augmentation)
    state = TrainingState(goal, settings, augmentation)
    started = time.perf_counter()
    num_multiplications = state.batch_size * goal.num_parameters
    with threads(num_threads, num_multiplications), training_mode(model, seed), channels_last(model):
        if checkpoint is not None and Path(checkpoint).exists():
            state.restore(checkpoint)
        else:
            state.record()
        while state.epoch < epochs and not state.has_reached(stop_at_accuracy):
            state.run_epoch()
            if state.epoch % record_every == 0 or state.epoch == epochs:
                evaluation = state.record()
                if progress is not None:
                    progress(Moment(state.epoch, epochs, evaluation))
            if checkpoint is not None and state.epoch % checkpoint_every == 0:
                state.save(checkpoint)
        if checkpoint is not None:
            state.save(checkpoint)
    return _result(state, stop_at_accuracy, time.perf_counter() - started)


def _result(state: TrainingState, stop_at_accuracy: float | None, seconds: float) -> TrainingRun:
    reached = state.has_reached(stop_at_accuracy)
    ending = (
        f"accuracy {stop_at_accuracy} reached after {state.epoch} epochs" if reached else f"{state.epoch} epochs done"
    )
    return TrainingRun(
        **history_arrays(state.history),
        converged=None if stop_at_accuracy is None else reached,
        ending=ending,
        settings=state.settings,
        seconds=seconds,
        provenance=provenance(str(state.goal.inputs.dtype), state.settings["seed"], state.data_hash),
    )


def _check_positive(**counts: int | None) -> None:
    for name, count in counts.items():
        if count is not None:
            checked_count(name, count)
