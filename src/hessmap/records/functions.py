"""The function of a network: the rank of its Jacobians, its layers and class regions, its cost, what it has learnt."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
from hessmap.records.ranks import RankMeasurement
from hessmap.records.record import Record
from hessmap.records.spectra import number_with_error

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
SideKind = Literal["certificate", "measurement", "theorem"]
EPS = float(np.finfo(np.float64).eps)
# Squared singular values are known to 1e-16 of the largest, so that singular values are to 1e-8.
GRAM_ERROR = 1e-8


# A rank is robust if it stays the same while the tolerance changes by this factor, within a factor of ten of the one
# that was asked for.
ROBUST_FACTOR = 3.0


@dataclass(frozen=True, eq=False, repr=False)
class RankRange(Record):
    """A rank that is the same over a range of relative tolerances.

    Attributes:
        value: The rank.
        lowest: Smallest relative tolerance that gives it.
        highest: Upper end of the range, which is not part of it.
    """

    value: int
    lowest: float
    highest: float

    @property
    def factor(self) -> float:
        """By how much the tolerance may change; inf where it may go down to zero."""
        return self.highest / self.lowest if self.lowest > 0 else math.inf


def robust_rank(ratios: Floats, tolerance: float, error: float) -> RankRange | None:
    """Find the rank that stays the same over the largest range of tolerances near a given one.

    Args:
        ratios: Singular values over the largest one, in descending order.
        tolerance: Relative tolerance; the ranges are searched within a factor of ten of it.
        error: Error of the ratios: tolerances below it are not considered.

    Returns:
        The rank with its range, the largest on a logarithmic scale; None if no range spans a factor of 3
        within the search.

    Example:
        >>> robust_rank(np.array([1.0, 0.6, 0.11, 0.05, 0.002]), tolerance=0.1, error=1e-16)
        RankRange(value=2, lowest=0.11, highest=0.6)
        >>> robust_rank(0.5 ** np.arange(12), tolerance=0.1, error=1e-16) is None
        True
    """
    near = max(error, tolerance / 10), min(1.0, 10 * tolerance)
    edges = np.maximum(np.append(ratios, 0.0), error)
    best, widest = None, ROBUST_FACTOR
    for place in range(len(ratios)):
        highest, lowest = float(edges[place]), float(edges[place + 1])
        width = min(highest, near[1]) / max(lowest, near[0])
        if width >= widest:
            best, widest = RankRange(place + 1, lowest, highest), width
    return best


@dataclass(frozen=True, eq=False, repr=False)
class SchattenMeasurement(Record):
    """Proposition 3 of Jacot 2023 on data: sum s^(2/L) of every Jacobian against ||W||^2 / L.

    Attributes:
        num_layers: Number L of linear layers.
        squared_norm: ||W||^2, the sum of squares of their weights and biases.
        quasi_norms: Sum of s^(2/L) over the singular values s of each Jacobian; those below rounding count as 0.

    Notes:
        ``slack`` is the bound minus the largest of ``quasi_norms``; it is never negative beyond rounding.
    """

    num_layers: int
    squared_norm: float
    quasi_norms: Floats
    summary_fields: ClassVar[tuple[str, ...]] = ("num_layers", "squared_norm", "bound", "largest", "slack")

    @property
    def bound(self) -> float:
        return self.squared_norm / self.num_layers

    @property
    def largest(self) -> float:
        return float(self.quasi_norms.max())

    @property
    def slack(self) -> float:
        return self.bound - self.largest


@dataclass(frozen=True, eq=False, repr=False)
class FunctionRankCertificate(Record):
    """Exact ranks of the Jacobians at given points over GF(prime), which are never above the true ones.

    Attributes:
        value: Largest of the ranks: a certified lower bound on the Jacobian rank.
        ranks: Rank at each point; 0 where nothing is certified.
        prime: The random prime.
        failure_bound: Bound on the probability that a rank is below the true one.
        num_ties: Units at a kink, summed over the points. A point with one has no Jacobian.
        num_moved: Points replaced by a nearby one around which the function is differentiable. Defaults to 0.
        num_uncertified: Points at a kink for which no such point was found. Defaults to 0.
    """

    value: int
    ranks: Integers
    prime: int
    failure_bound: float
    num_ties: int
    num_moved: int = 0
    num_uncertified: int = 0
    summary_fields: ClassVar[tuple[str, ...]] = (
        "value", "prime", "failure_bound", "num_ties", "num_moved", "num_uncertified",
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class RankInterval(Record):
    """Bounds on the bottleneck rank of a function, each with its source.

    Attributes:
        lower: Lower bound.
        lower_kind: "certificate" or "measurement".
        upper: Upper bound.
        upper_kind: "theorem" or "measurement".
        upper_layer: Layer whose dimension is ``upper``, or "inputs" or "outputs".

    Notes:
        "theorem" holds for the architecture, "certificate" for these weights in exact arithmetic, "measurement" counts
        singular values above a relative tolerance, and takes the rank that is robust near it if there is one. Two
        measurements at a coarse tolerance may contradict each other.
    """

    lower: int
    lower_kind: SideKind
    upper: int
    upper_kind: SideKind
    upper_layer: str


@dataclass(frozen=True, eq=False, repr=False)
class FunctionRank(Record):
    """Numerical ranks of the input-output Jacobians at given points.

    Attributes:
        value: Largest rank over the points: a measured lower bound on the Jacobian rank of the function. It may come
            from few points (``distribution``) and depend on the tolerance (``robust_rank`` does not).
        ranks: Singular values above ``relative_tolerance`` times the largest, counted at each point.
        gaps: Smallest kept over largest dropped singular value of each point; inf if only zeros are dropped.
        singular_values: One row per point, in descending order.
        relative_tolerance: Tolerance relative to the largest singular value of each point.
        num_samples: Number of points.
        input_dim: Number of inputs.
        output_dim: Number of outputs.
        method: "layers", "vjp" or "jvp" for whole Jacobians, "products, k largest" for the k largest singular values.
        is_complete: Whether all singular values are known; if not, a rank that equals the number of known ones may be
            larger. Defaults to True.
        bottleneck: Interval of the bottleneck rank. Default: None.
        schatten: Comparison with the norm of the weights. Default: None, Proposition 3 of Jacot 2023 does not apply.
        certificate: Ranks in exact arithmetic. Default: None, not requested.
        num_kinks: Points at a kink, which have no Jacobian: that of a nearby point was used. Defaults to 0.
        provenance: Versions, number format, seed and data. Default: None.
    """

    value: int
    ranks: Integers
    gaps: Floats
    singular_values: Floats
    relative_tolerance: float
    num_samples: int
    input_dim: int
    output_dim: int
    method: str
    is_complete: bool = True
    bottleneck: RankInterval | None = None
    schatten: SchattenMeasurement | None = None
    certificate: FunctionRankCertificate | None = None
    num_kinks: int = 0
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "value", "distribution", "robust_rank", "smallest_gap", "relative_tolerance", "num_samples", "input_dim",
        "output_dim", "method",
    )  # fmt: skip

    @property
    def distribution(self) -> dict[int, int]:
        """How many points have which rank."""
        ranks, counts = np.unique(self.ranks, return_counts=True)
        return dict(zip(ranks.tolist(), counts.tolist(), strict=True))

    @property
    def robust_rank(self) -> RankRange | None:
        """The largest rank over the points that holds over a range of tolerances near the one that was asked for."""
        largest = self.singular_values[:, :1]
        ratios = np.divide(self.singular_values, largest, out=np.zeros_like(self.singular_values), where=largest > 0)
        error = max(self.input_dim, self.output_dim) * EPS if self.is_complete else GRAM_ERROR
        return robust_rank(ratios.max(axis=0), self.relative_tolerance, error)

    @property
    def smallest_gap(self) -> float:
        return float(self.gaps.min())


@dataclass(frozen=True, eq=False, repr=False)
class LayerRepresentation(Record):
    """The output Z of one layer, after its activation, over all samples (rows).

    Attributes:
        name: Name of the layer.
        width: Number of units.
        singular_values: Singular values of Z.
        centred_singular_values: Singular values of Z minus its mean row.
        weight_singular_values: Singular values of the weight matrix.
        rank: Entries of ``singular_values`` above the view's relative tolerance times the largest.
        centred_rank: The same count for ``centred_singular_values``.
        effective_rank: Exponential of the entropy of the centred singular values (Roy & Vetterli 2007).
        stable_rank: ||Z||_F^2 / ||Z||^2 of the centred Z.
        nonlinearity: ||Y - Z|| / ||Y|| of the pre-activations Y; None for the last layer and if pooling changes the
            size.
        similarity: Centred linear alignment (CKA) of inputs and outputs of the layer: 1 if they are equal up to
            rotation and scale, 0 if one is constant.
        is_approximate_identity: Whether ``nonlinearity`` is at most 0.05 and ``similarity`` at least 0.95.
        is_limited_by_samples: Whether the centred rank may be that of too few distinct samples, not of the layer.
            Defaults to False.
    """

    name: str
    width: int
    singular_values: Floats
    centred_singular_values: Floats
    weight_singular_values: Floats
    rank: int
    centred_rank: int
    effective_rank: float
    stable_rank: float
    nonlinearity: float | None
    similarity: float
    is_approximate_identity: bool
    is_limited_by_samples: bool = False
    summary_fields: ClassVar[tuple[str, ...]] = (
        "name", "width", "rank", "centred_rank", "effective_rank", "stable_rank", "nonlinearity", "similarity",
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class BottleneckView(Record):
    """The representations of a network, layer by layer.

    Attributes:
        layers: Every layer, in order.
        bottlenecks: Names of the hidden layers of least centred rank (of all layers if there is only one). Layers
            limited by the samples are left out.
        identities: Names of the layers that are approximate identities.
        relative_tolerance: Tolerance of the ranks, relative to the largest singular value.
        num_samples: Number of samples.
        is_chain: Whether the function passes through every layer alone; if not, a narrow layer does not bound its rank.
        num_distinct: Samples that differ by more than a tenth of the tolerance times their root mean square distance
            from the mean, counted up to 2,000 or to what the ranks need, whichever is more. Default: None, not counted.
        provenance: Versions, number format, seed and data. Default: None.
    """

    layers: tuple[LayerRepresentation, ...]
    bottlenecks: tuple[str, ...]
    identities: tuple[str, ...]
    relative_tolerance: float
    num_samples: int
    is_chain: bool
    num_distinct: int | None = None
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "bottlenecks", "identities", "relative_tolerance", "num_samples", "num_distinct",
    )  # fmt: skip

    @property
    def limited_by_samples(self) -> tuple[str, ...]:
        """The layers whose centred rank is that of the samples."""
        return tuple(layer.name for layer in self.layers if layer.is_limited_by_samples)


@dataclass(frozen=True, eq=False, repr=False)
class BalanceMeasurement(Record):
    """||W_(l+1)||^2 - ||W_l||^2 - ||b_l||^2 of neighbouring layers: 0 at every local minimum with an l2 penalty.

    Attributes:
        names: Names of the linear layers.
        defects: The difference for each pair of neighbouring layers.
        unit_defects: For each pair, squared norm of the outgoing weights of each hidden unit minus that of its incoming
            weights and bias.
        relative: Largest |defect| over the largest ||W_l||^2 + ||b_l||^2.
        largest_unit_defect: Largest magnitude among ``unit_defects``.
    """

    names: tuple[str, ...]
    defects: Floats
    unit_defects: tuple[Floats, ...]
    relative: float
    largest_unit_defect: float
    summary_fields: ClassVar[tuple[str, ...]] = ("relative", "largest_unit_defect")


@dataclass(frozen=True, eq=False, repr=False)
class ClassRegions(Record):
    """The classes of a planar classifier on a grid, with the boundaries and tripoints of the piecewise-linear
    interpolant of its logits, which are exact for the interpolant.

    Attributes:
        tripoints: Points where three classes meet, shape (count, 2).
        tripoint_classes: The three classes at each, shape (count, 3).
        boundaries: Segments between two classes, shape (count, 2 ends, 2 coordinates).
        labels: Class at each point of the last grid; rows go from bottom to top, columns from left to right.
        box: (left, right, bottom, top).
        grid_sizes: Points per axis of each grid that was tried.
        counts: Number of tripoints on each of these grids.
        agrees: Whether the last two grids found the same tripoints, up to two cells of the coarser one.
    """

    tripoints: Floats
    tripoint_classes: Integers
    boundaries: Floats
    labels: Integers
    box: tuple[float, float, float, float]
    grid_sizes: tuple[int, ...]
    counts: tuple[int, ...]
    agrees: bool
    summary_fields: ClassVar[tuple[str, ...]] = ("num_tripoints", "grid_sizes", "counts", "agrees", "box")

    @property
    def num_tripoints(self) -> int:
        return len(self.tripoints)


@dataclass(frozen=True, eq=False, repr=False)
class DenoisingScore(Record):
    """dist(f(x + noise), data) / dist(x + noise, data) over random points: 0 projects, 1 removes nothing.

    Attributes:
        mean: Mean over the points.
        median: Median over the points.
        standard_error: Standard error of the mean.
        noise: Standard deviation of the Gaussian noise in each coordinate.
        num_points: Number of noisy points.
        seed: Seed of points and noise.
        scores: The ratio of each point; 1 for a point at distance 0.
    """

    mean: float
    median: float
    standard_error: float
    noise: float
    num_points: int
    seed: int
    scores: Floats
    summary_fields: ClassVar[tuple[str, ...]] = ("mean", "standard_error", "median", "noise", "num_points", "seed")


CostKind = Literal["value", "lower_bound", "upper_bound"]
CostSource = Literal["measurement", "theorem", "construction"]


@dataclass(frozen=True, eq=False, repr=False)
class CostBound(Record):
    """A squared norm of weights: the value of a network, or a bound on networks.

    Attributes:
        name: "weights", "jacobians", "linear", "path" or "deeper" (see ``representation_cost``).
        squared_norm: ||W||^2.
        num_layers: Number of layers L of the networks.
        kind: "value", "lower_bound" or "upper_bound".
        source: "measurement" (computed from this network), "theorem" (proved for all networks of ``holds_for``) or
            "construction" (attained by a network that was built).
        holds_for: The networks that it applies to, in words.
        reference: Paper and theorem.
    """

    name: str
    squared_norm: float
    num_layers: int
    kind: CostKind
    source: CostSource
    holds_for: str
    reference: str
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "squared_norm", "num_layers", "kind", "source", "holds_for")

    @property
    def scaled(self) -> float:
        """||W||^2 / L."""
        return self.squared_norm / self.num_layers


@dataclass(frozen=True, eq=False, repr=False)
class RepresentationCost(Record):
    """The squared norm of all parameters, bounds on it, and the depths at which rank recovery is expected.

    Attributes:
        num_layers: Number of linear and convolution layers, at least 1.
        squared_norm: ||W||^2, the sum of squares of all parameters.
        bounds: The value and every bound that applies.
        inner_rank: Least rank k of a weight matrix. Default: None, its singular values have no clear gap, a matrix is
            zero, or the network is not a sequence of linear layers and ReLU.
        constant: C such that k L + C bounds the cost of the function at every depth L above ``num_layers``, with the
            dropped singular values set to zero (by construction). Default: None.
        expected_depths: First and last depth at which k + C / L is below k + 1 and k L + C below the cost of a rank-1
            interpolator that was built: a comparison of two upper bounds. Default: None, there are none or a bound is
            missing.
        proved_depths: First and last depth at which every function of bottleneck rank 1 through the same outputs is
            proved to cost more; no singular value is dropped. Default: None, as above.
        notes: Reasons for what is missing. Default: none.
        inner_rank_measurement: The measurement of the inner rank. Default: None.
        function_error: Bound on the change of the outputs, on the box of the inputs, by the dropped singular values.
            Default: None.
        provenance: Versions, number format, seed and data. Default: None.
    """

    num_layers: int
    squared_norm: float
    bounds: tuple[CostBound, ...]
    inner_rank: int | None = None
    constant: float | None = None
    expected_depths: tuple[int, int] | None = None
    proved_depths: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    inner_rank_measurement: RankMeasurement | None = None
    function_error: float | None = None
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("squared_norm", "scaled", "num_layers", "expected_depths", "notes")

    @property
    def scaled(self) -> float:
        """||W||^2 / L."""
        return self.squared_norm / self.num_layers

    def bound(self, name: str) -> CostBound | None:
        """The bound of a name, or None where it could not be given."""
        return next((bound for bound in self.bounds if bound.name == name), None)


@dataclass(frozen=True, eq=False, repr=False)
class LearningCoefficient(Record):
    """The learning coefficient lambda of a network.

    The volume of weights with excess risk below e shrinks like e^lambda (-log e)^(m-1).

    Attributes:
        value: lambda; an upper bound on it if ``kind`` is "conjecture".
        multiplicity: m; None if unknown.
        kind: "exact" (a theorem) or "conjecture".
        reference: Source of the theorem or conjecture.
        rank: Rank of the true map on the inputs.
        is_local: Whether it is the coefficient at given weights, rather than the least over all optima.
        lower_bound: Proved lower bound; equal to ``value`` if ``kind`` is "exact".
        hessian_rank: Rank of the outer-product Hessian at generic optima or, if ``is_local``, at the given weights.
            Half of it is what curvature alone gives.
        num_parameters: Number of parameters; half of it is the coefficient of a model without symmetries.
        assumptions: Assumptions on inputs and loss. Default: none.
        inputs: Widths, loss and other arguments. Default: empty.
    """

    value: Fraction
    multiplicity: int | None
    kind: Literal["exact", "conjecture"]
    reference: str
    rank: int
    is_local: bool
    lower_bound: Fraction
    hessian_rank: int
    num_parameters: int
    assumptions: tuple[str, ...] = ()
    inputs: dict[str, object] = field(default_factory=dict)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "value",
        "multiplicity",
        "kind",
        "rank",
        "is_local",
        "hessian_rank",
        "num_parameters",
        "reference",
    )

    def __float__(self) -> float:
        return float(self.value)


CheckOutcome = Literal["passed", "failed", "inconclusive", "not run"]
EstimateVerdict = Literal["reliable", "inconclusive", "unreliable"]


@dataclass(frozen=True, eq=False, repr=False)
class LearningCheck(Record):
    """One possible failure of an estimate: what was measured, and the remedy.

    Attributes:
        name: "minimum", "parameters", "agreement", "trend", "step", "length", "batch", "half step" or "weaker pull".
        outcome: "passed", "failed", "inconclusive" or "not run".
        measured: The number that is compared; None if nothing was measured.
        limit: The number that it is compared with.
        sentence: The result in words, with the remedy if it did not pass.
    """

    name: str
    outcome: CheckOutcome
    measured: float | None
    limit: float
    sentence: str


@dataclass(frozen=True, eq=False, repr=False)
class ChainSettings(Record):
    """How chains are drawn from exp(-n beta L(w) - gamma |w - w0|^2 / 2).

    Attributes:
        num_observations: n.
        inverse_temperature: beta.
        localisation: gamma, the strength of the pull back to the weights w0; 0 for none.
        step_size: Step of the Langevin dynamics.
        num_chains: Number of chains.
        num_burn_in: Steps of each chain before its first draw.
        num_draws: Draws of each chain.
        batch_size: Samples per step; None for all.
        seed: Seed of the noise and the batches.
    """

    num_observations: float
    inverse_temperature: float
    localisation: float
    step_size: float
    num_chains: int
    num_burn_in: int
    num_draws: int
    batch_size: int | None
    seed: int


@dataclass(frozen=True, eq=False, repr=False)
class LearningCoefficientEstimate(Record):
    """A local learning coefficient by stochastic gradient Langevin dynamics around the weights w0 of a model.

    Attributes:
        value: n beta (mean loss of the draws - loss at w0), the mean over the chains.
        standard_error: Standard error over the chains (over blocks of draws for a single chain). It does not include
            biases, which the checks look for.
        interval: 95 % confidence interval by Student's quantile.
        by_chain: The value of each chain.
        split_r_hat: Split R-hat of the draws: near 1 if the chains agree.
        verdict: "reliable" if all checks passed, "unreliable" if one failed, else "inconclusive".
        checks: The checks.
        settings: The settings in use, with the step size that was chosen and the draws that were made.
        num_parameters: Number of parameters.
        sharpness: Largest curvature, in absolute value, at the last points of the chains.
        traces: n beta times the excess loss, shape (num_chains, blocks): means over blocks of consecutive steps,
            burn-in included.
        burn_in_share: Share of the steps that is burn-in.
        stopped_by: What ended the chains: "draws" (all were made), "time" or "interruption".
        provenance: Versions, number format, seed and data. Default: None.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    by_chain: Floats
    split_r_hat: float
    verdict: EstimateVerdict
    checks: tuple[LearningCheck, ...]
    settings: ChainSettings
    num_parameters: int
    sharpness: float
    traces: Floats
    burn_in_share: float
    stopped_by: Literal["draws", "time", "interruption"]
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "value",
        "standard_error",
        "interval",
        "split_r_hat",
        "verdict",
        "num_parameters",
        "stopped_by",
    )

    def __float__(self) -> float:
        return self.value

    @property
    def with_error(self) -> str:
        """The value and its standard error for people: "9.08 ± 0.06"."""
        return number_with_error(self.value, self.standard_error)
