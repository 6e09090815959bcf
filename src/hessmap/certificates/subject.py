"""What is certified: two networks of one shape, the certified samples, those of the prior, and a loss; all checked."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn

from hessmap.certificates.inputs import CheckedData, checked_data, checked_pair, doubts_about_prior
from hessmap.certificates.losses import BoundedLoss
from hessmap.certificates.parts import PriorPart, num_coincidences, prior_part
from hessmap.certificates.split import SampleSplit
from hessmap.datasets.data import Data
from hessmap.theory.pac_bayes import PriorGrid

# Standard deviations .030, .018, .011, .0068 and .0041: of weights that have learnt, which a blind prior needs wider.
DATA_PRIOR_GRID = PriorGrid(0.0025, precision=1, num_points=5)


@dataclass(frozen=True, eq=False)
class Subject:
    """The networks and samples of a certificate; ``doubts`` says what speaks against them."""

    model: nn.Module
    prior_model: nn.Module
    certified: CheckedData
    seen: CheckedData | None
    tests: Data | None
    loss: BoundedLoss
    part: PriorPart
    uncompared: tuple[str, ...]

    @classmethod
    def checked(
        cls,
        model: nn.Module,
        prior_model: nn.Module | None,
        data: Any,
        prior_data: Any,
        test_data: Any,
        loss: BoundedLoss,
        split: SampleSplit | None = None,
        whole: Any = None,
    ) -> Self:
        """Refuses what cannot be certified, and samples that the prior has seen."""
        if prior_data is not None and model is prior_model:
            model = copy.deepcopy(model)  # a posterior that starts at the prior
        model, prior_model, uncompared = checked_pair(model, prior_model)
        certified = checked_data(model, data, "data", loss=loss)
        seen = None if prior_data is None else checked_data(model, prior_data, "prior_data", 1, loss)
        tests = None if test_data is None else checked_data(model, test_data, "test_data", 1, loss).samples
        everything = None if whole is None else checked_data(model, whole, "data", loss=loss)
        part = prior_part(certified, seen, split, everything)
        return cls(model, prior_model, certified, seen, tests, loss, part, uncompared)

    @property
    def usual_grid(self) -> PriorGrid:
        return DATA_PRIOR_GRID if self.seen is not None else PriorGrid()

    def doubts(self, trained: nn.Module) -> tuple[str, ...]:
        """Signs that a blind prior knows the samples; of one with samples of its own nothing else is expected."""
        if self.seen is not None:
            return self.uncompared
        return (*doubts_about_prior(trained, self.prior_model, self.certified.samples, self.loss), *self.uncompared)

    def notes(self) -> tuple[str, ...]:
        count = num_coincidences(self.certified, self.part)
        words = (
            f"{count} certified samples equal one of the prior's: coincidences, since the parts are chosen by position"
        )
        return (words,) if count else ()

    def fit_data(self, fit_on: str) -> Data:
        """The samples that a posterior is fitted on."""
        own = self.certified.samples
        if fit_on == "rest" or self.seen is None:
            return own
        other = self.seen.samples
        return Data(torch.cat([own.inputs, other.inputs]), torch.cat([own.targets, other.targets]))
