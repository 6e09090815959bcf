"""Eigenpairs, traces, densities and linear systems of operators whose vectors are sharded over processes.

The iterations of this package keep whole vectors on one device and factor tall blocks of them (QR). Sharded vectors
offer inner products only, and their products, by finite differences, have errors far above rounding, on which a
recurrence cannot rely. So these are separate and simple: every new vector is made orthogonal to all earlier ones,
twice, and eigenpairs come from stored products (Rayleigh-Ritz), whose residuals are computed, not deduced. Every
process makes the same calls; all decisions depend on sums over the processes, so that they are the same everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, sqrt
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import checked_count, checked_number, checked_seed, require, require_name
from hessmap.linalg import ShardedOperator, widest_dtype
from hessmap.measurement.operators_in import float_array
from hessmap.measurement.probes import CONFIDENCE, ErrorTarget, interval
from hessmap.measurement.wanted_pairs import least_overlap, overlap_bound
from hessmap.progress import report_products
from hessmap.records import EigenpairsMeasurement, Provenance, ShiftedSolution, SpectralEstimate, provenance

_ENDS = ("largest", "smallest", "magnitude")
_MISSED = 1e-3  # probability that a probe shows nothing although there is an eigenvalue beyond those found
_ABOVE_ERROR = 4.0  # times the error of products: what residuals can meet
_COARSEST = 0.05  # of the norm: residuals above it are not those of converged eigenpairs
_LESS = 0.9  # of the best residuals so far: an improvement
_MORE_VECTORS = 24  # beyond twice the wanted ones, in a basis
_ENDED = 1e-10  # of the norm: what is left of a Krylov space that has ended


def sharded_tolerance(operator: ShardedOperator, default: float) -> float:
    """A tolerance relative to the norm that products can meet whose errors are as expected before the first one."""
    return max(default, _ABOVE_ERROR * operator.product_error)


class _Products:
    """Counted products of a sharded operator."""

    def __init__(self, operator: ShardedOperator) -> None:
        self.operator, self.count, self.largest_error = operator, 0, 0.0

    def __call__(self, columns: Tensor) -> Tensor:
        found = self.operator.matmat(columns)
        self.count += columns.shape[1]
        report_products(columns.shape[1])
        largest = self.operator.processes.largest(float(found.abs().max()) if found.numel() else 0.0)
        require(np.isfinite(largest), "the products of an operator must be finite", "there is NaN or inf in one")
        return found

    def with_error(self, column: Tensor) -> tuple[Tensor, float]:
        """The product with one column, and the norm of its error as far as the operator estimates it."""
        found = self(column)
        off = (self.operator.last_error or self.operator.product_error) * self.operator.norm(found)
        self.largest_error = max(self.largest_error, off)
        return found, off

    @property
    def error(self) -> float:
        """The largest relative error of the products so far, as far as the operator estimates it."""
        return self.operator.difference_error or self.operator.product_error

    @property
    def provenance(self) -> Provenance:
        return self.operator.provenance or provenance()


def _without(operator: ShardedOperator, column: Tensor, *bases: Tensor) -> tuple[Tensor, list[Tensor]]:
    """A column less its parts in orthonormal bases, twice, and what was taken of each."""
    taken = [torch.zeros(basis.shape[1], 1, dtype=torch.float64) for basis in bases]
    for _ in range(2):
        for place, basis in enumerate(bases):
            if basis.shape[1]:
                inside = operator.inner(basis, column)
                column = column - basis @ inside.to(basis)
                taken[place] += inside
    return column, taken


class _Krylov:
    """Arnoldi's process from one start, outside of an orthonormal ``beside``: A Q = Q H + r e^T."""

    def __init__(self, products: _Products, start: Tensor, capacity: int, beside: Tensor | None = None) -> None:
        self.products, self.operator = products, products.operator
        self.beside = start[:, :0] if beside is None else beside
        start, _ = _without(self.operator, start, self.beside)
        self.start_norm = self.operator.norm(start)
        self._vectors = torch.empty(len(start), capacity, dtype=start.dtype, device=start.device)
        self._images = torch.empty_like(self._vectors)
        self._next = start / (self.start_norm or 1.0)
        self.coefficients = torch.zeros(capacity + 1, capacity, dtype=torch.float64)
        self.dimension = 0
        self.norm = 0.0
        self.has_ended = self.start_norm == 0.0

    @property
    def basis(self) -> Tensor:
        return self._vectors[:, : self.dimension]

    @property
    def images(self) -> Tensor:
        return self._images[:, : self.dimension]

    def expand(self) -> None:
        place, self.dimension = self.dimension, self.dimension + 1
        self._vectors[:, place] = self._next[:, 0]
        image, _ = self.products.with_error(self._next)
        self._images[:, place] = image[:, 0]
        rest, (_, taken) = _without(self.operator, image, self.beside, self.basis)
        self.coefficients[: place + 1, place] = taken[:, 0]
        length = self.operator.norm(rest)
        self.norm = max(self.norm, float(taken.norm()), length)
        self.coefficients[place + 1, place] = length
        self.has_ended = length <= max(_ENDED, 1e-2 * self.products.error) * self.norm
        self._next = rest / (length or 1.0)

    @property
    def tridiagonal(self) -> Tensor:
        """The symmetric part of the projected operator."""
        square = self.coefficients[: self.dimension, : self.dimension]
        return (square + square.T) / 2


def sharded_eigenpairs(
    operator: ShardedOperator,
    count: SupportsIndex,
    *,
    which: str = "largest",
    tolerance: float | None = None,
    max_basis: int | None = None,
    max_products: int | None = None,
    seed: int = 0,
) -> EigenpairsMeasurement:
    """Some eigenvalues of a sharded operator; see ``top_eigenpairs``.

    Args:
        operator: The operator, whose vectors are sharded.
        count: Number of eigenvalues.
        which: "largest", "smallest" or "magnitude".
        tolerance: Of residuals, relative to the norm. Defaults to 1e-6, or four times the errors of products, where
            these are larger, up to 0.05. The iteration ends where errors of products allow no smaller residuals.
        max_basis: Vectors that are stored, with their products. Defaults to twice ``count`` and 24.
        max_products: Most products. Defaults to 1000.
        seed: Seed of the random vectors.

    Returns:
        EigenpairsMeasurement: Without eigenvectors, which are sharded; residuals include the error of products.
    """
    require_name("which", which, _ENDS)
    size = operator.size
    number = checked_count("count", count, 1)
    require(number <= size, f"count must be between 1 and the size {size} of the operator", f"got {number}")
    default_tolerance = sharded_tolerance(operator, 1e-6)
    accuracy = checked_number("tolerance", default_tolerance if tolerance is None else tolerance)
    require(1e-15 <= accuracy < 1, "tolerance must be between 1e-15 and 1, relative to the norm", f"got {accuracy}")
    default = 2 * number + _MORE_VECTORS
    capacity = min(size, default if max_basis is None else checked_count("max_basis", max_basis, 1))
    least = min(size, number + 2)
    require(capacity >= least, f"max_basis must be at least {least}", f"got {capacity}")
    most = 1000 if max_products is None else checked_count("max_products", max_products, 1)
    found = _RitzPairs(operator, number, which, accuracy, capacity, checked_seed(seed))
    num_probes, is_certain = 0, False
    while True:
        is_settled = found.iterate(most)
        if not is_settled or found.dimension == size:
            is_certain = is_settled
            break
        verdict = found.probe(most)
        num_probes += 1
        if verdict is not False:
            is_certain = bool(verdict)
            break
    residuals, reachable = found.residuals + found.product_errors, found.reachable
    notes = []
    if reachable > default_tolerance:
        notes.append(f"the errors of products, across kinks or by rounding, allow residuals of {reachable:.1e} * norm")
    if found.has_stalled:
        notes.append("not converged: the residuals no longer became smaller")
    if tolerance is None:
        accuracy = max(accuracy, min(reachable, _COARSEST))
    made = found.products.provenance
    return EigenpairsMeasurement(
        eigenvalues=found.values.numpy(),
        residuals=residuals.numpy(),
        converged=is_certain and bool((residuals <= accuracy * found.norm).all()),
        which=which,
        tolerance=accuracy,
        relative_to="norm",
        norm=found.norm,
        num_products=found.products.count,
        num_probes=num_probes,
        num_restarts=found.num_restarts,
        residual_check=float(found.residuals.norm()),
        size=size,
        seed=found.seed,
        provenance=replace(made, notes=(*made.notes, *notes)),
    )


class _RitzPairs:
    """Rayleigh-Ritz in a growing space, whose vectors Q and products A Q are both stored.

    The next vector is the residual of the first wanted pair that has not converged, which spans the same spaces as
    Lanczos; a restart keeps Ritz vectors and their products.
    """

    def __init__(
        self, operator: ShardedOperator, count: int, which: str, tolerance: float, capacity: int, seed: int
    ) -> None:
        self.operator, self.count, self.which, self.tolerance = operator, count, which, tolerance
        self.seed, self.capacity = seed, capacity
        self.products = _Products(operator)
        self.generator = operator.generator(seed)
        empty = torch.empty(operator.local_size, 0, dtype=operator.dtype, device=operator.device)
        self.basis, self.images = empty, empty
        self.projected = torch.zeros(0, 0, dtype=torch.float64)
        self.values, self.residuals = torch.zeros(0, dtype=torch.float64), torch.zeros(0, dtype=torch.float64)
        self.coordinates = torch.zeros(0, 0, dtype=torch.float64)
        self.errors = torch.zeros(0, dtype=torch.float64)  # of the images
        self.norm, self.num_restarts, self.has_stalled = 0.0, 0, False

    @property
    def dimension(self) -> int:
        return self.basis.shape[1]

    @property
    def product_errors(self) -> Tensor:
        """How much the errors of the stored products may add to the residuals, if they are independent."""
        return (self.coordinates.square().T @ self.errors.square()).sqrt()

    @property
    def reachable(self) -> float:
        """The tolerance that products with these errors can meet."""
        return _ABOVE_ERROR * float(self.product_errors.max()) / self.norm if self.norm else 0.0

    def iterate(self, most: int) -> bool:
        """Until all wanted pairs have converged as far as the errors of products allow, the space is everything, there
        are no more products, or two bases of them have made no residual smaller."""
        least, last_count = inf, self.products.count
        while True:
            direction = self.operator.random_normals(1, self.generator)
            if self.dimension >= self.count:
                rests = self._rests()
                # The other half is for the errors of products.
                is_open = self.residuals > 0.5 * max(self.tolerance, min(self.reachable, _COARSEST)) * self.norm
                if not is_open.any() or self.dimension == self.operator.size:
                    return True
                direction = rests[:, int(is_open.nonzero()[0])][:, None]
                if float(self.residuals.norm()) < _LESS * least:
                    least, last_count = float(self.residuals.norm()), self.products.count
                self.has_stalled = self.products.count - last_count > 2 * self.capacity
                if self.has_stalled:
                    return False
            if self.products.count >= most:
                return False
            if self.dimension == self.capacity:
                self._restart()
            self._add(direction)

    def _rests(self) -> Tensor:
        """The residuals of the wanted pairs as columns; values, coordinates and lengths are kept."""
        values, vectors = torch.linalg.eigh((self.projected + self.projected.T) / 2)
        self.norm = max(self.norm, float(values.abs().max()))
        places = _best_places(values, self.which)[: self.count]
        places = places[values[places].argsort(descending=True)]
        self.values, self.coordinates = values[places], vectors[:, places]
        own = self.coordinates.to(self.basis)
        rests = self.images @ own - self.basis @ (own * self.values.to(own))
        self.residuals = self.operator.inner(rests, rests).diagonal().clamp(min=0).sqrt()
        return rests

    def _add(self, direction: Tensor, image: Tensor | None = None) -> None:
        """Let a direction join, with its product if that is known; a dependent one is replaced by a random one."""
        for _ in range(3):
            length = self.operator.norm(direction)
            rest, (taken,) = _without(self.operator, direction / (length or 1.0), self.basis)
            left = self.operator.norm(rest)
            if length and left > 1e-5:
                break
            direction, image = self.operator.random_normals(1, self.generator), None
        rest = rest / left
        if image is None:
            product, off = self.products.with_error(rest)
        else:
            off = self.products.largest_error
            product = (image / length - self.images @ taken.to(self.images)) / left
        self.basis, self.images = torch.cat([self.basis, rest], 1), torch.cat([self.images, product], 1)
        self.errors = torch.cat([self.errors, torch.tensor([off], dtype=torch.float64)])
        column, row = self.operator.inner(self.basis, product), self.operator.inner(rest, self.images)
        old, size = self.projected, self.dimension
        self.projected = torch.zeros(size, size, dtype=torch.float64)
        self.projected[: size - 1, : size - 1] = old
        self.projected[:, -1:], self.projected[-1:, :] = column, row

    def _restart(self) -> None:
        values, vectors = torch.linalg.eigh((self.projected + self.projected.T) / 2)
        kept = _best_places(values, self.which)[: max(self.count, min(self.capacity - 1, self.capacity // 2 + 1))]
        own = vectors[:, kept].to(self.basis)
        self.basis, self.images = self.basis @ own, self.images @ own
        self.projected = vectors[:, kept].T @ self.projected @ vectors[:, kept]
        self.errors = (vectors[:, kept].square().T @ self.errors.square()).sqrt()
        self.num_restarts += 1

    def probe(self, most: int) -> bool | None:
        """Whether a random vector shows that no value beyond the wanted ones was missed; what it finds instead joins.

        See ``eigenpair_iteration``: outside of the Ritz values of the probe, an eigenvector that it does not show has
        an overlap with its start below a bound that shrinks with every step. None where products ran out.
        """
        operator, slack = self.operator, max(self.tolerance, min(self.reachable, _COARSEST)) * self.norm
        wanted = self.basis @ self.coordinates.to(self.basis)
        num_dimensions = operator.size - self.count
        start = operator.random_normals(1, self.generator)
        process = _Krylov(self.products, start, min(num_dimensions, self.capacity), wanted)
        points = _points(self.values, self.which, slack)
        limit = least_overlap(max(3, num_dimensions), _MISSED)
        while process.dimension < min(num_dimensions, self.capacity) and not process.has_ended:
            if self.products.count >= most:
                return None
            process.expand()
            values, vectors = torch.linalg.eigh(process.tridiagonal)
            beyond = [(n, value) for n, value in enumerate(values.tolist()) if _is_beyond(value, points)]
            if beyond:
                place = max(beyond, key=lambda pair: abs(pair[1]))[0]
                own = vectors[:, place : place + 1].to(self.basis)
                if self.dimension == self.capacity:
                    self._restart()
                self._add(process.basis @ own, process.images @ own)
                return False
            diagonal = process.tridiagonal.diagonal()
            beside = process.coefficients.diagonal(-1)[: process.dimension]
            bounds = [overlap_bound(diagonal, beside, point) for point in points if point is not None]
            if max(bounds) < limit:
                return True
        return True if process.has_ended or process.dimension == num_dimensions else None


def _best_places(values: Tensor, which: str) -> Tensor:
    """Places of Ritz values (ascending), the most wanted first."""
    keys = {"largest": values, "smallest": -values, "magnitude": values.abs()}
    return keys[which].argsort(descending=True, stable=True)


def _points(values: Tensor, which: str, slack: float) -> tuple[float | None, float | None]:
    """Below and above which numbers no further eigenvalue may lie."""
    if which == "largest":
        return None, float(values.min()) + slack
    if which == "smallest":
        return float(values.max()) - slack, None
    least = float(values.abs().min()) + slack
    return -least, least


def _is_beyond(value: float, points: tuple[float | None, float | None]) -> bool:
    low, high = points
    return (low is not None and value < low) or (high is not None and value > high)


def sharded_trace(operator: ShardedOperator, target: ErrorTarget, seed: int) -> SpectralEstimate:
    """The trace of a sharded operator by random signs (Hutchinson), until its standard error meets the target.

    The variance of z^T A z is twice the sum of the variances of the entries z_i (A z)_i, over all processes.
    """
    products, generator = _Products(operator), operator.generator(checked_seed(seed))
    mean = torch.zeros(operator.local_size, dtype=widest_dtype(operator.device), device=operator.device)
    centred, squares, count = torch.zeros_like(mean), 0.0, 0
    while True:
        signs = operator.random_signs(1, generator)
        image = products(signs)
        entries = (signs * image)[:, 0].to(mean)
        count += 1
        apart = entries - mean
        mean += apart / count
        centred += apart * (entries - mean)
        squares += operator.norm(image) ** 2
        sums = operator.processes.sum_numbers(torch.stack([mean.sum(), centred.sum()]).to("cpu", torch.float64))
        value, spread = float(sums[0]), float(sums[1])
        norm = sqrt(squares / count)
        error = sqrt(2 * spread / (count - 1) / count) if count > 1 else inf
        is_met = count > 1 and target.is_met(value, error, norm)
        if is_met or products.count >= max(2, target.max_products):
            break
    off = products.error * norm
    return SpectralEstimate(
        quantity="trace",
        value=value,
        standard_error=error,
        interval=interval(value, error, count, off),
        confidence=CONFIDENCE,
        method_error=off,
        asked=target.standard_error(value, norm),
        reached=is_met,
        num_probes=count,
        num_products=products.count,
        method="hutchinson",
        size=operator.size,
        seed=seed,
        provenance=products.provenance,
    )


class ShardedProbes:
    """Tridiagonal matrices of random signs, by Arnoldi's process with all vectors kept; for densities."""

    scale = 1.0

    def __init__(self, operator: ShardedOperator, seed: int) -> None:
        self.seed, self.size = checked_seed(seed), operator.size
        self._products, self._generator = _Products(operator), operator.generator(self.seed)

    @property
    def rounding(self) -> float:
        return self._products.error

    @property
    def num_products(self) -> int:
        return self._products.count

    @property
    def provenance(self) -> Provenance:
        return self._products.provenance

    def tridiagonal(self, num_steps: int) -> tuple[Tensor, bool]:
        """The matrix of the next probe, and whether its space has ended."""
        steps = min(num_steps, self.size)
        start = self._products.operator.random_signs(1, self._generator)
        process = _Krylov(self._products, start, steps)
        while process.dimension < steps and not process.has_ended:
            process.expand()
        return process.tridiagonal, process.has_ended or process.dimension == self.size


def sharded_solve(
    operator: ShardedOperator,
    right_side: Tensor | NDArray[Any],
    shift: float,
    tolerance: float,
    max_basis: int,
    max_products: int,
) -> ShiftedSolution:
    """Solve (H + shift I) x = b for one b of which every process has its rows, by the smallest residual (GMRES)."""
    given = float_array(right_side, "a right-hand side") if not isinstance(right_side, Tensor) else right_side
    must = f"the right-hand side must have the {operator.local_size} rows of this process"
    require(tuple(given.shape) == (operator.local_size,), must, f"got shape {tuple(given.shape)}")
    right = torch.as_tensor(given).to(operator.device, operator.dtype)[:, None]
    products = _Products(operator)
    size, solution, rest = operator.norm(right), torch.zeros_like(right), right
    num_rounds, relative = 0, 1.0 if size else 0.0
    while relative > tolerance and products.count + 2 <= max_products:
        room = min(max_basis, operator.size, max_products - products.count - 1)
        process = _Krylov(products, rest, room)
        while process.dimension < room and not process.has_ended:
            process.expand()
            small, left = _smallest_residual(process, shift)
            if left <= 0.5 * tolerance * size:
                break
        solution = solution + process.basis @ small.to(solution)
        rest = right - products(solution) - shift * solution
        before, relative = relative, operator.norm(rest) / size
        num_rounds += 1
        if relative > 0.9 * before:
            break
    return ShiftedSolution(
        solution=solution[:, 0].to("cpu", torch.float64).numpy(),
        shift=shift,
        relative_residuals=np.array([relative]),
        tolerance=tolerance,
        converged=relative <= tolerance,
        num_products=products.count,
        num_restarts=max(0, num_rounds - 1),
        size=operator.size,
        provenance=products.provenance,
    )


def _smallest_residual(process: _Krylov, shift: float) -> tuple[Tensor, float]:
    """Coordinates y with the smallest ||b - (A + shift) Q y||, and that norm."""
    stacked = process.coefficients[: process.dimension + 1, : process.dimension].clone()
    stacked.diagonal().add_(shift)
    target = torch.zeros(process.dimension + 1, 1, dtype=torch.float64)
    target[0] = process.start_norm
    small = torch.linalg.lstsq(stacked, target, driver="gelsd").solution
    return small, float((stacked @ small - target).norm())
