"""What is measured of one layer: eigenspaces, factors, and how well the factors explain the layer's Hessian."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
from hessmap.records.record import Record

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
