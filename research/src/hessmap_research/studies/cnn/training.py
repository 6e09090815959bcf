"""Ranks of linear convolutional networks along training, and what is left of them where few filters end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isqrt
from typing import TYPE_CHECKING, Any, Literal

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, View
from hessmap_research.studies import along_training
from hessmap_research.studies.hessian_ranks import NAMES, measured_ranks

if TYPE_CHECKING:
    from hessmap.datasets import Data
    from hessmap.networks import Convolutional

_TRAINED = {"images": "One linear network on {data}", "teacher": "One linear network, linear teacher"}
_DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
_FILTERS = tuple(range(1, 9))
_TAPS = 8  # of filters that do not overlap: two positions on 4x4 pixels
_NUM_SAMPLES = 200


def cases(data: str) -> tuple[Case, ...]:
    """Figures 4 and 16 (sizes and data are not printed), and the minima of networks with few filters.

    The linear teacher knows nothing of the data set: it goes with the default one.
    """
    on_images = "conv-1x16-4x3-4x3-4x3-4x3-10" if data == "digits" else "conv-1x25-4x5-4x5-4x5-4x5-10"
    networks = {"images": on_images}
    if data == "digits":
        networks["teacher"] = "conv-1x12-4x3-4x3-4x3-4x3-5"
    trainings = tuple({"scenario": name, "network": network, "seed": 0} for name, network in networks.items())
    minima = tuple({"scenario": "minimum", "network": f"conv-1x16-{m}x{_TAPS}/{_TAPS}-10", "seed": 0} for m in _FILTERS)
    return (*trainings, *minima)


def measure(case: Case) -> dict[str, Any]:
    from hessmap.networks import Convolutional

    network = Convolutional.parse(case["network"])
    data = _samples(case, network)
    if case["scenario"] == "minimum":
        return _minimum(network, data, case["seed"])
    return _record_along_training(network, data, case)


def _samples(case: Case, network: Convolutional) -> Data:
    """Gaussian inputs labelled by a linear teacher, or standardised images with one-hot labels."""
    from hessmap.datasets import by_name, linear_teacher

    if case["scenario"] == "teacher":
        return linear_teacher(_NUM_SAMPLES, network.input_dim, network.output_dim, seed=case["seed"])
    side = isqrt(network.input_dim)
    return by_name(case["data"], num_samples=_NUM_SAMPLES, side=side, standardise=True, one_hot=True)


def _record_along_training(network: Convolutional, data: Data, case: Case) -> dict[str, Any]:
    """Ranks along training; at its start the exact ranks of the generic network, at its end those without H_f.

    For inputs of full rank the generic network's ranks are those of almost all weights and residuals. Where the map is
    free (no layer narrower than the input), the minimum is that of least squares: the residual has no moment with the
    inputs, and H_f, which is linear in that moment, is zero whatever the loss.
    """
    from hessmap.exact import generic_rank
    from hessmap.measurement import numerical_rank
    from hessmap.problem.problem import Problem
    from hessmap.records import RankValue

    along: Literal["loss", "gradient_norm"] = "loss" if case["scenario"] == "teacher" else "gradient_norm"
    checkpoints = along_training.checkpoints(network, data, case["seed"], along)
    record = along_training.ranks(checkpoints, [Problem(model, "squared", *data) for model in checkpoints.models])
    input_rank = numerical_rank(data.inputs)
    generic = {part: generic_rank(network, part, input_rank=input_rank.value) for part in PARTS}
    outer = RankValue(generic["outer_product"].value, "exact", "the generic network in exact arithmetic")
    nothing = RankValue(0, "exact", "no moment of residual and input")
    return record | {
        "input_rank": input_rank,
        "full_ranks": tuple(min(weight.flatten(1).shape) for weight in checkpoints.models[0].parameters()),
        "generic": generic,
        "predicted": {"outer_product": outer, "functional": nothing, "loss": outer},
    }


def _minimum(network: Convolutional, data: Data, seed: int) -> dict[str, Any]:
    """Ranks where training ends: as the dense network k-m-(K positions), which sees every patch, has them there.

    At a critical point the moments of residual and patch, stacked, vanish on the span of the filters and of the last
    layer's columns: they have rank min(k, K positions) - m, and 0 from m = k on.
    """
    from hessmap.problem.problem import Problem
    from hessmap.records import RankValue
    from hessmap.theory import predict_ranks

    problem = Problem(along_training.stationary_network(network, data, seed), "squared", *data)
    (_, filters), (taps,) = network.channels, network.kernels
    left = max(min(taps, network.output_dim * network.lengths[1]) - filters, 0)
    outer = predict_ranks(network, "squared").outer_product
    functional = RankValue(2 * filters * left, "exact", "Theorem 8 with what a critical point leaves of the moments")
    return {
        "num_parameters": network.num_parameters,
        "filters": filters,
        "final": measured_ranks(problem),
        "predicted": {"outer_product": outer, "functional": functional, "loss": outer},
        "final_risk": problem.risk(),
        "gradient_norm": float(problem.gradient().norm()),
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Section 7, ranks along training, and footnote 8; then what the text does not say."""
    for row in rows:
        if row["scenario"] in _TRAINED:
            yield from _training_claims(row, _TRAINED[row["scenario"]].format(data=row["data"]))
    minima = [row for row in rows if row["scenario"] == "minimum"]
    few = [row for row in minima if row["filters"] < _TAPS]
    if few:
        kept = [int(row.number("final.functional")) for row in few]
        claim = "With fewer filters than taps H_f keeps a rank at the minimum, and H_L has that of H_o all the same"
        holds = all(kept) and all(row.number("final.loss") == row.number("final.outer_product") for row in few)
        yield Claim("few-filters-keep-rank", claim, holds, f"H_f has rank {', '.join(map(str, kept))}")


def _training_claims(row: Row, name: str) -> Iterator[Claim]:
    where = (row["scenario"], row["data"])
    yield from along_training.collapse_claims(name, where, row, row["full_ranks"])
    outer, functional = row.array("ranks.outer_product"), row.array("ranks.functional")
    changed = int((outer != outer[0]).sum())
    detail = f"{changed} of {outer.size} moments differ from the first"
    yield Claim(
        claim_id("outer-product-constant", *where),
        f"{name}: the rank of H_o does not change along training",
        changed == 0,
        detail,
    )
    rises = int((functional[1:] > functional[:-1]).sum())
    yield Claim(
        claim_id("functional-never-rises", *where),
        f"{name}: the rank of H_f never rises along training",
        rises == 0,
        f"{rises} rises",
    )
    yield along_training.start_claim(name, where, row, "generic", "the generic network")
    if row["scenario"] == "teacher":
        yield along_training.vanishing_loss_claim(name, where, row)
    else:
        claim = f"{name}: H_f vanishes where the loss does not"
        holds = row["final_risk"] > 1e-3 and functional[-1] == 0
        yield Claim(
            claim_id("functional-vanishes", *where), claim, bool(holds), f"the loss ends at {row['final_risk']:.3g}"
        )


def _figures(name: str, data: str, scenario: str) -> tuple[Lines, ...]:
    return along_training.figures(name, data, {"scenario": scenario}, 5, rank_limits=(0.0, 11.0))


STUDY = Study(
    name="cnn/training",
    question="How do the ranks of a linear convolutional network change along training, and what is left at its end?",
    reference="Singh, Hofmann & Schoelkopf 2023, Figures 4 and 16",
    cases=cases,
    measure=measure,
    data=_DATA,
    checks=along_training.critical_point_checks("predicted"),
    claims=claims,
    seconds=lambda case: {"images": 20.0, "teacher": 14.0, "minimum": 3.0}[case["scenario"]],
    families={
        "full-rank-weights": "One linear network: the weights keep their full rank along training",
        "collapse": "One linear network: at the end the rank of H_L is that of H_o, and that of H_f is 0",
        "outer-product-constant": "One linear network: the rank of H_o does not change along training",
        "functional-never-rises": "One linear network: the rank of H_f never rises along training",
        "ranks-at-start": "One linear network: at the start the ranks are those of the generic network",
        "functional-vanishes": "One linear network: H_f vanishes where the loss does not",
    },
    view=View(
        figures=(
            *(figure for data in _DATA for figure in _figures("linear network", data, "images")),
            *_figures("linear network and teacher", "digits", "teacher"),
            along_training.critical_points_figure(
                "minima with few filters", "minimum", "predicted", "filters", f"filters of {_TAPS} taps"
            ),
        ),
        table=(
            "data",
            "scenario",
            "network",
            *(Column(f"final.{part}", NAMES[part]) for part in PARTS),
            Column("predicted.functional", "predicted H_f"),
            Column("predicted.loss", "predicted H_L"),
            Column("final_risk", "loss", ".1e"),
            Column("gradient_norm", "gradient", ".0e"),
        ),
    ),
    answered=Answer(
        "H_f falls to rank 0 and H_L to the rank of H_o, which stays as it is, like those of the weights; on"
        " Fashion-MNIST the rank of H_f rose once on the way, and with fewer filters than taps it keeps some.",
        num_claims=31,
        cases="agrees",
        fails=("functional-never-rises-images-fashion-mnist",),
    ),
)
