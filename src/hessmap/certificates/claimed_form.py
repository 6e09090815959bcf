"""The form of a certificate: types, ranges, counts and shapes, looked at before any arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np

from hessmap.certificates.certificate import Certificate, field_faults
from hessmap.certificates.draws import DEFAULT_DRAWS, NUM_STEPS
from hessmap.certificates.losses import LOSSES, bounded_loss
from hessmap.errors import sentence
from hessmap.results.provenance import data_hash
from hessmap.theory.pac_bayes import confidence_of
from hessmap.theory.risk_bounds import Inequality

Array = np.ndarray[Any, Any]
_INEQUALITIES = get_args(Inequality)
_FIRST_KIND = ("fitted", "cross_entropy")
ON_TEST_DATA = ("test_error", "stochastic_test_error")


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


def number_faults(certificate: Certificate) -> Iterator[str]:
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


def array_faults(
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
