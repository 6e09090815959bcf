"""At which depths and numbers of samples do networks over- or underestimate the rank behind the data?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TRUE_RANK = 2
_DIM = 15
_HALF_SIDE = 0.52
_DEPTHS = (2, 4, 8, 16)
_SAMPLES = (4, 6, 20, 100)
_RIDGES = (1e-3, 5e-3)
_NUM_DIRECTIONS = 300  # tried for the rank-one network


def isometric_data(num_samples: int, seed: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Inputs uniform on a cube of 15 dimensions, the outputs Q (x_1, x_2), and the matrix of that map.

    Q has orthonormal columns: the map has two singular values 1, so that deep networks represent it cheaply.
    """
    import numpy as np

    generator = np.random.default_rng(seed)
    inputs = generator.uniform(-_HALF_SIDE, _HALF_SIDE, (num_samples, _DIM))
    matrix = np.zeros((_DIM, _DIM))
    matrix[:, :_TRUE_RANK] = np.linalg.qr(generator.normal(size=(_DIM, _TRUE_RANK)))[0]
    return inputs, inputs @ matrix.T, matrix


def measure(case: Case) -> dict[str, Any]:
    import torch

    from hessmap.datasets import Data
    from hessmap.maps.functions import bottleneck_view
    from hessmap_research.studies.function.regularised_network import regularised_network

    inputs, outputs, matrix = isometric_data(case["num_samples"], case["seed"])
    data = Data(torch.from_numpy(inputs), torch.from_numpy(outputs))
    num_layers, ridge = case["num_layers"], case["ridge"]
    widths = (_DIM, *[40] * (num_layers - 1), _DIM)
    options: dict[str, Any] = {"learning_rate": 2e-3, "num_steps": 4000, "seed": case["seed"]}
    net = regularised_network(widths, data, ridge=ridge, **options)
    ranks = [layer.centred_rank for layer in bottleneck_view(net.model, data.inputs).layers[:-1]]
    constants = _constants(inputs, outputs, matrix)
    built = min(_TRUE_RANK * num_layers + constants["true"], num_layers + constants["rank_one"])
    return {
        "narrowest": min(ranks),
        "widest": max(ranks),
        "share_at_true_rank": sum(rank == _TRUE_RANK for rank in ranks) / len(ranks),
        "squared_norm": net.squared_norm,
        "risk": net.risk,
        "constants": constants,
        "expected": _expected_depths(constants),
        "over_built": net.objectives[-1] / (ridge * built),
    }


def _constants(inputs: NDArray[Any], outputs: NDArray[Any], matrix: NDArray[Any]) -> dict[str, float]:
    """C and C_N of the costs k L + C of the true function and L + C_N of a rank-one fit, and the slope of Prop. 10."""
    import numpy as np

    from hessmap.theory.functions import cost_constant, rank_one_constant, rank_one_lower_bound

    corner = np.full(_DIM, _HALF_SIDE)
    directions = list(np.random.default_rng(0).normal(size=(_NUM_DIRECTIONS, _DIM)))
    return {
        "true": cost_constant([(matrix, None)], _TRUE_RANK, -corner, corner),
        "rank_one": rank_one_constant(inputs, outputs, directions),
        "slope": rank_one_lower_bound(inputs, outputs).slope,
    }


def _expected_depths(constants: dict[str, float]) -> dict[str, int]:
    """The first and the last depth at which recovery is expected; 0 where there is none."""
    from hessmap.theory.functions import recovery_depths

    costs = (constants["true"], constants["rank_one"], constants["slope"])
    found = recovery_depths(_TRUE_RANK, *costs, least_depth=2).expected  # C is built from the matrix: one layer
    first, last = found or (0, 0)
    return {"first": first, "last": last}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    many = [row for row in rows if row["num_samples"] > _TRUE_RANK + 2]
    shallow = [row for row in many if row["num_layers"] == _DEPTHS[0]]
    if shallow:
        over = sum(row["narrowest"] > _TRUE_RANK for row in shallow)
        claim = "Two layers overestimate in every case: the hidden one has a rank above 2 from 6 samples on"
        yield Claim.counted("two-layers-overestimate", claim, over, len(shallow))
    deep = [row for row in many if row["num_layers"] == _DEPTHS[-1] and row["ridge"] == _RIDGES[0]]
    if deep:
        right = sum(row["narrowest"] == _TRUE_RANK for row in deep)
        claim = f"Sixteen layers, from 6 samples on, ridge {_RIDGES[0]:g}: the narrowest has rank 2"
        yield Claim.counted("sixteen-layers-recover", claim, right, len(deep))
    for ridge in _RIDGES:
        yield from _too_deep(ridge, [row for row in rows if row["ridge"] == ridge])


def _too_deep(ridge: float, rows: Sequence[Row]) -> Iterator[Claim]:
    """What is found at depths at which a rank-one fit of the samples costs less than the true function."""
    chosen = [row for row in rows if row["num_layers"] > max(2, row["expected.last"])]
    if chosen:
        under = [row for row in chosen if row["narrowest"] < _TRUE_RANK]
        claim = f"Deeper than recovery is expected at, ridge {ridge:g}: the rank is underestimated in every case"
        yield Claim.counted(claim_id("too-deep", ridge), claim, len(under), len(chosen))
        others = [row.number("over_built") for row in chosen if row not in under]
        if others:
            claim = f"Where it is not, ridge {ridge:g}: a network that is built has a smaller objective than that found"
            detail = f"found / built from {min(others):.2f} to {max(others):.2f}"
            yield Claim(claim_id("too-deep-built-lower", ridge), claim, min(others) > 1, detail)


STUDY = Study(
    name="function/depth-and-samples",
    question="At which depths and numbers of samples do networks over- or underestimate the rank behind the data?",
    reference="Jacot 2023, section 4 (Propositions 2, 3, 5, Theorem 2)",
    cases=grid(ridge=_RIDGES, num_samples=_SAMPLES, num_layers=_DEPTHS, seed=range(2)),
    measure=measure,
    claims=claims,
    seconds=lambda case: 0.5 + 0.15 * case["num_layers"],
    view=View(
        figures=tuple(
            Heatmap(
                title=f"{title}, ridge {ridge:g}",
                where={"ridge": ridge},
                value=value,
                x="num_layers",
                y="num_samples",
                limits=limits,
            )
            for ridge, title, value, limits in (
                (_RIDGES[0], "narrowest rank", "narrowest", (0.0, 6.0)),
                (_RIDGES[1], "narrowest rank", "narrowest", (0.0, 6.0)),
                (_RIDGES[1], "share of layers of rank 2", "share_at_true_rank", (0.0, 1.0)),
            )
        ),
        table=(
            "ridge",
            Column("num_samples", "N"),
            Column("num_layers", "L"),
            Column("narrowest", "narrowest", ".3g"),
            Column("widest", "widest", ".3g"),
            Column("share_at_true_rank", "share of rank 2", ".2f"),
            Column("expected.first", "expected from", ".3g"),
            Column("expected.last", "to", ".4g"),
            Column("squared_norm", "||W||^2", ".3g"),
            Column("over_built", "objective / built", ".2f"),
            Column("risk", "", ".2g"),
        ),
        group_by=("ridge", "num_samples", "num_layers"),
    ),
    answered=Answer(
        "Two layers overestimate in 11 of 12 cases, sixteen recover the rank from 6 samples on; deeper than"
        " recovery is expected at it is underestimated at ridge 0.005, and in 1 of 5 at 0.001, where training"
        " stays far above a network that is built.",
        num_claims=5,
        fails=(
            "two-layers-overestimate",
            "too-deep-0-001",
        ),
    ),
)
