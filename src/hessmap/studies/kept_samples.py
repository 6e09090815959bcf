"""Some samples of every data set that models were trained on, kept beside the models by the hash of the data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hessmap.runs.model_cache import models_folder

if TYPE_CHECKING:
    from torch import Tensor

NUM_KEPT = 300


def keep_samples(data_hash: str, inputs: Tensor) -> None:
    """Keep the first inputs of the data with this hash, once."""
    import torch

    path = _path(data_hash)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}.new")
        torch.save(inputs[:NUM_KEPT].detach().clone(), fresh)
        fresh.replace(path)


def kept_samples(data_hash: str) -> Tensor | None:
    """The inputs that were kept of the data with this hash, or None."""
    import torch

    path = _path(data_hash)
    if not path.exists():
        return None
    found: Tensor = torch.load(path, weights_only=True)
    return found


def _path(data_hash: str) -> Path:
    return models_folder() / "samples" / f"{data_hash}.pt"
