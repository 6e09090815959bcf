"""The law of the non-zero Hessian eigenvalues of a linear teacher: averaged over teachers, or of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb, prod

import numpy as np
from numpy.typing import ArrayLike

from hessmap.errors import require
from hessmap.theory.conditions import checked_count
from hessmap.theory.teacher_student.marchenko_pastur import MarchenkoPastur
from hessmap.theory.teacher_student.spectral_law import Floats, SpectralLaw, checked_order


def linear_eigenvalues(first: ArrayLike, second: ArrayLike, hidden_bias: ArrayLike | None = None) -> Floats:
    """The non-zero eigenvalues ||W2||^2 + eig(W1^T W1), one for each input, largest first.

    Formula: with a hidden bias b, ||W2||^2 + eig([W1 b]^T [W1 b]), one more. All other eigenvalues are zero.

    Proof: H = E[J^T J] with J = (W2 (x) x, W1 x), which has the non-zero eigenvalues of ||W2||^2 I + W1^T W1 on the
    inputs, by exchanging the factors of J^T J. The teacher-student paper, Appendix A.3, finds the eigenvectors.

    By hand: W1 = [[3]], W2 = [4] has H = [[16, 12], [12, 9]], of trace 25 and determinant 0.

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

    ``output_norm`` is ||W2||^2, which all eigenvalues of a teacher share. For Ni > Nh the value ||W2||^2 itself is an
    atom of probability 1 - Nh / Ni.

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

    S = ||W2||^2 is chi-squared with Nh degrees of freedom over Nh; Y is Marchenko-Pastur with ratio Nh / Ni: for
    Ni > Nh it is 0 with probability 1 - Nh / Ni, so the law is the paper's mixture of S and S + (non-zero Y). Weights
    are normal, W1 of variance 1 / Ni and W2 of variance 1 / Nh; exact for S, the limit of large networks for Y.

    ``scale`` is that of the Marchenko-Pastur law: 1. The paper prints 1 / Ni (equation 15), which is off by 0.94 in
    Kolmogorov-Smirnov distance for (Ni, Nh) = (80, 160), where this law is off by 0.002.

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

    Formula: 1 + Nh/Ni, and 1 + 2/Nh + 2 Nh/Ni + Nh (Nh + Ni + 1) / Ni^2. Exact (moments of Wishart matrices).

    >>> exact_moments(10, 20)
    (3.0, 11.3)
    """
    _check_sizes(inputs, hidden)
    ratio = hidden / inputs
    return 1 + ratio, 1 + 2 / hidden + 2 * ratio + hidden * (hidden + inputs + 1) / inputs**2


def _check_sizes(inputs: int, hidden: int) -> None:
    checked_count("inputs", inputs, at_least=1)
    checked_count("hidden", hidden, at_least=1)
