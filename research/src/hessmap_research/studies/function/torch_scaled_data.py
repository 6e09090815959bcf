"""Figure 1 of the paper on data at the scale at which torch draws them, for three strengths of the penalty.

The paper does not state how its random networks g and h are scaled. ``nn.Linear`` draws weights and biases uniformly
within 1 / sqrt(inputs): x = g(z) and y = h(z_1, .., z_4) then have a standard deviation of about 0.2 and not 1, and a
given penalty weighs more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import sqrt
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, View
from hessmap_research.studies.function import published_setting as published

if TYPE_CHECKING:
    from torch import Tensor

    from hessmap.datasets import Data

_PENALTIES = (1.0, 2.0, 4.0)  # times the paper's 0.05 / L
_RIDGE = published.RIDGES["samples"]
_NUM_UNITS = 100
_MIDDLE = slice(3, 9)  # hidden layers 4 to 9 of 12


def torch_data(true_rank: int, seed: int) -> Data:
    """x = g(z), y = h(z_1, .., z_k) for Gaussian z of 15 dimensions; g and h have one hidden layer of 100 units."""
    import torch

    from hessmap.datasets import Data

    generator = torch.Generator().manual_seed(seed)

    def linear(inputs: Tensor, num_outputs: int) -> Tensor:
        limit = 1 / sqrt(inputs.shape[1])
        shape = (inputs.shape[1] + 1, num_outputs)
        drawn = limit * (2 * torch.rand(shape, generator=generator, dtype=torch.float64) - 1)
        return inputs @ drawn[:-1] + drawn[-1]

    def shallow(inputs: Tensor) -> Tensor:
        return linear(linear(inputs, _NUM_UNITS).relu(), published.NUM_OUTPUTS)

    latent = torch.randn(published.NUM_SAMPLES, published.NUM_LATENT, generator=generator, dtype=torch.float64)
    return Data(shallow(latent), shallow(latent[:, :true_rank]))


def measure(case: Case) -> dict[str, Any]:
    data = torch_data(published.TRUE_RANK, case["seed"])
    ridge = case["penalty"] * _RIDGE
    record = published.trained_record(data, ridge, published.UNCHANGED, case["seed"])
    left = record["least_gradient_norm"] / (2 * ridge * sqrt(published.NUM_LAYERS * record["cost_per_layer"]))
    deviations = {"inputs": float(data.inputs.std()), "outputs": float(data.targets.std())}
    return {**record, "deviation": deviations, "gradient_left": left}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for penalty in dict.fromkeys(row["penalty"] for row in rows):
        chosen = [row for row in rows if row["penalty"] == penalty]
        where = f"Penalty {penalty:g} x 0.05 / L"
        costs = [row.number("cost_per_layer") for row in chosen]
        for base, words, is_right, detail in (
            ("middle-rank", "layers 4 to 9 have centred rank 4", _has_true_rank, _ratios(chosen)),
            ("relu-change", "ReLU changes layers 4 to 9 by at most 5 %", _is_nearly_linear, _changes(chosen)),
            ("cost", "||W||^2 / L is within 1 of the paper's 6", _has_published_cost, _listed(costs)),
        ):
            yield Claim.about(
                claim_id(base, penalty),
                f"{where}: {words}",
                chosen,
                is_right,
                f"{{right}} of {{total}}: {detail}",
                needs="agreement",
            )
    by_seed = [[row.number("cost_per_layer") for row in rows if row["seed"] == seed] for seed in range(3)]
    falls = [all(first > second for first, second in pairwise(some)) for some in by_seed if some]
    yield Claim.about("cost-falls", "||W||^2 / L falls as the penalty grows", falls, bool, "{right} of {total} seeds")
    left = [row.number("gradient_left") for row in rows]
    yield Claim.about(
        "near-minima",
        "At most a tenth of the penalty's gradient is left",
        left,
        lambda value: value <= 0.1,
        f"{{right}} of {{total}}: {min(left):.2g} to {max(left):.2g}",
    )


def _has_true_rank(row: Row) -> bool:
    return all(rank == published.TRUE_RANK for rank in row["ranks.centred"][_MIDDLE])


def _is_nearly_linear(row: Row) -> bool:
    return bool(max(row["nonlinearity"][_MIDDLE]) <= 0.05)


def _has_published_cost(row: Row) -> bool:
    return abs(row.number("cost_per_layer") - 6) <= 1


def _ratios(rows: Sequence[Row]) -> str:
    return "s_5 / s_4 of layer 6 " + _listed([row.number("middle.next_over_last") for row in rows])


def _changes(rows: Sequence[Row]) -> str:
    return "at most " + _listed([float(max(row["nonlinearity"][_MIDDLE])) for row in rows])


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


STUDY = Study(
    name="function/torch-scaled-data",
    question="Does the paper's network have rank 4 and a norm of 6 per layer on data at the scale of torch's defaults?",
    reference="Jacot 2023, Figure 1",
    cases=grid(seed=range(3), penalty=_PENALTIES),
    measure=measure,
    claims=claims,
    seconds=lambda case: 130.0,
    families={
        "middle-rank": "Layers 4 to 9 have centred rank 4",
        "relu-change": "ReLU changes layers 4 to 9 by at most 5 %",
        "cost": "||W||^2 / L is within 1 of the paper's 6",
    },
    view=View(
        figures=published.singular_value_figures({"seed": 0}, facet="penalty"),
        panels_in_a_row=2,
        table=(
            Column("penalty", "penalty / (0.05 / L)"),
            "seed",
            Column("deviation.outputs", "deviation of outputs", ".3f"),
            Column("middle.rank", "rank, middle", ".3g"),
            Column("middle.next_over_last", "s_5 / s_4", ".3f"),
            Column("middle.nonlinearity", "nonlinearity", ".4f"),
            Column("split.start", "bottleneck from", ".3g"),
            Column("split.end", "to", ".3g"),
            Column("cost_per_layer", "||W||^2 / L", ".2f"),
            Column("risk", "", ".4f"),
            Column("objective", "", ".4f"),
            Column("gradient_left", "gradient left", ".3f"),
        ),
    ),
    answered=Answer(
        "It depends: rank 4 and a linear middle in all trainings; the norm is 7.27, 7.25, 7.36 at the paper's penalty,"
        " not yet at minima, 6.67, 6.66, 6.75 at twice and 5.87, 5.83, 5.97 at four times that penalty.",
        num_claims=11,
        fails=("cost-1-0", "near-minima"),
    ),
)
