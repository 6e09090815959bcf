"""The three Hessians of a chain over GF(P).

For one sample, layer l with inputs a_l (a one appended for the bias) and outputs z_l, and k <= l,

    d2 loss / dW_l dW_k  =  S_lk (x) a_l a_k^T  +  g_l (x) [d a_l / d z_k] (x) a_k,      S_lk = d2 loss / dz_l dz_k,

with g_l = d loss / dz_l. S_lk is the outer-product part B_l^T Q B_k (B_l = d output / dz_l, Q = d2 loss / d output2)
plus, for every layer j >= l with a curved activation phi, Z_jl^T diag(phi''(z_j) * d loss / d phi) Z_jk with
Z_jl = dz_j / dz_l. The outer-product Hessian is the first term with B_l^T Q B_k alone; the functional Hessian is all
the rest.

Arrays that are the same for every sample have a sample axis of length one. In a linear network with squared loss
these are S and d a_l / d z_k, and the sums over samples collapse to Kronecker products (Singh, Bachmann & Hofmann
2021, equations 3 to 5).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add

from hessmap.curvature.finite_field.chain import Chain
from hessmap.curvature.finite_field.evaluation import Evaluation
from hessmap.curvature.finite_field.field_array import FieldArray
from hessmap.curvature.finite_field.jacobians import Jacobians, jacobians
from hessmap.curvature.finite_field.parameter_matrix import ParameterMatrix
from hessmap.curvature.memory import require_memory
from hessmap.results import Part

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
    total = ParameterMatrix(evaluation.outputs.field, chain.num_parameters)
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
    if chain.is_linear and is_squared:
        yield slice(0, num_samples)
        return
    widest = max(max(layer.weights.shape) for layer in chain.layers)
    size = max(1, _CHUNK_NUMBERS // widest**2)
    for start in range(0, num_samples, size):
        yield slice(start, start + size)


class _Piece:
    """What a chunk of samples adds to the blocks."""

    def __init__(
        self, chain: Chain[FieldArray], evaluation: Evaluation, derivatives: OutputDerivatives, part: Part
    ) -> None:
        self.last = len(chain.layers) - 1
        self.part = part
        self.jacobians: Jacobians = jacobians(chain, evaluation)
        self.layer_inputs = evaluation.layer_inputs
        self.derivatives = derivatives
        self.gradients = [self._pulled(derivatives.residuals, layer) for layer in range(self.last + 1)]
        self.bends: dict[int, FieldArray] = {}
        for place, curvature in enumerate(evaluation.curvatures):
            if curvature is not None:
                width = curvature.shape[1]
                pulled = self.gradients[place + 1] @ chain.layers[place + 1].weights[:, :width]
                self.bends[place] = curvature * pulled

    def block(self, later: int, earlier: int) -> FieldArray | None:
        """The block of a pair of layers as a matrix, weights in row-major order; None where it vanishes."""
        right = self.layer_inputs[earlier]
        if self.derivatives.weights is not None:
            right = right * self.derivatives.weights[:, None]
        terms = []
        shared = self._output_curvature(later, earlier)
        if shared is not None:
            terms.append(_sum_over_samples(shared, self.layer_inputs[later], right).transpose(0, 2, 1, 3))
        if self.part != "outer_product" and earlier < later:
            change = self.jacobians.inputs[later, earlier]
            terms.append(_sum_over_samples(change, self.gradients[later], right).transpose(2, 0, 1, 3))
        if not terms:
            return None
        total = reduce(add, terms)
        rows, columns = total.shape[0] * total.shape[1], total.shape[2] * total.shape[3]
        return total.reshape(rows, columns)

    def _output_curvature(self, later: int, earlier: int) -> FieldArray | None:
        """The part of S_lk (see above) that belongs to this Hessian; None where it vanishes."""
        outputs = self.jacobians.outputs
        terms = []
        if self.part != "functional":
            pushed = outputs[self.last, earlier]
            if self.derivatives.hessians is not None:
                pushed = self.derivatives.hessians @ pushed
            terms.append(outputs[self.last, later].mT @ pushed)
        if self.part != "outer_product":
            terms += [
                outputs[place, later].mT @ (bend[:, :, None] * outputs[place, earlier])
                for place, bend in self.bends.items()
                if place >= later
            ]
        return reduce(add, terms) if terms else None

    def _pulled(self, residuals: FieldArray, layer: int) -> FieldArray:
        """d loss / d z_l, (num_samples, width)."""
        jacobian = self.jacobians.outputs[self.last, layer]
        if len(jacobian) == 1:
            return residuals @ jacobian[0]
        return (residuals[:, None, :] @ jacobian)[:, 0, :]


def _sum_over_samples(shared: FieldArray, left: FieldArray, right: FieldArray) -> FieldArray:
    """sum_n shared[n] (x) left[n] (x) right[n], shape (x, y, u, v) from (n or 1, x, y), (n, u), (n, v)."""
    if len(shared) == 1:
        return shared[0][:, :, None, None] * (left.mT @ right)
    pairs = (left[:, :, None] * right[:, None, :]).reshape(len(left), -1)
    total = shared.reshape(len(left), -1).mT @ pairs
    return total.reshape(*shared.shape[1:], left.shape[1], right.shape[1])
