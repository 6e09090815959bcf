"""A certificate held against the network, the samples and the initial weights: every number anew, none believed."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import nn

from hessmap.certificates.certificate import Certificate, is_number
from hessmap.certificates.certify import ASSUMPTIONS
from hessmap.certificates.claims import ON_TEST_DATA, first_refusal, objections
from hessmap.certificates.draws import Sampler, classification_error
from hessmap.certificates.inputs import CheckedData, checked_data, checked_pair, doubts_about_prior
from hessmap.certificates.posterior import GridPoint, Posterior, best_grid_point, posterior_of_arrays
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets.data import Data
from hessmap.errors import HessmapError, InvalidInput, checked_count, checked_seed, require
from hessmap.results.provenance import Provenance, provenance
from hessmap.results.record import Record
from hessmap.theory.pac_bayes import PriorGrid, binary_kl_inverse, confidence_of, sampled_error_bound

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
) -> Verification:
    """The verdict; what the verifier hands over is checked first and raises, what the certificate holds is judged."""
    started = time.perf_counter()
    seed = checked_seed(secrets.randbits(62) if seed is None else seed)
    if num_draws is not None:
        checked_count("num_draws", num_draws)
    require(grid is None or isinstance(grid, PriorGrid), "grid must be a PriorGrid", f"got {grid!r}")
    with torch.inference_mode(False):
        model, initial_model, uncompared = checked_pair(model, initial_model)
        given = checked_data(model, data, "data")
        tests = None if test_data is None else checked_data(model, test_data, "test_data", at_least=1).samples
        network, start = (StochasticNetwork(one, torch.Generator()) for one in (model, initial_model))
        sampler = Sampler(network, given.samples.inputs, model, initial_model)
        stated = (certificate.bound, certificate.confidence)
        claimed, confidence = (float(value) if is_number(value) else None for value in stated)
        try:
            posterior, point = _judged(certificate, given, network, start.posterior(), grid or PriorGrid())
        except HessmapError as error:
            return Verification("refused", (str(error),), claimed, confidence, provenance=provenance("float32"))
        network.take(posterior)
        drawn = sampler.draws(given.samples, num_draws, seed)
        error_bound = sampled_error_bound(drawn.num_errors, drawn.num_draws, _SAMPLING_DELTA, drawn.samples_per_draw)
        centre = network.mean_model()
        errors = {"training_error": (classification_error(centre, given.samples), len(given.samples.inputs))}
        if tests is not None:
            errors["test_error"] = (classification_error(centre, tests), len(tests.inputs))
        num_parameters = sum(layer.means.numel() for layer in posterior.values())
        reasons = objections(certificate, point.kl, num_parameters, errors, drawn, _SAMPLING_DELTA)
        return Verification(
            "not confirmed" if (found := tuple(reasons)) else "confirmed",
            found,
            claimed,
            confidence,
            bound=binary_kl_inverse(error_bound, point.complexity),
            confidence=confidence_of(_DELTA, _SAMPLING_DELTA),
            kl=point.kl,
            complexity=point.complexity,
            sampled_error=drawn.error,
            sampled_error_bound=error_bound,
            draws=drawn.kind,
            num_draws=drawn.num_draws,
            grid_index=point.index,
            prior_variance=point.variance,
            num_samples=len(given.samples.inputs),
            num_parameters=num_parameters,
            training_error=errors["training_error"][0],
            test_error=None if tests is None else errors["test_error"][0],
            seed=seed,
            doubts=(*doubts_about_prior(centre, initial_model, given.samples), *uncompared, *sampler.doubts),
            unchecked=tuple(
                name for name in ON_TEST_DATA if name not in errors and getattr(certificate, name) is not None
            ),
            seconds=time.perf_counter() - started,
            provenance=provenance("float32", seed),
        )


def _judged(
    certificate: Certificate, given: CheckedData, network: StochasticNetwork, prior: Posterior, grid: PriorGrid
) -> tuple[Posterior, GridPoint]:
    """The stored posterior and its divergence from the prior of the verifier; raises where there is none."""
    count = len(given.samples.inputs)
    refusal = first_refusal(certificate, given.hash, count, network.posterior(), prior, grid)
    if refusal is not None:
        raise InvalidInput(refusal)
    posterior, _ = posterior_of_arrays(certificate.posterior, network.layers)
    return posterior, best_grid_point(posterior, prior, [certificate.grid_index], count, grid, _DELTA)
