"""Why do inputs of unit variance give middle layers of rank k + 1, where small inputs give k?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import gt
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Cloud, Column, Mark, View

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data
    from hessmap_research.studies.function.regularised_network import RegularisedNetwork

_TRUE_RANK = 3
_RIDGE = 0.02
_UNIT: dict[str, Any] = {"deviation": 1.0}
_GAUSSIAN: dict[str, Any] = {"law": "gaussian", "deviation": 1.0}
_CONSTANT = 3.0
_RESTARTED = "gaussian 1, from the constant's"
# Of each variant: what is other than in function/rank-recovery, of the data and of the training.
_VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "uniform 0.3": ({}, {}),
    "gaussian 0.3": ({"law": "gaussian"}, {}),
    "uniform 1": (_UNIT, {"num_steps": 9000}),
    "gaussian 1, 3000 steps": (_GAUSSIAN, {}),
    "gaussian 1": (_GAUSSIAN, {"num_steps": 9000}),
    "gaussian 1, 27000 steps": (_GAUSSIAN, {"num_steps": 27000}),
    "gaussian 1, linear target": ({**_GAUSSIAN, "target": "linear"}, {"num_steps": 9000}),
    "gaussian 1, free biases": (_GAUSSIAN, {"num_steps": 9000, "bias_ridge": 0.0}),
    "gaussian 1, a constant input": ({**_GAUSSIAN, "constant": _CONSTANT}, {"num_steps": 9000}),
    _RESTARTED: (_GAUSSIAN, {"num_steps": 9000}),
    "uniform 0.3, dear biases": ({}, {"bias_ridge": _RIDGE / 0.3**2}),
}


def measure(case: Case) -> dict[str, Any]:
    from hessmap_research.studies.function.middle_record import middle_record

    variant, seed = case["variant"], case["seed"]
    start = None
    if variant == _RESTARTED:
        start = _with_constant_in_biases(_train("gaussian 1, a constant input", seed)[1].model)
    data, net = _train(variant, seed, start)
    record = middle_record(net, data.inputs, _TRUE_RANK)
    return {**record, "first": _first_layer(net.model, data), "extra": _extra_direction(net.model, data)}


def _train(variant: str, seed: int, start: nn.Sequential | None = None) -> tuple[Data, RegularisedNetwork]:
    from hessmap_research.studies.function.low_rank_data import low_rank_data
    from hessmap_research.studies.function.regularised_network import regularised_network

    of_data, of_training = _VARIANTS[variant]
    data = low_rank_data(_TRUE_RANK, seed=seed, **of_data)
    options = {"ridge": _RIDGE, "learning_rate": 2e-3, "num_steps": 3000, "seed": seed, **of_training}
    return data, regularised_network((15, *[40] * 9, 15), data, start=start, **options)


def _with_constant_in_biases(model: nn.Sequential) -> nn.Sequential:
    """A network that does without the constant input what the model does with it."""
    from copy import deepcopy

    moved = deepcopy(model)
    first: Any = moved[0]
    first.bias.data += _CONSTANT * first.weight.data[:, -1]
    first.weight.data[:, -1] = 0.0
    return moved


def _first_layer(model: nn.Sequential, data: Data) -> dict[str, float]:
    """How far the first representation is from 0, in its spreads, and how much of it ReLU cuts off."""
    import numpy as np

    before = model[0](data.inputs).detach().numpy()
    after = np.maximum(before, 0)
    spread = np.linalg.norm(after - after.mean(axis=0), 2) / len(after) ** 0.5
    return {
        "mean_over_spread": float(np.linalg.norm(after.mean(axis=0)) / spread),
        "nonlinearity": float(np.linalg.norm(before - after) / np.linalg.norm(before)),
    }


def _extra_direction(model: nn.Sequential, data: Data) -> dict[str, float]:
    """What varies along the (k+1)-th principal direction of layer 4: shares of its variance that regressions explain.

    By quadratic functions of the k true coordinates, by linear functions of all others; and the cosine between the
    direction and the mean.
    """
    import numpy as np

    hidden = model[:8](data.inputs).detach().numpy()  # four linear layers with their ReLUs
    mean = hidden.mean(axis=0)
    left, _, right = np.linalg.svd(hidden - mean, full_matrices=False)
    inputs = data.inputs.numpy()
    true, others = inputs[:, :_TRUE_RANK], inputs[:, _TRUE_RANK:]
    products = [true[:, i] * true[:, j] for i in range(_TRUE_RANK) for j in range(i, _TRUE_RANK)]
    return {
        "by_true_coordinates": _explained_share(left[:, _TRUE_RANK], np.column_stack([true, *products])),
        "by_true_linearly": _explained_share(left[:, _TRUE_RANK], true),
        "by_other_coordinates": _explained_share(left[:, _TRUE_RANK], others),
        "cosine_with_mean": float(abs(right[_TRUE_RANK] @ mean) / np.linalg.norm(mean)),
    }


def _explained_share(values: Any, regressors: Any) -> float:
    import numpy as np

    columns = np.column_stack([regressors, np.ones(len(values))])
    rest = values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0]
    return float(1 - np.square(rest).sum() / np.square(values - values.mean()).sum())


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    ratios = {
        variant: [row.number("middle.next_over_last") for row in rows if row["variant"] == variant]
        for variant in _VARIANTS
    }
    compared = (
        (
            "scale",
            "Scale alone does it: uniform inputs of unit variance keep more than small ones",
            "uniform 1",
            "uniform 0.3",
        ),
        ("law", "The law alone adds to it at the same scale", "gaussian 1", "uniform 1"),
        (
            "longer-training",
            "Training too short is a part: three times the steps leave less",
            "gaussian 1, 3000 steps",
            "gaussian 1",
        ),
        ("free-biases", "Free biases leave less", "gaussian 1", "gaussian 1, free biases"),
        (
            "constant-input",
            "A constant input, which makes shifts cheap, leaves less",
            "gaussian 1",
            "gaussian 1, a constant input",
        ),
        (
            "dear-biases",
            "Biases that cost more leave more of it at small inputs",
            "uniform 0.3, dear biases",
            "uniform 0.3",
        ),
    )
    for name, claim, more, less in compared:
        pairs = list(zip(ratios[more], ratios[less], strict=False))
        yield Claim.paired(name, f"{claim}: s_(k+1) / s_k is larger", pairs, gt)
    yield _local_minima(rows)
    cured = ratios["gaussian 1, a constant input"]
    if cured:
        claim = "With a constant input the middle rank is k at unit Gaussian inputs: s_(k+1) is below a tenth of s_k"
        yield Claim("constant-input-recovers", claim, max(cured) < 0.1, ", ".join(f"{ratio:.3f}" for ratio in cured))


def _local_minima(rows: Sequence[Row]) -> Claim:
    """Whether 9,000 steps from a network with large biases end below 27,000 from the usual start."""
    usual, restarted = (
        {row["seed"]: row.number("objective") for row in rows if row["variant"] == variant}
        for variant in ("gaussian 1, 27000 steps", _RESTARTED)
    )
    pairs = [(usual[seed], restarted[seed]) for seed in usual if seed in restarted]
    claim = "From biases large enough the objective ends lower: the usual start leads to no global minimum"
    return Claim.paired("large-biases-end-lower", claim, pairs, gt)


STUDY = Study(
    name="function/gaussian-inputs",
    question="Why do inputs of unit variance give middle layers of rank k + 1, where small inputs give k?",
    reference="Jacot 2023, Figure 1; why it fails at unit Gaussian inputs",
    cases=grid(variant=list(_VARIANTS), seed=range(3)),
    measure=measure,
    claims=claims,
    seconds=lambda case: 3.5 * _VARIANTS[case["variant"]][1].get("num_steps", 3000) / 3000,
    view=View(
        figures=tuple(
            Cloud(
                title=title,
                x=x,
                y="middle.next_over_last",
                colour="variant",
                y_scale="log",
                x_label=label,
                y_label="$s_{k+1} / s_k$ of layers 3 to 6",
                marks=(Mark(0.1, "counts as a dimension above", axis="y"),),
            )
            for title, x, label in (
                ("distance of layer 1 from 0", "first.mean_over_spread", "mean / spread"),
                ("what ReLU cuts off in layer 1", "first.nonlinearity", r"$\|Z - \sigma(Z)\| / \|Z\|$"),
            )
        ),
        table=(
            "variant",
            Column("middle.smallest", "centred rank, least", ".3g"),
            Column("middle.largest", "most", ".3g"),
            Column("middle.next_over_last", "s_4 / s_3", ".3f"),
            Column("middle.num_carried", "carried", ".3g"),
            Column("first.mean_over_spread", "mean / spread, layer 1", ".2f"),
            Column("first.nonlinearity", "cut off, layer 1", ".3f"),
            Column("extra.by_true_coordinates", "of true coordinates", ".2f"),
            Column("extra.by_other_coordinates", "of others", ".2f"),
            Column("extra.cosine_with_mean", "cosine with mean", ".2f"),
            Column("objective", "", ".3f"),
        ),
        group_by=("variant",),
    ),
    answered=Answer(
        "Because of their scale above all: larger inputs keep more of an extra direction, of which cheap shifts"
        " (free biases, a constant input) leave less and dear ones more; whether training was too short is not"
        " decided.",
        num_claims=8,
        inconclusive=(
            "longer-training",
            "large-biases-end-lower",
        ),
    ),
)
