"""Ranks under losses whose derivatives are rational functions of exponentials: cross-entropy and log-cosh.

Weights and data are rational numbers, so all exponents are whole multiples of one 1 / D. With t = e^(1/D) softmax
probabilities are p_k = t^E_k / sum_j t^E_j, and the slope of log-cosh is (t^2E - 1) / (t^2E + 1): the Hessian of this
network on these data is a matrix over Q(t), and t is transcendental (Hermite 1873). So a minor is zero as a number
only if it is zero as a function of t, and each substitution of t tells something:

- lower: t -> a random element of GF(P) maps the entries into GF(P). A minor that is not zero there is not zero in
  Q(t), and so not zero as a real number. The rank over GF(P) is never above the true one, for certain.
- upper: with probabilities (slopes) that are variables of their own the rank can only be larger, because each minor at
  the true ones is a value of a polynomial. The rank at random ones in GF(P) is that of variables except with a small
  probability (Schwartz-Zippel and Hadamard, as for every certified rank).

The outer-product Hessian needs neither: J^T Q J, summed over the samples with Q positive semi-definite, has the kernel
{x : Q_n J_n x = 0 for all n}, and the kernel of Q_n is the span of (1, .., 1) for softmax, whose probabilities are
positive, and zero for log-cosh. Its rank is that of the Jacobian, for softmax of differences of outputs; it is that of
p = 1 / K, which is rational.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hessmap.errors import UnsupportedNetwork, checked_seed, require_name, sentence
from hessmap.exact.activation_patterns import integer_outputs
from hessmap.exact.certified import EvaluatedProblem, ExactProblem, evaluated_problem
from hessmap.exact.field import (
    FieldArray,
    Height,
    PrimeField,
    concatenate,
    from_integers,
    identity,
    ones,
    random_array,
    random_prime_field,
    scaled_integers,
)
from hessmap.exact.rank import field_rank
from hessmap.losses import CrossEntropy, LogCosh
from hessmap.problem import Problem, require_problem
from hessmap.records import PARTS, Part, RankBounds, provenance

Derivatives = tuple[FieldArray, FieldArray]  # residuals, and Hessians by the outputs


def certified_rank_bounds(problem: Problem, part: Part = "loss", *, seed: int = 0) -> RankBounds:
    """Bounds on the exact rank of a Hessian under cross-entropy or log-cosh, on both sides, without a threshold.

    Args:
        problem: Model, data and loss.
        part: "loss", "outer_product" or "functional". Defaults to "loss".
        seed: Seed of the random prime. Defaults to 0.

    Returns:
        Lower and upper bound of the rank with the failure bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        The network is one that ``certified_rank`` takes, with labels for cross-entropy (no label smoothing, no weights
        of classes). The outer-product Hessian has one value, correct except with probability ``failure_bound``. Of the
        others ``lower`` always holds and ``upper`` except with that probability; they are equal unless residuals and
        weights conspire, as at a stationary point.

    Example:
        >>> import hessmap as hm, torch
        >>> inputs, _ = hm.datasets.dyadic(num_samples=30, dim=3, output_dim=3)
        >>> model, labels = hm.FullyConnected((3, 2, 3)).build(seed=0), torch.arange(30) % 3
        >>> problem = hm.Problem(model, "cross_entropy", inputs, labels)
        >>> bounds = certified_rank_bounds(problem)
        >>> bounds.lower, bounds.upper, bounds.is_exact
        (10, 10, True)
    """
    require_problem(problem)
    require_name("part", part, PARTS)
    loss = _loss_of(problem)
    generator = np.random.default_rng(checked_seed(seed))
    field = random_prime_field(generator)
    evaluated = evaluated_problem(problem, field)
    made: Callable[[ExactProblem], FieldArray] = lambda exact: exact.hessian(part)  # noqa: E731
    residuals, hessians = loss.generic(field, generator)
    if part == "outer_product":
        upper = field_rank(made(evaluated.with_loss(residuals, loss.constant(field))), generator)
        lower = upper
    else:
        upper = field_rank(made(evaluated.with_loss(residuals, hessians)), generator)
        lower = field_rank(made(evaluated.with_loss(*loss.derivatives_at(evaluated, generator))), generator)
    origin = provenance(f"GF({field.prime})", seed, problem.data_hash, problem.notes)
    size, num_ties = problem.num_parameters, evaluated.signs.num_ties
    return RankBounds(
        lower.value, max(upper.value, lower.value), part, field.prime, upper.failure_bound, size, num_ties, origin
    )


class _Softmax:
    """Cross-entropy of labels."""

    def __init__(self, problem: Problem) -> None:
        self.labels = problem.targets.cpu().numpy()
        self.shape = problem.num_samples, problem.output_dim

    def generic(self, field: PrimeField, generator: np.random.Generator) -> Derivatives:
        """Probabilities that are variables, of sum one."""
        num_samples, num_outputs = self.shape
        some = random_array(field, generator, num_samples, num_outputs - 1)
        last = ones(field, num_samples, 1) - some @ ones(field, num_outputs - 1, 1)
        return self._derivatives(concatenate([some, last], axis=1))

    def constant(self, field: PrimeField) -> FieldArray:
        """K times the Hessian of p = 1 / K, whose kernel is that of all others."""
        num_samples, num_outputs = self.shape
        matrix = num_outputs * np.eye(num_outputs, dtype=np.int64) - 1
        return from_integers(field, np.broadcast_to(matrix, (num_samples, num_outputs, num_outputs)))

    def derivatives_at(self, evaluated: EvaluatedProblem, generator: np.random.Generator) -> Derivatives:
        exponents, _ = integer_outputs(*evaluated.floats, evaluated.signs.patterns)
        field = evaluated.inputs.field
        while True:
            powers = _powers(field, exponents, generator)
            sums = [sum(map(int, row)) % field.prime for row in powers]
            if all(sums):
                break
        inverses = np.array([[pow(total, -1, field.prime)] for total in sums], dtype=np.int64)
        return self._derivatives(FieldArray(field, field.multiply(powers, inverses), Height(degree=1)))

    def _derivatives(self, probabilities: FieldArray) -> Derivatives:
        field = probabilities.field
        hits = np.equal.outer(self.labels, np.arange(self.shape[1])).astype(np.int64)
        outer = probabilities[:, :, None] * probabilities[:, None, :]
        hessians = identity(field, self.shape[1]) * probabilities[:, None, :] - outer
        return probabilities - from_integers(field, hits), hessians


class _LogCosh:
    """log cosh of the residuals: slope tanh, curvature 1 - tanh^2."""

    def __init__(self, problem: Problem) -> None:
        self.targets = problem.targets.cpu().double().numpy()
        self.shape = problem.num_samples, problem.output_dim

    def generic(self, field: PrimeField, generator: np.random.Generator) -> Derivatives:
        return self._derivatives(random_array(field, generator, *self.shape))

    def constant(self, field: PrimeField) -> FieldArray:
        num_samples, num_outputs = self.shape
        return identity(field, num_outputs) * ones(field, num_samples, num_outputs, 1)

    def derivatives_at(self, evaluated: EvaluatedProblem, generator: np.random.Generator) -> Derivatives:
        outputs, unit = integer_outputs(*evaluated.floats, evaluated.signs.patterns)
        targets, bits = scaled_integers(self.targets)
        doubled = 2 * ((outputs << bits) - targets * unit)
        field = evaluated.inputs.field
        while True:
            powers = _powers(field, doubled, generator)
            above = field.add(powers, np.ones_like(powers))
            if above.all():
                break
        inverses = np.array([pow(int(value), -1, field.prime) for value in above.ravel()], dtype=np.int64)
        slopes = field.multiply(field.subtract(powers, np.ones_like(powers)), inverses.reshape(above.shape))
        return self._derivatives(FieldArray(field, slopes, Height(degree=1)))

    def _derivatives(self, slopes: FieldArray) -> Derivatives:
        field = slopes.field
        curvatures = ones(field, 1, 1) - slopes * slopes
        return slopes, identity(field, self.shape[1]) * curvatures[:, None, :]


def _powers(field: PrimeField, exponents: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """t^E for one random t that is not zero; exponents are integers of any size."""
    base = int(generator.integers(2, field.prime, dtype=np.int64))
    found = [pow(base, int(exponent) % (field.prime - 1), field.prime) for exponent in exponents.ravel()]
    return np.array(found, dtype=np.int64).reshape(exponents.shape)


def _loss_of(problem: Problem) -> _Softmax | _LogCosh:
    loss = problem.loss
    if type(loss) is LogCosh:
        return _LogCosh(problem)
    is_plain = type(loss) is CrossEntropy and loss.class_weights is None and not loss.label_smoothing
    has_labels = is_plain and not problem.targets.is_floating_point()
    if has_labels and bool((problem.targets >= 0).all()):
        return _Softmax(problem)
    must = "bounds on a rank on given data are known for cross-entropy of labels and for log-cosh"
    remedy = "Use certified_rank for the squared loss, else numerical_rank"
    raise UnsupportedNetwork(sentence(must, f"the loss is '{loss.name}'", remedy))
