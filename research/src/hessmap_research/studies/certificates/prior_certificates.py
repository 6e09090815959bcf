"""One certificate of the study of priors from data: made, kept as a file beside the models, and verified from it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.model_cache import models_folder
from hessmap_research.runner.study import Case
from hessmap_research.studies.certificates.prior_cases import FITS
from hessmap_research.studies.certificates.prior_networks import (
    Recipe,
    architecture,
    has_colours,
    samples,
    trained_prior,
)

if TYPE_CHECKING:
    from torch import nn

    from hessmap.certificates import Certificate, Verification
    from hessmap.datasets import Data

NUM_DRAWS = 20_000  # of a verifier


def kept_certificate(case: Case) -> Path:
    """The file of a certificate, in a folder beside the models; its case stands in a JSON file of the same name."""
    return models_folder().parent / "certificates" / f"{_digest(case)}.npz"


def record(case: Case) -> dict[str, Any]:
    """The certificate in numbers, and whether it is confirmed from its file."""
    found = made_certificate(case)
    path = kept_certificate(case)
    found.save(path)
    path.with_suffix(".json").write_text(json.dumps(dict(case), sort_keys=True))
    verified = verification(case, path)
    return {
        "bound": found.bound,
        "held_out_bound": found.held_out_bound,
        "prior_error": found.held_out_error,
        "error": found.sampled_error,
        "error_bound": found.sampled_error_bound,
        "divergence_term": found.bound - found.sampled_error_bound,
        "kl": found.kl,
        "mean_error": found.training_error,
        "test_error": found.test_error,
        "stochastic_test_error": found.stochastic_test_error,
        "deviation": found.prior_variance**0.5,
        "num_certified": found.num_samples,
        "inequality": found.inequality,
        "confirmed": bool(verified),
        "verified_bound": verified.bound,
        "seconds": found.seconds,
    }


def made_certificate(case: Case) -> Certificate:
    """The prior trained on its part, and the certificate from the rest."""
    from hessmap.certificates import certify_from_data

    def trained(model: nn.Module, part: Data) -> nn.Module:
        recipe = Recipe(case["epochs"], case["augmented"])
        return trained_prior(case["network"], case["data"], part, recipe, case["seed"])

    train, test = _samples(case)
    is_prior = case["posterior"] == "prior"
    basis, objective = FITS[case["posterior"]]
    options = {} if is_prior else {"num_draws": case["draws"]} | _basis_options(case["data"])
    return certify_from_data(
        lambda: _untrained(case),
        train,
        prior_fraction=case["fraction"],
        train=trained,
        posterior="prior" if is_prior else "fitted",
        test_data=test,
        iterations=max(1, case["iterations"]),
        basis=basis,
        objective=objective,
        split_seed=case["seed"],
        seed=case["seed"],
        **options,
    )


def _basis_options(data: str) -> dict[str, int]:
    """Shorter fits of larger sets find their bases more often, from fewer samples."""
    return {} if data == "digits" else {"refresh_every": 100, "basis_samples": 500}


def verification(case: Case, path: Path) -> Verification:
    """What a verifier finds who has the file, the architecture and the samples, and a seed that no other case has."""
    from hessmap.certificates import Certificate

    train, _ = _samples(case)
    initial = None if case["fraction"] else _untrained(case)
    seed = int(_digest(case)[:12], 16)
    stored = Certificate.load(path)
    return stored.verify(_untrained(case), train, initial_model=initial, seed=seed, num_draws=NUM_DRAWS)


def _samples(case: Case) -> tuple[Data, Data]:
    return samples(case["data"], has_colours(case["network"], case["data"]), case.get("images"))


def _untrained(case: Case) -> nn.Module:
    return architecture(case["network"], case["data"]).build(seed=case["seed"])


def _digest(case: Case) -> str:
    return hashlib.sha256(json.dumps(dict(case), sort_keys=True).encode()).hexdigest()[:16]
