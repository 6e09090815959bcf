"""A bound for unseen data, what it rests on, and all that is needed to check it again."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from hessmap.certificates.posterior import Arrays
from hessmap.errors import DataFileError, sentence
from hessmap.records import Provenance, Record

if TYPE_CHECKING:
    from torch import nn

    from hessmap.certificates.verification import Verification
    from hessmap.datasets.data import Data
    from hessmap.theory.pac_bayes import PriorGrid

ASSUMPTIONS = (
    "the samples are independent draws from the distribution of the unseen data, apart from copies, which count once",
    "the prior's weights, the grid of variances and both deltas were chosen without looking at the certified samples",
    "the bound is about the stochastic network, which draws weights for every answer, not about the mean weights",
)


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Record):
    """With probability at least ``confidence``, the stochastic network errs on unseen data at most at rate ``bound``.

    The stochastic network draws its weights from ``posterior`` for every answer. ``kl`` is the divergence of the
    posterior from the prior N(initial weights, prior_variance I); ``complexity`` is B of ``theory.pac_bayes``;
    ``sampled_error`` is the share of errors over ``num_draws`` independent draws: of weights with one certified sample
    each (``draws`` is "pairs") or of networks with ``samples_per_draw`` samples each ("networks"); ``draw_counts`` says
    how many draws had how many errors, and ``sampled_error_bound`` is the upper bound that follows. A posterior that is
    the prior (``posterior_kind``) answers every certified sample once ("samples") and needs no bound in between.
    ``inequality`` names the one that gave the bound.

    ``num_samples`` counts the distinct inputs among the ``num_rows`` certified rows, ``num_prior_samples`` those that
    the prior was trained on; ``parts`` says which samples were used for what. ``held_out_bound`` is the bound that the
    certified samples give for the prior's mean network without any posterior, at the same confidence, and ``verdict``
    says which of the two is lower. Errors on a test set, where one was given, are those of the mean weights and of the
    stochastic network; they are not a part of the guarantee. ``loss`` "squared" bounds the squared error, clipped at 1,
    in the place of the error.
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
        """Write certificate and posterior to one file, wholly or not at all."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = dataclasses.replace(self, posterior={}).to_json()
        arrays: dict[str, Any] = {name: np.asarray(values) for name, values in self.posterior.items()}
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                np.savez_compressed(file, certificate=np.array(text), **arrays)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote; ``verify`` recomputes it."""
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            text = arrays.pop("certificate")
            if text.dtype.kind != "U" or text.ndim:
                raise ValueError("its entry 'certificate' is no text")
            made = cls.from_json(str(text))
        except Exception as error:  # a foreign file breaks zip, numpy and JSON in more ways than they have names for
            cause = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
            raise DataFileError(sentence("a certificate must be readable", f"{path} is not ({cause})")) from error
        return dataclasses.replace(made, posterior=arrays)

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
            initial_model: The centre of the prior. May be left out where the prior was trained on samples of its own:
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
