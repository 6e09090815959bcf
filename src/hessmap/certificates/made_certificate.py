"""From networks, samples and a plan to a certificate: the fit, the draws, the bound, and all that a verifier needs."""

from __future__ import annotations

import dataclasses
import time

from hessmap.certificates.certificate import Certificate
from hessmap.certificates.draws import mean_loss
from hessmap.certificates.fit import PosteriorFit
from hessmap.certificates.fit_checkpoints import restored
from hessmap.certificates.parts import ASSUMPTIONS, held_out, verdict
from hessmap.certificates.plan import Plan
from hessmap.certificates.posterior import posterior_arrays
from hessmap.certificates.promises import Promise, fitted_promise, prior_promise
from hessmap.certificates.subject import Subject
from hessmap.results.provenance import data_hash, provenance
from hessmap.theory.pac_bayes import confidence_of


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
