"""The three Hessians of a problem as symmetric operators: H_L = H_o + H_f (+ 2 l2 I)."""

from __future__ import annotations

from functools import cached_property

import torch
from scipy.sparse.linalg import LinearOperator as ScipyOperator
from scipy.sparse.linalg import eigsh
from torch import Tensor

from hessmap.curvature.lifted import DenseHessian, dense_hessian
from hessmap.curvature.operator import SymmetricOperator
from hessmap.curvature.problem import Problem
from hessmap.curvature.products import hessian_product
from hessmap.results import Part


class Hessian(SymmetricOperator):
    """One of the three Hessians. Products are matrix-free until ``to_dense`` was called, then they use the matrix."""

    def __init__(self, problem: Problem, part: Part) -> None:
        self.problem = problem
        self.part = part
        self.layout = problem.layout
        self._dense: DenseHessian | None = None

    @property
    def size(self) -> int:
        return self.problem.num_parameters

    @property
    def scale(self) -> float:
        """||H_L||, for all three Hessians: a part that vanishes beside the whole has no rank of its own."""
        return loss_norm(self.problem)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the dense form was found, once it was asked for, and what was done to the user's problem."""
        return self.problem.notes + (self._dense.notes if self._dense else ())

    @cached_property
    def dense(self) -> DenseHessian:
        self._dense = dense_hessian(self.problem, self.part)
        return self._dense

    def matmat(self, vectors: Tensor) -> Tensor:
        if self._dense is not None:
            return self._dense.matrix @ vectors
        return hessian_product(self.problem, self.part, vectors)

    def to_dense(self) -> Tensor:
        return self.dense.matrix

    def __repr__(self) -> str:
        return f"{self.part} Hessian of size {self.size} of {self.problem!r}"


def loss_hessian(problem: Problem) -> Hessian:
    """The second derivative of the risk."""
    return Hessian(problem, "loss")


def outer_product_hessian(problem: Problem) -> Hessian:
    """The part through first derivatives of the outputs: E[J^T (d2loss/doutput2) J], positive for convex losses."""
    return Hessian(problem, "outer_product")


def functional_hessian(problem: Problem) -> Hessian:
    """The part through second derivatives of the outputs: E[sum_c residual_c d2output_c], zero at interpolation."""
    return Hessian(problem, "functional")


def loss_norm(problem: Problem) -> float:
    """||H_L||_2, by Lanczos to 1e-3: enough to anchor a threshold. Found once per problem."""
    if problem.norm is None:
        problem.norm = _spectral_norm(problem)
    return problem.norm


def _spectral_norm(problem: Problem) -> float:
    size = problem.num_parameters

    def product(vector: object) -> object:
        column = torch.as_tensor(vector, dtype=torch.float64).reshape(size, 1)
        return hessian_product(problem, "loss", column)[:, 0].numpy()

    start = torch.randn(size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    if size <= 2 or float((first := hessian_product(problem, "loss", start[:, None])).norm()) == 0:
        return float(torch.linalg.matrix_norm(hessian_product(problem, "loss", torch.eye(size).double()), 2))
    operator = ScipyOperator((size, size), matvec=product, dtype="float64")
    largest = eigsh(operator, k=1, which="LM", v0=first[:, 0].numpy(), tol=1e-3, return_eigenvectors=False)
    return float(abs(largest[0]))
