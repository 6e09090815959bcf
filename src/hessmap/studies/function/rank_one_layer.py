"""Do minima of deep networks with an l2 penalty have a layer of nearly rank one, nearer the deeper they are?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap.studies import Case, Column, Finding, Lines, Row, Series, Study, View, grid

if TYPE_CHECKING:
    from torch import Tensor, nn

_DEPTHS = (4, 8, 16, 32)
_LAMBDA = 0.01  # the penalty is lambda / L ||W||^2, as in the paper
_WIDTH = 20
_NUM_STEPS = 4000
_NUM_SAMPLES, _NUM_OTHERS = 6, 100
_STARTS = ("built", "random")
_NUM_DIRECTIONS = 300


def measure(case: Case) -> dict[str, Any]:
    """Of the better of two trainings, from a rank-one interpolator that is built and from random weights: the least
    s_2 / s_1 of all hidden representations, of the samples and of other points."""
    import numpy as np
    import torch

    from hessmap.datasets import Data
    from hessmap.studies.function.depth_and_samples import isometric_data
    from hessmap.studies.function.regularised_network import regularised_network

    depth, seed = case["num_layers"], case["seed"]
    inputs, outputs, _ = isometric_data(_NUM_SAMPLES, seed)
    others = torch.from_numpy(isometric_data(_NUM_OTHERS, seed + 1000)[0])
    data = Data(torch.from_numpy(inputs), torch.from_numpy(outputs))
    widths = (inputs.shape[1], *[_WIDTH] * (depth - 1), outputs.shape[1])
    built, constant = _built(inputs, outputs, depth, seed)
    options: dict[str, Any] = {"ridge": _LAMBDA / depth, "learning_rate": 1e-3, "num_steps": _NUM_STEPS, "seed": seed}
    nets = {
        start: regularised_network(widths, data, start=built if start == "built" else None, **options)
        for start in _STARTS
    }
    best = min(nets, key=lambda start: nets[start].objectives[-1])
    ratios = {
        name: _ratios(nets[best].model, points) for name, points in (("samples", data.inputs), ("others", others))
    }
    norm = nets[best].squared_norm
    return {
        "best_start": best,
        "objective": {start: net.objectives[-1] for start, net in nets.items()},
        "least": {name: float(found.min()) for name, found in ratios.items()},
        "place": {name: int(found.argmin()) + 1 for name, found in ratios.items()},
        "scaled": {name: float(found.min()) * depth**0.25 for name, found in ratios.items()},
        "cost_per_layer": norm / depth,
        "bound": 1 + constant / depth,
        "jacobian_ratio": _jacobian_ratio(nets[best].model, data.inputs),
        "output_spread": float(np.std(nets[best].model(data.inputs).detach().numpy())),
        "risk": nets[best].risk,
    }


def _built(inputs: Any, outputs: Any, depth: int, seed: int) -> tuple[nn.Sequential, float]:
    """The cheapest of many rank-one interpolators, deepened, and its constant C_N."""
    import numpy as np

    from hessmap.studies.function.built_start import embedded_network
    from hessmap.theory.functions import deepened_network, rank_one_constant, rank_one_network

    directions = list(np.random.default_rng(seed).normal(size=(_NUM_DIRECTIONS, inputs.shape[1])))
    constants = [rank_one_constant(inputs, outputs, [direction]) for direction in directions]
    layers = rank_one_network(inputs, outputs, directions[int(np.argmin(constants))])
    made = deepened_network(layers, depth, inputs.min(axis=0), inputs.max(axis=0))
    return embedded_network(made.layers, _WIDTH, seed=seed), min(constants)


def _ratios(model: nn.Sequential, points: Tensor) -> Any:
    """s_2 / s_1 of every hidden representation, not centred."""
    import numpy as np

    from hessmap.maps.functions import bottleneck_view

    hidden = bottleneck_view(model, points).layers[:-1]
    return np.array([layer.singular_values[1] / layer.singular_values[0] for layer in hidden])


def _jacobian_ratio(model: nn.Sequential, points: Tensor) -> float:
    from hessmap.maps.functions import function_rank

    values = function_rank(model, points).singular_values
    return float((values[:, 1] / values[:, 0]).max())


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    seeds = {row["seed"] for row in rows}
    for name, words in (("samples", "the samples"), ("others", "100 other points")):
        curves = [
            [row.number(f"scaled.{name}") for row in sorted(rows, key=_depth) if row["seed"] == seed] for seed in seeds
        ]
        curves = [curve for curve in curves if len(curve) > 1]
        if curves:
            claim = f"On {words}: L^(1/4) times the least s_2 / s_1 is nowhere above its value at {_DEPTHS[0]} layers"
            detail = "; ".join(", ".join(f"{value:.1e}" for value in curve) for curve in curves)
            yield Finding(claim, all(max(curve[1:]) <= curve[0] for curve in curves), detail)
    if rows:
        claim = "Proposition 2: ||W||^2 / L of what was found is at most 1 + C_N / L"
        over = [row for row in rows if row["cost_per_layer"] > row["bound"]]
        yield Finding(claim, not over, f"{len(rows) - len(over)} of {len(rows)}")
        deep = [row for row in rows if row["num_layers"] == _DEPTHS[-1]]
        if deep:
            ratios = [row.number("jacobian_ratio") for row in deep]
            claim = f"{_DEPTHS[-1]} layers: the second singular value of the Jacobian is below a hundredth of the first"
            yield Finding(claim, max(ratios) < 0.01, ", ".join(f"{ratio:.1e}" for ratio in ratios))


def _depth(row: Row) -> int:
    return int(row["num_layers"])


STUDY = Study(
    name="function/rank-one-layer",
    question="Do minima of deep networks have a layer of nearly rank one, nearer the deeper they are?",
    reference="Jacot 2023, Propositions 2, 4 and 9",
    cases=grid(num_layers=_DEPTHS, seed=range(3)),
    measure=measure,
    findings=findings,
    seconds=lambda case: 1.0 + 0.8 * case["num_layers"],
    view=View(
        figures=(
            Lines(
                title="the layer nearest to rank one",
                x="num_layers",
                series=(
                    Series("samples", points="least.samples"),
                    Series("other points", points="least.others"),
                ),
                x_scale="log",
                y_scale="log",
                x_label="layers L",
                y_label="least $s_2 / s_1$ of a representation",
            ),
            Lines(
                title="the cost of the best network found",
                x="num_layers",
                series=(Series("$||W||^2 / L$", points="cost_per_layer", dashed="bound"),),
                x_scale="log",
                x_label="layers L",
                y_label="$||W||^2 / L$",
                reading="circles measured, dashes the bound 1 + $C_N$ / L",
            ),
        ),
        table=(
            Column("num_layers", "L"),
            "seed",
            Column("best_start", "better start"),
            Column("least.samples", "s_2 / s_1, samples", ".1e"),
            Column("place.samples", "in layer"),
            Column("least.others", "other points", ".1e"),
            Column("scaled.samples", "times L^(1/4)", ".1e"),
            Column("cost_per_layer", "||W||^2 / L", ".2f"),
            Column("bound", "1 + C_N / L", ".2f"),
            Column("jacobian_ratio", "Jacobian", ".1e"),
            Column("risk", "", ".1e"),
        ),
    ),
)
