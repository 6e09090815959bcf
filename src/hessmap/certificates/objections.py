"""What speaks against the numbers of a certificate: each is recomputed from the verifier's samples, prior and draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import exp, isclose

from hessmap.certificates.certificate import Certificate
from hessmap.certificates.draws import Draws, bound_of_counts
from hessmap.certificates.losses import bounded_loss
from hessmap.certificates.parts import ASSUMPTIONS, PriorPart, held_out_from, verdict
from hessmap.certificates.promises import bound_of_prior, prior_delta
from hessmap.theory.pac_bayes import (
    PriorGrid,
    binary_kl,
    binary_kl_inverse,
    complexity,
    confidence_of,
    sampled_error_bound,
)
from hessmap.theory.risk_bounds import maurer_complexity, tightest_bound

_SAME = 1e-6  # relative: what sums of millions of terms differ by on two machines
_ERRORS_OF_ROUNDING = 2e-3  # of the samples, that single precision may answer in another way on another machine


def objections(
    certificate: Certificate,
    kl: float,
    num_parameters: int,
    errors: Mapping[str, tuple[float, int]],
    drawn: Draws,
    part: PriorPart,
    grid: PriorGrid,
    sampling_delta: float,
) -> Iterator[str]:
    """What speaks against the claims, given the divergence that the verifier found, and the errors of the mean weights
    with the number of samples of each."""
    claim = certificate
    for name, found in {"num_parameters": num_parameters, **_following(claim, kl, grid)}.items():
        stated = getattr(claim, name)
        if stated is None or not isclose(stated, found, rel_tol=_SAME, abs_tol=_SAME**2):
            words = "none" if stated is None else f"{stated:.6g}"
            yield f"the certificate states {name.replace('_', ' ')} {words}, and {found:.6g} follows"
    for name, (error, count) in errors.items():
        stated = getattr(claim, name)
        if stated is not None and abs(stated - error) > _ERRORS_OF_ROUNDING + 2 / count:
            yield f"the certificate states {name.replace('_', ' ')} {stated:.4g}, and it is {error:.4g}"
    yield from _verdict_faults(claim)
    yield from _false_words(claim, part)
    least = drawn.lower_bound(sampling_delta)
    if claim.posterior_kind == "fitted":
        least_bound = _bound(claim, least, kl, grid)
        if least_bound > claim.bound * (1 + _SAME):
            yield f"the least error that these draws allow gives {least_bound:.4f}, above the {claim.bound:.4f} claimed"
        chance = _chance_of_as_few(claim, least)
    else:
        chance = _chance_of_difference(claim, drawn)
    if chance < sampling_delta:
        yield (
            f"as few errors as claimed, {claim.sampled_error:.4f} in {claim.num_draws} draws, have a chance of"
            f" {chance:.1g} where these draws show {drawn.error:.4f}: was the seed chosen among many? More draws decide"
        )


def _following(claim: Certificate, kl: float, grid: PriorGrid) -> dict[str, float]:
    """What follows from the counts that are claimed and the divergence that was found."""
    found = {"confidence": confidence_of(claim.delta, claim.sampling_delta), "kl": kl}
    if claim.held_out_error is not None:
        deltas = (claim.delta, claim.sampling_delta)
        loss = bounded_loss(claim.loss)
        found["held_out_bound"] = held_out_from(claim.held_out_error, claim.num_samples, loss, deltas).bound
    if claim.posterior_kind == "prior":
        drawn = Draws("samples", claim.draw_counts, 1)
        delta = prior_delta(grid, claim.grid_index, _deltas(claim))
        bound = bound_of_prior(drawn, bounded_loss(claim.loss), delta)
        return found | {"sampled_error": drawn.error, "sampled_error_bound": drawn.error, "bound": bound}
    error_bound, error = _sampled(claim)
    found |= {"sampled_error": error, "sampled_error_bound": error_bound, "bound": _bound(claim, error_bound, kl, grid)}
    return found | {"complexity": _complexity(claim, kl, grid)}


def _sampled(claim: Certificate) -> tuple[float, float]:
    """The bound on the error of the draws that are claimed, and that error."""
    delta = _deltas(claim)[1]
    if claim.draw_counts:
        drawn = Draws("pairs", claim.draw_counts, claim.samples_per_draw)
        return bound_of_counts(claim.draw_counts, delta), drawn.error
    num_answers = claim.num_draws * claim.samples_per_draw  # version 0.1.0
    num_errors = round(claim.sampled_error * num_answers)
    return sampled_error_bound(num_errors, claim.num_draws, delta, claim.samples_per_draw), num_errors / num_answers


def _bound(claim: Certificate, error_bound: float, kl: float, grid: PriorGrid) -> float:
    if claim.inequality == "langford_seeger":
        return binary_kl_inverse(error_bound, complexity(kl, claim.num_samples, claim.grid_index, claim.delta))
    cost = grid.log_cost(claim.grid_index)
    return tightest_bound(error_bound, kl, claim.num_samples, cost, _deltas(claim)[0]).value


def _complexity(claim: Certificate, kl: float, grid: PriorGrid) -> float:
    if claim.inequality == "langford_seeger":
        return complexity(kl, claim.num_samples, claim.grid_index, claim.delta)
    return maurer_complexity(kl, claim.num_samples, grid.log_cost(claim.grid_index), _deltas(claim)[0])


def _deltas(claim: Certificate) -> tuple[float, float]:
    return claim.delta_share * claim.delta, claim.delta_share * claim.sampling_delta


def _verdict_faults(claim: Certificate) -> Iterator[str]:
    if claim.held_out_bound is None or claim.held_out_error is None:
        return
    loss = bounded_loss(claim.loss)
    plain = held_out_from(claim.held_out_error, claim.num_samples, loss, (claim.delta, claim.sampling_delta))
    wanted = verdict(claim.bound, plain, claim.num_prior_samples > 0)
    if claim.verdict != wanted:
        yield f"the certificate has the verdict {claim.verdict[:80]!r}, and {wanted!r} follows"


def _false_words(claim: Certificate, part: PriorPart) -> Iterator[str]:
    """What a certificate says of its samples and assumptions, which version 0.1.0 did not say in these words."""
    if claim.inequality == "langford_seeger":
        return
    wanted = {"parts": part.words(claim.num_samples, claim.fit_on, claim.posterior_kind), "assumptions": ASSUMPTIONS}
    for name, words in wanted.items():
        if getattr(claim, name) != words:
            yield f"the certificate states other {name} than follow: {'; '.join(words)}"


def _chance_of_as_few(claim: Certificate, rate: float) -> float:
    """Of as few errors as claimed if the rate is no lower than this; an upper bound where a draw has many samples."""
    if claim.samples_per_draw == 1 and bounded_loss(claim.loss).is_binary:
        from scipy.stats import binom  # here, because it takes seconds to load

        return float(binom.cdf(round(claim.sampled_error * claim.num_draws), claim.num_draws, rate))
    observed = claim.sampled_error
    return exp(-claim.num_draws * binary_kl(observed, rate)) if observed < rate else 1.0


def _chance_of_difference(claim: Certificate, drawn: Draws) -> float:
    """Of a claim so far below the verifier's own count over the same samples, about, by Bernstein's inequality for the
    difference of two counts, each with the variance that the verifier's has at most."""
    count, difference = drawn.num_draws, drawn.error - claim.sampled_error
    variance = max(drawn.error * (1 - drawn.error), 1 / count) * 2 / count
    return exp(-(difference**2) / (2 * (variance + difference / (3 * count)))) if difference > 0 else 1.0
