"""Networks over GF(P): exact values, exact Hessians, exact ranks.

A float64 is a dyadic rational, so weights and data map into GF(P) without rounding (``FieldArray``). Every array
carries its ``Height``, a rigorous bound on the numbers it stands for, and the final rank turns that into the
probability that an unlucky prime made it too small (``rank``).
"""

from hessmap.curvature.finite_field.certified_rank import certified_data_ranks, certified_matrix_rank, certified_rank
from hessmap.curvature.finite_field.exponential_losses import certified_rank_bounds
from hessmap.curvature.finite_field.generic_rank import generic_hessian_ranks, generic_rank

__all__ = [
    "certified_data_ranks",
    "certified_matrix_rank",
    "certified_rank",
    "certified_rank_bounds",
    "generic_hessian_ranks",
    "generic_rank",
]
