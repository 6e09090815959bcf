"""A training under way: all that decides its next step, so that it can be saved and taken up again."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from hessmap.errors import unknown_name
from hessmap.records.provenance import data_hash
from hessmap.training.checkpoints import Location, check_same_settings, content_of, load_checkpoint, save_checkpoint
from hessmap.training.objective import Evaluation, History, Objective, divergence_error

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
        """What must be the same for a training to be the same, but for its length."""
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
