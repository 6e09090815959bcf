"""What is kept of a network along its training, and of a critical point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hessmap.results import PARTS
from hessmap.studies.course_record import measured_course
from hessmap.studies.fcn.bottleneck_point import bottleneck_critical_point
from hessmap.studies.problem_ranks import data_ranks, measured_ranks
from hessmap.studies.training_course import TOLERANCE, training_course

if TYPE_CHECKING:
    from hessmap.datasets import Data
    from hessmap.networks import FullyConnected
    from hessmap.results import Truth


def course_record(network: FullyConnected, data: Data, seed: int) -> dict[str, Any]:
    """Ranks of the weights and of the Hessians at each moment, and what theory says of the first and the last."""
    from hessmap.curvature import Problem
    from hessmap.theory import predict_ranks

    course = training_course(network, data, seed)
    problems = [Problem(model, "squared", *data) for model in course.models]
    known: dict[str, Any] = {name: rank.value for name, rank in data_ranks(problems[0], bias=False).items()}
    record = measured_course(course, problems)
    record["final_theorem"] = _without_residual(network, known["input_rank"])
    if network.is_linear:
        prediction = predict_ranks(network, "squared", **known)
        record["initial_theorem"] = {part: getattr(prediction, part) for part in PARTS}
    return record


def critical_point_record(network: FullyConnected, data: Data, point: str, seed: int) -> dict[str, Any]:
    """Ranks at a critical point with a residual: constructed ("minimum", "saddle"), or reached by training ("trained").

    ``fact_7`` is the printed rank of H_L, for a residual in general position.
    """
    from hessmap.curvature import Problem
    from hessmap.theory.fully_connected.critical_points import bottleneck_critical_point_ranks
    from hessmap.theory.fully_connected.printed_formulas import fact_7
    from hessmap.training import train_to_stationary_point

    if point == "trained":
        model = network.build(seed=seed)
        train_to_stationary_point(model, data, "squared", tolerance=TOLERANCE)
    else:
        model = bottleneck_critical_point(network, data, is_minimum=point == "minimum", seed=seed)
    problem = Problem(model, "squared", *data)
    found = {name: rank.value for name, rank in data_ranks(problem, bias=False).items()}
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
    from hessmap.results import RankValue
    from hessmap.theory import predict_ranks

    kind: Truth = "exact" if network.is_linear else "upper_bound"
    outer = predict_ranks(network, "squared", input_rank=input_rank, kind=kind).outer_product
    return {"outer_product": outer, "functional": RankValue(0, "exact", "no residual"), "loss": outer}
