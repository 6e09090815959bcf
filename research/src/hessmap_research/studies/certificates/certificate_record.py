"""One certificate as a record, and how certificates are shown in every study of them.

It is fitted once, continued where it was killed, and stored beside the trained models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case
from hessmap_research.runner.view import Cloud, Column

RECIPE_VERSION = 3
_FIELDS = (
    *("bound", "kl", "sampled_error_bound", "training_error", "test_error", "stochastic_test_error"),
    *("grid_index", "prior_variance", "num_samples", "num_parameters", "ending", "seconds"),
)
BASES = ("standard", "approximate", "iterative", "iterative_decay", "iterative_weights", "iterative_activity")
# Wu et al. 2022, Table 10, column "PAC-Bayes Bound", in the order of the bases; None where the paper has no number.
PUBLISHED: dict[str, tuple[float | None, ...]] = {
    "T-600": (0.154, 0.1432, 0.1198, 0.1199, 0.1255),
    "T-600^2": (0.1921, 0.1658, 0.1456, 0.1443, 0.1502),
    "T-1200": (0.1754, 0.1725, 0.1417, 0.1413, 0.1493),
    "T-300^2": (0.1686, 0.1434, 0.1249, 0.1244, 0.1308),
    "R-600": (0.6046, 0.5653, None, 0.5681, 0.5616),
    "T-200^2_10": (0.4165, 0.2621, 0.2145, 0.2311, 0.2728),
    "T-600_10": (0.2879, 0.2424, 0.2132, None, 0.2227),
    "T-600^2_10": (0.3472, 0.2896, 0.2431),
}


def published_bound(network: str, basis: str) -> float | None:
    """The paper's bound for a network and a basis, None where it gives none."""
    return dict(zip(BASES, PUBLISHED.get(network, ()), strict=False)).get(basis)


def measure(case: Case) -> dict[str, Any]:
    """The certificate of a case: data, network, basis, iterations, draws, seed, and an objective if not the usual."""
    published = published_bound(case["network"], case["basis"])
    return certificate_numbers(case) | ({} if published is None else {"published": published})


def certificate_numbers(case: Case) -> dict[str, Any]:
    found = stored_certificate(case)
    return {name: found[name] for name in _FIELDS}


def stored_certificate(case: Case) -> dict[str, Any]:
    """The fields of the certificate, and the log deviations and eigenvalue order of its first layer."""
    from hessmap.certificates import certify
    from hessmap_research.runner.model_cache import cached_model
    from hessmap_research.studies.certificates.task import task

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
    stored: dict[str, Any] = cached_model(settings, fit)
    return stored


def _tensor(array: Any) -> Any:
    import torch

    return torch.from_numpy(array.copy())


def bounds_by_seed(rows: Sequence[Row]) -> dict[tuple[str, str, int], dict[str, float]]:
    """For each data set, network and seed, the bound in every basis."""
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in rows:
        key = (row["data"], row["network"], row["seed"])
        found.setdefault(key, {})[row["basis"]] = row.number("bound")
    return found


BOUND_AND_TEST_ERROR = Cloud(
    title="bound and error on test data",
    x="bound",
    y="stochastic_test_error",
    colour="basis",
    x_label="bound",
    y_label="error on test data",
    x_limits=(0.0, None),
    y_limits=(0.0, None),
    diagonal="error = bound",
)
BOUND = Column("bound", "bound", ".4f")
PARTS_OF_BOUND = (
    Column("kl", "KL", ".0f"),
    Column("sampled_error_bound", "error, samples", ".4f"),
    Column("stochastic_test_error", "error, test", ".4f"),
)


def what_it_is_made_of(colour: str) -> Cloud:
    """The two numbers that a bound follows from, coloured by a field of the case."""
    return Cloud(
        title="what a bound is made of",
        x="kl",
        y="sampled_error_bound",
        colour=colour,
        x_label="divergence of the posterior from the prior",
        y_label="error on the samples, at most",
        x_limits=(0.0, None),
        y_limits=(0.0, None),
    )
