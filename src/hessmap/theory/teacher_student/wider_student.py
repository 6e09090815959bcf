"""Students with more hidden units than their teacher: four ways to do nothing with the extra ones, three ranks.

The student has the teacher's Nh generic neurons and ``num_extra`` more, placed so that its function is the teacher's.
The paper expects the optimum to be "zeroing out any extra neurons"; the rank depends on which weights are zeroed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import Literal, get_args

from hessmap.errors import require, require_name
from hessmap.theory.conditions import checked_count
from hessmap.theory.polynomial.two_layers import Rank, rank_without_bias

Extra = Literal["zero", "split", "output_zero", "input_zero"]


def wider_student_rank(inputs: int, hidden: int, degrees: Sequence[int], num_extra: int, extra: Extra = "zero") -> Rank:
    """The rank of the population Hessian of a wider student at the teacher's function; no bias, no constant term.

    With T the rank of the teacher (``rank_without_bias``), Ni inputs, Nh hidden, S the degrees and n the largest:
    "zero", both weights of an extra neuron are zero: T, as its derivatives vanish.
    "split", it repeats a neuron of the teacher and shares its output weight: T, as its derivatives repeat.
    "output_zero", it has generic input weights and no output weight: min(T + e, dim V), V all functions of the
        network. Proof: each brings one new function g(w.x), and these span V: a generic one is new until V is full.
    "input_zero", it has an output weight and no input weights: without a linear term in g nothing new, T; with one all
        linear functions come in: Ni + the rank without that term. Proof: modulo linear functions the derivatives are
        those of g without its linear term, whose degrees differ from one. One such neuron does what many do.

    The last case has an exception: for cubics with (Ni, Nh) = (4, 6) the rank is 33 and not T + Ni = 34.

    >>> [wider_student_rank(3, 2, [1, 2], 1, extra).value for extra in ("zero", "split", "output_zero", "input_zero")]
    [7, 7, 8, 8]
    """
    require_name("extra", extra, get_args(Extra))
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
    curved = [k for k in degrees if k > 1]
    if not curved:
        return teacher
    rest = rank_without_bias(inputs, hidden, curved)
    return rest._replace(value=rest.value + inputs)
