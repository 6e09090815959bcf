"""Numerical rank: a count of singular values above a threshold, with the gap that makes it believable.

Matrices whose blocks of rows span few dimensions are compressed block by block first.

Let Q_l be an orthonormal basis of the rows that belong to block l, Q the matrix with all Q_l on its diagonal and
P = Q Q^T. Then H = Q T Q^T + E with T = Q^T H Q and ||E|| <= sqrt(2) ||(I - P) H||, and by Weyl's inequality no
eigenvalue of H is further from one of T, or from 0, than ||E||. The bases come from random sums of columns
(Halko, Martinsson & Tropp 2011, algorithm 4.2), so that they may miss something; what they miss is measured, and
nothing rests on their being right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, combinations_with_replacement, pairwise
from math import exp, log, pi, sqrt

import numpy as np
import scipy.linalg
import scipy.sparse
import torch
from torch import Tensor

from hessmap.errors import checked_number, require
from hessmap.linalg import Floats, SymmetricOperator, asymmetry
from hessmap.measurement.dense_spectrum import spectrum, whole_spectrum
from hessmap.measurement.operators_in import (
    EPS,
    FLOAT32_EPS,
    FLOAT32_TOLERANCE,
    Matrix,
    asymmetry_tolerance,
    dense_array,
    is_low_precision,
    operator_scale,
    rounding_unit,
    symmetric_array,
)
from hessmap.records import Provenance, RankMeasurement, Spectrum, provenance

SMALLEST = 1000  # below, LAPACK takes a second at most
LARGEST_SHARE = 0.75  # of the size; more is not worth the products
NOISE = 1e-14  # of the largest singular value of a sketch: below it is rounding
# What is taken for zeros must be below a tenth of the threshold of ranks, and a thousand times below what is kept:
# a rank that LAPACK decides is decided here too.
THRESHOLD, MOST_MISSED, CLEAR_GAP_OF_BLOCKS = 1e-12, 1e-13, 1e3
_SIGNS_A_ROW = 4
_SMALL, _SHARE_OF_SMALL, _SHARE_OF_LARGE = 1500, 0.8, 0.4  # to what share of its size a block must shrink
_SPARE = 10
_NUM_PROBES, _POWER = 30, 6
_SEED = 0


def spectra_by_blocks(operators: Sequence[SymmetricOperator]) -> tuple[Spectrum, ...]:
    """The whole spectra of operators over the same parameters, each parameter tensor being a block.

    Where the blocks do not shrink, or the bases miss too much for a rank, LAPACK takes the matrix as it is.
    Otherwise ``num_zeros`` eigenvalues are 0 up to ``kernel_residual`` = ||E|| / ||H||, which is part of
    ``eigenvalue_error``. The Hessians of a linear network vanish on most of each layer: about half of the size is left,
    and three of them cost what one did. Together they are given one set of bases.
    """
    layout = operators[0].layout
    if layout is None or layout.size < SMALLEST or any(is_low_precision(operator) for operator in operators):
        return tuple(spectrum(operator) for operator in operators)
    blocks = [layout[name] for name, _ in layout.shapes]
    arrays, asymmetries = zip(*map(symmetric_array, operators), strict=True)
    bases = _block_bases(arrays, blocks)
    found = []
    for array, dropped, operator in zip(arrays, asymmetries, operators, strict=True):
        small = None if bases is None else _compressed_spectrum(array, operator_scale(operator), blocks, bases)
        whole = small or spectrum(array, scale=operator_scale(operator))
        assert whole.eigenvalue_error is not None
        origin = getattr(operator, "provenance", None) or whole.provenance
        found.append(replace(whole, provenance=origin, eigenvalue_error=whole.eigenvalue_error + dropped))
    return tuple(found)


def _compressed_spectrum(
    array: Floats, scale: float | None, blocks: Sequence[slice], bases: Sequence[Tensor]
) -> Spectrum | None:
    """None if the bases miss more than the rank of the matrix could stand."""
    whole = torch.from_numpy(array)
    small = _compression(whole, blocks, bases)
    kept = spectrum(small.numpy(), scale=scale)
    error = _missed_bound(whole, small, blocks, bases)
    assert kept.eigenvalue_error is not None
    clear = np.abs(kept.eigenvalues)[np.abs(kept.eigenvalues) > THRESHOLD * kept.scale]
    if error > MOST_MISSED * kept.scale or CLEAR_GAP_OF_BLOCKS * error > clear.min(initial=np.inf):
        return None
    num_zeros = len(array) - len(small)
    place = int((kept.eigenvalues > 0).sum())
    return replace(
        kept,
        eigenvalues=np.insert(kept.eigenvalues, place, np.zeros(num_zeros)),
        method="dense, compressed block by block",
        num_zeros=num_zeros,
        kernel_residual=error / kept.norm if kept.norm else 0.0,
        eigenvalue_error=kept.eigenvalue_error + error,
    )


def _compression(whole: Tensor, blocks: Sequence[slice], bases: Sequence[Tensor]) -> Tensor:
    """T = Q^T H Q, the blocks below the diagonal from their smaller side, those above by symmetry."""
    places = list(accumulate((basis.shape[1] for basis in bases), initial=0))
    small = whole.new_zeros(places[-1], places[-1])
    parts = [(block, basis, slice(*ends)) for block, basis, ends in zip(blocks, bases, pairwise(places), strict=True)]
    for (row, left, kept_row), (column, right, kept_column) in combinations_with_replacement(parts, 2):
        block = torch.linalg.multi_dot([left.T, whole[row, column], right])
        small[kept_row, kept_column] = block
        small[kept_column, kept_row] = block.T
    return (small + small.T) / 2


def _missed_bound(whole: Tensor, small: Tensor, blocks: Sequence[slice], bases: Sequence[Tensor]) -> float:
    """||E||^k <= 2 sqrt(2 / pi) times the longest of 30 products E^k w, w Gaussian, except with probability 2^-30.

    E is rounding, with many singular values of one size: a higher power brings the bound near to the largest of them.
    """
    generator = torch.Generator().manual_seed(_SEED)
    vectors = torch.randn(len(whole), _NUM_PROBES, generator=generator, dtype=whole.dtype)
    logarithm = log(2 * sqrt(2 / pi))
    for _ in range(_POWER):
        kept = small @ torch.cat([basis.T @ vectors[block] for block, basis in zip(blocks, bases, strict=True)])
        vectors = whole @ vectors
        parts = torch.split(kept, [basis.shape[1] for basis in bases])
        for block, basis, part in zip(blocks, bases, parts, strict=True):
            vectors[block] -= basis @ part
        longest = float(vectors.norm(dim=0).max())
        if longest == 0:
            return 0.0
        logarithm += log(longest)
        vectors /= longest
    return exp(logarithm / _POWER)


def _block_bases(arrays: Sequence[Floats], blocks: Sequence[slice]) -> list[Tensor] | None:
    """An orthonormal basis of the rows of each block in all matrices, or None if they are not much fewer together."""
    generator = np.random.default_rng(_SEED)
    left = LARGEST_SHARE * len(arrays[0])
    bases: dict[int, Tensor] = {}
    for place in sorted(range(len(blocks)), key=lambda place: blocks[place].start - blocks[place].stop):
        bases[place] = _basis([np.ascontiguousarray(array[:, blocks[place]]) for array in arrays], generator)
        left -= bases[place].shape[1]
        if left < 0:
            return None
    return [bases[place] for place in range(len(blocks))]


def _basis(columns: Sequence[Floats], generator: np.random.Generator) -> Tensor:
    """Of the rows of these matrices, by random sums of them; the identity unless the sums are clearly dependent."""
    size = columns[0].shape[1]
    count = int((_SHARE_OF_SMALL if size <= _SMALL else _SHARE_OF_LARGE) * size)
    if count <= _SPARE:
        return torch.eye(size, dtype=torch.float64)
    sums = torch.from_numpy(sum(_row_sums(part, count, generator) for part in columns)).T
    lengths = torch.linalg.qr(sums, mode="r").R.diagonal().abs()
    above = (lengths > NOISE * lengths.max()).nonzero()
    rank = int(above.max()) + 1 if len(above) else 0
    if rank + _SPARE > count:
        return torch.eye(size, dtype=torch.float64)
    found: Tensor = torch.linalg.qr(sums[:, : rank + _SPARE]).Q
    return found


def _row_sums(matrix: Floats, count: int, generator: np.random.Generator) -> Floats:
    """``count`` sums of rows with random signs; every row is in four of them."""
    size = len(matrix)
    sums = generator.integers(count, size=_SIGNS_A_ROW * size)
    signs = generator.choice((-1.0, 1.0), size=len(sums))
    rows = np.tile(np.arange(size), _SIGNS_A_ROW)
    mixing = scipy.sparse.csr_array((signs, (sums, rows)), shape=(count, size))
    mixed: Floats = mixing @ matrix
    return mixed


RELATIVE_TOLERANCE = 1e-12
# What is dropped must be below a tenth of the threshold, and what is kept a thousand times above what is dropped.
GREY_BELOW, CLEAR_GAP = 10.0, 1e3


def numerical_rank(
    matrix: Matrix | Spectrum, scale: float | None = None, relative_tolerance: float | None = None
) -> RankMeasurement:
    """Count the singular values above a threshold, with the gap that decides whether the count can be trusted.

    Args:
        matrix: Operator, tensor or array, or a complete Spectrum, which is not decomposed again. Arrays that are not
            symmetric (data matrices) are decomposed by their singular values.
        scale: Norm that the threshold is relative to. Default: ``scale`` of the operator or Spectrum if it has one,
            else the spectral norm of the matrix.
        relative_tolerance: The threshold is ``relative_tolerance * scale``. Default: max(1e-12, n eps), or max(1e-5, n
            eps) with the eps of float32 where the entries are float32.

    Returns:
        RankMeasurement: ``value``, threshold, ``smallest_kept``, ``largest_dropped``, ``gap`` and ``decidable``.

    Raises:
        InvalidInput: If the matrix is not real, float64 and finite, if the Spectrum is not complete, or an argument is
            out of range.
        TooLarge: If the dense matrix does not fit the free memory.

    Notes:
        For the three Hessians of a Problem ``scale`` is the norm of the loss Hessian: the functional Hessian of a
        trained network is small, and relative to its own norm its rounding errors would exceed the threshold. For
        linear networks of a few thousand parameters the kept values were above 2e-9 and the dropped ones below 5e-16 of
        that scale; 1e-12 is between the two. From n = 4504 on, the bound n eps on the rounding error is larger.

        ``gap`` is smallest_kept / largest_dropped; inf if nothing is kept, or only exact zeros are dropped. The rank is
        ``decidable`` when every dropped singular value is at most a tenth of the threshold, the gap is at least 1000,
        and the kept ones exceed the error bound of the singular values, so that none of them can be zero.

        Operators of 1,000 parameters and more are compressed where their parameter tensors allow it
        (``spectra_by_blocks``); ``largest_dropped`` is then at least the bound on what the compression discarded.

    Example:
        >>> numerical_rank(np.diag([3.0, 1.0, 1e-17])).value
        2
    """
    found = _of_spectrum(matrix) if isinstance(matrix, Spectrum) else _of_matrix(matrix)
    own = float(found.values.max(initial=0.0))
    given = found.scale if scale is None else checked_number("scale", scale)
    reference = own if given is None else given
    require(
        np.isfinite(reference) and (reference > 0 or (reference == 0 and own == 0)),
        "scale must be positive and finite",
        f"got {reference} for a matrix of norm {own:.3g}",
        "Pass the norm of the loss Hessian, or leave scale out",
    )
    least, eps = (FLOAT32_TOLERANCE, FLOAT32_EPS) if found.entries == "float32" else (RELATIVE_TOLERANCE, EPS)
    default = max(least, min(0.5, max(found.shape) * eps))
    tolerance = default if relative_tolerance is None else checked_number("relative_tolerance", relative_tolerance)
    require(0 < tolerance < 1, "relative_tolerance must be between 0 and 1", f"got {tolerance}")
    return _rank_measurement(found, tolerance * reference, reference)


@dataclass(frozen=True)
class _SingularValues:
    values: Floats
    scale: float | None
    error: float | None
    shape: tuple[int, int]
    method: str
    provenance: Provenance | None
    entries: str = "float64"
    largest_removed: float = 0.0  # a bound of what a reduction took for zeros


def _of_spectrum(given: Spectrum) -> _SingularValues:
    found = whole_spectrum(given, "a rank")
    values = np.abs(found.eigenvalues)
    shape = len(values), len(values)
    error, origin = found.eigenvalue_error, found.provenance
    removed = found.kernel_residual * found.norm
    return _SingularValues(values, found.scale, error, shape, found.method, origin, found.entries, removed)


def _of_matrix(matrix: Matrix) -> _SingularValues:
    if isinstance(matrix, SymmetricOperator):
        return _of_spectrum(spectra_by_blocks([matrix])[0])
    array = dense_array(matrix)
    rows, columns = array.shape
    if rows == columns and asymmetry(array) <= asymmetry_tolerance(matrix):
        return _of_spectrum(spectrum(array, scale=operator_scale(matrix)))
    values = scipy.linalg.svdvals(array, check_finite=False) if array.size else np.zeros(0)
    error = max(rows, columns) * rounding_unit(matrix) * float(values.max(initial=0.0))
    origin, entries = provenance(), "float32" if is_low_precision(matrix) else "float64"
    return _SingularValues(values, operator_scale(matrix), error, array.shape, "singular values", origin, entries)


def _rank_measurement(found: _SingularValues, threshold: float, scale: float) -> RankMeasurement:
    values = found.values
    kept, dropped = values[values > threshold], values[values <= threshold]
    smallest_kept = float(kept.min()) if kept.size else 0.0
    largest_dropped = float(dropped.max(initial=found.largest_removed))
    gap = smallest_kept / largest_dropped if kept.size and largest_dropped > 0 else float("inf")
    is_resolved = found.error is None or not kept.size or found.error < smallest_kept
    return RankMeasurement(
        value=int(kept.size),
        threshold=threshold,
        scale=scale,
        smallest_kept=smallest_kept,
        largest_dropped=largest_dropped,
        gap=gap,
        decidable=is_resolved and largest_dropped <= threshold / GREY_BELOW and gap >= CLEAR_GAP,
        size=min(found.shape),
        method=found.method,
        provenance=found.provenance,
    )
