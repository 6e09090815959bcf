"""The learning coefficient at given weights of a linear network, from the ranks of the products of these weights.

lambda(w) is the exponent of the volume of {K < e} in a small neighbourhood of weights w with K(w) = 0. ``table`` is rho
of ``fully_connected.representations``: rho[j][i] = rank of W_j .. W_{i+1} on the data. With rk H_o that of
``deficient_products`` and c(w) the codimension of the largest component of the optima through w (``components``),

    max(rk H_o / 2, lambda) <= lambda(w) <= c(w) / 2,

and rk H_o / 2 is lambda(w) exactly where the optima near w are a manifold of codimension rk H_o.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from hessmap.theory.fully_connected.deficient_products import outer_product_rank
from hessmap.theory.fully_connected.representations import RankTable, checked_product_ranks
from hessmap.theory.learning.components import largest_component_codimension
from hessmap.theory.learning.global_coefficient import Coefficient, linear_learning_coefficient


class LocalCoefficient(NamedTuple):
    """lambda(w), at least ``lower_bound`` by theorems; ``multiplicity`` is None where no claim is known."""

    value: Fraction
    multiplicity: int | None
    lower_bound: Fraction
    hessian_rank: int

    @property
    def is_proved(self) -> bool:
        return self.value == self.lower_bound

    @property
    def is_smooth(self) -> bool:
        """Whether the optima near the weights are a manifold whose tangent space is the kernel of H_o."""
        return 2 * self.value == self.hessian_rank


def local_learning_coefficient(product_ranks: RankTable) -> LocalCoefficient:
    """lambda(w) = c(w) / 2: a theorem for two layers and wherever a proved lower bound reaches it, else a conjecture.

    Kind of truth: ``is_proved`` says which. The proved lower bounds are rk H_o / 2, the global lambda, and c of the
    weaker conditions s_k >= rho[k][0] alone, of the network and of its transpose. The multiplicity is 1 where the
    optima are smooth, that of ``two_layer_coefficient`` for two layers, and the global one at weights whose partial
    products all have the rank of the truth; elsewhere it is not known.

    By hand for 1-1-1-1 with w_1 = w_2 = 0 and w_3 = 1: (w_1 w_2)^2, the two axes of 1-1-1.

    >>> point = local_learning_coefficient([[1], [0, 1], [0, 0, 1], [0, 0, 1, 1]])
    >>> point.value, point.hessian_rank, point.is_proved, point.is_smooth
    (Fraction(1, 2), 0, True, False)
    """
    table = checked_product_ranks(product_ranks)
    rank, codimension = outer_product_rank(table), largest_component_codimension(table)
    widths = [row[-1] for row in table]
    whole = linear_learning_coefficient(widths, table[-1][0])
    if len(table) == 3:
        value, multiplicity = two_layer_coefficient(table)
        return LocalCoefficient(value, multiplicity, value, rank)
    relaxed = [largest_component_codimension(_from_inputs_alone(seen)) for seen in (table, _transposed_table(table))]
    lower_bound = max(whole.value, Fraction(max(rank, *relaxed), 2))
    is_most_singular = all(entry == table[-1][0] for row in table for entry in row[:-1])
    known = 1 if rank == codimension else whole.multiplicity if is_most_singular else None
    return LocalCoefficient(Fraction(codimension, 2), known, lower_bound, rank)


def two_layer_coefficient(table: RankTable) -> Coefficient:
    """lambda(w) = (b d + (K - b) a) / 2 + lambda_0(d - a, H - a - b + r, K - b), with the multiplicity of lambda_0.

    a = rk W_1, b = rk W_2, r = rk W_2 W_1 for the widths d, H, K; lambda_0 is the coefficient of these three widths at
    rank 0, and 0 with multiplicity 1 where one of them is 0.

    Kind of truth: theorem. Where W_1 and W_2 have full rank, changes of basis and the implicit function theorem leave
    squares of b d + (K - b) a coordinates and the product of two smaller matrices, near 0.

    By hand for 3-3-3 and W_1 = W_2 = 0: nothing is bound, the network itself is left.

    >>> two_layer_coefficient(((3,), (0, 3), (0, 0, 3)))
    Coefficient(value=Fraction(7, 2), multiplicity=2)
    """
    (inputs,), (a, hidden), (r, b, outputs) = table
    left = linear_learning_coefficient((inputs - a, hidden - a - b + r, outputs - b), 0)
    return Coefficient(Fraction(b * inputs + (outputs - b) * a, 2) + left.value, left.multiplicity)


def _from_inputs_alone(table: RankTable) -> RankTable:
    """The table with no condition on products that do not begin at the inputs beyond those that they imply."""
    return [[*(row[0] for _ in row[:-1]), row[-1]] for row in table]


def _transposed_table(table: RankTable) -> RankTable:
    """The table of W_1^T .. W_L^T."""
    last = len(table) - 1
    return [[table[last - i][last - j] for i in range(j + 1)] for j in range(last + 1)]
