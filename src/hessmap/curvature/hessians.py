"""The three Hessians of a problem as symmetric operators: H_L = H_o + H_f (+ 2 l2 I)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from hessmap.curvature.lanczos import spectral_norm
from hessmap.curvature.layers.diagonal import exact_diagonal
from hessmap.curvature.lifted import DenseHessian, dense_hessian
from hessmap.curvature.losses import require_parts
from hessmap.curvature.operator import SymmetricOperator
from hessmap.curvature.problem import Problem, require_problem
from hessmap.curvature.products import BlockProducts
from hessmap.curvature.second_derivatives import require_symmetric_products, twice_differentiable
from hessmap.results import Part, Provenance

_SMALL = 3000  # parameters of a chain whose matrix costs as much as a product with a third of them, or less
_PRODUCTS_OF_A_MATRIX = 1 / 3


class Hessian(SymmetricOperator):
    """One of the three Hessians. Products are matrix-free until ``to_dense`` was called, then they use the matrix."""

    makes_new_images = True

    def __init__(self, problem: Problem, part: Part) -> None:
        require_problem(problem)
        if part != "loss":
            require_parts(problem.loss, f"the {part.replace('_', '-')} Hessian")
        self.problem = problem
        self.part = part
        self.layout = problem.layout
        self.dtype = problem.parameters.dtype
        self._products = BlockProducts(problem, part)
        self._dense: DenseHessian | None = None

    @property
    def size(self) -> int:
        return self.problem.num_parameters

    @property
    @twice_differentiable()
    def block_size(self) -> int:
        return super().block_size if self._dense is not None else self._products.block_size

    @property
    def scale(self) -> float:
        """||H_L||, for all three Hessians: a part that vanishes beside the whole has no rank of its own."""
        return loss_norm(self.problem)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the dense form was found, once it was asked for, and what was done to the user's problem."""
        return self.problem.notes + (self._dense.notes if self._dense else ())

    @property
    def provenance(self) -> Provenance:
        return replace(self.problem.provenance, notes=self.notes)

    @cached_property
    @twice_differentiable()
    def dense(self) -> DenseHessian:
        self._dense = dense_hessian(self.problem, self.part)
        return self._dense

    def expect_products(self, count: int) -> None:
        """Write the matrix down where that costs less than so many products; else leave it to them to prepare."""
        if self._dense is None and count >= _PRODUCTS_OF_A_MATRIX * self.size and self._is_small_chain:
            self.problem.add_note(
                f"the {self.part} Hessian was written down for {count} products, which use the matrix"
            )
            self.to_dense()
        self._products.expect(count)

    @property
    def _is_small_chain(self) -> bool:
        fits = 3 * self.dtype.itemsize * self.size**2 <= self.problem.memory_budget
        return self.size <= _SMALL and self.dtype == torch.float64 and fits and self._products.is_chain

    def matmat(self, vectors: Tensor) -> Tensor:
        if self._dense is not None:
            return (self._dense.matrix @ vectors.to(self._dense.matrix)).to(vectors)
        with twice_differentiable():
            require_symmetric_products(self.problem, self.part)
            return self._products(vectors)

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        """That of the matrix if it was written down, else from the structure of layers where that tells it."""
        if self._dense is not None:
            return self._dense.matrix.diagonal().to("cpu", torch.float64)
        return exact_diagonal(self.problem, self.part, max_products=max_products)

    def to_dense(self) -> Tensor:
        """The matrix that products use from now on, not a copy of it: change a clone."""
        return self.dense.matrix

    def in_single_precision(self) -> Hessian | None:
        """Products with a copy of the model in float32; None where it has none, or where the matrix is at hand."""
        single = self.problem.in_single_precision() if self._dense is None else None
        if single is None:
            return None
        narrow = Hessian(single, self.part)
        narrow.expect_products(self._products.num_expected)
        return narrow

    def __repr__(self) -> str:
        return f"{self.part} Hessian of size {self.size} of {self.problem!r}"


def loss_hessian(problem: Problem) -> Hessian:
    """The second derivative of the risk.

    >>> import torch, hessmap as hm
    >>> problem = hm.Problem(torch.nn.Linear(2, 1, bias=False), "squared", torch.eye(2), torch.ones(2, 1))
    >>> loss_hessian(problem).to_dense()  # the mean of x x^T
    tensor([[0.5000, 0.0000],
            [0.0000, 0.5000]], dtype=torch.float64)
    """
    return Hessian(problem, "loss")


def outer_product_hessian(problem: Problem) -> Hessian:
    """The part through first derivatives of the outputs: E[J^T (d2loss/doutput2) J], positive for convex losses.

    >>> import torch, hessmap as hm
    >>> problem = hm.Problem(hm.FullyConnected((2, 3, 1)).build(seed=0), "squared", torch.eye(2), torch.ones(2, 1))
    >>> bool(torch.linalg.eigvalsh(outer_product_hessian(problem).to_dense()).min() > -1e-12)
    True
    """
    return Hessian(problem, "outer_product")


def functional_hessian(problem: Problem) -> Hessian:
    """The part through second derivatives of the outputs: E[sum_c residual_c d2output_c], zero at interpolation.

    >>> import torch, hessmap as hm
    >>> model = hm.FullyConnected((2, 3, 1)).build(seed=0)
    >>> fitted = hm.Problem(model, "squared", torch.eye(2), model(torch.eye(2).double()).detach())
    >>> bool(functional_hessian(fitted).to_dense().abs().max() < 1e-12)  # no residual, no functional part
    True
    """
    return Hessian(problem, "functional")


@twice_differentiable()
def loss_norm(problem: Problem) -> float:
    """||H_L||_2 to about 1e-3, enough to anchor a threshold. Found once per problem."""
    products = BlockProducts(problem, "loss", may_trace=False)
    return problem.find_once("loss_norm", lambda: spectral_norm(products, problem.num_parameters))
