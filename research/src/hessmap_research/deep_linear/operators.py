"""The three Hessians of a deep linear network as operators: products by small matrix products, no autograd."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator as ScipyOperator
from scipy.sparse.linalg import eigsh
from torch import Tensor

from hessmap.errors import require_name
from hessmap.linalg.memory import require_memory
from hessmap.linalg.operator import SymmetricOperator
from hessmap.records import PARTS, Part
from hessmap_research.deep_linear.blocks import dense_hessian
from hessmap_research.deep_linear.network import DeepLinear

_SMALL = 64


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
        # Both ends, not the largest magnitude: where they are equal but for the sign, that one never settles.
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
