"""Training inside studies: an architecture trained on data, from the model cache where it is there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hessmap.results import Record, data_hash
from hessmap.runs.model_cache import trained
from hessmap.studies.kept_samples import keep_samples

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data
    from hessmap.results.training import TrainingRun

RECIPE_VERSION = 1


class Architecture(Protocol):
    """A frozen description whose repr says everything about it."""

    def build(self, seed: int = 0, init: str = "gaussian") -> nn.Module: ...


class TrainedNetwork(NamedTuple):
    """A trained model and the course of its training."""

    model: nn.Module
    run: TrainingRun


def trained_network(
    architecture: Architecture,
    data: Data,
    *,
    seed: int = 0,
    init: str = "gaussian",
    checkpoint_every: int = 10,
    **training: Any,
) -> TrainedNetwork:
    """Build the architecture from ``seed`` and train it; ``training`` goes to `hessmap.training.train`.

    The same architecture, samples, seed and options are trained once for all studies and processes; a training that
    was killed goes on from its last checkpoint.
    """
    from hessmap.results.training import TrainingRun
    from hessmap.training import train

    def fit(checkpoints: Path) -> dict[str, Any]:
        model = architecture.build(seed=seed, init=init)
        path = checkpoints / "training.pt"
        run = train(model, data, seed=seed, checkpoint=path, checkpoint_every=checkpoint_every, **training)
        return {"parameters": model.state_dict(), "run": run.to_json()}

    settings: dict[str, Any] = {
        "recipe_version": RECIPE_VERSION,
        "architecture": repr(architecture),
        "data": data_hash(data.inputs.numpy(), data.targets.numpy()),
        "seed": seed,
        "init": init,
        **{f"training.{name}": value for name, value in training.items()},
    }
    kept = trained(settings, fit)
    keep_samples(settings["data"], data.inputs)
    model = architecture.build(seed=seed, init=init)
    model.load_state_dict(kept["parameters"])
    run = Record.from_json(kept["run"])
    assert isinstance(run, TrainingRun)
    return TrainedNetwork(model, run)
