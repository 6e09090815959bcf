"""What a certificate claims: whether it can be judged at all, and what speaks against its numbers.

Shapes, types and finiteness come before any arithmetic. Nothing here believes a number of the certificate: each is
recomputed, from the verifier's own samples, initial weights, grid and draws.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from math import exp, isclose

import numpy as np
from scipy.stats import binom

from hessmap.certificates.certificate import Certificate, field_faults
from hessmap.certificates.draws import DEFAULT_DRAWS, Draws
from hessmap.certificates.posterior import Posterior, posterior_arrays
from hessmap.errors import sentence
from hessmap.results.provenance import data_hash
from hessmap.theory.pac_bayes import (
    PriorGrid,
    binary_kl,
    binary_kl_inverse,
    complexity,
    confidence_of,
    sampled_error_bound,
    sampled_error_lower_bound,
)

ON_TEST_DATA = ("test_error", "stochastic_test_error")
_SAME = 1e-6  # relative: what sums of millions of terms differ by on two machines
_ERRORS_OF_ROUNDING = 2e-3  # of the samples, that single precision may answer in another way on another machine
_REMEDY = "Hand over grid=PriorGrid(..) if that grid was fixed before the samples were seen"


def first_refusal(
    certificate: Certificate, data: str, num_samples: int, network: Posterior, prior: Posterior, grid: PriorGrid
) -> str | None:
    """Why a certificate is none for this hash and number of samples, this network and prior, and this grid."""
    for faults in (
        _type_faults(certificate),
        _sample_faults(certificate, data, num_samples),
        _array_faults(certificate, posterior_arrays(network, prior)),
        _number_faults(certificate),
        _grid_faults(certificate, grid),
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
    sampling_delta: float,
) -> Iterator[str]:
    """What speaks against the claims, given the divergence that the verifier found, and the errors of the mean weights
    with the number of samples of each."""
    claim = certificate
    own_complexity = complexity(kl, claim.num_samples, claim.grid_index, claim.delta)
    num_answers = claim.num_draws * claim.samples_per_draw
    num_errors = round(claim.sampled_error * num_answers)
    error_bound = sampled_error_bound(num_errors, claim.num_draws, claim.sampling_delta, claim.samples_per_draw)
    for name, found in (
        ("confidence", confidence_of(claim.delta, claim.sampling_delta)),
        ("kl", kl),
        ("complexity", own_complexity),
        ("num_parameters", num_parameters),
        ("sampled_error", num_errors / num_answers),
        ("sampled_error_bound", error_bound),
        ("bound", binary_kl_inverse(error_bound, own_complexity)),
    ):
        stated = getattr(claim, name)
        if not isclose(stated, found, rel_tol=_SAME, abs_tol=_SAME**2):
            yield f"the certificate states {name.replace('_', ' ')} {stated:.6g}, and {found:.6g} follows"
    for name, (error, count) in errors.items():
        stated = getattr(claim, name)
        if stated is not None and abs(stated - error) > _ERRORS_OF_ROUNDING + 2 / count:
            yield f"the certificate states {name.replace('_', ' ')} {stated:.4g}, and it is {error:.4g}"
    least = sampled_error_lower_bound(drawn.num_errors, drawn.num_draws, sampling_delta, drawn.samples_per_draw)
    least_bound = binary_kl_inverse(least, own_complexity)
    if least_bound > claim.bound * (1 + _SAME):
        yield f"the least error that these draws allow gives {least_bound:.4f}, above the {claim.bound:.4f} claimed"
    chance = _chance_of_as_few(num_errors, claim, least)
    if chance < sampling_delta:
        yield (
            f"as few errors as claimed, {claim.sampled_error:.4f} in {claim.num_draws} draws, have a chance of"
            f" {chance:.1g} where these draws show {drawn.error:.4f}: was the seed chosen among many? More draws decide"
        )


def _chance_of_as_few(num_errors: int, claim: Certificate, rate: float) -> float:
    """Of as few errors as claimed if the rate is no lower than this; an upper bound where a draw has many samples."""
    if claim.samples_per_draw == 1:
        return float(binom.cdf(num_errors, claim.num_draws, rate))
    observed = num_errors / (claim.num_draws * claim.samples_per_draw)
    return exp(-claim.num_draws * binary_kl(observed, rate)) if observed < rate else 1.0


def _type_faults(certificate: Certificate) -> Iterator[str]:
    for fault in field_faults(certificate):
        yield sentence("a certificate must hold what its fields say", fault)
    if not (isinstance(certificate.posterior, dict) and certificate.posterior):
        yield sentence("a certificate is verified from its posterior", "it holds none")


def _sample_faults(certificate: Certificate, found: str, num_samples: int) -> Iterator[str]:
    if found != certificate.data_hash:
        broken = f"these samples hash to {found}, those of the certificate to {certificate.data_hash}"
        yield sentence("a certificate is verified on the samples it was made from", broken)
    if num_samples != certificate.num_samples:
        broken = f"it states {certificate.num_samples}, there are {num_samples}"
        yield sentence("a certificate must state the number of its samples", broken)


def _array_faults(certificate: Certificate, expected: dict[str, np.ndarray]) -> Iterator[str]:
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
    for name, array in expected.items():
        if "initial_" in name.rpartition("/")[2] and not np.array_equal(array, stored[name]):
            broken = f"{name} is not the initial model's"
            yield sentence("the prior of a certificate must stand at the initial weights", broken)


def _form(array: object) -> str:
    return f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "absent"


def _number_faults(certificate: Certificate) -> Iterator[str]:
    for name in ("bound", "sampled_error", "sampled_error_bound", "training_error", *ON_TEST_DATA):
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
    confidence_of(certificate.delta, certificate.sampling_delta)  # says by itself what is wrong


def _grid_faults(certificate: Certificate, grid: PriorGrid) -> Iterator[str]:
    own, stated = dataclasses.asdict(grid), certificate.settings.get("grid")
    if stated != own:
        broken = f"the certificate states {_words(stated)}, the verifier has {_words(own)}"
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
