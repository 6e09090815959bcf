"""One certificate as a record: fitted once, continued where it was killed, kept beside the trained models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hessmap.studies import Case

RECIPE_VERSION = 3
LABELS = {
    "standard": "standard",
    "approximate": "approximate",
    "iterative": "iterative",
    "iterative_decay": "iterative, decaying",
    "iterative_weights": "iterative, from weights",
    "iterative_activity": "iterative, by activity",
}
# Wu et al. 2022, Table 10, column "PAC-Bayes Bound"; what the paper has no row for is left out.
PUBLISHED = {
    "T-600": {"standard": 0.154, "approximate": 0.1432, "iterative": 0.1198, "iterative_decay": 0.1199},
    "T-600^2": {"standard": 0.1921, "approximate": 0.1658, "iterative": 0.1456, "iterative_decay": 0.1443},
    "T-1200": {"standard": 0.1754, "approximate": 0.1725, "iterative": 0.1417, "iterative_decay": 0.1413},
    "T-300^2": {"standard": 0.1686, "approximate": 0.1434, "iterative": 0.1249, "iterative_decay": 0.1244},
    "R-600": {"standard": 0.6046, "approximate": 0.5653, "iterative_decay": 0.5681},
    "T-200^2_10": {"standard": 0.4165, "approximate": 0.2621, "iterative": 0.2145, "iterative_decay": 0.2311},
    "T-600_10": {"standard": 0.2879, "approximate": 0.2424, "iterative": 0.2132},
}
_PUBLISHED_FROM_WEIGHTS = {
    "T-600": 0.1255,
    "T-600^2": 0.1502,
    "T-1200": 0.1493,
    "T-300^2": 0.1308,
    "R-600": 0.5616,
    "T-200^2_10": 0.2728,
    "T-600_10": 0.2227,
}


def published_bound(network: str, basis: str) -> float | None:
    """The paper's bound for a network and a basis, None where it gives none."""
    if basis == "iterative_weights":
        return _PUBLISHED_FROM_WEIGHTS.get(network)
    return PUBLISHED.get(network, {}).get(basis)


def measure(case: Case) -> dict[str, Any]:
    """The certificate of a case: data, network, basis, iterations, draws, seed, and an objective if not the usual."""
    return {**certificate_numbers(case), **_beside(case)}


def certificate_numbers(case: Case) -> dict[str, Any]:
    found = kept_certificate(case)
    return {
        name: found[name]
        for name in (
            "bound",
            "kl",
            "sampled_error_bound",
            "training_error",
            "test_error",
            "stochastic_test_error",
            "grid_index",
            "prior_variance",
            "num_samples",
            "num_parameters",
            "ending",
            "seconds",
        )
    }


def kept_certificate(case: Case) -> dict[str, Any]:
    """The fields of the certificate, and the log deviations and eigenvalue order of its first layer."""
    from hessmap.certificates import certify
    from hessmap.runs.model_cache import cached_model
    from hessmap.studies.certificates.task import task

    def fit(checkpoints: Path) -> dict[str, Any]:
        model, initial, data, test = task(case["network"], case["data"], case["seed"])
        found = certify(
            model,
            initial,
            data,
            case["basis"],
            test_data=test,
            iterations=case["iterations"],
            objective=case.get("objective", "bound"),
            num_draws=case["draws"],
            seed=case["seed"],
            checkpoint=checkpoints / "fit.pt",
        )
        fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
        plain = {name: value for name, value in fields.items() if isinstance(value, int | float | str) or value is None}
        first = next(name for name in found.posterior if name.endswith("/log_deviations"))
        return {**plain, "log_deviations": _tensor(found.posterior[first])}

    settings = {"recipe": "certificate", "recipe_version": RECIPE_VERSION, **case}
    kept: dict[str, Any] = cached_model(settings, fit)
    return kept


def _tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array.copy())


def _beside(case: Case) -> dict[str, Any]:
    published = published_bound(case["network"], case["basis"])
    return {} if published is None else {"published": published}
