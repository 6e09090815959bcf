"""A certificate held against the network, the samples and the initial weights: every number anew, none believed."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import nn

from hessmap.certificates.certificate import Certificate, is_number
from hessmap.certificates.claimed_form import ON_TEST_DATA, type_faults
from hessmap.certificates.claimed_subject import first_refusal
from hessmap.certificates.draws import mean_loss
from hessmap.certificates.evidence import Evidence
from hessmap.certificates.objections import objections
from hessmap.certificates.parts import ASSUMPTIONS, held_out
from hessmap.certificates.posterior import GridPoint, Posterior, best_grid_point, posterior_of_arrays
from hessmap.certificates.promises import bound_of_prior, prior_delta
from hessmap.certificates.subject import DATA_PRIOR_GRID
from hessmap.datasets.data import Data
from hessmap.errors import HessmapError, InvalidInput, checked_count, checked_seed, require
from hessmap.results.provenance import Provenance, provenance
from hessmap.results.record import Record
from hessmap.theory.pac_bayes import PriorGrid, confidence_of
from hessmap.theory.risk_bounds import tightest_bound

Verdict = Literal["confirmed", "not confirmed", "refused"]
_DELTA, _SAMPLING_DELTA = 0.025, 0.01  # the verifier's own


@dataclass(frozen=True, eq=False, repr=False)
class Verification(Record):
    """What a verifier found: a bound of its own, and whether the claimed one is compatible with it.

    ``bound`` holds with probability ``confidence``, from this verifier's draws, whatever the certificate claims; it and
    all other numbers are None where the certificate was refused. ``reasons`` say why a verdict is not "confirmed",
    ``unchecked`` names what the certificate states and was not recomputed. As a truth value, a verification is its
    being confirmed.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    claimed_bound: float | None
    claimed_confidence: float | None
    bound: float | None = None
    confidence: float | None = None
    kl: float | None = None
    complexity: float | None = None
    sampled_error: float | None = None
    sampled_error_bound: float | None = None
    draws: str | None = None
    num_draws: int | None = None
    grid_index: int | None = None
    prior_variance: float | None = None
    num_samples: int | None = None
    num_parameters: int | None = None
    training_error: float | None = None
    test_error: float | None = None
    held_out_error: float | None = None
    held_out_bound: float | None = None
    seed: int | None = None
    doubts: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ASSUMPTIONS
    unchecked: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "verdict",
        "reasons",
        "claimed_bound",
        "bound",
        "confidence",
        "kl",
        "sampled_error_bound",
        "training_error",
        "test_error",
        "held_out_bound",
        "seed",
        "doubts",
        "unchecked",
    )

    @property
    def is_confirmed(self) -> bool:
        return self.verdict == "confirmed"

    def __bool__(self) -> bool:
        return self.is_confirmed


def verified(
    certificate: Certificate,
    model: nn.Module,
    data: Data | tuple[Any, Any],
    initial_model: nn.Module | None,
    seed: int | None,
    grid: PriorGrid | None,
    num_draws: int | None,
    test_data: Data | tuple[Any, Any] | None = None,
    prior_data: Data | tuple[Any, Any] | None = None,
) -> Verification:
    """The verdict; what the verifier hands over is checked first and raises, what the certificate holds is judged."""
    started = time.perf_counter()
    seed = checked_seed(secrets.randbits(62) if seed is None else seed)
    if num_draws is not None:
        checked_count("num_draws", num_draws)
    require(grid is None or isinstance(grid, PriorGrid), "grid must be a PriorGrid", f"got {grid!r}")
    stated = (certificate.bound, certificate.confidence)
    claimed, confidence = (float(value) if is_number(value) else None for value in stated)
    for fault in type_faults(certificate):
        return Verification("refused", (fault,), claimed, confidence, provenance=provenance("float32"))
    with torch.inference_mode(False):
        evidence = Evidence.checked(certificate, model, initial_model, data, prior_data, test_data)
        usual = (
            DATA_PRIOR_GRID if certificate.num_prior_samples or certificate.posterior_kind == "prior" else PriorGrid()
        )
        try:
            posterior, prior, point = _judged(certificate, evidence, grid or usual)
        except HessmapError as error:
            return Verification("refused", (str(error),), claimed, confidence, provenance=provenance("float32"))
        found = _recomputed(certificate, evidence, posterior, prior, point, grid or usual, num_draws, seed)
        return Verification(
            "not confirmed" if found.reasons else "confirmed",
            found.reasons,
            claimed,
            confidence,
            confidence=confidence_of(_DELTA, _SAMPLING_DELTA),
            seed=seed,
            seconds=time.perf_counter() - started,
            provenance=provenance("float32", seed),
            **found.numbers,
        )


class Recomputed(NamedTuple):
    """Reasons against the claims, and the fields of a verification that were computed."""

    reasons: tuple[str, ...]
    numbers: dict[str, Any]


def _judged(certificate: Certificate, evidence: Evidence, grid: PriorGrid) -> tuple[Posterior, Posterior, GridPoint]:
    """The stored posterior, the prior and the divergence of the one from the other; raises where there is none."""
    held = evidence.held(grid)
    refusal = first_refusal(certificate, held)
    if refusal is not None:
        raise InvalidInput(refusal)
    posterior, stored = posterior_of_arrays(certificate.posterior, evidence.network.layers)
    prior = stored if held.prior is None else held.prior
    if certificate.posterior_kind == "prior":
        index = certificate.grid_index
        return posterior, prior, GridPoint(index, grid.variance(index), 0.0, 0.0)
    point = best_grid_point(posterior, prior, [certificate.grid_index], held.num_samples, grid, _DELTA)
    return posterior, prior, point


def _recomputed(
    certificate: Certificate,
    evidence: Evidence,
    posterior: Posterior,
    prior: Posterior,
    point: GridPoint,
    grid: PriorGrid,
    num_draws: int | None,
    seed: int,
) -> Recomputed:
    network, sampler, samples = evidence.network, evidence.sampler, evidence.certified.samples
    loss, tests = sampler.loss, evidence.tests
    network.take(prior)
    plain = held_out(network.mean_model(), samples, loss, (_DELTA, _SAMPLING_DELTA))
    network.take(posterior)
    centre = network.mean_model()
    errors = {"training_error": (mean_loss(centre, samples, loss), len(samples.inputs))}
    if certificate.held_out_error is not None:
        errors["held_out_error"] = (plain.error, len(samples.inputs))
    if tests is not None:
        errors["test_error"] = (mean_loss(centre, tests, loss), len(tests.inputs))
    if certificate.posterior_kind == "prior":
        drawn = sampler.draws_of_each(samples, seed)
        error_bound = drawn.error
        deltas = (_DELTA * certificate.delta_share, _SAMPLING_DELTA * certificate.delta_share)
        bound = bound_of_prior(drawn, loss, prior_delta(grid, point.index, deltas))
    else:
        drawn = sampler.draws(samples, num_draws, seed)
        error_bound = drawn.bound(_SAMPLING_DELTA)
        bound = tightest_bound(error_bound, point.kl, len(samples.inputs), grid.log_cost(point.index), _DELTA).value
    num_parameters = sum(layer.means.numel() for layer in posterior.values())
    reasons = objections(certificate, point.kl, num_parameters, errors, drawn, evidence.part, grid, _SAMPLING_DELTA)
    unchecked = [name for name in ON_TEST_DATA if name not in errors and getattr(certificate, name) is not None]
    numbers = {
        "bound": bound,
        "kl": point.kl,
        "complexity": point.complexity,
        "sampled_error": drawn.error,
        "sampled_error_bound": error_bound,
        "draws": drawn.kind,
        "num_draws": drawn.num_draws,
        "grid_index": point.index,
        "prior_variance": point.variance,
        "num_samples": len(samples.inputs),
        "num_parameters": num_parameters,
        "training_error": errors["training_error"][0],
        "test_error": None if tests is None else errors["test_error"][0],
        "held_out_error": plain.error,
        "held_out_bound": plain.bound,
        "doubts": evidence.doubts(centre),
        "unchecked": (*unchecked, *evidence.unchecked(certificate)),
    }
    return Recomputed(tuple(reasons), numbers)
