"""Trace and Frobenius norm: from the structure of an operator where it has one, else from random vectors."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from torch import Tensor

from hessmap.errors import require, require_name
from hessmap.measurement.diagonal_estimate import SKETCH, diagonal_by_products, exact_diagonal, rounding_errors
from hessmap.measurement.left_out_trace import left_out_trace
from hessmap.measurement.matrices import Matrix
from hessmap.measurement.random_probes import (
    BLOCK,
    CONFIDENCE,
    ErrorTarget,
    ProbedOperator,
    error_target,
    form_error,
    interval,
    orthonormal_range,
)
from hessmap.measurement.sketched_trace import SignProbes, range_sketch
from hessmap.progress import shown_work
from hessmap.records import EigenpairsMeasurement, SpectralEstimate

TraceMethod = Literal["auto", "hutchinson", "hutch++", "xtrace", "exact"]
NormMethod = Literal["auto", "hutch++", "exact"]


@shown_work("trace")
def trace_estimate(
    matrix: Matrix,
    *,
    relative_error: float = 0.01,
    absolute_error: float = 0.0,
    method: TraceMethod = "auto",
    max_products: int = 100,
    known: EigenpairsMeasurement | None = None,
    seed: int = 0,
) -> SpectralEstimate:
    """The trace, with probes until its standard error is at most ``relative_error`` of it or of the Frobenius norm of
    the matrix, whichever is larger (a trace near zero is small beside the norm), or ``absolute_error``; ``reached``
    says whether that was met with ``max_products`` products, of which "hutch++" makes 80 at least.

    "hutchinson": the mean of z^T A z over random signs z (Girard 1989, Hutchinson 1990). "hutch++": the trace in the
    range of a random sketch exactly, Hutchinson on what is left (Meyer, Musco, Musco & Woodruff 2021). "xtrace": every
    probe takes its turn at being the one left out of the sketch (Epperly, Tropp & Webber 2024); its standard error
    knows that the values share their probes. "exact": the diagonal, from the structure of the operator where that tells
    it (a Hessian whose parameters are weights and biases of linear and convolutional layers, a Kronecker product, a
    matrix that was written down), without a product; else by one product a dimension. "auto" is "exact" where that
    costs no more than the fewest products of "hutch++"; else it makes 16 probes, goes on with "hutchinson" if their
    spread asks for no more than those 80 products, and with "hutch++" otherwise, to whose sketch the 16 images belong.
    It turns to "exact" where the error asked for takes more probes than there are dimensions, within ``max_products``.

    An exact trace has no standard error but that of its rounding, which is given for operators in float32.

    ``known`` holds eigenpairs of the same matrix, converged or not: Ritz values sum to the trace in the space of their
    vectors, so that "hutch++" takes them in the place of its sketch, without a product.

    >>> round(trace_estimate(np.diag([3.0, 1.0, -2.0])).value, 12)
    2.0
    """
    require_name("method", method, get_args(TraceMethod))
    target = error_target(relative_error, max_products, absolute_error, norm_error=relative_error)
    operator = ProbedOperator(matrix, seed)
    if known is not None:
        must = "known eigenpairs must be of the same matrix, and serve hutch++"
        require(isinstance(known, EigenpairsMeasurement), must, f"got {type(known).__name__}")
        require(known.eigenvectors is not None, must, "they hold no eigenvectors")
        require(known.size == operator.size, must, f"its size is {operator.size}, theirs {known.size}")
        require(method in ("auto", "hutch++"), must, f"method is {method!r}")
    fewest = BLOCK + (2 * SKETCH if known is None else 0)
    diagonal = exact_diagonal(matrix, operator, method, fewest)
    if diagonal is not None:
        return _exact_trace(operator, diagonal, rounding_errors(matrix, diagonal), target)
    operator.expect_products(min(fewest, target.max_products), target.max_products)
    if method == "xtrace":
        value, error, norm, count = left_out_trace(operator, target)
        return _record("trace", operator, method, value, error, count, target, norm=norm)
    operator.use_narrow_vectors()
    may_be_exact = method == "auto"
    probes = SignProbes(operator).more() if method == "auto" and known is None else None
    if probes is not None and probes.expected_number(target) <= fewest:
        method = "hutchinson"
    else:
        method = "hutch++" if method == "auto" else method
        sketch = range_sketch(operator, SKETCH if method == "hutch++" else 0, known, probes)
        probes = SignProbes(operator, sketch).more()
    value, error, norm = probes.until(target, may_be_exact)
    if may_be_exact and probes.is_dense_cheaper(target):
        diagonal = diagonal_by_products(operator)
        return _exact_trace(operator, diagonal, rounding_errors(matrix, diagonal), target)
    return _record("trace", operator, method, value, error, len(probes.values), target, norm=norm)


def _exact_trace(operator: ProbedOperator, diagonal: Tensor, errors: Tensor, target: ErrorTarget) -> SpectralEstimate:
    value, error = float(diagonal.sum()), float(errors.sum())
    return _record("trace", operator, "exact", value, error, operator.size, target)


@shown_work("Frobenius norm")
def frobenius_norm_estimate(
    matrix: Matrix,
    *,
    relative_error: float = 0.01,
    method: NormMethod = "auto",
    max_products: int = 2000,
    seed: int = 0,
) -> SpectralEstimate:
    """||A||_F, with probes until its standard error is ``relative_error`` of it.

    ``method`` is "hutch++", "exact" (one product a dimension), or "auto": "exact" where that takes no more products
    than the fewest of "hutch++", or than the error asked for still takes, within ``max_products``.

    ||A||^2 = ||A Q||^2 + E ||A (I - Q Q^T) z||^2 for random signs z and the range Q of a sketch: one product a probe.
    The standard error of the root is that of the square over twice the root. With B = (I - Q Q^T) A^2 (I - Q Q^T) the
    square of z^T B w is on average tr(B^2) for two probes z, w, which ``form_error`` asks for. The interval is that of
    the logarithm of what the probes see: where a few eigenvalues decide, its error is in proportion to itself.

    >>> round(frobenius_norm_estimate(np.diag([3.0, -4.0])).value, 12)
    5.0
    """
    require_name("method", method, get_args(NormMethod))
    target = error_target(relative_error, max_products)
    operator = ProbedOperator(matrix, seed)
    if method == "exact" or not operator.size or (method == "auto" and operator.size <= 2 * SKETCH + BLOCK):
        return _exact_norm(operator, target)
    basis = orthonormal_range(operator.product(operator.signs(SKETCH)))
    known = float(operator.product(basis).square().sum())
    values, products, size = np.zeros(0), np.zeros(0), operator.size
    while True:
        probes = operator.signs(BLOCK)
        images = operator.product(probes - basis @ (basis.T @ probes))
        inner = (images.T @ images).numpy()
        values, products = np.append(values, inner.diagonal()), np.append(products, inner[np.triu_indices(BLOCK, 1)])
        value = float(np.sqrt(known + values.mean()))
        spread = size * form_error(values / size, float(np.square(products).mean()) / size, size)
        error = spread / (2 * value) if value else 0.0
        missing = target.missing(len(values), value, error)
        if method == "auto" and operator.is_dense_cheaper(missing, target.max_products):
            return _exact_norm(operator, target)
        if target.is_met(value, error) or operator.num_products + BLOCK > target.max_products:
            outside = float(values.mean())
            logs = interval(0.0, spread / outside if outside else 0.0, len(values))
            low, high = (operator.scale * float(np.sqrt(known + outside * np.exp(end))) for end in logs)
            found = operator.scale * value, operator.scale * error
            return _record("frobenius_norm", operator, "hutch++", *found, len(values), target, ends=(low, high))


def _exact_norm(operator: ProbedOperator, target: ErrorTarget) -> SpectralEstimate:
    squares = sum(float(columns.square().sum()) for _, columns in operator.columns())
    return _record("frobenius_norm", operator, "exact", operator.scale * float(np.sqrt(squares)), 0.0, 0, target)


def _record(
    quantity: str,
    operator: ProbedOperator,
    method: str,
    value: float,
    error: float,
    count: int,
    target: ErrorTarget,
    norm: float = 0.0,
    ends: tuple[float, float] | None = None,
) -> SpectralEstimate:
    """The record of a value with its standard error over ``count`` values; ``ends`` are those of its interval, by
    default Student's."""
    is_exact = method == "exact"
    return SpectralEstimate(
        quantity=quantity,
        value=value,
        standard_error=error,
        interval=ends or interval(value, error, count),
        confidence=CONFIDENCE,
        method_error=0.0,
        asked=target.standard_error(value, norm),
        reached=is_exact or target.is_met(value, error, norm),
        num_probes=0 if is_exact else count,
        num_products=operator.num_products,
        method=method,
        size=operator.size,
        seed=operator.seed,
        provenance=operator.provenance,
    )
