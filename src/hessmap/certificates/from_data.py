"""A certificate whose prior is learnt from a part of the samples, in one call."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from hessmap.certificates.bases import GivenBases
from hessmap.certificates.certificate import Certificate
from hessmap.certificates.fit_settings import FitMoment, FitSettings, Objective
from hessmap.certificates.inputs import raw_samples, refuse_shared_memory
from hessmap.certificates.losses import bounded_loss
from hessmap.certificates.made_certificate import certificate_of
from hessmap.certificates.plan import FitOn, Plan, PosteriorKind
from hessmap.certificates.split import SampleSplit
from hessmap.certificates.subject import DATA_PRIOR_GRID, Subject
from hessmap.datasets.data import Data
from hessmap.errors import require
from hessmap.theory.pac_bayes import PriorGrid
from hessmap.training.trainer import train as plain_training

Train = Callable[[nn.Module, Data], object]


def certify_from_data(
    build_model: Callable[[], nn.Module],
    data: Data | tuple[Any, Any],
    *,
    prior_fraction: float = 0.5,
    train: Train = plain_training,
    posterior: PosteriorKind = "prior",
    fit_on: FitOn = "rest",
    basis: str | GivenBases = "iterative",
    test_data: Data | tuple[Any, Any] | None = None,
    loss: str = "cross_entropy",
    delta: float = 0.025,
    sampling_delta: float = 0.01,
    grid: PriorGrid | None = None,
    num_draws: int | None = None,
    iterations: int = 2000,
    objective: Objective = "bound",
    batch_size: int = 128,
    learning_rate: float | None = None,
    deviation_learning_rate: float = 1e-2,
    refresh_every: int = 400,
    basis_samples: int = 2000,
    split_seed: int = 0,
    seed: int = 0,
    progress: Callable[[FitMoment], None] | None = None,
) -> Certificate:
    """Train a prior on a part of the samples, and bound the error on unseen data from the others, in one call.

    ``build_model()`` returns a new network and ``train(model, part)`` trains it in place (or returns another): with
    options of your own, ``functools.partial(hm.train, epochs=20)``. The order of the samples comes from ``split_seed``,
    their first ``prior_fraction`` train the prior, and the bound is of the error on the rest alone; choose both before
    you look at the samples, and everything else (epochs, fraction, the network) from the prior's part. Of several
    certificates the best one is not promised unless their deltas together are.

    ``posterior`` is "prior" (the trained network with noise of the best size, without divergence), "fitted" (moved and
    reshaped on the rest, or with ``fit_on`` "all" on all samples; the divergence is paid for) or "tightest". With
    ``prior_fraction`` 0 the prior is the new network itself and the posterior is fitted around one trained on all
    samples, as ``certify`` does. Everything else is as in ``certify``; the certificate says under ``parts`` what was
    used for what, and under ``verdict`` whether a plain held-out bound promises more.

    >>> import functools, hessmap as hm
    >>> data = hm.datasets.gaussian_mixture(400, 4, num_classes=2, separation=6.0)
    >>> network = hm.FullyConnected((4, 6, 2), bias=True, activation="relu")
    >>> found = certify_from_data(network.build, data, train=functools.partial(hm.train, epochs=5))
    >>> found.num_prior_samples, found.num_samples, found.kl, found.bound < 0.1
    (200, 200, 0.0, True)
    >>> found.verify(network.build(), data).verdict
    'confirmed'
    """
    started = time.perf_counter()
    is_builder = callable(build_model) and not isinstance(build_model, nn.Module)
    must = "build_model must be a function without arguments that returns a new network"
    require(is_builder, must, f"got a {type(build_model).__name__}", "Write lambda: MyNetwork()")
    split = SampleSplit(prior_fraction, split_seed)
    whole = Data(*raw_samples(data))
    seen, rest = split.parts(whole)
    is_blind = len(seen.inputs) == 0
    if is_blind:
        rest = whole
    settings = FitSettings(
        iterations=iterations,
        objective=objective,
        batch_size=batch_size,
        learning_rate=learning_rate if learning_rate is not None else 3e-3 if is_blind else 1e-4,
        deviation_learning_rate=deviation_learning_rate,
        refresh_every=refresh_every,
        basis_samples=basis_samples,
        delta=delta,
        grid=grid if grid is not None else PriorGrid() if is_blind and posterior == "fitted" else DATA_PRIOR_GRID,
        seed=seed,
        loss=loss,
        starts_at_prior=not is_blind,
    )
    plan = Plan(basis, settings, sampling_delta, num_draws, posterior, fit_on, None, progress)
    initial = build_model()
    require(isinstance(initial, nn.Module), must, f"it returned a {type(initial).__name__}")
    refuse_shared_memory(initial)
    trained = _trained(copy.deepcopy(initial), whole if is_blind else seen, train)
    prior = initial if is_blind else trained
    with torch.inference_mode(False):
        parts = (rest, None if is_blind else seen)
        subject = Subject.checked(trained, prior, *parts, test_data, bounded_loss(loss), split, whole)
        return certificate_of(subject, plan, started)


def _trained(model: nn.Module, part: Data, train: Train) -> nn.Module:
    """The network after the user's training, which may return another one or something else altogether."""
    returned = train(model, part)
    return returned if isinstance(returned, nn.Module) else model
