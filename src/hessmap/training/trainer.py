"""Training by mini-batch gradients, with a history, and checkpoints that resume bit for bit.

``TrainingState`` has everything that determines the next step, so that it can be saved and restored.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hessmap.datasets import Data
from hessmap.errors import checked_count, checked_number, checked_seed, require, unknown_name
from hessmap.losses import PerSample
from hessmap.records import TrainingRun, data_hash, provenance
from hessmap.training.checkpoints import Location, check_same_settings, content_of, load_checkpoint, save_checkpoint
from hessmap.training.modes import channels_last, threads, training_mode
from hessmap.training.objective import (
    Evaluation,
    History,
    Objective,
    ProgressUpdate,
    divergence_error,
    history_arrays,
    loss_name,
    objective,
)

Augmentation = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
OPTIMISERS: tuple[str, ...] = ("sgd", "adam")


class TrainingState:
    """The objective, the optimiser with its memory, the random order of samples, and the history so far."""

    def __init__(self, goal: Objective, settings: dict[str, Any], augmentation: Augmentation | None = None) -> None:
        self.goal = goal
        self.augmentation = augmentation
        self.settings = settings
        self.data_hash = data_hash(goal.inputs.numpy(), goal.targets.numpy())
        self.optimiser = _optimiser(goal, settings)
        self.order = torch.Generator().manual_seed(settings["seed"])
        self.epoch = 0
        self.history: History = []

    @property
    def batch_size(self) -> int:
        return int(self.settings["batch_size"] or self.goal.num_samples)

    @property
    def latest(self) -> Evaluation:
        return self.history[-1][1]

    def has_reached(self, accuracy: float | None) -> bool:
        return accuracy is not None and self.latest.accuracy is not None and self.latest.accuracy >= accuracy

    def record(self) -> Evaluation:
        """Evaluate the model on all samples and add it to the history."""
        evaluation = self.goal.evaluate()
        if not math.isfinite(evaluation.loss):
            raise divergence_error(evaluation.loss, f"epoch {self.epoch}", self._remedy)
        self.history.append((self.epoch, evaluation))
        return evaluation

    def run_epoch(self) -> None:
        """One pass over all samples in a new order, the last batch being the smaller one."""
        self._set_rate()
        chosen = torch.randperm(self.goal.num_samples, generator=self.order)
        for step, batch in enumerate(torch.split(chosen, self.batch_size), start=1):
            inputs, targets = self.goal.inputs[batch], self.goal.targets[batch]
            if self.augmentation is not None:
                inputs = self.augmentation(inputs, self.order)
            loss = self.goal.batch_loss(inputs, targets)
            if not math.isfinite(loss.item()):
                raise divergence_error(loss.item(), f"epoch {self.epoch + 1}, step {step}", self._remedy)
            self.optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimiser.step()
        self.optimiser.zero_grad()
        self.epoch += 1

    def _set_rate(self) -> None:
        has_dropped = self.epoch >= self.settings.get("drop_rate_after", math.inf)
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings["learning_rate"] * (0.1 if has_dropped else 1.0)

    def save(self, path: Location) -> None:
        save_checkpoint(
            path,
            {
                "identity": self._identity,
                "epoch": self.epoch,
                "model": self.goal.model.state_dict(),
                "optimiser": self.optimiser.state_dict(),
                "order": self.order.get_state(),
                "random_state": torch.get_rng_state(),
                "history": [(epoch, tuple(evaluation)) for epoch, evaluation in self.history],
            },
        )

    def restore(self, path: Location) -> None:
        """Take up the state of a checkpoint of the same training."""
        state = load_checkpoint(path)
        check_same_settings(path, state.get("identity"), self._identity)
        with content_of(path, "a training under way"):
            epoch = operator.index(state["epoch"])
            history = [(operator.index(at), Evaluation(*evaluation)) for at, evaluation in state["history"]]
            order, random_state = (torch.Generator().set_state(state[name]) for name in ("order", "random_state"))
            self.optimiser.load_state_dict(state["optimiser"])
            self.goal.model.load_state_dict(state["model"])
        self.epoch, self.history, self.order = epoch, history, order
        torch.set_rng_state(random_state.get_state())

    @property
    def _identity(self) -> dict[str, Any]:
        """What must agree for a checkpoint to be resumed; the number of epochs may differ."""
        shapes = [f"{name} {tuple(value.shape)} {value.dtype}" for name, value in self.goal.model.state_dict().items()]
        return {**self.settings, "data": self.data_hash, "model": "; ".join(shapes)}

    @property
    def _remedy(self) -> str:
        if self.epoch == 0 and not self.history:
            return "No step was made yet: look for NaN or infinite values in the data and the model"
        return f"Lower the learning rate, which is {self.settings['learning_rate']}, or scale the inputs"


def _optimiser(goal: Objective, settings: dict[str, Any]) -> torch.optim.Optimizer:
    name, rate, decay = settings["optimiser"], settings["learning_rate"], settings["weight_decay"]
    if name == "sgd":  # fused, it is a tenth quicker, and rounds otherwise: stored trainings would not come out again
        return torch.optim.SGD(goal.parameters, lr=rate, momentum=settings["momentum"], weight_decay=decay)
    if name == "adam":
        return torch.optim.Adam(goal.parameters, lr=rate, weight_decay=decay)
    raise unknown_name("optimiser", name, OPTIMISERS)


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
    progress: Callable[[ProgressUpdate], None] | None = None,
) -> TrainingRun:
    """Train a model in place and return its history.

    Minimises the mean loss + weight_decay / 2 * ||parameters||^2: the risk of a Problem with l2 = weight_decay / 2.
    Loss, accuracy and gradient norm over all samples are recorded before the first epoch and every ``record_every``
    epochs.

    Args:
        model: The model, which is changed. Its mode and the global random state are restored afterwards.
        data: Inputs and targets, as tensors.
        loss: "cross_entropy" (default), "squared" (1/2 ||output - target||^2, labels one-hot), "log_cosh", or a
            function (outputs, targets) -> one value per sample.
        optimiser: "sgd" (default) or "adam".
        epochs: Largest number of passes over the samples. Defaults to 100.
        batch_size: Samples in a step, or None for full batches. Defaults to 32.
        learning_rate: Step size. Defaults to 0.05.
        momentum: Momentum of "sgd"; "adam" ignores it. Defaults to 0.9.
        weight_decay: Coefficient of the penalty. Defaults to 0.
        drop_rate_after: Number of epochs after which the learning rate is divided by 10, since the noise of
            mini-batches at a large one prevents fitting every sample. Default: never.
        augmentation: Function of a batch of inputs and a generator, such as ``datasets.ImageAugmentation``, that
            changes the inputs of every batch. Records are of the original samples. Default: none.
        seed: Seed of the order of the samples, of dropout and of the augmentation. Defaults to 0.
        stop_at_accuracy: Stop once a record has this accuracy. Default: train for all epochs.
        record_every: Epochs between two records. Defaults to 1.
        num_threads: Threads of torch. Default: one for small models, otherwise unchanged.
        checkpoint: File to save the state in, every ``checkpoint_every`` epochs and at the end. If it exists, training
            resumes from it, bit for bit as if never interrupted. Default: none.
        checkpoint_every: Epochs between two checkpoints. Defaults to 10.
        progress: Called with a ``ProgressUpdate`` at every record after the first. Default: none.

    Returns:
        TrainingRun: The recorded epochs, losses, accuracies and gradient norms, why training ended, and the settings.

    Raises:
        InvalidInput: If an argument is out of range, the model or the data are not on the CPU, the data do not fit the
            model or the loss, or the checkpoint was made with other settings.
        DataFileError: If the checkpoint cannot be read.
        TrainingDiverged: If the loss becomes NaN or infinite.

    Example:
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
    _require_host(model, data)
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
                    progress(ProgressUpdate(state.epoch, epochs, evaluation))
            if checkpoint is not None and state.epoch % checkpoint_every == 0:
                state.save(checkpoint)
        if checkpoint is not None:
            state.save(checkpoint)
    return _result(state, stop_at_accuracy, time.perf_counter() - started)


def _require_host(model: object, data: object) -> None:
    """Data are hashed and batches are drawn on the CPU, where the threads and the memory format are chosen as well."""
    tensors = [*(model.parameters() if isinstance(model, nn.Module) else ())]
    tensors += [part for part in (data if isinstance(data, tuple) else ()) if isinstance(part, torch.Tensor)]
    others = [value.device for value in tensors if value.device.type != "cpu"]
    remedy = "Call model.cpu() and move the data, or train by a loop of your own and measure with hm.Problem"
    require(not others, "train needs a model and data on the CPU", f"got a tensor on {[*others, ''][0]}", remedy)


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
