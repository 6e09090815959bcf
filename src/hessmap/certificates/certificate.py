"""A promise about unseen data: the bound, what it rests on, and all that is needed to check it again."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from hessmap.errors import DataFileError, sentence
from hessmap.results.provenance import Provenance
from hessmap.results.record import Record

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets.data import Data

Arrays = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Certificate(Record):
    """With probability at least ``confidence``, the stochastic network errs on unseen data at most at rate ``bound``.

    The stochastic network draws its weights from ``posterior`` for every answer. ``kl`` is the divergence of the
    posterior from the prior N(initial weights, prior_variance I); ``complexity`` is B of ``theory.pac_bayes``;
    ``sampled_error`` counts errors over ``num_draws`` independent pairs of weights and training samples, and
    ``sampled_error_bound`` is its upper bound by Chernoff's inequality. Errors on a test set, where one was given, are
    those of the mean weights and of the stochastic network; they are no part of the promise.
    """

    bound: float
    confidence: float
    delta: float
    sampling_delta: float
    kl: float
    complexity: float
    sampled_error: float
    sampled_error_bound: float
    num_draws: int
    grid_index: int
    prior_variance: float
    num_samples: int
    num_parameters: int
    basis: str
    training_error: float
    test_error: float | None
    stochastic_test_error: float | None
    assumptions: tuple[str, ...]
    doubts: tuple[str, ...]
    settings: dict[str, object]
    ending: str
    data_hash: str
    posterior_hash: str
    seconds: float = field(default=0.0, compare=False)
    provenance: Provenance | None = field(default=None, compare=False)
    posterior: Arrays = field(default_factory=dict, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "bound",
        "confidence",
        "kl",
        "sampled_error_bound",
        "training_error",
        "test_error",
        "stochastic_test_error",
        "grid_index",
        "prior_variance",
        "num_samples",
        "num_parameters",
        "basis",
        "ending",
        "doubts",
        "seconds",
    )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write certificate and posterior to one file, wholly or not at all."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = dataclasses.replace(self, posterior={}).to_json()
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez_compressed(file, allow_pickle=False, certificate=np.array(text), **self.posterior)
            os.replace(temporary, target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            made = cls.from_json(str(arrays.pop("certificate")))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, json.JSONDecodeError) as error:
            raise DataFileError(sentence("a certificate must be readable", f"{path} is not ({error})")) from error
        return dataclasses.replace(made, posterior=arrays)

    def verify(
        self,
        model: nn.Module,
        data: Data | tuple[Any, Any],
        *,
        initial_model: nn.Module | None = None,
        seed: int | None = None,
    ) -> Certificate:
        """The certificate made again from the stored posterior: same samples, same bound; another seed draws afresh.

        ``model`` gives the architecture; its weights are not used. Refused for other data than it was made from, and,
        where ``initial_model`` is given, for a prior around other weights than these. What comes back is recomputed
        except for test errors, doubts, settings and the ending: compare it with the certificate.
        """
        from hessmap.certificates.verification import verified

        return verified(self, model, data, initial_model, seed)
