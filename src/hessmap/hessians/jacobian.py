"""First derivatives of single samples: the output Jacobian, tangent kernels, and gradients of the loss as an operator.

Row n of G is the gradient of the loss of sample n. Products with few vectors go through the graph of a batch,
(G v)_n = residual_n . (J_n v) and G^T u = J^T (u residual); with more vectors the rows of as many samples as fit the
budget are formed, which takes one pass for all vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.func import vjp, vmap

from hessmap.errors import checked_count, require, require_name
from hessmap.linalg import LinearOperator, full_precision, is_answerable, require_memory, rows_that_fit
from hessmap.problem import (
    BatchGraph,
    Inputs,
    Problem,
    batch_bytes,
    bytes_per_sample,
    map_tensors,
    num_rows,
    require_samples,
    samples_at_once,
    take_rows,
    vjp_rows,
)

Kernel = Literal["full", "trace", "single_output"]


@torch.inference_mode(False)
def output_jacobian(problem: Problem) -> Tensor:
    """The derivative of every sample's outputs in the parameters.

    Args:
        problem: Model, data and loss.

    Returns:
        Tensor: Shape (num_samples, output_dim, num_parameters).

    Raises:
        TooLarge: If it does not fit the available memory.

    Notes:
        One vector-Jacobian product per output and sample, in the sample's own copy of the parameters.

    Example:
        >>> import torch, hessmap as hm
        >>> problem = hm.Problem(torch.nn.Linear(2, 3), "squared", torch.eye(2), torch.zeros(2, 3))
        >>> output_jacobian(problem).shape  # samples, outputs, parameters
        torch.Size([2, 3, 9])
    """
    require_samples(problem, "the output Jacobian")
    size = problem.dtype.itemsize * problem.num_samples * problem.output_dim * problem.num_parameters
    require_memory("the output Jacobian", size, "Use fewer samples, or products with outer_product_hessian")
    rows = [_rows(problem, inputs) for inputs, _, _ in problem.ordered_batches(_samples_at_once(problem))]
    return torch.cat(rows)


def tangent_kernel(problem: Problem, kind: Kernel = "full", output: int = 0) -> Tensor:
    """The empirical neural tangent kernel J J^T.

    Args:
        problem: Model, data and loss.
        kind: "full" (default): num_samples * output_dim square, rows ordered (sample, output). "trace": num_samples
            square, summed over the outputs. "single_output": num_samples square, of one output.
        output: Index of the output for "single_output". Defaults to 0.

    Returns:
        Tensor: A positive semidefinite matrix.

    Example:
        >>> import torch, hessmap as hm
        >>> problem = hm.Problem(torch.nn.Linear(2, 1, bias=False), "squared", torch.eye(2), torch.zeros(2, 1))
        >>> tangent_kernel(problem)  # x^T x' of orthogonal samples
        tensor([[1., 0.],
                [0., 1.]], dtype=torch.float64)
    """
    require_name("kind", kind, get_args(Kernel))
    jacobian = output_jacobian(problem)
    if kind == "full":
        flat = jacobian.flatten(0, 1)
        return flat @ flat.T
    if kind == "trace":
        flat = jacobian.flatten(1)
        return flat @ flat.T
    count, index = problem.output_dim, checked_count("output", output, 0)
    require(index < count, f"output must be in 0..{count - 1}", f"got {index}")
    return jacobian[:, index] @ jacobian[:, index].T


def _rows(problem: Problem, inputs: Inputs) -> Tensor:
    units = torch.eye(problem.output_dim, dtype=problem.dtype, device=problem.device)
    return jacobian_rows(problem, inputs, units.expand(num_rows(inputs), -1, -1))


def jacobian_rows(problem: Problem, inputs: Inputs, cotangents: Tensor, names: Sequence[str] | None = None) -> Tensor:
    """Vector-Jacobian products of single samples: cotangents_n @ doutput_n / dparameters.

    Args:
        problem: Model, data and loss.
        inputs: Inputs of some samples.
        cotangents: Rows in the outputs of each sample, shape (samples, rank, output_dim).
        names: Parameters to differentiate. Defaults to all of ``problem.layout``.

    Returns:
        Tensor: Shape (samples, rank, entries), in the order of the names.
    """
    chosen = {name: problem.named[name] for name in names or problem.layout.names}

    def one(sample: Inputs, rows: Tensor) -> Tensor:
        alone = map_tensors(lambda values: values[None], sample)
        linearised: Any = vjp(lambda own: problem.forward({**problem.named, **own}, alone), chosen)
        found = vmap(linearised[1])(rows[:, None])[0]
        return torch.cat([found[name].flatten(1) for name in chosen], 1)

    try:
        with full_precision(problem.device):
            rows: Tensor = vmap(one)(inputs, cotangents)
        return rows.detach()
    except Exception as error:  # modules that write in place or branch on values, functions of one's own
        if not is_answerable(error):
            raise
        problem.count_fallback("derivatives of single samples were computed sample by sample", error)
    return torch.stack([_rows_of_one(problem, chosen, inputs, cotangents, number) for number in range(len(cotangents))])


def _rows_of_one(
    problem: Problem, chosen: dict[str, Tensor], inputs: Inputs, cotangents: Tensor, number: int
) -> Tensor:
    leaves = {name: value.detach().requires_grad_() for name, value in chosen.items()}
    with torch.enable_grad():
        outputs = problem.forward({**problem.named, **leaves}, take_rows(inputs, slice(number, number + 1)))
    given = [row[None, None] for row in cotangents[number]]
    parts = [vjp_rows([outputs], list(leaves.values()), [row], vectorised=False) for row in given]
    return torch.stack([torch.cat([part.flatten() for part in own]) for own in parts])


def _samples_at_once(problem: Problem) -> int:
    per_sample = problem.dtype.itemsize * 3 * problem.output_dim * problem.num_parameters
    return rows_that_fit(problem.working_bytes, per_sample, problem.num_samples)


_FEW = 4  # vectors up to which the graph of a batch is used: each takes about two passes, a row about three
_SMALL_GRAPH = 2**20  # bytes of a batch up to which the vectors go through it together
_COPIES = 3  # of the rows that are held while they are formed


class SampleGradients(LinearOperator):
    """The matrix G of shape (num_samples, num_parameters) whose rows are gradients of single samples.

    Row n is d loss_n / d parameters, without the weight of the sample and without the penalty ``l2``:
    ``weights @ G`` is the gradient of the mean loss and ``G.T diag(weights) G`` the empirical Fisher matrix.

    Args:
        problem: Model, data and a loss of single samples.

    Attributes:
        problem: The problem that it was made of.
        shape: (num_samples, num_parameters); rows are in the order of ``problem.inputs``.
    """

    makes_new_images = True

    def __init__(self, problem: Problem) -> None:
        require_samples(problem, "the gradients of single samples")
        self.problem = problem
        self.dtype, self.device = problem.parameters.dtype, problem.device

    @property
    def shape(self) -> tuple[int, int]:
        return self.problem.num_samples, self.problem.num_parameters

    @property
    def T(self) -> LinearOperator:
        return _Transpose(self)

    @torch.inference_mode(False)
    def matmat(self, vectors: Tensor) -> Tensor:
        if vectors.shape[1] > _FEW:
            return torch.cat([rows @ vectors for rows in self.rows()])
        rows = vectors.T.contiguous()
        found = []
        for graph, slopes in self._graphs():
            start = graph.outputs.detach().new_zeros(()).expand(graph.outputs.shape).requires_grad_()
            transposed = graph.transposed_jacobian(start)  # J v is the vjp of the vjp: reverse mode only
            pushed = graph.vjp(transposed, [start], graph.split(rows))[0]
            found.append(torch.einsum("no,kno->nk", slopes, pushed).detach())
        return torch.cat(found)

    @torch.inference_mode(False)
    def transposed_product(self, vectors: Tensor) -> Tensor:
        """Multiply G^T by columns.

        Args:
            vectors: Columns of shape (num_samples, count).

        Returns:
            Tensor: Shape (num_parameters, count).
        """
        total = vectors.new_zeros(self.shape[1], vectors.shape[1])
        start = 0
        if vectors.shape[1] > _FEW:
            for rows in self.rows():
                total += rows.T @ vectors[start : start + len(rows)]
                start += len(rows)
            return total
        for graph, slopes in self._graphs():
            some = vectors[start : start + len(slopes)]
            parts = graph.vjp([graph.outputs], graph.leaves, [some.T[:, :, None] * slopes])
            total += graph.flat_rows(parts).T
            start += len(slopes)
        return total

    def rows(self, budget: float | None = None) -> Iterator[Tensor]:
        """Form the gradients of some samples at a time, in one pass in the order of the samples.

        Args:
            budget: Bytes for the rows that are held at once. Defaults to the working memory of the problem.

        Yields:
            Tensor: Shape (samples, num_parameters).
        """
        problem = self.problem
        each = _COPIES * self.dtype.itemsize * self.shape[1] + bytes_per_sample(problem)
        most = rows_that_fit(problem.working_bytes if budget is None else budget, each, problem.num_samples)
        for inputs, targets, _ in problem.ordered_batches(most):
            yield _gradient_rows(problem, inputs, targets)

    def to_dense(self) -> Tensor:
        """All gradients, (num_samples, num_parameters).

        Returns:
            Tensor: The matrix, in memory that the operator does not use.

        Raises:
            TooLarge: If it does not fit the available memory.
        """
        needed = self.dtype.itemsize * self.shape[0] * self.shape[1]
        require_memory("the gradients of all samples", needed, "Use products with it, gram() or rows()")
        return torch.cat(list(self.rows()))

    def gram(self) -> Tensor:
        """Compute G G^T, the inner products of the gradients of all pairs of samples.

        Returns:
            Tensor: Shape (num_samples, num_samples), symmetric.

        Raises:
            TooLarge: If the result does not fit the available memory.

        Notes:
            The rows of as many samples as fit half of the working memory are held, and compared with those of the
            samples after them: n rows that fit take one pass, others n^2 / (2 held) rows.

        Example:
            >>> import hessmap as hm
            >>> problem = hm.Problem(torch.nn.Linear(2, 1, bias=False), "squared", torch.eye(2), torch.ones(2, 1))
            >>> G = sample_gradients(problem)
            >>> bool(torch.allclose(G.gram(), G.to_dense() @ G.to_dense().T))
            True
        """
        count = self.shape[0]
        require_memory("the Gram matrix of the samples", self.dtype.itemsize * count**2, "Use fewer samples")
        found = torch.empty(count, count, dtype=self.dtype, device=self.device)
        half, first = self.problem.working_bytes / 2, 0
        for held in self.rows(half):
            own = slice(first, first + len(held))
            found[own, own] = held @ held.T
            if own.stop < count:
                second = 0
                for rows in self.rows(half):
                    other = slice(max(second, own.stop), second + len(rows))
                    if other.start < other.stop:
                        found[own, other] = held @ rows[other.start - second :].T
                        found[other, own] = found[own, other].T
                    second += len(rows)
            first = own.stop
        return found

    def _graphs(self) -> Iterator[tuple[BatchGraph, Tensor]]:
        """The graph of every batch, in the order of the samples, and the gradients of its losses in the outputs."""
        problem = self.problem
        each = bytes_per_sample(problem)
        size = rows_that_fit(batch_bytes(problem), each, samples_at_once(problem, _FEW))
        for batch in problem.ordered_batches(size):
            graph = BatchGraph(problem, batch, vectorised=len(batch[1]) * each <= _SMALL_GRAPH)
            with torch.no_grad():
                slopes = problem.loss.gradient(graph.outputs.detach(), graph.targets).to(graph.outputs.dtype)
            yield graph, slopes


class _Transpose(LinearOperator):
    """G^T: linear combinations of the gradients of single samples."""

    makes_new_images = True

    def __init__(self, gradients: SampleGradients) -> None:
        self.gradients = gradients
        self.dtype, self.device = gradients.dtype, gradients.device

    @property
    def shape(self) -> tuple[int, int]:
        return self.gradients.shape[1], self.gradients.shape[0]

    @property
    def T(self) -> LinearOperator:
        return self.gradients

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.gradients.transposed_product(vectors)

    def to_dense(self) -> Tensor:
        return self.gradients.to_dense().T.contiguous()


def sample_gradients(problem: Problem) -> SampleGradients:
    """Make an operator of the gradients of single samples, row n that of the loss of sample n.

    Args:
        problem: Model, data and a loss of single samples.

    Returns:
        SampleGradients: An operator G of shape (num_samples, num_parameters) with ``G @ v`` (how a step v changes the
        loss of every sample), ``G.T @ u``, ``G.gram()``, ``G.rows()`` and ``G.to_dense()``. Nothing but what a call
        needs is held in memory.

    Raises:
        InvalidInput: If the problem has an objective on whole batches.

    Notes:
        A loss with several positions per sample (tokens) is the sum over the positions that count.

    Example:
        >>> import hessmap as hm
        >>> inputs, labels = hm.datasets.digits(num_samples=60)
        >>> problem = hm.Problem(hm.FullyConnected((64, 8, 10)).build(seed=0), "cross_entropy", inputs, labels)
        >>> G = sample_gradients(problem)
        >>> G.shape, bool(torch.allclose(G.T @ problem.weights, problem.gradient()))
        ((60, 592), True)
    """
    return SampleGradients(problem)


@torch.inference_mode(False)
def _gradient_rows(problem: Problem, inputs: Inputs, targets: Tensor) -> Tensor:
    with torch.no_grad():
        outputs = problem.forward(problem.named, inputs).detach()
    slopes = problem.loss.gradient(outputs, targets).detach().to(outputs.dtype)
    return jacobian_rows(problem, inputs, slopes[:, None])[:, 0]
