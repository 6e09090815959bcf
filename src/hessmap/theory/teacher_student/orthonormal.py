"""The spectrum of quadratic teachers whose first weights have orthonormal rows: one small matrix, or closed forms.

"A Teacher-Student Perspective on the Dynamics of Learning Near the Optimal Point" has the Hessian of quadratic teachers
(equations 11 to 13) and no spectrum. For orthonormal rows H = E[J J^T] splits by the functions that the tangents
J = dF / d theta are made of; the proof is in ``research/docs/teacher-student.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import require
from hessmap.theory.data_ranks import checked_count

__all__ = ["SpectralBlock", "orthonormal_quadratic_blocks", "orthonormal_quadratic_spectrum"]
Floats = NDArray[np.float64]
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class SpectralBlock:
    """Functions that the Hessian maps among themselves, and how many copies of them there are.

    Attributes:
        coefficients: A, the sum over parameters of v v^T, v the coefficients of a tangent function.
        gram: D, the inner products of the functions under standard normal inputs.
        multiplicity: The number of copies.
    """

    coefficients: Array
    gram: Array
    multiplicity: int

    @property
    def matrix(self) -> Array:
        """A D, whose eigenvalues are eigenvalues of the Hessian; of fractions where weights are fractions."""
        return np.asarray(self.coefficients @ self.gram)

    @property
    def eigenvalues(self) -> Floats:
        """The eigenvalues of A D, those of L^T A L with D = L L^T, in descending order."""
        root = np.linalg.cholesky(self.gram.astype(np.float64))
        values = np.linalg.eigvalsh(root.T @ self.coefficients.astype(np.float64) @ root)
        return np.asarray(values[::-1], dtype=np.float64)


def orthonormal_quadratic_blocks(num_inputs: int, second: Sequence[Any], epsilon: Any) -> tuple[SpectralBlock, ...]:
    """The blocks of the Hessian of f(x) = sum_m a_m g(w_m.x), g(t) = t + epsilon t^2, for orthonormal w_m.

    The non-zero eigenvalues of the Hessian are those of the blocks, as often as their multiplicities. With N = Nh:

    - Ni - N copies of A = a a^T + 4 epsilon^2 diag(a^2), D = 1: inputs that are orthogonal to every row;
    - the functions z_n, z_p z_q (p < q) and z_m^2 of z_m = w_m.x: D = 1, 1 and 2 + J (J the matrix of ones), and A with
      z_n z_n: |a|^2 + 1; z_p, z_p z_q: 2 epsilon a_q^2; z_m, z_m^2: epsilon (2 a_m^2 + 1);
      z_p z_q, z_p z_q: 4 epsilon^2 (a_p^2 + a_q^2); z_m^2, z_m^2: epsilon^2 (4 a_m^2 + 1); 0 elsewhere.

    Where all |a_m| are equal the symmetric group acts on the second block, which falls into blocks of sizes 3 (once),
    3 (N - 1 times) and 1 (N (N - 3) / 2 times).

    Args:
        num_inputs: Ni, at least the number of hidden units.
        second: Second weights a_1 .. a_N; fractions stay fractions.
        epsilon: Coefficient of the square.

    Returns:
        The blocks; eigenvalues that they do not have are zero, N (N - 1) / 2 of them.

    Raises:
        InvalidInput: If there are more hidden units than inputs, which orthonormal rows exclude, or no hidden unit.

    Example:
        One unit of one input, a = 1, epsilon = 1: E[(1 + 2z)^2 z^2], E[(z + z^2)(1 + 2z) z], E[(z + z^2)^2] = 13, 7, 4.

        >>> (block,) = orthonormal_quadratic_blocks(1, [1], 1)
        >>> block.matrix.astype(int)
        array([[ 2,  9],
               [ 3, 15]])
        >>> np.allclose(block.eigenvalues, np.linalg.eigvalsh([[13, 7], [7, 4]])[::-1])
        True
    """
    inputs, hidden = checked_count("num_inputs", num_inputs), len(second)
    require(0 < hidden <= inputs, "orthonormal rows need 1 to num_inputs hidden units", f"got {hidden} of {inputs}")
    squares = [value * value for value in second]
    outside = np.array([[a * b for b in second] for a in second], dtype=object)
    outside += np.diag(np.array([4 * epsilon**2 * square for square in squares], dtype=object))
    blocks = [SpectralBlock(outside, _identity(hidden), inputs - hidden)]
    has_equal_sizes = len(set(squares)) == 1
    blocks += _symmetric_blocks(hidden, squares[0], epsilon) if has_equal_sizes else [_inner_block(squares, epsilon)]
    return tuple(block for block in blocks if block.multiplicity)


def orthonormal_quadratic_spectrum(num_inputs: int, second: Sequence[Any], epsilon: Any) -> Floats:
    """All eigenvalues of the Hessian at a quadratic teacher with orthonormal first weights.

    Args:
        num_inputs: Ni, at least the number of hidden units.
        second: Second weights a_1 .. a_N.
        epsilon: Coefficient of the square in g(t) = t + epsilon t^2.

    Returns:
        The N (Ni + 1) eigenvalues in descending order.

    Raises:
        InvalidInput: If there are more hidden units than inputs, or no hidden unit.

    Notes:
        For a_m^2 = s / N and large N one eigenvalue grows, N epsilon^2 + (2 + 4 s) epsilon^2 + 1 + O(1 / N); N - 1
        copies of the two of [[1 + s, sqrt(2) epsilon], [sqrt(2) epsilon, 2 epsilon^2]] and Ni - N of s stay; all others
        tend to 0 as 1 / N, N (N - 3) / 2 of them being 8 epsilon^2 s / N.

    Example:
        >>> orthonormal_quadratic_spectrum(2, [1.0, 1.0], 0.0).round(12)
        array([3., 3., 0., 0., 0., 0.])
    """
    blocks = orthonormal_quadratic_blocks(num_inputs, second, epsilon)
    values = np.concatenate([np.repeat(block.eigenvalues, block.multiplicity) for block in blocks])
    num_zeros = len(second) * (num_inputs + 1) - len(values)
    return np.sort(np.concatenate([values, np.zeros(num_zeros)]))[::-1]


def _identity(size: int) -> Array:
    return np.array([[int(i == j) for j in range(size)] for i in range(size)], dtype=object)


def _inner_block(squares: Sequence[Any], epsilon: Any) -> SpectralBlock:
    """The functions z_n, z_p z_q and z_m^2."""
    hidden = len(squares)
    pairs = list(combinations(range(hidden), 2))
    first_square = hidden + len(pairs)
    matrix, gram = (np.array(_identity(first_square + hidden)) for _ in range(2))
    matrix *= 0
    for n, square in enumerate(squares):
        matrix[n, n] = sum(squares) + 1
        matrix[n, first_square + n] = matrix[first_square + n, n] = epsilon * (2 * square + 1)
        matrix[first_square + n, first_square + n] = epsilon**2 * (4 * square + 1)
    for place, (p, q) in enumerate(pairs, start=hidden):
        matrix[place, place] = 4 * epsilon**2 * (squares[p] + squares[q])
        matrix[p, place] = matrix[place, p] = 2 * epsilon * squares[q]
        matrix[q, place] = matrix[place, q] = 2 * epsilon * squares[p]
    gram[first_square:, first_square:] = 2 * _identity(hidden) + 1
    return SpectralBlock(matrix, gram, 1)


def _symmetric_blocks(hidden: int, square: Any, epsilon: Any) -> list[SpectralBlock]:
    """The same for equal |a_m|, by the sums sum c_n z_n, sum (c_p + c_q) z_p z_q and sum c_n z_n^2.

    c = 1 gives the first block (with half of the second sum), each direction with sum c_n = 0 one of the N - 1 copies
    of the second; combinations of the z_p z_q in which every unit has the sum 0 are orthogonal to both.
    """
    slope, inner = epsilon * (2 * square + 1), 4 * epsilon**2 * square
    curvature, linear = epsilon**2 * (4 * square + 1), hidden * square + 1
    num_pairs = hidden * (hidden - 1) // 2
    one = _ratio(1, hidden)
    blocks = [
        _three(
            (
                linear * one,
                4 * epsilon * square * one,
                slope * one,
                _ratio(2 * inner, max(num_pairs, 1)),
                curvature * one,
            ),
            (hidden, num_pairs, hidden * (hidden + 2)),
            multiplicity=1,
        ),
        _three(
            (linear, 2 * epsilon * square, slope, _ratio(2 * inner, max(hidden - 2, 1)), curvature),
            (1, hidden - 2, 2),
            multiplicity=hidden - 1,
        ),
    ]
    if hidden > 3:
        alone = np.array([[2 * inner]], dtype=object)
        blocks.append(SpectralBlock(alone, _identity(1), hidden * (hidden - 3) // 2))
    return blocks


def _ratio(value: Any, count: int) -> Any:
    """A quotient that keeps fractions and integers exact."""
    return value * Fraction(1, count) if not isinstance(value, float) else value / count


def _three(entries: tuple[Any, ...], norms: tuple[int, int, int], multiplicity: int) -> SpectralBlock:
    """Sums of z, of products and of squares; without products where their sum vanishes."""
    linear, with_products, with_squares, products, squares = entries
    matrix = np.array(
        [[linear, with_products, with_squares], [with_products, products, 0], [with_squares, 0, squares]], dtype=object
    )
    kept = [index for index, norm in enumerate(norms) if norm]
    gram = np.diag(np.array([norms[index] for index in kept], dtype=object))
    return SpectralBlock(matrix[np.ix_(kept, kept)], gram, multiplicity)
