"""From a network and samples to a certificate: ``certify`` for a trained network and the weights it started from,
``certify_from_data`` for a function that builds one, whose prior is trained on a part of the samples."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import torch
from torch import nn
from torch.utils.data import DataLoader

from hessmap.certificates.bases import GivenBases
from hessmap.certificates.bounds import (
    HeldOut,
    PosteriorBound,
    best_prior_bound,
    fitted_bound,
    fitted_point,
    held_out,
)
from hessmap.certificates.certificate import ASSUMPTIONS, Certificate
from hessmap.certificates.draws import mean_loss
from hessmap.certificates.fit import FitMoment, FitSettings, Objective, PosteriorFit, restored_fit, weights_hash
from hessmap.certificates.losses import BoundedLoss, bounded_loss
from hessmap.certificates.model_checks import check_weight_memory, checked_pair, doubts_about_prior
from hessmap.certificates.posterior import posterior_arrays
from hessmap.certificates.samples import (
    STATEMENT,
    CertifiedSamples,
    PriorPart,
    Samples,
    SampleSplit,
    checked_samples,
    prior_part,
    raw_samples,
)
from hessmap.datasets import Data
from hessmap.errors import checked_count, require, require_name
from hessmap.records import data_hash, provenance
from hessmap.theory.pac_bayes import PriorGrid, confidence_of
from hessmap.training import train as plain_training

PosteriorKind = Literal["fitted", "prior", "tightest"]
FitOn = Literal["rest", "all"]
Train = Callable[[nn.Module, Data], object]
# Standard deviations .030, .018, .011, .0068 and .0041: of trained weights; a prior that has seen no sample is wider.
DATA_PRIOR_GRID = PriorGrid(0.0025, precision=1, num_points=5)


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

    The samples must be independent draws from the distribution of the unseen data. Rows with equal inputs count as one
    sample (``certificates.samples`` says why the bound is valid for copies and for coincidences). Networks are
    evaluated as in use, without dropout; neither model is changed. Ctrl-C ends the fit and certifies the best posterior
    so far.

    Args:
        model: The trained network. Attention, normalisation, embeddings and shared weights are supported; batch-norm
            needs statistics that were frozen before the samples were seen.
        initial_model: The centre of the prior: the weights that training started from, which do not depend on the data;
            or, with ``prior_data``, a network that was trained on those samples.
        data: The samples to certify on: a pair of tensors or arrays, or a loader.
        basis: "standard", "approximate" (curvature once, at the trained weights), "iterative" (default; again every
            ``refresh_every`` iterations), "iterative_decay" (more rarely as the steps shrink), "iterative_weights" and
            "iterative_activity" (the output factor from the weights after a layer, for fully connected networks), or a
            mapping from layer names to pairs of orthonormal matrices (outputs, inputs). Parameters outside of linear
            and convolutional layers, and layers without a known curvature, stay in their own coordinates.
        prior_data: The samples that ``initial_model`` was trained on, none of which may be among ``data``. Default:
            none.
        test_data: Samples to compare with; not a part of the guarantee. Default: none.
        loss: "cross_entropy" (default; labels 0 .. K - 1; bounds the error), "bce" (one logit, labels 0 and 1) or
            "squared" (real targets; bounds the squared error clipped at 1).
        posterior: "fitted" (default); "prior", the prior itself at the best variance of a finite grid, without
            divergence; or "tightest", the better of both with half of each delta.
        fit_on: Fit the posterior on ``data`` ("rest", default) or on both parts ("all"). The bound uses ``data`` alone.
        delta: Probability that the samples mislead. Defaults to 0.025.
        sampling_delta: Probability that the draws mislead. Defaults to 0.01.
        grid: Prior variances, fixed before the samples were seen. A verifier has to pass any grid other than the
            default.
        num_draws: Draws that bound the error on the samples. Default: 100,000 pairs of weights and samples where every
            weight is used by one call of its own linear or convolutional layer, 10,000 whole networks elsewhere.
        iterations: Steps of the fit. Defaults to 6000.
        objective: "bound" follows the slope of the certified bound; "pinsker", that of the papers, gives a better
            network with a looser bound; "balanced" is between the two.
        batch_size: Samples in a step. Defaults to 128.
        learning_rate: Learning rate of the means. Defaults to 3e-3.
        deviation_learning_rate: Learning rate of the log deviations. Defaults to 1e-2.
        refresh_every: Iterations between two computations of an iterative basis. Defaults to 400.
        basis_samples: Samples that a basis is computed from. Defaults to 2000.
        seed: Seed of the fit and the draws. Defaults to 0.
        checkpoint: File that the fit is saved in regularly, and resumed from. Default: none.
        progress: Called with a ``FitMoment`` every ``progress_every`` iterations. Default: none.
        progress_every: Iterations between two updates, among which the best posterior is chosen. Defaults to 200.

    Returns:
        Certificate: the bound, what it rests on, and the bound of the prior's mean network on the same samples.

    Raises:
        InvalidInput: If the samples, models or settings cannot be certified, or a sample is in both parts.
        UnsupportedNetwork: If the network does not answer every sample by itself from its own weights.

    Example:
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
    plan = _Plan(basis, settings, sampling_delta, num_draws, posterior, fit_on, checkpoint, progress)
    with torch.inference_mode(False):
        subject = _Subject.checked(model, initial_model, data, prior_data, test_data, bounded_loss(loss))
        return _certificate(subject, plan, started)


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
    """Train a prior on a part of the samples, and bound the error on unseen data from the others.

    Rows with equal inputs are kept in one part, and the bound counts distinct inputs. Choose ``split_seed`` and
    ``prior_fraction`` before you look at the samples, and everything else (epochs, the network) from the prior's part.
    Of several certificates the best one is not guaranteed unless their deltas together are.

    Args:
        build_model: Returns a new network.
        data: All samples.
        prior_fraction: Share of the distinct inputs that trains the prior. With 0 the prior is the new network itself
            and the posterior is fitted around one trained on all samples, as ``certify`` does.
        train: Called as ``train(model, part)``; trains the network in place or returns another one. With options of
            your own: ``functools.partial(hm.train, epochs=20)``.
        posterior: "prior" (the trained network with noise of the best size, without divergence), "fitted" (moved and
            reshaped on the rest, or with ``fit_on`` "all" on all samples; the divergence enters the bound) or
            "tightest".
        fit_on: Fit the posterior on the certified samples ("rest", default) or on all samples ("all").
        basis: Basis in which the posterior is diagonal, as in ``certify``. Defaults to "iterative".
        test_data: Samples to compare with; not a part of the guarantee. Default: none.
        loss: "cross_entropy" (default), "bce" or "squared", as in ``certify``.
        delta: Probability that the samples mislead. Defaults to 0.025.
        sampling_delta: Probability that the draws mislead. Defaults to 0.01.
        grid: Prior variances, fixed before the samples were seen. Default: ``DATA_PRIOR_GRID``, or ``PriorGrid()`` for
            a fitted posterior with ``prior_fraction`` 0.
        num_draws: Draws that bound the error on the samples, as in ``certify``.
        iterations: Steps of the fit. Defaults to 2000.
        objective: "bound" (default), "pinsker" or "balanced", as in ``certify``.
        batch_size: Samples in a step of the fit. Defaults to 128.
        learning_rate: Learning rate of the means. Default: 1e-4, or 3e-3 with ``prior_fraction`` 0.
        deviation_learning_rate: Learning rate of the log deviations. Defaults to 1e-2.
        refresh_every: Iterations between two computations of an iterative basis. Defaults to 400.
        basis_samples: Samples that a basis is computed from. Defaults to 2000.
        split_seed: Seed of the order of the samples. Defaults to 0.
        seed: Seed of the fit and the draws. Defaults to 0.
        progress: Called with a ``FitMoment`` every 200 iterations. Default: none.

    Returns:
        Certificate: ``parts`` states which samples were used for what, ``verdict`` whether a plain held-out bound
        is lower.

    Raises:
        InvalidInput: If the samples or settings cannot be certified.
        UnsupportedNetwork: If the network does not answer every sample by itself from its own weights.

    Example:
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
    plan = _Plan(basis, settings, sampling_delta, num_draws, posterior, fit_on, None, progress)
    initial = build_model()
    require(isinstance(initial, nn.Module), must, f"it returned a {type(initial).__name__}")
    check_weight_memory(initial)
    trained = copy.deepcopy(initial)
    returned = train(trained, whole if is_blind else seen)
    trained = returned if isinstance(returned, nn.Module) else trained
    prior = initial if is_blind else trained
    with torch.inference_mode(False):
        parts = (rest, None if is_blind else seen)
        subject = _Subject.checked(trained, prior, *parts, test_data, bounded_loss(loss), split, whole)
        return _certificate(subject, plan, started)


@dataclass(frozen=True, eq=False)
class _Plan:
    """What a caller asks for: the fit, the deltas, the draws, and which posterior of which samples."""

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


@dataclass(frozen=True, eq=False)
class _Subject:
    """What is certified: two networks of one shape, the certified samples, those of the prior, and a loss; checked."""

    model: nn.Module
    prior_model: nn.Module
    certified: CertifiedSamples
    seen: Samples | None
    tests: Data | None
    loss: BoundedLoss
    part: PriorPart
    uncompared: tuple[str, ...]

    @classmethod
    def checked(
        cls,
        model: nn.Module,
        prior_model: nn.Module | None,
        data: Any,
        prior_data: Any,
        test_data: Any,
        loss: BoundedLoss,
        split: SampleSplit | None = None,
        whole: Data | None = None,
    ) -> Self:
        if prior_data is not None and model is prior_model:
            model = copy.deepcopy(model)  # a posterior that starts at the prior
        model, prior_model, uncompared = checked_pair(model, prior_model)
        given = checked_samples(model, data, "data", loss=loss)
        seen = None if prior_data is None else checked_samples(model, prior_data, "prior_data", 1, loss)
        tests = None if test_data is None else checked_samples(model, test_data, "test_data", 1, loss).data
        part = prior_part(given, seen, split, whole)
        return cls(model, prior_model, CertifiedSamples.of(given, seen), seen, tests, loss, part, uncompared)

    def doubts(self) -> tuple[str, ...]:
        """Signs that a prior which has seen no samples depends on the data."""
        if self.seen is not None:
            return self.uncompared
        found = doubts_about_prior(self.model, self.prior_model, self.certified.distinct, self.loss)
        return (*found, *self.uncompared)

    def fit_data(self, fit_on: str) -> Data:
        """The samples that a posterior is fitted on."""
        own = self.certified.given.data
        if fit_on == "rest" or self.seen is None:
            return own
        return Data(*(torch.cat(parts) for parts in zip(own, self.seen.data, strict=True)))

    def hashes(self) -> dict[str, str]:
        """Of all that a fit depends on, besides its settings."""
        weights = {"model": weights_hash(self.model), "initial_model": weights_hash(self.prior_model)}
        return {"data": self.certified.given.hash, "prior_data": self.part.hash, **weights}


def _certificate(subject: _Subject, plan: _Plan, started: float) -> Certificate:
    """The fit, the draws and the bound, with all that is needed to check them again."""
    certified, settings = subject.certified, plan.settings
    samples, num_samples = certified.distinct, certified.num_samples
    fit = PosteriorFit(
        subject.model,
        subject.prior_model,
        subject.fit_data(plan.fit_on),
        "standard" if plan.posterior == "prior" else plan.basis,
        settings,
        num_samples,
    )
    found, ending = _best_bound(fit, subject, plan)
    kind = "prior" if found.drawn.kind == "samples" else "fitted"
    fit.network.take(found.posterior)
    centre, drawn, tests = fit.network.mean_model(), found.drawn, subject.tests
    plain = held_out(subject.prior_model, certified, subject.loss, plan.deltas)
    arrays, part = posterior_arrays(found.posterior, fit.prior), subject.part
    return Certificate(
        bound=found.value,
        confidence=confidence_of(*plan.deltas),
        delta=settings.delta,
        sampling_delta=plan.sampling_delta,
        delta_share=plan.share,
        kl=found.point.kl,
        complexity=found.point.complexity,
        inequality=found.inequality,
        sampled_error=drawn.error,
        sampled_error_bound=found.error_bound,
        draws=drawn.kind,
        num_draws=drawn.num_draws,
        samples_per_draw=drawn.samples_per_draw,
        draw_counts=drawn.counts,
        grid_index=found.point.index,
        prior_variance=found.point.variance,
        num_samples=num_samples,
        num_rows=len(certified.given),
        num_prior_samples=part.num_samples,
        num_parameters=sum(layer.means.numel() for layer in found.posterior.values()),
        basis="standard" if kind == "prior" else plan.basis if isinstance(plan.basis, str) else "given",
        loss=subject.loss.name,
        posterior_kind=kind,
        fit_on=plan.fit_on,
        training_error=mean_loss(centre, samples, subject.loss),
        test_error=None if tests is None else mean_loss(centre, tests, subject.loss),
        stochastic_test_error=None if tests is None else fit.sampler.error_of_each(tests),
        held_out_error=plain.error,
        held_out_bound=plain.bound,
        verdict=_verdict(found.value, plain, part.num_samples > 0),
        parts=_uses_of_samples(part, num_samples, plan.fit_on, kind),
        assumptions=ASSUMPTIONS,
        doubts=(*subject.doubts(), *certified.doubts, *fit.sampler.doubts),
        notes=(*_notes(fit, found), *certified.notes()),
        settings=dataclasses.asdict(settings),
        ending=ending,
        data_hash=certified.given.hash,
        prior_data_hash=part.hash,
        split=part.split,
        posterior_hash=data_hash(*arrays.values()),
        seconds=time.perf_counter() - started,
        provenance=provenance("float32", settings.seed),
        posterior=arrays,
    )


def _best_bound(fit: PosteriorFit, subject: _Subject, plan: _Plan) -> tuple[PosteriorBound, str]:
    """The bound of the posterior that was asked for, and in words how the fit ended."""
    certified, settings, sampler, found = subject.certified, plan.settings, fit.sampler, []
    grid, seed, deltas = settings.grid, settings.seed + 1, (plan.share * plan.deltas[0], plan.share * plan.deltas[1])
    ending = "no fit: the posterior is the prior"
    if plan.posterior != "fitted":
        found.append(best_prior_bound(fit.prior, sampler, certified, grid, deltas, seed))
        fit.network.take(fit.first)
    if plan.posterior != "prior":
        keep = None
        if plan.checkpoint is not None:
            keep = restored_fit(fit, plan.checkpoint, plan.basis, subject.hashes())
        ending = fit.run(plan.progress, keep)
        assert fit.best is not None
        _, posterior, variance = fit.best
        point = fitted_point(posterior, fit.prior, variance, certified.num_samples, grid, deltas[0])
        found.append(fitted_bound(posterior, point, sampler, certified, grid, deltas, plan.num_draws, seed))
    return min(found, key=lambda bound: bound.value), ending


def _verdict(bound: float, plain: HeldOut, has_prior_data: bool) -> str:
    """Which of the two bounds is the lower one."""
    owner = "the prior's mean network" if has_prior_data else "the untrained network"
    if bound < plain.bound:
        return f"the certificate is better: {bound:.4f} against {plain.bound:.4f}, the held-out bound of {owner}"
    return (
        f"the plain held-out bound is better: {plain.bound:.4f} for {owner} against {bound:.4f};"
        " use that network and that bound"
    )


def _uses_of_samples(part: PriorPart, num_certified: int, fit_on: str, kind: str) -> tuple[str, ...]:
    """What every part was used for, in sentences."""
    if not part.num_samples:
        prior = "the prior does not depend on the samples"
    else:
        prior = f"the prior was trained on {part.num_samples:,} separate samples"
    if part.split:
        prior += f", the first {part.split['prior_fraction']:g} of an order from seed {part.split['seed']}"
    if kind == "prior":
        posterior = "the posterior is the prior itself"
    elif fit_on == "all":
        posterior = "the posterior was fitted on all samples"
    else:
        posterior = f"the posterior was fitted on the other {num_certified:,} samples"
    certified = f"the bound is of the error on {num_certified:,} samples that the prior has not seen"
    return prior, posterior, certified, *((STATEMENT,) if part.num_samples else ())


def _notes(fit: PosteriorFit, found: PosteriorBound) -> tuple[str, ...]:
    notes = []
    if found.drawn.kind == "networks":
        notes.append("whole networks were drawn: not every weight is used by one call of its own layer on one sample")
    if fit.without_curvature:
        notes.append(f"in their own coordinates, because no curvature is known: {', '.join(fit.without_curvature)}")
    return tuple(notes)
