"""What a function costs at growing depth: the rank of its Jacobian a layer, or its bottleneck rank?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Series, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DEPTHS = (4, 6, 8, 12, 16, 24)
_RIDGE = 1e-4
_WIDTH = 16
_NUM_STEPS = 4000
_NUM_SAMPLES = 200
_RISK = 2e-3  # of a network that counts as representing the function
_FROM = 8  # the depth from which growth is judged


class _Function(NamedTuple):
    """The ranks of a function of the plane; its network is built by ``_network``."""

    jacobian_rank: int
    bottleneck_rank: int


# The last is Example 1, corrected: the conjecture of Remark 4 says that it costs 2 a layer, Theorem 1 at least 1.
FUNCTIONS = {"kink": _Function(1, 1), "sheet": _Function(2, 2), "cross": _Function(1, 2)}


def _network(name: str) -> list[tuple[NDArray[Any], None]]:
    """ReLU layers for (t, |t|) with t = (x + y) / 2, for (x, |y|), and for the cross map."""
    import numpy as np

    if name == "kink":
        return [(np.array([[0.5, 0.5], [-0.5, -0.5]]), None), (np.array([[1.0, -1.0], [1.0, 1.0]]), None)]
    split = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    if name == "sheet":
        return [(split, None), (np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]), None)]
    # x clipped to [-|y|, |y|] is (|x + |y|| - |x - |y||) / 2.
    first, other = np.array([1.0, -1.0, 1.0, 1.0]), np.array([1.0, -1.0, -1.0, -1.0])
    sums = np.array([first, -first, other, -other])
    halves = np.array([0.5, 0.5, -0.5, -0.5])
    clipped = np.vstack([sums, sums[:, [2, 3, 0, 1]]])
    return [(split, None), (clipped, None), (np.kron(np.eye(2), halves), None)]


def _values(layers: Sequence[tuple[NDArray[Any], None]], points: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    for place, (weight, _) in enumerate(layers):
        points = points @ weight.T
        points = np.maximum(points, 0) if place < len(layers) - 1 else points
    return points


def measure(case: Case) -> dict[str, Any]:
    """The cheapest network that represents the function, of trainings from a built one and from random weights."""
    import numpy as np
    import torch

    from hessmap.datasets import Data
    from hessmap.maps.functions import function_rank
    from hessmap.theory.functions import deepened_network, schatten_quasi_norm
    from hessmap_research.studies.function.built_start import embedded_network
    from hessmap_research.studies.function.regularised_network import regularised_network

    name, depth = case["function"], case["num_layers"]
    given = _network(name)
    points = np.random.default_rng(0).uniform(-1, 1, (_NUM_SAMPLES, 2))
    data = Data(torch.from_numpy(points), torch.from_numpy(_values(given, points)))
    made = deepened_network(given, depth, -np.ones(2), np.ones(2))
    widths = (2, *[_WIDTH] * (depth - 1), 2)
    options: dict[str, Any] = {"ridge": _RIDGE, "learning_rate": 1e-3, "num_steps": _NUM_STEPS}
    nets = [regularised_network(widths, data, start=embedded_network(made.layers, _WIDTH, seed=0), **options)]
    nets += [regularised_network(widths, data, seed=seed, **options) for seed in range(case["num_random"])]
    fitting = [net for net in nets if net.risk <= _RISK]
    best = min(fitting, key=lambda net: net.squared_norm) if fitting else nets[0]
    exact = embedded_network(made.layers, _WIDTH, seed=0, noise=0.0)
    slopes = function_rank(exact, data.inputs).singular_values  # of the function itself
    kept = FUNCTIONS[name].jacobian_rank  # others are rounding, which a small power would make large
    below = [schatten_quasi_norm(np.diag(values[:kept]), depth) for values in slopes]
    return {
        "cost": best.squared_norm,
        "is_built": best is nets[0],
        "from_random": min((net.squared_norm for net in fitting if net is not nets[0]), default=0.0),
        "num_fitting": len(fitting),
        "built": made.squared_norm,
        "lower": depth * float(max(below)),
        "cost_per_layer": best.squared_norm / depth,
        "built_per_layer": made.squared_norm / depth,
        "lower_per_layer": float(max(below)),
        "risk": best.risk,
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for name, ranks in FUNCTIONS.items():
        chosen = sorted((row for row in rows if row["function"] == name), key=lambda row: int(row["num_layers"]))
        if not chosen:
            continue
        inside = [row["lower"] <= row["cost"] * 1.001 and row["cost"] <= row["built"] for row in chosen]
        claim = f"{name}: the cost lies between Proposition 3 and the construction with identity layers"
        yield Claim.counted(
            claim_id("between-bounds", name),
            claim,
            sum(inside),
            len(inside),
            f"at {sum(inside)} of {len(inside)} depths",
        )
        deep = [row for row in chosen if row["num_layers"] >= _FROM]
        growths = [_growth(before, after) for before, after in pairwise(deep)]
        if not growths or any(row["risk"] > _RISK for row in deep):
            continue
        detail = ", ".join(f"{growth:.2f}" for growth in growths)
        if ranks.jacobian_rank == ranks.bottleneck_rank:
            claim = f"{name}: from {_FROM} layers on a further layer costs its rank {ranks.bottleneck_rank}, to 0.25"
            near = all(abs(growth - ranks.bottleneck_rank) <= 0.25 for growth in growths)
            yield Claim(claim_id("layer-costs-rank", name), claim, near, detail)
        else:
            whole = _growth(deep[0], deep[-1])
            middle = (ranks.jacobian_rank + ranks.bottleneck_rank) / 2
            claim = (
                f"{name}: from {_FROM} layers on the cost of the cheapest networks found grows by more than {middle:g} "
                f"a layer, nearer to the bottleneck rank {ranks.bottleneck_rank} than to the Jacobian rank"
            )
            yield Claim(
                claim_id("nearer-bottleneck-rank", name),
                claim,
                whole > middle,
                f"by {whole:.2f}; between neighbouring depths {detail}",
            )


def _growth(before: Row, after: Row) -> float:
    return (after.number("cost") - before.number("cost")) / (after.number("num_layers") - before.number("num_layers"))


STUDY = Study(
    name="function/cost-over-depth",
    question="Does a function cost its Jacobian rank or its bottleneck rank for every further layer?",
    reference="Jacot 2023, Theorem 1, Remark 4 and Example 1 (corrected)",
    cases=grid(function=list(FUNCTIONS), num_layers=_DEPTHS, num_random=[1]),
    measure=measure,
    claims=claims,
    seconds=lambda case: 1.5 * case["num_layers"],
    view=View(
        figures=tuple(
            Lines(
                title=f"{name}: Jacobian rank {ranks.jacobian_rank}, bottleneck rank {ranks.bottleneck_rank}",
                where={"function": name},
                x="num_layers",
                series=(
                    Series("found by training", points="cost_per_layer"),
                    Series("lower bound, Proposition 3", dashed="lower_per_layer"),
                    Series("built", line="built_per_layer"),
                ),
                x_label="layers L",
                y_label="$\\|W\\|^2 / L$",
                y_limits=(0.0, None),
                marks=(
                    Mark(ranks.jacobian_rank, "Jacobian rank", axis="y"),
                    Mark(ranks.bottleneck_rank, "bottleneck rank", axis="y"),
                ),
            )
            for name, ranks in FUNCTIONS.items()
        ),
        table=(
            "function",
            Column("num_layers", "L"),
            Column("cost", "||W||^2", ".2f"),
            Column("cost_per_layer", "||W||^2 / L", ".3f"),
            Column("lower_per_layer", "from below", ".3f"),
            Column("built_per_layer", "built", ".3f"),
            Column("from_random", "from random weights", ".2f"),
            Column("num_fitting", "of 2 that fit"),
            Column("risk", "", ".1e"),
        ),
    ),
    answered=Answer(
        "It depends: where both ranks agree a further layer costs that rank from 8 layers on; where they differ"
        " the cheapest networks found grow nearer to the bottleneck rank 2, and trainings find upper bounds only.",
        num_claims=6,
    ),
)
