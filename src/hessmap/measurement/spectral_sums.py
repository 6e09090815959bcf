"""Sums over the spectrum: effective dimension, log-determinant, reconstruction error, share of negative curvature."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import InvalidInput, checked_count, checked_number, list_of, require, require_name, sentence
from hessmap.measurement.dense_spectrum import whole_spectrum
from hessmap.measurement.density import (
    DensityMethod,
    density_record,
    is_dense_worth,
    method_text,
    probe_rules,
    spectral_budget,
    whole_density,
)
from hessmap.measurement.operators_in import EPS, SMALLEST, Floats, Matrix, operator_scale
from hessmap.measurement.probes import CONFIDENCE, ErrorTarget, ProbedOperator, error_target, form_error, interval
from hessmap.progress import shown_work
from hessmap.records import DensityEstimate, EffectiveDimension, ReconstructionErrors, SpectralEstimate, Spectrum


def effective_dimension(matrix: Matrix | Spectrum, epsilon: float) -> EffectiveDimension:
    """Compute the effective dimension: the sum of h / (h + epsilon) over the magnitudes h of all eigenvalues.

    Args:
        matrix: Symmetric operator, tensor or array, or a complete Spectrum, which is not decomposed again.
        epsilon: Positive number: the precision of the prior.

    Returns:
        EffectiveDimension: ``value``, its error bound, the nuclear norm over the spectral norm, and ``num_negative``,
        the number of negative eigenvalues.

    Raises:
        InvalidInput: If epsilon is not positive and finite, the matrix is not symmetric, real, float64 and finite, or
            the Spectrum is not complete.
        TooLarge: If the dense matrix does not fit the free memory.

    Notes:
        For a positive semi-definite matrix this is the number of well-determined parameters of Gull (1989) and MacKay
        (1992, "A practical Bayesian framework for backpropagation networks"); it tends to the rank as epsilon goes to
        0. For an indefinite matrix, h / (h + epsilon) of the signed eigenvalue has a pole at -epsilon and is not a
        count, so magnitudes are summed. The error bound uses |a / (a + eps) - b / (b + eps)| <= |a - b| / (a + eps) for
        a, b >= 0.

    Example:
        >>> effective_dimension(np.diag([3.0, 1.0, 0.0]), epsilon=1.0).value
        1.25
    """
    epsilon = checked_number("epsilon", epsilon)
    require(0 < epsilon < np.inf, "epsilon must be positive and finite", f"got {epsilon}")
    found = whole_spectrum(matrix, "an effective dimension")
    magnitudes = np.abs(found.eigenvalues)
    error = found.eigenvalue_error
    return EffectiveDimension(
        value=float((magnitudes / (magnitudes + epsilon)).sum()),
        epsilon=epsilon,
        nuclear_ratio=float((magnitudes / found.norm).sum()) if found.norm else 0.0,
        num_negative=int((found.eigenvalues < -(error or 0.0)).sum()),
        error_bound=None if error is None else float(np.minimum(1.0, error / (magnitudes + epsilon)).sum()),
        size=len(magnitudes),
    )


def reconstruction_error(matrix: Matrix | Spectrum, ranks: Iterable[int] | None = None) -> ReconstructionErrors:
    """Compute the relative Frobenius error of the best approximation of each rank.

    Args:
        matrix: Symmetric operator, tensor or array, or a complete Spectrum, which is not decomposed again.
        ranks: Ranks between 0 and the size n. Default: 0, 1, .., n.

    Returns:
        ReconstructionErrors: ranks, errors, and ``noise_floor``, the part of an error that rounding may account for.

    Raises:
        InvalidInput: If a rank is out of range, the matrix is not symmetric, real, float64 and finite, or the Spectrum
            is not complete.
        TooLarge: If the dense matrix does not fit the free memory.

    Notes:
        By Eckart and Young the best approximation of rank k keeps the k eigenvalues of largest magnitude, so the
        squared error is the sum of the squares of the others over that of all; eigenvectors are not needed (Singh,
        Bachmann & Hofmann 2021, figure 7). The errors of a zero matrix are 0.

    Example:
        >>> reconstruction_error(np.diag([4.0, -3.0]), ranks=[0, 1, 2]).errors
        array([1. , 0.6, 0. ])
    """
    found = whole_spectrum(matrix, "a reconstruction error")
    size = len(found.eigenvalues)
    wanted = np.arange(size + 1) if ranks is None else _rank_array(ranks, size)
    ascending = np.sort(np.abs(found.eigenvalues)) / (found.norm or 1.0)
    # Summed from the smallest up, so that the tail keeps its digits.
    tails = np.sqrt(np.concatenate([[0.0], np.cumsum(np.square(ascending))]))
    whole = tails[-1] or 1.0
    error = found.eigenvalue_error
    return ReconstructionErrors(
        ranks=wanted,
        errors=tails[size - wanted] / whole,
        noise_floor=None if error is None else _noise(error, found.norm * whole, size),
        size=size,
    )


def _rank_array(ranks: Iterable[int], size: int) -> NDArray[np.int64]:
    given = [checked_count("a rank", rank, None) for rank in list_of("ranks", ranks)]
    outside = [rank for rank in given if not 0 <= rank <= size]
    require(not outside, f"ranks must be between 0 and the size {size}", f"got {outside[:3]}")
    return np.array(given, dtype=np.int64)


def _noise(error: float, frobenius: float, size: int) -> float:
    return error * size**0.5 / frobenius if frobenius else 0.0


_PROBES = 8  # to begin with; as many again join at a time


class Sums(NamedTuple):
    """Of a function over the eigenvalues, per probe: the sum, what the rule may be off by, the sum of squares; and the
    largest magnitude of the function."""

    values: Floats
    method_errors: Floats
    squares: Floats
    largest: float


@shown_work("log determinant")
def log_determinant_estimate(
    matrix: Matrix | DensityEstimate,
    shift: float,
    *,
    relative_error: float = 0.01,
    method: DensityMethod = "auto",
    num_steps: int = 64,
    max_products: int = 8192,
    memory_budget: float | None = None,
    seed: int = 0,
) -> SpectralEstimate:
    """Estimate log det(H + shift I) = tr log(H + shift I) of a positive definite H + shift I.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator H, or a DensityEstimate, which is used without
            further products; ``shift`` is then the only other argument with an effect.
        shift: Finite number of at least 0 that is added to the diagonal.
        relative_error: Target for the standard error, relative to the value. Defaults to 0.01.
        method: "quadrature" (stochastic Lanczos quadrature), "exact" (all eigenvalues, by one product per dimension and
            LAPACK), or "auto" (default): exact where that takes no more products than the probes and the matrix fits
            ``memory_budget``.
        num_steps: Lanczos steps of each probe. Defaults to 64.
        max_products: Number of products beyond which no probe is added to the first 8. When they are used up,
            ``reached`` is False if the target is missed. Defaults to 8192.
        memory_budget: Bytes that may be held at once beside the operator. Default: the budget of the operator's
            problem, at most 1 GiB.
        seed: Seed of the probes. Defaults to 0.

    Returns:
        SpectralEstimate: value, standard error (0 if exact), ``method_error``, confidence interval, ``reached``, cost.

    Raises:
        InvalidInput: If an eigenvalue or a node of the quadrature is at or below -shift, with the shift that is
            required, if the operator is not square, symmetric, linear and finite, or an argument is out of range.

    Notes:
        Probes of random signs give Gauss rules of the spectral measure, whose mean over the function log(h + shift) is
        summed (Ubaru, Chen & Saad 2017). 8 probes are made, then more until the target is met. ``method_error`` is the
        distance from the rules of half the steps plus the effect of rounding in the products: with a shift far below
        the spectrum the logarithm is steep, and more steps are needed.

    Example:
        >>> round(log_determinant_estimate(np.diag([1.0, 3.0]), shift=1.0).value, 12) == round(float(np.log(8)), 12)
        True
    """
    shift = checked_number("shift", shift)
    require(0 <= shift < np.inf, "shift must be finite and not negative", f"got {shift}")

    def sums(density: DensityEstimate, error: float) -> Sums:
        lowest = float(density.nodes[density.weights > 0].min())
        if lowest + shift <= 0:
            must, remedy = "H + shift I must be positive definite", f"Choose a shift above {error - lowest:.6g}"
            got = f"there is an eigenvalue at or below {lowest:.6g}, up to a rounding of {error:.2g}"
            raise InvalidInput(sentence(must, got, remedy))
        return _smooth_sums(density, lambda nodes: np.log(np.maximum(nodes + shift, np.finfo(float).tiny)), error)

    target = error_target(relative_error, max_products)
    return _sum_estimate("log_determinant", matrix, sums, target, method, num_steps, memory_budget, seed)


@shown_work("effective dimension")
def effective_dimension_estimate(
    matrix: Matrix | DensityEstimate,
    epsilon: float,
    *,
    relative_error: float = 0.01,
    method: DensityMethod = "auto",
    num_steps: int = 64,
    max_products: int = 8192,
    memory_budget: float | None = None,
    seed: int = 0,
) -> SpectralEstimate:
    """Estimate the effective dimension, the sum of h / (h + epsilon) over the magnitudes h of the eigenvalues.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator, or a DensityEstimate, which is used without
            further products; ``epsilon`` is then the only other argument with an effect.
        epsilon: Positive number, as for ``effective_dimension``.
        relative_error: Target for the standard error, relative to the value. Defaults to 0.01.
        method: "quadrature", "exact" or "auto" (default), as for ``log_determinant_estimate``.
        num_steps: Lanczos steps of each probe. Defaults to 64.
        max_products: Number of products beyond which no probe is added to the first 8. Defaults to 8192.
        memory_budget: Bytes that may be held at once beside the operator. Default: the budget of the operator's
            problem, at most 1 GiB.
        seed: Seed of the probes. Defaults to 0.

    Returns:
        SpectralEstimate: value, standard error (0 if exact), ``method_error``, confidence interval, ``reached``, cost.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, or an argument is out of range.

    Notes:
        Stochastic Lanczos quadrature, as for ``log_determinant_estimate``. ``method_error`` is the distance from the
        rules of half the steps plus the effect of rounding in the products: it is large where epsilon is below that
        rounding, which hides whether an eigenvalue is zero.

    Example:
        >>> round(effective_dimension_estimate(np.diag([3.0, 1.0, 0.0]), epsilon=1.0).value, 12)
        1.25
    """
    epsilon = checked_number("epsilon", epsilon)
    require(0 < epsilon < np.inf, "epsilon must be positive and finite", f"got {epsilon}")
    target = error_target(relative_error, max_products)

    def sums(density: DensityEstimate, error: float) -> Sums:
        return _smooth_sums(density, lambda nodes: np.abs(nodes) / (np.abs(nodes) + epsilon), error)

    return _sum_estimate("effective_dimension", matrix, sums, target, method, num_steps, memory_budget, seed)


@shown_work("rank")
def rank_estimate(
    matrix: Matrix | DensityEstimate,
    *,
    relative_tolerance: float = 1e-6,
    scale: float | None = None,
    relative_error: float = 0.01,
    method: DensityMethod = "auto",
    num_steps: int = 64,
    max_products: int = 8192,
    memory_budget: float | None = None,
    seed: int = 0,
) -> SpectralEstimate:
    """Estimate how many eigenvalues exceed a threshold in magnitude.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator, or a DensityEstimate, which is used without
            further products; ``relative_tolerance`` and ``scale`` are then the only other arguments with an effect.
        relative_tolerance: The threshold is ``relative_tolerance * scale``. Defaults to 1e-6.
        scale: Norm that the threshold is relative to. Default: ``scale`` of the operator if it has one, else the
            largest magnitude of a node of the quadrature.
        relative_error: Target for the standard error, relative to the value. Defaults to 0.01.
        method: "quadrature", "exact" or "auto" (default), as for ``log_determinant_estimate``.
        num_steps: Lanczos steps of each probe. Defaults to 64.
        max_products: Number of products beyond which no probe is added to the first 8. Defaults to 8192.
        memory_budget: Bytes that may be held at once beside the operator. Default: the budget of the operator's
            problem, at most 1 GiB.
        seed: Seed of the probes. Defaults to 0.

    Returns:
        SpectralEstimate: value, standard error (0 if exact), ``method_error``, confidence interval, ``reached``, cost.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, or an argument is out of range.

    Notes:
        Stochastic Lanczos quadrature, as for ``log_determinant_estimate``. A Gauss rule gives the measure up to a point
        to within the weights of the nodes on both sides of it (Chebyshev, Markov & Stieltjes). These weights, and those
        of nodes that rounding may move across the threshold, are the ``method_error``: it is large where many
        eigenvalues are near the threshold.

    Example:
        >>> rank_estimate(np.diag([3.0, 1.0, 0.0, 0.0])).value
        2.0
    """
    relative_tolerance = checked_number("relative_tolerance", relative_tolerance)
    require(0 < relative_tolerance < 1, "relative_tolerance must be between 0 and 1", f"got {relative_tolerance}")
    target = error_target(relative_error, max_products)
    scale = None if scale is None else checked_number("scale", scale)
    require(scale is None or 0 <= scale < np.inf, "scale must be finite and not negative", f"got {scale}")
    carried = scale if scale is not None or isinstance(matrix, DensityEstimate) else operator_scale(matrix)

    def sums(density: DensityEstimate, error: float) -> Sums:
        largest = float(np.abs(density.nodes[density.weights > 0]).max())
        return _counts(density, relative_tolerance * (largest if carried is None else carried), error)

    return _sum_estimate("numerical_rank", matrix, sums, target, method, num_steps, memory_budget, seed)


def _smooth_sums(density: DensityEstimate, function: Callable[[Floats], Floats], error: float) -> Sums:
    terms, counts = function(density.nodes), _multiplicities(density)
    whole = (counts * terms).sum(1)
    half = density.size * (density.half_weights * function(density.half_nodes)).sum(1)
    method_errors = np.where(density.is_exact, 0.0, np.abs(whole - half)) + _rounding_errors(density, function, error)
    squares, largest = (counts * np.square(terms)).sum(1), np.abs(terms[density.weights > 0])
    return Sums(whole, method_errors, squares, float(largest.max()))


def _rounding_errors(density: DensityEstimate, function: Callable[[Floats], Floats], error: float) -> Floats:
    """How far the sum moves where every node does so by ``error``, at most: a function that rises, or one that rises
    with the magnitude, which is least at zero."""
    nodes, terms = density.nodes, function(density.nodes)
    moved = (nodes - error, nodes + error, np.where(np.abs(nodes) < error, 0.0, nodes))
    furthest = np.max([np.abs(function(others) - terms) for others in moved], axis=0)
    found: Floats = (_multiplicities(density) * furthest).sum(1)
    return found


def _multiplicities(density: DensityEstimate) -> Floats:
    """How many eigenvalues every node stands for."""
    return np.ones_like(density.nodes) if density.method == "exact" else density.size * density.weights


def _counts(density: DensityEstimate, threshold: float, error: float) -> Sums:
    counted, method_errors = np.zeros(len(density.nodes)), np.zeros(len(density.nodes))
    counts = _multiplicities(density)
    for i in range(len(density.nodes)):
        used = density.weights[i] > 0
        nodes, weights = density.nodes[i][used], counts[i][used]
        counted[i] = weights[np.abs(nodes) > threshold].sum()
        if density.is_exact[i]:
            continue
        for cut in (-threshold, threshold):
            place = int(np.searchsorted(nodes, cut))
            method_errors[i] += weights[max(0, place - 1) : place + 1].sum()
    method_errors = method_errors + _rounding_errors(
        density, lambda nodes: (np.abs(nodes) > threshold).astype(np.float64), error
    )
    return Sums(counted, np.minimum(density.size, method_errors), counted, float(counted.any()))


def _sum_estimate(
    quantity: str,
    matrix: Matrix | DensityEstimate,
    sums: Callable[[DensityEstimate, float], Sums],
    target: ErrorTarget,
    method: DensityMethod,
    num_steps: int,
    memory_budget: float | None,
    seed: int,
) -> SpectralEstimate:
    """From a density as it is; from all eigenvalues where that takes no more products than probes do; or from more and
    more probes until the standard error asked for."""
    require_name("method", method, get_args(DensityMethod))
    if isinstance(matrix, DensityEstimate):
        return _record(quantity, matrix, sums(matrix, _node_error(matrix, matrix.size * EPS)), None)
    num_steps = checked_count("num_steps", num_steps, 1)
    budget = spectral_budget(matrix, memory_budget)
    operator = ProbedOperator(matrix, seed)
    require(operator.size > 0, "an estimate needs at least one dimension", "the operator has size 0")
    may_be_exact = method != "quadrature"
    if method == "exact" or (may_be_exact and is_dense_worth(operator, _PROBES * num_steps, budget)):
        return _whole_sum(quantity, operator, sums, target, num_steps)
    rules, kept = probe_rules(operator, _PROBES, num_steps, budget)
    while True:
        density = density_record(operator, rules, num_steps, kept, num_points=2)
        found = sums(density, _node_error(density, operator.rounding))
        value, error, count = float(found.values.mean()), _error(found, density), len(found.values)
        needed = target.missing(count, value, error) * operator.num_products / count
        left = target.max_products - operator.num_products
        if may_be_exact and operator.size <= left and is_dense_worth(operator, min(needed, left), budget):
            return _whole_sum(quantity, operator, sums, target, num_steps)
        more = min(count, left // num_steps)
        if target.is_met(value, error) or more < 1:
            return _record(quantity, density, found, target)
        rules = rules.joined_with(probe_rules(operator, more, num_steps, budget)[0])


def _whole_sum(
    quantity: str,
    operator: ProbedOperator,
    sums: Callable[[DensityEstimate, float], Sums],
    target: ErrorTarget,
    num_steps: int,
) -> SpectralEstimate:
    """From all eigenvalues."""
    whole = whole_density(operator, num_steps, num_points=2)
    return _record(quantity, whole, sums(whole, _node_error(whole, operator.rounding)), target)


def _node_error(density: DensityEstimate, rounding: float) -> float:
    """What rounding may have cost a node, with the digits that numbers near zero lack."""
    norm = float(np.abs(density.nodes).max())
    return rounding * norm + (density.size * SMALLEST if norm else 0.0)


def _error(sums: Sums, density: DensityEstimate) -> float:
    if density.method == "exact":
        return 0.0
    size = density.size
    return size * form_error(sums.values / size, float(sums.squares.mean()) / size, size, sums.largest)


def _record(quantity: str, density: DensityEstimate, sums: Sums, target: ErrorTarget | None) -> SpectralEstimate:
    value, error, method_error = float(sums.values.mean()), _error(sums, density), float(sums.method_errors.mean())
    return SpectralEstimate(
        quantity=quantity,
        value=value,
        standard_error=error,
        interval=interval(value, error, len(sums.values), method_error),
        confidence=CONFIDENCE,
        method_error=method_error,
        asked=None if target is None else target.standard_error(value),
        reached=target is None or target.is_met(value, error),
        num_probes=density.num_probes,
        num_products=density.num_products,
        method=method_text(density),
        size=density.size,
        seed=density.seed,
        provenance=density.provenance,
    )


def negative_share(found: DensityEstimate) -> SpectralEstimate:
    """Fraction of the sum of all |h| that negative eigenvalues h contribute.

    Args:
        found: Density of the eigenvalues, by quadrature or exact.

    Returns:
        SpectralEstimate: value between 0 and 1 (0 for a zero matrix), standard error, ``method_error``, confidence
        interval.

    Notes:
        The value is a ratio of two means over the Gauss rules of the probes; its standard error is that of (negative -
        ratio * all) over the mean of all (the delta method). ``method_error`` is the distance from the rules of half
        the steps.

    Example:
        >>> from hessmap.measurement import density_estimate
        >>> round(negative_share(density_estimate(np.diag([3.0, 0.5, -0.5]), num_probes=4)).value, 12)
        0.125
    """
    negative, whole = _sums(found.nodes, found.weights)
    value = _share(float(negative.mean()), float(whole.mean()))
    half = _share(*(float(part.mean()) for part in _sums(found.half_nodes, found.half_weights)))
    magnitudes = np.abs(found.nodes) / (float(np.abs(found.nodes).max()) or 1.0)
    terms = magnitudes * ((found.nodes < 0) - value)
    values, squares, mean = ((found.weights * part).sum(-1) for part in (terms, np.square(terms), magnitudes))
    has_error = found.method != "exact" and bool(mean.any())
    error = form_error(values, float(squares.mean()), found.size) / float(mean.mean()) if has_error else 0.0
    method_error = 0.0 if found.is_exact.all() else abs(value - half)
    low, high = interval(value, error, found.num_probes, method_error)
    return SpectralEstimate(
        quantity="negative_share",
        value=value,
        standard_error=error,
        interval=(max(0.0, low), min(1.0, high)),
        confidence=CONFIDENCE,
        method_error=method_error,
        asked=None,
        reached=True,
        num_probes=found.num_probes,
        num_products=found.num_products,
        method=method_text(found),
        size=found.size,
        seed=found.seed,
        provenance=found.provenance,
    )


def _sums(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Of the magnitudes of the negative ones and of all, over the last axis."""
    whole = weights * np.abs(values)
    return np.where(values < 0, whole, 0.0).sum(-1), whole.sum(-1)


def _share(negative: float, whole: float) -> float:
    return negative / whole if whole > 0 else 0.0
