"""The dimension of a sum of tensor products of nested spaces, on which the rank of a product's Jacobian rests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hessmap.errors import require


def nested_sum_dimension(growing: Sequence[int], shrinking: Sequence[int]) -> int:
    """The sum of U_i (x) V_i, U_1 <= U_2 <= .. and V_1 >= V_2 >= .., has dimension sum_i (u_i - u_{i-1}) v_i, u_0 = 0.

    ``growing`` holds u_i = dim U_i, ``shrinking`` holds v_i = dim V_i.

    Kind of truth: theorem, for any nested spaces. Proof: choose a basis of U_1, extend it to one of U_2, and so on. A
    basis vector e that is new in U_i meets V_i, V_{i+1}, .., the largest of which is V_i; so the sum is the direct sum
    of e (x) V_i over all basis vectors e.

    >>> nested_sum_dimension([1, 3], [4, 2])
    8
    """
    must = "dimensions of nested spaces must be a sequence that never falls and as long a one that never rises"
    is_nested = all(a <= b for a, b in pairwise(growing)) and all(a >= b for a, b in pairwise(shrinking))
    require(len(growing) == len(shrinking) and is_nested, must, f"got {tuple(growing)} and {tuple(shrinking)}")
    steps = (after - before for before, after in pairwise((0, *growing)))
    return sum(step * other for step, other in zip(steps, shrinking, strict=True))
