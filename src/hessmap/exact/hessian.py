"""The three Hessians of a chain over GF(P).

For one sample, layer l with inputs a_l (a one appended for the bias) and outputs z_l, and k <= l,

    d2 loss / dW_l dW_k  =  S_lk (x) a_l a_k^T  +  g_l (x) [d a_l / d z_k] (x) a_k,      S_lk = d2 loss / dz_l dz_k,

with g_l = d loss / dz_l. S_lk is the outer-product part B_l^T Q B_k (B_l = d output / dz_l, Q = d2 loss / d output2)
plus, for every layer j >= l with a curved activation phi, Z_jl^T diag(phi''(z_j) * d loss / d phi) Z_jk with
Z_jl = dz_j / dz_l. The outer-product Hessian is the first term with B_l^T Q B_k alone; the functional Hessian is all
the rest.

A layer that takes many patches of its inputs (a convolution) is taken by its weights w_l in place of z_l: with
J_l = d output / dw_l the first term is J_l^T Q J_k itself, and the second sums g_l (x) d patch / d z_k over patches.

Arrays that are the same for every sample have a sample axis of length one. In a linear network with squared loss
these are S and d a_l / d z_k, and the sums over samples collapse to Kronecker products (Singh, Bachmann & Hofmann
2021, equations 3 to 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np

from hessmap.exact.evaluation import Evaluation, Selection, Slope
from hessmap.exact.field import FieldArray, Height, PrimeField, Residues, identity, ones
from hessmap.exact.network import Chain, gradients_by_inputs, output_tangents, tangent_patches, weight_jacobian
from hessmap.linalg import require_memory
from hessmap.problem import Indices
from hessmap.records import Part


@dataclass(frozen=True, eq=False)
class Jacobians:
    """By layers (later, earlier), with e_l the perturbation of layer l: ``outputs[j, l]`` = d z_j / d e_l for l <= j,
    ``patches[j, l]`` = d patches of j / d e_l for l < j; ``gradients[l]`` = d loss / d z_l, ``input_gradients[l]`` =
    d loss / d inputs of l. The sample axis comes first, of length one where all samples agree; layers without
    parameters are not perturbed."""

    outputs: dict[tuple[int, int], FieldArray]
    patches: dict[tuple[int, int], FieldArray]
    gradients: list[FieldArray]
    input_gradients: list[FieldArray]


def jacobians(chain: Chain[FieldArray], evaluation: Evaluation, residuals: FieldArray) -> Jacobians:
    outputs: dict[tuple[int, int], FieldArray] = {}
    patches: dict[tuple[int, int], FieldArray] = {}
    perturbed: list[int] = []
    for later, layer in enumerate(chain.layers):
        for earlier in perturbed:
            tangents = _activation_tangents(evaluation.slopes[later - 1], outputs[later - 1, earlier])
            patches[later, earlier] = tangent_patches(layer, tangents)
            outputs[later, earlier] = output_tangents(layer, patches[later, earlier])
        if layer.has_parameters:
            perturbed.append(later)
            is_dense = layer.patches is None
            outputs[later, later] = (
                identity(residuals.field, layer.num_outputs)[None]
                if is_dense
                else weight_jacobian(layer, evaluation.patches[later])
            )
    return Jacobians(outputs, patches, *_gradients(chain, evaluation, residuals))


def _activation_tangents(slope: Slope, tangents: FieldArray) -> FieldArray:
    if isinstance(slope, Selection):
        return slope.forward(tangents)
    return tangents if slope is None else slope[:, :, None] * tangents


def _gradients(
    chain: Chain[FieldArray], evaluation: Evaluation, residuals: FieldArray
) -> tuple[list[FieldArray], list[FieldArray]]:
    """The backward pass: by the outputs and by the inputs of every layer."""
    gradients, input_gradients = [residuals], [gradients_by_inputs(chain.layers[-1], residuals)]
    for layer, slope in zip(reversed(chain.layers[:-1]), reversed(evaluation.slopes), strict=True):
        before = input_gradients[0]
        if isinstance(slope, Selection):
            before = slope.backward(before)
        elif slope is not None:
            before = slope * before
        gradients.insert(0, before)
        input_gradients.insert(0, gradients_by_inputs(layer, before))
    return gradients, input_gradients


# Numbers that the factors of one block may hold for one chunk of samples.
_CHUNK_NUMBERS = 1 << 22
# The matrix, the block in work with its factors, and the residues as flint's caller sees them.
_COPIES = 8


@dataclass(frozen=True, eq=False)
class OutputDerivatives:
    """Of the loss by the outputs, per sample: the residuals (num_samples, output_dim), the Hessians Q (num_samples,
    output_dim, output_dim; None is the identity), and the weights of the samples (None is one each)."""

    residuals: FieldArray
    hessians: FieldArray | None = None
    weights: FieldArray | None = None

    def __getitem__(self, samples: slice) -> OutputDerivatives:
        hessians = None if self.hessians is None else self.hessians[samples]
        weights = None if self.weights is None else self.weights[samples]
        return OutputDerivatives(self.residuals[samples], hessians, weights)


def field_hessian(
    chain: Chain[FieldArray], evaluation: Evaluation, derivatives: OutputDerivatives, part: Part
) -> FieldArray:
    """One of the three Hessians, summed (not averaged) over the samples, in the order of the chain's positions."""
    needed = _COPIES * 8 * chain.num_parameters**2
    require_memory("the Hessian over GF(P)", needed, "Use numerical_rank, which can do without the dense matrix")
    total = _ParameterMatrix(evaluation.outputs.field, chain.num_parameters)
    for samples in _chunks(chain, len(evaluation), derivatives.hessians is None):
        piece = _Piece(chain, evaluation[samples], derivatives[samples], part)
        for later, layer in enumerate(chain.layers):
            rows = layer.positions.ravel()
            for earlier in range(later + 1):
                columns = chain.layers[earlier].positions.ravel()
                block = piece.block(later, earlier) if (rows >= 0).any() and (columns >= 0).any() else None
                if block is not None:
                    total.add(block, rows, columns)
                    if earlier < later:
                        total.add(block.mT, columns, rows)
    return total.to_array()


def _chunks(chain: Chain[FieldArray], num_samples: int, is_squared: bool) -> Iterator[slice]:
    """Slices of the samples; all at once where nothing per sample is larger than a layer."""
    if chain.is_linear and chain.is_dense and is_squared:
        yield slice(0, num_samples)
        return
    size = max(1, _CHUNK_NUMBERS // _numbers_of_a_sample(chain))
    for start in range(0, num_samples, size):
        yield slice(start, start + size)


def _numbers_of_a_sample(chain: Chain[FieldArray]) -> int:
    """The largest array of a sample: two layers' pairs of units, or a derivative of a layer's patches or outputs."""
    dense = [max(layer.weights.shape) for layer in chain.layers if layer.patches is None]
    largest, directions = max(dense, default=1) ** 2, 0
    for layer in chain.layers:
        largest = max(largest, max(layer.sources.size, layer.num_outputs) * directions)
        if layer.has_parameters:
            own = layer.num_outputs if layer.patches is None else layer.positions.size
            directions = max(directions, own)
            largest = max(largest, layer.num_outputs * own)
    return largest


class _Piece:
    """What a chunk of samples adds to the blocks."""

    def __init__(
        self, chain: Chain[FieldArray], evaluation: Evaluation, derivatives: OutputDerivatives, part: Part
    ) -> None:
        self.chain = chain
        self.part = part
        self.jacobians: Jacobians = jacobians(chain, evaluation, derivatives.residuals)
        self.patches = evaluation.patches
        self.derivatives = derivatives
        self.second_derivatives = {
            place: curvature * self.jacobians.input_gradients[place + 1]
            for place, curvature in enumerate(evaluation.curvatures)
            if curvature is not None
        }

    def block(self, later: int, earlier: int) -> FieldArray | None:
        """The block of a pair of layers as a matrix, weights in row-major order; None where it vanishes."""
        outputs, last = self.jacobians.outputs, len(self.chain.layers) - 1
        terms = []
        if self.part != "functional":
            right = outputs[last, earlier]
            if self.derivatives.hessians is not None:
                right = self.derivatives.hessians @ right
            terms.append(self._first_term(later, earlier, outputs[last, later], right))
        if self.part != "outer_product":
            terms += [
                self._first_term(later, earlier, outputs[place, later], second[:, :, None] * outputs[place, earlier])
                for place, second in self.second_derivatives.items()
                if place >= later
            ]
            if earlier < later:
                terms.append(self._second_term(later, earlier))
        return reduce(add, terms) if terms else None

    def _is_dense(self, layer: int) -> bool:
        return self.chain.layers[layer].patches is None

    def _inputs(self, layer: int) -> FieldArray:
        """a_l of a layer that is perturbed by its outputs; one for a layer that is perturbed by its weights."""
        patches = self.patches[layer]
        return patches[:, 0, 0] if self._is_dense(layer) else ones(patches.field, len(patches), 1)

    def _weighted_inputs(self, layer: int) -> FieldArray:
        weights = self.derivatives.weights
        return self._inputs(layer) if weights is None else self._inputs(layer) * weights[:, None]

    def _first_term(self, later: int, earlier: int, left: FieldArray, right: FieldArray) -> FieldArray:
        """left^T right (x) a_l a_k^T, summed over the samples."""
        if not self._is_dense(later) and not self._is_dense(earlier):
            if self.derivatives.weights is not None:
                right = right * self.derivatives.weights[:, None, None]
            return left.reshape(-1, left.shape[2]).mT @ right.reshape(-1, right.shape[2])
        total = _sum_over_samples(left.mT @ right, self._inputs(later), self._weighted_inputs(earlier))
        return _as_matrix(total.transpose(0, 2, 1, 3))

    def _second_term(self, later: int, earlier: int) -> FieldArray:
        """g_l (x) d patch / d e_k (x) a_k, summed over the patches and the samples."""
        tangents, gradients = self.jacobians.patches[later, earlier], self.jacobians.gradients[later]
        right = self._weighted_inputs(earlier)
        if self._is_dense(later):
            return _as_matrix(_sum_over_samples(tangents[:, 0, 0], gradients, right).transpose(2, 0, 1, 3))
        _, groups, places, taps, directions = tangents.shape
        each = gradients.reshape(len(gradients), groups, -1, places)
        if self._is_dense(earlier):
            summed = each @ tangents.reshape(len(tangents), groups, places, taps * directions)
            shared = summed.reshape(len(gradients), -1, directions)
            total = _sum_over_samples(shared, ones(shared.field, len(gradients), 1), right)
            return _as_matrix(total.transpose(0, 2, 1, 3))
        left = (each * right[:, :, None, None]).transpose(1, 2, 0, 3).reshape(groups, each.shape[2], -1)
        columns = tangents.transpose(1, 0, 2, 3, 4).reshape(groups, left.shape[2], taps * directions)
        return (left @ columns).reshape(-1, directions)


def _as_matrix(total: FieldArray) -> FieldArray:
    first, second, third, fourth = total.shape
    return total.reshape(first * second, third * fourth)


def _sum_over_samples(shared: FieldArray, left: FieldArray, right: FieldArray) -> FieldArray:
    """sum_n shared[n] (x) left[n] (x) right[n], shape (x, y, u, v) from (n or 1, x, y), (n, u), (n, v)."""
    if len(shared) == 1:
        return shared[0][:, :, None, None] * (left.mT @ right)
    pairs = (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)
    total = shared.reshape(len(left), -1).mT @ pairs
    return total.reshape(*shared.shape[1:], left.shape[1], right.shape[1])


class _ParameterMatrix:
    """A symmetric matrix, filled block by block: blocks of layers are added where their parameters are; places with one
    parameter add up, constants drop out."""

    def __init__(self, field: PrimeField, num_parameters: int) -> None:
        self._field = field
        self._residues: Residues = np.zeros((num_parameters, num_parameters), dtype=np.int64)
        self._heights: list[Height] = []

    def add(self, block: FieldArray, rows: Indices, columns: Indices) -> None:
        """Add a block whose rows and columns stand for the parameters at the given positions (-1: a constant)."""
        folded, row_count, row_places = self._sums(block.residues, rows)
        folded, column_count, column_places = self._sums(folded.T, columns)
        place = np.ix_(row_places, column_places)
        self._residues[place] = self._field.add(self._residues[place], folded.T)
        self._heights.append(block.height.height_of_sum(row_count * column_count))

    def to_array(self) -> FieldArray:
        height = Height.largest(self._heights).height_of_sum(len(self._heights))
        return FieldArray(self._field, self._residues, height)

    def _sums(self, residues: Residues, positions: Indices) -> tuple[Residues, int, Indices]:
        """Rows of equal position added up; the largest number of such rows; the positions that are left."""
        is_parameter = positions >= 0
        sums, places, largest_count = self._field.sums_by_place(residues[is_parameter], positions[is_parameter])
        return sums, largest_count, places
