"""Signs of eigenvalues in exact arithmetic: LDL^T over the rationals, Sturm sequences, balls for angles.

Deep linear networks with integer weights have an integer H_f. Its inertia comes from a congruence over the rationals
(Sylvester), the signs of the real eigenvalues of the loop from Sturm sequences of its characteristic polynomial, and
the angles of the complex ones from roots in balls that are refined until every comparison is decided.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from flint import arb, ctx, fmpq, fmpq_mat, fmpq_poly, fmpz_mat, fmpz_poly

from hessmap.errors import require
from hessmap.theory.fully_connected.signature import Inertia, LoopEigenvalues

Matrix = Sequence[Sequence[int]]
_MOST_BITS = 1024


def functional_hessian(weights: Sequence[fmpz_mat], residual_moment: fmpz_mat) -> fmpz_mat:
    """H_f of a linear network: W_1 .. W_L of integers, and Omega = sum residual x^T with a row for each output.

    d2 tr(Omega^T W_L .. W_1) / dW_l[a, b] dW_k[c, e] = (W_{k-1} .. W_1 Omega^T W_L .. W_{l+1})[e, a] (W_{l-1} ..
    W_{k+1})[b, c] for k < l.
    """
    num_layers = len(weights)
    starts = [0]
    for weight in weights:
        starts.append(starts[-1] + weight.nrows() * weight.ncols())
    hessian = fmpz_mat(starts[-1], starts[-1])
    for k in range(num_layers):
        below = _product(weights[:k], weights[0].ncols())
        for later in range(k + 1, num_layers):
            above = _product(weights[later + 1 :], weights[later].nrows())
            outer = below * residual_moment.transpose() * above
            inner = _product(weights[k + 1 : later], weights[k].nrows())
            _write_block(hessian, (starts[later], starts[k]), outer, inner, weights[later], weights[k])
    return hessian


def _write_block(
    hessian: fmpz_mat, start: tuple[int, int], outer: fmpz_mat, inner: fmpz_mat, later: fmpz_mat, earlier: fmpz_mat
) -> None:
    """The block of two layers, and its transpose."""
    for a in range(later.nrows()):
        for b in range(later.ncols()):
            row = start[0] + a * later.ncols() + b
            for c in range(earlier.nrows()):
                for e in range(earlier.ncols()):
                    column = start[1] + c * earlier.ncols() + e
                    hessian[row, column] = hessian[column, row] = outer[e, a] * inner[b, c]


def _product(weights: Sequence[fmpz_mat], size: int) -> fmpz_mat:
    """W_n .. W_1 of a list W_1, .., W_n; the identity of this size where it is empty."""
    found = fmpz_mat([[int(i == j) for j in range(size)] for i in range(size)])
    for weight in weights:
        found = weight * found
    return found


def loop(weights: Sequence[fmpz_mat], residual_moment: fmpz_mat) -> fmpz_mat:
    """T = W_L .. W_1 Omega^T."""
    return _product(weights, weights[0].ncols()) * residual_moment.transpose()


def inertia(symmetric: fmpz_mat) -> Inertia:
    """Numbers of positive and negative eigenvalues, by LDL^T over the rationals.

    Where the diagonal vanishes and an entry a_ij does not, row and column j are added to i: a congruence after which
    the diagonal has 2 a_ij.

    >>> inertia(fmpz_mat([[0, 1], [1, 0]]))
    Inertia(num_positive=1, num_negative=1)
    """
    rows = [[fmpq(entry) for entry in row] for row in symmetric.tolist()]
    positive = negative = 0
    while rows:
        size = len(rows)
        pivot = next((i for i in range(size) if rows[i][i] != 0), None)
        if pivot is None:
            pair = next(((i, j) for i in range(size) for j in range(i) if rows[i][j] != 0), None)
            if pair is None:
                break
            pivot, other = pair
            rows[pivot] = [a + b for a, b in zip(rows[pivot], rows[other], strict=True)]
            for row in rows:
                row[pivot] += row[other]
        value, own = rows[pivot][pivot], rows[pivot]
        positive, negative = positive + (value > 0), negative + (value < 0)
        kept = [i for i in range(size) if i != pivot]
        shares = {i: rows[i][pivot] / value for i in kept}
        rows = [
            [rows[i][j] - shares[i] * own[j] for j in kept] if shares[i] != 0 else [rows[i][j] for j in kept]
            for i in kept
        ]
    return Inertia(positive, negative)


def loop_eigenvalues(matrix: fmpz_mat, num_layers: int) -> LoopEigenvalues | None:
    """The non-zero eigenvalues of an integer matrix by sign and sector.

    None where they are not distinct, or one is on the border of two sectors as far as 1,024 bits decide.

    >>> loop_eigenvalues(fmpz_mat([[0, -1], [1, 0]]), num_layers=4)
    LoopEigenvalues(num_positive=0, num_negative=0, pairs=(0, 1, 0))
    """
    polynomial = fmpz_poly(_without_zeros([int(value) for value in matrix.charpoly().coeffs()]))
    if polynomial.gcd(polynomial.derivative()).degree() > 0:
        return None
    positive, negative = real_root_counts(polynomial)
    sectors = _sectors(polynomial, num_layers)
    if sectors is None:
        return None
    pairs = [sectors.count(sector) for sector in range(num_layers - 1)]
    found = positive + negative + 2 * sum(pairs)
    require(
        found == polynomial.degree(), "every root must be real or in a pair", f"got {found} of {polynomial.degree()}"
    )
    return LoopEigenvalues(positive, negative, tuple(pairs))


def _without_zeros(coefficients: Sequence[int]) -> list[int]:
    """The coefficients of a polynomial without its factors x."""
    first = next(index for index, value in enumerate(coefficients) if value != 0)
    return list(coefficients[first:])


def real_root_counts(polynomial: fmpz_poly) -> tuple[int, int]:
    """Numbers of positive and negative roots of a square-free polynomial with p(0) != 0, by Sturm's theorem.

    >>> real_root_counts(fmpz_poly([-6, 1, 1]))
    (1, 1)
    """
    chain = [fmpq_poly(polynomial), fmpq_poly(polynomial.derivative())]
    while chain[-1].degree() > 0:
        chain.append(-(chain[-2] % chain[-1]))
    chain = [item for item in chain if item.degree() >= 0]
    at_zero = _changes([item.coeffs()[0] if item.coeffs() else fmpq(0) for item in chain])
    at_plus = _changes([item.leading_coefficient() for item in chain])
    at_minus = _changes([item.leading_coefficient() * (-1) ** item.degree() for item in chain])
    return at_zero - at_plus, at_minus - at_zero


def _changes(values: Sequence[fmpq]) -> int:
    """Changes of sign, zeros left out."""
    signs = [value > 0 for value in values if value != 0]
    return sum(first != second for first, second in pairwise(signs))


def _sectors(polynomial: fmpz_poly, num_layers: int) -> list[int] | None:
    """Of every root in the upper half plane floor((L - 1) angle / pi), decided in ball arithmetic."""
    before, bits = ctx.prec, 64
    try:
        while bits <= _MOST_BITS:
            ctx.prec = bits
            found: Any = polynomial.complex_roots() if polynomial.degree() > 0 else []  # python-flint's stubs are wrong
            turns = [(num_layers - 1) * root.arg() / arb.pi() for root, _ in found if root.imag > 0]
            floors = [turn.floor() for turn in turns]
            if all(value.is_exact() for value in floors) and not any(turn.contains_integer() for turn in turns):
                return [int(value.unique_fmpz()) for value in floors]
            bits *= 2
    finally:
        ctx.prec = before
    return None


def integer_matrix(rows: Matrix) -> fmpz_mat:
    """A matrix of integers."""
    return fmpz_mat([list(row) for row in rows])


def rank(matrix: fmpz_mat) -> int:
    """Rank over the rationals."""
    return int(fmpq_mat(matrix).rank())
