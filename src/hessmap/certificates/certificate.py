"""A promise about unseen data: the bound, what it rests on, and all that is needed to check it again."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from hessmap.certificates.posterior import Arrays
from hessmap.certificates.split import Digests, no_digests
from hessmap.errors import DataFileError, sentence
from hessmap.results.provenance import Provenance
from hessmap.results.record import Record

if TYPE_CHECKING:
    from torch import nn

    from hessmap.certificates.verification import Verification
    from hessmap.datasets.data import Data
    from hessmap.theory.pac_bayes import PriorGrid

_LARGEST_WHOLE = 2**62


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

    ``parts`` says which samples were used for what; ``prior_samples`` holds a hash of each that the prior has seen.
    ``held_out_bound`` is what the certified samples promise for the prior's mean network without any posterior, at the
    same confidence, and ``verdict`` says which of the two is better. Errors on a test set, where one was given, are
    those of the mean weights and of the stochastic network; they are no part of the promise. ``loss`` "squared" bounds
    the squared error, clipped at 1, in the place of the error.
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
    draws: str = "pairs"
    samples_per_draw: int = 1
    notes: tuple[str, ...] = ()
    draw_counts: tuple[int, ...] = ()
    inequality: str = "langford_seeger"
    loss: str = "cross_entropy"
    posterior_kind: str = "fitted"
    fit_on: str = "rest"
    delta_share: float = 1.0
    parts: tuple[str, ...] = ()
    held_out_error: float | None = None
    held_out_bound: float | None = None
    verdict: str = ""
    num_prior_samples: int = 0
    prior_data_hash: str = ""
    split: dict[str, object] = field(default_factory=dict)
    prior_samples: Digests = field(default_factory=no_digests, compare=False)
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
        text = dataclasses.replace(self, posterior={}, prior_samples=no_digests()).to_json()
        seen = {"prior_samples": self.prior_samples} if len(self.prior_samples) else {}
        arrays: dict[str, Any] = {name: np.asarray(values) for name, values in {**seen, **self.posterior}.items()}
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
        """Read what ``save`` wrote; nothing in the file is believed before ``verify`` has recomputed it."""
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            text = arrays.pop("certificate")
            if text.dtype.kind != "U" or text.ndim:
                raise ValueError("its entry 'certificate' is no text")
            arrays.pop("allow_pickle", None)  # an option that numpy before 2.2 wrote down as an array
            seen = arrays.pop("prior_samples", no_digests())
            made = cls.from_json(str(text))
        except Exception as error:  # a foreign file breaks zip, numpy and JSON in more ways than they have names for
            cause = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
            raise DataFileError(sentence("a certificate must be readable", f"{path} is not ({cause})")) from error
        if faults := field_faults(made):
            raise DataFileError(sentence("a certificate must hold what its fields say", f"in {path}, {faults[0]}"))
        return dataclasses.replace(made, posterior=arrays, prior_samples=seen)

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
        """Hold the certificate against the network, the samples and the weights that the prior stands at.

        The bound is computed anew, at the usual deltas, from the stored posterior, the prior around the weights of
        ``initial_model`` and draws of a seed of the verifier's own (without one, a fresh seed is taken). The verdict is
        "confirmed" where the claimed bound follows and its draws are compatible with the verifier's, "not confirmed"
        where they are not, and "refused" where the certificate is not one for these samples and networks. ``model``
        gives the architecture; its weights are not used. A certificate with another ``grid`` than the usual one is
        refused unless the verifier hands over the grid that was agreed on before the samples were seen. The error of
        the mean weights on test data is recomputed where ``test_data`` is given, and never repeated.

        Where the prior was learnt from samples of its own, the file holds it, and ``initial_model`` may be left out:
        that the prior saw nothing else is the certifier's statement. ``data`` are the certified samples, with
        ``prior_data`` those of the prior, or all samples where a split by a seed is stated; hashes, split and
        disjointness are checked.
        """
        from hessmap.certificates.verification import verified

        return verified(self, model, data, initial_model, seed, grid, num_draws, test_data, prior_data)


def is_number(value: object) -> bool:
    """Real and finite; a whole number is small enough to be made a float."""
    return _is_whole(value) or (isinstance(value, float) and isfinite(value))


def field_faults(certificate: Certificate) -> list[str]:
    """Which fields have values of another type than they declare, in words; infinities and NaN are no numbers here."""
    found = []
    for one in dataclasses.fields(certificate):
        value = getattr(certificate, one.name)
        declared, _, optional = str(one.type).partition(" | ")
        if declared in _KINDS and not (optional and value is None):
            words, is_of_kind = _KINDS[declared]
            if not is_of_kind(value):
                found.append(f"{one.name} must be {words} and is {str(value)[:40]!r}")
    return found


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST_WHOLE


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "float": ("a finite number", is_number),
    "int": ("a whole number", _is_whole),
    "str": ("a text", lambda value: isinstance(value, str)),
    "tuple[str, ...]": (
        "a list of texts",
        lambda value: isinstance(value, tuple) and all(isinstance(item, str) for item in value),
    ),
    "tuple[int, ...]": (
        "a list of counts",
        lambda value: isinstance(value, tuple) and all(_is_whole(item) and item >= 0 for item in value),
    ),
    "dict[str, object]": ("a table", lambda value: isinstance(value, dict)),
}
