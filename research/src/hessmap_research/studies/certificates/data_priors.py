"""Priors learnt from a part of the samples: is there a posterior, in any basis, that beats a plain held-out bound?"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hessmap.errors import unknown_name
from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.model_cache import models_folder
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, Mark, Series, View
from hessmap_research.studies.certificates.certificate_record import BOUND
from hessmap_research.studies.certificates.prior_cases import CHOICES, FITS, SOME_IMAGES, Choice, cases

if TYPE_CHECKING:
    from torch import nn

    from hessmap.certificates import Certificate, Verification
    from hessmap.datasets import Data
if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data


_SHAPES = {
    "digits": (1, 8, 8),
    "mnist": (1, 28, 28),
    "fashion_mnist": (1, 28, 28),
    "cifar10": (3, 32, 32),
}
_NUM_TRAIN_DIGITS = 1500
_SEED_OF_DIGITS = 0


@dataclass(frozen=True)
class PlainNetwork:
    """Fully connected with ReLU and biases, in single precision."""

    widths: tuple[int, ...]

    def build(self, seed: int = 0, init: str = "kaiming") -> nn.Module:
        import torch

        from hessmap.networks import FullyConnected

        return FullyConnected(self.widths, bias=True, activation="relu").build(seed, init, dtype=torch.float32)


@dataclass(frozen=True)
class SmallConvolutional:
    """Convolutions of 3 x 3 with ReLU, halved by their largest values or by their strides, then one linear layer."""

    shape: tuple[int, int, int]
    channels: tuple[int, ...]
    num_classes: int = 10
    is_strided: bool = False

    def build(self, seed: int = 0, init: str = "kaiming") -> nn.Module:
        import torch
        from torch import nn

        from hessmap.networks import initialise

        size, (before, height, width) = len(self.channels), self.shape
        parts: list[nn.Module] = [nn.Unflatten(1, self.shape)]
        for channels in self.channels:
            stride = 2 if self.is_strided else 1
            parts += [nn.Conv2d(before, channels, 3, stride, padding=1), nn.ReLU()]
            parts += [] if self.is_strided else [nn.MaxPool2d(2)]
            before = channels
        parts += [nn.Flatten(), nn.Linear(before * (height >> size) * (width >> size), self.num_classes)]
        network, generator = nn.Sequential(*parts), torch.Generator().manual_seed(seed)
        for part in parts:
            if isinstance(part, nn.Conv2d | nn.Linear):
                initialise(part, init, generator)
        return network.to(torch.float32)


class Recipe(NamedTuple):
    """How a prior is trained: epochs over its own part, and whether the images are moved and bent."""

    epochs: int
    is_augmented: bool


ARCHITECTURES = ("fc-100", "fc-600^3", "cnn-16-32", "cnn-32-64-128", "strided-8-16", "strided-16-32")


def architecture(name: str, data: str) -> PlainNetwork | SmallConvolutional:
    """By name: hidden widths after "fc-" (a power repeats one), channels after "cnn-" and "strided-"."""
    if name not in ARCHITECTURES:
        raise unknown_name("network", name, ARCHITECTURES)
    kind, _, rest = name.partition("-")
    if kind != "fc":
        return SmallConvolutional(_SHAPES[data], tuple(map(int, rest.split("-"))), is_strided=kind == "strided")
    width, _, depth = rest.partition("^")
    return PlainNetwork((_num_pixels(data), *[int(width)] * int(depth or 1), 10))


def _num_pixels(data: str) -> int:
    """What a fully connected network sees: images in grey."""
    _, height, width = _SHAPES[data]
    return height * width


def has_colours(network: str, data: str) -> bool:
    """Whether a network sees all channels of images."""
    return data == "cifar10" and not network.startswith("fc-")


@lru_cache(maxsize=1)
def samples(data: str, has_colours: bool = False, num_images: int | None = None) -> tuple[Data, Data]:
    """``num_images`` (default: all) training samples and a sixth as many test samples, in single precision, scaled by
    constants alone; read once for the cases of a run that follow each other."""
    from hessmap.datasets import Data, by_name, subsample

    if data == "digits":
        shuffled = subsample(by_name(data), None, seed=_SEED_OF_DIGITS)
        cuts = (slice(None, _NUM_TRAIN_DIGITS), slice(_NUM_TRAIN_DIGITS, None))
        parts = [Data(shuffled.inputs[some], shuffled.targets[some]) for some in cuts]
    else:
        colours = {"grayscale": False} if has_colours else {}
        parts = [by_name(data, split=split, **colours) for split in ("train", "test")]
    if num_images is not None:
        parts = [subsample(part, size, seed=0) for part, size in zip(parts, (num_images, num_images // 6), strict=True)]
    train, test = (Data(part.inputs.float(), part.targets) for part in parts)
    return train, test


def trained_prior(network: str, data: str, part: Data, recipe: Recipe, seed: int) -> nn.Module:
    """The network trained on a part of the samples, from the cache of models where it is there."""
    from hessmap.datasets import ImageAugmentation
    from hessmap_research.studies.trained_networks import trained_network

    options: dict[str, Any] = {
        "optimiser": "adam",
        "learning_rate": 1e-3,
        "batch_size": 128 if data != "digits" else 32,
    }
    if recipe.is_augmented:
        options["augmentation"] = _augmentation(data, ImageAugmentation)
    return trained_network(
        architecture(network, data),
        part,
        seed=seed,
        init="kaiming",
        epochs=recipe.epochs,
        drop_rate_after=max(1, round(0.75 * recipe.epochs)),
        record_every=recipe.epochs,
        checkpoint_every=2,
        num_threads=1,
        **options,
    ).model


def _augmentation(data: str, kind: Any) -> Any:
    """Handwriting may be turned, sheared and bent; clothes and images are shifted and mirrored."""
    if data in ("mnist", "digits"):
        shift, elastic = (2.0, 1.0) if data == "mnist" else (0.7, 0.3)
        return kind(_SHAPES[data], rotation=12.0, scale=0.12, shear=0.15, shift=shift, elastic=elastic)
    return kind(_SHAPES[data], rotation=5.0, scale=0.08, shear=0.05, shift=2.0, elastic=0.0, mirror=True)


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


def measure(case: Case) -> dict[str, Any]:
    """The certificate, read back from its file and verified from that and the samples."""

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
