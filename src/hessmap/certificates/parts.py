"""Which samples were used for what, and what the certified ones promise without any posterior."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nextafter

from torch import nn

from hessmap.certificates.draws import mean_loss
from hessmap.certificates.inputs import CheckedData
from hessmap.certificates.losses import BoundedLoss
from hessmap.certificates.split import Digests, SampleSplit, no_digests, num_in_common, refuse_overlap, sample_digests
from hessmap.datasets.data import Data
from hessmap.theory.risk_bounds import held_out_bound, mean_bound

ASSUMPTIONS = (
    "the samples are independent draws from the law of the unseen data",
    "the prior's weights, the grid of variances and both deltas were chosen without looking at the certified samples",
    "the promise is about the stochastic network, which draws weights for every answer, not about the mean weights",
)
STATEMENT = "that the prior saw no other samples is the certifier's statement: no computation can show it"


@dataclass(frozen=True, eq=False)
class PriorPart:
    """The samples that the prior has seen: their number, the hash of all, and one of each; none for a blind prior.

    ``split`` says how they were chosen by position, where they were; then equal samples in both parts are coincidences.
    """

    num_samples: int = 0
    hash: str = ""
    digests: Digests = field(default_factory=no_digests)
    split: dict[str, object] = field(default_factory=dict)

    def words(self, num_certified: int, fit_on: str, kind: str) -> tuple[str, ...]:
        """What every part was used for, in sentences."""
        if not self.num_samples:
            prior = "the prior has seen no sample"
        else:
            prior = f"the prior was trained on {self.num_samples:,} samples of its own"
        if self.split:
            prior += f", the first {self.split['prior_fraction']:g} of an order from seed {self.split['seed']}"
        if kind == "prior":
            posterior = "the posterior is the prior itself"
        elif fit_on == "all":
            posterior = "the posterior was fitted on all samples"
        else:
            posterior = f"the posterior was fitted on the other {num_certified:,} samples"
        certified = f"the bound is of the error on {num_certified:,} samples that the prior has not seen"
        return prior, posterior, certified, *((STATEMENT,) if self.num_samples else ())


def prior_part(
    certified: CheckedData, seen: CheckedData | None, split: SampleSplit | None = None, whole: CheckedData | None = None
) -> PriorPart:
    """The part of the prior, disjoint from the certified one: by position where a split says so, else by content."""
    if seen is None:
        return PriorPart()
    digests = sample_digests(seen.samples.inputs)
    if split is None or whole is None:
        refuse_overlap(sample_digests(certified.samples.inputs), digests)
        return PriorPart(len(digests), seen.hash, digests)
    return PriorPart(len(digests), seen.hash, digests, split_words(split, whole))


def split_words(split: SampleSplit, whole: CheckedData) -> dict[str, object]:
    """A split as a certificate states it."""
    size = len(whole.samples.inputs)
    return {"prior_fraction": float(split.fraction), "seed": int(split.seed), "num_samples": size, "hash": whole.hash}


def num_coincidences(certified: CheckedData, part: PriorPart) -> int:
    """Certified samples that equal one of the prior's, where both were chosen by position."""
    return num_in_common(sample_digests(certified.samples.inputs), part.digests) if part.split else 0


@dataclass(frozen=True)
class HeldOut:
    """The mean loss of the prior's mean network on the certified samples, and the bound that follows from it alone."""

    error: float
    bound: float


def held_out(prior_model: nn.Module, certified: Data, loss: BoundedLoss, deltas: tuple[float, ...]) -> HeldOut:
    """At the same confidence as the certificate: all of its deltas together."""
    return held_out_from(mean_loss(prior_model, certified, loss), len(certified.inputs), loss, deltas)


def held_out_from(error: float, num_samples: int, loss: BoundedLoss, deltas: tuple[float, ...]) -> HeldOut:
    """Langford 2005 for errors, Chernoff's inequality for other losses."""
    delta = total_delta(deltas)
    if loss.is_binary:
        return HeldOut(error, held_out_bound(round(error * num_samples), num_samples, delta))
    return HeldOut(error, mean_bound(min(1.0, error * (1 + 1e-12)), num_samples, delta))


def total_delta(deltas: tuple[float, ...]) -> float:
    """The sum, never rounded up."""
    return nextafter(sum(deltas), 0.0)


def verdict(bound: float, found: HeldOut, has_prior_data: bool) -> str:
    """Which of the two promises is the better one."""
    owner = "the prior's mean network" if has_prior_data else "the untrained network"
    if bound < found.bound:
        return f"the certificate is better: {bound:.4f} against {found.bound:.4f}, the held-out bound of {owner}"
    return (
        f"the plain held-out bound is better: {found.bound:.4f} for {owner} against {bound:.4f};"
        " use that network and that bound"
    )
