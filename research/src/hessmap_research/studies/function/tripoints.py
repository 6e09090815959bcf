"""Do deep classifiers of the plane avoid the points where three classes meet, and shallow ones not?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Plane, View

if TYPE_CHECKING:
    from hessmap.datasets import Data

# Amplitude and distance of the four shapes x = (c - 1.5) distance - amplitude sin(pi t), y = sin(pi t / 2) or t.
_SHAPES = {
    "hook 1.5/0.5": ("hook", 1.5, 0.5),
    "hook 1.0/0.5": ("hook", 1.0, 0.5),
    "hook 1.5/0.9": ("hook", 1.5, 0.9),
    "sine 0.3/1.0": ("sine", 0.3, 1.0),
    "sine 0.7/0.9": ("sine", 0.7, 0.9),
    "sine 1.0/0.6": ("sine", 1.0, 0.6),
}
_DRAWN = ("hook 1.5/0.5", "hook 1.5/0.9", "sine 1.0/0.6")
_FIRST = _DRAWN[0]
_MANY = (_FIRST, "sine 1.0/0.6")  # of each kind of shape one with twenty seeds
_NUM_MANY = 20
_RIDGE = 1e-4
_TRAINING: dict[int, dict[str, Any]] = {2: {"width": 100, "rate": 1e-2}, 9: {"width": 40, "rate": 2e-3}}
_NUM_SHOWN = 81  # places a side of the picture


def cases() -> tuple[Case, ...]:
    depths = list(_TRAINING)
    return (
        *grid(shape=list(_SHAPES), ridge=[_RIDGE], seed=range(3), num_layers=depths),
        *grid(shape=_MANY, ridge=[_RIDGE], seed=range(3, _NUM_MANY), num_layers=depths),
        *grid(shape=_MANY, ridge=[0.0], seed=range(_NUM_MANY), num_layers=depths),
    )


def four_shapes(shape: str, seed: int, per_class: int = 100) -> Data:
    """Four copies of a curve side by side, 100 random points of each, moved by noise of deviation 0.01."""
    import torch

    from hessmap.datasets import Data

    kind, amplitude, distance = _SHAPES[shape]
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(4).repeat_interleave(per_class)
    t = 2 * torch.rand(4 * per_class, generator=generator, dtype=torch.float64) - 1
    across = (labels - 1.5) * distance - amplitude * torch.sin(torch.pi * t)
    up = torch.sin(torch.pi * t / 2) if kind == "hook" else t
    points = torch.stack([across, up], dim=1)
    noise = torch.randn(points.shape, generator=generator, dtype=torch.float64)
    return Data(points + 0.01 * noise, labels)


def measure(case: Case) -> dict[str, Any]:
    import numpy as np

    from hessmap.maps.functions import class_regions, function_rank
    from hessmap_research.studies.function.regularised_network import regularised_network

    data = four_shapes(case["shape"], case["seed"])
    training = _TRAINING[case["num_layers"]]
    net = regularised_network(
        (2, *[training["width"]] * (case["num_layers"] - 1), 4),
        data,
        loss="cross_entropy",
        ridge=case["ridge"],
        learning_rate=training["rate"],
        num_steps=2500,
        seed=case["seed"],
    )
    record: dict[str, Any] = {}
    for name, margin in (("near", 0.5), ("far", 2.0)):
        regions = class_regions(net.model, _box(data, margin), grid_size=151, largest_grid=601)
        record[name] = {"num_tripoints": regions.num_tripoints, "agrees": regions.agrees, "counts": regions.counts}
        if name == "near" and case["seed"] == 0:
            places = np.linspace(0, len(regions.labels) - 1, _NUM_SHOWN).round().astype(int)
            record["plane"] = {
                "labels": regions.labels[np.ix_(places, places)],
                "box": np.array(regions.box),
                "rings": regions.tripoints,
                "points": data.inputs.numpy()[::4].round(3),
                "kinds": data.targets.numpy()[::4],
            }
    values = function_rank(net.model, data.inputs).singular_values
    accuracy = float((net.model(data.inputs).argmax(dim=1) == data.targets).double().mean())
    return {**record, "slope_ratio": float(np.median(values[:, 1] / values[:, 0])), "accuracy": accuracy}


def _box(data: Data, margin: float) -> tuple[float, float, float, float]:
    low, high = data.inputs.min(dim=0).values - margin, data.inputs.max(dim=0).values + margin
    return float(low[0]), float(high[0]), float(low[1]), float(high[1])


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    penalised = [row for row in rows if row["ridge"] == _RIDGE]
    for shape in _SHAPES:
        yield from _contrast((shape,), shape, [row for row in penalised if row["shape"] == shape])
    for shape in _MANY:
        chosen = [row for row in rows if row["ridge"] == 0.0 and row["shape"] == shape]
        yield from _contrast((shape, "no-penalty"), f"{shape} without penalty", chosen)
    ratios = {depth: [row.number("slope_ratio") for row in penalised if row["num_layers"] == depth] for depth in (2, 9)}
    if all(ratios.values()):
        claim = "Deep networks have Jacobians nearer to rank 1: every s2 / s1 below every one of a shallow network"
        detail = ", ".join(f"{min(found):.2f} to {max(found):.2f} (L = {depth})" for depth, found in ratios.items())
        yield Claim("nearer-rank-one", claim, max(ratios[9]) < min(ratios[2]), detail)


def _contrast(setting: tuple[str, ...], where: str, rows: Sequence[Row]) -> Iterator[Claim]:
    """The figure's contrast in every pair of networks; of twenty pairs also as a tendency."""
    pairs = _pairs(rows)
    if pairs:
        claim = f"{where}: tripoints in every shallow network and in no deep one"
        yield Claim(
            claim_id("contrast", *setting),
            claim,
            all(shallow > 0 and deep == 0 for shallow, deep in pairs),
            _detail(pairs),
        )
    if len(pairs) >= _NUM_MANY:
        claim = f"{where}, {len(pairs)} seeds: fewer deep than shallow networks have a tripoint"
        yield _sign_test(claim_id("fewer-deep", *setting), claim, pairs)


def _sign_test(name: str, claim: str, pairs: Sequence[tuple[int, int]]) -> Claim:
    """Of the pairs in which only one network has a tripoint: decided if chance gives that many in under 5 %."""
    from scipy.stats import binomtest

    shallow_alone = sum(shallow > 0 and deep == 0 for shallow, deep in pairs)
    deep_alone = sum(deep > 0 and shallow == 0 for shallow, deep in pairs)
    differ = shallow_alone + deep_alone
    chance = float(binomtest(shallow_alone, differ).pvalue) if differ else 1.0
    having = [sum(counts[place] > 0 for counts in pairs) for place in (0, 1)]
    detail = (
        f"{having[0]} shallow and {having[1]} deep ones have; the shallow one alone in {shallow_alone} pairs, "
        f"the deep one alone in {deep_alone}, p = {chance:.2g}"
    )
    return Claim(name, claim, shallow_alone > deep_alone if chance < 0.05 else None, detail)


def _pairs(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """The tripoints of the shallow and of the deep network of each seed that has both."""
    found = {(row["seed"], row["num_layers"]): row["near.num_tripoints"] for row in rows}
    return [(count, found[seed, 9]) for (seed, depth), count in found.items() if depth == 2 and (seed, 9) in found]


def _detail(pairs: Sequence[tuple[int, int]]) -> str:
    shallow, deep = (", ".join(str(count) for count in counts) for counts in zip(*pairs, strict=True))
    return f"L = 2: {shallow}; L = 9: {deep}"


def _figure(shape: str, num_layers: int) -> Plane:
    return Plane(
        title=f"{shape}, L = {num_layers}",
        where={"shape": shape, "ridge": _RIDGE, "seed": 0, "num_layers": num_layers},
        labels="plane.labels",
        box="plane.box",
        rings="plane.rings",
        points="plane.points",
        kinds="plane.kinds",
        point_label="one colour a class: dots samples, areas what the network says",
        ring_label="tripoint",
    )


STUDY = Study(
    name="function/tripoints",
    question="Do deep classifiers of the plane avoid the points where three classes meet, and shallow ones not?",
    reference="Jacot 2023, Figure 2",
    cases=cases(),
    measure=measure,
    claims=claims,
    seconds=lambda case: 3.0 if case["num_layers"] == 2 else 5.0,
    families={
        "contrast": "Tripoints in every shallow network and in no deep one",
        "fewer-deep": "Of 20 seeds fewer deep than shallow networks have a tripoint",
    },
    view=View(
        # Beside the shallow network of a shape the deep one.
        figures=tuple(_figure(shape, depth) for shape in _DRAWN for depth in _TRAINING),
        table=(
            "shape",
            "ridge",
            Column("num_layers", "L"),
            "seed",
            Column("near.num_tripoints", "tripoints, margin 0.5", ".3g"),
            Column("near.agrees", "grids agree"),
            Column("far.num_tripoints", "margin 2", ".3g"),
            Column("slope_ratio", "s2 / s1", ".3f"),
            Column("accuracy", "", ".3f"),
        ),
        panels_in_a_row=2,
    ),
    answered=Answer(
        "It depends on the shape: for one hook fewer deep than shallow networks have a tripoint, for none of six"
        " shapes all shallow ones and no deep one.",
        num_claims=13,
        fails=(
            "contrast-hook-1-5-0-5",
            "contrast-hook-1-0-0-5",
            "contrast-hook-1-5-0-9",
            "contrast-sine-0-3-1-0",
            "contrast-sine-0-7-0-9",
            "contrast-sine-1-0-0-6",
            "contrast-hook-1-5-0-5-no-penalty",
            "contrast-sine-1-0-0-6-no-penalty",
            "nearer-rank-one",
        ),
        inconclusive=(
            "fewer-deep-sine-1-0-0-6",
            "fewer-deep-sine-1-0-0-6-no-penalty",
        ),
    ),
)
