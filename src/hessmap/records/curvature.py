"""The curvature of one layer, and of a whole network in the numbers that are asked for first, exact or estimated.

Of a layer: eigenspaces, factors, and how well the factors explain the layer's Hessian.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
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


@dataclass(frozen=True, eq=False, repr=False)
class OverlapCurve(Record):
    """Overlap of the leading k-dimensional spaces of two bases for k = 1, 2, ..

    Attributes:
        values: The overlap at dimension k is ``values[k - 1]``: 1 if the spaces are equal, 0 if orthogonal.
        chance: Mean overlap of random spaces, k / size.
        size: Dimension of the whole space.
        orthonormality_error: Largest entry of |U^T U - I| of the given bases.
    """

    values: Floats
    chance: Floats
    size: int
    orthonormality_error: float

    def at(self, dimension: int) -> float:
        return float(self.values[dimension - 1])


@dataclass(frozen=True, eq=False, repr=False)
class OverlapSummary(Record):
    """The overlap curves of all pairs among several models; entry k - 1 is for dimension k.

    Attributes:
        mean: Mean over the pairs.
        spread: Standard deviation over the pairs; 0 for a single pair.
        lowest: Smallest overlap over the pairs.
        highest: Largest overlap over the pairs.
        chance: Mean overlap of random spaces, k / size.
        num_models: Number of models.
        num_pairs: Number of pairs.
        size: Dimension of the whole space.
        peak: Dimension at which the mean is largest, among those up to half of ``size``.
    """

    mean: Floats
    spread: Floats
    lowest: Floats
    highest: Floats
    chance: Floats
    num_models: int
    num_pairs: int
    size: int
    peak: int
    summary_fields: ClassVar[tuple[str, ...]] = ("mean", "spread", "num_pairs", "peak", "size")


@dataclass(frozen=True, eq=False, repr=False)
class KroneckerFit(Record):
    """The distance of a Kronecker product K from the true layer Hessian H.

    Attributes:
        spectral_error: ||K - H|| / ||H|| in the spectral norm.
        frobenius_error: ||K - H||_F / ||H||_F. ||H||_F is estimated beyond the top eigenvalues.
        frobenius_standard_error: Standard error from that estimate; 0 if it was summed exactly.
        eigenvalues: Largest eigenvalues of K, as many as were computed of H.
        overlap: Overlap of the top k eigenvectors of K and H at ``overlap[k - 1]``.
    """

    spectral_error: float
    frobenius_error: float
    frobenius_standard_error: float
    eigenvalues: Floats
    overlap: Floats
    summary_fields: ClassVar[tuple[str, ...]] = ("spectral_error", "frobenius_error", "eigenvalues", "overlap")


@dataclass(frozen=True, eq=False, repr=False)
class DecouplingMeasurement(Record):
    """The true layer Hessian compared with E[M] (x) E[x x^T] and with the nearest Kronecker product.

    Attributes:
        layer: Name of the layer.
        eigenvalues: Largest eigenvalues of the layer Hessian, in descending order.
        expectation: Fit of E[M] (x) E[x x^T].
        best: Fit of the nearest Kronecker product in the Frobenius norm: no Kronecker product has a smaller error in
            it, and the difference to ``expectation`` comes from the two means.
        best_converged: Whether the iteration for the nearest product converged.
        eigenpairs_converged: Whether the eigenpairs of the layer Hessian converged.
        num_samples: Number of samples.
        size: Number of rows of the layer Hessian.
        provenance: Versions, number format, seed and data. Default: None.
    """

    layer: str
    eigenvalues: Floats
    expectation: KroneckerFit
    best: KroneckerFit
    best_converged: bool
    eigenpairs_converged: bool
    num_samples: int
    size: int
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("layer", "eigenvalues", "expectation", "best", "size")


@dataclass(frozen=True, eq=False, repr=False)
class AutocorrelationMeasurement(Record):
    """How close E[x x^T] is to a multiple of E[x] E[x]^T.

    Attributes:
        squared_cosine: (v_1 . E[x] / ||E[x]||)^2 of the leading eigenvector v_1 of E[x x^T]; 0 if E[x] is zero.
        eigenvalue_ratio: lambda_1 / lambda_2 of E[x x^T]; inf if lambda_2 is zero to rounding.
        ratio_bound: Lower bound on it, ||E[x]||^2 / ||Cov x||.
        eigenvalues: Eigenvalues of E[x x^T], in descending order.
        mean_norm: ||E[x]||.

    Notes:
        For a convolution the leading singular direction and value of E[X] (positions x inputs) replace E[x] and its
        norm.
    """

    squared_cosine: float
    eigenvalue_ratio: float
    ratio_bound: float
    eigenvalues: Floats
    mean_norm: float
    summary_fields: ClassVar[tuple[str, ...]] = ("squared_cosine", "eigenvalue_ratio", "ratio_bound")


@dataclass(frozen=True, eq=False, repr=False)
class OutlierMeasurement(Record):
    """Whether c - 1 eigenvalues are separated from the others for c classes.

    Attributes:
        num_classes: Number of classes c.
        ratio: lambda_{c-1} / lambda_c; inf if lambda_c is not positive beyond rounding.
        num_outliers: Number of eigenvalues before the largest ratio of consecutive ones.
        largest_ratio: That ratio, among the first 3 c.
        share: Sum of the positive ones among the first c - 1 over the sum of all magnitudes.
        eigenvalues: The given eigenvalues, in descending order.
    """

    num_classes: int
    ratio: float
    num_outliers: int
    largest_ratio: float
    share: float
    eigenvalues: Floats
    summary_fields: ClassVar[tuple[str, ...]] = ("num_classes", "ratio", "num_outliers", "largest_ratio", "share")


@dataclass(frozen=True, eq=False, repr=False)
class ClusterMeasurement(Record):
    """How the mean logit gradients of c classes and c logits cluster.

    Attributes:
        by_logit: Variance between the cluster centres over variance within, one cluster per logit; inf without variance
            within.
        by_class: The same with one cluster per class.
        of_each_logit: Squared distance of each logit's centre from the overall mean over the variance of its cluster.
        of_each_class: The same for each class.
        explained: Share of the trace of E[sum_j g_j g_j^T] in the class means; the rest is variance within classes.
        num_classes: Number of classes c.
    """

    by_logit: float
    by_class: float
    of_each_logit: Floats
    of_each_class: Floats
    explained: float
    num_classes: int
    summary_fields: ClassVar[tuple[str, ...]] = ("by_logit", "by_class", "explained", "num_classes")


@dataclass(frozen=True, eq=False, repr=False)
class KroneckerBlockError(Record):
    """How well one block of a Kronecker-factored curvature describes the true block.

    Attributes:
        names: Parameters of the block.
        form: How the block is approximated.
        size: Number of parameters.
        frobenius_error: ||B - K||_F / ||B||_F.
        frobenius_standard_error: Its standard error; 0 where the block was formed.
        overlap: Share of the leading eigenspace of B that lies in that of K, between 0 and 1; None for a diagonal.
    """

    names: tuple[str, ...]
    form: str
    size: int
    frobenius_error: float
    frobenius_standard_error: float
    overlap: float | None
    summary_fields: ClassVar[tuple[str, ...]] = ("names", "form", "frobenius_error", "overlap")

    @property
    def label(self) -> str:
        """The layer, or the first parameter and how many more."""
        layers = list(dict.fromkeys(name.rpartition(".")[0] or name for name in self.names))
        return layers[0] if len(layers) == 1 else f"{self.names[0]}+{len(self.names) - 1}"


@dataclass(frozen=True, eq=False, repr=False)
class KroneckerError(Record):
    """How well a Kronecker-factored curvature describes the matrix that it approximates.

    Attributes:
        kind: "kfac", "ekfac", "best", "diagonal" or "block".
        blocks: The error of every block.
        frobenius_error: ||H - K||_F / ||H||_F of the whole matrix, blocks off the diagonal included.
        frobenius_standard_error: Its standard error.
        solve_error: Relative error of (K + damping I)^-1 g for the gradient g, compared with the true matrix.
        solve_converged: Whether the solution with the true matrix converged.
        damping: The damping of that comparison.
        count: Dimension of the leading eigenspaces that are compared.
        seed: Seed of the probes.
    """

    kind: str
    blocks: tuple[KroneckerBlockError, ...]
    frobenius_error: float
    frobenius_standard_error: float
    solve_error: float
    solve_converged: bool
    damping: float
    count: int
    seed: int
    summary_fields: ClassVar[tuple[str, ...]] = ("kind", "frobenius_error", "solve_error", "damping")

    def table(self) -> str:
        """A line for every block and one for the whole matrix.

        Returns:
            Columns: layer, parameters, form, relative Frobenius error, overlap of the leading eigenspaces.
        """
        heads = ("layer", "parameters", "form", "Frobenius error", f"overlap of top {self.count}")
        rows = [heads]
        for block in self.blocks:
            overlap = "-" if block.overlap is None else f"{100 * block.overlap:.1f} %"
            error = _percent(block.frobenius_error, block.frobenius_standard_error)
            rows.append((block.label, f"{block.size:,}", block.form, error, overlap))
        size = sum(block.size for block in self.blocks)
        error = _percent(self.frobenius_error, self.frobenius_standard_error)
        rows.append(("whole", f"{size:,}", "block diagonal", error, "-"))
        widths = [max(len(row[place]) for row in rows) for place in range(len(heads))]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in lines)

    @property
    def summary(self) -> str:
        """The best and the worst described block in one sentence."""
        known = [block for block in self.blocks if block.overlap is not None]
        if not known:
            return f"The {self.kind} curvature has no block with eigenvectors to compare."
        ranked = sorted(known, key=lambda block: block.overlap or 0.0)
        worst, best = ranked[0], ranked[-1]
        name = {"kfac": "K-FAC", "ekfac": "EK-FAC", "best": "The nearest Kronecker product"}.get(self.kind, self.kind)
        what = f"the top {self.count} directions" if self.count > 1 else "the sharpest direction"
        shares = [(block.label, 100 * (block.overlap or 0.0)) for block in (best, worst)]
        parts = [f"{layer} ({share:.0f} %)" for layer, share in shares]
        if best is worst:
            return f"{name} recovers {what} of layer {parts[0]}."
        return f"{name} recovers {what} best in layer {parts[0]} and worst in layer {parts[1]}."


def _percent(share: float, standard_error: float) -> str:
    """
    >>> _percent(0.1234, 0.0), _percent(0.1234, 0.012)
    ('12.3 %', '12.3 % +- 1.2')
    """
    return f"{100 * share:.1f} %" + (f" +- {100 * standard_error:.1f}" if standard_error else "")


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
