"""The trained networks that studies have left in the model cache, built again from what is written beside them."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hessmap.errors import HessmapError
from hessmap.runs.model_cache import models_folder
from hessmap.studies.kept_samples import kept_samples

if TYPE_CHECKING:
    from torch import Tensor, nn

Family = Literal["fully connected", "convolutional", "zoo", "penalised"]
FAMILIES: tuple[Family, ...] = ("fully connected", "convolutional", "zoo", "penalised")
_FAMILY_OF: dict[str, Family] = {
    "FullyConnected": "fully connected", "Convolutional": "convolutional", "LocallyConnected": "convolutional",
    "ZooNetwork": "zoo",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class CachedNetwork:
    """A trained model with some of its training inputs; ``key`` is its folder in the cache."""

    key: str
    family: Family
    architecture: str
    seed: int
    model: nn.Module
    inputs: Tensor


def cached_networks(family: Family) -> Iterator[CachedNetwork | None]:
    """The networks of a family, in the order of their keys; None for one that cannot be built again."""
    for path in sorted(models_folder().glob("*/settings.json")):
        settings = json.loads(path.read_text())["settings"]
        if family_of(settings) == family:
            yield _rebuilt(path.parent, family, settings)


def family_of(settings: dict[str, Any]) -> Family | None:
    """By the architecture's name; networks trained with an l2 penalty on all parameters are a family of their own.

    >>> family_of({"architecture": "FullyConnected(widths=(2, 3))"})
    'fully connected'
    """
    kind = _FAMILY_OF.get(str(settings.get("architecture", "")).partition("(")[0])
    return "penalised" if kind and "ridge" in settings else kind


def _rebuilt(place: Path, family: Family, settings: dict[str, Any]) -> CachedNetwork | None:
    import torch

    inputs = kept_samples(settings["data"])
    if inputs is None:
        return None
    text, seed = settings["architecture"], int(settings["seed"])
    kept = torch.load(place / "model.pt", weights_only=True)
    try:
        model = _built(text, seed)
        model.load_state_dict(kept["parameters"])
    except (HessmapError, KeyError, TypeError, RuntimeError):  # of another version, or another record
        return None
    return CachedNetwork(place.name, family, text, seed, model.double().eval(), inputs.double())


def _built(text: str, seed: int) -> nn.Module:
    """The model of an architecture that is written as a call with plain values."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    given = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    if call.func.id == "ZooNetwork":
        from hessmap.studies.layers.trained_layers import ZooNetwork

        return ZooNetwork(**given).build(seed=seed)
    from hessmap import networks

    built: nn.Module = getattr(networks, call.func.id)(**given).build(seed=seed)
    return built
