"""The Kronecker product of a layer's two factors, with its spectrum from theirs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import scipy.linalg
import torch
from torch import Tensor

from hessmap.errors import require
from hessmap.layers.factors import LayerFactors, PatchRule, layer_factors
from hessmap.linalg import Layout, SymmetricOperator, to_host
from hessmap.problem import Problem

_RANK_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class FactorPairs:
    """Leading eigenpairs of a Kronecker product.

    Attributes:
        eigenvalues: Eigenvalues in descending order.
        output_index: For each, the index of the eigenvector of the output factor (descending order).
        input_index: For each, the index of the eigenvector of the input factor (descending order).
    """

    eigenvalues: Tensor
    output_index: Tensor
    input_index: Tensor


class KroneckerProduct(SymmetricOperator):
    """output_factor (x) input_factor, over matrices of shape (outputs, inputs) flattened row by row.

    Args:
        output_factor: Symmetric matrix (outputs, outputs).
        input_factor: Symmetric matrix (inputs, inputs).
        layout: Names and shapes of the parameters. Defaults to None.

    Raises:
        InvalidInput: If a factor is not square.

    Example:
        >>> product = KroneckerProduct(torch.diag(torch.tensor([3.0, 1.0]).double()), torch.eye(2).double())
        >>> product.leading(3).eigenvalues.tolist(), product.trace, product.rank
        ([3.0, 3.0, 1.0], 8.0, 4)
    """

    def __init__(self, output_factor: Tensor, input_factor: Tensor, layout: Layout | None = None) -> None:
        for name, factor in (("output_factor", output_factor), ("input_factor", input_factor)):
            is_square = factor.ndim == 2 and factor.shape[0] == factor.shape[1]
            require(is_square, f"{name} must be a square matrix", f"got shape {tuple(factor.shape)}")
        self.output_factor = output_factor
        self.input_factor = input_factor
        self.layout = layout
        self.device = output_factor.device

    @property
    def weight_shape(self) -> tuple[int, int]:
        return len(self.output_factor), len(self.input_factor)

    @property
    def size(self) -> int:
        return len(self.output_factor) * len(self.input_factor)

    def matmat(self, vectors: Tensor) -> Tensor:
        dtype = torch.promote_types(vectors.dtype, self.output_factor.dtype)
        matrices = vectors.T.reshape(-1, *self.weight_shape).to(self.device, dtype)
        product = (self.output_factor @ matrices @ self.input_factor).reshape(len(matrices), -1).T
        return product.to(vectors.device)

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        return torch.outer(self.output_factor.diagonal(), self.input_factor.diagonal()).flatten()

    def to_dense(self) -> Tensor:
        return torch.kron(self.output_factor, self.input_factor)

    @cached_property
    def output_eigenpairs(self) -> tuple[Tensor, Tensor]:
        return _descending_eigenpairs(self.output_factor)

    @cached_property
    def input_eigenpairs(self) -> tuple[Tensor, Tensor]:
        return _descending_eigenpairs(self.input_factor)

    @property
    def trace(self) -> float:
        return float(self.output_factor.trace() * self.input_factor.trace())

    @property
    def frobenius_norm(self) -> float:
        return float(self.output_factor.norm() * self.input_factor.norm())

    @property
    def norm(self) -> float:
        """Spectral norm."""
        return float(self.output_eigenpairs[0].abs().max() * self.input_eigenpairs[0].abs().max())

    @property
    def rank(self) -> int:
        """Product of the factors' numerical ranks, each with a threshold of 1e-12 of its norm."""
        ranks = [_rank(values) for values, _ in (self.output_eigenpairs, self.input_eigenpairs)]
        return ranks[0] * ranks[1]

    def leading(self, count: int) -> FactorPairs:
        """The ``count`` largest eigenvalues, and the pairs of factor eigenvectors they belong to."""
        size = self.size
        require(0 < count <= size, f"count must be between 1 and the size {size}", f"got {count}")
        values = self.output_eigenpairs[0][:, None] * self.input_eigenpairs[0][None, :]
        # A stable sort of the negatives: equal values keep the order of the factors.
        order = torch.argsort(-values.flatten(), stable=True)[:count]
        width = len(self.input_factor)
        return FactorPairs(values.flatten()[order], order // width, order % width)

    def eigenvectors(self, pairs: FactorPairs) -> Tensor:
        """Eigenvectors u_i (x) v_j of some pairs, as columns."""
        left = self.output_eigenpairs[1][:, pairs.output_index]
        right = self.input_eigenpairs[1][:, pairs.input_index]
        return (left[:, None, :] * right[None, :, :]).reshape(self.size, -1)

    def in_eigenbasis(self, vectors: Tensor) -> Tensor:
        """Coordinates along the eigenvectors u_i (x) v_j, entry i * num_inputs + j: vec(U^T Mat(w) V)."""
        return self._rotated_vectors(vectors, self.output_eigenpairs[1].T, self.input_eigenpairs[1])

    def from_eigenbasis(self, coordinates: Tensor) -> Tensor:
        """The inverse of ``in_eigenbasis``."""
        return self._rotated_vectors(coordinates, self.output_eigenpairs[1], self.input_eigenpairs[1].T)

    def _rotated_vectors(self, vectors: Tensor, left: Tensor, right: Tensor) -> Tensor:
        matrices = vectors.reshape(self.size, -1).T.reshape(-1, *self.weight_shape)
        return (left @ matrices @ right).reshape(len(matrices), -1).T.reshape(vectors.shape)

    def __repr__(self) -> str:
        outputs, inputs = self.weight_shape
        return f"{type(self).__name__} of size {self.size} ({outputs} outputs x {inputs} inputs)"


def kronecker_approximation(
    problem: Problem, name: str, *, with_bias: bool = False, patch_rule: PatchRule = "uncorrelated_patches"
) -> KroneckerProduct:
    """Approximate a layer Hessian by E[M] (x) E[x x^T], exact if M and x x^T are uncorrelated (Wu et al. 2022, equation
    3).

    Args:
        problem: Problem that the layer belongs to.
        name: Name of the layer, as in ``model.named_modules()``.
        with_bias: Extend the weight by the layer's bias. Defaults to False.
        patch_rule: How positions are combined, see ``layer_factors``. Defaults to "uncorrelated_patches".

    Returns:
        KroneckerProduct: an operator with the eigenpairs of both factors.

    Raises:
        UnsupportedNetwork: If the layer's structure is not supported.

    Example:
        >>> import torch, hessmap as hm
        >>> problem = hm.Problem(torch.nn.Linear(3, 2, bias=False), "squared", torch.randn(9, 3), torch.randn(9, 2))
        >>> exact = hm.layer_hessian(problem, hm.layer_names(problem)[0]).to_dense()
        >>> bool(torch.allclose(kronecker_approximation(problem, hm.layer_names(problem)[0]).to_dense(), exact))
        True
    """
    return product_of_factors(layer_factors(problem, name, with_bias=with_bias, patch_rule=patch_rule))


def product_of_factors(factors: LayerFactors) -> KroneckerProduct:
    """Form the Kronecker product of two factors.

    Args:
        factors: Factors of a layer, from ``layer_factors``.

    Returns:
        KroneckerProduct over the weight as it is stored: if it is stored as inputs x outputs (an embedding), the
        factors are exchanged.
    """
    first, second = factors.output_factor, factors.input_factor
    if factors.layer.is_transposed:
        first, second = second, first
    return KroneckerProduct(first, second, factors.layer.layout)


def eigenpairs_of(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues in ascending order, and eigenvectors as columns, of a symmetric matrix.

    Rows of zeros (inputs that no sample uses, dead units) belong to unit vectors and are left out of the decomposition.
    LAPACK's divide and conquer can fail to converge for factors of low rank; then the rest is decomposed by relatively
    robust representations in float64 on the host.
    """
    is_used = (matrix != 0).any(1)
    if not bool(is_used.all()):
        place, unused = is_used.nonzero().flatten(), (~is_used).nonzero().flatten()
        own = eigenpairs_of(matrix[place][:, place]) if len(place) else (matrix.new_zeros(0), matrix.new_zeros(0, 0))
        values, vectors = matrix.new_zeros(len(matrix)), torch.zeros_like(matrix)
        values[: len(place)] = own[0]
        vectors[place, : len(place)] = own[1]
        vectors[unused, torch.arange(len(place), len(matrix), device=matrix.device)] = 1.0
        order = values.argsort(stable=True)
        return values[order], vectors[:, order]
    symmetric = (matrix + matrix.T) / 2
    try:
        values, vectors = torch.linalg.eigh(symmetric)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        pair = scipy.linalg.eigh(to_host(symmetric).numpy(), driver="evr")
        values, vectors = (torch.from_numpy(found).to(matrix) for found in pair)
    return values, vectors


def _descending_eigenpairs(factor: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = eigenpairs_of(factor)
    return values.flip(0), vectors.flip(1)


def _rank(values: Tensor) -> int:
    return int((values.abs() > _RANK_TOLERANCE * values.abs().max()).sum()) if len(values) else 0
