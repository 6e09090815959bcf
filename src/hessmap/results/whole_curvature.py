"""The curvature of a whole network in the numbers that are asked for first, exact or estimated, and what they took."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hessmap.results.estimates import SharpnessMeasurement, SpectralEstimate, number_with_error
from hessmap.results.record import Record
from hessmap.results.spectra import EffectiveDimension, Spectrum

Floats = NDArray[np.float64]
NUM_EIGENVALUES = 10
_NUM_POINTS, _RESOLVED = 512, 64  # of the grid of a density; parts of the range of the spectrum that its width is
_MANY = 20_000  # eigenvalues; up to here each is smoothed by itself
_BINS = 256  # to a width
_LEAST_RANGE = 1e-290  # whose density is a number


@dataclass(frozen=True, eq=False, repr=False)
class DensityCurve(Record):
    """A density of eigenvalues on a grid, smoothed by a Gaussian of standard deviation ``width``; it integrates to one.

    ``lower`` and ``upper`` are its pointwise band of the stated ``confidence`` over ``num_probes`` random probes; with
    0 probes all eigenvalues are known, and the band is the curve.
    """

    grid: Floats
    density: Floats
    lower: Floats
    upper: Floats
    width: float
    confidence: float
    num_probes: int
    size: int
    summary_fields: ClassVar[tuple[str, ...]] = ("grid", "density", "width", "num_probes", "size")

    @classmethod
    def of_eigenvalues(cls, values: Floats) -> Self:
        """Of all eigenvalues, smoothed by a part of their range."""
        low, high = float(values.min()), float(values.max())
        norm = max(abs(low), abs(high))
        # A spread that is rounding alone, as of a multiple of the identity, resolves nothing.
        is_spread = high - low > 2 * len(values) * float(np.finfo(float).eps) * norm
        width = max(high - low if is_spread else norm or 1.0, _LEAST_RANGE) / _RESOLVED
        grid = np.linspace(low - 4 * width, high + 4 * width, _NUM_POINTS)
        density = smoothed_density(grid, *merged_nodes(values, width), width)
        return cls(grid, density, density, density, width, confidence=1.0, num_probes=0, size=len(values))


@dataclass(frozen=True, eq=False, repr=False)
class WholeCurvature(Record):
    """The loss Hessian of a whole network: numbers with their errors, which are 0 where it was formed.

    ``sharpness`` is its largest eigenvalue with 2 / it, the largest stable step of gradient descent; ``eigenvalues``
    are the largest ones that were found, descending. ``negative_share`` is the part of the sum of the magnitudes of all
    eigenvalues that negative ones hold. ``effective_dimension`` is that of the outer-product Hessian at
    ``epsilon``, one over the number of samples (None where the loss has no such Hessian: ``gap`` says why).
    """

    sharpness: SharpnessMeasurement
    eigenvalues: Floats
    trace: SpectralEstimate
    negative_share: SpectralEstimate
    effective_dimension: SpectralEstimate | None
    epsilon: float
    density: DensityCurve
    gap: str = ""

    @classmethod
    def of_spectrum(cls, loss: Spectrum, dimension: EffectiveDimension) -> Self:
        """From all eigenvalues of H_L, and the effective dimension of H_o."""
        values, size, largest = loss.eigenvalues, len(loss.eigenvalues), float(loss.eigenvalues[0])
        magnitudes = float(np.abs(values).sum())
        negative = float(-values[values < 0].sum()) / magnitudes if magnitudes > 0 else 0.0
        return cls(
            sharpness=SharpnessMeasurement(
                value=largest,
                residual=loss.eigenvalue_error or 0.0,
                converged=loss.converged,
                largest_stable_step=2 / largest if largest > 0 else inf,
                num_products=0,
                size=size,
                seed=0,
            ),
            eigenvalues=values[:NUM_EIGENVALUES].copy(),
            trace=SpectralEstimate.of_known("trace", float(values.sum()), size),
            negative_share=SpectralEstimate.of_known("negative_share", negative, size),
            effective_dimension=SpectralEstimate.of_known("effective_dimension", dimension.value, size),
            epsilon=dimension.epsilon,
            density=DensityCurve.of_eigenvalues(values),
        )

    @property
    def sharpness_text(self) -> str:
        """The largest eigenvalue with its residual, where that shows in four digits."""
        found = self.sharpness
        residual = 0.0 if found.residual < 1e-4 * abs(found.value) else found.residual
        return f"{number_with_error(found.value, residual)}{'' if found.converged else ' (not converged)'}"

    def rows(self) -> list[tuple[str, str]]:
        """Name and value for people, each with its error if it has one."""
        found = self.sharpness
        named = [
            ("largest eigenvalue of H_L (sharpness)", self.sharpness_text),
            ("largest stable step, 2 / sharpness", "any" if found.value <= 0 else f"{found.largest_stable_step:.4g}"),
            ("trace of H_L", self.trace.with_error),
            ("share of negative curvature", share_text(self.negative_share)),
        ]
        if self.effective_dimension is not None:
            label = f"effective dimension of H_o at {self.epsilon:.2g}"
            dimension = self.effective_dimension
            error = max(dimension.standard_error, dimension.method_error)
            named.append((label, f"{number_with_error(dimension.value, error)} of {dimension.size:,}"))
        return named


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureSpread(Record):
    """How unevenly the layers of a network are curved, by the mean entry of the diagonal of the outer-product Hessian.

    ``ratio`` is that of the ``most`` curved layer over that of the ``least``; ``log_deviation`` the standard deviation
    over the layers of its decimal logarithm. Zhang et al. (2024, "Why transformers need Adam: a Hessian perspective")
    find that one step size serves blocks badly whose spectra differ much, as those of transformers do; they measure
    the distance of whole spectra, of which this compares the means. Layers without curvature (``num_flat``) are left
    out.
    """

    most: str
    least: str
    ratio: float
    log_deviation: float
    num_layers: int
    num_flat: int


@dataclass(frozen=True, eq=False, repr=False)
class MapWork(Record):
    """What making a map was expected to take, and took: products, bytes, seconds; ``limit`` is the time it was given.

    Seconds do not count when maps are compared.
    """

    method: str
    planned_products: int
    num_products: int
    num_bytes: int
    limit: float | None
    planned_seconds: float = field(compare=False)
    seconds: float = field(compare=False)


def share_text(share: SpectralEstimate) -> str:
    """A share in percent, with its error: that of the probes or of the quadrature, whichever is larger."""
    error = max(share.standard_error, share.method_error)
    return f"{share.value:.2%}" + (f" ± {error:.1%}" if error else "")


def merged_nodes(values: Floats, width: float) -> tuple[Floats, Floats]:
    """Nodes and weights for smoothing; many values count at the means of bins, and the curve moves by under 1e-4."""
    if len(values) <= _MANY:
        return values, np.full(len(values), 1 / len(values))
    bins = np.unique(np.rint(values * (_BINS / width)), return_inverse=True)[1]
    counts = np.bincount(bins)
    return np.bincount(bins, values) / counts, counts / len(values)


def smoothed_density(grid: Floats, nodes: Floats, weights: Floats, width: float) -> Floats:
    """A sum of Gaussians on a grid."""
    distances = (grid[:, None] - nodes[None, :]) / width
    found: Floats = np.exp(-0.5 * np.square(distances)) @ weights / (width * np.sqrt(2 * np.pi))
    return found
