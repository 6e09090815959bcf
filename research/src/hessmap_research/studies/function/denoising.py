"""Do deep autoencoders of a curve in the plane take noise away, and shallow ones less?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import gt
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Plane, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Curve, ridge, depth and step size of the deep network, deviation of the noise.
_CURVES: dict[str, dict[str, Any]] = {
    "arc": {"ridge": 3e-3, "deep": 12, "rate": 1.5e-3, "noise": 0.2, "seeds": range(4)},
    "random": {"ridge": 1e-3, "deep": 10, "rate": 2e-3, "noise": 0.2, "seeds": range(6)},
    "sine": {"ridge": 3e-3, "deep": 10, "rate": 2e-3, "noise": 0.3, "seeds": range(2)},
}
# Depth and width differ together between the first and the last; the second says which of them it is.
_NETWORKS = ("shallow, width 100", "shallow, width 40", "deep, width 40")
# Three times the steps: what the first and the last become when they have nearly converged.
_LONGER = ("longer, shallow, width 100", "longer, deep, width 40")
_NUM_ARROWS = 60


def cases() -> tuple[Case, ...]:
    usual = tuple(
        {"curve": curve, **case}
        for curve, settings in _CURVES.items()
        for case in grid(seed=settings["seeds"], network=_NETWORKS)
    )
    return (*usual, *grid(curve=["arc", "random"], seed=range(2), network=_LONGER))


def curve_points(curve: str, places: NDArray[Any], seed: int) -> NDArray[Any]:
    """Points at places z from -1 to 1: 270 degrees of a circle, a random ReLU curve, or (2 z, sin 3 z)."""
    import numpy as np

    if curve == "arc":
        angle = 0.75 * np.pi * places
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if curve == "sine":
        return np.stack([2 * places, np.sin(3 * places)], axis=1)
    generator = np.random.default_rng(1000 + seed)
    slopes, kinks, outgoing = generator.normal(size=20), generator.uniform(-1, 1, 20), generator.normal(size=(20, 2))
    dense = np.linspace(-1, 1, 2001)[:, None]
    every, wanted = (np.maximum(slopes * (at - kinks), 0) @ outgoing for at in (dense, places[:, None]))
    return np.asarray((wanted - every.mean(axis=0)) / every.std())


def measure(case: Case) -> dict[str, Any]:
    import numpy as np
    import torch

    from hessmap.datasets import Data
    from hessmap.maps.functions import denoising_score, function_rank
    from hessmap_research.studies.function.regularised_network import regularised_network

    settings, seed = _CURVES[case["curve"]], case["seed"]
    generator = np.random.default_rng(seed)
    points = torch.from_numpy(curve_points(case["curve"], generator.uniform(-1, 1, 100), seed))
    width = int(case["network"].split()[-1])
    is_deep, is_longer = (word in case["network"] for word in ("deep", "longer"))
    net = regularised_network(
        (2, *[width] * (settings["deep"] - 1 if is_deep else 1), 2),
        Data(points, points),
        ridge=settings["ridge"],
        learning_rate=settings["rate"] if is_deep else 5e-3,
        num_steps=12000 if is_longer else 4000,
        seed=seed,
    )
    whole = curve_points(case["curve"], np.linspace(-1, 1, 5000), seed)
    score = denoising_score(net.model, whole, noise=settings["noise"], seed=seed)
    slopes = function_rank(net.model, points).singular_values
    record = {
        "mean": score.mean,
        "median": score.median,
        "standard_error": score.standard_error,
        "slope_ratio": float(np.median(slopes[:, 1] / slopes[:, 0])),
        "risk": net.risk,
        "gradient_norm": net.gradient_norm,
        "squared_norm": net.squared_norm,
    }
    return record if seed else {**record, "plane": _plane(net.model, points.numpy(), whole, settings["noise"])}


def _plane(model: Any, points: NDArray[Any], whole: NDArray[Any], noise: float) -> dict[str, Any]:
    import numpy as np
    import torch

    generator = np.random.default_rng(0)
    noisy = whole[generator.integers(len(whole), size=_NUM_ARROWS)] + noise * generator.normal(size=(_NUM_ARROWS, 2))
    with torch.no_grad():
        cleaned = model(torch.from_numpy(noisy)).numpy()
    low, high = points.min(axis=0) - 3 * noise, points.max(axis=0) + 3 * noise
    arrows = np.concatenate([noisy, cleaned], axis=1)
    return {
        "box": np.array([low[0], high[0], low[1], high[1]]),
        "points": points.round(3),
        "arrows": arrows.round(3),
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    comparisons = [(_NETWORKS[0], _NETWORKS[2]), (_NETWORKS[1], _NETWORKS[2]), _LONGER]
    for curve in ("arc", "random"):
        for shallow, deep_one in comparisons:
            pairs = _pairs([row for row in rows if row["curve"] == curve], shallow, deep_one)
            claim = f"{curve}: the network that is {deep_one} leaves less of the noise than that which is {shallow}"
            yield Claim.paired(claim_id("less-noise", curve, deep_one, "than", shallow), claim, pairs, gt, ".2f")
    curved = _pairs([row for row in rows if row["curve"] == "sine"], _NETWORKS[0], _NETWORKS[2])
    if curved:
        claim = f"sine, strongly curved, {len(curved)} seeds: the deep network leaves more than half of the noise"
        detail = ", ".join(f"{deep:.2f}" for _, deep in curved)
        yield Claim("sine-keeps-noise", claim, all(deep > 0.5 for _, deep in curved), detail)


def _pairs(rows: Sequence[Row], shallow: str, deep: str) -> list[tuple[float, float]]:
    """The mean scores of a shallow and of a deep network of each seed that has both."""
    found = {(row["seed"], row["network"]): row.number("mean") for row in rows}
    seeds = [seed for seed, network in found if network == deep and (seed, shallow) in found]
    return [(found[seed, shallow], found[seed, deep]) for seed in seeds]


STUDY = Study(
    name="function/denoising",
    question="Do deep autoencoders of a curve in the plane take noise away, and shallow ones less?",
    reference="Jacot 2023, Figure 3, B and C",
    cases=cases(),
    measure=measure,
    claims=claims,
    seconds=lambda case: (4.0 if "deep" in case["network"] else 2.0) * (3.0 if "longer" in case["network"] else 1.0),
    view=View(
        figures=tuple(
            Plane(
                title=f"{curve}, {network}",
                where={"curve": curve, "seed": 0, "network": network},
                box="plane.box",
                points="plane.points",
                arrows="plane.arrows",
                point_label="samples",
                arrow_labels=("noisy point", "output, a line from its noisy point"),
            )
            for curve in _CURVES
            for network in _NETWORKS
        ),
        table=(
            "curve",
            "network",
            Column("mean", "distance left, mean", ".3f"),
            Column("median", "", ".3f"),
            Column("slope_ratio", "s2 / s1", ".3f"),
            Column("risk", "", ".2g"),
            Column("gradient_norm", "", ".1g"),
            Column("squared_norm", "||W||^2", ".3g"),
        ),
        group_by=("curve", "network"),
    ),
    answered=Answer(
        "It depends on the training: on arcs and random curves deep ones leave less of the noise, after a longer"
        " training nothing is decided; on a strongly curved one they leave more than half.",
        num_claims=7,
        inconclusive=(
            "less-noise-arc-longer-deep-width-40-than-longer-shallow-width-100",
            "less-noise-random-longer-deep-width-40-than-longer-shallow-width-100",
        ),
    ),
)
