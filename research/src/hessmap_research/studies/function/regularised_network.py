"""Networks trained with an l2 penalty on all parameters, from the model cache where they are there.

Minimised is mean ||f(x) - y||^2 (or the mean cross-entropy) + ridge ||parameters||^2: ReLU, He initialisation, zero
biases, full batches in float32 on one thread, a step size that rises linearly for 100 steps and then falls along a
cosine to 2 % of ``learning_rate``. With ``first_penalty`` above 1 the penalty starts that much stronger.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import cos, isfinite, pi
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hessmap.errors import require, unknown_name
from hessmap.records import data_hash
from hessmap_research.runner.model_cache import cached_model
from hessmap_research.studies.trained_networks import described, store_samples

if TYPE_CHECKING:
    import torch
    from torch import nn

    from hessmap.datasets import Data
    from hessmap_research.studies.function.relu_objective import ReluDescent

RECIPE_VERSION = 1
WARM_UP = 100
LAST_SHARE = 0.02
CHECKPOINT_EVERY = 2000
Loss = Literal["squared", "cross_entropy"]


class RegularisedNetwork(NamedTuple):
    """A trained model in float64, and where its training ended.

    ``risk`` is the mean loss without penalty, ``squared_norm`` that of all parameters, ``gradient_norm`` that of the
    whole objective, ``objectives`` the objective before each tenth of the steps and at the end.
    """

    model: nn.Sequential
    risk: float
    squared_norm: float
    gradient_norm: float
    objectives: tuple[float, ...]


def regularised_network(
    widths: Sequence[int],
    data: Data,
    *,
    ridge: float,
    learning_rate: float,
    num_steps: int,
    loss: Loss = "squared",
    bias_ridge: float | None = None,
    optimiser: Literal["adam", "gd"] = "adam",
    seed: int = 0,
    start: nn.Sequential | None = None,
    first_penalty: float = 1.0,
) -> RegularisedNetwork:
    """Train a ReLU network of these widths, or from a ``start``; ``bias_ridge`` None penalises biases as weights.

    The norm of a deep network falls slowly once the data are fitted. A penalty that is ``first_penalty`` times as
    strong at first, and falls to its own strength in a third of the steps, makes the network small before it fits.
    The same widths, samples, seed and options are trained once for all studies and processes; a training that was
    killed goes on from its last checkpoint to the same bits.
    """
    from hessmap.networks import FullyConnected

    require(loss in ("squared", "cross_entropy"), "loss must be 'squared' or 'cross_entropy'", f"got {loss!r}")
    if optimiser not in ("adam", "gd"):
        raise unknown_name("optimiser", optimiser, ("adam", "gd"))
    architecture = FullyConnected(widths, bias=True, activation="relu")
    settings: dict[str, Any] = {
        "recipe": "l2 on all parameters",
        "recipe_version": RECIPE_VERSION,
        "architecture": repr(architecture),
        "data": data_hash(data.inputs.numpy(), data.targets.numpy()),
        "loss": loss,
        "ridge": ridge,
        "bias_ridge": ridge if bias_ridge is None else bias_ridge,
        "optimiser": optimiser,
        "learning_rate": learning_rate,
        "num_steps": num_steps,
        "seed": seed,
    }
    if first_penalty != 1:
        settings["first_penalty"] = first_penalty
    model = architecture.build(seed=seed, init="kaiming")
    _zero_biases(model)
    if start is not None:
        model.load_state_dict(start.state_dict())
        settings["start"] = data_hash(*(part.detach().numpy() for part in model.parameters()))
    stored = cached_model(
        settings, lambda checkpoints: _train(model, data, settings, checkpoints), described(architecture)
    )
    store_samples(settings["data"], data.inputs)
    model.load_state_dict(stored["parameters"])
    objectives = tuple(stored["objectives"])
    return RegularisedNetwork(model, stored["risk"], stored["squared_norm"], stored["gradient_norm"], objectives)


def share_of_step(step: int, num_steps: int) -> float:
    """The step size over the largest one: a linear rise, then half a cosine down to ``LAST_SHARE``.

    >>> [share_of_step(step, 1100) for step in (0, 99, 100)], round(share_of_step(1100, 1100), 12)
    ([0.01, 1.0, 1.0], 0.02)
    """
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    passed = (step - WARM_UP) / max(1, num_steps - WARM_UP)
    return LAST_SHARE + (1 - LAST_SHARE) * (1 + cos(pi * passed)) / 2


def share_of_penalty(step: int, num_steps: int, first: float) -> float:
    """The penalty over the one that is meant: a geometric fall from ``first`` to 1 in a third of the steps.

    >>> [round(share_of_penalty(step, 3000, 100.0), 12) for step in (0, 500, 1000, 2000)]
    [100.0, 10.0, 1.0, 1.0]
    """
    return float(first ** max(0.0, 1 - 3 * step / num_steps))


def _train(model: nn.Sequential, data: Data, settings: dict[str, Any], checkpoints: Path) -> dict[str, Any]:
    from hessmap.training import load_checkpoint, save_checkpoint
    from hessmap_research.studies.function.relu_objective import ReluDescent

    descent = ReluDescent(model, *data, settings["loss"])
    optimiser = _optimiser(descent, settings)
    num_steps, path = settings["num_steps"], checkpoints / "training.pt"
    step, objectives = 0, list[float]()
    if path.exists():
        state = load_checkpoint(path)
        step, objectives = state["step"], state["objectives"]
        descent.weights.copy_(state["weights"])
        descent.biases.copy_(state["biases"])
        optimiser.load_state_dict(state["optimiser"])
    with small_numbers_as_zeros():
        while step < num_steps:
            if step % max(1, num_steps // 10) == 0:
                objectives.append(_place(descent, model, data, settings)["objective"])
            penalty = share_of_penalty(step, num_steps, settings.get("first_penalty", 1.0))
            for group, ridge in zip(optimiser.param_groups, ("ridge", "bias_ridge"), strict=True):
                group["lr"] = settings["learning_rate"] * share_of_step(step, num_steps)
                group["weight_decay"] = 2 * settings[ridge] * penalty
            descent.set_gradients()
            optimiser.step()
            step += 1
            if step % CHECKPOINT_EVERY == 0:
                state = {"weights": descent.weights, "biases": descent.biases, "optimiser": optimiser.state_dict()}
                save_checkpoint(path, {**state, "step": step, "objectives": objectives})
        place = _place(descent, model, data, settings)
    return {"parameters": model.state_dict(), **place, "objectives": [*objectives, place["objective"]]}


def _zero_biases(model: nn.Sequential) -> None:
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.data.zero_()


@contextmanager
def small_numbers_as_zeros() -> Iterator[None]:
    """One thread, and zeros for numbers below 1e-38, which are slow and to which penalties drive unused weights."""
    import torch

    from hessmap.training.modes import threads

    with threads(1, num_multiplications=0):
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(False)


def _optimiser(descent: ReluDescent, settings: dict[str, Any]) -> torch.optim.Optimizer:
    """Adam or gradient descent in which the penalty is part of the gradient: its own is 2 ridge * parameter."""
    import torch

    groups = [
        {"params": [descent.weights], "weight_decay": 2 * settings["ridge"]},
        {"params": [descent.biases], "weight_decay": 2 * settings["bias_ridge"]},
    ]
    if settings["optimiser"] == "adam":
        return torch.optim.Adam(groups, lr=settings["learning_rate"], fused=True)
    return torch.optim.SGD(groups, lr=settings["learning_rate"])


def _place(descent: ReluDescent, model: nn.Sequential, data: Data, settings: dict[str, Any]) -> dict[str, float]:
    """Risk, squared norm, objective and its gradient norm, in float64; the parameters are written to the model."""
    import torch

    from hessmap.training import fitting_targets, per_sample
    from hessmap.training.objective import divergence_error

    descent.write_to(model)
    outputs = model(data.inputs.double())
    targets = fitting_targets(settings["loss"], data.targets, outputs)
    factor = 2 if settings["loss"] == "squared" else 1
    risk = factor * per_sample(settings["loss"])(outputs, targets).mean()
    weights, biases = (
        torch.stack([part.square().sum() for part in model.parameters() if part.ndim == ndim]).sum() for ndim in (2, 1)
    )
    objective = risk + settings["ridge"] * weights + settings["bias_ridge"] * biases
    if not isfinite(objective.item()):
        raise divergence_error(objective.item(), "a regularised training", "Lower the learning rate")
    gradient = torch.autograd.grad(objective, list(model.parameters()))
    return {
        "risk": risk.item(),
        "squared_norm": (weights + biases).item(),
        "objective": objective.item(),
        "gradient_norm": torch.stack([part.norm() for part in gradient]).norm().item(),
    }
