"""Do minima of deep networks with an l2 penalty have a layer of nearly rank one, nearer the deeper they are?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Reading, Series, View

if TYPE_CHECKING:
    from torch import Tensor, nn

_DEPTHS = (4, 8, 16, 32)
_LAMBDA = 0.01  # the penalty is lambda / L ||W||^2, as in the paper
_WIDTH = 20
_NUM_STEPS = 4000
_NUM_SAMPLES, _NUM_OTHERS = 6, 100
_STARTS = ("built", "random")
_NUM_DIRECTIONS = 300
_ZERO = 1e-5  # singular values beside 1 that single precision leaves


def measure(case: Case) -> dict[str, Any]:
    """Of the better of two trainings, from a rank-one interpolator that is built and from random weights: the least
    s_2 / s_1 of all hidden representations, of the samples and of other points."""
    import numpy as np
    import torch

    from hessmap.datasets import Data
    from hessmap_research.studies.function.depth_and_samples import isometric_data
    from hessmap_research.studies.function.regularised_network import regularised_network

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

    from hessmap.theory.functions import deepened_network, rank_one_constant, rank_one_network
    from hessmap_research.studies.function.built_start import embedded_network

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


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    if not rows:
        return
    ordered = sorted(rows, key=lambda row: int(row["num_layers"]))
    deeper = [row for row in ordered if row["num_layers"] > _DEPTHS[0]]
    for name, words in (("samples", "the samples"), ("others", "100 other points")):
        scaled = [row.number(f"scaled.{name}") for row in ordered]
        claim = f"On {words}: the least s_2 / s_1 of a layer is below L^(-1/4) at every depth"
        yield Claim(claim_id("least-ratio", name), claim, max(scaled) < 1, f"at most {max(scaled):.2g} of it")
        if deeper:
            found = [row.number(f"least.{name}") for row in deeper]
            claim = f"On {words}: from {_DEPTHS[1]} layers on it is below 1e-5, rank one to the precision of training"
            yield Claim(claim_id("rank-one", name), claim, max(found) < _ZERO, f"at most {max(found):.1e}")
    claim = "Proposition 2: ||W||^2 / L of what was found is at most 1 + C_N / L"
    below = sum(row["cost_per_layer"] <= row["bound"] for row in rows)
    yield Claim.counted("proposition-2", claim, below, len(rows))
    claim = "Training from random weights ends above that from the built network: it does not find these minima"
    above = sum(row["objective.random"] > row["objective.built"] for row in rows)
    yield Claim.counted("random-start-ends-above", claim, above, len(rows))


STUDY = Study(
    name="function/rank-one-layer",
    question="Do minima of deep networks have a layer of nearly rank one, nearer the deeper they are?",
    reference="Jacot 2023, Propositions 2, 4 and 9",
    cases=grid(num_layers=_DEPTHS, seed=range(3)),
    measure=measure,
    claims=claims,
    seconds=lambda case: 1.0 + 0.8 * case["num_layers"],
    view=View(
        figures=(
            Lines(
                title="which training finds the minimum",
                x="num_layers",
                series=(
                    Series("from a built rank-one network", points="objective.built"),
                    Series("from random weights", points="objective.random"),
                ),
                x_scale="log",
                y_scale="log",
                x_label="layers L",
                y_label="objective at the end",
            ),
            Lines(
                title="the cost of the best network found",
                x="num_layers",
                series=(Series("$||W||^2 / L$", points="cost_per_layer", dashed="bound"),),
                x_scale="log",
                x_label="layers L",
                y_label="$||W||^2 / L$",
                reading=Reading(points="measured", dashed="the bound 1 + $C_N$ / L"),
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
    answered=Answer(
        "Yes, at the best minima that are known: the least s_2 / s_1 of a layer is below L^(-1/4) at every depth"
        " and below 1e-5 from 8 layers on; training from random weights does not find them.",
        num_claims=6,
    ),
)
