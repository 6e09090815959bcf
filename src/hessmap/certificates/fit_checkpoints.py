"""A fit on disk: it goes on only from the same networks, samples and settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from hessmap.certificates.bases import GivenBases
from hessmap.certificates.fit import PosteriorFit
from hessmap.certificates.posterior import LayerPosterior
from hessmap.certificates.subject import Subject
from hessmap.results.provenance import data_hash
from hessmap.training.checkpoints import check_same_settings, content_of, load_checkpoint, save_checkpoint


def restored(fit: PosteriorFit, path: str | Path, basis: str | GivenBases, subject: Subject) -> Callable[[], None]:
    """Continue from the checkpoint, if it is there; the function that is returned writes it."""
    hashes = {"data": subject.certified.hash, "prior_data": subject.part.hash}
    weights = {"model": _weights_hash(subject.model), "initial_model": _weights_hash(subject.prior_model)}
    wanted = {**dataclasses.asdict(fit.settings), "basis": _basis_name(basis), **hashes, **weights}
    if Path(path).exists():
        state = load_checkpoint(path)
        check_same_settings(path, state.get("settings"), wanted)
        with content_of(path, "a fit under way"):
            _restore(fit, state["fit"])
    return lambda: save_checkpoint(path, {"settings": wanted, "fit": _state(fit)})


def _state(fit: PosteriorFit) -> dict[str, Any]:
    """All that the rest of the fit depends on."""
    best = None
    if fit.best is not None:
        layers = {name: vars(layer).copy() for name, layer in fit.best[1].items()}
        best = {"bound": fit.best[0], "posterior": layers, "variance": fit.best[2]}
    return {
        "iteration": fit.iteration,
        "network": {name: vars(layer).copy() for name, layer in fit.network.posterior().items()},
        "log_prior_deviation": fit.log_prior_deviation.detach().clone(),
        "optimiser": fit.optimiser.state_dict(),
        "generator": fit.generator.get_state(),
        "recent": fit.objective.recent,
        "without_curvature": list(fit.without_curvature),
        "best": best,
    }


def _restore(fit: PosteriorFit, state: dict[str, Any]) -> None:
    fit.iteration = state["iteration"]
    fit.network.take({name: LayerPosterior(**layer) for name, layer in state["network"].items()})
    with torch.no_grad():
        fit.log_prior_deviation.copy_(state["log_prior_deviation"])
    fit.optimiser.load_state_dict(state["optimiser"])
    fit.generator.set_state(state["generator"])
    fit.objective.recent = list(state["recent"])
    fit.without_curvature = tuple(state.get("without_curvature", ()))
    if (best := state["best"]) is not None:
        layers = {name: LayerPosterior(**layer) for name, layer in best["posterior"].items()}
        fit.best = (best["bound"], layers, best["variance"])


def _basis_name(basis: str | GivenBases) -> str:
    if isinstance(basis, str):
        return basis
    parts = [np.asarray(part) for name in sorted(basis) for part in (name, *basis[name])]
    return f"given ({data_hash(*parts)})"


def _weights_hash(model: nn.Module) -> str:
    """The weights that a fit starts from, besides its settings."""
    return data_hash(*(parameter.detach().double().cpu().numpy() for parameter in model.parameters()))
