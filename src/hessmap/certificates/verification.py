"""Verification: a certificate compared with the network, the samples and the weights at the centre of its prior.

It binds file, samples and posterior to each other by their hashes and recomputes the bound. It is made for honest
mistakes (other samples, another architecture, a damaged or outdated file): see ``hessmap.certificates``.
"""

from __future__ import annotations

import copy
import dataclasses
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isclose
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from hessmap.certificates.bounds import (
    bound_from_mean,
    bound_of_prior,
    fitted_bound,
    held_out,
    prior_bound,
    prior_delta,
)
from hessmap.certificates.certificate import ASSUMPTIONS, Certificate
from hessmap.certificates.certify import DATA_PRIOR_GRID
from hessmap.certificates.draws import Draws, Sampler, mean_loss
from hessmap.certificates.losses import BoundedLoss, bounded_loss
from hessmap.certificates.model_checks import checked_pair, doubts_about_prior
from hessmap.certificates.posterior import Posterior, best_grid_point, posterior_arrays, posterior_of_arrays
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
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets import Data
from hessmap.errors import HessmapError, checked_count, checked_seed, require
from hessmap.records import Provenance, Record, data_hash, provenance
from hessmap.theory.pac_bayes import PriorGrid, confidence_of, tightest_bound

Verdict = Literal["confirmed", "not confirmed", "refused"]
_DELTAS = (0.025, 0.01)  # of the verifier
_SAME = 1e-6  # relative: what sums of millions of terms differ by on two machines
_ROUNDING_ERRORS = 2e-3  # share of the samples that single precision may answer differently on another machine
_ON_TEST_DATA = ("test_error", "stochastic_test_error")


@dataclass(frozen=True, eq=False, repr=False)
class Verification(Record):
    """The result of verifying a certificate: a bound of the verifier's own, and whether the claimed one is compatible.

    ``bound`` holds with probability ``confidence``, from the verifier's draws, whatever the certificate claims. It and
    all other numbers are None where the certificate was refused. ``bool(verification)`` is ``is_confirmed``.

    Attributes:
        verdict: "confirmed", "not confirmed" or "refused".
        reasons: Why the verdict is not "confirmed".
        claimed_bound: Bound that the certificate states.
        claimed_confidence: Confidence that the certificate states.
        bound: Bound from the verifier's draws.
        confidence: Probability with which it holds.
        kl: Divergence of the posterior from the prior.
        complexity: B of ``theory.pac_bayes``.
        sampled_error: Share of errors over the draws.
        sampled_error_bound: Upper bound on the error on the certified samples that follows from the draws.
        draws: "pairs", "networks" or "samples", as in ``Certificate``.
        num_draws: Number of draws.
        grid_index: Index of the prior variance in the grid.
        prior_variance: Variance of the prior.
        num_samples: Number of distinct inputs among the certified rows.
        num_parameters: Number of parameters of the network.
        training_error: Error of the mean weights on the certified samples.
        test_error: Error of the mean weights on the test samples; None without these.
        held_out_error: Error of the prior's mean network on the certified samples.
        held_out_bound: Bound on its error on unseen data, from the certified samples alone.
        seed: Seed of the draws.
        doubts: Signs that an assumption may be violated. Default: none.
        assumptions: What the bound assumes. Default: the assumptions of every certificate.
        unchecked: What the certificate states and was not recomputed. Default: nothing.
        seconds: Wall time. Defaults to 0.
        provenance: Versions, number format and seed. Default: None.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    claimed_bound: float
    claimed_confidence: float
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
    claim: Certificate,
    model: nn.Module,
    data: Data | tuple[Any, Any],
    initial_model: nn.Module | None,
    seed: int | None,
    grid: PriorGrid | None,
    num_draws: int | None,
    test_data: Data | tuple[Any, Any] | None = None,
    prior_data: Data | tuple[Any, Any] | None = None,
) -> Verification:
    """What the verifier passes is checked first and raises; what the certificate holds is judged."""
    started = time.perf_counter()
    seed = checked_seed(secrets.randbits(62) if seed is None else seed)
    if num_draws is not None:
        checked_count("num_draws", num_draws)
    require(grid is None or isinstance(grid, PriorGrid), "grid must be a PriorGrid", f"got {grid!r}")
    if grid is None:
        grid = DATA_PRIOR_GRID if claim.num_prior_samples or claim.posterior_kind == "prior" else PriorGrid()
    with torch.inference_mode(False):
        evidence = _evidence(claim, model, initial_model, data, prior_data, test_data)
        try:
            posterior, prior = _bound_posterior(claim, evidence, grid)
            reasons, numbers = _recomputed(claim, evidence, posterior, prior, grid, num_draws, seed)
        except HessmapError as error:
            return Verification(
                "refused", (str(error),), claim.bound, claim.confidence, provenance=provenance("float32")
            )
        return Verification(
            "not confirmed" if reasons else "confirmed",
            reasons,
            claim.bound,
            claim.confidence,
            confidence=confidence_of(*_DELTAS),
            seed=seed,
            seconds=time.perf_counter() - started,
            provenance=provenance("float32", seed),
            **numbers,
        )


@dataclass(frozen=True, eq=False)
class _Evidence:
    """What the verifier passes, checked; ``prior_model`` is None where the file holds the prior."""

    network: StochasticNetwork
    sampler: Sampler
    prior_model: nn.Module | None
    certified: CertifiedSamples
    part: PriorPart
    tests: Data | None
    uncompared: tuple[str, ...]

    def doubts(self, centre: nn.Module) -> tuple[str, ...]:
        found = (*self.uncompared, *self.certified.doubts, *self.sampler.doubts)
        if self.part.num_samples or self.prior_model is None:
            return found
        return (*doubts_about_prior(centre, self.prior_model, self.certified.distinct, self.sampler.loss), *found)


def _evidence(
    claim: Certificate, model: nn.Module, prior_model: nn.Module | None, data: Any, prior_data: Any, tests: Any
) -> _Evidence:
    has_own_prior = claim.num_prior_samples > 0 and prior_model is None
    model, start, uncompared = checked_pair(model, copy.deepcopy(model) if has_own_prior else prior_model)
    loss = bounded_loss(claim.loss)
    given, seen, part = _parts(claim, model, data, prior_data, loss)
    network = StochasticNetwork(model, torch.Generator())
    originals = (model,) if has_own_prior else (model, start)
    sampler = Sampler(network, given.data.inputs, *originals, loss=loss)
    checked_tests = None if tests is None else checked_samples(model, tests, "test_data", 1, loss).data
    certified = CertifiedSamples.of(given, seen)
    return _Evidence(network, sampler, None if has_own_prior else start, certified, part, checked_tests, uncompared)


def _parts(
    claim: Certificate, model: nn.Module, data: Any, prior_data: Any, loss: BoundedLoss
) -> tuple[Samples, Samples | None, PriorPart]:
    """The certified samples and those of the prior: both passed, or split from all samples as stated."""
    if prior_data is not None:
        given = checked_samples(model, data, "data", loss=loss)
        seen = checked_samples(model, prior_data, "prior_data", 1, loss)
        return given, seen, dataclasses.replace(prior_part(given, seen), split=claim.split)
    whole = Data(*raw_samples(data))
    if claim.split and claim.split.get("num_samples") == len(whole.inputs):
        stated: Any = claim.split
        split = SampleSplit(stated["prior_fraction"], stated["seed"])
        seen, given = (checked_samples(model, part, "data", 1, loss) for part in split.parts(whole))
        return given, seen, prior_part(given, seen, split, whole)
    require(
        not claim.num_prior_samples,
        "a certificate with a prior from data is verified with the samples of that prior",
        "they are missing",
        "Pass prior_data, or all samples where a split is stated",
    )
    return checked_samples(model, whole, "data", loss=loss), None, PriorPart()


def _bound_posterior(claim: Certificate, evidence: _Evidence, grid: PriorGrid) -> tuple[Posterior, Posterior]:
    """The stored posterior and the prior; raises where file, samples, architecture and grid do not belong together."""
    _require_same_samples(claim, evidence)
    prior = None
    if evidence.prior_model is not None:
        prior = StochasticNetwork(evidence.prior_model, torch.Generator()).posterior()
    own = evidence.network.posterior()
    _require_same_arrays(claim, posterior_arrays(own, prior or own), prior is not None)
    stated = claim.settings.get("grid")
    require(
        stated == dataclasses.asdict(grid),
        "the grid of prior variances must be the one fixed beforehand",
        f"the certificate states {_grid_words(stated)}, the verifier has {_grid_words(dataclasses.asdict(grid))}",
        "Pass grid=PriorGrid(..) if that grid was fixed before the samples were seen",
    )
    variance = grid.variance(claim.grid_index)
    broken = f"the certificate states {claim.prior_variance:.6g}, and index {claim.grid_index} has {variance:.6g}"
    must = "the prior variance of a certificate must be a point of the grid"
    require(isclose(claim.prior_variance, variance, rel_tol=_SAME), must, broken)
    posterior, stored = posterior_of_arrays(claim.posterior, evidence.network.layers)
    return posterior, prior or stored


def _require_same_samples(claim: Certificate, evidence: _Evidence) -> None:
    given, part = evidence.certified.given, evidence.part
    broken = f"these samples hash to {given.hash}, those of the certificate to {claim.data_hash}"
    require(given.hash == claim.data_hash, "a certificate is verified on the samples it was made from", broken)
    num_samples = evidence.certified.num_samples
    must = "a certificate must count the distinct inputs of its samples"
    require(num_samples == claim.num_samples, must, f"it counts {claim.num_samples}, there are {num_samples}")
    broken = (
        f"these samples hash to {part.hash or 'none'}, those of the certificate to {claim.prior_data_hash or 'none'}"
    )
    must = "a certificate is verified with the samples that its prior was trained on"
    require(part.hash == claim.prior_data_hash, must, broken)
    must = "the split of a certificate must be that of the samples"
    require(part.split == claim.split, must, f"the certificate states {claim.split}, and {part.split} was found")


def _require_same_arrays(claim: Certificate, expected: dict[str, np.ndarray[Any, Any]], is_prior_given: bool) -> None:
    """The stored arrays are those of this architecture and of this file, and the prior's are the verifier's."""
    stored = claim.posterior
    for name in [*expected, *stored]:
        wanted, found = (_form(arrays.get(name)) for arrays in (expected, stored))
        must = "a certificate is verified with the architecture it was made for"
        require(wanted == found, must, f"{name} is {found}, the network needs {wanted}")
    broken = "the arrays differ from those it was made with"
    is_own = data_hash(*stored.values()) == claim.posterior_hash
    require(is_own, "a certificate is verified from its own posterior", broken)
    for name, array in expected.items() if is_prior_given else ():
        is_prior = "initial_" in name.rpartition("/")[2]
        must = "the prior of a certificate must be centred at the initial weights"
        require(not is_prior or np.array_equal(array, stored[name]), must, f"{name} is not the initial model's")


def _recomputed(
    claim: Certificate,
    evidence: _Evidence,
    posterior: Posterior,
    prior: Posterior,
    grid: PriorGrid,
    num_draws: int | None,
    seed: int,
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Reasons against the claims, and the numbers of a verification."""
    network, sampler, certified, tests = evidence.network, evidence.sampler, evidence.certified, evidence.tests
    loss, num_samples = sampler.loss, certified.num_samples
    network.take(prior)
    plain = held_out(network.mean_model(), certified, loss, _DELTAS)
    if claim.posterior_kind == "prior":
        deltas = (_DELTAS[0] * claim.delta_share, _DELTAS[1] * claim.delta_share)
        found = prior_bound(prior, claim.grid_index, sampler, certified, grid, deltas, seed)
    else:
        point = best_grid_point(posterior, prior, [claim.grid_index], num_samples, grid, _DELTAS[0])
        found = fitted_bound(posterior, point, sampler, certified, grid, _DELTAS, num_draws, seed)
    network.take(found.posterior)
    centre = network.mean_model()
    errors = {
        "training_error": (mean_loss(centre, certified.distinct, loss), num_samples),
        "held_out_error": (plain.error, num_samples),
    }
    if tests is not None:
        errors["test_error"] = (mean_loss(centre, tests, loss), len(tests.inputs))
    unchecked = [name for name in _ON_TEST_DATA if name not in errors and getattr(claim, name) is not None]
    numbers = {
        "bound": found.value,
        "kl": found.point.kl,
        "complexity": found.point.complexity,
        "sampled_error": found.drawn.error,
        "sampled_error_bound": found.error_bound,
        "draws": found.drawn.kind,
        "num_draws": found.drawn.num_draws,
        "grid_index": found.point.index,
        "prior_variance": found.point.variance,
        "num_samples": num_samples,
        "num_parameters": sum(layer.means.numel() for layer in posterior.values()),
        "training_error": errors["training_error"][0],
        "test_error": None if tests is None else errors["test_error"][0],
        "held_out_error": plain.error,
        "held_out_bound": plain.bound,
        "doubts": evidence.doubts(centre),
        "unchecked": (*unchecked, *((STATEMENT,) if claim.num_prior_samples else ())),
    }
    return tuple(_objections(claim, found.point.kl, errors, found.drawn, grid)), numbers


def _objections(
    claim: Certificate, kl: float, errors: Mapping[str, tuple[float, int]], drawn: Draws, grid: PriorGrid
) -> Iterator[str]:
    """What speaks against the claims, given the divergence and the draws that the verifier found, and the errors of
    mean weights with the number of samples of each."""
    for name, found in _following(claim, kl, grid).items():
        stated = getattr(claim, name)
        if not isclose(stated, found, rel_tol=_SAME, abs_tol=_SAME**2):
            yield f"the certificate states {name.replace('_', ' ')} {stated:.6g}, and {found:.6g} follows"
    for name, (error, count) in errors.items():
        stated = getattr(claim, name)
        if stated is not None and abs(stated - error) > _ROUNDING_ERRORS + 2 / count:
            yield f"the certificate states {name.replace('_', ' ')} {stated:.4g}, and it is {error:.4g}"
    least = _bound_of_error(claim, drawn.lower_bound(_DELTAS[1]), kl, grid)
    if least > claim.bound * (1 + _SAME):
        yield f"the least error that these draws allow gives {least:.4f}, above the {claim.bound:.4f} claimed"


def _following(claim: Certificate, kl: float, grid: PriorGrid) -> dict[str, float]:
    """What follows from the counts of draws that are claimed and the divergence that was found."""
    deltas, loss = (claim.delta, claim.sampling_delta), bounded_loss(claim.loss)
    drawn = Draws("pairs", claim.draw_counts, claim.samples_per_draw)
    found = {
        "confidence": confidence_of(*deltas),
        "kl": kl,
        "sampled_error": drawn.error,
        "held_out_bound": bound_from_mean(claim.held_out_error, claim.num_samples, loss, deltas),
    }
    if claim.posterior_kind == "prior":
        delta = prior_delta(grid, claim.grid_index, _shared_deltas(claim))
        return found | {"sampled_error_bound": drawn.error, "bound": bound_of_prior(drawn, loss, delta)}
    error_bound = drawn.bound(_shared_deltas(claim)[1])
    return found | {"sampled_error_bound": error_bound, "bound": _bound_of_error(claim, error_bound, kl, grid)}


def _bound_of_error(claim: Certificate, error: float, kl: float, grid: PriorGrid) -> float:
    """The bound that a certificate with this error on the samples has."""
    deltas, loss = _shared_deltas(claim), bounded_loss(claim.loss)
    if claim.posterior_kind == "prior":
        num_errors = int(error * claim.num_samples)
        drawn = Draws("samples", (claim.num_samples - num_errors, num_errors), 1)
        return bound_of_prior(drawn, loss, prior_delta(grid, claim.grid_index, deltas))
    return tightest_bound(error, kl, claim.num_samples, grid.log_cost(claim.grid_index), deltas[0]).value


def _shared_deltas(claim: Certificate) -> tuple[float, float]:
    return claim.delta_share * claim.delta, claim.delta_share * claim.sampling_delta


def _grid_words(grid: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in grid.items()) if isinstance(grid, dict) else "no grid"


def _form(array: object) -> str:
    return f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else "absent"
