"""Ranks along training: H_L collapses onto H_o where the residual vanishes, and also where a bottleneck keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, View
from hessmap_research.studies import along_training
from hessmap_research.studies.hessian_ranks import NAMES, data_ranks, measured_ranks

if TYPE_CHECKING:
    from hessmap.datasets import Data
    from hessmap.networks import FullyConnected
    from hessmap.records import ClaimKind
if TYPE_CHECKING:
    from torch import Tensor, nn

    from hessmap.datasets import Data
    from hessmap.networks import FullyConnected


def bottleneck_critical_point(network: FullyConnected, data: Data, is_minimum: bool, seed: int) -> nn.Sequential:
    """A linear network whose map is the regression of the targets, cut to as many directions as the bottleneck has.

    With W* the least-squares map and U the left singular vectors of W* Sxx^(1/2), the map is U U^T W* for q of them:
    the q leading ones give the global minimum (Baldi & Hornik 1989), the q smallest that are not zero a saddle. Then
    U^T Omega = 0 and Omega (U^T W*)^T = 0, so that the gradient vanishes for every factorisation W = U (U^T W*) through
    the bottleneck: the layers before and behind it are drawn, and the first and the last are solved for.
    """
    import torch

    from hessmap.measurement import numerical_rank

    widths = network.widths
    place = min(range(1, len(widths) - 1), key=lambda vertex: widths[vertex])
    inputs, targets = data
    # The left singular vectors of W* Sxx^(1/2) are those of the fitted targets, (X W*^T)^T.
    fit = torch.linalg.lstsq(inputs, targets, driver="gelsd").solution
    fitted = torch.linalg.svd((inputs @ fit).T, full_matrices=False)
    q, rank = widths[place], numerical_rank(inputs @ fit).value
    chosen = fitted.U[:, :q] if is_minimum else fitted.U[:, rank - q : rank]
    generator = torch.Generator().manual_seed(seed)
    model = network.build(seed=seed)
    layers: list[Tensor] = list(model.parameters())
    mixing = torch.randn(q, q, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        _solve_first(layers[:place], torch.linalg.solve(mixing, chosen.T @ fit.T))
        _solve_first([layer.T for layer in reversed(layers[place:])], (chosen @ mixing).T)
    return model


def _solve_first(layers: list[Tensor], product: Tensor) -> None:
    """Change the first layer, in place, so that the layers (first to last) multiply to the given product.

    The change is the smallest one: where the later layers do not look, the drawn weights stay.
    """
    import torch

    first, *rest = layers
    behind = torch.eye(len(first), dtype=torch.float64)
    for layer in rest:
        behind = layer @ behind
    first += torch.linalg.pinv(behind) @ (product - behind @ first)


_HIDDEN = (25, 20, 15)
_BOTTLENECKS = ((2,), (5,), (8,), (12, 4), (4, 12), (3, 3), (14, 6, 12), (9, 7, 9))
_TRAINED = ("relu", "teacher")
_DATA = ("digits", "mnist", "fashion_mnist", "cifar10")


def cases(data: str) -> tuple[Case, ...]:
    """Figure 8, Figure S1 (its sizes are not printed), and critical points of linear networks with a bottleneck.

    The linear teacher knows nothing of the data set: it goes with the default one.
    """
    input_dim = 16 if data == "digits" else 64
    trainings = [{"scenario": "relu", "widths": (input_dim, *_HIDDEN, 10), "num_samples": 100, "seed": 0}]
    if data == "digits":
        trainings.append({"scenario": "teacher", "widths": (10, *_HIDDEN, 5), "num_samples": 200, "seed": 0})
    networks = [(input_dim, *hidden, 10) for hidden in _BOTTLENECKS]
    points = grid(widths=networks, point=["minimum", "saddle", "trained"], num_samples=[300], seed=[0])
    return (*trainings, *({"scenario": "bottleneck", **case} for case in points))


def measure(case: Case) -> dict[str, Any]:
    from hessmap.networks import FullyConnected

    data = _samples(case)
    if case["scenario"] == "bottleneck":
        return _critical_point(FullyConnected(case["widths"]), data, case["point"], case["seed"])
    activation = {"relu": "relu", "teacher": "identity"}[case["scenario"]]
    return _record_along_training(FullyConnected(case["widths"], activation=activation), data, case["seed"])


def _samples(case: Case) -> Data:
    """Gaussian inputs labelled by a linear teacher, or standardised images with one-hot labels."""
    from hessmap.datasets import by_name, linear_teacher

    input_dim, output_dim, count = case["widths"][0], case["widths"][-1], case["num_samples"]
    if case["scenario"] == "teacher":
        return linear_teacher(count, input_dim, output_dim, seed=case["seed"])
    return by_name(case["data"], num_samples=count, side=isqrt(input_dim), standardise=True, one_hot=True)


def _record_along_training(network: FullyConnected, data: Data, seed: int) -> dict[str, Any]:
    """Ranks of the weights and of the Hessians at each moment, and what theory says of the first and the last."""
    from hessmap.problem.problem import Problem
    from hessmap.theory import predict_ranks

    checkpoints = along_training.checkpoints(network, data, seed)
    problems = [Problem(model, "squared", *data) for model in checkpoints.models]
    known, _ = data_ranks(problems[0], bias=False)
    record = along_training.ranks(checkpoints, problems)
    record["final_theorem"] = _without_residual(network, known["input_rank"])
    if network.is_linear:
        prediction = predict_ranks(network, "squared", **known)
        record["initial_theorem"] = {part: getattr(prediction, part) for part in PARTS}
    return record


def _critical_point(network: FullyConnected, data: Data, point: str, seed: int) -> dict[str, Any]:
    """Ranks at a critical point with a residual: constructed ("minimum", "saddle"), or reached by training ("trained").

    ``fact_7`` is the printed rank of H_L, for a residual in general position.
    """
    from hessmap.problem.problem import Problem
    from hessmap.theory.fully_connected.linear import bottleneck_critical_point_ranks
    from hessmap_research.formulas.printed_fully_connected import fact_7
    from hessmap_research.instruments.stationary import train_to_stationary_point

    if point == "trained":
        model = network.build(seed=seed)
        train_to_stationary_point(model, data, "squared", tolerance=along_training.TOLERANCE)
    else:
        model = bottleneck_critical_point(network, data, is_minimum=point == "minimum", seed=seed)
    problem = Problem(model, "squared", *data)
    found, _ = data_ranks(problem, bias=False)
    theorem = bottleneck_critical_point_ranks(network.widths, found["input_rank"], found["residual_rank"])
    return {
        "num_parameters": network.num_parameters,
        "bottleneck": min(network.hidden_widths),
        "data_ranks": found,
        "final": measured_ranks(problem),
        "final_theorem": theorem._asdict(),
        "fact_7": fact_7(network.widths, found["input_rank"]),
        "final_risk": problem.risk(),
        "gradient_norm": float(problem.gradient().norm()),
    }


def _without_residual(network: FullyConnected, input_rank: int) -> dict[str, Any]:
    """H_f is linear in the residual, so that without one H_L is H_o: exact in linear networks, bounded in others."""
    from hessmap.records import RankValue
    from hessmap.theory import predict_ranks

    kind: ClaimKind | None = None if network.is_linear else "upper_bound"
    outer = predict_ranks(network, "squared", input_rank=input_rank, kind=kind).outer_product
    return {"outer_product": outer, "functional": RankValue(0, "exact", "no residual"), "loss": outer}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Section 6 along training, and what holds at the critical points of which it does not speak."""
    for row in rows:
        if row["scenario"] in _TRAINED:
            yield from _training_claims(row)
    trained = {_setting(row): row["final_risk"] for row in rows if row.get("point") == "trained"}
    minima = {_setting(row): row["final_risk"] for row in rows if row.get("point") == "minimum"}
    distances = [abs(trained[setting] / minima[setting] - 1) for setting in trained.keys() & minima.keys()]
    if distances:
        detail = f"the losses of {len(distances)} pairs differ by at most {max(distances):.1e}"
        claim = "Training ends at the global minimum that reduced-rank regression gives"
        yield Claim("global-minimum", claim, max(distances) < 1e-9, detail)
    points = [row for row in rows if "fact_7" in row]
    if points:
        above = sum(row["fact_7"] > row.number("final.loss") for row in points)
        detail = f"in {above} of {len(points)} cases"
        yield Claim.counted(
            "fact-7-too-large",
            "At critical points with a bottleneck Fact 7 counts too much",
            above,
            len(points),
            detail,
        )


def _training_claims(row: Row) -> Iterator[Claim]:
    name = f"One ReLU network on {row['data']}" if row["scenario"] == "relu" else "One linear network, linear teacher"
    where = (row["scenario"], row["data"])
    yield from along_training.collapse_claims(name, where, row, [min(pair) for pair in pairwise(row["widths"])])
    if row["scenario"] == "teacher":
        yield along_training.vanishing_loss_claim(name, where, row)
        yield along_training.start_claim(name, where, row, "initial_theorem")


def _setting(row: Row) -> tuple[Any, ...]:
    return row["data"], row["widths"], row["seed"]


def _figures(scenario: str, data: str, name: str) -> tuple[Lines, ...]:
    return along_training.figures(name, data, {"scenario": scenario}, len(_HIDDEN) + 1, rank_limits=(0.0, 27.0))


STUDY = Study(
    name="fcn/training",
    question="How do the ranks of weights and Hessians change along training, and what is left at its end?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 8 and S1; Fact 7 at critical points",
    cases=cases,
    measure=measure,
    data=_DATA,
    checks=along_training.critical_point_checks("final_theorem"),
    claims=claims,
    seconds=lambda case: {"relu": 60.0, "teacher": 20.0, "bottleneck": 2.0}[case["scenario"]],
    view=View(
        figures=(
            *(figure for data in _DATA for figure in _figures("relu", data, "ReLU")),
            *_figures("teacher", "digits", "linear network and teacher"),
            along_training.critical_points_figure(
                "critical points with a bottleneck",
                "bottleneck",
                "final_theorem",
                "bottleneck",
                "width of the bottleneck",
            ),
        ),
        table=(
            "data",
            "scenario",
            "point",
            "widths",
            *(Column(f"final.{part}", NAMES[part]) for part in PARTS),
            Column("final_theorem.loss", "predicted"),
            Column("fact_7", "Fact 7"),
            Column("final_risk", "loss", ".1e"),
            Column("gradient_norm", "gradient", ".0e"),
        ),
    ),
    answered=Answer(
        "The weights keep their ranks, H_f falls to rank 0 and H_L to the rank of H_o; at critical points with a"
        " bottleneck H_L has the corrected rank, in 48 of 48 cases less than Fact 7 counts.",
        num_claims=10,
        cases="agrees",
    ),
)
