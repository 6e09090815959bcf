"""How well a Kronecker-factored curvature describes the matrix that it stands for."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hessmap.errors import checked_count, checked_number, checked_seed, require
from hessmap.hessians import Hessian, empirical_fisher, loss_hessian, outer_product_hessian
from hessmap.layers.curvature_operator import CurvatureBlock, KroneckerCurvature
from hessmap.linalg import PrincipalBlock, to_host
from hessmap.measurement import krylov_solve, top_eigenpairs
from hessmap.problem import Problem, require_problem
from hessmap.records import KroneckerBlockError, KroneckerError

Product = Callable[[Tensor], Tensor]
_FORMED = 1500  # parameters up to which a block is formed and its error exact
_PROBES = 32


def kronecker_error(
    problem: Problem,
    curvature: KroneckerCurvature,
    *,
    count: int = 1,
    damping: float | None = None,
    tolerance: float = 1e-4,
    seed: int = 0,
) -> KroneckerError:
    """Compare a Kronecker-factored curvature with the matrix that it approximates.

    Args:
        problem: The problem that the curvature was computed of.
        curvature: Made by ``kronecker_curvature``.
        count: Dimension of the leading eigenspaces that are compared. Defaults to 1, the sharpest direction.
        damping: Damping of the compared solutions. Defaults to the mean eigenvalue of the curvature.
        tolerance: Residual of eigenpairs and solutions of the true matrix. Defaults to 1e-4.
        seed: Seed of the probes for blocks that are too large to be formed.

    Returns:
        KroneckerError: per block and for the whole matrix the relative Frobenius error, the overlap of leading
        eigenspaces, the error of ``solve``, and ``summary``, one sentence.

    Raises:
        InvalidInput: If the curvature has other parameters than the problem, or an argument is out of range.

    Example:
        >>> import torch, hessmap as hm
        >>> inputs, labels = hm.datasets.digits(num_samples=60)
        >>> model = hm.FullyConnected((64, 8, 10), activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", inputs, labels)
        >>> error = kronecker_error(problem, hm.kronecker_curvature(problem))
        >>> 0 < error.blocks[0].frobenius_error < 1
        True
    """
    require_problem(problem)
    must, got = "curvature must be a KroneckerCurvature", f"got a {type(curvature).__name__}"
    require(isinstance(curvature, KroneckerCurvature), must, got, "Compute it with kronecker_curvature(problem)")
    must, got = "the curvature must be that of the problem's parameters", "names or shapes of parameters differ"
    require(curvature.layout == problem.layout, must, got, "Compute it with kronecker_curvature(problem)")
    count, seed = checked_count("count", count), checked_seed(seed)
    true = _true_matrix(problem, curvature)
    shift = float(curvature.eigenvalues().mean()) if damping is None else checked_number("damping", damping)
    require(shift > 0, "damping must be positive", f"got {shift:g}")
    generator = torch.Generator().manual_seed(seed)
    sizes = [min(count, block.size) for block in curvature.blocks]
    blocks = tuple(
        _block_error(true, block, size, tolerance, generator)
        for block, size in zip(curvature.blocks, sizes, strict=True)
    )
    whole = _probed_error(true.matmat, curvature.matmat, curvature.eigenvalues(), curvature.size, generator)
    gradient = problem.gradient()
    exact = krylov_solve(true, gradient, shift=shift, tolerance=tolerance)
    solution = torch.as_tensor(exact.solution).to(gradient)
    found = curvature.solve(gradient, damping=shift)
    error = float((found - solution).norm() / solution.norm()) if float(solution.norm()) else 0.0
    return KroneckerError(curvature.kind, blocks, *whole, error, bool(exact.converged), shift, count, seed)


def _true_matrix(problem: Problem, curvature: KroneckerCurvature) -> Hessian:
    if curvature.part == "loss":
        return loss_hessian(problem)
    return empirical_fisher(problem) if curvature.fisher == "empirical" else outer_product_hessian(problem)


def _block_error(
    true: Hessian, block: CurvatureBlock, count: int, tolerance: float, generator: torch.Generator
) -> KroneckerBlockError:
    entries = block.entries.flatten().cpu()
    size, leading = len(entries), _leading(block, count)
    overlap = None
    if size <= _FORMED:
        matrix = true.dense_block(entries, entries)
        approximate = block.multiply(torch.eye(size, dtype=matrix.dtype).to(block.values)).to(matrix)
        norm = float(matrix.norm())
        error = float((matrix - approximate).norm()) / norm if norm else 0.0, 0.0
        if leading is not None:
            vectors = torch.linalg.eigh(matrix).eigenvectors[:, -count:]
            overlap = _overlap(vectors.to(leading), leading)
    else:
        own = PrincipalBlock(true, entries)
        error = _probed_error(own.matmat, block.multiply, block.values, size, generator)
        if leading is not None:
            pairs = top_eigenpairs(own, count, tolerance=tolerance)
            overlap = _overlap(torch.as_tensor(pairs.eigenvectors).to(leading), leading)
    return KroneckerBlockError(block.names, block.form, size, *error, overlap)


def _leading(block: CurvatureBlock, count: int) -> Tensor | None:
    """The leading eigenvectors of a block; None for a diagonal, whose eigenvectors are the coordinates."""
    if not block.bases:
        return None
    chosen = block.values.flatten().topk(count).indices
    if len(block.bases) == 1:
        return block.bases[0][:, chosen]
    left, right = block.bases
    width = block.values.shape[1]
    pairs = left[:, chosen // width][:, None] * right[:, chosen % width][None]
    return pairs.reshape(-1, count)


def _overlap(one: Tensor, other: Tensor) -> float:
    """The mean squared cosine of the principal angles between two subspaces of one dimension."""
    return float((one.T @ other).square().sum() / one.shape[1])


def _probed_error(
    true: Product, approximate: Product, like: Tensor, size: int, generator: torch.Generator
) -> tuple[float, float]:
    """||A - B||_F / ||A||_F from random signs, and its standard error by the delta method."""
    signs = (torch.randint(2, (size, _PROBES), generator=generator) * 2 - 1).to(like)
    exact = true(signs)
    numerators = to_host((exact - approximate(signs)).square().sum(0))
    denominators = to_host(exact.square().sum(0))
    total, part = float(denominators.mean()), float(numerators.mean())
    if not total:
        return 0.0, 0.0
    ratio = part / total
    spread = float((numerators - ratio * denominators).std()) / (total * _PROBES**0.5)
    return ratio**0.5, spread / (2 * ratio**0.5) if ratio else 0.0
