"""An oracle that shares nothing with the library: derivatives of a two-layer polynomial network over GF(2^61 - 1).

Values at more random points than the function space has dimensions have the rank of the functions, for generic weights
except with probability about 1e-15. Naive on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from math import comb

from flint import nmod_mat

PRIME = 2**61 - 1


def exact_rank(
    inputs: int,
    hidden: int,
    coefficients: Sequence[int],
    *,
    hidden_bias: bool = False,
    output_bias: bool = False,
    extra: str = "",
    num_extra: int = 0,
    seed: int = 0,
) -> int:
    """The dimension of the span of the derivatives; ``extra`` says how further neurons do nothing."""
    draw = random.Random(seed)
    weights = [[draw.randrange(1, PRIME) for _ in range(inputs)] for _ in range(hidden)]
    biases = [draw.randrange(PRIME) if hidden_bias else 0 for _ in range(hidden)]
    outputs = [draw.randrange(1, PRIME) for _ in range(hidden)]
    for _ in range(num_extra):
        generic = [draw.randrange(1, PRIME) for _ in range(inputs)]
        weights.append({"split": weights[0], "output_zero": generic}.get(extra, [0] * inputs))
        outputs.append(0 if extra in ("zero", "output_zero") else draw.randrange(1, PRIME))
        biases.append(0)
    slope = [power * value for power, value in enumerate(coefficients)][1:]
    rows = []
    for _ in range(comb(inputs + len(coefficients) - 1, inputs) + 2):
        point = [draw.randrange(PRIME) for _ in range(inputs)]
        row = [1] if output_bias else []
        for weight, bias, output in zip(weights, biases, outputs, strict=True):
            value = sum(a * b for a, b in zip(weight, point, strict=True)) + bias
            change = output * _polynomial(slope, value)
            row += [_polynomial(coefficients, value), *(change * entry for entry in point)]
            row += [change] if hidden_bias else []
        rows.append([entry % PRIME for entry in row])
    return int(nmod_mat(len(rows), len(rows[0]), [entry for row in rows for entry in row], PRIME).rank())


def _polynomial(coefficients: Sequence[int], value: int) -> int:
    total = 0
    for coefficient in reversed(coefficients):
        total = (total * value + coefficient) % PRIME
    return total
