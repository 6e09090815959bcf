"""Priors learnt from a part of the samples: is there a posterior, in any basis, that beats a plain held-out bound?"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hessmap.studies import Case, Column, Finding, Lines, Row, Series, Study, View, grid
from hessmap.studies.certificates.certificate_record import BOUND

if TYPE_CHECKING:
    from torch import nn

    from hessmap.certificates import Certificate
    from hessmap.datasets import Data

FRACTIONS = (0.0, 0.1, 0.25, 0.5, 0.7, 0.9)
# "prior": no posterior but the prior itself, without divergence.
POSTERIORS = ("prior", "standard", "approximate", "iterative", "iterative_activity")


def cases(data: str) -> tuple[Case, ...]:
    """Small networks at every fraction and in every basis; on MNIST also the large ones, whose numbers are compared."""
    if data == "digits":
        common: dict[str, Any] = {
            "epochs": [60],
            "augmented": [False],
            "iterations": [600],
            "draws": [50_000],
            "seed": range(2),
        }
        return grid(network=["fc-100", "cnn-16-32"], fraction=FRACTIONS, posterior=POSTERIORS, **common)
    common = {"epochs": [6], "augmented": [False], "iterations": [1500], "draws": [200_000], "seed": [1]}
    fractions = FRACTIONS if data == "mnist" else (0.1, 0.5)
    small = grid(network=["fc-100"], fraction=fractions, posterior=("prior", "standard", "iterative"), **common)
    photographs = grid(network=["cnn-16-32"], fraction=fractions, posterior=("prior", "standard"), **common)
    return (*_large(data), *small, *photographs)


def _large(data: str) -> tuple[Case, ...]:
    if data != "mnist":
        return ()
    common = {"posterior": "prior", "iterations": 0, "draws": 0, "seed": 0}
    return (
        dict(network="fc-600^3", fraction=0.5, epochs=12, augmented=False, **common),
        dict(network="cnn-32-64-128", fraction=0.5, epochs=8, augmented=True, **common),
        dict(network="fc-600^3", fraction=0.5, epochs=24, augmented=True, **common),
    )


def measure(case: Case) -> dict[str, Any]:
    """The certificate, read back from its file and verified from that and the samples."""
    from hessmap.certificates import Certificate
    from hessmap.studies.certificates.prior_networks import architecture, samples

    train, test = samples(case["data"])
    start = architecture(case["network"], case["data"])
    found = _certificate(case, train, test)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.npz"
        found.save(path)
        initial = None if case["fraction"] else start.build(seed=case["seed"])
        options: dict[str, Any] = {"seed": case["seed"] + 10**6, "num_draws": 10_000, "initial_model": initial}
        verified = Certificate.load(path).verify(start.build(seed=case["seed"]), train, **options)
    error_term = found.sampled_error_bound
    return {
        "bound": found.bound,
        "held_out_bound": found.held_out_bound,
        "prior_error": found.held_out_error,
        "error": found.sampled_error,
        "error_bound": error_term,
        "divergence_term": found.bound - error_term,
        "kl": found.kl,
        "mean_error": found.training_error,
        "test_error": found.test_error,
        "stochastic_test_error": found.stochastic_test_error,
        "deviation": found.prior_variance**0.5,
        "num_certified": found.num_samples,
        "inequality": found.inequality,
        "confirmed": bool(verified),
        "seconds": found.seconds,
    }


def _certificate(case: Case, train: Data, test: Data) -> Certificate:
    from hessmap.certificates import certify_from_data
    from hessmap.studies.certificates.prior_networks import Recipe, architecture, trained_prior

    def trained(model: nn.Module, part: Data) -> nn.Module:
        return trained_prior(
            case["network"], case["data"], part, Recipe(case["epochs"], case["augmented"]), case["seed"]
        )

    is_prior = case["posterior"] == "prior"
    options = {} if is_prior else {"num_draws": case["draws"], "basis": case["posterior"]}
    return certify_from_data(
        lambda: architecture(case["network"], case["data"]).build(seed=case["seed"]),
        train,
        prior_fraction=case["fraction"],
        train=trained,
        posterior="prior" if is_prior else "fitted",
        test_data=test,
        iterations=max(1, case["iterations"]),
        split_seed=case["seed"],
        seed=case["seed"],
        **options,
    )


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """Where a posterior with a divergence is below the held-out bound of its own prior, and whether all verify."""
    fitted = [row for row in rows if row["posterior"] != "prior"]
    for name, some in (
        ("A blind prior: a fitted posterior is below the held-out bound of its prior", _at(fitted, 0.0)),
        ("With a prior from a tenth of the samples a fitted posterior is below it", _at(fitted, 0.1)),
        ("With a quarter or more a fitted posterior is below it", [row for row in fitted if row["fraction"] >= 0.25]),
    ):
        if some:
            below = [row for row in some if row.number("bound") < row.number("held_out_bound")]
            yield Finding(name, len(below) == len(some), _gains(below, some))
    yield Finding("Every certificate is confirmed from its file", all(row["confirmed"] for row in rows), f"{len(rows)}")
    tested = [row for row in rows if row.get("stochastic_test_error") is not None]
    safe = [row for row in tested if row.number("stochastic_test_error") <= row.number("bound")]
    share = f"in {len(safe)} of {len(tested)}"
    yield Finding("The stochastic network's error on test data is below its bound", len(safe) == len(tested), share)


def _at(rows: Sequence[Row], fraction: float) -> list[Row]:
    return [row for row in rows if row["fraction"] == fraction]


def _gains(below: Sequence[Row], some: Sequence[Row]) -> str:
    shares = sorted(row.number("bound") / row.number("held_out_bound") for row in some)
    return f"in {len(below)} of {len(some)}; bound over held-out bound {shares[0]:.2f} to {shares[-1]:.2f}"


_FIGURE = Lines(
    title="bound, its parts and the held-out bound",
    x="fraction",
    series=(
        Series("bound", points="bound"),
        Series("held-out bound of the prior", dashed="held_out_bound"),
        Series("error on the certified samples", points="error"),
        Series("bound less error bound", points="divergence_term"),
    ),
    facet="posterior",
    split="network",
    x_label="share of the samples that the prior has seen",
    y_label="error",
    y_scale="log",
    reading="circles: certificates; dashes: without any posterior",
)
STUDY = Study(
    name="certificates/data-priors",
    question="With a prior learnt from data, does a posterior in any basis beat a plain held-out bound?",
    reference="Perez-Ortiz et al. 2021; Dziugaite et al. 2021; Langford 2005, Theorem 3.3",
    cases=cases,
    measure=measure,
    data=("digits", "mnist", "fashion_mnist", "cifar10"),
    findings=findings,
    seconds=lambda case: 6.0 if case["data"] == "digits" else 90.0,
    view=View(
        figures=(_FIGURE,),
        table=(
            "data",
            "network",
            "augmented",
            "fraction",
            "posterior",
            BOUND,
            Column("held_out_bound", "held-out", ".4f"),
            Column("kl", "KL", ".1f"),
            Column("error", "error", ".4f"),
            Column("prior_error", "prior's error", ".4f"),
            Column("stochastic_test_error", "test", ".4f"),
        ),
        group_by=("data", "network", "augmented", "fraction", "posterior"),
    ),
)
