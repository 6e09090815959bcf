"""Exact ranks of given things: of this network's Hessian on these data, of the data, of a matrix. No threshold.

Cross-entropy and log-cosh, whose derivatives are rational functions of exponentials, have bounds from both sides.

Weights and data are rational numbers, so all exponents are whole multiples of one 1 / D. With t = e^(1/D) softmax
probabilities are p_k = t^E_k / sum_j t^E_j, and the slope of log-cosh is (t^2E - 1) / (t^2E + 1): the Hessian of this
network on these data is a matrix over Q(t), and t is transcendental (Hermite 1873). So a minor is zero as a number
only if it is zero as a function of t, and each substitution of t gives a bound:

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
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import InvalidInput, UnsupportedNetwork, checked_seed, require, require_name, sentence
from hessmap.exact.attention import exact_attention_hessian
from hessmap.exact.evaluation import Evaluation, Signs, evaluate, integer_outputs, require_outputs, signs
from hessmap.exact.field import (
    FieldArray,
    Height,
    PrimeField,
    concatenate,
    failure_bound,
    field_rank,
    from_floats,
    from_integers,
    identity,
    ones,
    random_array,
    random_prime_field,
    scaled_integers,
)
from hessmap.exact.hessian import OutputDerivatives, field_hessian
from hessmap.exact.network import Chain, Floats, in_field
from hessmap.exact.reading import RULES, read_chain, tensor_inputs
from hessmap.losses import CrossEntropy, LogCosh, PositionLoss, Squared
from hessmap.networks import AttentionModule
from hessmap.problem import Problem, require_problem
from hessmap.records import PARTS, DataRanks, Part, RankBounds, RankCertificate, provenance

_PASS = 4096  # samples of a forward pass at once
Derivatives = tuple[FieldArray, FieldArray]  # residuals, and Hessians by the outputs


def certified_rank(problem: Problem, part: Part = "loss", *, seed: int = 0) -> RankCertificate:
    """The exact rank of the loss, outer-product or functional Hessian of this network on these data.

    Args:
        problem: Model, data and loss.
        part: "loss", "outer_product" or "functional". Defaults to "loss".
        seed: Seed of the random prime. Defaults to 0.

    Returns:
        The rank, the prime and the failure bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        The network is taken as a function over the reals with exactly the given weights, inputs and targets: chains of
        linear layers, convolutions (1D to 3D, any stride, padding, dilation, groups), average- and max-pools with
        identity, ReLU, leaky ReLU or polynomial activations; linear residual blocks; linear self-attention, on its own
        (``SelfAttention.build``); squared loss. Anything else is refused. Structure that floats lost in rounding is
        lost here too: a product A @ B computed in float64 has full exact rank, and samples centred in float64 are not
        exactly centred.

        The prime is random (from ``seed``): the value is never above the true rank, and below it with probability at
        most ``failure_bound``. At a tie (a ReLU input of exactly 0, a maximum attained twice) the derivative is torch's
        (0, the first of the equals), and ties are counted. The empty patches of an image tie by themselves: their units
        are equal for all weights, so that the choice among them changes nothing.

    Example:
        >>> import hessmap as hm
        >>> model = hm.FullyConnected((6, 5, 4), activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "squared", *hm.datasets.dyadic(num_samples=40, dim=6, output_dim=4))
        >>> certified_rank(problem, "outer_product").value
        45
    """
    require_name("part", part, PARTS)
    generator = np.random.default_rng(checked_seed(seed))
    field = random_prime_field(generator)
    matrix, num_ties = _exact_hessian(problem, part, field)
    rank = field_rank(matrix, generator)
    origin = provenance(f"GF({field.prime})", seed, problem.data_hash, problem.notes)
    size = problem.num_parameters
    return RankCertificate(rank.value, part, field.prime, rank.failure_bound, size, num_ties, rank.method, origin)


def _exact_hessian(problem: Problem, part: Part, field: PrimeField) -> tuple[FieldArray, int]:
    """A multiple of the Hessian of the risk, or of a part of it, and the ties that were met."""
    require(isinstance(problem, Problem), "exact arithmetic on given data needs a Problem", f"got {problem!r:.60}")
    if type(problem.model) is AttentionModule:
        _require_squared(problem)
        return exact_attention_hessian(problem, part, field), 0
    exact = exact_problem(problem, field)
    return exact.hessian(part), exact.num_ties


def certified_data_ranks(problem: Problem, *, seed: int = 0) -> DataRanks:
    """The ranks of these inputs and residuals that the rank formulas ask for, certified in the same way.

    Args:
        problem: Model, data and loss.
        seed: Seed of the random prime. Defaults to 0.

    Returns:
        The ranks of inputs and residuals, with the failure bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        >>> import hessmap as hm
        >>> data = hm.datasets.dyadic(num_samples=20, dim=6, output_dim=2, rank=3)
        >>> certified_data_ranks(hm.Problem(hm.FullyConnected((6, 4, 2)).build(seed=0), "squared", *data)).input_rank
        3
    """
    generator = np.random.default_rng(checked_seed(seed))
    field = random_prime_field(generator)
    exact = exact_problem(problem, field)
    second_moment, residual_moment = _moments(exact)
    residual_sum = residual_moment[:, -1]
    ranks = [
        field_rank(matrix, generator)
        for matrix in (second_moment[:-1, :-1], second_moment, residual_moment[:, :-1], residual_moment)
    ]
    doubt = sum(rank.failure_bound for rank in ranks) + failure_bound(residual_sum.height, 1)
    return DataRanks(
        input_rank=ranks[0].value,
        centred_input_rank=ranks[1].value - 1,
        residual_rank=ranks[2].value,
        residual_rank_with_bias=ranks[3].value,
        mean_residual_is_zero=not residual_sum.residues.any(),
        num_samples=problem.num_samples,
        prime=field.prime,
        failure_bound=min(1.0, doubt),
        num_ties=exact.num_ties,
        provenance=provenance(f"GF({field.prime})", seed, problem.data_hash, problem.notes),
    )


def certified_matrix_rank(matrix: NDArray[np.float64], *, seed: int = 0) -> RankCertificate:
    """The exact rank of a matrix of float64 numbers.

    Args:
        matrix: Matrix of float64 numbers, each taken exactly.
        seed: Seed of the random prime. Defaults to 0.

    Returns:
        The rank, the prime and the failure bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        >>> certified_matrix_rank(np.array([[0.1, 0.3], [0.3, 0.9]])).value    # 0.3 is not 3 * 0.1 in float64
        2
        >>> certified_matrix_rank(np.array([[0.5, 0.25], [1.5, 0.75]])).value
        1
    """
    values = _exact_matrix(matrix)
    generator = np.random.default_rng(checked_seed(seed))
    field = random_prime_field(generator)
    rank = field_rank(from_floats(field, values), generator)
    origin = provenance(f"GF({field.prime})", seed)
    size = min(values.shape)
    return RankCertificate(rank.value, None, field.prime, rank.failure_bound, size, 0, rank.method, origin)


def _exact_matrix(matrix: object) -> Floats:
    """The matrix in float64, or a refusal where that would round it."""
    try:
        given = np.asarray(matrix.detach().cpu() if isinstance(matrix, Tensor) else matrix)
    except ValueError:
        raise InvalidInput(sentence("a rank needs a matrix", "its rows have different lengths")) from None
    require(given.dtype.kind in "fiub", "an exact rank needs real numbers", f"got {given.dtype}")
    require(given.ndim == 2, "a rank needs a matrix", f"got an array of shape {given.shape}")
    values = given.astype(np.float64)
    if given.dtype.kind in "iu":
        is_exact = bool((values.astype(object) == given.astype(object)).all())
        require(is_exact, "an exact rank needs float64 numbers", "an integer above 2^53 has no float64")
    elif given.dtype.itemsize > values.dtype.itemsize:
        is_exact = np.array_equal(values, given, equal_nan=True)
        require(is_exact, "an exact rank needs float64 numbers", f"{given.dtype} was given and would be rounded")
    return values


def _moments(exact: ExactProblem) -> tuple[FieldArray, FieldArray]:
    """sum w [x, 1] [x, 1]^T, whose rank is that of the samples because w >= 0, and sum w residual [x, 1]^T.

    [Omega_c, omega] and [Omega, omega] differ by multiples of the column omega, so they have the same rank.
    """
    extended = concatenate([exact.inputs, ones(exact.inputs.field, len(exact.inputs), 1)], axis=1)
    weights = exact.derivatives.weights
    weighted = extended if weights is None else extended * weights[:, None]
    return extended.mT @ weighted, exact.derivatives.residuals.mT @ weighted


@dataclass(frozen=True, eq=False)
class ExactProblem:
    """A problem with every number in the field: its inputs, its evaluation and its residuals (output - target).

    Samples of equal weight count one each, because a common factor does not change a rank; other weights enter as
    the float64 numbers they are. ``total_weight`` is what the weights stand for: their sum in a mean.
    """

    chain: Chain[FieldArray]
    inputs: FieldArray
    evaluation: Evaluation
    derivatives: OutputDerivatives
    num_ties: int
    l2: float
    total_weight: int

    def hessian(self, part: Part) -> FieldArray:
        """``total_weight`` times the Hessian of the risk, or of a part of it."""
        matrix = field_hessian(self.chain, self.evaluation, self.derivatives, part)
        if part != "loss" or self.l2 == 0:
            return matrix
        field = matrix.field
        twice = from_floats(field, np.array(self.l2)) * from_integers(field, 2 * self.total_weight)
        return matrix + identity(field, len(matrix)) * twice


@dataclass(frozen=True, eq=False)
class EvaluatedProblem:
    """A chain on given inputs, in float64 and in the field: everything but the loss."""

    floats: tuple[Chain[Floats], Floats]
    chain: Chain[FieldArray]
    inputs: FieldArray
    evaluation: Evaluation
    weights: FieldArray | None
    signs: Signs
    l2: float

    def with_loss(self, residuals: FieldArray, hessians: FieldArray | None = None) -> ExactProblem:
        """With the derivatives of the loss by the outputs, summed over the samples."""
        derivatives = OutputDerivatives(residuals, hessians, self.weights)
        total_weight = len(self.inputs) if self.weights is None else 1
        return ExactProblem(
            self.chain, self.inputs, self.evaluation, derivatives, self.signs.num_ties, self.l2, total_weight
        )


def exact_problem(problem: Problem, field: PrimeField) -> ExactProblem:
    """The problem in the field, or a refusal that says what to use instead."""
    require(isinstance(problem, Problem), "exact arithmetic on given data needs a Problem", f"got {problem!r:.60}")
    _require_squared(problem)
    evaluated = evaluated_problem(problem, field)
    return evaluated.with_loss(evaluated.evaluation.outputs - from_floats(field, _numbers(problem.targets)))


def evaluated_problem(problem: Problem, field: PrimeField) -> EvaluatedProblem:
    """The network of a problem on its inputs, in the field."""
    given = tensor_inputs(problem, RULES)
    chain = read_chain(problem.model, problem.layout, tuple(given.shape[1:]))
    inputs = _numbers(given).reshape(problem.num_samples, -1)
    with torch.no_grad():  # on these inputs, because a stream may come in another order the next time
        expected = torch.cat([problem.forward(problem.named, part) for part in torch.split(given, _PASS)])
    require_outputs(chain, inputs, _numbers(expected), torch.finfo(problem.dtype).eps, "Use numerical_rank")
    found = signs(chain, inputs)
    exact_chain, exact_inputs = in_field(chain, field), from_floats(field, inputs)
    evaluation = evaluate(exact_chain, exact_inputs, found.patterns)
    weights = _numbers(problem.weights)
    are_equal = bool((weights == weights[0]).all())
    in_the_field = None if are_equal else from_floats(field, weights)
    return EvaluatedProblem((chain, inputs), exact_chain, exact_inputs, evaluation, in_the_field, found, problem.l2)


def _numbers(values: Tensor) -> Floats:
    """In float64, which holds every number of a smaller format."""
    return np.asarray(values.detach().cpu().double().numpy())


def _require_squared(problem: Problem) -> None:
    loss = problem.loss
    if type(loss) is PositionLoss and type(problem.model) is AttentionModule and not loss.channels_first:
        loss = loss.base
    if type(loss) is not Squared:
        must = "exact arithmetic on given data needs the squared loss, whose derivatives are polynomials"
        remedy = (
            "Use numerical_rank for this network (certified_rank_bounds for cross-entropy and log-cosh), or "
            "generic_rank for the generic network of its architecture"
        )
        raise UnsupportedNetwork(sentence(must, f"the loss is '{problem.loss.name}'", remedy))


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
