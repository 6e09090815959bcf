"""Squared weight norms that deep networks need for a function, and what they imply for the rank of the function.

The squared norm of a deep network has three parts: before its bottleneck, inside and after it.

The representation cost of a linear map is the smallest squared norm of the weights of a network that computes it.

Reference: Jacot 2023, "Implicit bias of large depth networks: a notion of rank for nonlinear functions", section 1 and
Proposition 3; the closed form is that of Dai, Karzand & Srebro 2021.

From these costs follow the depths at which a network can be expected to have the rank of the target function.

Reference: Jacot 2023, section 4 (Propositions 2, 3, 5, Theorem 2).

The shortest open path through all points is exact for few points and a lower bound for many.

Fitting data by a function of one variable has a cost: a lower bound for all such fits, and a construction.

Reference: Jacot 2023, Propositions 2 and 10 (Theorem 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require
from hessmap.theory.functions.networks import Layer, squared_norm


@dataclass(frozen=True)
class NormSplit:
    """||W||^2 = ||W_g||^2 + (the layers inside the bottleneck) + ||W_h||^2.

    Attributes:
        num_layers: Number of layers.
        rank: Least rank of the representations.
        start: First representation of the bottleneck (1 is the output of the first layer).
        end: Last representation of the bottleneck.
        before: Squared norm of the layers before the bottleneck.
        inside: Squared norm of the layers inside it.
        behind: Squared norm of the layers after it.

    Notes:
        ``start`` and ``end`` are the first and the last representation (1 leaves the first layer) of the block of
        neighbouring ones that have the least rank ``rank``: L_g = ``start`` layers lead to it, L_h = ``num_layers`` -
        ``end`` follow, and those between map k dimensions to k dimensions.
    """

    num_layers: int
    rank: int
    start: int
    end: int
    before: float
    inside: float
    behind: float

    @property
    def num_inside(self) -> int:
        """L - L_g - L_h."""
        return self.end - self.start

    @property
    def squared_norm(self) -> float:
        return self.before + self.inside + self.behind

    @property
    def above_rank(self) -> float:
        """||W||^2 - k L: what the constant C of k L + C is for this network."""
        return self.squared_norm - self.rank * self.num_layers

    @property
    def inside_per_layer(self) -> float | None:
        """What a layer inside costs; k if it is an identity. None where there is none."""
        return self.inside / self.num_inside if self.num_inside else None


def norm_split(squared_norms: Sequence[float], ranks: Sequence[int]) -> NormSplit:
    """Where the bottleneck of a network begins and ends, and what each part of its parameters costs.

    Args:
        squared_norms: ||W_l||^2 + ||b_l||^2 of every layer.
        ranks: Dimension of the output of every layer except the last.

    Returns:
        The three parts of the squared norm.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``squared_norms`` has ||W_l||^2 + ||b_l||^2 of every layer, ``ranks`` the dimension of what leaves every layer
        but the last. Of several blocks of least rank the longest counts, of equally long ones the first. Kind of
        result: an identity of sums; that the inside costs k a layer is what the paper expects of minima. Reference:
        Jacot 2023, section 4, discussion (the rescaled norm with L_g and L_h).

    Example:
        >>> split = norm_split([9.0, 2.5, 2.0, 2.0, 4.0], ranks=[5, 2, 2, 2])
        >>> split.start, split.end, split.inside_per_layer, split.above_rank
        (2, 4, 2.0, 9.5)
    """
    must = "there must be a rank for every layer but the last"
    require(len(squared_norms) == len(ranks) + 1 >= 2, must, f"got {len(squared_norms)} norms and {len(ranks)} ranks")
    start, end = _longest_block(ranks)
    return NormSplit(
        num_layers=len(squared_norms),
        rank=min(ranks),
        start=start,
        end=end,
        before=float(sum(squared_norms[:start])),
        inside=float(sum(squared_norms[start:end])),
        behind=float(sum(squared_norms[end:])),
    )


def _longest_block(ranks: Sequence[int]) -> tuple[int, int]:
    """The first and the last place, from 1, of the longest run of the least value."""
    least, best, start = min(ranks), (0, 0), None
    for place, rank in enumerate((*ranks, least + 1), start=1):
        if rank == least:
            start = place if start is None else start
        elif start is not None:
            if best == (0, 0) or place - 1 - start > best[1] - best[0]:
                best = (start, place - 1)
            start = None
    return best


Floats = NDArray[np.float64]


def linear_representation_cost(matrix: ArrayLike, num_layers: int) -> float:
    """min ||W_L||^2 + .. + ||W_1||^2 over all W_L .. W_1 = A: L times the sum of s^(2/L), s the singular values of A.

    Args:
        matrix: The end-to-end matrix A.
        num_layers: Number of layers L.

    Returns:
        The cost.

    Notes:
        Theorem, for hidden widths of at least the rank of A. Divided by L it tends to the rank of A as the depth L
        grows. Singular values below n eps of the largest count as zeros: their powers would not be small.

    Example:
        >>> round(linear_representation_cost([[3.0, 0.0], [0.0, 1.0]], num_layers=2), 12)    # twice the nuclear norm
        8.0
    """
    return num_layers * schatten_quasi_norm(_singular_values(matrix), num_layers)


def schatten_quasi_norm(singular_values: ArrayLike, num_layers: int) -> float:
    """The sum of s^(2/L), the power 2/L of the Schatten-2/L quasi-norm; zeros count nothing.

    Args:
        singular_values: Singular values of the end-to-end matrix.
        num_layers: Number of layers L.

    Returns:
        The sum.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        >>> schatten_quasi_norm([4.0, 0.0], num_layers=4)
        2.0
    """
    require(num_layers >= 1, "num_layers must be at least 1", f"got {num_layers}")
    values = np.asarray(singular_values, dtype=np.float64)
    smallest = float(values.min(initial=0.0))
    require(smallest >= 0, "singular values must not be negative", f"the smallest is {smallest}")
    with np.errstate(over="ignore"):  # beyond the range of numbers it is infinite
        return float((values[values > 0] ** (2.0 / num_layers)).sum())


def diagonal_representation_cost(weights: ArrayLike, num_layers: int) -> float:
    """Diagonal linear networks: the least squared norm of L diagonal factors of w is L times the sum of |w|^(2/L).

    Args:
        weights: The vector w of f(x) = w . x, entry by entry the product of the L diagonals.
        num_layers: Number of layers L.

    Returns:
        The cost.

    Raises:
        InvalidInput: If there is no layer.

    Notes:
        Entry by entry the mean of the squares is at least their geometric mean, with equality for equal magnitudes.

        Reference: Jacot 2023, Section 1, after Gunasekar et al. 2018 and Moroshko et al. 2020.

    Example:
        >>> diagonal_representation_cost([4.0, -1.0, 0.0], num_layers=4)
        12.0
    """
    return num_layers * schatten_quasi_norm(np.abs(np.asarray(weights, dtype=np.float64)), num_layers)


def singular_value_upper_bound(cost: float, num_layers: int, index: int = 2) -> float:
    """The singular value s_k of the Jacobian of a network, at any point, is at most (R / (k L))^(L / 2).

    Args:
        cost: Squared norm R of the parameters of a network that represents the function; biases may be left out.
        num_layers: Number of layers L.
        index: Position k of the singular value, 1 for the largest. Defaults to 2.

    Returns:
        The upper bound.

    Raises:
        InvalidInput: If a number is out of range.

    Notes:
        The Jacobian is a product of L matrices of squared norm R at most, so that L (s_1^(2/L) + .. + s_k^(2/L)) <= R.
        Activations of slope at most 1. At a global minimum R / L <= 1 + C_N / L: s_2 <= ((1 + C_N / L) / 2)^(L / 2).

        Reference: Jacot 2023, Section 4, after Proposition 3.

    Example:
        Two equal singular values of four layers meet the bound.

        >>> round(singular_value_upper_bound(linear_representation_cost([[2.0, 0.0], [0.0, 2.0]], 4), 4), 12)
        2.0
    """
    require(num_layers >= 1, "num_layers must be at least 1", f"got {num_layers}")
    require(index >= 1, "index must be at least 1", f"got {index}")
    require(cost >= 0, "the cost must not be negative", f"got {cost}")
    return float((cost / (index * num_layers)) ** (num_layers / 2))


def balanced_factors(matrix: ArrayLike, num_layers: int) -> list[Floats]:
    """W_1, .., W_L with W_L .. W_1 = A that attain the cost: S^(1/L) V^T, then S^(1/L), at last U S^(1/L).

    Args:
        matrix: The end-to-end matrix A.
        num_layers: Number of layers L.

    Returns:
        The L factors, first layer first.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        Directions of singular value zero (below n eps of the largest) are left out, so the hidden width is the rank of
        A; a matrix of zeros gets hidden width 1.

        >>> factors = balanced_factors([[0.0, 8.0]], num_layers=3)
        >>> [float(np.square(factor).sum().round(9)) for factor in factors]
        [4.0, 4.0, 4.0]
    """
    require(num_layers >= 1, "num_layers must be at least 1", f"got {num_layers}")
    array = _matrix(matrix)
    if num_layers == 1:
        return [array.copy()]
    left, values, right = np.linalg.svd(array, full_matrices=False)
    rank = max(1, int((values > _floor(array, values)).sum()))
    roots = values[:rank] ** (1.0 / num_layers)
    middle = [np.diag(roots) for _ in range(num_layers - 2)]
    return [roots[:, None] * right[:rank], *middle, left[:, :rank] * roots]


def balance_defect_prediction(defect: ArrayLike, ridge: float, time: float) -> Floats:
    """D(t) = D(0) e^(-4 ridge t) under the gradient flow of C(f_W) + ridge ||W||^2, D = ||W_(l+1)||^2 - ||W_l||^2 -
    ||b_l||^2, of layers or of single units.

    Args:
        defect: Balance defect D(0).
        ridge: Ridge, the strength of the penalty.
        time: Time of the gradient flow.

    Returns:
        D(t).

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Exact for homogeneous activations and any C: scaling what enters a unit by c and what leaves it by 1/c leaves
        the function alone, so the gradient of C does not move D, and the ridge takes 2 ridge W from each weight. At a
        local minimum D is therefore 0. Reference: Jacot 2023, Proposition 12 (the minimum); the law in time is
        stronger.

    Example:
        >>> balance_defect_prediction(2.0, ridge=0.25, time=1.0).round(6).item()
        0.735759
    """
    require(ridge >= 0, "ridge must not be negative", f"got {ridge}")
    require(time >= 0, "time must not be negative", f"got {time}")
    return np.asarray(np.asarray(defect, dtype=np.float64) * np.exp(-4 * ridge * time))


def _singular_values(matrix: ArrayLike) -> Floats:
    """Those above rounding."""
    array = _matrix(matrix)
    values = np.asarray(np.linalg.svd(array, compute_uv=False), dtype=np.float64)
    return values[values > _floor(array, values)]


def _floor(matrix: Floats, singular_values: Floats) -> float:
    return float(max(matrix.shape) * np.finfo(np.float64).eps * singular_values.max(initial=0.0))


def _matrix(matrix: ArrayLike) -> Floats:
    array = np.asarray(matrix, dtype=np.float64)
    require(array.ndim == 2 and array.size > 0, "a linear map must be a matrix", f"got shape {array.shape}")
    require(bool(np.isfinite(array).all()), "a linear map must be finite", "there is NaN or inf")
    return array


@dataclass(frozen=True)
class RecoveryDepths:
    """Where rank recovery is expected, and what is proved; both from ``least_depth`` on, where k L + C holds.

    Attributes:
        true_rank: Rank k of the function.
        least_depth: Least depth at which a network of cost k L + C is known.
        expected: First and last depth at which recovery is expected, or None.
        proved: First and last depth at which the function of rank one is proved to cost more, or None.

    Notes:
        ``expected`` = (first, last) or None: from the first depth at which the bound k + C / L is below k + 1, to the
        last at which k L + C is below the cost L + C_N of the rank-one interpolator that was built. An expectation: it
        compares two upper bounds. ``proved`` = (first, last) or None: depths at which the true function costs less than
        the lower bound for EVERY rank-one interpolator, so that no global minimum of small ridge has bottleneck rank 1.
    """

    true_rank: int
    least_depth: int
    expected: tuple[int, int] | None
    proved: tuple[int, int] | None


def recovery_depths(
    true_rank: int,
    constant: float,
    rank_one_constant: float,
    rank_one_slope: float,
    *,
    least_depth: int,
    largest: int = 10_000,
) -> RecoveryDepths:
    """Both ranges from k, C (``cost_constant``), C_N (``rank_one_constant``) and path / diameter (Proposition 10).

    Args:
        true_rank: Rank k of the function.
        constant: C of ``cost_constant``.
        rank_one_constant: C_N of ``rank_one_constant``.
        rank_one_slope: Path / diameter of ``rank_one_lower_bound``.
        least_depth: Least depth at which a network of cost k L + C is known.
        largest: Largest depth to consider. Defaults to 10000.

    Returns:
        Both ranges of depths.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``least_depth`` is the least depth at which a network of cost k L + C is known: one more than the layers of the
        network that ``cost_constant`` was given. Below it k L + C bounds nothing, and may even be negative.

        Too shallow, k + C / L >= k + 1 leaves room for another unit of rank (Proposition 3); too deep, k L + C > L +
        C_N makes rank one cheaper. ``proved`` asks for k L + C < L slope^(2/L): it needs a slope above k^(L/2), which
        takes many samples. In u = 1/L the difference slope^(2u) - k - C u is convex and, for k > 1, negative at u = 0:
        it changes its sign once, so that the proved depths are all those up to a last one.

    Example:
        >>> recovery_depths(true_rank=2, constant=5.0, rank_one_constant=45.0, rank_one_slope=100.0, least_depth=4)
        RecoveryDepths(true_rank=2, least_depth=4, expected=(6, 39), proved=(4, 10))
    """
    require(true_rank >= 1, "true_rank must be at least 1", f"got {true_rank}")
    require(rank_one_slope >= 0, "rank_one_slope must not be negative", f"got {rank_one_slope}")
    require(least_depth >= 1, "least_depth must be at least 1", f"got {least_depth}")
    first = max(least_depth, math.floor(constant) + 1)
    if true_rank == 1:
        return RecoveryDepths(1, least_depth, (first, largest) if first <= largest else None, None)
    last = math.ceil((rank_one_constant - constant) / (true_rank - 1)) - 1
    expected = (first, min(last, largest)) if first <= min(last, largest) else None
    proved = [
        depth
        for depth in range(least_depth, largest + 1)
        if true_rank * depth + constant < depth * rank_one_slope ** (2.0 / depth)
    ]
    return RecoveryDepths(true_rank, least_depth, expected, (proved[0], proved[-1]) if proved else None)


LARGEST_EXACT = 13


@dataclass(frozen=True)
class PathLength:
    """The length of the shortest path that visits every point once, or a lower bound on it.

    Attributes:
        value: The length.
        kind: "exact" or "lower_bound".
    """

    value: float
    kind: Literal["exact", "lower_bound"]


def shortest_path(points: ArrayLike, *, largest_exact: int = LARGEST_EXACT) -> PathLength:
    """The length of the shortest open path through all points (the travelling salesman who need not come home).

    Args:
        points: Points, one per row.
        largest_exact: Largest number of points for which the exact path is computed. Defaults to 13.

    Returns:
        The length, exact or a lower bound.

    Example:
        Exact up to ``largest_exact`` points, by Held & Karp 1962: 2^N N^2 steps. Beyond, the length of the minimum
        spanning tree: a path is a spanning tree, so that no path is shorter.

        >>> shortest_path([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
        PathLength(value=3.0, kind='exact')
        >>> shortest_path([[0.0], [2.0], [5.0]], largest_exact=2)
        PathLength(value=5.0, kind='lower_bound')
    """
    distances = _distances(points)
    if len(distances) <= largest_exact:
        return PathLength(_held_karp(distances), "exact")
    return PathLength(_spanning_tree(distances), "lower_bound")


def diameter(points: ArrayLike) -> float:
    """The largest distance between two of the points.

    Args:
        points: Points, one per row.

    Returns:
        The diameter.

    Example:
        >>> diameter([[0.0], [1.0], [3.0]])
        3.0
    """
    return float(_distances(points).max())


def _distances(points: ArrayLike) -> Floats:
    array = np.asarray(points, dtype=np.float64)
    require(array.ndim == 2 and len(array) >= 1, "points must be the rows of a matrix", f"got shape {array.shape}")
    require(bool(np.isfinite(array).all()), "points must be finite", "there is NaN or inf")
    unit = float(np.abs(array).max(initial=0.0)) or 1.0  # squares neither vanish nor overflow
    array = array / unit
    # Differences, not inner products: those lose half of the digits between near points.
    distances = np.stack([np.sqrt(np.square(array - point).sum(axis=1)) for point in array])
    with np.errstate(over="ignore"):
        distances *= unit
    must, got = "the distances of points must be in the range of float64", f"their entries are of size {unit:.3g}"
    require(bool(np.isfinite(distances).all()), must, got, "Scale them down")
    return distances


def _held_karp(distances: Floats) -> float:
    """``best[visited, last]``: the shortest path through the visited points that ends at the last one."""
    count = len(distances)
    best = np.full((1 << count, count), np.inf)
    best[1 << np.arange(count), np.arange(count)] = 0.0
    for visited in range(1, 1 << count):
        ends = best[visited]
        if not np.isfinite(ends).any():
            continue
        reached = (ends[:, None] + distances).min(axis=0)
        for point in range(count):
            if not visited >> point & 1:
                grown = visited | 1 << point
                best[grown, point] = min(best[grown, point], reached[point])
    return float(best[-1].min())


def _spanning_tree(distances: Floats) -> float:
    """Prim's algorithm."""
    nearest = distances[0].copy()
    is_out = np.ones(len(distances), dtype=np.bool_)
    is_out[0] = False
    total = 0.0
    while is_out.any():
        chosen = int(np.where(is_out, nearest, np.inf).argmin())
        total += float(nearest[chosen])
        is_out[chosen] = False
        nearest = np.minimum(nearest, distances[chosen])
    return total


@dataclass(frozen=True)
class RankOneBound:
    """``slope`` = path / diameter bounds ||Jf|| from below at some point of the hull of the inputs.

    Attributes:
        path: Shortest path through the outputs.
        diameter: Diameter of the inputs.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.
    """

    path: PathLength
    diameter: float

    @property
    def slope(self) -> float:
        return self.path.value / self.diameter

    def squared_norm(self, num_layers: int) -> float:
        """||W||^2 of every L-layer network of bottleneck rank 1 that interpolates: at least L slope^(2/L)."""
        require(num_layers >= 1, "num_layers must be at least 1", f"got {num_layers}")
        with np.errstate(over="ignore"):  # beyond the range of numbers it is infinite
            return float(num_layers * np.float64(self.slope) ** (2.0 / num_layers))


def rank_one_lower_bound(inputs: ArrayLike, outputs: ArrayLike, *, largest_exact: int = LARGEST_EXACT) -> RankOneBound:
    """A function h(g(x)) with scalar g that maps inputs to outputs has a Jacobian of norm at least path / diameter.

    Args:
        inputs: Inputs, one row per sample.
        outputs: Outputs, one row per sample.
        largest_exact: Largest number of points for which the exact path is computed. Defaults to 13.

    Returns:
        Path and diameter; their ratio is the bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``path`` is the shortest open path through the outputs (exact up to ``largest_exact`` samples, else the length
        of the minimum spanning tree, which is no longer), ``diameter`` that of the inputs. Kind of result: theorem, on
        a domain that contains the convex hull of the inputs. Reference: Jacot 2023, Proposition 10.

    Example:
        >>> bound = rank_one_lower_bound([[0.0], [1.0], [2.0]], [[0.0], [4.0], [0.0]])
        >>> bound.slope, bound.squared_norm(num_layers=2)
        (2.0, 4.0)
    """
    given, wanted = _rows(inputs), _rows(outputs)
    require(len(given) == len(wanted), "inputs and outputs must pair up", f"there are {len(given)} and {len(wanted)}")
    length = diameter(given)
    require(length > 0, "the inputs must not all be equal", "their diameter is 0")
    return RankOneBound(shortest_path(wanted, largest_exact=largest_exact), length)


def rank_one_network(inputs: ArrayLike, outputs: ArrayLike, direction: ArrayLike) -> list[Layer]:
    """A ReLU network of three layers and bottleneck width 1 that interpolates: t = u .

    Args:
        inputs: Inputs, one row per sample.
        outputs: Outputs, one row per sample.
        direction: Direction u of t = u . x + c.

    Returns:
        The three layers.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        x + c, then a polygon through the outputs in the order of t.

    Example:
        Every kink has its incoming and outgoing weight balanced. Two samples with the same t and other outputs are
        refused.

        >>> layers = rank_one_network([[0.0], [1.0], [3.0]], [[0.0], [2.0], [2.0]], direction=[1.0])
        >>> [layer.weight.shape for layer in layers]
        [(1, 1), (2, 1), (1, 2)]
    """
    given, wanted = _rows(inputs), _rows(outputs)
    unit = np.asarray(direction, dtype=np.float64)
    unit = unit / np.linalg.norm(unit)
    times = given @ unit
    order = np.argsort(times, kind="stable")
    times, wanted = times[order] - times.min(), wanted[order]
    steps = np.diff(times)
    is_clear = steps > 1e-12 * max(1.0, float(times[-1]))
    must = "the direction must separate all inputs"
    require(bool(is_clear.all()), must, f"{int((~is_clear).sum())} of them coincide", "Try another direction")
    slopes = np.diff(wanted, axis=0) / steps[:, None]
    kinks = np.diff(slopes, axis=0, prepend=np.zeros((1, wanted.shape[1])))
    places = times[:-1]
    sizes = np.linalg.norm(kinks, axis=1)
    incoming = np.sqrt(sizes / np.sqrt(1 + places**2))
    outgoing = np.divide(kinks, incoming[:, None], out=np.zeros_like(kinks), where=incoming[:, None] > 0)
    first = Layer(unit[None], np.array([-float((given @ unit).min())]))
    return [first, Layer(incoming[:, None], -incoming * places), Layer(outgoing.T, wanted[0])]


def rank_one_constant(inputs: ArrayLike, outputs: ArrayLike, directions: Sequence[ArrayLike]) -> float:
    """C_N with ||W||^2 <= L + C_N for some interpolator of bottleneck rank 1 at every depth L >= 3, by construction.

    Args:
        inputs: Inputs, one row per sample.
        outputs: Outputs, one row per sample.
        directions: Directions u to try.

    Returns:
        C_N.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        The best over the given directions: identity layers of one unit go between the first and the second layer of
        ``rank_one_network``. Kind of result: upper bound. Reference: Jacot 2023, Proposition 2.
    """
    require(len(directions) > 0, "there must be at least one direction", "the list is empty")
    return min(squared_norm(rank_one_network(inputs, outputs, direction)) - 3 for direction in directions)


def _rows(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    is_fine = array.ndim == 2 and len(array) >= 2
    require(is_fine, "samples must be at least two rows of a matrix", f"got shape {array.shape}")
    require(bool(np.isfinite(array).all()), "samples must be finite", "there is NaN or inf")
    return array
