"""A fit on disk: it goes on only from the same networks, samples and settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import nn

from hessmap.certificates.bases import GivenBases
from hessmap.certificates.fit import PosteriorFit
from hessmap.certificates.subject import Subject
from hessmap.results.provenance import data_hash
from hessmap.training.checkpoints import check_same_settings, load_checkpoint, save_checkpoint


def restored(fit: PosteriorFit, path: str | Path, basis: str | GivenBases, subject: Subject) -> Callable[[], None]:
    """Continue from the checkpoint, if it is there; the function that is returned writes it."""
    hashes = {"data": subject.certified.hash, "prior_data": subject.part.hash}
    weights = {"model": _weights_hash(subject.model), "initial_model": _weights_hash(subject.prior_model)}
    wanted = {**dataclasses.asdict(fit.settings), "basis": _basis_name(basis), **hashes, **weights}
    if Path(path).exists():
        state = load_checkpoint(path)
        check_same_settings(path, state.get("settings"), wanted)
        fit.restore(state["fit"])
    return lambda: save_checkpoint(path, {"settings": wanted, "fit": fit.state()})


def _basis_name(basis: str | GivenBases) -> str:
    if isinstance(basis, str):
        return basis
    parts = [np.asarray(part) for name in sorted(basis) for part in (name, *basis[name])]
    return f"given ({data_hash(*parts)})"


def _weights_hash(model: nn.Module) -> str:
    """The weights that a fit starts from, besides its settings."""
    return data_hash(*(parameter.detach().double().cpu().numpy() for parameter in model.parameters()))
