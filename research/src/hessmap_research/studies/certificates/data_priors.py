"""Priors learnt from a part of the samples: is there a posterior, in any basis, that beats a plain held-out bound?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, Mark, Series, View
from hessmap_research.studies.certificates.certificate_record import BOUND
from hessmap_research.studies.certificates.prior_cases import CHOICES, SOME_IMAGES, Choice, cases


def measure(case: Case) -> dict[str, Any]:
    """The certificate, read back from its file and verified from that and the samples."""
    from hessmap_research.studies.certificates.prior_certificates import record

    return record(case)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """By data set, where a posterior with a divergence is below the held-out bound of its own prior; and whether all
    verify."""
    for data in sorted({str(row["data"]) for row in rows}):
        fitted = [row for row in rows if row["data"] == data and row["posterior"] != "prior"]
        for prior, name, some in (
            (
                "blind",
                "a blind prior: a posterior with KL > 0 is below the held-out bound of its prior",
                _at(fitted, 0.0),
            ),
            ("tenth", "a prior from a tenth of the samples: a posterior with KL > 0 is below it", _at(fitted, 0.1)),
            (
                "quarter-or-more",
                "a quarter or more: a posterior with KL > 0 is below it",
                [row for row in fitted if row["fraction"] > 0.1],
            ),
        ):
            if some:
                below = [row for row in some if row.number("bound") < row.number("held_out_bound")]
                yield Claim(
                    claim_id("below-held-out", data, prior), f"{data}, {name}", bool(below), _gains(below, some)
                )
    yield from _against_the_literature(rows)
    yield from _chosen_fractions(rows)
    yield Claim.about(
        "confirmed-from-file",
        "Every certificate is confirmed from its file",
        rows,
        lambda row: row["confirmed"],
        "{right} of {total} are",
    )
    tested = [row for row in rows if row.get("stochastic_test_error") is not None]
    yield Claim.about(
        "test-error-below-bound",
        "The stochastic network's error on test data is below its bound",
        tested,
        lambda row: row.number("stochastic_test_error") <= row.number("bound"),
        "in {right} of {total}",
    )


def _against_the_literature(rows: Sequence[Row]) -> Iterator[Claim]:
    """Perez-Ortiz et al. 2021: MNIST, ten classes, priors from data."""
    for network, published in (("fc-600^3", 0.0279), ("cnn-32-64-128", 0.0155)):
        found = [row.number("bound") for row in rows if (row["data"], row["network"]) == ("mnist", network)]
        if found:
            claim = f"MNIST, {network}: the bound is below {published}"
            yield Claim(
                claim_id("literature", network),
                claim,
                max(found) < published,
                ", ".join(f"{bound:.4f}" for bound in sorted(found)),
            )


def _chosen_fractions(rows: Sequence[Row]) -> Iterator[Claim]:
    """The fraction that is reported is the best one over other trainings."""
    for data, choice in CHOICES.items():
        means = mean_bounds([row for row in rows if row["data"] == data], choice)
        if choice.chosen is not None and set(means) == set(choice.fractions):
            best = min(means, key=means.__getitem__)
            evidence = ", ".join(f"{fraction:g}: {bound:.4f}" for fraction, bound in sorted(means.items()))
            yield Claim(
                claim_id("best-fraction", data),
                f"{data}: {choice.chosen} is the best fraction on other seeds",
                best == choice.chosen,
                evidence,
            )


def mean_bounds(rows: Sequence[Row], choice: Choice) -> dict[float, float]:
    """By fraction, the mean bound of the prior itself over the trainings that choose."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if (row["posterior"], row["network"]) == ("prior", choice.network) and row["seed"] in choice.seeds:
            found.setdefault(row["fraction"], []).append(row.number("bound"))
    return {fraction: sum(bounds) / len(bounds) for fraction, bounds in found.items()}


def _at(rows: Sequence[Row], fraction: float) -> list[Row]:
    return [row for row in rows if row["fraction"] == fraction]


def _gains(below: Sequence[Row], some: Sequence[Row]) -> str:
    shares = sorted(row.number("bound") / row.number("held_out_bound") for row in some)
    return f"in {len(below)} of {len(some)}; bound over held-out bound {shares[0]:.2f} to {shares[-1]:.2f}"


def seconds_of(case: Case) -> float:
    """About, on one core."""
    if case["network"] in ("fc-600^3", "cnn-32-64-128"):
        return 1100.0 if case["augmented"] else 300.0
    return 25.0 if case["data"] != "digits" and case.get("images") is None else 8.0


_X_LABEL = "share of the samples that the prior has seen"


def _shown(data: str, network: str) -> dict[str, Any]:
    """Both trainings on the digits; of larger sets the one on some images that has every fraction and posterior."""
    few = {"images": None} if data == "digits" else {"images": SOME_IMAGES, "seed": 1}
    return {"data": data, "network": network, **few}


def _gain_figure(data: str, network: str) -> Lines:
    """Below 1 a posterior promises more than its prior on held-out samples."""
    return Lines(
        title=f"{data}, {network}",
        where=_shown(data, network),
        x="fraction",
        series=(Series("{posterior}", points="bound / held_out_bound"),),
        split="posterior",
        x_label=_X_LABEL,
        x_limits=(-0.05, 0.95),
        y_label="bound / held-out bound of the prior",
        y_limits=(0.0, None),
        marks=(Mark(1.0, "no gain above", axis="y"),),
    )


def _parts_figure(data: str) -> Lines:
    """The bound of one posterior beside that of its prior; it has the colour of its posterior in the other panels."""
    return Lines(
        title=f"{data}, fc-100: bound and error",
        where={**_shown(data, "fc-100"), "posterior": "iterative"},
        x="fraction",
        series=(
            Series("iterative", points="bound"),
            Series("held-out bound of the prior", dashed="held_out_bound"),
            Series("iterative, error on the certified samples", points="error"),
        ),
        x_label=_X_LABEL,
        x_limits=(-0.05, 0.95),
        y_label="bound, or error",
        y_scale="log",
        y_limits=(0.005, 1.2),
    )


# A row of panels for each data set: the networks, and what a bound of the first is made of.
_CONVOLUTIONAL = {
    "digits": "cnn-16-32",
    "mnist": "strided-8-16",
    "fashion_mnist": "strided-8-16",
    "cifar10": "strided-16-32",
}
_FIGURES = tuple(
    figure
    for data, network in _CONVOLUTIONAL.items()
    for figure in (_gain_figure(data, "fc-100"), _gain_figure(data, network), _parts_figure(data))
)
STUDY = Study(
    name="certificates/data-priors",
    question="With a prior learnt from data, does a posterior in any basis beat a plain held-out bound?",
    reference="Perez-Ortiz et al. 2021; Dziugaite et al. 2021; Langford 2005, Theorem 3.3",
    cases=cases,
    measure=measure,
    data=("digits", "mnist", "fashion_mnist", "cifar10"),
    claims=claims,
    seconds=seconds_of,
    families={
        "below-held-out": "A posterior with KL > 0 is below the held-out bound of its prior",
        "literature": "MNIST: the bound is below the published one",
        "best-fraction": "The best fraction of one seed is the best on other seeds",
    },
    view=View(
        figures=_FIGURES,
        table=(
            "data",
            "network",
            "augmented",
            "fraction",
            Column("num_certified", "certified", ",.0f"),
            "posterior",
            BOUND,
            Column("held_out_bound", "held-out", ".4f"),
            Column("bound / held_out_bound", "bound / held-out", ".2f"),
            Column("kl", "KL", ".1f"),
            Column("error", "error", ".4f"),
            Column("prior_error", "prior's error", ".4f"),
            Column("stochastic_test_error", "test", ".4f"),
        ),
        group_by=("data", "network", "augmented", "fraction", "num_certified", "posterior"),
        panels_in_a_row=3,
    ),
    answered=Answer(
        "No: with a prior from a tenth of the samples or more no fitted posterior is below its held-out bound, on"
        " any of four data sets; with a blind prior all are, but none on CIFAR-10.",
        num_claims=18,
        fails=(
            "below-held-out-cifar10-blind",
            "below-held-out-cifar10-tenth",
            "below-held-out-cifar10-quarter-or-more",
            "below-held-out-digits-tenth",
            "below-held-out-digits-quarter-or-more",
            "below-held-out-fashion-mnist-tenth",
            "below-held-out-fashion-mnist-quarter-or-more",
            "below-held-out-mnist-tenth",
            "below-held-out-mnist-quarter-or-more",
            "test-error-below-bound",
        ),
    ),
)
