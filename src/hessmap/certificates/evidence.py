"""What a verifier hands over: a network, samples, the prior's weights and samples; checked before any claim is read."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import nn

from hessmap.certificates.certificate import Certificate, is_number
from hessmap.certificates.claimed_subject import Held
from hessmap.certificates.draws import Sampler
from hessmap.certificates.inputs import CheckedData, checked_data, checked_pair, doubts_about_prior, raw_samples
from hessmap.certificates.losses import LOSSES, BoundedLoss, ClassificationError
from hessmap.certificates.parts import STATEMENT, PriorPart, prior_part
from hessmap.certificates.split import SampleSplit
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets.data import Data
from hessmap.errors import HessmapError, require
from hessmap.theory.pac_bayes import PriorGrid

TOLD = "basis, ending, settings, notes, doubts and seconds are words of the certifier: no promise rests on them"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Networks and samples of the verifier; ``prior_model`` is None where the file holds the prior."""

    network: StochasticNetwork
    sampler: Sampler
    prior_model: nn.Module | None
    certified: CheckedData
    part: PriorPart
    tests: Data | None
    uncompared: tuple[str, ...]

    @classmethod
    def checked(
        cls, claim: Certificate, model: nn.Module, prior_model: nn.Module | None, data: Any, prior_data: Any, tests: Any
    ) -> Self:
        has_own_prior = claim.num_prior_samples > 0 and prior_model is None
        model, start, uncompared = checked_pair(model, copy.deepcopy(model) if has_own_prior else prior_model)
        loss = LOSSES.get(claim.loss, ClassificationError())
        certified, part = _parts(claim, model, data, prior_data, loss)
        network = StochasticNetwork(model, torch.Generator())
        originals = (model,) if has_own_prior else (model, start)
        sampler = Sampler(network, certified.samples.inputs, *originals, loss=loss)
        given_tests = None if tests is None else checked_data(model, tests, "test_data", 1, loss).samples
        return cls(network, sampler, None if has_own_prior else start, certified, part, given_tests, uncompared)

    def held(self, grid: PriorGrid) -> Held:
        prior = None
        if self.prior_model is not None:
            prior = StochasticNetwork(self.prior_model, torch.Generator()).posterior()
        count = len(self.certified.samples.inputs)
        return Held(self.certified.hash, count, self.network.posterior(), prior, self.part, grid)

    def doubts(self, centre: nn.Module) -> tuple[str, ...]:
        found = (*self.uncompared, *self.sampler.doubts)
        if self.part.num_samples or self.prior_model is None:
            return found
        return (*doubts_about_prior(centre, self.prior_model, self.certified.samples, self.sampler.loss), *found)

    def unchecked(self, claim: Certificate) -> tuple[str, ...]:
        """What no computation shows here: what the prior saw, and words about the fit on which nothing rests."""
        return (*((STATEMENT,) if claim.num_prior_samples else ()), TOLD)


def _parts(
    claim: Certificate, model: nn.Module, data: Any, prior_data: Any, loss: BoundedLoss
) -> tuple[CheckedData, PriorPart]:
    """The certified samples and those of the prior: both handed over, or split from all samples as is stated."""
    given = checked_data(model, data, "data", loss=loss)
    if prior_data is not None:
        part = prior_part(given, checked_data(model, prior_data, "prior_data", 1, loss))
        return given, replace(part, split=claim.split)
    split = _split(claim.split)
    if split is not None and claim.split.get("num_samples") == len(given.samples.inputs):
        seen, certified = (checked_data(model, part, "data", 1, loss) for part in split.parts(Data(*raw_samples(data))))
        return certified, prior_part(certified, seen, split, given)
    require(
        not claim.num_prior_samples,
        "a certificate whose prior has seen samples is verified with them",
        "they are missing",
        "Hand over prior_data, or all samples where a split is stated",
    )
    return given, PriorPart()


def _split(stated: dict[str, object]) -> SampleSplit | None:
    """The split that a certificate states, where it is one."""
    fraction, seed = stated.get("prior_fraction"), stated.get("seed")
    if not (is_number(fraction) and isinstance(seed, int)):
        return None
    try:
        return SampleSplit(float(fraction), seed)  # type: ignore[arg-type]
    except HessmapError:
        return None
