"""One call from a trained network and the weights it started from to a certificate."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch.utils.data import DataLoader

from hessmap.certificates.bases import OwnBasis, mean_model
from hessmap.certificates.certificate import Arrays, Certificate
from hessmap.certificates.evaluation import classification_error, price, sampled_bound, stochastic_error
from hessmap.certificates.fit import PosteriorFit
from hessmap.certificates.fit_settings import FitMoment, FitSettings
from hessmap.certificates.inputs import checked_data, checked_pair, doubts_about_prior
from hessmap.certificates.objective import Objective
from hessmap.certificates.posterior import LayerPosterior, Posterior
from hessmap.datasets.data import Data
from hessmap.errors import require
from hessmap.results.provenance import data_hash, provenance
from hessmap.theory.pac_bayes import PriorGrid
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
    basis: str | OwnBasis = "iterative",
    *,
    test_data: Data | tuple[Any, Any] | DataLoader[Any] | None = None,
    delta: float = 0.025,
    sampling_delta: float = 0.01,
    num_draws: int = 100_000,
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
    mapping from layer names to pairs of orthonormal matrices (outputs, inputs). ``data`` is a pair of tensors or arrays
    or a loader, with labels 0 .. K - 1 as targets. Networks are evaluated as in use: without dropout. ``objective`` is
    "bound", which follows the slope of the certified bound, or "pinsker", that of the papers.

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
    initial = checked_pair(model, initial_model)
    samples = checked_data(model, data, "data")
    tests = None if test_data is None else checked_data(model, test_data, "test_data", at_least=1)
    _check_shares(delta=delta, sampling_delta=sampling_delta)
    require(num_draws >= 1, "num_draws must be at least 1", f"got {num_draws}")
    settings = FitSettings(
        iterations=iterations,
        objective=objective,
        batch_size=batch_size,
        learning_rate=learning_rate,
        deviation_learning_rate=deviation_learning_rate,
        refresh_every=refresh_every,
        basis_samples=basis_samples,
        delta=delta,
        grid=PriorGrid(),
        seed=seed,
        progress_every=progress_every,
    )
    fit = PosteriorFit(model, initial, samples, basis, settings)
    keep = None
    if checkpoint is not None:
        keep = _restored(fit, checkpoint, {"basis": _basis_name(basis), **_hashes(model, initial, samples)})
    ending = fit.run(progress, keep)
    assert fit.best is not None
    _, posterior, variance = fit.best
    fit.network.take(posterior)
    paid = price(posterior, fit.prior, variance, len(samples.inputs), settings.grid, delta)
    drawn = sampled_bound(fit.network, samples, num_draws, seed + 1, paid.complexity, sampling_delta)
    centre = mean_model(fit.network, model)
    arrays = posterior_arrays(posterior, fit.prior)
    return Certificate(
        bound=drawn.bound,
        confidence=1 - delta - sampling_delta,
        delta=delta,
        sampling_delta=sampling_delta,
        kl=paid.kl,
        complexity=paid.complexity,
        sampled_error=drawn.num_errors / drawn.num_draws,
        sampled_error_bound=drawn.error_bound,
        num_draws=num_draws,
        grid_index=paid.grid_index,
        prior_variance=paid.prior_variance,
        num_samples=len(samples.inputs),
        num_parameters=sum(layer.means.numel() for layer in posterior.values()),
        basis=basis if isinstance(basis, str) else "given",
        training_error=classification_error(centre, samples),
        test_error=None if tests is None else classification_error(centre, tests),
        stochastic_test_error=None if tests is None else stochastic_error(fit.network, tests),
        assumptions=ASSUMPTIONS,
        doubts=doubts_about_prior(model, initial, samples),
        settings=dataclasses.asdict(settings),
        ending=ending,
        data_hash=data_hash(samples.inputs.numpy(), samples.targets.numpy()),
        posterior_hash=data_hash(*arrays.values()),
        seconds=time.perf_counter() - started,
        provenance=provenance("float32", seed),
        posterior=arrays,
    )


def posterior_arrays(posterior: Posterior, prior: Posterior) -> Arrays:
    """Everything that a bound is computed from, by "layer/name"."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for name, layer in posterior.items():
        found |= {f"{name}/{field}": array for field, array in layer.arrays().items()}
        start = prior[name].arrays()
        found |= {f"{name}/initial_{field}": start[field] for field in ("weight", "bias") if field in start}
    return found


def posterior_of_arrays(arrays: Arrays, names: list[str]) -> tuple[Posterior, Posterior]:
    """The posterior and the centre of the prior that ``posterior_arrays`` spelled out."""
    posterior, prior = {}, {}
    for name in names:
        fields = {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
        posterior[name] = LayerPosterior.from_arrays(fields)
        start = {field: fields[f"initial_{field}"] for field in ("weight", "bias") if f"initial_{field}" in fields}
        prior[name] = LayerPosterior.from_arrays(fields | start)
    return posterior, prior


def _basis_name(basis: str | OwnBasis) -> str:
    if isinstance(basis, str):
        return basis
    parts = [np.asarray(part) for name in sorted(basis) for part in (name, *basis[name])]
    return f"given ({data_hash(*parts)})"


def _hashes(model: nn.Module, initial: nn.Module, data: Data) -> dict[str, str]:
    """What a fit starts from, besides its settings."""
    weights, start = (
        data_hash(*(parameter.detach().double().cpu().numpy() for parameter in network.parameters()))
        for network in (model, initial)
    )
    samples = data_hash(data.inputs.numpy(), data.targets.numpy())
    return {"data": samples, "model": weights, "initial_model": start}


def _restored(fit: PosteriorFit, path: str | Path, origin: dict[str, str]) -> Callable[[], None]:
    """Continue from the checkpoint, if it is there; the function that is returned writes it."""
    wanted = {**dataclasses.asdict(fit.settings), **origin}
    if Path(path).exists():
        state = load_checkpoint(path)
        check_same_settings(path, state.get("settings"), wanted)
        fit.restore(state["fit"])
    return lambda: save_checkpoint(path, {"settings": wanted, "fit": fit.state()})


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        require(0 < share < 1, f"{name} must lie strictly between 0 and 1", f"got {share}")
    total = sum(shares.values())
    require(total < 1, f"{' and '.join(shares)} must leave a confidence above 0", f"together they are {total}")
