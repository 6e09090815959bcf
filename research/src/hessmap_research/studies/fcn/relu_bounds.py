"""What is provable for ReLU networks: bounds against exact ranks, no threshold anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View

if TYPE_CHECKING:
    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem
    from hessmap.theory.fully_connected.activations import ActivationGroup

_SIDE = 4
_NUM_SAMPLES = (3, 6, 10, 16, 25, 40, 60, 100, 160, 250)


def cases() -> tuple[Case, ...]:
    """One hidden layer over width, outputs and samples (Theorem 9), and deeper networks (Fact 11)."""
    axes: dict[str, Any] = {"activation": ["relu", "leaky_relu"], "num_samples": _NUM_SAMPLES, "seed": [0, 1]}
    shallow = grid(hidden=[(2,), (5,), (12,)], output_dim=[2, 10], **axes)
    return (*shallow, *grid(hidden=[(8, 6), (6, 8, 6)], output_dim=[3], **axes))


def measure(case: Case) -> dict[str, Any]:
    """Certified ranks of H_o and H_f, and what is proved for them; the ranks of the inputs are certified too.

    ``tightest`` is the smallest bound that applies, so that a rank below it obeys all. ``failure_bound`` is the
    probability that the certified rank of H_o, of H_f or of the inputs is too small.
    """
    from hessmap.exact import certified_data_ranks, certified_rank
    from hessmap.theory import predict_ranks
    from hessmap.theory.data_ranks import outer_product_sample_upper_bound

    network, problem = _network_and_problem(case)
    found = certified_data_ranks(problem)
    known: dict[str, Any] = {"input_rank": found.input_rank, "residual_rank": found.residual_rank}
    bounds = predict_ranks(network, "squared", **known, kind="upper_bound")
    outer, functional = certified_rank(problem, "outer_product"), certified_rank(problem, "functional")
    record: dict[str, Any] = {
        "num_parameters": network.num_parameters,
        "input_rank": found.input_rank,
        "outer_product": outer.value,
        "functional": functional.value,
        "failure_bound": found.failure_bound + outer.failure_bound + functional.failure_bound,
        "num_ties": outer.num_ties,
        "linear_formula": int(predict_ranks(network, "squared", **known).outer_product),
        "sample_bound": outer_product_sample_upper_bound(problem.num_samples, network.output_dim),
        "fact_11": int(bounds.outer_product),
        "functional_theorem": bounds.functional,
    }
    if len(case["hidden"]) == 1:
        record |= _one_hidden_layer(problem, found.input_rank)
    names = ("sample_bound", "fact_11", "theorem_9", "groups")
    return record | {"tightest": min(record[name] for name in names if name in record)}


def _network_and_problem(case: Case) -> tuple[FullyConnected, Problem]:
    """Images of 4 x 4 pixels as they are. H_o does not know the targets; drawn ones make the residual of H_f generic,
    where the labels of a few samples leave classes out."""
    import torch

    from hessmap.datasets import by_name
    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem

    network = FullyConnected((_SIDE**2, *case["hidden"], case["output_dim"]), activation=case["activation"])
    inputs = by_name(case["data"], num_samples=case["num_samples"], side=_SIDE).inputs
    generator = torch.Generator().manual_seed(case["seed"])
    targets = torch.randn(len(inputs), case["output_dim"], dtype=torch.float64, generator=generator)
    return network, Problem(network.build(seed=case["seed"]), "squared", inputs, targets)


def _one_hidden_layer(problem: Problem, input_rank: int) -> dict[str, Any]:
    from hessmap.records import RankValue
    from hessmap.theory.fully_connected import activations as theory

    patterns, outputs = activation_patterns(problem), problem.output_dim
    functional = theory.one_hidden_functional_rank(patterns.unit_input_ranks, outputs)
    return {
        "num_active_units": patterns.num_active_units,
        "num_groups": len(patterns.groups),
        "theorem_9": theory.active_units_upper_bound(patterns.num_active_units, input_rank, outputs),
        "groups": theory.activation_groups_upper_bound(patterns.groups, problem.num_samples, outputs),
        "functional_theorem": RankValue(functional, "exact", "2 sum_i min(K, r_i)"),
    }


class ActivationPatterns(NamedTuple):
    """Units with equal patterns in one group, dead ones left out; the rank of the inputs that each unit sees."""

    num_active_units: int
    groups: tuple[ActivationGroup, ...]
    unit_input_ranks: tuple[int, ...]


def activation_patterns(problem: Problem) -> ActivationPatterns:
    """The patterns of a network with one hidden layer of ReLU or leaky ReLU: signs decided rigorously, ranks certified.

    A leaky unit passes every sample, with two slopes: no unit is dead, and each sees all inputs. The units of a group
    act as a linear network on the inputs times their slope, whose rank is that of the inputs with a slope other than 0.
    """
    from hessmap.exact import certified_matrix_rank
    from hessmap.exact.evaluation import signs
    from hessmap.exact.reading import read_chain
    from hessmap.networks import describe
    from hessmap.theory.fully_connected.activations import ActivationGroup

    inputs = problem.inputs.numpy()
    (pattern,) = signs(read_chain(problem.model, problem.layout, inputs.shape[1:]), inputs).patterns
    assert pattern is not None
    is_leaky = describe(problem.model).activation == "leaky_relu"
    sizes: dict[bytes, list[int]] = {}
    for unit, column in enumerate(pattern.T):
        if is_leaky or column.any():
            sizes.setdefault(column.tobytes(), []).append(unit)
    groups, unit_ranks = [], np.zeros(pattern.shape[1], dtype=np.int64)
    for units in sizes.values():
        seen = inputs if is_leaky else inputs[pattern[:, units[0]]]
        rank = certified_matrix_rank(seen).value
        groups.append(ActivationGroup(len(units), rank))
        unit_ranks[units] = rank
    num_active = sum(group.num_units for group in groups)
    return ActivationPatterns(num_active, tuple(groups), tuple(unit_ranks.tolist()))


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """How tight the bounds are, and that the linear formula is none."""
    shallow, deep = ([row for row in rows if (len(row["hidden"]) > 1) is is_deep] for is_deep in (False, True))
    if shallow:
        by_groups, printed = (_num_tight(shallow, name) for name in ("groups", "theorem_9"))
        detail = f"{by_groups} of {len(shallow)} cases reach it, {printed} reach Theorem 9"
        yield Claim(
            "groups-tighter", "The bound by groups is reached more often than Theorem 9", by_groups > printed, detail
        )
    if deep:
        detail = f"{_num_tight(deep, 'fact_11')} of {len(deep)} cases of three and four layers reach it"
        yield Claim(
            "fact-11-not-tight",
            "Fact 11 is not tight in deeper networks",
            _num_tight(deep, "fact_11") < len(deep),
            detail,
        )
    above = [row for row in rows if row["outer_product"] > row["linear_formula"]]
    detail = f"{len(above)} of {len(rows)} exact ranks of H_o are above it"
    yield Claim("linear-formula-no-bound", "The linear formula is no upper bound", bool(above), detail)


def _num_tight(rows: Sequence[Row], bound: str) -> int:
    return sum(row["outer_product"] == row[bound] for row in rows)


_CERTIFIED = Series("$H_o$, certified rank", points="outer_product", part="outer_product")
_LINEAR = Series("rank of the linear network", line="linear_formula")
_GROUPS, _THEOREM = Series("bound by groups", dashed="groups"), Series("bound of Theorem 9", dashed="theorem_9")
_FACT = Series("bound of Fact 11", dashed="fact_11")
_SHALLOW = (_CERTIFIED, _GROUPS, _THEOREM, _LINEAR)


def _figure(title: str, hidden: tuple[int, ...], output_dim: int, series: tuple[Series, ...]) -> Lines:
    where = {"hidden": hidden, "output_dim": output_dim, "activation": "relu", "seed": 0}
    return Lines(
        title=f"{title}, ReLU",
        part="outer_product",
        where=where,
        facet="data",
        x="num_samples",
        series=series,
        x_label="number of samples",
        y_label="rank of $H_o$",
        x_scale="log",
    )


STUDY = Study(
    name="fcn/relu-bounds",
    question="How close are the provable bounds to the exact ranks of ReLU networks?",
    reference="Singh, Bachmann & Hofmann 2021, Theorem 9 and Fact 11",
    cases=cases(),
    measure=measure,
    data=("digits", "mnist", "fashion_mnist", "cifar10"),
    seconds=0.4,
    checks=(
        Check("outer_product", "tightest", "at_most"),
        Check("functional", "functional_theorem"),
    ),
    claims=claims,
    view=View(
        figures=(
            _figure("16-5-10", (5,), 10, _SHALLOW),
            _figure("16-12-2", (12,), 2, _SHALLOW),
            _figure("16-6-8-6-3", (6, 8, 6), 3, (_CERTIFIED, _FACT, _LINEAR)),
        ),
        panels_in_a_row=2,
        table=(
            "data",
            "hidden",
            Column("output_dim", "K"),
            "activation",
            Column("num_samples", "N"),
            "seed",
            Column("linear_formula", "linear"),
            Column("outer_product", "H_o"),
            "groups",
            Column("theorem_9", "Thm 9"),
            Column("fact_11", "Fact 11"),
            Column("functional", "H_f"),
        ),
    ),
    answered=Answer(
        "The bound by groups is reached by 323 of 480 exact ranks and Theorem 9 by 85; Fact 11 by 5 of 160 of"
        " deeper networks; the linear formula is not a bound.",
        num_claims=3,
        cases="agrees",
    ),
)
