"""All eigenvalues of a symmetric matrix, by LAPACK; or by Lanczos or quadrature, where the size decides.

The choice is printed before the work starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import scipy.linalg
import torch

from hessmap.errors import checked_count, checked_number, noting_errors, require, require_name, short_text
from hessmap.linalg import Floats, available_bytes, column_norms, readable_bytes, require_memory
from hessmap.measurement.density import density_estimate
from hessmap.measurement.eigenpair_plan import default_block, eigenpairs_bytes, expected_products
from hessmap.measurement.eigenpairs import top_eigenpairs
from hessmap.measurement.operators_in import (
    SMALLEST,
    Matrix,
    is_low_precision,
    operator_scale,
    rounding_unit,
    symmetric_array,
)
from hessmap.measurement.probes import ProbedOperator
from hessmap.records import DensityEstimate, EigenpairsMeasurement, MethodChoice, Provenance, Spectrum, provenance


def spectrum(matrix: Matrix, vectors: bool = False, scale: float | None = None) -> Spectrum:
    """Compute all eigenvalues of a symmetric matrix or operator by LAPACK.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator H of size n. An operator is made dense.
        vectors: Whether eigenvectors and their residuals are computed. Defaults to False.
        scale: Norm that ranks of the result are relative to. Default: ``scale`` of the operator if it has one, else
            ||H||.

    Returns:
        Spectrum: eigenvalues (descending), eigenvectors and residuals if requested, and ``eigenvalue_error``.

    Raises:
        InvalidInput: If the matrix is not square, symmetric, real, float64 and finite, or an argument is out of range.
        TooLarge: If the matrices that LAPACK needs do not fit the free memory.

    Notes:
        The driver is ``dsyevd``: reduction to tridiagonal form, then QL for eigenvalues alone, divide and conquer with
        eigenvectors. ``eigenvalue_error`` is n eps ||H||, the usual bound on the backward error, plus the norm of the
        discarded antisymmetric part and n times the smallest subnormal number. The matrix of an operator in float32 is
        decomposed in float64; eps is then that of float32, and a note of the provenance states it.

    Example:
        >>> spectrum(np.array([[0.0, 2.0], [2.0, 0.0]])).eigenvalues
        array([ 2., -2.])
    """
    require(isinstance(vectors, bool), "vectors must be True or False", f"got {short_text(vectors)}")
    array, asymmetry = symmetric_array(matrix)
    # LAPACK works on a copy; with vectors it needs two more, and the product for the residuals one.
    needed = 8 * array.size * (4 if vectors else 1)
    require_memory(f"the spectrum of a matrix of size {len(array)}", needed, "Use a Krylov or stochastic method")
    eigenvalues, eigenvectors = _eigenpairs(array) if vectors else (_eigenvalues(array), None)
    residuals = np.zeros(0)
    if eigenvectors is not None:
        residuals = column_norms(array @ eigenvectors - eigenvectors * eigenvalues)
    norm = float(np.abs(eigenvalues).max(initial=0.0))
    carried = operator_scale(matrix) if scale is None else checked_number("scale", scale)
    require(carried is None or 0 <= carried < np.inf, "scale must be finite and not negative", f"got {carried}")
    return Spectrum(
        eigenvalues=eigenvalues,
        method="dense",
        converged=True,
        residuals=residuals,
        scale=norm if carried is None else carried,
        eigenvectors=eigenvectors,
        provenance=_origin(matrix),
        eigenvalue_error=len(array) * (rounding_unit(matrix) * norm + (SMALLEST if norm else 0.0)) + asymmetry,
        entries="float32" if is_low_precision(matrix) else "float64",
    )


def _origin(matrix: Matrix) -> Provenance:
    origin: Provenance = getattr(matrix, "provenance", None) or provenance()
    if not is_low_precision(matrix):
        return origin
    note = "the entries of the matrix are float32; they were decomposed in float64"
    return replace(origin, notes=(*origin.notes, note))


def whole_spectrum(matrix: Matrix | Spectrum, needed_by: str) -> Spectrum:
    """A given Spectrum as it is, so that nothing is decomposed twice; that of a matrix. It must be complete."""
    found = matrix if isinstance(matrix, Spectrum) else spectrum(matrix)
    require(
        found.is_complete,
        f"{needed_by} needs the whole spectrum",
        f"this one holds {len(found.eigenvalues)} of {found.size} eigenvalues",
        "Use spectrum(H)",
    )
    return found


def _eigenvalues(array: Floats) -> Floats:
    if not array.size:
        return np.zeros(0)
    # The tridiagonal reduction of torch's LAPACK is faster than scipy's; with eigenvectors there is no difference.
    # torch reads neither reversed nor read-only arrays.
    given = torch.from_numpy(np.require(array, requirements=("C_CONTIGUOUS", "WRITEABLE")))
    return np.ascontiguousarray(torch.linalg.eigvalsh(given).numpy()[::-1])


def _eigenpairs(array: Floats) -> tuple[Floats, Floats]:
    if not array.size:
        return np.zeros(0), np.zeros((0, 0))
    # The transpose of a row-major array is column-major, and equal here: LAPACK then takes it without reordering.
    ascending, columns = scipy.linalg.eigh(array.T, driver="evd", check_finite=False)
    return np.ascontiguousarray(ascending[::-1]), np.ascontiguousarray(columns[:, ::-1])


SpectrumMethod = Literal["auto", "dense", "lanczos", "quadrature"]
_DENSE_SIZE = 6000  # up to which the dense matrix is chosen where it fits the memory
_STEPS, _PROBES = 64, 16  # of a density by quadrature


def auto_spectrum(
    matrix: Matrix,
    *,
    count: int | None = None,
    method: SpectrumMethod = "auto",
    log: Callable[[str], object] = print,
    seed: int = 0,
) -> Spectrum | EigenpairsMeasurement | DensityEstimate:
    """Compute as much of the spectrum as the size of the operator allows.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator.
        count: Number of eigenpairs, largest in magnitude, that "lanczos" computes. Default: None, a density instead.
        method: "dense" (all eigenvalues), "lanczos" (``count`` eigenpairs), "quadrature" (density of the eigenvalues),
            or "auto" (default): chosen by ``choose_method``.
        log: Function that receives one line of text before the work starts: the choice, its reason, predicted bytes and
            seconds. Defaults to print.
        seed: Seed of the random vectors. Defaults to 0.

    Returns:
        Spectrum, EigenpairsMeasurement or DensityEstimate, for "dense", "lanczos" and "quadrature".

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, if it has size 0, if "lanczos" is
            requested without a count, or an argument is out of range.
        TooLarge: If the requested method does not fit the free memory.

    Example:
        >>> import numpy as np
        >>> auto_spectrum(np.diag([3.0, 1.0, 0.0]), log=lambda text: None).eigenvalues
        array([3., 1., 0.])
    """
    require(callable(log), "log must be a function of one text", f"got {type(log).__name__}")
    choice = choose_method(matrix, count=count, method=method, seed=seed)
    bytes_and_time = f"about {readable_bytes(choice.predicted_bytes)} and {choice.predicted_seconds:.3g} s"
    text = f"{choice.method}: {choice.reason}; {bytes_and_time}, one product takes {choice.seconds_per_product:.2g} s"
    with noting_errors("log"):
        log(text)
    if choice.method == "dense":
        return spectrum(matrix)
    if choice.method == "lanczos":
        return top_eigenpairs(matrix, count or 1, which="magnitude", seed=seed)
    return density_estimate(matrix, num_steps=_STEPS, num_probes=_PROBES, method="quadrature", seed=seed)


def choose_method(
    matrix: Matrix, *, count: int | None = None, method: SpectrumMethod = "auto", seed: int = 0
) -> MethodChoice:
    """Choose how the spectrum of an operator is computed, and predict the cost.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator of size n.
        count: Number of eigenpairs that are wanted. Default: None, all eigenvalues or a density.
        method: "dense", "lanczos", "quadrature", or "auto" (default): see the notes.
        seed: Seed of the random vectors. Defaults to 0.

    Returns:
        MethodChoice: method, reason, and predicted bytes, seconds and products.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, if it has size 0, if "lanczos" is
            requested without a count, or an argument is out of range.

    Notes:
        "auto" depends on sizes alone: "dense" up to n = 6000 where 32 n^2 bytes are free, else "lanczos" if a count is
        given, else "quadrature" with 16 probes of 64 steps. Seconds are extrapolated from one timed product with a
        block of vectors and do not influence the choice.

    Example:
        >>> import numpy as np
        >>> choose_method(np.eye(5)).method
        'dense'
    """
    require_name("method", method, get_args(SpectrumMethod))
    operator = ProbedOperator(matrix, seed)
    size = operator.size
    count = None if count is None else checked_count("count", count, None)
    require(count is None or 1 <= count <= size, f"count must be between 1 and the size {size}", f"got {count}")
    require(size > 0, "a spectrum needs at least one dimension", "the operator has size 0")
    width = default_block(matrix, size, count or _PROBES)
    operator.product(operator.signs(1))  # the first one also asks whether it is symmetric
    start = time.perf_counter()
    operator.product(operator.signs(width))
    each = (time.perf_counter() - start) / width
    chosen, reason = (method, "as asked for") if method != "auto" else _by_size(size, count)
    require(chosen != "lanczos" or count is not None, "lanczos needs a count of eigenpairs", "count is None")
    dense_bytes, dense_seconds = 16 * size * size, size * each + 4 / 3 * size**3 / _flops_per_second()
    predicted = {
        "dense": (dense_bytes, dense_seconds, size),
        "lanczos": _lanczos(size, count or 1, width, each),
        "quadrature": (8 * size * (_STEPS + 6) * _PROBES, _STEPS * _PROBES * each, _STEPS * _PROBES),
    }[chosen]
    return MethodChoice(chosen, reason, int(predicted[0]), predicted[1], each, predicted[2], size)


def _by_size(size: int, count: int | None) -> tuple[str, str]:
    fits = 32 * size * size <= available_bytes()
    if size <= _DENSE_SIZE and fits:
        return "dense", f"size {size} is at most {_DENSE_SIZE} and the matrix fits the memory"
    cause = f"size {size} is above {_DENSE_SIZE}" if fits else f"a matrix of size {size} does not fit the memory"
    if count is not None:
        return "lanczos", f"{cause}, and {count} eigenpairs are asked for"
    return "quadrature", f"{cause}, and no count of eigenpairs is asked for"


def _lanczos(size: int, count: int, width: int, each: float) -> tuple[int, float, int]:
    products = expected_products(size, count, width)
    return eigenpairs_bytes(size, count, width), products * each, products


def _flops_per_second(size: int = 256) -> float:
    matrix = torch.ones(size, size, dtype=torch.float64)
    start = time.perf_counter()
    matrix @ matrix
    return 2 * size**3 / max(1e-9, time.perf_counter() - start)
