"""One call from a trained network and the weights it started from to a certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from hessmap.certificates.bases import GivenBases
from hessmap.certificates.certificate import Certificate
from hessmap.certificates.fit_settings import FitMoment, FitSettings, Objective
from hessmap.certificates.losses import bounded_loss
from hessmap.certificates.made_certificate import certificate_of
from hessmap.certificates.plan import FitOn, Plan, PosteriorKind
from hessmap.certificates.subject import DATA_PRIOR_GRID, Subject
from hessmap.datasets.data import Data
from hessmap.theory.pac_bayes import PriorGrid


def certify(
    model: nn.Module,
    initial_model: nn.Module | None,
    data: Data | tuple[Any, Any] | DataLoader[Any],
    basis: str | GivenBases = "iterative",
    *,
    prior_data: Data | tuple[Any, Any] | DataLoader[Any] | None = None,
    test_data: Data | tuple[Any, Any] | DataLoader[Any] | None = None,
    loss: str = "cross_entropy",
    posterior: PosteriorKind = "fitted",
    fit_on: FitOn = "rest",
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

    ``initial_model`` is the centre of the prior: the weights that training started from, which do not depend on the
    data; or, with ``prior_data``, a network that was trained on those samples, none of which may be among ``data``. The
    bound is always of the error on ``data``; a posterior is fitted on them, or with ``fit_on`` "all" on both parts.
    ``posterior`` is "fitted"; or "prior", the prior itself at the best variance of a grid that ends, which has no
    divergence; or "tightest", the better of both with half of each delta. Beside the bound stands what the same samples
    promise for the prior's mean network without any posterior, and ``verdict`` says which is better.

    ``basis`` is "standard", "approximate" (curvature once, at the trained weights), "iterative" (again
    every ``refresh_every`` iterations), "iterative_decay" (more rarely as the steps shrink), "iterative_weights" and
    "iterative_activity" (the curvature of outputs from the weights behind them, for fully connected networks), or a
    mapping from layer names to pairs of orthonormal matrices (outputs, inputs). Parameters outside of linear and
    convolutional layers, and layers whose curvature is not known, stay in their own coordinates (``notes`` names them).
    ``data`` is a pair of tensors or arrays or a loader. ``loss`` is "cross_entropy" (labels 0 .. K - 1; what is bounded
    is the error), "bce" (one logit, labels 0 and 1) or "squared" (real targets; what is bounded is the squared error
    clipped at 1). Networks are evaluated as in use: without dropout. ``objective`` is "bound", which follows the slope
    of the certified bound at the cost of the network's own error; "pinsker", that of the papers, a better network with
    a looser bound; or "balanced", between the two. ``grid`` holds the prior variances, fixed before the samples were
    seen; a verifier has to hand over any but the usual one again.

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
    usual = DATA_PRIOR_GRID if prior_data is not None or posterior == "prior" else PriorGrid()
    settings = FitSettings(
        iterations=iterations,
        objective=objective,
        batch_size=batch_size,
        learning_rate=learning_rate,
        deviation_learning_rate=deviation_learning_rate,
        refresh_every=refresh_every,
        basis_samples=basis_samples,
        delta=delta,
        grid=usual if grid is None else grid,
        seed=seed,
        progress_every=progress_every,
        loss=loss,
        starts_at_prior=prior_data is not None,
    )
    plan = Plan(basis, settings, sampling_delta, num_draws, posterior, fit_on, checkpoint, progress)
    with torch.inference_mode(False):
        subject = Subject.checked(model, initial_model, data, prior_data, test_data, bounded_loss(loss))
        return certificate_of(subject, plan, started)
