"""The population Hessian of an erf teacher in ball arithmetic: every entry with a rigorous bound of its error.

Equations 16 to 18 of the teacher-student paper, by python-flint's arb at the given precision; weights are taken as
exact. Needed because the smallest eigenvalues fall below what float64 can tell from zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hessmap.errors import require
from hessmap.theory.conditions import checked_count


def erf_hessian_balls(first: ArrayLike, second: ArrayLike, bits: int = 256) -> Any:
    """The Hessian E[J^T J] of W2 erf(W1 x / sqrt 2), x ~ N(0, I), as a flint ``arb_mat``; W1 row by row, then W2.

    With a, b, c = 1 + |w_m|^2, 1 + |w_p|^2, w_m . w_p and d = a b - c^2:
    W2, W2: (2/pi) atan(c / sqrt d);  W2_k, W1_m: 2 v_m / (pi sqrt d) [w_k - c / a w_m] with p = k;
    W1_m, W1_p: 2 v_m v_p / (pi sqrt d) [I - (b w_m w_m^T + a w_p w_p^T - c (w_m w_p^T + w_p w_m^T)) / d].

    By hand for weights of one: (2/pi) atan(1 / sqrt 3) = 1/3.

    >>> matrix = erf_hessian_balls([[1.0]], [1.0])
    >>> matrix.nrows(), round(float(matrix[1, 1]), 15), bool(matrix[1, 1].rad() < 1e-60)
    (2, 0.333333333333333, True)
    """
    import flint

    rows, outputs = np.atleast_2d(np.asarray(first, dtype=np.float64)), np.ravel(np.asarray(second, dtype=np.float64))
    must = "W2 must have one entry for each row of W1"
    require(outputs.size == len(rows), must, f"the shapes are {rows.shape} and {outputs.shape}")
    checked_count("bits", bits, at_least=53)
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        return _matrix(rows, outputs)
    finally:
        flint.ctx.prec = before


def _matrix(rows: Any, outputs: Any) -> Any:
    from flint import arb, arb_mat

    hidden, inputs = rows.shape
    w = [[arb(float(entry)) for entry in row] for row in rows]
    v = [arb(float(entry)) for entry in outputs]
    size = hidden * (inputs + 1)
    made = arb_mat(size, size)
    pi = arb.pi()
    for m in range(hidden):
        for p in range(m + 1):
            a, b, c = 1 + _dot(w[m], w[m]), 1 + _dot(w[p], w[p]), _dot(w[m], w[p])
            root = (a * b - c * c).sqrt()
            factor = 2 / (pi * root)
            for n in range(inputs):
                for q in range(inputs):
                    outer = b * w[m][n] * w[m][q] + a * w[p][n] * w[p][q]
                    crossed = c * (w[m][n] * w[p][q] + w[p][n] * w[m][q])
                    entry = factor * v[m] * v[p] * ((n == q) - (outer - crossed) / (a * b - c * c))
                    _set(made, m * inputs + n, p * inputs + q, entry)
                _set(made, hidden * inputs + p, m * inputs + n, factor * v[m] * (w[p][n] - c / a * w[m][n]))
                _set(made, hidden * inputs + m, p * inputs + n, factor * v[p] * (w[m][n] - c / b * w[p][n]))
            _set(made, hidden * inputs + m, hidden * inputs + p, 2 / pi * (c / root).atan())
    return made


def _dot(left: list[Any], right: list[Any]) -> Any:
    return sum((a * b for a, b in zip(left, right, strict=True)), start=left[0] * 0)


def _set(matrix: Any, row: int, column: int, entry: Any) -> None:
    matrix[row, column] = entry
    matrix[column, row] = entry
