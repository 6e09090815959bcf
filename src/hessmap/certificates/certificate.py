"""A bound for unseen data, what it rests on, and all that is needed to check it again."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from hessmap.certificates.posterior import Arrays
from hessmap.errors import DataFileError, sentence
from hessmap.records import Provenance, Record, load, register_reader, save_archive

if TYPE_CHECKING:
    from torch import nn

    from hessmap.certificates.verification import Verification
    from hessmap.datasets import Data
    from hessmap.theory.pac_bayes import PriorGrid

ASSUMPTIONS = (
    "the samples are independent draws from the distribution of the unseen data, apart from copies, which count once",
    "the prior's weights, the grid of variances and both deltas were chosen without looking at the certified samples",
    "the bound applies to the stochastic network, which draws weights for every prediction, not to the mean weights",
)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Record):
    """With probability at least ``confidence``, the stochastic network errs on unseen data at most at rate ``bound``.

    The stochastic network draws its weights from ``posterior`` for every answer. With ``loss`` "squared" the bound is
    on the squared error, clipped at 1, instead of the error.

    Attributes:
        bound: Upper bound on the error of the stochastic network on unseen data.
        confidence: Probability with which the bound holds, over samples and draws.
        delta: Probability that the samples mislead.
        sampling_delta: Probability that the draws mislead.
        delta_share: Share of both deltas that this posterior uses: 1, or 1/2 where the better of two was chosen.
        kl: Divergence of the posterior from the prior N(initial weights, prior_variance I).
        complexity: B of ``theory.pac_bayes``.
        inequality: Name of the inequality that gave the bound.
        sampled_error: Share of errors over ``num_draws`` independent draws.
        sampled_error_bound: Upper bound on the error on the certified samples that follows from the draws.
        draws: "pairs" of weights and one certified sample each, "networks" with ``samples_per_draw`` samples each, or
            "samples": a posterior that is the prior answers every certified sample once and needs no bound in between.
        num_draws: Number of draws.
        samples_per_draw: Samples that every draw answers.
        draw_counts: Number of draws with 0, 1, 2, .. errors; for losses that are not binary, with the mean loss in
            equal steps from 0 to 1, rounded up.
        grid_index: Index of the prior variance in the grid.
        prior_variance: Variance of the prior.
        num_samples: Number of distinct inputs among the certified rows.
        num_rows: Number of certified rows.
        num_prior_samples: Number of distinct inputs that the prior was trained on.
        num_parameters: Number of parameters of the network.
        basis: Basis in which the posterior is diagonal; "given" for bases of the user.
        loss: "cross_entropy", "bce" or "squared".
        posterior_kind: "fitted", or "prior" where the posterior is the prior.
        fit_on: Samples that the posterior was fitted on: "rest" or "all".
        training_error: Error of the mean weights on the certified samples.
        test_error: Error of the mean weights on the test samples, None without these. Not a part of the guarantee.
        stochastic_test_error: The same of the stochastic network.
        held_out_error: Error of the prior's mean network on the certified samples.
        held_out_bound: Bound on its error on unseen data, from the certified samples, without a posterior and at the
            same confidence.
        verdict: Which of ``bound`` and ``held_out_bound`` is lower, in words.
        parts: Which samples were used for what, in sentences.
        assumptions: What the bound assumes.
        doubts: Signs that an assumption may be violated.
        notes: Remarks on how the bound was computed.
        settings: Settings of the fit.
        ending: How the fit ended.
        data_hash: Hash of the certified samples.
        prior_data_hash: Hash of the samples that the prior was trained on; empty without these.
        split: Fraction and seed of the split, with number and hash of all samples; empty if the user split them.
        posterior_hash: Hash of the arrays in ``posterior``.
        seconds: Wall time. Defaults to 0.
        provenance: Versions, number format and seed. Default: None.
        posterior: Arrays of the posterior and of the prior's mean. Default: empty.
    """

    bound: float
    confidence: float
    delta: float
    sampling_delta: float
    delta_share: float
    kl: float
    complexity: float
    inequality: str
    sampled_error: float
    sampled_error_bound: float
    draws: str
    num_draws: int
    samples_per_draw: int
    draw_counts: tuple[int, ...]
    grid_index: int
    prior_variance: float
    num_samples: int
    num_rows: int
    num_prior_samples: int
    num_parameters: int
    basis: str
    loss: str
    posterior_kind: str
    fit_on: str
    training_error: float
    test_error: float | None
    stochastic_test_error: float | None
    held_out_error: float
    held_out_bound: float
    verdict: str
    parts: tuple[str, ...]
    assumptions: tuple[str, ...]
    doubts: tuple[str, ...]
    notes: tuple[str, ...]
    settings: dict[str, object]
    ending: str
    data_hash: str
    prior_data_hash: str
    split: dict[str, object]
    posterior_hash: str
    seconds: float = field(default=0.0, compare=False)
    provenance: Provenance | None = field(default=None, compare=False)
    posterior: Arrays = field(default_factory=dict, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "bound",
        "confidence",
        "verdict",
        "held_out_bound",
        "gap",
        "kl",
        "sampled_error",
        "sampled_error_bound",
        "training_error",
        "test_error",
        "stochastic_test_error",
        "grid_index",
        "prior_variance",
        "num_samples",
        "num_parameters",
        "basis",
        "draws",
        "inequality",
        "parts",
        "ending",
        "notes",
        "doubts",
        "seconds",
    )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write certificate and posterior to one file, completely or not at all; ``hessmap.load`` reads it.

        Args:
            path: File to write. Missing folders are created; an existing file is replaced.
        """
        header = dataclasses.replace(self, posterior={}).to_dict()
        save_archive(path, "Certificate", header, {name: np.asarray(values) for name, values in self.posterior.items()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote; ``verify`` recomputes it.

        Args:
            path: The file.

        Returns:
            Certificate: The certificate with its posterior.

        Raises:
            DataFileError: If the file is missing, damaged, or not a certificate.
        """
        found = load(path)
        if not isinstance(found, cls):
            got = f"{path} contains a {type(found).__name__}"
            raise DataFileError(sentence("the file must contain a certificate", got))
        return found

    @property
    def gap(self) -> float:
        """What the bound adds to the error of the stochastic network on the certified samples."""
        return self.bound - self.sampled_error

    def verify(
        self,
        model: nn.Module,
        data: Data | tuple[Any, Any],
        *,
        initial_model: nn.Module | None = None,
        prior_data: Data | tuple[Any, Any] | None = None,
        seed: int | None = None,
        grid: PriorGrid | None = None,
        num_draws: int | None = None,
        test_data: Data | tuple[Any, Any] | None = None,
    ) -> Verification:
        """Check the certificate with the network, the samples and the weights at the centre of the prior.

        The bound is computed again, at the default deltas, from the stored posterior and with draws of the verifier's
        own. Samples are split and counted by the same rule, so that a certificate that counted copies is refused.

        Args:
            model: Gives the architecture; its weights are not used.
            data: The certified samples; or all samples where the certificate states a split.
            initial_model: The centre of the prior. May be left out where the prior was trained on separate samples:
                the file holds it, and that it saw nothing else is the certifier's statement.
            prior_data: The samples that the prior was trained on, where ``data`` does not include them.
            seed: Seed of the draws; a fresh one by default.
            grid: The grid of prior variances that was fixed beforehand, where it is not the default one.
            num_draws: Draws that bound the error on the samples.
            test_data: Samples to compute the error of the mean weights on again.

        Returns:
            Verification: "confirmed" where the claimed bound follows and is compatible with the draws, "not confirmed"
            where it is not, "refused" where the certificate is not one for these samples and networks.

        Raises:
            InvalidInput: If what the verifier passes cannot be used.
        """
        from hessmap.certificates.verification import verified

        return verified(self, model, data, initial_model, seed, grid, num_draws, test_data, prior_data)


def _restored(header: dict[str, Any], arrays: Arrays) -> Certificate:
    return dataclasses.replace(Certificate.from_dict(header), posterior=arrays)


register_reader("Certificate", _restored)
