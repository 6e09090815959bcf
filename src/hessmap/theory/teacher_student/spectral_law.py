"""Distributions of eigenvalues: density, distribution function, quantiles, moments, draws, distances.

The Marchenko-Pastur distribution is one, with its atom.

So is that of the non-zero Hessian eigenvalues of a linear teacher, averaged over teachers or for one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require
from hessmap.theory.data_ranks import checked_count

Floats = NDArray[np.float64]
_HALVINGS = 80


class SpectralLaw(ABC):
    """A law on the real line with at most one atom; members are vectorised over their first argument."""

    @property
    @abstractmethod
    def support(self) -> tuple[float, float]:
        """The smallest interval that holds everything."""

    @property
    @abstractmethod
    def atom(self) -> tuple[float, float]:
        """Place and probability of the atom; the probability is zero where there is none."""

    @abstractmethod
    def pdf(self, x: ArrayLike) -> Floats:
        """The density of what is not in the atom."""

    @abstractmethod
    def _continuous_cdf(self, x: Floats) -> Floats:
        """The probability up to x of what is not in the atom."""

    @abstractmethod
    def moment(self, order: int) -> float:
        """E[y^order]."""

    @abstractmethod
    def sample(self, size: int, seed: int) -> Floats:
        """Independent draws."""

    def cdf(self, x: ArrayLike) -> Floats:
        """The probability of at most x."""
        values = np.asarray(x, dtype=np.float64)
        place, mass = self.atom
        return self._continuous_cdf(values) + mass * (values >= place)

    def cdf_below(self, x: ArrayLike) -> Floats:
        """The probability of less than x: the limit of ``cdf`` from the left."""
        values = np.asarray(x, dtype=np.float64)
        place, mass = self.atom
        return self._continuous_cdf(values) + mass * (values > place)

    def quantile(self, probability: ArrayLike) -> Floats:
        """The smallest x with cdf(x) >= probability, by bisection of the support to rounding."""
        wanted = np.asarray(probability, dtype=np.float64)
        inside = bool(np.all((wanted >= 0) & (wanted <= 1)))
        require(inside, "a probability must be in [0, 1]", f"got {probability!r}")
        low, high = (np.full(wanted.shape, edge) for edge in self._bracket())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_below = self.cdf(middle) < wanted
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        place, mass = self.atom
        below = float(self._continuous_cdf(np.asarray(place)))
        high = np.where((wanted > below) & (wanted <= below + mass), place, high)
        smallest, largest = self.support
        return np.where(wanted == 0, smallest, np.where(wanted == 1, largest, high))

    @property
    def mean(self) -> float:
        return self.moment(1)

    @property
    def variance(self) -> float:
        return self.moment(2) - self.moment(1) ** 2

    def kolmogorov_smirnov(self, values: ArrayLike) -> float:
        """The largest distance between the distribution function and the empirical one of the values."""
        ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
        require(ordered.size > 0, "values must not be empty", "a distance needs at least one")
        places, first = np.unique(ordered, return_index=True)
        below, upto = first / ordered.size, np.append(first[1:], ordered.size) / ordered.size
        return float(max(np.abs(self.cdf(places) - upto).max(), np.abs(self.cdf_below(places) - below).max()))

    def _bracket(self) -> tuple[float, float]:
        """A finite interval that holds all but what float64 can tell from one: the support, if it is finite."""
        return self.support


def checked_order(order: Any) -> int:
    return checked_count("the order of a moment", order)


@dataclass(frozen=True)
class MarchenkoPastur(SpectralLaw):
    """The limit of the eigenvalues of W^T W, W of Nh x Ni independent entries of mean 0 and variance ``scale`` / Ni.

    Attributes:
        ratio: Nh / Ni.
        scale: Variance of the entries times Ni.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        With ``ratio`` = Nh / Ni = lam and a, b = scale (1 -+ sqrt lam)^2: the density sqrt((b-y)(y-a)) / (2 pi scale y)
        on [a, b], of mass min(1, lam), and an atom at 0 of mass 1 - lam if lam < 1. The law of the non-zero eigenvalues
        has max(1, lam) / lam times that density.

    Example:
        Equation 15 of the teacher-student paper has scale 1 / Ni for entries of variance 1 / Ni; that is wrong: the
        scale is 1 (the mean eigenvalue of W^T W is Nh / Ni, not Nh / Ni^2).

        >>> law = MarchenkoPastur(ratio=0.25)
        >>> law.support, law.atom, law.mean
        ((0.0, 2.25), (0.0, 0.75), 0.25)
    """

    ratio: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("ratio", "scale"):
            value = getattr(self, name)
            require(0 < value < np.inf, f"the {name} of a Marchenko-Pastur law must be positive", f"got {value}")

    @property
    def edges(self) -> tuple[float, float]:
        """The ends a and b of the density."""
        root = float(np.sqrt(self.ratio))
        return self.scale * (1 - root) ** 2, self.scale * (1 + root) ** 2

    @property
    def support(self) -> tuple[float, float]:
        low, high = self.edges
        return (0.0 if self.ratio < 1 else low), high

    @property
    def atom(self) -> tuple[float, float]:
        return 0.0, max(0.0, 1.0 - self.ratio)

    def pdf(self, x: ArrayLike) -> Floats:
        low, high = self.edges
        y = np.asarray(x, dtype=np.float64)
        inside = (y > low) & (y < high)
        safe = np.where(inside, y, (low + high) / 2)
        density = np.sqrt((high - safe) * (safe - low)) / (2 * np.pi * self.scale * safe)
        return np.where(inside, density, 0.0)

    def _continuous_cdf(self, x: Floats) -> Floats:
        """By the antiderivative R + (a+b)/2 asin((2y-a-b)/(b-a)) - sqrt(ab) asin(((a+b)y-2ab)/(y(b-a))) of R / y."""
        low, high = self.edges
        y = np.clip(x, low, high)
        safe = np.where(y > 0, y, 1.0)
        root = np.sqrt((high - y) * (y - low))
        middle = _arcsine((2 * y - low - high) / (high - low))
        inverse = np.where(y > 0, _arcsine(((low + high) * y - 2 * low * high) / (safe * (high - low))), -np.pi / 2)
        total = root + (low + high) / 2 * middle - np.sqrt(low * high) * inverse
        start = -np.pi / 2 * ((low + high) / 2 - np.sqrt(low * high))
        return np.asarray((total - start) / (2 * np.pi * self.scale))

    def moment(self, order: int) -> float:
        """scale^k sum_r N(k, r) lam^r with the numbers of Narayana, N(k, r) = C(k, r) C(k, r-1) / k."""
        k = checked_order(order)
        if k == 0:
            return 1.0
        terms = (comb(k, r) * comb(k, r - 1) // k * self.ratio**r for r in range(1, k + 1))
        return float(self.scale**k * sum(terms))

    def sample(self, size: int, seed: int) -> Floats:
        """Draws by the quantiles of uniform numbers."""
        return self.quantile(np.random.default_rng(seed).uniform(size=size))

    def nodes(self, upper: Floats, num_nodes: int) -> tuple[Floats, Floats]:
        """Nodes y and weights of the continuous part on [a, min(b, upper)], for each ``upper`` a row.

        With y = a + 2 scale sqrt(lam) (1 - cos t) the density is 2 lam scale sin^2 t / (pi y) dt. Both ends of t are
        resolved quadratically, for functions with a square root at ``upper`` and for lam near 1.
        """
        low, high = self.edges
        reached = np.clip((np.asarray(upper, dtype=np.float64) - low) / (high - low), 0.0, 1.0)
        angle = 2 * np.arcsin(np.sqrt(reached))[..., None]
        points, weights = np.polynomial.legendre.leggauss(num_nodes)
        half = np.pi / 4 * (points + 1)
        t = angle * np.sin(half) ** 2
        step = angle * np.sin(2 * half) * np.pi / 4 * weights
        y = low + (high - low) * np.sin(t / 2) ** 2
        density = np.divide(np.sin(t) ** 2, y, out=np.zeros_like(y), where=y > 0)
        return y, 2 * self.ratio * self.scale / np.pi * density * step


def _arcsine(value: Floats) -> Floats:
    return np.arcsin(np.clip(value, -1.0, 1.0))


def linear_eigenvalues(first: ArrayLike, second: ArrayLike, hidden_bias: ArrayLike | None = None) -> Floats:
    """The non-zero eigenvalues ||W2||^2 + eig(W1^T W1), one for each input, largest first.

    Args:
        first: First weight W1.
        second: Second weight W2.
        hidden_bias: Hidden bias b. Defaults to none.

    Returns:
        The eigenvalues, descending.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Formula: with a hidden bias b, ||W2||^2 + eig([W1 b]^T [W1 b]), one more. All other eigenvalues are zero.

        Proof: H = E[J^T J] with J = (W2 (x) x, W1 x), which has the non-zero eigenvalues of ||W2||^2 I + W1^T W1 on the
        inputs, by exchanging the factors of J^T J. The teacher-student paper, Appendix A.3, finds the eigenvectors.

    Example:
        W1 = [[3]], W2 = [4] has H = [[16, 12], [12, 9]], of trace 25 and determinant 0.

        >>> linear_eigenvalues([[3.0]], [4.0])
        array([25.])
    """
    weights, outputs = (
        np.atleast_2d(np.asarray(first, dtype=np.float64)),
        np.ravel(np.asarray(second, dtype=np.float64)),
    )
    must = "W2 must have one entry for each row of W1"
    require(
        weights.ndim == 2 and outputs.size == len(weights), must, f"the shapes are {weights.shape}, {outputs.shape}"
    )
    if hidden_bias is not None:
        bias = np.ravel(np.asarray(hidden_bias, dtype=np.float64))
        require(bias.size == len(weights), "hidden_bias must have one entry for each row of W1", f"it has {bias.size}")
        weights = np.column_stack([weights, bias])
    squares = np.linalg.svd(weights, compute_uv=False) ** 2
    return float(outputs @ outputs) + np.pad(squares, (0, weights.shape[1] - squares.size))


_NUM_NODES = 120
_CHUNK = 4096


@dataclass(frozen=True)
class OneTeacherLaw(SpectralLaw):
    """The Ni non-zero eigenvalues of one linear teacher: ||W2||^2 + the law of Marchenko and Pastur.

    Attributes:
        inputs: Number of inputs Ni.
        hidden: Number of hidden units Nh.
        output_norm: ||W2||^2, which all eigenvalues of a teacher share.
        scale: Scale of the Marchenko-Pastur law.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``output_norm`` is ||W2||^2, which all eigenvalues of a teacher share. For Ni > Nh the value ||W2||^2 itself is
        an atom of probability 1 - Nh / Ni.

    Example:
        >>> OneTeacherLaw(inputs=400, hidden=200, output_norm=1.1).atom
        (1.1, 0.5)
    """

    inputs: int
    hidden: int
    output_norm: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_sizes(self.inputs, self.hidden)
        require(self.output_norm >= 0, "output_norm is ||W2||^2 and must not be negative", f"got {self.output_norm}")

    @property
    def shifted(self) -> MarchenkoPastur:
        """The law of the eigenvalues of W1^T W1."""
        return MarchenkoPastur(self.hidden / self.inputs, self.scale)

    @property
    def support(self) -> tuple[float, float]:
        low, high = self.shifted.support
        return self.output_norm + low, self.output_norm + high

    @property
    def atom(self) -> tuple[float, float]:
        return self.output_norm, self.shifted.atom[1]

    def pdf(self, x: ArrayLike) -> Floats:
        return self.shifted.pdf(np.asarray(x, dtype=np.float64) - self.output_norm)

    def _continuous_cdf(self, x: Floats) -> Floats:
        return self.shifted._continuous_cdf(x - self.output_norm)

    def moment(self, order: int) -> float:
        k, law = checked_order(order), self.shifted
        return float(sum(comb(k, j) * self.output_norm ** (k - j) * law.moment(j) for j in range(k + 1)))

    def sample(self, size: int, seed: int) -> Floats:
        return self.output_norm + self.shifted.sample(size, seed)


@dataclass(frozen=True)
class LinearSpectrumLaw(SpectralLaw):
    """A non-zero Hessian eigenvalue of a random linear teacher, averaged over teachers: y = S + Y, independent.

    Attributes:
        inputs: Number of inputs Ni.
        hidden: Number of hidden units Nh.
        scale: Scale of the Marchenko-Pastur law.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        S = ||W2||^2 is chi-squared with Nh degrees of freedom over Nh; Y is Marchenko-Pastur with ratio Nh / Ni: for Ni
        > Nh it is 0 with probability 1 - Nh / Ni, so the law is the paper's mixture of S and S + (non-zero Y). Weights
        are normal, W1 of variance 1 / Ni and W2 of variance 1 / Nh; exact for S, the limit of large networks for Y.

        ``scale`` is that of the Marchenko-Pastur law: 1. The paper prints 1 / Ni (equation 15), which is off by 0.94 in
        Kolmogorov-Smirnov distance for (Ni, Nh) = (80, 160), where this law is off by 0.002.

    Example:
        >>> law = LinearSpectrumLaw(inputs=10, hidden=20)
        >>> law.mean, round(float(law.cdf(2.0)), 6)
        (3.0, 0.311212)
    """

    inputs: int
    hidden: int
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_sizes(self.inputs, self.hidden)

    @property
    def shifted(self) -> MarchenkoPastur:
        """The law of the eigenvalues of W1^T W1."""
        return MarchenkoPastur(self.hidden / self.inputs, self.scale)

    @property
    def support(self) -> tuple[float, float]:
        return self.shifted.support[0], np.inf

    @property
    def atom(self) -> tuple[float, float]:
        return 0.0, 0.0

    def pdf(self, x: ArrayLike) -> Floats:
        return self._average(np.asarray(x, dtype=np.float64), self.output_norm_pdf)

    def _continuous_cdf(self, x: Floats) -> Floats:
        return self._average(x, self.output_norm_cdf)

    def output_norm_pdf(self, x: Floats) -> Floats:
        """The density of ||W2||^2."""
        from scipy.special import gammaln

        half = self.hidden / 2
        y = np.where(x > 0, x, 1.0)
        logarithm = half * np.log(half) - gammaln(half) + (half - 1) * np.log(y) - half * y
        return np.where(x > 0, np.exp(logarithm), 0.0)

    def output_norm_cdf(self, x: Floats) -> Floats:
        """The distribution function of ||W2||^2."""
        from scipy.special import gammainc

        return np.asarray(gammainc(self.hidden / 2, self.hidden / 2 * np.maximum(x, 0.0)))

    def _average(self, x: Floats, function: Callable[[Floats], Floats]) -> Floats:
        """E[function(x - Y)], in chunks; at Y = x the function may have a power of one half."""
        flat = x.ravel()
        pieces = [np.empty(0)]
        for start in range(0, flat.size, _CHUNK):
            at = flat[start : start + _CHUNK]
            y, weights = self.shifted.nodes(at, _NUM_NODES)
            atom = self.shifted.atom[1] * function(at) if self.shifted.atom[1] else 0.0
            pieces.append((weights * function(at[:, None] - y)).sum(-1) + atom)
        return np.concatenate(pieces).reshape(x.shape)

    def _bracket(self) -> tuple[float, float]:
        from scipy.special import gammainccinv

        largest_norm = float(gammainccinv(self.hidden / 2, 1e-17)) / (self.hidden / 2)
        return self.support[0], self.shifted.edges[1] + largest_norm

    def moment(self, order: int) -> float:
        """sum_j C(k, j) E[S^j] E[Y^(k-j)], E[S^j] = prod_{i<j} (Nh + 2i) / Nh."""
        k, law, nh = checked_order(order), self.shifted, self.hidden
        norms = [prod((nh + 2 * i) / nh for i in range(j)) for j in range(k + 1)]
        return float(sum(comb(k, j) * norms[j] * law.moment(k - j) for j in range(k + 1)))

    def sample(self, size: int, seed: int) -> Floats:
        generator = np.random.default_rng(seed)
        norms = generator.chisquare(self.hidden, size) / self.hidden
        return norms + self.shifted.quantile(generator.uniform(size=size))

    def of_teacher(self, output_norm: float) -> OneTeacherLaw:
        """The law of one teacher with this ||W2||^2."""
        return OneTeacherLaw(self.inputs, self.hidden, output_norm, self.scale)


def exact_moments(inputs: int, hidden: int) -> tuple[float, float]:
    """E[y] and E[y^2] of a non-zero eigenvalue at finite size: the law's, and Nh / Ni^2 more for the second.

    Args:
        inputs: Number of inputs Ni.
        hidden: Number of hidden units Nh.

    Returns:
        E[y] and E[y^2].

    Notes:
        Formula: 1 + Nh/Ni, and 1 + 2/Nh + 2 Nh/Ni + Nh (Nh + Ni + 1) / Ni^2. Exact (moments of Wishart matrices).

    Example:
        >>> exact_moments(10, 20)
        (3.0, 11.3)
    """
    _check_sizes(inputs, hidden)
    ratio = hidden / inputs
    return 1 + ratio, 1 + 2 / hidden + 2 * ratio + hidden * (hidden + inputs + 1) / inputs**2


def _check_sizes(inputs: int, hidden: int) -> None:
    checked_count("inputs", inputs, at_least=1)
    checked_count("hidden", hidden, at_least=1)
