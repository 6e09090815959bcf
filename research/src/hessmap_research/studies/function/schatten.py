"""The norm of the weights against what its function needs: Jacobians (Proposition 3) and paths (Proposition 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Series, View

_NUM_NETWORKS, _NUM_POINTS = 50, 10
_NUM_FITS = 30
_COUNTS = (100, 200, 400, 800)
# As function/rank-recovery trains them, so that both studies share their networks.
_TRAINING: dict[str, Any] = {"ridge": 0.02, "learning_rate": 2e-3, "num_steps": 3000}
_WIDTHS = (15, *(40,) * 9, 15)


def cases() -> tuple[Case, ...]:
    random = grid(item=["random"], num_layers=range(1, 9), seed=[0])
    trained = grid(item=["trained"], true_rank=(1, 2, 3, 4), seed=[0])
    paths = grid(item=["path"], num_layers=(3, 4, 6, 10, 20), seed=[0])
    return (*random, *trained, *paths, *grid(item=["growth"], true_rank=(2, 3, 4), seed=[0]))


def measure(case: Case) -> dict[str, Any]:
    return {"random": _random_record, "trained": _trained_record, "path": _path_record, "growth": _growth_record}[
        case["item"]
    ](case)


def _random_record(case: Case) -> dict[str, Any]:
    """||W||^2 / L over the largest quasi-norm of a Jacobian, of random networks with slopes a in (-1, 1)."""
    import numpy as np
    from torch import nn

    from hessmap.maps.functions import function_rank

    depth, generator = case["num_layers"], np.random.default_rng([case["seed"], case["num_layers"]])
    ratios = []
    for _ in range(_NUM_NETWORKS):
        widths = generator.integers(1, 9, size=depth + 1)
        scale, slope = 10.0 ** generator.uniform(-1, 0.5), float(generator.uniform(-1, 1))
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers += [_linear(scale * generator.normal(size=(after, before)), generator), nn.LeakyReLU(slope)]
        found = function_rank(nn.Sequential(*layers[:-1]), generator.normal(size=(_NUM_POINTS, widths[0]))).schatten
        assert found is not None
        if found.largest > 0:
            ratios.append(found.bound / found.largest)
    return {
        "least_ratio": min(ratios),
        "median_ratio": float(np.median(ratios)),
        "num_networks": len(ratios),
        "num_points": _NUM_POINTS,
    }


def _linear(weight: Any, generator: Any) -> Any:
    import torch
    from torch import nn

    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
    layer.weight.data = torch.from_numpy(weight)
    layer.bias.data = torch.from_numpy(0.1 * generator.normal(size=len(weight)))
    return layer


def _trained_record(case: Case) -> dict[str, Any]:
    """The same of networks trained with a penalty on targets of a known rank, at the training inputs."""
    from hessmap.maps.functions import function_rank

    model, inputs = trained_on_rank(case["true_rank"], case["seed"])
    rank = function_rank(model, inputs, relative_tolerance=0.1)
    assert rank.schatten is not None
    return {
        "num_layers": rank.schatten.num_layers,
        "scaled_norm": rank.schatten.bound,
        "largest_quasi_norm": rank.schatten.largest,
        "least_ratio": rank.schatten.bound / rank.schatten.largest,
        "jacobian_rank": rank.value,
        "num_networks": 1,
        "num_points": rank.num_samples,
    }


def trained_on_rank(true_rank: int, seed: int) -> tuple[Any, Any]:
    """The trained network and its inputs."""
    from hessmap_research.studies.function.low_rank_data import low_rank_data
    from hessmap_research.studies.function.regularised_network import regularised_network

    data = low_rank_data(true_rank, seed=seed)
    return regularised_network(_WIDTHS, data, seed=seed, **_TRAINING).model, data.inputs


def _path_record(case: Case) -> dict[str, Any]:
    """Interpolators of bottleneck rank 1 that are built: their norm and steepest Jacobian over the bounds."""
    import numpy as np

    from hessmap.theory.functions import deepened_network, rank_one_lower_bound, rank_one_network, squared_norm

    depth, generator = case["num_layers"], np.random.default_rng([case["seed"], 3])
    norms, slopes = [], []
    for place in range(_NUM_FITS):
        dimensions, count = generator.integers(1, 5, size=2), int(generator.integers(2, 9))
        inputs = generator.normal(size=(count, dimensions[0]))
        outputs = 10.0 ** generator.uniform(-1, 1) * generator.normal(size=(count, dimensions[1]))
        if place == 0:  # along a line, at one speed: nothing to spare
            inputs = np.linspace(0.0, 1.0, count)[:, None]
            outputs = inputs * np.array([[3.0, -4.0]])
        direction = generator.normal(size=inputs.shape[1])
        bound = rank_one_lower_bound(inputs, outputs)
        layers: Any = rank_one_network(inputs, outputs, direction)
        if depth > 3:
            layers = deepened_network(layers, depth, inputs.min(axis=0), inputs.max(axis=0)).layers
        norms.append(squared_norm(layers) / bound.squared_norm(depth))
        slopes.append(_steepest(inputs, outputs, direction) / bound.slope)
    return {
        "least_ratio": min(norms),
        "median_ratio": float(np.median(norms)),
        "least_slope_ratio": min(slopes),
        "num_networks": len(norms),
    }


def _steepest(inputs: Any, outputs: Any, direction: Any) -> float:
    """The largest slope of the polygon through the outputs, along the unit direction: ||Jf|| of h(u . x)."""
    import numpy as np

    times = inputs @ direction / np.linalg.norm(direction)
    order = np.argsort(times)
    lengths = np.linalg.norm(np.diff(outputs[order], axis=0), axis=1)
    return float((lengths / np.diff(times[order])).max())


def _growth_record(case: Case) -> dict[str, Any]:
    """How the path through N points of a k-dimensional cube grows: that of the spanning tree, which bounds it."""
    import numpy as np

    from hessmap.theory.functions import shortest_path

    generator = np.random.default_rng([case["seed"], case["true_rank"]])
    lengths = []
    for count in _COUNTS:
        draws = [shortest_path(generator.uniform(size=(count, case["true_rank"]))).value for _ in range(2)]
        lengths.append(float(np.mean(draws)))
    return {
        "counts": np.array(_COUNTS),
        "lengths": np.array(lengths),
        "exponent": float(np.polyfit(np.log(_COUNTS), np.log(lengths), 1)[0]),
        "predicted_exponent": 1 - 1 / case["true_rank"],
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    rounding = 1 - 1e-10
    random, trained, paths, growth = (
        [row for row in rows if row["item"] == item] for item in ("random", "trained", "path", "growth")
    )
    if random:
        least = min(row["least_ratio"] for row in random)
        number = sum(row["num_networks"] for row in random)
        detail = f"{number} networks at {_NUM_POINTS} points each, least ratio {least:.6f}"
        yield Claim(
            "bound-at-random", "sum s^(2/L) <= ||W||^2 / L at every point, slopes in (-1, 1)", least >= rounding, detail
        )
    if trained:
        ratios = ", ".join(f"k = {row['true_rank']}: {row['least_ratio']:.3f}" for row in trained)
        holds = all(row["least_ratio"] >= rounding for row in trained)
        yield Claim("bound-trained", "and on trained networks", holds, f"||W||^2 / L over the largest sum, {ratios}")
    if paths:
        least, slope = (min(row[name] for row in paths) for name in ("least_ratio", "least_slope_ratio"))
        number = sum(row["num_networks"] for row in paths)
        detail = f"{number} interpolators, norms at least {least:.4f} and slopes {slope:.6f} times their bounds"
        claim = "Interpolators of rank 1 obey ||W||^2 >= L (path / diameter)^(2/L), and slopes reach path / diameter"
        yield Claim("rank-one-interpolators", claim, least >= rounding and rounding <= slope < 1 + 1e-9, detail)
    if growth:
        numbers = ", ".join(f"{row['exponent']:.3f} ({row['predicted_exponent']:.3f})" for row in growth)
        is_near = all(abs(row["exponent"] - row["predicted_exponent"]) < 0.05 for row in growth)
        yield Claim("paths-grow", "Paths through N points grow as N^(1 - 1/k), exponents within 0.05", is_near, numbers)


STUDY = Study(
    name="function/schatten",
    question="How far is the norm of the weights from what its function needs?",
    reference="Jacot 2023, Propositions 3 and 10",
    cases=cases(),
    measure=measure,
    checks=(Check("least_ratio", 1 - 1e-10, "at_least"), Check("least_slope_ratio", 1 - 1e-10, "at_least")),
    claims=claims,
    view=View(
        figures=(
            *(
                Lines(
                    title=title,
                    x="num_layers",
                    series=(
                        Series("measured, median", points="median_ratio"),
                        Series("measured, least", points="least_ratio"),
                    ),
                    where={"item": item},
                    y_scale="log",
                    x_label="layers",
                    y_label="norm over its bound",
                    marks=(Mark(1.0, "as small as the bound", "y"),),
                )
                for item, title in (("random", "random networks, Jacobians"), ("path", "rank-1 fits, paths"))
            ),
            Lines(
                title="trained on targets of rank k",
                x="true_rank",
                series=(
                    Series("measured, $\\|W\\|^2 / L$", points="scaled_norm"),
                    Series("its bound, largest $\\sum s^{2/L}$", dashed="largest_quasi_norm"),
                ),
                where={"item": "trained"},
                x_label="k",
                y_label="$\\|W\\|^2 / L$",
            ),
        ),
        table=(
            "item",
            Column("num_layers", "layers"),
            Column("true_rank", "k"),
            Column("least_ratio", "least", ".4f"),
            Column("median_ratio", "median", ".3f"),
            Column("least_slope_ratio", "least slope", ".4f"),
            Column("scaled_norm", "norm", ".3f"),
            Column("exponent", "exponent", ".3f"),
        ),
    ),
    seconds=lambda case: 10.0 if case["item"] == "trained" else 2.0,
    answered=Answer(
        "Never below it; of trained networks it is 1.313 to 1.585 times the largest sum of s^(2/L).",
        num_claims=4,
        cases="agrees",
    ),
)
