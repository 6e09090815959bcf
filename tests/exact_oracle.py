"""An oracle that shares nothing with the library: Hessians formed entry by entry over GF(2^61 - 1).

Random weights and data in a large prime field have the rank of generic real ones except with probability about
(degree * size) / 2^61 (Schwartz-Zippel), so every rank here is the generic rank. Naive and slow on purpose.

A network is a list of layers, each a list of rows over its inputs; with bias a row has one more entry at its end.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

from flint import nmod_mat

PRIME = 2**61 - 1
Matrix = list[list[int]]


def field_matrix(matrix: Matrix) -> nmod_mat:
    columns = len(matrix[0]) if matrix else 0
    return nmod_mat(len(matrix), columns, [entry % PRIME for row in matrix for entry in row], PRIME)


def plain(matrix: nmod_mat) -> Matrix:
    return [[int(entry) for entry in row] for row in matrix.table()]


def rank(matrix: Matrix) -> int:
    return int(field_matrix(matrix).rank()) if matrix and matrix[0] else 0


def product(left: Matrix, right: Matrix) -> Matrix:
    return plain(field_matrix(left) * field_matrix(right))


def transpose(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def total(left: Matrix, right: Matrix) -> Matrix:
    return [[(a + b) % PRIME for a, b in zip(*rows, strict=True)] for rows in zip(left, right, strict=True)]


def columns_of(matrix: Matrix, start: int, stop: int) -> Matrix:
    return [row[start:stop] for row in matrix]


def random_matrix(draw: random.Random, rows: int, columns: int) -> Matrix:
    return [[draw.randrange(PRIME) for _ in range(columns)] for _ in range(rows)]


def random_network(draw: random.Random, widths: tuple[int, ...], bias: bool) -> list[Matrix]:
    return [random_matrix(draw, after, before + bias) for before, after in pairwise(widths)]


def random_inputs(
    draw: random.Random, input_dim: int, input_rank: int, centred_input_rank: int, num_samples: int
) -> Matrix:
    """Samples as rows, of the given rank and the given rank after centring (equal, or one less)."""
    codes = random_matrix(draw, num_samples, input_rank)
    if centred_input_rank < input_rank:
        codes = [[1, *code[1:]] for code in codes]
    frame = random_matrix(draw, input_rank, input_dim)
    inputs = product(codes, frame) if input_rank else [[0] * input_dim for _ in range(num_samples)]
    assert rank(inputs) == input_rank
    assert rank([[*sample, 1] for sample in inputs]) - 1 == centred_input_rank
    return inputs


def random_residuals(
    draw: random.Random, num_samples: int, output_dim: int, factor_rank: int, mean_is_zero: bool, sum_is_zero: bool
) -> Matrix:
    """One row per sample, all of them in a space of ``factor_rank`` directions.

    ``mean_is_zero``: the sum over samples vanishes. ``sum_is_zero``: the sum over outputs does (cross-entropy).
    """
    codes = random_matrix(draw, num_samples, factor_rank)
    if mean_is_zero:
        codes[-1] = [-sum(code[place] for code in codes[:-1]) % PRIME for place in range(factor_rank)]
    directions = random_matrix(draw, factor_rank, output_dim)
    if sum_is_zero:
        directions = [[*row[:-1], -sum(row[:-1]) % PRIME] for row in directions]
    if not factor_rank:
        return [[0] * output_dim for _ in range(num_samples)]
    return product(codes, directions)


def random_output_hessian(draw: random.Random, loss: str, output_dim: int) -> Matrix:
    """The second derivative of one sample's loss by its outputs: identity, diagonal, or diag(p) - p p^T."""
    if loss == "squared":
        diagonal = [1] * output_dim
    elif loss == "log_cosh":
        diagonal = [draw.randrange(1, PRIME) for _ in range(output_dim)]
    else:
        diagonal = [draw.randrange(1, PRIME) for _ in range(output_dim - 1)]
        diagonal.append((1 - sum(diagonal)) % PRIME)
    outer = loss == "cross_entropy"
    return [
        [((i == j) * diagonal[i] - outer * diagonal[i] * diagonal[j]) % PRIME for j in range(output_dim)]
        for i in range(output_dim)
    ]


@dataclass(frozen=True)
class Trace:
    """What one sample meets: each layer's inputs, and the slopes of the activation behind each hidden layer."""

    layer_inputs: list[list[int]]
    slopes: list[list[int]]
    outputs: list[int]


def trace(layers: list[Matrix], sample: list[int], relu: bool = False) -> Trace:
    """ReLU signs are those of the integers, so its weights and samples must be small integers, not residues."""
    bias = len(layers[0][0]) - len(sample)
    current, layer_inputs, slopes = list(sample), [], []
    for place, layer in enumerate(layers):
        current = current + [1] * bias
        layer_inputs.append(current)
        current = [sum(weight * value for weight, value in zip(row, current, strict=True)) for row in layer]
        if place < len(layers) - 1:
            slopes.append([int(value > 0) if relu else 1 for value in current])
            current = [slope * value for slope, value in zip(slopes[-1], current, strict=True)]
        if not relu:
            current = [value % PRIME for value in current]
    return Trace(layer_inputs, slopes, current)


def sensitivity(layers: list[Matrix], slopes: list[list[int]], start: int, stop: int) -> Matrix:
    """How the inputs of layer ``stop`` (its constant one apart) answer to the pre-activations of layer ``start``."""
    width = len(layers[start])
    current = [[int(i == j) for j in range(width)] for i in range(width)]
    for place in range(start, stop):
        if place > start:
            weights = [row[: len(current)] for row in layers[place]]
            current = product(weights, current)
        if place < len(layers) - 1:
            current = [[slope * value for value in row] for slope, row in zip(slopes[place], current, strict=True)]
    return current


def jacobian(layers: list[Matrix], met: Trace) -> Matrix:
    """Outputs by parameters, layer after layer, row-major, the bias at the end of its row."""
    rows: Matrix = [[] for _ in layers[-1]]
    for place, inputs in enumerate(met.layer_inputs):
        to_outputs = sensitivity(layers, met.slopes, place, len(layers))
        for row, answer in zip(rows, to_outputs, strict=True):
            row.extend(entry * value % PRIME for entry in answer for value in inputs)
    return rows


def offsets(layers: list[Matrix]) -> list[int]:
    starts = [0]
    for layer in layers:
        starts.append(starts[-1] + len(layer) * len(layer[0]))
    return starts


def functional_hessian(layers: list[Matrix], met: Trace, residual: list[int]) -> Matrix:
    """sum_k residual_k times the second derivative of output k, for one sample.

    Entry (W_b[i, j], W_a[m, n]), a before b: (residual^T d outputs / d z_b)[i] (d input_b / d z_a)[j, m] input_a[n].
    """
    starts = offsets(layers)
    hessian = [[0] * starts[-1] for _ in range(starts[-1])]
    for after in range(len(layers)):
        back = product([residual], sensitivity(layers, met.slopes, after, len(layers)))[0]
        for before in range(after):
            answer = sensitivity(layers, met.slopes, before, after)
            inputs = met.layer_inputs[before]
            for i, slope in enumerate(back):
                for j, row in enumerate(answer):
                    place = starts[after] + i * len(layers[after][0]) + j
                    for m, entry in enumerate(row):
                        for n, value in enumerate(inputs):
                            other = starts[before] + m * len(inputs) + n
                            hessian[place][other] = hessian[other][place] = slope * entry * value % PRIME
    return hessian


@dataclass(frozen=True)
class Hessians:
    outer_product: Matrix
    functional: Matrix
    loss: Matrix
    jacobians: list[Matrix]
    layer_starts: list[int]

    def ranks(self) -> tuple[int, int, int]:
        return rank(self.outer_product), rank(self.functional), rank(self.loss)


def hessians(
    layers: list[Matrix], inputs: Matrix, residuals: Matrix, output_hessians: list[Matrix], relu: bool = False
) -> Hessians:
    """The three Hessians of the sum over samples, each formed on its own."""
    traces = [trace(layers, sample, relu) for sample in inputs]
    jacobians = [jacobian(layers, met) for met in traces]
    size = offsets(layers)[-1]
    outer = [[0] * size for _ in range(size)]
    functional = [[0] * size for _ in range(size)]
    for met, slope, residual, curvature in zip(traces, jacobians, residuals, output_hessians, strict=True):
        outer = total(outer, product(transpose(slope), product(curvature, slope)))
        functional = total(functional, functional_hessian(layers, met, residual))
    return Hessians(outer, functional, total(outer, functional), jacobians, offsets(layers))


def generic_hessians(
    widths: tuple[int, ...],
    *,
    bias: bool = False,
    loss: str = "squared",
    input_rank: int | None = None,
    centred_input_rank: int | None = None,
    residual_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    num_samples: int | None = None,
    seed: int = 0,
) -> Hessians:
    """The Hessians of a random linear network on random data with the given ranks (drawn so, then asserted)."""
    draw = random.Random(seed)
    input_rank = widths[0] if input_rank is None else input_rank
    centred = input_rank if centred_input_rank is None else centred_input_rank
    num_samples = input_rank + 3 if num_samples is None else num_samples
    layers = random_network(draw, widths, bias)
    inputs = random_inputs(draw, widths[0], input_rank, centred, num_samples)
    factor = widths[-1] if residual_rank is None else residual_rank
    softmax = loss == "cross_entropy"
    residuals = random_residuals(draw, num_samples, widths[-1], factor, mean_residual_is_zero, softmax)
    if residual_rank is not None:
        seen = [[*sample, 1] for sample in inputs] if bias else inputs
        assert rank(product(transpose(residuals), seen)) == residual_rank
    curvatures = [random_output_hessian(draw, loss, widths[-1]) for _ in inputs]
    return hessians(layers, inputs, residuals, curvatures)
