"""A problem over GF(P): this network, on these data, with the squared loss, without rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hessmap.curvature.finite_field.chain import Chain, Floats, in_field
from hessmap.curvature.finite_field.evaluation import Evaluation, evaluate
from hessmap.curvature.finite_field.field_array import FieldArray, from_floats, from_integers, identity
from hessmap.curvature.finite_field.float_evaluation import float_outputs
from hessmap.curvature.finite_field.hessian import OutputDerivatives, field_hessian
from hessmap.curvature.finite_field.model_reading import read_chain
from hessmap.curvature.finite_field.prime_field import PrimeField
from hessmap.curvature.finite_field.signs import Signs, signs
from hessmap.curvature.losses import Squared
from hessmap.curvature.problem import Problem
from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.results import Part

_AGREEMENT = 1e-8  # far above rounding, far below what a hook or another order of layers would change


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


def exact_problem(problem: Problem, field: PrimeField) -> ExactProblem:
    """The problem in the field, or a refusal that says what to use instead."""
    _require_squared(problem)
    chain = read_chain(problem.model, problem.layout, tuple(problem.inputs.shape[1:]))
    inputs = problem.inputs.numpy().reshape(problem.num_samples, -1)
    _check_reading(problem, chain, inputs)
    found: Signs = signs(chain, inputs)
    exact_chain, exact_inputs = in_field(chain, field), from_floats(field, inputs)
    evaluation = evaluate(exact_chain, exact_inputs, found.patterns)
    residuals = evaluation.outputs - from_floats(field, problem.targets.numpy())
    weights = problem.weights.numpy()
    are_equal = bool((weights == weights[0]).all())
    derivatives = OutputDerivatives(residuals, None, None if are_equal else from_floats(field, weights))
    total_weight = problem.num_samples if are_equal else 1
    return ExactProblem(exact_chain, exact_inputs, evaluation, derivatives, found.num_ties, problem.l2, total_weight)


def _require_squared(problem: Problem) -> None:
    if type(problem.loss) is not Squared:
        must = "exact arithmetic on given data needs the squared loss, whose derivatives are polynomials"
        remedy = "Use numerical_rank for this network, or generic_rank for the generic network of its architecture"
        raise UnsupportedNetwork(sentence(must, f"the loss is '{problem.loss.name}'", remedy))


def _check_reading(problem: Problem, chain: Chain[Floats], inputs: Floats) -> None:
    """The chain that was read computes what the model does, to rounding: hooks and the like cannot hide."""
    expected = problem.outputs().numpy()
    found = float_outputs(chain, inputs)
    scale = float(np.abs(expected).max())
    is_same = found.shape == expected.shape
    if not is_same or not np.allclose(found, expected, rtol=_AGREEMENT, atol=_AGREEMENT * scale):
        must = "the model must compute what its layers, applied one after another, compute"
        remedy = "Remove forward hooks, or use numerical_rank"
        raise UnsupportedNetwork(sentence(must, "its outputs differ from theirs", remedy))
