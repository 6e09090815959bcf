"""What a certificate claims: whether it can be judged at all, and what speaks against its numbers.

Shapes, types and finiteness come before any arithmetic. Nothing here believes a number of the certificate: each is
recomputed, from the verifier's own samples, initial weights, grid and draws.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from math import exp, isclose, log
from typing import get_args

import numpy as np
from scipy.stats import binom

from hessmap.certificates.certificate import Certificate, field_faults
from hessmap.certificates.draws import DEFAULT_DRAWS, NUM_STEPS, Draws, bound_of_counts
from hessmap.certificates.losses import LOSSES, bounded_loss
from hessmap.certificates.parts import PriorPart, held_out_from, verdict
from hessmap.certificates.posterior import Posterior, posterior_arrays
from hessmap.certificates.promises import bound_of_prior, prior_delta
from hessmap.errors import InvalidInput, sentence
from hessmap.results.provenance import data_hash
from hessmap.theory.pac_bayes import (
    PriorGrid,
    binary_kl,
    binary_kl_inverse,
    complexity,
    confidence_of,
    sampled_error_bound,
)
from hessmap.theory.risk_bounds import Inequality, maurer_complexity, tightest_bound

_INEQUALITIES = get_args(Inequality)
_FIRST_KIND = ("fitted", "cross_entropy")
ON_TEST_DATA = ("test_error", "stochastic_test_error")
_SAME = 1e-6  # relative: what sums of millions of terms differ by on two machines
_ERRORS_OF_ROUNDING = 2e-3  # of the samples, that single precision may answer in another way on another machine
_REMEDY = "Hand over grid=PriorGrid(..) if that grid was fixed before the samples were seen"


@dataclasses.dataclass(frozen=True, eq=False)
class Held:
    """What the verifier holds: certified samples, those of the prior, the shape of the network, the prior, a grid.

    ``prior`` is None where the file is to hold it.
    """

    data_hash: str
    num_samples: int
    network: Posterior
    prior: Posterior | None
    part: PriorPart
    grid: PriorGrid


def first_refusal(certificate: Certificate, held: Held) -> str | None:
    """Why a certificate is none for these samples, this network and prior, and this grid."""
    for faults in (
        _sample_faults(certificate, held.data_hash, held.num_samples),
        _prior_faults(certificate, held.part),
        _array_faults(certificate, posterior_arrays(held.network, held.prior or held.network), held.prior is not None),
        _number_faults(certificate),
        _grid_faults(certificate, held.grid),
        _posterior_faults(certificate),
    ):
        for fault in faults:
            return fault
    return None


def objections(
    certificate: Certificate,
    kl: float,
    num_parameters: int,
    errors: Mapping[str, tuple[float, int]],
    drawn: Draws,
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


def _chance_of_as_few(claim: Certificate, rate: float) -> float:
    """Of as few errors as claimed if the rate is no lower than this; an upper bound where a draw has many samples."""
    if claim.samples_per_draw == 1 and bounded_loss(claim.loss).is_binary:
        return float(binom.cdf(round(claim.sampled_error * claim.num_draws), claim.num_draws, rate))
    observed = claim.sampled_error
    return exp(-claim.num_draws * binary_kl(observed, rate)) if observed < rate else 1.0


def _chance_of_difference(claim: Certificate, drawn: Draws) -> float:
    """Of a claim so far below the verifier's own count over the same samples, about, by Bernstein's inequality for the
    difference of two counts, each with the variance that the verifier's has at most."""
    count, difference = drawn.num_draws, drawn.error - claim.sampled_error
    variance = max(drawn.error * (1 - drawn.error), 1 / count) * 2 / count
    return exp(-(difference**2) / (2 * (variance + difference / (3 * count)))) if difference > 0 else 1.0


def type_faults(certificate: Certificate) -> Iterator[str]:
    """Fields that hold something else than they declare: nothing can be read of such a certificate."""
    for fault in field_faults(certificate):
        yield sentence("a certificate must hold what its fields say", fault)
    if not (isinstance(certificate.posterior, dict) and certificate.posterior):
        yield sentence("a certificate is verified from its posterior", "it holds none")
    own = certificate.prior_samples
    is_digests = isinstance(own, np.ndarray) and own.dtype == np.uint8 and own.ndim == 2 and own.shape[1] == 16
    if not is_digests or len(own) != certificate.num_prior_samples:
        broken = f"it states {certificate.num_prior_samples} samples, and holds {_form(own)}"
        yield sentence("a certificate must hold one hash for every sample of its prior", broken)


def _sample_faults(certificate: Certificate, found: str, num_samples: int) -> Iterator[str]:
    if found != certificate.data_hash:
        broken = f"these samples hash to {found}, those of the certificate to {certificate.data_hash}"
        yield sentence("a certificate is verified on the samples it was made from", broken)
    if num_samples != certificate.num_samples:
        broken = f"it states {certificate.num_samples}, there are {num_samples}"
        yield sentence("a certificate must state the number of its samples", broken)


def _prior_faults(certificate: Certificate, part: PriorPart) -> Iterator[str]:
    """The samples of the prior are those that were handed over, hash by hash."""
    if part.hash != certificate.prior_data_hash or not np.array_equal(part.digests, certificate.prior_samples):
        broken = f"these samples hash to {part.hash or 'none'}, those of the certificate to "
        broken += certificate.prior_data_hash[:40] or "none"
        yield sentence("a certificate is verified with the samples that its prior has seen", broken)
    if certificate.split != part.split:
        broken = f"the certificate states {_words(certificate.split)}, and {_words(part.split)} was found"
        yield sentence("the split of a certificate must be that of the samples", broken)


def _posterior_faults(certificate: Certificate) -> Iterator[str]:
    """A posterior that is called the prior is it: the same means, the deviation of the grid, its own coordinates."""
    if certificate.posterior_kind not in ("fitted", "prior"):
        stated = f"the certificate states {certificate.posterior_kind[:40]!r}"
        yield sentence("posterior_kind must be fitted or prior", stated)
    if certificate.posterior_kind != "prior":
        return
    if certificate.grid_index > (_as_grid(certificate.settings.get("grid")).num_points or 0):
        yield sentence("a posterior that is the prior needs a grid that ends", "that of the certificate does not")
    deviation = np.float32(0.5 * log(certificate.prior_variance))
    for name, array in certificate.posterior.items():
        layer, _, kind = name.rpartition("/")
        if kind in ("weight", "bias"):
            is_prior = np.array_equal(array, certificate.posterior[f"{layer}/initial_{kind}"])
        elif kind.endswith("log_deviations"):
            is_prior = bool(np.allclose(array, deviation, rtol=1e-6))
        elif kind.endswith("_basis"):
            is_prior = np.array_equal(array, np.eye(len(array)))
        else:
            continue
        if not is_prior:
            yield sentence("a posterior without divergence must be the prior", f"{name} is not the prior's")


def _array_faults(
    certificate: Certificate, expected: dict[str, np.ndarray], is_prior_given: bool = True
) -> Iterator[str]:
    """The stored arrays are those of this architecture, in single precision, no more and no fewer; finite and own."""
    stored = certificate.posterior
    for name in [*expected, *stored]:
        wanted, found = (_form(arrays.get(name)) for arrays in (expected, stored))
        if wanted != found:
            broken = f"{name} is {found}, the network wants {wanted}"
            yield sentence("a certificate is verified with the architecture it was made for", broken)
    for name, array in stored.items():
        if not np.isfinite(array).all():
            yield sentence("the arrays of a certificate must be finite", f"{name} has NaN or inf")
    if data_hash(*stored.values()) != certificate.posterior_hash:
        broken = "the arrays differ from those it was made with"
        yield sentence("a certificate is verified from its own posterior", broken)
    for name, array in expected.items() if is_prior_given else ():
        if "initial_" in name.rpartition("/")[2] and not np.array_equal(array, stored[name]):
            broken = f"{name} is not the initial model's"
            yield sentence("the prior of a certificate must stand at the initial weights", broken)


def _form(array: object) -> str:
    return f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "absent"


def _number_faults(certificate: Certificate) -> Iterator[str]:
    rates = ("bound", "sampled_error", "sampled_error_bound", "training_error", "held_out_error", "held_out_bound")
    for name in (*rates, *ON_TEST_DATA):
        value = getattr(certificate, name)
        if value is not None and not 0 <= value <= 1:
            yield sentence(f"{name} must lie in [0, 1]", f"the certificate states {value:.4g}")
    for name in ("num_draws", "samples_per_draw", "grid_index"):
        if getattr(certificate, name) < 1:
            yield sentence(f"{name} must be at least 1", f"the certificate states {getattr(certificate, name)}")
    if certificate.draws not in DEFAULT_DRAWS:
        broken = f"the certificate states {certificate.draws[:40]!r}"
        yield sentence(f"draws must be one of {', '.join(DEFAULT_DRAWS)}", broken)
    if certificate.draws == "pairs" and certificate.samples_per_draw != 1:
        yield sentence("a pair has one sample", f"the certificate states {certificate.samples_per_draw}")
    if certificate.loss not in LOSSES:
        yield sentence(f"loss must be one of {', '.join(LOSSES)}", f"the certificate states {certificate.loss[:40]!r}")
    for name, known in (("inequality", _INEQUALITIES), ("fit_on", ("rest", "all"))):
        stated = getattr(certificate, name)
        if stated not in known:
            yield sentence(f"{name} must be one of {', '.join(known)}", f"the certificate states {stated[:40]!r}")
    if certificate.inequality != "langford_seeger" and None in (certificate.held_out_error, certificate.held_out_bound):
        yield sentence("a certificate must state the held-out bound beside its own", "it states none")
    if certificate.delta_share not in (0.5, 1.0):
        yield sentence("delta_share must be 1/2 or 1", f"the certificate states {certificate.delta_share:.4g}")
    if certificate.inequality == "langford_seeger" and (certificate.posterior_kind, certificate.loss) != _FIRST_KIND:
        yield sentence("the first form of certificates was for fitted posteriors and errors", "this is none")
    if not (certificate.inequality == "langford_seeger" and not certificate.draw_counts):
        yield from _count_faults(certificate)
    confidence_of(certificate.delta, certificate.sampling_delta)  # says by itself what is wrong


def _count_faults(certificate: Certificate) -> Iterator[str]:
    """The counts of draws are as many as draws, in as many steps as their kind has."""
    counts = certificate.draw_counts
    is_binary = bounded_loss(certificate.loss).is_binary if certificate.loss in LOSSES else True
    steps = certificate.samples_per_draw if is_binary else NUM_STEPS
    if len(counts) != steps + 1 or sum(counts) != certificate.num_draws:
        broken = f"{len(counts) - 1} steps and {sum(counts)} draws were found"
        wanted = f"the counts of draws must be of {steps} steps and {certificate.num_draws} draws"
        yield sentence(wanted, broken)
    if certificate.posterior_kind == "prior" and (certificate.draws, certificate.num_draws) != (
        "samples",
        certificate.num_samples,
    ):
        yield sentence("a posterior that is the prior answers every sample once", "other draws are stated")
    if certificate.posterior_kind == "fitted" and certificate.draws == "samples":
        yield sentence("a fitted posterior is drawn in pairs or networks", "the certificate states 'samples'")


def _as_grid(stated: object) -> PriorGrid:
    """The grid that a certificate states; those of version 0.1.0 do not count their points."""
    if not isinstance(stated, dict):
        raise InvalidInput(sentence("a certificate must state its grid", f"it states {_words(stated)}"))
    names = ("scale", "precision", "num_points")
    if not set(stated) <= set(names):
        raise InvalidInput(sentence("a grid has a scale, a precision and points", f"it states {_words(stated)}"))
    return PriorGrid(**stated)


def _grid_faults(certificate: Certificate, grid: PriorGrid) -> Iterator[str]:
    stated = certificate.settings.get("grid")
    if _as_grid(stated) != grid:
        broken = f"the certificate states {_words(stated)}, the verifier has {_words(dataclasses.asdict(grid))}"
        yield sentence("the grid of prior variances must be the one fixed beforehand", broken, _REMEDY)
    variance = grid.variance(certificate.grid_index)
    if not isclose(certificate.prior_variance, variance, rel_tol=_SAME):
        place = f"at index {certificate.grid_index} the grid has {variance:.6g}"
        broken = f"the certificate states {certificate.prior_variance:.6g}, and {place}"
        yield sentence("the prior variance of a certificate must be a point of the grid", broken)


def _words(grid: object) -> str:
    if isinstance(grid, dict):
        return ", ".join(f"{name} {value}"[:40] for name, value in list(grid.items())[:4])
    return "no grid"
