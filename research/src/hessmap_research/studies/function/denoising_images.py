"""Do deep autoencoders of images take noise away that shallow ones let pass?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import lt
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

# Ridges at which both depths keep tens of dimensions, images trained on, steps; a third as many images are held out.
_SETTINGS: dict[str, dict[str, Any]] = {
    "digits": {"ridge": 5e-3, "num_samples": 300, "num_steps": 2000},
    "mnist": {"ridge": 1e-2, "num_samples": 600, "num_steps": 6000},
}
_DEPTHS = (2, 4, 8)  # on MNIST the first and the last
_WIDTH = 100
_RATES = {2: 3e-3, 4: 2e-3, 8: 1e-3}
_NOISE = 0.3
_NUM_SHOWN = 8


def cases(data: str) -> tuple[Case, ...]:
    if data == "mnist":
        return grid(num_layers=(_DEPTHS[0], _DEPTHS[-1]), seed=range(3))
    return grid(num_layers=_DEPTHS, seed=range(3))


def measure(case: Case) -> dict[str, Any]:
    import torch

    from hessmap.datasets import Data, by_name
    from hessmap.maps.functions import bottleneck_view
    from hessmap_research.studies.function.regularised_network import regularised_network

    settings, seed = _SETTINGS[case["data"]], case["seed"]
    count = settings["num_samples"]
    images = by_name(case["data"], num_samples=count + count // 3, seed=seed).inputs
    seen, held_out = images[:count], images[count:]
    size = images.shape[1]
    net = regularised_network(
        (size, *[_WIDTH] * (case["num_layers"] - 1), size),
        Data(seen, seen),
        ridge=settings["ridge"],
        learning_rate=_RATES[case["num_layers"]],
        num_steps=settings["num_steps"],
        seed=seed,
    )
    generator = torch.Generator().manual_seed(seed)
    noise = _NOISE * torch.randn(held_out.shape, generator=generator, dtype=torch.float64)
    record: dict[str, Any] = {
        "held_out": _scores(net.model, held_out, noise),
        "seen": _scores(net.model, seen[: len(held_out)], noise),
        "narrowest": min(layer.centred_rank for layer in bottleneck_view(net.model, seen).layers[:-1]),
        "gradient_norm": net.gradient_norm,
    }
    if seed == 0:
        record["picture"] = _picture(net.model, held_out[:_NUM_SHOWN], noise[:_NUM_SHOWN])
    return record


def _scores(model: Any, images: Tensor, noise: Tensor) -> dict[str, float]:
    """Mean of ||f(x + e) - x|| / ||e||, of ||f(x + e) - f(x)|| / ||e|| and of ||f(x) - x|| / ||e||."""
    import torch

    with torch.no_grad():
        of_noisy, of_clean = model(images + noise), model(images)
    sizes = noise.norm(dim=1)
    parts = {"left": of_noisy - images, "passed": of_noisy - of_clean, "lost": of_clean - images}
    return {name: float((part.norm(dim=1) / sizes).mean()) for name, part in parts.items()}


def _picture(model: Any, images: Tensor, noise: Tensor) -> NDArray[Any]:
    """Clean images, noisy ones and outputs below each other, in tenths of grey."""
    import numpy as np
    import torch

    with torch.no_grad():
        lines = [images, images + noise, model(images + noise)]
    side = round(images.shape[1] ** 0.5)
    tiles = [np.hstack(list(line.reshape(-1, side, side).numpy())) for line in lines]
    whole: NDArray[Any] = np.vstack(tiles)
    return whole.clip(0.0, 1.0).round(1)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for data in dict.fromkeys(row["data"] for row in rows):
        chosen = [row for row in rows if row["data"] == data]
        deep, flat = ([row for row in chosen if row["num_layers"] == depth] for depth in (_DEPTHS[-1], _DEPTHS[0]))
        if not deep or not flat:
            continue
        for name, claim in (
            ("passed", "less of the noise passes the deepest network than the shallowest"),
            ("left", "its outputs are nearer to the clean images too"),
        ):
            ones, others = ([row.number(f"held_out.{name}") for row in group] for group in (deep, flat))
            pairs = list(zip(ones, others, strict=False))
            yield Claim.paired(claim_id(name, data), f"{data}, held-out images: {claim}", pairs, lt, ".2f")


STUDY = Study(
    name="function/denoising-images",
    question="Do deep autoencoders of images take noise away that shallow ones let pass?",
    reference="Jacot 2023, Figure 3 A",
    cases=cases,
    measure=measure,
    claims=claims,
    data=("digits", "mnist"),
    seconds=lambda case: (2.0 if case["data"] == "digits" else 40.0) * case["num_layers"] ** 0.5,
    view=View(
        figures=tuple(
            Heatmap(
                title=f"{data}, L = {depth}",
                where={"data": data, "num_layers": depth, "seed": 0},
                value="picture",
                limits=(0.0, 1.0),
                row_labels=("clean", "noisy", "output"),
            )
            for data in _SETTINGS
            for depth in (_DEPTHS[0], _DEPTHS[-1])  # both data sets have these
        ),
        table=(
            "data",
            Column("num_layers", "L"),
            Column("narrowest", "narrowest rank", ".3g"),
            Column("held_out.left", "left, held out", ".3f"),
            Column("held_out.passed", "passed", ".3f"),
            Column("held_out.lost", "lost", ".3f"),
            Column("seen.left", "left, seen", ".3f"),
            Column("seen.passed", "passed", ".3f"),
            Column("gradient_norm", "", ".2g"),
        ),
        group_by=("data", "num_layers"),
        panels_in_a_row=2,
    ),
    answered=Answer(
        "It depends on the data: less of the noise passes the deepest network on both; its outputs are nearer to"
        " the clean images on the digits, and farther from them on MNIST.",
        num_claims=4,
        fails=("left-mnist",),
    ),
)
