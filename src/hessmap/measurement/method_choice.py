"""Dense, Lanczos or quadrature: the size decides, and the choice is said before the work starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, get_args

import torch

from hessmap.errors import checked_count, noting_errors, require, require_name
from hessmap.linalg import available_bytes, readable_bytes
from hessmap.measurement.dense_spectrum import spectrum
from hessmap.measurement.density import density_estimate
from hessmap.measurement.eigenpair_plan import default_block, eigenpairs_bytes, expected_products
from hessmap.measurement.eigenpairs import top_eigenpairs
from hessmap.measurement.operators_in import Matrix
from hessmap.measurement.probes import ProbedOperator
from hessmap.records import DensityEstimate, EigenpairsMeasurement, MethodChoice, Spectrum

SpectrumMethod = Literal["auto", "dense", "lanczos", "quadrature"]
_DENSE_SIZE = 6000
_STEPS, _PROBES = 64, 16


def auto_spectrum(
    matrix: Matrix,
    *,
    count: int | None = None,
    method: SpectrumMethod = "auto",
    say: Callable[[str], object] = print,
    seed: int = 0,
) -> Spectrum | EigenpairsMeasurement | DensityEstimate:
    """The spectrum as far as the size allows: all eigenvalues where the matrix fits, else the ``count`` largest in
    magnitude if a count is asked for, else a density. ``say`` gets the choice, its bytes and seconds, before it starts.

    >>> import numpy as np
    >>> auto_spectrum(np.diag([3.0, 1.0, 0.0]), say=lambda text: None).eigenvalues
    array([3., 1., 0.])
    """
    require(callable(say), "say must be a function of one text", f"got {type(say).__name__}")
    choice = choose_method(matrix, count=count, method=method, seed=seed)
    bytes_and_time = f"about {readable_bytes(choice.predicted_bytes)} and {choice.predicted_seconds:.3g} s"
    text = f"{choice.method}: {choice.reason}; {bytes_and_time}, one product takes {choice.seconds_per_product:.2g} s"
    with noting_errors("say"):
        say(text)
    if choice.method == "dense":
        return spectrum(matrix)
    if choice.method == "lanczos":
        return top_eigenpairs(matrix, count or 1, which="magnitude", seed=seed)
    return density_estimate(matrix, num_steps=_STEPS, num_probes=_PROBES, method="quadrature", seed=seed)


def choose_method(
    matrix: Matrix, *, count: int | None = None, method: SpectrumMethod = "auto", seed: int = 0
) -> MethodChoice:
    """Which way, and what it will take, from one timed product with a block of vectors.

    >>> import numpy as np
    >>> choose_method(np.eye(5)).method
    'dense'
    """
    require_name("method", method, get_args(SpectrumMethod))
    operator = ProbedOperator(matrix, seed)
    size = operator.size
    count = None if count is None else checked_count("count", count, None)
    require(count is None or 1 <= count <= size, f"count must lie between 1 and the size {size}", f"got {count}")
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
