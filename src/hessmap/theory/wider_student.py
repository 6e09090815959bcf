"""Students with more hidden units than their teacher: four ways to do nothing with the extra ones, three ranks.

The student has the teacher's Nh generic neurons and ``num_extra`` more, placed so that its function is the teacher's.
The paper expects the optimum to be "zeroing out any extra neurons"; the rank depends on which weights are zeroed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Literal, get_args

from hessmap.errors import require, unknown_name
from hessmap.results.effective_parameters import CountTruth
from hessmap.theory.alexander_hirschowitz import secant_dimension
from hessmap.theory.conditions import checked_count
from hessmap.theory.polynomial_ranks import Rank, rank_without_bias

Extra = Literal["zero", "split", "output_zero", "input_zero"]


def wider_student_rank(inputs: int, hidden: int, degrees: Sequence[int], num_extra: int, extra: Extra = "zero") -> Rank:
    """The rank of the population Hessian of a wider student at the teacher's function; no bias, no constant term.

    With T the rank of the teacher (``rank_without_bias``), Ni inputs, Nh hidden, S the degrees and n the largest:
    "zero", both weights of an extra neuron are zero: T, as its derivatives vanish.
    "split", it repeats a neuron of the teacher and shares its output weight: T, as its derivatives repeat.
    "output_zero", it has generic input weights and no output weight: min(T + e, dim V), V all functions of the
        network. Proof: each brings one new function g(w.x), and these span V: a generic one is new until V is full.
    "input_zero", it has an output weight and no input weights: the linear functions come in, if there is a linear term.
        All terms c_1 .. c_n: AH(n, Ni, Nh+1) - 1. Proof: in (x0 + w.x)^n they are the tangent space at x0^n, which is
        taken off the dimension in part (the point x0^n itself). One such neuron does what many do.
        Other activations with a linear term: min(T + Ni, dim V), an upper bound; without one: T.

    The last case has an exception: for cubics with (Ni, Nh) = (4, 6) the rank is 33 and not T + Ni = 34.

    >>> [wider_student_rank(3, 2, [1, 2], 1, extra).value for extra in ("zero", "split", "output_zero", "input_zero")]
    [7, 7, 8, 8]
    """
    if extra not in get_args(Extra):
        raise unknown_name("extra", extra, get_args(Extra))
    count = checked_count("num_extra", num_extra)
    require(0 not in degrees, "a wider student must have an activation without constant term", "c_0 is not zero")
    teacher = rank_without_bias(inputs, hidden, degrees)
    if count == 0 or extra in ("zero", "split"):
        return teacher
    whole = sum(comb(inputs + k - 1, k) for k in set(degrees))
    if extra == "output_zero":
        return teacher._replace(value=min(teacher.value + count, whole))
    if 1 not in degrees:
        return teacher
    n = max(degrees)
    if set(degrees) == set(range(1, n + 1)):
        return Rank(secant_dimension(n, inputs, hidden + 1) - 1, "exact", teacher.reason)
    kind: CountTruth = "upper_bound"
    return Rank(min(teacher.value + inputs, whole), kind, "the teacher's rank and the linear functions")
