"""What is not symmetric is refused by every measurement, at the cost of two products for each operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

import hessmap as hm
from hessmap.errors import HessmapError, InvalidInput
from hessmap.linalg.operator import DenseOperator, SymmetricOperator
from hessmap.measurement.operators_in import is_known_symmetric, measured_product
from known_spectra import Counted, Floats, rotated

SIZE = 60
MEASUREMENTS: dict[str, Callable[[Any], Any]] = {
    "top_eigenpairs": lambda matrix: hm.top_eigenpairs(matrix, 3),
    "sharpness": hm.sharpness,
    "density_estimate": hm.measurement.density_estimate,
    "rank_estimate": lambda matrix: hm.measurement.rank_estimate(matrix, num_steps=16),
    "effective_dimension_estimate": lambda matrix: hm.measurement.effective_dimension_estimate(matrix, 1.0),
    "log_determinant_estimate": lambda matrix: hm.measurement.log_determinant_estimate(matrix, 9.0),
    "trace_estimate": hm.trace_estimate,
    "exact trace": lambda matrix: hm.trace_estimate(matrix, method="exact"),
    "diagonal_estimate": hm.measurement.diagonal_estimate,
    "frobenius_norm_estimate": hm.measurement.frobenius_norm_estimate,
    "krylov_solve": lambda matrix: hm.measurement.krylov_solve(matrix, np.ones(SIZE), 9.0),
    "solve": lambda matrix: hm.measurement.solve(matrix, np.ones(SIZE), 9.0),
    "spectrum": hm.spectrum,
    "effective_dimension": lambda matrix: hm.measurement.effective_dimension(matrix, 1.0),
    "reconstruction_error": hm.measurement.reconstruction_error,
    "auto_spectrum": lambda matrix: hm.measurement.auto_spectrum(matrix, log=str),
    "lanczos": lambda matrix: hm.measurement.auto_spectrum(matrix, count=2, method="lanczos", log=str),
    "choose_method": hm.measurement.choose_method,
}
every_measurement = pytest.mark.parametrize("name", MEASUREMENTS)


def skewed(size: float = 1e-2) -> Floats:
    matrix = rotated(np.linspace(-1, 3, SIZE))
    matrix[3, 7] += size
    return matrix


@every_measurement
@pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0])
def test_a_matrix_that_is_not_symmetric_is_refused(name: str, size: float) -> None:
    with pytest.raises(InvalidInput, match="a measurement needs a symmetric matrix; .*Pass .H . H.T. / 2"):
        MEASUREMENTS[name](skewed(size))


@every_measurement
@pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0])
def test_an_operator_that_is_not_symmetric_is_refused(name: str, size: float) -> None:
    operator = Counted(skewed(size))
    with pytest.raises(InvalidInput, match="a measurement needs a symmetric (operator|matrix); "):
        MEASUREMENTS[name](operator)
    assert operator.count <= 7 or operator.count == SIZE  # before any work, or by its dense form
    with pytest.raises(InvalidInput, match="a measurement needs a symmetric (operator|matrix); "):
        MEASUREMENTS[name](operator)  # once more: what was refused is not taken for known


@every_measurement
def test_symmetric_operators_pass_and_are_asked_once(name: str) -> None:
    operator = Counted(rotated(np.linspace(-1, 3, SIZE)))
    MEASUREMENTS[name](operator)
    first, operator.count = operator.count, 0
    MEASUREMENTS[name](operator)
    assert abs(first - operator.count) <= 2  # the iteration may use the products of the check


def test_the_products_that_ask_are_counted() -> None:
    operator = Counted(rotated(np.linspace(-1, 3, SIZE)))
    found = [hm.trace_estimate(operator, method="hutch++", max_products=100).num_products for _ in range(2)]
    assert found[0] == found[1] + 2
    assert sum(found) == operator.count


def test_a_problem_is_asked_once_for_each_of_its_hessians() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    problem = hm.Problem(model, "cross_entropy", torch.randn(20, 4).double(), torch.arange(20) % 3)
    assert not is_known_symmetric(hm.loss_hessian(problem))
    hm.sharpness(hm.loss_hessian(problem))
    assert is_known_symmetric(hm.loss_hessian(problem))
    assert not is_known_symmetric(hm.functional_hessian(problem))


@pytest.mark.parametrize("noise", [1e-13, 1e-9, 1e-6, 1e-3])
def test_rounding_is_no_asymmetry(noise: float) -> None:
    """Of float32, or of values that cancel: it differs from product to product, and so shows in H(u + v)."""

    class Noisy(Counted):
        def matmat(self, vectors: Tensor) -> Tensor:
            generator = torch.Generator().manual_seed(self.count)
            drawn = torch.randn(vectors.shape, generator=generator, dtype=torch.float64)
            return super().matmat(vectors) + noise * drawn

    matrix = rotated(np.linspace(-1, 3, SIZE))
    for _ in range(20):
        measured_product(Noisy(matrix))(torch.ones(SIZE, 1, dtype=torch.float64))


NONLINEAR = {
    "absolute values": torch.abs,
    "rectified": torch.relu,
    "signs": torch.sign,
    "squares": torch.square,
    "shifted": lambda images: images + 1,
    "normalised": lambda images: images / images.norm(dim=0),
}


@pytest.mark.parametrize("name", NONLINEAR)
@pytest.mark.parametrize("measure", ["top_eigenpairs", "sharpness", "density_estimate", "krylov_solve"])
def test_what_is_not_linear_is_not_excused_as_rounding(name: str, measure: str) -> None:
    """The mixture of two products, by which rounding is told from asymmetry, is far off here."""

    class Nonlinear(Counted):
        def matmat(self, vectors: Tensor) -> Tensor:
            return NONLINEAR[name](super().matmat(vectors))

    operator = Nonlinear(rotated(np.linspace(-1, 3, SIZE)))
    asked = {
        "top_eigenpairs": lambda: hm.top_eigenpairs(operator, 2),
        "sharpness": lambda: hm.sharpness(operator),
        "density_estimate": lambda: hm.density_estimate(operator, num_steps=4, num_probes=2),
        "krylov_solve": lambda: hm.measurement.krylov_solve(operator, np.ones(SIZE), shift=5.0),
    }
    with pytest.raises(InvalidInput, match="a measurement needs a (linear|symmetric) operator; "):
        asked[measure]()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_operators_in_other_formats_get_vectors_of_their_own(dtype: torch.dtype) -> None:
    operator = DenseOperator(torch.from_numpy(rotated(np.linspace(-1, 3, SIZE))).to(dtype))
    found = hm.top_eigenpairs(operator, 1, tolerance=0.1, max_products=200)
    assert found.eigenvalues[0] == pytest.approx(3, rel=0.1)
    with pytest.raises(InvalidInput, match="a measurement needs a symmetric operator; "):
        hm.sharpness(DenseOperator(torch.from_numpy(skewed(30.0)).to(dtype)))


class Cube(torch.autograd.Function):
    """x^3 with a derivative that torch is told not to differentiate."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        return values**3

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        return 3 * values**2 * grad


@every_measurement
def test_a_model_that_hides_its_second_derivative_is_not_measured(name: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 5), nn.Linear(5, 3, bias=False)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.last(Cube.apply(self.first(inputs)))

    torch.manual_seed(0)
    data = torch.randn(20, 8).double(), torch.arange(20) % 3
    problem = hm.Problem(Model().double(), "cross_entropy", *data)
    assert problem.num_parameters == SIZE
    with pytest.raises(HessmapError, match="symmetric|second derivative|differentiate"):
        MEASUREMENTS[name](hm.loss_hessian(problem))


class Failing(SymmetricOperator):
    size = SIZE

    def matmat(self, vectors: Tensor) -> Tensor:
        raise ZeroDivisionError("the user's own")


@every_measurement
def test_an_exception_of_the_operator_passes_through_with_a_note(name: str) -> None:
    with pytest.raises(ZeroDivisionError, match="the user's own") as caught:
        MEASUREMENTS[name](Failing())
    notes = [f"raised in the {where} of an operator" for where in ("product", "dense form")]
    assert caught.value.__notes__[-1] in notes


@every_measurement
@pytest.mark.parametrize("scale", [0.0, 5e-324, 1e-320, 1e-308, 1e-300, 1e-200, 1e200, 1e300])
def test_every_scale_has_an_answer(name: str, scale: float) -> None:
    """Definite ones, for the logarithm of their determinant."""
    matrix = scale * rotated(np.linspace(1, 3, SIZE))
    for given in ((matrix + matrix.T) / 2, Counted((matrix + matrix.T) / 2)):
        assert MEASUREMENTS[name](given) is not None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_left_where_terms_cancel_is_rounding_and_no_fault_of_the_operator(dtype: torch.dtype) -> None:
    """(A + B) - A - B: its products are rounding alone, neither linear nor symmetric."""

    class Cancelled(SymmetricOperator):
        first, second = (torch.from_numpy(rotated(np.linspace(-1, end, SIZE))).to(dtype) for end in (3, 5))

        @property
        def size(self) -> int:
            return SIZE

        @property
        def dtype(self) -> torch.dtype:
            return dtype

        def matmat(self, vectors: Tensor) -> Tensor:
            return (self.first + self.second) @ vectors - self.first @ vectors - self.second @ vectors

    assert abs(hm.top_eigenpairs(Cancelled(), 1, which="magnitude", tolerance=1e-1).eigenvalues[0]) < 1e-4
