"""Hessian ranks of deep linear networks with a bias in every layer.

Shared by every function here: ``widths`` are d = M_0, M_1, .., M_L = K with L layers; ``centred_input_rank`` rc is the
rank of the CENTRED input covariance, which is the rank of the inputs with a constant one appended, minus one;
``residual_rank`` t is the rank of [Omega_c, omega], Omega_c = sum residual (x - mean)^T and omega = sum residual;
``effective_output_dim`` is K unless the loss is blind to some outputs (see ``losses``), and stands for K wherever a
formula says K. Below, q0 = min(rc, M_1, .., M_{L-1}, K), m = min(M_1, .., M_{L-1}), q = min(t, m), b in 1..L-1 is
the LAST hidden layer of width m, M = M_1 + .. + M_{L-1}, and M_{>b} the sum of the hidden widths behind b.

``mean_residual_is_zero`` says omega = 0, which holds wherever the gradient by the last bias vanishes; t is then
the rank of Omega_c alone.

Assumptions shared by every function here: generic weights, biases and residual (its scale included). That of the
outer-product Hessian is a theorem (research/docs/conjectures.md); the others are conjectures but for omega = 0, and
held on every random architecture tried in exact arithmetic (study fcn/conjectures).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hessmap.theory.conditions import (
    Widths,
    checked_centred_input_rank,
    checked_output,
    checked_residual_rank,
    checked_widths,
)
from hessmap.theory.fully_connected import linear


def generic_residual_rank(
    centred_input_rank: int, effective_output_dim: int, *, mean_residual_is_zero: bool = False
) -> int:
    """A residual in general position has t = min(rc + 1, K), or min(rc, K) if it sums to zero over the samples.

    >>> generic_residual_rank(3, 5), generic_residual_rank(3, 5, mean_residual_is_zero=True)
    (4, 3)
    """
    return min(centred_input_rank + (not mean_residual_is_zero), effective_output_dim)


def outer_product_rank(
    widths: Iterable[int], centred_input_rank: int, *, effective_output_dim: int | None = None
) -> int:
    """The outer-product Hessian has rank q0 (rc + K - q0) + K.

    Reference: Singh, Bachmann & Hofmann 2021, Theorem 12 (for centred inputs) and S7.3; corrected: the rank that
    counts is the centred one. Widths 3-4-2 on two samples that are not centred (r = 2, rc = 1) have rank 4, where the
    uncentred r gives 6.

    By hand for 3-4-2 with rc = 1: 1 (1 + 2 - 1) + 2.

    >>> outer_product_rank((3, 4, 2), centred_input_rank=1)
    4
    """
    widths, centred_input_rank, outputs = _checked_map(widths, centred_input_rank, effective_output_dim)
    return linear.outer_product_rank(widths, centred_input_rank, effective_output_dim=outputs) + outputs


def functional_rank(
    widths: Iterable[int],
    centred_input_rank: int,
    residual_rank: int,
    *,
    mean_residual_is_zero: bool = False,
    effective_output_dim: int | None = None,
) -> int:
    """The functional Hessian has rank 2 q M + 2 q t - L q^2 + position - q, and is zero for L = 1.

    Formula: position is 0 for omega = 0, and the last - q is then left out; (L - 1) q for t <= m; and
    2 M_{>b} - (L - 1 - 2 b) m for t > m: with bias it matters WHERE the bottleneck is.

    Reference: Singh, Bachmann & Hofmann 2021, S7.3, right for M_i >= min(rc + 1, K); corrected for bottlenecks:
    widths 2-1-3-3 with rc = 2 have rank 16, where the printed formula gives 12.

    By hand for 1-1-1: w2 (w1 x + b1) + b2 has the mixed derivatives (w2, w1) and (w2, b1), a matrix of rank 2.

    >>> functional_rank((1, 1, 1), centred_input_rank=1, residual_rank=1)
    2
    """
    facts = _checked_residual(widths, centred_input_rank, residual_rank, mean_residual_is_zero, effective_output_dim)
    return _rank_beyond_outer_product(facts) + _overlap(facts)


def loss_rank(
    widths: Iterable[int],
    centred_input_rank: int,
    residual_rank: int,
    *,
    mean_residual_is_zero: bool = False,
    effective_output_dim: int | None = None,
) -> int:
    """The loss Hessian has rank q0 (rc + K - q0) + K + 2 q M - (L - 1) q^2 + position.

    Formula: position is 0 for omega = 0; (L - 1) q for t <= m; and 2 M_{>b} - (L - 1 - 2 b) m for t > m.

    Reference: Singh, Bachmann & Hofmann 2021, Fact 13 and S7.3, right for M_i >= min(rc + 1, K) and rc = r; corrected
    for bottlenecks: widths 5-1-3 have rank 12, where Fact 13 gives 10.

    By hand for 5-1-3: 1 (5 + 3 - 1) + 3 = 10, plus 2 * 1 - 1 + 0 - (1 - 2) = 2: all 12 parameters.

    >>> loss_rank((5, 1, 3), centred_input_rank=5, residual_rank=3)
    12
    """
    facts = _checked_residual(widths, centred_input_rank, residual_rank, mean_residual_is_zero, effective_output_dim)
    outer = outer_product_rank(facts.widths, centred_input_rank, effective_output_dim=effective_output_dim)
    return outer + _rank_beyond_outer_product(facts)


class _Facts(NamedTuple):
    """Consistent integers, as the formulas of the functional Hessian take them."""

    widths: Widths
    residual_rank: int
    mean_residual_is_zero: bool

    @property
    def active_bottleneck_rank(self) -> int:
        return linear.active_bottleneck_rank(self.widths, self.residual_rank)


def _rank_beyond_outer_product(facts: _Facts) -> int:
    """What the functional part adds to the rank of the outer-product Hessian: 2 q M - (L - 1) q^2 + position."""
    hidden = facts.widths[1:-1]
    if not hidden:
        return 0
    q = facts.active_bottleneck_rank
    return 2 * q * sum(hidden) - len(hidden) * q**2 + _position_term(facts)


def _position_term(facts: _Facts) -> int:
    hidden, q = facts.widths[1:-1], facts.active_bottleneck_rank
    if facts.mean_residual_is_zero:
        return 0
    if facts.residual_rank <= min(hidden):
        return len(hidden) * q
    last = _last_place(hidden, q) + 1
    return 2 * sum(hidden[last:]) - (len(hidden) - 2 * last) * q


def _overlap(facts: _Facts) -> int:
    if len(facts.widths) == 2:
        return 0
    q = facts.active_bottleneck_rank
    return 2 * q * facts.residual_rank - q**2 - (0 if facts.mean_residual_is_zero else q)


def _last_place(values: tuple[int, ...], value: int) -> int:
    return len(values) - 1 - values[::-1].index(value)


def _checked_map(
    widths: Iterable[int], centred_input_rank: int, effective_output_dim: int | None
) -> tuple[Widths, int, int]:
    """Widths, centred input rank and effective output dimension as plain integers."""
    widths = checked_widths(widths)
    rank = checked_centred_input_rank(widths, centred_input_rank)
    return widths, rank, checked_output(widths, effective_output_dim)


def _checked_residual(
    widths: Iterable[int],
    centred_input_rank: int,
    residual_rank: int,
    mean_residual_is_zero: bool,
    effective_output_dim: int | None,
) -> _Facts:
    """The facts of the functional Hessian, the residual rank possible for these inputs and outputs."""
    widths, input_rank, outputs = _checked_map(widths, centred_input_rank, effective_output_dim)
    largest = generic_residual_rank(input_rank, outputs, mean_residual_is_zero=mean_residual_is_zero)
    inputs = "centred input rank" if mean_residual_is_zero else "centred input rank + 1"
    why = f"the smaller of {inputs} and effective output dimension"
    return _Facts(widths, checked_residual_rank(residual_rank, largest, why), mean_residual_is_zero)
