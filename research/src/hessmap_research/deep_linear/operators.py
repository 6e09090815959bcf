"""The three Hessians of a deep linear network as operators: products by small matrix products, no autograd.

Blocks of a deep linear Hessian in closed form: two terms, each made of two small factors.

With A_l the map from the output of layer l to the network's output, P_l the map from the data to the input of layer l,
C_lk the map from the output of layer k to the input of a later layer l, Sigma = E[x x^T], Omega = E[residual x^T],
and weights vectorised row by row, the second derivative by W_l[i, j] and W_k[a, b] is, for k <= l,

    (A_l^T A_k)[i, a] (P_l Sigma P_k^T)[j, b]            outer product: a Kronecker product
  + (A_l^T Omega P_k^T)[i, b] C_lk[j, a]    (k < l)      functional: the same with the indices of W_k crossed

These are equations 3 to 5 of Singh, Bachmann & Hofmann (2021). The paper differentiates 4 and 5 by the transposed
weight; the crossed indices undo that transposition. Biases are one more column of each layer (see ``network``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator as ScipyOperator
from scipy.sparse.linalg import eigsh
from torch import Tensor

from hessmap.errors import require_name
from hessmap.linalg.devices import require_memory
from hessmap.linalg.operator import SymmetricOperator
from hessmap.records import PARTS, Part
from hessmap_research.deep_linear.network import DeepLinear

Pair = tuple[Tensor, Tensor]
_SMALL = 64


@dataclass(frozen=True, eq=False)
class BlockFactors:
    """The block of layers l and k: outer_product[0][i, a] outer_product[1][j, b] +
    functional[0][i, b] functional[1][j, a].

    ``outer_product`` is None in the functional part, ``functional`` on the diagonal and in the outer-product part.
    """

    outer_product: Pair | None
    functional: Pair | None

    def transpose(self) -> BlockFactors:
        """The block of layers k and l."""
        outer_product, functional = self.outer_product, self.functional
        return BlockFactors(
            None if outer_product is None else (outer_product[0].T, outer_product[1].T),
            None if functional is None else (functional[1].T, functional[0].T),
        )

    def symmetric_part(self) -> BlockFactors:
        """A diagonal block that is symmetric to the last digit."""
        if self.outer_product is None:
            return self
        output_factor, input_factor = self.outer_product
        return BlockFactors(((output_factor + output_factor.T) / 2, (input_factor + input_factor.T) / 2), None)

    def in_bases(self, rows: Pair, columns: Pair) -> BlockFactors:
        """The block in other coordinates: output and input basis of the row layer, and of the column layer."""
        outer_product, functional = self.outer_product, self.functional
        return BlockFactors(
            None if outer_product is None else _in_bases(outer_product, rows, columns),
            None if functional is None else _in_bases(functional, rows, (columns[1], columns[0])),
        )

    def write(self, block: Tensor, rows: Section, columns: Section) -> None:
        """Fill ``block``, a view into a matrix, with the entries of the sections."""
        i, j, a, b = rows.outputs, rows.inputs, columns.outputs, columns.inputs
        entries = block.view(*rows.shape, *columns.shape)
        if self.outer_product is None:
            entries.zero_()
        else:
            output_factor, input_factor = self.outer_product[0][i, a], self.outer_product[1][j, b]
            torch.mul(output_factor[:, None, :, None], input_factor[None, :, None, :], out=entries)
        if self.functional is not None:
            residual_factor, path_factor = self.functional[0][i, b], self.functional[1][j, a]
            entries.addcmul_(residual_factor[:, None, None, :], path_factor[None, :, :, None])


@dataclass(frozen=True)
class Section:
    """Parameters of one layer that stand together in a matrix: a range of outputs times a range of inputs."""

    place: slice
    outputs: slice
    inputs: slice

    @property
    def shape(self) -> tuple[int, int]:
        return self.outputs.stop - self.outputs.start, self.inputs.stop - self.inputs.start


def section(start: int, outputs: slice, inputs: slice) -> Section:
    """The section that begins at ``start`` in its matrix."""
    count = (outputs.stop - outputs.start) * (inputs.stop - inputs.start)
    return Section(slice(start, start + count), outputs, inputs)


def block_factors(network: DeepLinear, part: Part, later: int, earlier: int) -> BlockFactors:
    """The closed form of the block of two layers, counted from 0, ``earlier`` not after ``later``."""
    forward, backward = network.forward_products, network.backward_products
    outer_product = functional = None
    if part != "functional":
        output_factor = backward[later].T @ backward[earlier]
        outer_product = output_factor, forward[later] @ network.input_second_moment @ forward[earlier].T
    if part != "outer_product" and later != earlier:
        residual_factor = backward[later].T @ network.residual_input_moment @ forward[earlier].T
        functional = residual_factor, network.between_products[later, earlier]
    return BlockFactors(outer_product, functional)


def assemble(sections: Sequence[Sequence[Section]], factors: Callable[[int, int], BlockFactors]) -> Tensor:
    """The symmetric matrix of the sections of all layers, from the factors of each pair (later, earlier)."""
    size = sum(part.place.stop - part.place.start for layer in sections for part in layer)
    matrix = torch.empty(size, size, dtype=torch.float64)
    for later in range(len(sections)):
        for earlier in range(later + 1):
            block = factors(later, earlier)
            if later == earlier:
                block = block.symmetric_part()
            mirrored = block.transpose()
            for rows in sections[later]:
                for columns in sections[earlier]:
                    block.write(matrix[rows.place, columns.place], rows, columns)
                    if later != earlier:
                        mirrored.write(matrix[columns.place, rows.place], columns, rows)
    return matrix


def dense_hessian(network: DeepLinear, part: Part) -> Tensor:
    """The Hessian of one part as a matrix, in the order of ``network.layout``."""
    sections: list[list[Section]] = []
    start = 0
    for outputs, inputs in network.shapes:
        sections.append([section(start, slice(0, outputs), slice(0, inputs))])
        start += outputs * inputs
    matrix = assemble(sections, lambda later, earlier: block_factors(network, part, later, earlier))
    if not network.has_bias:
        return matrix
    order = _flat_order(network)
    return matrix[order[:, None], order]


def _in_bases(factors: Pair, rows: Pair, columns: Pair) -> Pair:
    return rows[0].T @ factors[0] @ columns[0], rows[1].T @ factors[1] @ columns[1]


def _flat_order(network: DeepLinear) -> Tensor:
    """Where each parameter of the flat layout lies among the entries of the matrices [W, b], row by row."""
    order: list[Tensor] = []
    start = 0
    for outputs, inputs in network.shapes:
        places = torch.arange(start, start + outputs * inputs).reshape(outputs, inputs)
        order += [places[:, :-1].reshape(-1), places[:, -1]]
        start += places.numel()
    return torch.cat(order)


class DeepLinearHessian(SymmetricOperator):
    """One part of the Hessian of a deep linear network under the squared loss.

    A product is the directional derivative of the gradient A_l^T Omega P_l^T of each layer: along dW the maps change by
    dP_{l+1} = W_l dP_l + dW_l P_l and dA_{l-1} = dA_l W_l + A_l dW_l, and Omega by d(output map) Sigma. The last is the
    outer-product Hessian, the other two are the functional one.
    """

    def __init__(self, network: DeepLinear, part: Part = "loss") -> None:
        require_name("part", part, PARTS)
        self.network = network
        self.part = part
        self.layout = network.layout

    @property
    def size(self) -> int:
        return self.network.num_parameters

    @property
    def scale(self) -> float:
        """The spectral norm of the loss Hessian, whichever part this is."""
        return self.norm if self.part == "loss" else self._loss.norm

    @cached_property
    def _loss(self) -> DeepLinearHessian:
        return DeepLinearHessian(self.network, "loss")

    @cached_property
    def norm(self) -> float:
        """The spectral norm of this part, by Lanczos from a fixed start."""
        if self.size <= _SMALL:
            return float(torch.linalg.matrix_norm(self.to_dense(), 2))
        start = np.random.default_rng(0).standard_normal(self.size)

        def product(vector: np.ndarray) -> np.ndarray:
            return (self @ torch.from_numpy(vector.reshape(-1))).numpy()

        if not product(start).any():
            return 0.0
        scipy_operator = ScipyOperator((self.size, self.size), matvec=product, dtype=np.float64)
        # Both ends, not the largest magnitude: where they differ only in sign, that one never converges.
        ends = eigsh(scipy_operator, k=2, which="BE", v0=start, tol=1e-10, return_eigenvectors=False)
        return float(np.abs(ends).max())

    def matmat(self, vectors: Tensor) -> Tensor:
        network = self.network
        directions = self._matrices(vectors)
        forward, backward = network.forward_products, network.backward_products
        omega = network.residual_input_moment
        forward_tangents, output_tangent = self._forward_tangents(directions)
        backward_tangents = self._backward_tangents(directions)
        products = []
        for layer in range(network.num_layers):
            change = torch.zeros_like(directions[layer])
            if self.part != "functional":
                change += backward[layer].T @ output_tangent @ network.input_second_moment @ forward[layer].T
            if self.part != "outer_product":
                change += backward_tangents[layer].mT @ (omega @ forward[layer].T)
                change += (backward[layer].T @ omega) @ forward_tangents[layer].mT
            products.append(change)
        return self._flat(products)

    def to_dense(self) -> Tensor:
        require_memory(f"a dense Hessian of {self.size} parameters", 8 * self.size**2, "Use products instead")
        return dense_hessian(self.network, self.part)

    def _forward_tangents(self, directions: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        """dP_l for every layer, shape (count, n_l, n_0), and the tangent of the map from data to output."""
        network = self.network
        change = torch.zeros(directions[0].shape[0], *network.forward_products[0].shape, dtype=self.dtype)
        tangents = [change]
        for layer, weight in enumerate(network.weights):
            # With a bias the last input is constant and does not change.
            tangent = weight @ change[:, : weight.shape[1]] + directions[layer] @ network.forward_products[layer]
            constant = tangent.new_zeros(len(tangent), int(network.has_bias), tangent.shape[2])
            change = torch.cat([tangent, constant], dim=1)
            tangents.append(change)
        return tangents[:-1], tangent

    def _backward_tangents(self, directions: list[Tensor]) -> list[Tensor]:
        """dA_l for every layer, shape (count, output_dim, m_l)."""
        network = self.network
        output_dim = network.widths[-1]
        tangents = [torch.zeros(directions[0].shape[0], output_dim, output_dim, dtype=self.dtype)]
        for layer in reversed(range(1, network.num_layers)):
            weight = network.weights[layer]
            own = network.backward_products[layer] @ directions[layer][:, :, : weight.shape[1]]
            tangents.append(tangents[-1] @ weight + own)
        return tangents[::-1]

    def _matrices(self, vectors: Tensor) -> list[Tensor]:
        """The columns of ``vectors`` as matrices [W, b] of every layer, shape (count, m_l, n_l)."""
        layout = self.network.layout
        pieces = [vectors[place].T.reshape(-1, *layout.shape(name)) for name, place in layout]
        if not self.network.has_bias:
            return pieces
        pairs = zip(pieces[::2], pieces[1::2], strict=True)
        return [torch.cat([weight, bias[:, :, None]], dim=2) for weight, bias in pairs]

    def _flat(self, matrices: list[Tensor]) -> Tensor:
        rows = []
        for matrix, weight in zip(matrices, self.network.weights, strict=True):
            rows += [matrix[:, :, : weight.shape[1]].flatten(1), matrix[:, :, weight.shape[1] :].flatten(1)]
        return torch.cat(rows, dim=1).T
