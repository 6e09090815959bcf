"""One call from a trained network and the weights it started from to a certificate."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from hessmap.certificates.bases import GivenBases
from hessmap.certificates.certificate import Certificate
from hessmap.certificates.draws import Draws, classification_error
from hessmap.certificates.fit import PosteriorFit
from hessmap.certificates.fit_settings import FitMoment, FitSettings, Objective
from hessmap.certificates.inputs import checked_data, checked_pair, doubts_about_prior
from hessmap.certificates.posterior import best_grid_point, posterior_arrays
from hessmap.datasets.data import Data
from hessmap.errors import checked_count
from hessmap.results.provenance import data_hash, provenance
from hessmap.theory.pac_bayes import PriorGrid, binary_kl_inverse, confidence_of, sampled_error_bound
from hessmap.training.checkpoints import check_same_settings, load_checkpoint, save_checkpoint

ASSUMPTIONS = (
    "the samples are independent draws from the law of the unseen data",
    "the initial weights, the grid of prior variances and both deltas were chosen without looking at the samples",
    "the promise is about the stochastic network, which draws weights for every answer, not about the mean weights",
)


def certify(
    model: nn.Module,
    initial_model: nn.Module | None,
    data: Data | tuple[Any, Any] | DataLoader[Any],
    basis: str | GivenBases = "iterative",
    *,
    test_data: Data | tuple[Any, Any] | DataLoader[Any] | None = None,
    delta: float = 0.025,
    sampling_delta: float = 0.01,
    grid: PriorGrid | None = None,
    num_draws: int | None = None,
    iterations: int = 6000,
    objective: Objective = "bound",
    batch_size: int = 128,
    learning_rate: float = 3e-3,
    deviation_learning_rate: float = 1e-2,
    refresh_every: int = 400,
    basis_samples: int = 2000,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    progress: Callable[[FitMoment], None] | None = None,
    progress_every: int = 200,
) -> Certificate:
    """Bound the error of a network on unseen data by PAC-Bayes, in a basis of its curvature.

    ``initial_model`` holds the weights that training started from; they are the centre of the prior and must not depend
    on the data. ``basis`` is "standard", "approximate" (curvature once, at the trained weights), "iterative" (again
    every ``refresh_every`` iterations), "iterative_decay" (more rarely as the steps shrink), "iterative_weights" and
    "iterative_activity" (the curvature of outputs from the weights behind them, for fully connected networks), or a
    mapping from layer names to pairs of orthonormal matrices (outputs, inputs). Parameters outside of linear and
    convolutional layers, and layers whose curvature is not known, stay in their own coordinates (``notes`` names them).
    ``data`` is a pair of tensors or arrays or a loader, with labels 0 .. K - 1 as targets. Networks are evaluated as in
    use: without dropout. ``objective`` is "bound", which follows the slope of the certified bound, or "pinsker", that
    of the papers. ``grid`` holds the prior variances, fixed before the samples were seen.

    The error on the samples is bounded from ``num_draws`` draws: of pairs of weights and samples (100,000 by default)
    where every weight is used by one call of its own linear or convolutional layer, of whole networks (10,000)
    elsewhere. So attention, normalisation, embeddings and shared weights have certificates; batch-norm needs
    statistics that were frozen before the samples were seen.

    Ctrl-C ends the fit and certifies the best posterior so far. With a ``checkpoint`` path the fit is stored as it goes
    and continues from there. Neither model is changed.

    >>> import hessmap as hm
    >>> data = hm.datasets.gaussian_mixture(300, 4, num_classes=2, separation=6.0)
    >>> initial = hm.FullyConnected((4, 6, 2), bias=True, activation="relu").build(seed=0)
    >>> trained = hm.FullyConnected((4, 6, 2), bias=True, activation="relu").build(seed=0)
    >>> run = hm.train(trained, data, epochs=5)
    >>> certificate = certify(trained, initial, data, iterations=300, num_draws=5_000)
    >>> round(certificate.confidence, 3), certificate.sampled_error < certificate.bound < 0.5
    (0.965, True)
    """
    started = time.perf_counter()
    confidence = confidence_of(delta, sampling_delta)
    if num_draws is not None:
        checked_count("num_draws", num_draws)
    settings = FitSettings(
        iterations=iterations,
        objective=objective,
        batch_size=batch_size,
        learning_rate=learning_rate,
        deviation_learning_rate=deviation_learning_rate,
        refresh_every=refresh_every,
        basis_samples=basis_samples,
        delta=delta,
        grid=PriorGrid() if grid is None else grid,
        seed=seed,
        progress_every=progress_every,
    )
    with torch.inference_mode(False):
        model, initial_model, uncompared = checked_pair(model, initial_model)
        given = checked_data(model, data, "data")
        tests = None if test_data is None else checked_data(model, test_data, "test_data", at_least=1).samples
        fit = PosteriorFit(model, initial_model, given.samples, basis, settings)
        keep = None
        if checkpoint is not None:
            weights = _hashes(model=model, initial_model=initial_model)
            keep = _restored(fit, checkpoint, {"basis": _basis_name(basis), "data": given.hash, **weights})
        ending = fit.run(progress, keep)
        assert fit.best is not None
        _, posterior, variance = fit.best
        fit.network.take(posterior)
        count = len(given.samples.inputs)
        indices = settings.grid.indices_near(variance)
        point = best_grid_point(posterior, fit.prior, indices, count, settings.grid, delta)
        drawn = fit.sampler.draws(given.samples, num_draws, seed + 1)
        error_bound = sampled_error_bound(drawn.num_errors, drawn.num_draws, sampling_delta, drawn.samples_per_draw)
        centre = fit.network.mean_model()
        arrays = posterior_arrays(posterior, fit.prior)
        return Certificate(
            bound=binary_kl_inverse(error_bound, point.complexity),
            confidence=confidence,
            delta=delta,
            sampling_delta=sampling_delta,
            kl=point.kl,
            complexity=point.complexity,
            sampled_error=drawn.error,
            sampled_error_bound=error_bound,
            num_draws=drawn.num_draws,
            grid_index=point.index,
            prior_variance=point.variance,
            num_samples=count,
            num_parameters=sum(layer.means.numel() for layer in posterior.values()),
            basis=basis if isinstance(basis, str) else "given",
            training_error=classification_error(centre, given.samples),
            test_error=None if tests is None else classification_error(centre, tests),
            stochastic_test_error=None if tests is None else fit.sampler.error_of_each(tests),
            assumptions=ASSUMPTIONS,
            doubts=(*doubts_about_prior(model, initial_model, given.samples), *uncompared, *fit.sampler.doubts),
            settings=dataclasses.asdict(settings),
            ending=ending,
            data_hash=given.hash,
            posterior_hash=data_hash(*arrays.values()),
            seconds=time.perf_counter() - started,
            provenance=provenance("float32", seed),
            posterior=arrays,
            draws=drawn.kind,
            samples_per_draw=drawn.samples_per_draw,
            notes=_notes(fit, drawn),
        )


def _notes(fit: PosteriorFit, drawn: Draws) -> tuple[str, ...]:
    found = []
    if drawn.kind == "networks":
        found.append("whole networks were drawn: not every weight is used by one call of its own layer on one sample")
    if fit.without_curvature:
        found.append(f"in their own coordinates, for want of a curvature: {', '.join(fit.without_curvature)}")
    return tuple(found)


def _basis_name(basis: str | GivenBases) -> str:
    if isinstance(basis, str):
        return basis
    parts = [np.asarray(part) for name in sorted(basis) for part in (name, *basis[name])]
    return f"given ({data_hash(*parts)})"


def _hashes(**models: nn.Module) -> dict[str, str]:
    """The weights that a fit starts from, besides its settings."""
    return {
        name: data_hash(*(parameter.detach().double().cpu().numpy() for parameter in model.parameters()))
        for name, model in models.items()
    }


def _restored(fit: PosteriorFit, path: str | Path, origin: dict[str, str]) -> Callable[[], None]:
    """Continue from the checkpoint, if it is there; the function that is returned writes it."""
    wanted = {**dataclasses.asdict(fit.settings), **origin}
    if Path(path).exists():
        state = load_checkpoint(path)
        check_same_settings(path, state.get("settings"), wanted)
        fit.restore(state["fit"])
    return lambda: save_checkpoint(path, {"settings": wanted, "fit": fit.state()})
