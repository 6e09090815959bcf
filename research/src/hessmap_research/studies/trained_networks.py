"""Networks that studies train: each once for all studies, found again in the model cache, with some of its samples.

Beside the models, ``samples/`` holds the first inputs of every data set that something was trained on, by the hash of
the data: a stored model can be built again and asked without the study that trained it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from hessmap.errors import HessmapError
from hessmap.records import Record, atomic_write, data_hash
from hessmap_research.runner.model_cache import cached_model, model_key, models_folder

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hessmap.datasets import Data
    from hessmap.records import TrainingRun

RECIPE_VERSION = 1
NUM_STORED_SAMPLES = 300
Family = Literal["fully connected", "convolutional", "zoo", "penalised"]
FAMILIES: tuple[Family, ...] = ("fully connected", "convolutional", "zoo", "penalised")


class Architecture(Protocol):
    """A frozen description of a network: one of `hessmap.networks`, which `parse_network` reads back, or of the zoo."""

    def build(self, seed: int = 0, init: str = "gaussian") -> nn.Module: ...


class TrainedNetwork(NamedTuple):
    """A trained model and the history of its training."""

    model: nn.Module
    run: TrainingRun


def trained_network(
    architecture: Architecture,
    data: Data,
    *,
    seed: int = 0,
    init: str = "gaussian",
    checkpoint_every: int = 10,
    keep_state: bool = False,
    **training: Any,
) -> TrainedNetwork:
    """Build the architecture from ``seed`` and train it; ``training`` goes to `hessmap.training.train`.

    The same architecture, samples, seed and options are trained once for all studies and processes; a training that
    was killed goes on from its last checkpoint. With ``keep_state`` its last state stays beside the models, and a
    longer training by the same options goes on from there, to the same bits.
    """
    from hessmap.records import TrainingRun
    from hessmap.training import train

    def fit(checkpoints: Path) -> dict[str, Any]:
        model = architecture.build(seed=seed, init=init)
        path = checkpoints / "training.pt"
        if keep_state and not path.exists() and (shorter := _longest_state(settings)) is not None:
            _copy(shorter, path)
        run = train(model, data, seed=seed, checkpoint=path, checkpoint_every=checkpoint_every, **training)
        if keep_state:
            _copy(path, states_folder(settings) / f"{run.moments[-1]}.pt")
        return {"parameters": model.state_dict(), "run": run.to_json()}

    settings: dict[str, Any] = {
        "recipe_version": RECIPE_VERSION,
        "architecture": repr(architecture),
        "data": data_hash(data.inputs.numpy(), data.targets.numpy()),
        "seed": seed,
        "init": init,
        **{f"training.{name}": repr(value) if callable(value) else value for name, value in training.items()},
    }
    stored = cached_model(settings, fit, described(architecture))
    store_samples(settings["data"], data.inputs)
    model = architecture.build(seed=seed, init=init)
    model.load_state_dict(stored["parameters"])
    run = Record.from_json(stored["run"])
    assert isinstance(run, TrainingRun)
    return TrainedNetwork(model, run)


def states_folder(settings: dict[str, Any]) -> Path:
    """Where the last states of trainings are kept that differ in their length alone, by epochs."""
    of_length = ("training.epochs", "training.record_every")
    return models_folder() / "states" / model_key({name: settings[name] for name in settings if name not in of_length})


def _longest_state(settings: dict[str, Any]) -> Path | None:
    """The kept state from which the fewest epochs are left."""
    epochs = [int(path.stem) for path in states_folder(settings).glob("*.pt")]
    shorter = [number for number in epochs if number <= settings["training.epochs"]]
    return states_folder(settings) / f"{max(shorter)}.pt" if shorter else None


def _copy(source: Path, target: Path) -> None:
    """Copy a file so that the target is never a part of it."""
    with source.open("rb") as whole, atomic_write(target) as file:
        shutil.copyfileobj(whole, file)


def store_samples(key: str, inputs: Tensor) -> None:
    """Store the first inputs of the data with this hash, once."""
    import torch

    path = _samples_path(key)
    if not path.exists():
        with atomic_write(path) as file:
            torch.save(inputs[:NUM_STORED_SAMPLES].detach().clone(), file)


def _stored_samples(key: str) -> Tensor | None:
    """The inputs that were stored of the data with this hash, or None."""
    import torch

    path = _samples_path(key)
    if not path.exists():
        return None
    found: Tensor = torch.load(path, map_location="cpu", weights_only=True)
    return found


def _samples_path(key: str) -> Path:
    return models_folder() / "samples" / f"{key}.pt"


@dataclass(frozen=True, eq=False)
class StoredNetwork:
    """A trained model with some of its training inputs; ``key`` is its folder in the cache."""

    key: str
    family: Family
    architecture: str
    seed: int
    model: nn.Module
    inputs: Tensor


def described(architecture: Architecture) -> dict[str, Any]:
    """An architecture in JSON, as ``architecture_of`` reads it back.

    >>> from hessmap.networks import FullyConnected
    >>> described(FullyConnected((64, 30, 10), activation="relu"))
    {'network': '64-30-10 relu'}
    """
    from hessmap_research.studies.layers.trained_layers import ZooNetwork

    if isinstance(architecture, ZooNetwork):
        return {"zoo": asdict(architecture)}
    return {"network": str(architecture)}


def architecture_of(description: Mapping[str, Any]) -> Architecture:
    """The architecture that ``described`` describes."""
    from hessmap.networks import parse_network
    from hessmap_research.studies.layers.trained_layers import ZooNetwork

    if "zoo" in description:
        fields = description["zoo"]
        return ZooNetwork(**{**fields, "image_shape": tuple(fields["image_shape"])})
    return parse_network(description["network"])


def stored_networks(family: Family) -> Iterator[StoredNetwork | None]:
    """The networks of a family, in the order of their keys; None for one that cannot be built again."""
    for path in sorted(models_folder().glob("*/settings.json")):
        about = json.loads(path.read_text())
        if "network" in about:
            architecture = architecture_of(about["network"])
            if family_of(architecture, about["settings"]) == family:
                yield _rebuild(path.parent, family, architecture, about["settings"])


def family_of(architecture: Architecture, settings: Mapping[str, Any]) -> Family | None:
    """By the kind of network; networks trained with an l2 penalty on all parameters are a family of their own.

    >>> from hessmap.networks import FullyConnected
    >>> family_of(FullyConnected((2, 3)), {}), family_of(FullyConnected((2, 3)), {"ridge": 0.1})
    ('fully connected', 'penalised')
    """
    from hessmap.networks import Convolutional, FullyConnected, LocallyConnected
    from hessmap_research.studies.layers.trained_layers import ZooNetwork

    if "ridge" in settings:
        return "penalised"
    kinds: dict[Family, tuple[type, ...]] = {
        "fully connected": (FullyConnected,),
        "convolutional": (Convolutional, LocallyConnected),
        "zoo": (ZooNetwork,),
    }
    return next((family for family, types in kinds.items() if isinstance(architecture, types)), None)


def _rebuild(
    place: Path, family: Family, architecture: Architecture, settings: Mapping[str, Any]
) -> StoredNetwork | None:
    import torch

    inputs = _stored_samples(settings["data"])
    if inputs is None:
        return None
    seed = int(settings["seed"])
    stored = torch.load(place / "model.pt", map_location="cpu", weights_only=True)
    try:
        model = architecture.build(seed=seed)
        model.load_state_dict(stored["parameters"])
    except (HessmapError, KeyError, TypeError, RuntimeError):  # of another version, or another record
        return None
    return StoredNetwork(place.name, family, str(architecture), seed, model.double().eval(), inputs.double())
