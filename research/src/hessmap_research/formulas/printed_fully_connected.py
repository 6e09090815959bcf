"""The rank formulas as Singh, Bachmann & Hofmann 2021 print them, kept to be compared with the corrected ones.

Use ``hessmap.theory.fully_connected.linear`` to predict. Every function takes ``widths`` d = M_0, M_1, .., M_L = K and
``input_rank`` r, the rank of sum x x^T without centring (as the paper defines it, with and without bias);
``effective_output_dim`` stands for K as the paper's S9.1.2 prescribes. Each docstring ends with a counterexample: the
printed value first, the right one second.
"""

from __future__ import annotations

from collections.abc import Iterable

from hessmap.errors import require
from hessmap.theory.data_ranks import Widths, checked_input_rank, checked_output, checked_widths


def corollary_4(widths: Iterable[int], input_rank: int, *, effective_output_dim: int | None = None) -> int:
    """Outer-product Hessian: q (r + K - q), q = min(r, M_1, .., M_{L-1}, K), claimed under assumption A1.

    Right for generic weights; fails for weights that meet A1 (each of maximal rank) while their products do not:
    2-3-2-3-2 with the weights in ``linear``'s docstring has rank 3.

    >>> corollary_4((2, 3, 2, 3, 2), input_rank=2)
    4
    """
    widths, rank, outputs = _checked_arguments(widths, input_rank, effective_output_dim)
    q = min((rank, *widths[1:-1], outputs))
    return q * (rank + outputs - q)


def corollary_6(
    widths: Iterable[int], input_rank: int, residual_rank: int, *, effective_output_dim: int | None = None
) -> int:
    """Functional Hessian: at most 2 q M + 2 q s - L q^2, q = min(r, M_1, .., M_{L-1}, K, s).

    An equality for generic weights and L >= 2; far off for one layer, whose functional Hessian is zero.

    >>> from hessmap.theory.fully_connected import linear
    >>> corollary_6((6, 4), 6, 4), linear.functional_rank((6, 4), 6, 4)
    (16, 0)
    """
    widths, rank, outputs = _checked_arguments(widths, input_rank, effective_output_dim)
    q = min((rank, *widths[1:-1], outputs, residual_rank))
    return 2 * q * sum(widths[1:-1]) + 2 * q * residual_rank - (len(widths) - 1) * q**2


def fact_7(
    widths: Iterable[int],
    input_rank: int,
    residual_rank: int | None = None,
    *,
    effective_output_dim: int | None = None,
) -> int:
    """Loss Hessian: 2 q M - L q^2 + q (r + K).

    The paper has two q at that point: Theorem 3's, without s (leave ``residual_rank`` out), and Theorem 5's, with s
    among the minimum (give it). Right for s >= q0; both readings fail for s < q0.

    >>> from hessmap.theory.fully_connected import linear
    >>> fact_7((6, 5, 4), 6), fact_7((6, 5, 4), 6, residual_rank=1), linear.loss_rank((6, 5, 4), 6, 1)
    (48, 18, 33)
    """
    widths, rank, outputs = _checked_arguments(widths, input_rank, effective_output_dim)
    q = min((rank, *widths[1:-1], outputs))
    if residual_rank is not None:
        q = min(q, residual_rank)
    return 2 * q * sum(widths[1:-1]) - (len(widths) - 1) * q**2 + q * (rank + outputs)


def theorem_12(widths: Iterable[int], input_rank: int, *, effective_output_dim: int | None = None) -> int:
    """With bias, outer-product Hessian: at most q (r + K - q) + K, and S7.3 claims equality without centring.

    Right for rc = r; fails as an equality for rc < r, here two samples that are not centred (r = 2, rc = 1).

    >>> from hessmap.theory.fully_connected import linear
    >>> theorem_12((3, 4, 2), input_rank=2), linear.outer_product_rank((3, 4, 2), 1, biased_layers="all")
    (6, 4)
    """
    widths, rank, outputs = _checked_arguments(widths, input_rank, effective_output_dim)
    return corollary_4(widths, rank, effective_output_dim=outputs) + outputs


def section_s7_2_loss_rank(widths: Iterable[int], input_rank: int, *, effective_output_dim: int | None = None) -> int:
    """With bias, one hidden layer, loss Hessian: 2 s' (M_1 - q) + q (K + r + 1) + K, s' = min(r + 1, K).

    Right, also with a bottleneck, for rc = r and a generic residual; fails for rc < r, here r = 2, rc = 1.

    >>> from hessmap.theory.fully_connected import linear
    >>> section_s7_2_loss_rank((3, 4, 2), 2), linear.loss_rank((3, 4, 2), 1, 2, biased_layers="all")
    (20, 18)
    """
    widths, rank, outputs = _checked_arguments(widths, input_rank, effective_output_dim)
    hidden = _one_hidden_width(widths)
    q = min(rank, hidden, outputs)
    return 2 * min(rank + 1, outputs) * (hidden - q) + q * (outputs + rank + 1) + outputs


def section_s7_2_functional_rank(
    widths: Iterable[int], input_rank: int, *, effective_output_dim: int | None = None
) -> int:
    """With bias, one hidden layer, functional Hessian: 2 min(r + 1, K) M_1.

    Right, also with a bottleneck, for rc = r and a generic residual; fails for rc < r, here r = 1, rc = 0.

    >>> from hessmap.theory.fully_connected import linear
    >>> section_s7_2_functional_rank((2, 3, 2), 1), linear.functional_rank((2, 3, 2), 0, 1, biased_layers="all")
    (12, 6)
    """
    widths, rank, outputs = _checked_arguments(widths, input_rank, effective_output_dim)
    hidden = _one_hidden_width(widths)
    return 2 * min(rank + 1, outputs) * hidden


def section_s7_3_functional_rank(
    widths: Iterable[int], input_rank: int, *, effective_output_dim: int | None = None
) -> int:
    """With bias, functional Hessian: 2 q' M + 2 q' s' - L q'^2 + (L - 2) q'.

    Here q' = min(r + 1, M_1, .., M_{L-1}, K), s' = min(r + 1, K); printed for M_i >= s' only. Fails with a bottleneck.

    >>> from hessmap.theory.fully_connected import linear
    >>> section_s7_3_functional_rank((2, 1, 3, 3), 2), linear.functional_rank((2, 1, 3, 3), 2, 3, biased_layers="all")
    (12, 16)
    """
    widths, rank, outputs = _checked_arguments(widths, input_rank, effective_output_dim)
    q, depth = _with_homogeneous_coordinate(widths, rank, outputs), len(widths) - 1
    return 2 * q * sum(widths[1:-1]) + 2 * q * min(rank + 1, outputs) - depth * q**2 + (depth - 2) * q


def fact_13(widths: Iterable[int], input_rank: int, *, effective_output_dim: int | None = None) -> int:
    """With bias, loss Hessian: 2 q' M + q' (r + K) - L q'^2 + L q', q' = min(r + 1, M_1, .., M_{L-1}, K).

    S7.3 repeats it for M_i >= min(r + 1, K) only, the main text for all widths. Fails with a bottleneck.

    >>> from hessmap.theory.fully_connected import linear
    >>> fact_13((5, 1, 3), 5), linear.loss_rank((5, 1, 3), 5, 3, biased_layers="all")
    (10, 12)
    """
    widths, rank, outputs = _checked_arguments(widths, input_rank, effective_output_dim)
    q, depth = _with_homogeneous_coordinate(widths, rank, outputs), len(widths) - 1
    return 2 * q * sum(widths[1:-1]) + q * (rank + outputs) - depth * q**2 + depth * q


def _one_hidden_width(widths: Widths) -> int:
    require(len(widths) == 3, "Section S7.2 is about one hidden layer", f"widths are {widths}", "Use fact_13")
    return widths[1]


def _with_homogeneous_coordinate(widths: Widths, input_rank: int, outputs: int) -> int:
    return min((input_rank + 1, *widths[1:-1], outputs))


def _checked_arguments(
    widths: Iterable[int], input_rank: int, effective_output_dim: int | None
) -> tuple[Widths, int, int]:
    widths = checked_widths(widths)
    return widths, checked_input_rank(widths[0], input_rank), checked_output(widths, effective_output_dim)
