"""The three Hessians of a problem as symmetric operators, H_L = H_o + H_f (+ 2 l2 I), and the empirical Fisher matrix.

A product is always computed from the model: neither ``to_dense`` nor a measurement changes what ``H @ v`` computes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Literal, overload

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, sentence
from hessmap.hessians.dense import DenseHessian, dense_hessian, require_symmetric_matrix
from hessmap.hessians.diagonal import exact_diagonal
from hessmap.hessians.finite_difference import expected_difference_error
from hessmap.hessians.products import BlockProducts
from hessmap.linalg import KEPT, Places, SymmetricOperator, full_precision, spectral_norm
from hessmap.losses import require_parts
from hessmap.problem import (
    DistributedProblem,
    Problem,
    require_problem,
    require_samples,
    require_symmetric_products,
    twice_differentiable,
)
from hessmap.records import Part, Provenance

Kind = Part | Literal["empirical_fisher"]

# benchmarks/peers/rows.py times eigenvalues of a small MLP, which these decide.
_SMALL = 3000  # parameters of an MLP up to which forming the matrix costs at most a third as many products
_PRODUCTS_OF_A_MATRIX = 1 / 3
_TINY = 256  # parameters up to which the whole matrix costs no more than to prepare for products


class Hessian(SymmetricOperator):
    """One of the three Hessians, or the empirical Fisher matrix.

    Products are matrix-free; the dense form has an engine of its own, which products never use.

    Args:
        problem: Model, data and loss.
        part: "loss", "outer_product", "functional" or "empirical_fisher".
    """

    makes_new_images = True

    def __init__(self, problem: Problem, part: Kind) -> None:
        require_problem(problem)
        if part in ("outer_product", "functional"):
            require_parts(problem.loss, f"the {part.replace('_', '-')} Hessian")
        if part == "empirical_fisher":
            require_samples(problem, "the empirical Fisher matrix")
        self.problem = problem
        self.part = part
        self.layout = problem.layout
        self.dtype, self.device = problem.parameters.dtype, problem.device
        self._local = problem.local
        self._products = BlockProducts(self._local, part)
        self._kept: DenseHessian | None = None
        self._is_checked = False
        self._dense_notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.problem.num_parameters

    @cached_property
    @twice_differentiable()
    def block_size(self) -> int:
        return self.problem.least(self._products.block_size)

    @cached_property
    @twice_differentiable()
    def memory_budget(self) -> int:
        return self.problem.least(self._products.bytes_for_vectors)

    @property
    def scale(self) -> float | None:
        """||H_L||, for all three Hessians: a part that vanishes beside the whole has no rank of its own. The empirical
        Fisher matrix is no part of it, and has a scale of its own."""
        return None if self.part == "empirical_fisher" else loss_norm(self.problem)

    @property
    def product_error(self) -> float:
        """Relative error that products may have beyond rounding: that of finite differences, else 0.0."""
        problem = self.problem
        if problem.products != "finite_difference":
            return 0.0
        return expected_difference_error(problem.narrowest_format or problem.dtype)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the dense form was found, once it was asked for, and what was done to the user's problem."""
        return self.problem.notes + self._dense_notes

    @property
    def provenance(self) -> Provenance:
        return replace(self.problem.provenance, notes=self.notes)

    @property
    def dense(self) -> DenseHessian:
        """The dense form, with how it was found and checked. The matrix is the caller's own: a small one is kept and
        copied at every call, a large one is found at every call."""
        found = self._found_dense()
        return replace(found, matrix=found.matrix.clone()) if found is self._kept else found

    @twice_differentiable()
    def _found_dense(self) -> DenseHessian:
        """The dense form, not to be changed: a small one is kept."""
        with full_precision(self.device):
            found = self._kept
            if found is None:
                own = dense_hessian(self._local, self.part)
                found = replace(own, matrix=self.problem.mean_over_processes(own.matrix))
        self._dense_notes = found.notes
        self._kept = found if found.matrix.nbytes <= KEPT else None
        return found

    def matrix_for_products(self, count: int) -> Tensor | None:
        """The matrix of a small MLP, where forming it costs less than ``count`` products; ``H @ v`` never uses it."""
        is_split = self._local is not self.problem
        if is_split or count < _PRODUCTS_OF_A_MATRIX * self.size or not self._is_small_mlp:
            return None
        self.problem.add_note(f"the {self.part} Hessian was formed for {count} products, which use the matrix")
        return self.to_dense()

    @property
    def _is_small_mlp(self) -> bool:
        fits = 3 * self.dtype.itemsize * self.size**2 <= self.problem.memory_budget
        is_small = self.size <= _SMALL and self.dtype == torch.float64 and fits and self.problem.samples.is_held
        return is_small and self._products.engine.name == "mlp"

    def matmat(self, vectors: Tensor) -> Tensor:
        with twice_differentiable():
            if self.problem.products == "auto" and not self._is_checked:
                require_symmetric_products(self._local, self.part)
                self._is_checked = True
            return self.problem.mean_over_processes(self._products(vectors))

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        """From the structure of layers where that tells it, to every process."""
        with full_precision(self.device):
            own = exact_diagonal(self._local, self.part, max_products=max_products)
        if self.problem.least(int(own is not None)) == 0:
            return None
        assert own is not None
        return self.problem.mean_over_processes(own)

    def to_dense(self) -> Tensor:
        """The matrix, in memory that nothing else uses; products are made as before."""
        return self.dense.matrix

    @twice_differentiable()
    def dense_block(self, rows: Places, columns: Places) -> Tensor:
        """By products with the unit vectors of the block, or by the dense engine where the matrix is tiny, or fits the
        budget and the block is a large part of it."""
        places = torch.arange(self.size)
        fewest = min(len(places[rows]), len(places[columns]))
        fits = self.dtype.itemsize * self.size**2 <= self.problem.memory_budget
        if self.size <= _TINY or (fits and fewest >= _PRODUCTS_OF_A_MATRIX * self.size):
            return self.to_dense()[rows][:, columns].clone()
        found = super().dense_block(rows, columns)
        if not torch.equal(places[rows], places[columns]):
            return found
        require_symmetric_matrix(self._local, self.part, found)
        return (found + found.T) / 2

    def in_single_precision(self) -> Hessian | None:
        """Products with a copy of the model in float32; None where it has none."""
        single = self.problem.in_single_precision()
        return None if single is None else Hessian(single, self.part)

    def __repr__(self) -> str:
        name = "empirical Fisher matrix" if self.part == "empirical_fisher" else f"{self.part} Hessian"
        return f"{name} of size {self.size} of {self.problem!r}"


def loss_hessian(problem: Problem) -> Hessian:
    """The second derivative of the risk.

    Args:
        problem: Model, data and loss.

    Returns:
        Hessian: A symmetric operator H_L = H_o + H_f (+ 2 l2 I), matrix-free.

    Example:
        >>> import torch, hessmap as hm
        >>> problem = hm.Problem(torch.nn.Linear(2, 1, bias=False), "squared", torch.eye(2), torch.ones(2, 1))
        >>> loss_hessian(problem).to_dense()  # the mean of x x^T
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]], dtype=torch.float64)
    """
    return Hessian(problem, "loss")


def outer_product_hessian(problem: Problem) -> Hessian:
    """The part of the loss Hessian through first derivatives of the outputs: E[J^T (d2loss/doutput2) J].

    Args:
        problem: Model, data and loss.

    Returns:
        Hessian: The operator H_o (GGN), positive semidefinite for convex losses.

    Raises:
        InvalidInput: If the problem has no per-sample loss in the outputs.

    Example:
        >>> import torch, hessmap as hm
        >>> problem = hm.Problem(hm.FullyConnected((2, 3, 1)).build(seed=0), "squared", torch.eye(2), torch.ones(2, 1))
        >>> bool(torch.linalg.eigvalsh(outer_product_hessian(problem).to_dense()).min() > -1e-12)
        True
    """
    return Hessian(problem, "outer_product")


def functional_hessian(problem: Problem) -> Hessian:
    """The part of the loss Hessian through second derivatives of the outputs: E[sum_c residual_c d2output_c].

    Args:
        problem: Model, data and loss.

    Returns:
        Hessian: The operator H_f, zero at interpolation.

    Raises:
        InvalidInput: If the problem has no per-sample loss in the outputs.

    Example:
        >>> import torch, hessmap as hm
        >>> model = hm.FullyConnected((2, 3, 1)).build(seed=0)
        >>> fitted = hm.Problem(model, "squared", torch.eye(2), model(torch.eye(2).double()).detach())
        >>> bool(functional_hessian(fitted).to_dense().abs().max() < 1e-12)  # no residual, no functional part
        True
    """
    return Hessian(problem, "functional")


def _loss_norm(products: BlockProducts, problem: Problem) -> float:
    return spectral_norm(
        lambda vectors: problem.mean_over_processes(products(vectors)), problem.num_parameters, device=problem.device
    )


@twice_differentiable()
def loss_norm(problem: Problem) -> float:
    """||H_L||_2 to about 1e-3, enough to anchor a threshold. Found once per problem."""
    products = BlockProducts(problem.local, "loss", ("mlp", "autograd"))
    return problem.cached("loss_norm", _loss_norm, products, problem)


def fisher(problem: Problem) -> Hessian:
    """E_x E_y[grad log p(y|x) grad log p(y|x)^T], y drawn from the MODEL's own distribution, not from the data.

    Args:
        problem: Model, data and loss.

    Returns:
        Hessian: The outer-product Hessian, which equals the Fisher information of such a loss.

    Raises:
        InvalidInput: If the loss is not known to be a negative log-likelihood.

    Notes:
        The loss must be minus the logarithm of a distribution whose natural parameters are the outputs: softmax
        cross-entropy, or squared (a Gaussian of unit variance). There the Fisher information equals the outer-product
        Hessian, for any targets (Martens 2020, "New insights and perspectives on the natural gradient method",
        section 9).

    Example:
        >>> import torch, hessmap as hm
        >>> problem = hm.Problem(torch.nn.Linear(2, 2), "cross_entropy", torch.eye(2), torch.tensor([0, 1]))
        >>> outer = hm.outer_product_hessian(problem).to_dense()
        >>> bool(torch.allclose(fisher(problem).to_dense(), outer))  # of cross-entropy it is the outer-product Hessian
        True
    """
    require_problem(problem)
    require_parts(problem.loss, "the Fisher information")
    if not problem.loss.is_log_likelihood:
        must = "the Fisher information needs a loss that is a negative log-likelihood with the outputs as parameters"
        remedy = "Use outer_product_hessian(problem), or empirical_fisher(problem)"
        raise InvalidInput(sentence(must, f"'{problem.loss.name}' is not known to be one", remedy))
    return Hessian(problem, "outer_product")


def empirical_fisher(problem: Problem) -> Hessian:
    """E[g g^T] of the gradients g of each sample's loss at its GIVEN target.

    Args:
        problem: Model, data and loss.

    Returns:
        Hessian: The operator, positive semidefinite.

    Notes:
        Not the Fisher information, and no approximation of the Hessian away from a well-specified optimum
        (Kunstner, Balles & Hennig 2019).

    Example:
        >>> import torch, hessmap as hm
        >>> problem = hm.Problem(torch.nn.Linear(2, 2), "cross_entropy", torch.eye(2), torch.tensor([0, 1]))
        >>> empirical_fisher(problem).to_dense().shape
        torch.Size([6, 6])
    """
    require_problem(problem)
    return Hessian(problem, "empirical_fisher")


@overload
def distributed(local: Hessian, *, timeout: float = 60.0) -> Hessian: ...
@overload
def distributed(local: Problem, *, timeout: float = 60.0) -> Problem: ...
def distributed(local: Hessian | Problem, *, timeout: float = 60.0) -> Hessian | Problem:
    """The Hessian or the problem on the data of all processes, from that of this process.

    Args:
        local: The Hessian or the problem on the samples of this process.
        timeout: Seconds after which a process that does not answer is an error in the others. Defaults to 60.

    Returns:
        Hessian | Problem: That of the mean over the samples (tokens) of all processes that count, with exact products.
        Every process must make the same calls in the same order and gets the same numbers. Risk, gradient, Hessians,
        ``kronecker_curvature``, ``map`` and ``step_report`` of a distributed problem are those of all samples; what
        reads single samples raises.

    Raises:
        InvalidInput: If torch.distributed has no process group, or none with a backend for the problem's device.
        NotReproducible: If the processes have different parameters.
        ProcessLost: If a process ended or did not answer in time; also in every later product.

    Notes:
        Vectors are whole on every process. Models whose parameters are sharded: ``sharded_hessian``.
        Tested with gloo on CPUs; nccl takes the same code path and is untested.
    """
    if isinstance(local, Hessian):
        return Hessian(DistributedProblem(local.problem.local, timeout), local.part)
    require_problem(local)
    return DistributedProblem(local.local, timeout)
