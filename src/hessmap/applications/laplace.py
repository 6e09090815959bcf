"""Laplace approximation: a Gaussian over the weights from the curvature at a trained network.

With the loss as a mean of negative log-likelihoods over N samples, a Gaussian prior of precision d and noise s (squared
loss; s = 1 for classes), the posterior precision is ``N / s^2 K + d I = N / s^2 (K + d s^2 / N I)``: all functions of
it are those of the curvature K with the damping ``d s^2 / N``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log, pi, sqrt
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from hessmap.applications.curvatures import chosen_curvature
from hessmap.errors import checked_count, checked_number, require
from hessmap.hessians import jacobian_rows
from hessmap.layers import CurvatureKind, KroneckerCurvature
from hessmap.linalg import rows_that_fit, to_host
from hessmap.problem import Inputs, Problem, map_tensors, num_rows, require_samples, take_rows
from hessmap.records import Record

Floats = NDArray[np.float64]
_COPIES = 4  # of the Jacobian of a batch that are held at once
_GRID = 400  # prior precisions among which the optimum is searched before it is refined
_RANGE = 1e-12  # of the largest optimum possible: the smallest prior precision that is tried


@dataclass(frozen=True, eq=False, repr=False)
class LaplacePrediction(Record):
    """The predictive distribution of some inputs under the linearised network.

    Attributes:
        mean: Outputs at the trained weights, shape (samples, outputs).
        covariance: Covariance of the outputs over the weights, shape (samples, outputs, outputs), without noise.
        variance: Its diagonal; for a squared loss with the variance of the noise added: that of a new target.
        probabilities: Of the classes, by the probit approximation softmax(mean / sqrt(1 + pi / 8 variance)); None for a
            squared loss.
    """

    mean: Floats
    covariance: Floats
    variance: Floats
    probabilities: Floats | None
    summary_fields: ClassVar[tuple[str, ...]] = ("mean", "variance", "probabilities")


@dataclass(frozen=True, eq=False, repr=False)
class MarginalLikelihood(Record):
    """The Laplace approximation of the log marginal likelihood (evidence) of the data.

    Attributes:
        value: log_likelihood - (scatter + log_determinant_ratio) / 2.
        log_likelihood: Of the data at the trained weights.
        scatter: prior precision * |weights|^2.
        log_determinant_ratio: log det of the posterior precision over that of the prior.
        prior_precision: Where it was evaluated.
        gradient: d value / d prior precision.
        effective_parameters: sum of e / (e + prior precision) over the eigenvalues e of the data's precision.
    """

    value: float
    log_likelihood: float
    scatter: float
    log_determinant_ratio: float
    prior_precision: float
    gradient: float
    effective_parameters: float
    summary_fields: ClassVar[tuple[str, ...]] = ("value", "prior_precision", "gradient", "effective_parameters")


@dataclass(frozen=True, eq=False, repr=False)
class HeldOutChoice(Record):
    """A prior precision by the likelihood of held-out data.

    Attributes:
        prior_precisions: Those that were tried.
        dampings: The damping of the curvature that each amounts to: prior precision * noise^2 / samples.
        log_likelihoods: Mean log-likelihood of the held-out samples for each.
        standard_errors: Standard errors of these means.
        prior_precision: The best of them.
        damping: Its damping, for ``solve``, ``influence`` and others that take one.
        is_inside: Whether a smaller and a larger one were tried.
    """

    prior_precisions: Floats
    dampings: Floats
    log_likelihoods: Floats
    standard_errors: Floats
    prior_precision: float
    damping: float
    is_inside: bool
    summary_fields: ClassVar[tuple[str, ...]] = ("prior_precision", "damping", "is_inside", "log_likelihoods")


class LaplacePosterior:
    """A Gaussian over the differentiated parameters; made by ``laplace``.

    Args:
        problem: Trained model, loss and data.
        curvature: A curvature of the outer-product Hessian (Fisher information).
        prior_precision: Inverse variance of the prior of every parameter, whose mean is 0.
        noise: Standard deviation of the targets around the outputs, for a squared loss; 1 for classes.

    Attributes:
        problem: The problem.
        curvature: The curvature K of the mean loss.
        prior_precision: d.
        noise: s.
        damping: d s^2 / N: the posterior precision is N / s^2 (K + damping I).
    """

    def __init__(self, problem: Problem, curvature: KroneckerCurvature, prior_precision: float, noise: float) -> None:
        self.problem = problem
        self.curvature = curvature
        self.prior_precision = checked_number("prior_precision", prior_precision)
        self.noise = checked_number("noise", noise)
        require(self.prior_precision > 0, "prior_precision must be positive", f"got {self.prior_precision:g}")
        require(self.noise > 0, "noise must be positive", f"got {self.noise:g}")
        is_noisy = problem.loss.name == "squared"
        must = "noise is the standard deviation of the targets of a squared loss"
        require(is_noisy or self.noise == 1, must, f"the loss is '{problem.loss.name}'")

    @property
    def scale(self) -> float:
        """N / s^2, by which the curvature of the mean loss becomes that of the log-likelihood."""
        return float(self.problem.normaliser) / self.noise**2

    @property
    def damping(self) -> float:
        return self.prior_precision / self.scale

    def with_prior_precision(self, prior_precision: float) -> LaplacePosterior:
        """The posterior of another prior, with the same curvature.

        Args:
            prior_precision: Inverse variance of the prior.

        Returns:
            A new posterior.
        """
        return LaplacePosterior(self.problem, self.curvature, prior_precision, self.noise)

    def predict(self, inputs: Any) -> LaplacePrediction:
        """The predictive distribution of the linearised network.

        Args:
            inputs: Inputs as those of the problem, one sample a row.

        Returns:
            LaplacePrediction: mean, covariance, variance and, for classes, probabilities.

        Example:
            >>> import hessmap as hm
            >>> x = torch.linspace(-1, 1, 20)[:, None]
            >>> problem = hm.Problem(torch.nn.Linear(1, 1), "squared", x, 2 * x)
            >>> variance = hm.laplace(problem, "full").predict(torch.tensor([[0.0], [10.0]])).variance
            >>> bool(variance[1] > variance[0])  # far from the data the line is less certain
            True
        """
        parts = [(mean, rows.mT @ rows) for mean, rows in self._roots(inputs, self.damping)]
        mean, covariance = (torch.cat(one) for one in zip(*parts, strict=True))
        variance = covariance.diagonal(dim1=1, dim2=2)
        is_squared = self.problem.loss.name == "squared"
        probabilities = None if is_squared else _array(_probit(mean, variance))
        total = variance + self.noise**2 if is_squared else variance
        return LaplacePrediction(_array(mean), _array(covariance), _array(total), probabilities)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw weights.

        Args:
            count: Number of draws.
            generator: Source of randomness, on the host.

        Returns:
            Tensor: Flat parameters of shape (count, num_parameters); ``problem.unflatten(row)`` names them.
        """
        draws = [
            self.curvature.sample(generator, damping=self.damping) for _ in range(checked_count("count", count, 1))
        ]
        return self.problem.parameters + torch.stack(draws) / sqrt(self.scale)

    def marginal_likelihood(self) -> MarginalLikelihood:
        """The evidence of the data, with its gradient in the prior precision.

        Returns:
            MarginalLikelihood: ``value``, ``gradient`` and their parts.

        Notes:
            MacKay 1992; Immer et al. 2021.
        """
        values, squares = self._precisions(), self._squared_norm()
        prior = self.prior_precision
        ratio = float(np.log1p(values / prior).sum())
        scatter, likelihood = prior * squares, self._log_likelihood()
        return MarginalLikelihood(
            value=likelihood - (scatter + ratio) / 2,
            log_likelihood=likelihood,
            scatter=scatter,
            log_determinant_ratio=ratio,
            prior_precision=prior,
            gradient=_evidence_slope(values, squares, prior),
            effective_parameters=float((values / (values + prior)).sum()),
        )

    def optimal_prior(self) -> LaplacePosterior:
        """The posterior with the prior precision of the largest marginal likelihood.

        Returns:
            A posterior; ``marginal_likelihood().gradient`` is zero up to rounding there.

        Raises:
            InvalidInput: If the weights or the curvature are zero, so that there is no optimum.

        Notes:
            At an optimum the prior precision is effective_parameters / |weights|^2 <= num_parameters / |weights|^2;
            the best of 400 values over twelve orders of magnitude below that is refined by the root of the gradient.
        """
        values, squares = self._precisions(), self._squared_norm()
        must = "an optimal prior needs weights and a curvature that are not zero"
        require(squares > 0 and float(values.max(initial=0.0)) > 0, must, "one of them is zero")
        highest = len(values) / squares
        grid = np.geomspace(_RANGE * highest, highest, _GRID)
        evidence = [-(prior * squares + np.log1p(values / prior).sum()) / 2 for prior in grid]
        best = int(np.argmax(evidence))
        low, high = grid[max(0, best - 1)], grid[min(_GRID - 1, best + 1)]
        slopes = [_evidence_slope(values, squares, prior) for prior in (low, high)]
        if slopes[0] > 0 > slopes[1]:
            root = brentq(lambda x: np.exp(x) * _evidence_slope(values, squares, np.exp(x)), log(low), log(high))
            return self.with_prior_precision(float(np.exp(root)))
        return self.with_prior_precision(float(grid[best]))

    def held_out_prior(self, held_out: Problem, prior_precisions: Sequence[float] | None = None) -> HeldOutChoice:
        """Choose the prior precision, and with it a damping, by the likelihood of held-out data.

        Args:
            held_out: The same model and loss with other data.
            prior_precisions: Values to try. Defaults to 25 between 1e-4 and 1e4.

        Returns:
            HeldOutChoice: the best prior precision and the damping that it amounts to.

        Raises:
            InvalidInput: If the held-out problem has other parameters, or a value is not positive.
        """
        must = "held_out must have the parameters and the loss of the problem"
        fits = held_out.layout == self.problem.layout and held_out.loss.name == self.problem.loss.name
        require(fits, must, "they differ", "Build it with the same model")
        tried = np.geomspace(1e-4, 1e4, 25) if prior_precisions is None else np.array(prior_precisions, dtype=float)
        require(len(tried) > 0 and bool((tried > 0).all()), "prior precisions must be positive", f"got {tried}")
        dampings = tried / self.scale
        found = np.stack([_array(self._held_out_likelihoods(held_out, float(damping))) for damping in dampings])
        best, count = int(found.mean(1).argmax()), found.shape[1]
        spreads = found.std(1, ddof=1) / sqrt(count) if count > 1 else np.zeros(len(tried))
        return HeldOutChoice(
            prior_precisions=tried,
            dampings=dampings,
            log_likelihoods=found.mean(1),
            standard_errors=spreads,
            prior_precision=float(tried[best]),
            damping=float(dampings[best]),
            is_inside=bool(tried.min() < tried[best] < tried.max()),
        )

    def _held_out_likelihoods(self, held_out: Problem, damping: float) -> Tensor:
        """The log-likelihood of every held-out sample."""
        found, first = [], 0
        for mean, rows in self._roots(held_out.inputs, damping):
            targets = held_out.targets[first : first + len(mean)]
            first += len(mean)
            covariance = rows.mT @ rows
            if held_out.loss.name == "squared":
                noise = self.noise**2 * torch.eye(mean.shape[1], dtype=mean.dtype, device=mean.device)
                predictive: Any = torch.distributions.MultivariateNormal(mean, covariance + noise)
                found.append(predictive.log_prob(targets.reshape(mean.shape)))
            else:
                kappa = _probit_scale(covariance.diagonal(dim1=1, dim2=2))
                found.append(-held_out.loss.value(kappa * mean, targets))
        return torch.cat(found).detach()

    @torch.inference_mode(False)
    def _roots(self, inputs: Any, damping: float) -> Iterator[tuple[Tensor, Tensor]]:
        """Outputs and the square roots R of their covariances R^T R, (samples, parameters, outputs), in batches."""
        problem, outputs_dim = self.problem, self.problem.output_dim
        must, got = "predictions need one vector of outputs per sample", f"the model gives {problem.output_shape}"
        require(len(problem.output_shape) <= 1, must, got)
        given: Inputs = map_tensors(
            lambda one: one.to(problem.device, problem.dtype if one.is_floating_point() else None), inputs
        )
        units = torch.eye(outputs_dim, dtype=problem.dtype, device=problem.device)
        each = _COPIES * problem.dtype.itemsize * outputs_dim * problem.num_parameters
        step = rows_that_fit(problem.working_bytes, each, num_rows(given))
        for first in range(0, num_rows(given), step):
            some = take_rows(given, slice(first, first + step))
            count = num_rows(some)
            with torch.no_grad():
                mean = problem.forward(problem.named, some).detach()
            rows = jacobian_rows(problem, some, units.expand(count, -1, -1))
            halves = self.curvature.inverse_sqrt(rows.flatten(0, 1).T.contiguous(), damping=damping)
            yield mean, halves.reshape(-1, count, outputs_dim).transpose(0, 1) / sqrt(self.scale)

    def _precisions(self) -> Floats:
        """Eigenvalues of the data's precision N / s^2 K; rounding below zero is zero."""
        return np.clip(_array(self.curvature.eigenvalues()), 0.0, None) * self.scale

    def _squared_norm(self) -> float:
        return float(self.problem.parameters.double().square().sum())

    def _log_likelihood(self) -> float:
        problem = self.problem
        losses = problem.risk() - problem.l2 * float(problem.parameters.square().sum())
        count = float(problem.normaliser) * problem.num_outputs
        constant = count * log(self.noise * (2 * pi) ** 0.5) if problem.loss.name == "squared" else 0.0
        return -self.scale * losses - constant

    def __repr__(self) -> str:
        noise = f", noise {self.noise:g}" if self.problem.loss.name == "squared" else ""
        return f"Laplace posterior with prior precision {self.prior_precision:g}{noise} and {self.curvature!r}"


def laplace(
    problem: Problem,
    curvature: CurvatureKind | KroneckerCurvature = "kfac",
    *,
    prior_precision: float | None = None,
    noise: float = 1.0,
) -> LaplacePosterior:
    """Approximate the posterior over the weights of a trained network by a Gaussian.

    Args:
        problem: Trained model with a loss that is a negative log-likelihood ("cross_entropy" or "squared") and its
            training data. ``parameters=`` of the problem chooses the last layer or any subset.
        curvature: A kind of ``kronecker_curvature`` or such a curvature of the outer-product Hessian. "full" is the
            exact Gauss-Newton matrix. Defaults to "kfac".
        prior_precision: Inverse variance of the Gaussian prior. Defaults to that of the problem's penalty (2 l2 N for
            unit noise), or to 1 without a penalty; ``posterior.optimal_prior()`` maximises the evidence.
        noise: Standard deviation of the targets, for a squared loss.

    Returns:
        LaplacePosterior: ``predict``, ``sample``, ``marginal_likelihood``, ``optimal_prior``, ``held_out_prior``.

    Raises:
        InvalidInput: If the loss is not a negative log-likelihood, or the curvature is not that of the outer product.

    Notes:
        MacKay 1992; Ritter et al. 2018 (K-FAC); Immer et al. 2021 (linearised predictions); Daxberger et al. 2021.

    Example:
        >>> import hessmap as hm
        >>> inputs, labels = hm.datasets.digits(num_samples=100)
        >>> model = hm.FullyConnected((64, 8, 10), activation="relu").build(seed=0)
        >>> posterior = laplace(hm.Problem(model, "cross_entropy", inputs, labels))
        >>> prediction = posterior.optimal_prior().predict(inputs[:3])
        >>> prediction.probabilities.shape
        (3, 10)
    """
    require_samples(problem, "the Laplace approximation")
    must = "the Laplace approximation needs a loss that is a negative log-likelihood"
    remedy = 'Use "cross_entropy" or "squared" (half the sum of squares)'
    require(problem.loss.is_log_likelihood, must, f"'{problem.loss.name}' is not known to be one", remedy)
    chosen = chosen_curvature(problem, curvature)
    must, got = "the curvature must be a KroneckerCurvature", f"got a {type(chosen).__name__}"
    require(isinstance(chosen, KroneckerCurvature), must, got, 'Use "full" for the exact matrix')
    assert isinstance(chosen, KroneckerCurvature)
    must = "the curvature must be that of the outer product, which is positive semidefinite"
    require(chosen.part == "outer_product", must, f"got part={chosen.part!r}")
    spread = checked_number("noise", noise)
    if prior_precision is None:
        prior_precision = 2 * problem.l2 * float(problem.normaliser) / spread**2 if problem.l2 and spread > 0 else 1.0
    return LaplacePosterior(problem, chosen, prior_precision, spread)


def _evidence_slope(values: Floats, squares: float, prior: float) -> float:
    """d evidence / d prior precision = (sum over e of e / (prior (e + prior)) - |weights|^2) / 2."""
    return float((values / (values + prior)).sum() / prior - squares) / 2


def _probit_scale(variance: Tensor) -> Tensor:
    return 1 / torch.sqrt(1 + pi / 8 * variance)


def _probit(mean: Tensor, variance: Tensor) -> Tensor:
    return torch.softmax(_probit_scale(variance) * mean, -1)


def _array(values: Any) -> Floats:
    found: Floats = to_host(values.detach()).numpy()
    return found
