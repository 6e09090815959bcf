"""The curvature of a whole network in the numbers that are asked for first, exact or estimated, and what they took."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hessmap.records.record import Record
from hessmap.records.spectra import (
    EffectiveDimension,
    SharpnessMeasurement,
    SpectralEstimate,
    Spectrum,
    number_with_error,
    range_text,
)

Floats = NDArray[np.float64]
NUM_EIGENVALUES = 10
_NUM_POINTS = 512  # of the grid of a density
_LINEAR_PART, _MOST_LINEAR = 1e-5, 1e-3  # of the largest magnitude: below it the scale of a density is linear
DENSITY_WIDTH = 0.08  # of the smoothing, in units of asinh(eigenvalue / linear part): 8% of a large eigenvalue
_RESOLVED = 64  # parts of the range of a narrow spectrum that the width of its density is
_MANY = 20_000  # eigenvalues; up to here each is smoothed by itself
_BINS = 256  # to a width
_LEAST_RANGE = 1e-290  # whose density is a number


@dataclass(frozen=True, eq=False, repr=False)
class DensityCurve(Record):
    """A density of eigenvalues on a grid; it integrates to one over the eigenvalues.

    Attributes:
        grid: Eigenvalues.
        density: The density.
        lower: Lower end of its pointwise confidence band over the probes.
        upper: Upper end.
        width: Standard deviation of the Gaussian smoothing, in asinh(eigenvalue / linear_part) or, if that is 0, in the
            eigenvalue.
        confidence: Confidence of the band.
        num_probes: Random probes; 0 if all eigenvalues are known, and the band is the curve.
        size: Number of eigenvalues.
        linear_part: Below it the scale is linear, above logarithmic, so that outliers of any size stay apart from the
            bulk. Defaults to 0: linear throughout, as for narrow spectra.
    """

    grid: Floats
    density: Floats
    lower: Floats
    upper: Floats
    width: float
    confidence: float
    num_probes: int
    size: int
    linear_part: float = 0.0
    summary_fields: ClassVar[tuple[str, ...]] = ("grid", "density", "width", "num_probes", "size")

    @staticmethod
    def of_eigenvalues(values: Floats) -> DensityCurve:
        """Of all eigenvalues: on a linear scale where that resolves more at every one of them, as of a narrow spectrum
        far from zero, on a symmetric logarithmic one otherwise.

        A spread that is rounding alone, as of a multiple of the identity, resolves nothing.
        """
        low, high, nearest = float(values.min()), float(values.max()), float(np.abs(values).min())
        rounding = 2 * len(values) * float(np.finfo(float).eps) * max(abs(low), abs(high))
        width = max(high - low, _LEAST_RANGE) / _RESOLVED
        if high - low > rounding and width <= DENSITY_WIDTH * nearest:
            grid = np.linspace(low - 4 * width, high + 4 * width, _NUM_POINTS)
            density = smoothed_density(grid, *merged_nodes(values, width), width)
            return DensityCurve(grid, density, density, density, width, confidence=1.0, num_probes=0, size=len(values))
        scale = SymmetricLogScale.of(values)
        places = scale.places(values)
        grid = scale.grid(values)
        density = smoothed_density(grid, *merged_nodes(places, DENSITY_WIDTH), DENSITY_WIDTH)
        return scale.curve(grid, density, density, density, confidence=1.0, num_probes=0, size=len(values))


@dataclass(frozen=True)
class SymmetricLogScale:
    """The scale on which densities are smoothed and drawn: position asinh(eigenvalue / linear_part).

    Attributes:
        linear_part: Linear below it, logarithmic above.
    """

    linear_part: float

    @classmethod
    def of(cls, values: Floats, resolution: float = 0.0) -> Self:
        """For values that are known to within ``resolution`` around zero."""
        largest = max(float(np.abs(values).max()), _LEAST_RANGE)
        return cls(max(_LINEAR_PART * largest, min(resolution, _MOST_LINEAR * largest)))

    def places(self, values: Floats) -> Floats:
        found: Floats = np.arcsinh(values / self.linear_part)
        return found

    def grid(self, values: Floats) -> Floats:
        """Places from end to end of the values, and a little beyond."""
        places = self.places(values)
        return np.linspace(places.min() - 4 * DENSITY_WIDTH, places.max() + 4 * DENSITY_WIDTH, _NUM_POINTS)

    def curve(
        self,
        grid: Floats,
        density: Floats,
        lower: Floats,
        upper: Floats,
        confidence: float,
        num_probes: int,
        size: int,
    ) -> DensityCurve:
        """From densities over places to those over eigenvalues."""
        stretch = self.linear_part * np.cosh(grid)
        return DensityCurve(
            grid=self.linear_part * np.sinh(grid),
            density=density / stretch,
            lower=lower / stretch,
            upper=upper / stretch,
            width=DENSITY_WIDTH,
            confidence=confidence,
            num_probes=num_probes,
            size=size,
            linear_part=self.linear_part,
        )


@dataclass(frozen=True, eq=False, repr=False)
class WholeCurvature(Record):
    """The loss Hessian of a whole network in five numbers, with errors that are 0 if it was formed.

    Attributes:
        sharpness: Largest eigenvalue, with the largest stable learning rate.
        eigenvalues: The largest ones that were computed, in descending order.
        trace: The trace.
        negative_share: Part of the sum of all |eigenvalues| that negative ones have.
        effective_dimension: That of the GGN at ``epsilon``; None if it is not available.
        epsilon: One over the number of samples.
        density: Density of the eigenvalues.
        gap: Why there is no effective dimension. Default: empty.
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
        """The largest eigenvalue with its residual, where that shows in four digits; a bound if it did not converge: a
        Ritz value is never above the largest eigenvalue."""
        found = self.sharpness
        if not found.converged:
            return f"at least {found.value:.3g} (not converged)"
        residual = 0.0 if found.residual < 1e-4 * abs(found.value) else found.residual
        return number_with_error(found.value, residual)

    @property
    def dimension_text(self) -> str:
        """The effective dimension with its error, or the range that it is in; empty where there is none."""
        found = self.effective_dimension
        if found is None:
            return ""
        error = max(found.standard_error, found.method_error)
        if error < abs(found.value) or error == 0:
            return f"{found.value:,.0f}" + (f" (± {float(f'{error:.1g}'):,.0f})" if error >= 0.5 else "")
        return range_text(*found.interval, "{:,.0f}")

    def rows(self) -> list[tuple[str, str]]:
        """Name and value for people, each with its error if it has one."""
        return [
            ("largest eigenvalue of the Hessian (sharpness)", self.sharpness_text),
            ("largest stable learning rate, 2 / sharpness", self.stable_step_text),
            ("trace of the Hessian", self.trace.with_error),
            ("negative curvature (share of all |eigenvalues|)", share_text(self.negative_share)),
            ("effective dimension (directions fixed by the data)", self._dimension_of_size),
        ]

    @property
    def stable_step_text(self) -> str:
        """The largest stable learning rate of gradient descent; an upper bound if the sharpness is a lower one."""
        found = self.sharpness
        if found.value <= 0:
            return "any" if found.converged else "not known"
        return f"{'' if found.converged else 'at most '}{found.largest_stable_step:.4g}"

    @property
    def _dimension_of_size(self) -> str:
        if self.effective_dimension is None:
            return f"not available{f' ({reason})' if (reason := self.gap.removesuffix('.')) else ''}"
        return f"{self.dimension_text} of {self.effective_dimension.size:,}"


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureSpread(Record):
    """How unevenly the layers of a network are curved, by the mean diagonal entry of the GGN.

    Attributes:
        most: The most curved layer.
        least: The least curved one.
        ratio: The mean entry of the first over that of the second.
        log_deviation: Standard deviation over the layers of its decimal logarithm.
        num_layers: Number of layers.
        num_flat: Layers without curvature, which are left out.

    Notes:
        Zhang et al. (2024, "Why transformers need Adam: a Hessian perspective") find that a single step size is
        unsuitable for blocks whose spectra differ much, as those of transformers do. They measure the distance of whole
        spectra; this compares their means.
    """

    most: str
    least: str
    ratio: float
    log_deviation: float
    num_layers: int
    num_flat: int


@dataclass(frozen=True, eq=False, repr=False)
class MapWork(Record):
    """The planned and the actual cost of a map; seconds do not count when maps are compared.

    Attributes:
        method: "dense" or "products".
        planned_products: Products that were planned.
        num_products: Products that were made.
        num_bytes: Most memory in use at once.
        limit: Time limit in seconds; None for none.
        planned_seconds: Planned time.
        seconds: Time that it took.
    """

    method: str
    planned_products: int
    num_products: int
    num_bytes: int
    limit: float | None
    planned_seconds: float = field(compare=False)
    seconds: float = field(compare=False)


def share_text(share: SpectralEstimate) -> str:
    """Format a share in percent with its error.

    Args:
        share: The share. Its error is that of the probes or of the quadrature, whichever is larger.

    Returns:
        The share with its error; the range that it is in if the error is not less than the share.
    """
    error = max(share.standard_error, share.method_error)
    if error and error >= share.value:
        return range_text(*share.interval, "{:.0%}")
    return f"{share.value:.2%}" + (f" ± {error:.1%}" if error else "")


def merged_nodes(values: Floats, width: float) -> tuple[Floats, Floats]:
    """Nodes and weights for smoothing; many values count at the means of bins, and the curve moves by under 1e-4."""
    if len(values) <= _MANY:
        return values, np.full(len(values), 1 / len(values))
    bins = np.unique(np.rint(values * (_BINS / width)), return_inverse=True)[1]
    counts = np.bincount(bins)
    return np.bincount(bins, values) / counts, counts / len(values)


def smoothed_density(grid: Floats, nodes: Floats, weights: Floats, width: float) -> Floats:
    """Evaluate a weighted sum of Gaussians on a grid.

    Args:
        grid: Points at which it is evaluated.
        nodes: Centres of the Gaussians.
        weights: Their weights.
        width: Their standard deviation.

    Returns:
        The density at every point of the grid.
    """
    found: Floats = smoothed_kernels(grid, nodes, width) @ weights
    return found


def smoothed_kernels(grid: Floats, nodes: Floats, width: float) -> Floats:
    """Evaluate one Gaussian per node on a grid.

    Args:
        grid: Points at which they are evaluated.
        nodes: Centres of the Gaussians.
        width: Their standard deviation.

    Returns:
        The values, shape (grid, nodes); each column integrates to 1.
    """
    distances = (grid[:, None] - nodes[None, :]) / width
    found: Floats = np.exp(-0.5 * np.square(distances)) / (width * np.sqrt(2 * np.pi))
    return found
