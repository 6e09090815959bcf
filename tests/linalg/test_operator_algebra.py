"""Sums, multiples, products and transposes of operators equal those of their matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator as ScipyOperator
from scipy.sparse.linalg import aslinearoperator

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.linalg import DenseOperator, Layout, LinearOperator, as_operator
from hessmap.measurement import density_estimate, diagonal_estimate, frobenius_norm_estimate, krylov_solve

SIZE = 7
LAYOUT = Layout((("a", (4,)), ("b", (3,))))


def symmetric(seed, size=SIZE):
    square = torch.randn(size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return square + square.T


FIRST, SECOND = symmetric(0), symmetric(1)
WIDE = FIRST[:4, 4:]
IDENTITY = torch.eye(SIZE, dtype=torch.float64)

# An expression in the operators (or matrices) A and B, both symmetric, and W, of 4 rows and 3 columns; the identity
# matrix stands beside the expressions that add a number, which means another thing for matrices.
EXPRESSIONS = {
    "A + B": lambda A, B, W: A + B,
    "A - B": lambda A, B, W: A - B,
    "-A": lambda A, B, W: -A,
    "3 * A": lambda A, B, W: 3 * A,
    "A * 0.25": lambda A, B, W: A * 0.25,
    "A / 4": lambda A, B, W: A / 4,
    "numpy number * A": lambda A, B, W: np.float64(1.5) * A,
    "2 * (A - B) / 3 - (-A + B)": lambda A, B, W: 2 * (A - B) / 3 - (-A + B),
    "A @ B": lambda A, B, W: A @ B,
    "(A @ B).T": lambda A, B, W: (A @ B).T,
    "A @ B + B @ A": lambda A, B, W: A @ B + B @ A,
    "(A @ B - 2 * A).T": lambda A, B, W: (A @ B - 2 * A).T,
    "A.T": lambda A, B, W: A.T,
    "W": lambda A, B, W: W,
    "W.T": lambda A, B, W: W.T,
    "W @ W.T": lambda A, B, W: W @ W.T,
    "W + W": lambda A, B, W: W + W,
    "(-W / 2).T": lambda A, B, W: (-W / 2).T,
}
SHIFTED = {
    "A + 2": (lambda A, B: A + 2, FIRST + 2 * IDENTITY),
    "2 + A": (lambda A, B: 2 + A, FIRST + 2 * IDENTITY),
    "A - 0.5": (lambda A, B: A - 0.5, FIRST - 0.5 * IDENTITY),
    "1 - A": (lambda A, B: 1 - A, IDENTITY - FIRST),
    "3 * (A + 2) - B": (lambda A, B: 3 * (A + 2) - B, 3 * FIRST + 6 * IDENTITY - SECOND),
    "A @ B + 1": (lambda A, B: A @ B + 1, FIRST @ SECOND + IDENTITY),
    "A + tensor(2)": (lambda A, B: A + torch.tensor(2.0), FIRST + 2 * IDENTITY),
}


def operators():
    whole = DenseOperator(FIRST, LAYOUT, scale=2.0)
    return whole, DenseOperator(SECOND, LAYOUT), whole.block("a", "b")


def assert_is(found: LinearOperator, expected: torch.Tensor) -> None:
    """Products with columns, one vector, rows from the left, arrays and scipy, and the dense form."""
    rows, columns = expected.shape
    right, left = torch.randn(columns, 3, dtype=torch.float64), torch.randn(2, rows, dtype=torch.float64)
    assert found.shape == (rows, columns)
    torch.testing.assert_close(found.to_dense(), expected)
    torch.testing.assert_close(found @ right, expected @ right)
    torch.testing.assert_close(found @ right[:, 0], expected @ right[:, 0])
    torch.testing.assert_close(left @ found, left @ expected)
    torch.testing.assert_close(left[0] @ found, left[0] @ expected)
    np.testing.assert_allclose(left.numpy() @ found, (left @ expected).numpy(), atol=1e-12)
    np.testing.assert_allclose(found.to_scipy().rmatvec(left[0].numpy()), (left[0] @ expected).numpy(), atol=1e-12)


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_expressions_of_operators_equal_those_of_matrices(expression):
    assert_is(expression(*operators()), expression(FIRST, SECOND, WIDE))


@pytest.mark.parametrize(("expression", "expected"), SHIFTED.values(), ids=SHIFTED)
def test_a_number_adds_its_multiple_of_the_identity(expression, expected):
    assert_is(expression(*operators()[:2]), expected)


def test_sums_of_symmetric_operators_have_blocks_diagonals_and_the_layout_of_their_terms():
    first, second, _ = operators()
    total = 2 * first - second + 1
    expected = 2 * FIRST - SECOND + IDENTITY
    assert total.layout == LAYOUT
    torch.testing.assert_close(total.block("b").to_dense(), expected[4:, 4:])
    torch.testing.assert_close(total.exact_diagonal(), expected.diagonal())


def test_a_multiple_has_the_scale_of_its_operator_times_the_factor():
    first, second, _ = operators()
    assert (-3 * first).scale == 6.0
    assert (first + 1).scale is None
    assert (first - second).scale is None


def test_numbers_in_float32_and_float64_are_added_in_float64():
    narrow = DenseOperator(FIRST.float())
    assert (narrow + narrow).dtype == torch.float32
    assert (narrow + DenseOperator(SECOND)).dtype == torch.float64


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (lambda A, W: A + W, "same shape and device"),
        (lambda A, W: W + 1, "a square operator"),
        (lambda A, W: W @ A, "matching shapes"),
        (lambda A, W: A / 0, "other than 0"),
        (lambda A, W: A * float("nan"), "must be finite"),
        (lambda A, W: A @ "v", "multiplies tensors, arrays and operators; got str"),
    ],
)
def test_operators_that_do_not_match_are_refused(refused, message):
    first, _, wide = operators()
    with pytest.raises(InvalidInput, match=message):
        refused(first, wide)


@pytest.mark.parametrize("refused", [lambda A: A + "1", lambda A: A * A, lambda A: A - IDENTITY, lambda A: 1 / A])
def test_what_has_no_meaning_is_a_type_error(refused):
    with pytest.raises(TypeError):
        refused(operators()[0])


def test_an_operator_without_a_transpose_has_products_from_the_right_alone():
    class Right(LinearOperator):
        shape = (2, 3)

        def matmat(self, vectors):
            return vectors[:2]

    ones = torch.ones(3, 1, dtype=torch.float64)
    assert (Right() @ ones).shape == (2, 1)
    with pytest.raises(InvalidInput, match="Right defines none"):
        torch.ones(2, dtype=torch.float64) @ Right()


def test_the_parts_of_a_hessian_add_up():
    """H_L = H_o + H_f, and the difference of two of them has eigenpairs of its own."""
    torch.manual_seed(0)
    problem = hm.Problem(hm.FullyConnected((3, 4, 2)).build(seed=0), "squared", torch.randn(5, 3), torch.randn(5, 2))
    whole, outer, functional = hm.loss_hessian(problem), hm.ggn(problem), hm.functional_hessian(problem)
    rest = whole - outer
    torch.testing.assert_close(rest.to_dense(), functional.to_dense())
    assert rest.layout == whole.layout
    assert rest.device == problem.device
    expected = torch.linalg.eigvalsh(functional.to_dense())[-1]
    assert abs(hm.sharpness(rest).value - float(expected)) <= 1e-6 * float(functional.to_dense().norm())


@pytest.mark.parametrize("takes_columns", [False, True])
def test_a_function_is_an_operator(takes_columns):
    found = as_operator(lambda vectors: FIRST @ vectors, SIZE, takes_columns=takes_columns)
    assert_is(found, FIRST)
    assert_is(found + 1, FIRST + IDENTITY)


def test_a_function_in_float32_gets_vectors_in_float32():
    found = as_operator(lambda vector: FIRST.float() @ vector, SIZE, dtype=torch.float32)
    expected = float(torch.linalg.eigvalsh(FIRST)[-1])
    assert abs(hm.sharpness(found).value - expected) <= 1e-4 * float(FIRST.norm())


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (3, (SIZE,), "made of a function"),
        (torch.clone, (-1,), "size"),
        (lambda vector: vector[:2], (SIZE,), r"shape \(7,\); got \(2,\)"),
        (lambda vector: vector.tolist(), (SIZE,), "got list"),
        (lambda vector: torch.triu(torch.ones(SIZE, SIZE, dtype=torch.float64)) @ vector, (SIZE,), "symmetric"),
    ],
)
def test_functions_that_are_no_symmetric_operator_are_refused(function, arguments, message):
    with pytest.raises(InvalidInput, match=message):
        hm.top_eigenpairs(as_operator(function, *arguments), 1)


MEASUREMENTS = {
    "spectrum": lambda A: hm.spectrum(A).eigenvalues,
    "top_eigenpairs": lambda A: hm.top_eigenpairs(A, 2).eigenvalues,
    "sharpness": lambda A: hm.sharpness(A).value,
    "numerical_rank": lambda A: hm.numerical_rank(A).value,
    "trace": lambda A: hm.trace_estimate(A).value,
    "diagonal": lambda A: diagonal_estimate(A).values,
    "frobenius": lambda A: frobenius_norm_estimate(A).value,
    "density": lambda A: density_estimate(A).density,
    "effective_dimension": lambda A: hm.effective_dimension(A, epsilon=0.1).value,
    "solve": lambda A: hm.solve(A, np.ones(SIZE), shift=30.0).solution,
    "krylov_solve": lambda A: krylov_solve(A, np.ones(SIZE), shift=30.0).solution,
}


@pytest.mark.parametrize("measure", MEASUREMENTS.values(), ids=MEASUREMENTS)
def test_measurements_take_scipy_operators(measure):
    found, expected = measure(aslinearoperator(FIRST.numpy())), measure(DenseOperator(FIRST))
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_a_scipy_operator_must_be_real_and_symmetric():
    with pytest.raises(InvalidInput, match="must be real; got a scipy operator of dtype complex128"):
        hm.sharpness(aslinearoperator(1j * FIRST.numpy()))
    with pytest.raises(InvalidInput, match="symmetric"):
        hm.sharpness(aslinearoperator(np.triu(FIRST.numpy())))


def test_a_scipy_operator_in_float32_has_the_tolerance_of_float32():
    narrow = FIRST.float().numpy()
    found = hm.sharpness(ScipyOperator((SIZE, SIZE), matvec=lambda v: narrow @ v, dtype=np.float32))
    assert abs(found.value - float(torch.linalg.eigvalsh(FIRST)[-1])) <= 1e-4 * float(FIRST.norm())


def test_ggn_is_the_outer_product_hessian():
    assert hm.ggn is hm.outer_product_hessian
