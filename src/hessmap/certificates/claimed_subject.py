"""Whether a certificate is one for the samples, the network, the prior and the grid that a verifier holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from math import isclose, log

import numpy as np

from hessmap.certificates.bases import BASES
from hessmap.certificates.certificate import Certificate
from hessmap.certificates.claimed_form import array_faults, number_faults
from hessmap.certificates.parts import PriorPart
from hessmap.certificates.posterior import Posterior, posterior_arrays
from hessmap.errors import InvalidInput, sentence
from hessmap.theory.pac_bayes import PriorGrid

_SAME = 1e-6  # relative: what a variance may lose in a file
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
        array_faults(certificate, posterior_arrays(held.network, held.prior or held.network), held.prior is not None),
        number_faults(certificate),
        _grid_faults(certificate, held.grid),
        _posterior_faults(certificate),
        _basis_faults(certificate),
    ):
        for fault in faults:
            return fault
    return None


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


def _basis_faults(certificate: Certificate) -> Iterator[str]:
    """A basis that is called standard is the coordinates as they are; of others the arrays say which they are."""
    turned = [
        name
        for name, array in certificate.posterior.items()
        if name.endswith("_basis") and not np.array_equal(array, np.eye(len(array)))
    ]
    if certificate.basis == "standard" and turned:
        yield sentence("the standard basis is the coordinates as they are", f"{turned[0]} is another one")
    if certificate.basis not in (*BASES, "given"):
        broken = f"the certificate states {certificate.basis[:40]!r}"
        yield sentence(f"basis must be one of {', '.join((*BASES, 'given'))}", broken)
