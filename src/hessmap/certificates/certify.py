"""One call from a trained network and the weights it started from to a certificate."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import nn
from torch.utils.data import DataLoader

from hessmap.certificates.bases import GivenBases
from hessmap.certificates.certificate import Certificate
from hessmap.certificates.draws import mean_loss
from hessmap.certificates.fit import PosteriorFit
from hessmap.certificates.fit_checkpoints import restored
from hessmap.certificates.fit_settings import FitMoment, FitSettings, Objective
from hessmap.certificates.losses import bounded_loss
from hessmap.certificates.parts import held_out, verdict
from hessmap.certificates.posterior import posterior_arrays
from hessmap.certificates.promises import Promise, fitted_promise, prior_promise
from hessmap.certificates.subject import DATA_PRIOR_GRID, Subject
from hessmap.datasets.data import Data
from hessmap.errors import checked_count, require_name
from hessmap.results.provenance import data_hash, provenance
from hessmap.theory.pac_bayes import PriorGrid, confidence_of

PosteriorKind = Literal["fitted", "prior", "tightest"]
FitOn = Literal["rest", "all"]
ASSUMPTIONS = (
    "the samples are independent draws from the law of the unseen data",
    "the prior's weights, the grid of variances and both deltas were chosen without looking at the certified samples",
    "the promise is about the stochastic network, which draws weights for every answer, not about the mean weights",
)


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


@dataclass(frozen=True, eq=False)
class Plan:
    """How a certificate is made, apart from the networks and the samples."""

    basis: str | GivenBases
    settings: FitSettings
    sampling_delta: float
    num_draws: int | None
    posterior: PosteriorKind
    fit_on: FitOn
    checkpoint: str | Path | None
    progress: Callable[[FitMoment], None] | None

    def __post_init__(self) -> None:
        confidence_of(*self.deltas)
        require_name("posterior", self.posterior, get_args(PosteriorKind))
        require_name("fit_on", self.fit_on, get_args(FitOn))
        if self.num_draws is not None:
            checked_count("num_draws", self.num_draws)

    @property
    def deltas(self) -> tuple[float, float]:
        return self.settings.delta, self.sampling_delta

    @property
    def share(self) -> float:
        """Of each delta that a posterior has: half where the better of two is chosen."""
        return 0.5 if self.posterior == "tightest" else 1.0


def certificate_of(subject: Subject, plan: Plan, started: float) -> Certificate:
    """The fit, the draws and the bound, with all that is needed to check them again."""
    samples, settings = subject.certified.samples, plan.settings
    fit = PosteriorFit(
        subject.model,
        subject.prior_model,
        subject.fit_data(plan.fit_on),
        "standard" if plan.posterior == "prior" else plan.basis,
        settings,
        len(samples.inputs),
    )
    promise, ending = _promise(fit, subject, plan)
    kind = "prior" if promise.drawn.kind == "samples" else "fitted"
    fit.network.take(promise.posterior)
    centre, drawn, tests = fit.network.mean_model(), promise.drawn, subject.tests
    plain = held_out(subject.prior_model, samples, subject.loss, plan.deltas)
    arrays, part = posterior_arrays(promise.posterior, fit.prior), subject.part
    return Certificate(
        bound=promise.bound,
        confidence=confidence_of(*plan.deltas),
        delta=settings.delta,
        sampling_delta=plan.sampling_delta,
        kl=promise.point.kl,
        complexity=promise.point.complexity,
        sampled_error=drawn.error,
        sampled_error_bound=promise.error_bound,
        num_draws=drawn.num_draws,
        grid_index=promise.point.index,
        prior_variance=promise.point.variance,
        num_samples=len(samples.inputs),
        num_parameters=sum(layer.means.numel() for layer in promise.posterior.values()),
        basis="standard" if kind == "prior" else plan.basis if isinstance(plan.basis, str) else "given",
        training_error=mean_loss(centre, samples, subject.loss),
        test_error=None if tests is None else mean_loss(centre, tests, subject.loss),
        stochastic_test_error=None if tests is None else fit.sampler.error_of_each(tests),
        assumptions=ASSUMPTIONS,
        doubts=(*subject.doubts(subject.model), *fit.sampler.doubts),
        settings=dataclasses.asdict(settings),
        ending=ending,
        data_hash=subject.certified.hash,
        posterior_hash=data_hash(*arrays.values()),
        seconds=time.perf_counter() - started,
        provenance=provenance("float32", settings.seed),
        posterior=arrays,
        draws=drawn.kind,
        samples_per_draw=drawn.samples_per_draw,
        notes=(*_notes(fit, promise), *subject.notes()),
        draw_counts=drawn.counts,
        inequality=promise.inequality,
        loss=subject.loss.name,
        posterior_kind=kind,
        fit_on=plan.fit_on,
        delta_share=plan.share,
        parts=part.words(len(samples.inputs), plan.fit_on, kind),
        held_out_error=plain.error,
        held_out_bound=plain.bound,
        verdict=verdict(promise.bound, plain, part.num_samples > 0),
        num_prior_samples=part.num_samples,
        prior_data_hash=part.hash,
        split=part.split,
        prior_samples=part.digests,
    )


def _promise(fit: PosteriorFit, subject: Subject, plan: Plan) -> tuple[Promise, str]:
    """The promise that was asked for, and in words how the fit ended."""
    certified, settings, found = subject.certified.samples, plan.settings, []
    deltas = (plan.share * plan.deltas[0], plan.share * plan.deltas[1])
    ending = "no fit: the posterior is the prior"
    if plan.posterior != "fitted":
        found.append(prior_promise(fit.prior, fit.sampler, certified, settings.grid, deltas, settings.seed + 1))
        fit.network.take(fit.first)
    if plan.posterior != "prior":
        keep = None if plan.checkpoint is None else restored(fit, plan.checkpoint, plan.basis, subject)
        ending = fit.run(plan.progress, keep)
        assert fit.best is not None
        _, posterior, variance = fit.best
        found.append(
            fitted_promise(
                posterior,
                fit.prior,
                variance,
                fit.sampler,
                certified,
                settings.grid,
                deltas,
                plan.num_draws,
                settings.seed + 1,
            )
        )
    return min(found, key=lambda promise: promise.bound), ending


def _notes(fit: PosteriorFit, promise: Promise) -> tuple[str, ...]:
    found = []
    if promise.drawn.kind == "networks":
        found.append("whole networks were drawn: not every weight is used by one call of its own layer on one sample")
    if fit.without_curvature:
        found.append(f"in their own coordinates, for want of a curvature: {', '.join(fit.without_curvature)}")
    return tuple(found)
