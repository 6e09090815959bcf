"""Which samples activate which unit of a one-hidden-layer network, and what that implies for its ranks.

Signs are decided rigorously and ranks of the inputs are certified, as the Hessian's rank is that they are held against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.theory.fully_connected.piecewise_linear import ActivationGroup


class ActivationPatterns(NamedTuple):
    """Units with equal patterns in one group, dead ones left out; the rank of the inputs that each unit sees."""

    num_active_units: int
    groups: tuple[ActivationGroup, ...]
    unit_input_ranks: tuple[int, ...]


def activation_patterns(problem: Problem) -> ActivationPatterns:
    """The patterns of a network with one hidden layer of ReLU or leaky ReLU.

    A leaky unit passes every sample, with two slopes: no unit is dead, and each sees all inputs. The units of a group
    act as a linear network on the inputs times their slope, whose rank is that of the inputs with a slope other than 0.
    """
    from hessmap.curvature.finite_field import certified_matrix_rank
    from hessmap.curvature.finite_field.model_reading import read_chain
    from hessmap.curvature.finite_field.signs import signs
    from hessmap.networks import describe
    from hessmap.theory.fully_connected.piecewise_linear import ActivationGroup

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
