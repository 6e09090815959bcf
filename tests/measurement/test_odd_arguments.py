"""Odd arguments of every public measurement end in a sentence or in a result, never in a raw traceback."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import flint
import numpy as np
import pytest
import scipy.sparse
import torch
from known_spectra import random_orthogonal, rotated
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import HessmapError
from hessmap.linalg.operator import DenseOperator, SymmetricOperator
from hessmap.measurement import layers
from hessmap_research.deep_linear import deep_linear_of, reduce_deep_linear

SIZE = 12
MATRIX = rotated(np.linspace(-1, 3, SIZE))


@cache
def problem() -> hm.Problem:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)).double()
    return hm.Problem(model, "cross_entropy", torch.randn(20, 3).double(), torch.arange(20) % 3)


@cache
def reduction() -> Any:
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (torch.randn(30, width, generator=generator, dtype=torch.float64) for width in (4, 2))
    model = hm.FullyConnected((4, 3, 2)).build()
    return reduce_deep_linear(deep_linear_of(hm.Problem(model, "squared", inputs, targets)))


def vectors(count: int = 3) -> np.ndarray:
    return random_orthogonal(SIZE, 1)[:, :count]


# A question that every function answers; each of its arguments is then replaced by odd ones.
QUESTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "auto_spectrum": lambda: {"matrix": MATRIX, "count": 2, "method": "auto", "say": str, "seed": 0},
    "choose_method": lambda: {"matrix": MATRIX, "count": 2, "method": "auto", "seed": 0},
    "density_estimate": lambda: {
        "matrix": MATRIX,
        "num_steps": 4,
        "num_probes": 2,
        "width": 0.1,
        "method": "quadrature",
        "memory_budget": 2**20,
        "seed": 0,
    },
    "diagonal_estimate": lambda: {
        "matrix": MATRIX,
        "relative_error": 0.1,
        "method": "auto",
        "max_products": 100,
        "seed": 0,
    },
    "effective_dimension": lambda: {"matrix": MATRIX, "epsilon": 0.1},
    "effective_dimension_estimate": lambda: {
        "matrix": MATRIX,
        "epsilon": 0.1,
        "relative_error": 0.1,
        "method": "quadrature",
        "num_steps": 4,
        "max_products": 100,
        "memory_budget": 2**20,
        "seed": 0,
    },
    "frobenius_norm_estimate": lambda: {
        "matrix": MATRIX,
        "relative_error": 0.1,
        "method": "hutch++",
        "max_products": 100,
        "seed": 0,
    },
    "gradient_overlap": lambda: {"gradient": np.arange(SIZE) + 1.0, "eigenvectors": vectors()},
    "krylov_solve": lambda: {
        "matrix": MATRIX,
        "right_side": np.ones(SIZE),
        "shift": 4.0,
        "tolerance": 1e-6,
        "max_basis": 10,
        "max_products": 100,
        "seed": 0,
    },
    "log_determinant_estimate": lambda: {
        "matrix": MATRIX,
        "shift": 4.0,
        "relative_error": 0.1,
        "method": "quadrature",
        "num_steps": 4,
        "max_products": 100,
        "memory_budget": 2**20,
        "seed": 0,
    },
    "numerical_rank": lambda: {"matrix": MATRIX, "scale": 1.0, "relative_tolerance": 1e-6},
    "rank_estimate": lambda: {
        "matrix": MATRIX,
        "relative_tolerance": 1e-6,
        "scale": 1.0,
        "relative_error": 0.1,
        "method": "quadrature",
        "num_steps": 4,
        "max_products": 100,
        "memory_budget": 2**20,
        "seed": 0,
    },
    "reconstruction_error": lambda: {"matrix": MATRIX, "ranks": [0, 2]},
    "reduced_spectrum": lambda: {"reduction": reduction()},
    "sharpness": lambda: {"matrix": MATRIX, "tolerance": 1e-4, "max_products": 100, "seed": 0},
    "smallest_eigenvalue_enclosure": lambda: {"matrix": flint.arb_mat([[2, 1], [1, 2]]), "bits": 64},
    "solve": lambda: {"matrix": MATRIX, "right_side": np.ones(SIZE), "shift": 4.0},
    "spectrum": lambda: {"matrix": MATRIX, "vectors": True, "scale": 1.0},
    "subspace_overlap": lambda: {"first": vectors(), "second": vectors()},
    "top_eigenpairs": lambda: {
        "matrix": MATRIX,
        "count": 2,
        "which": "largest",
        "tolerance": 1e-4,
        "relative_to": "norm",
        "start": vectors(2),
        "block_size": 2,
        "max_basis": 10,
        "max_products": 100,
        "precision": "auto",
        "seed": 0,
    },
    "trace_estimate": lambda: {
        "matrix": MATRIX,
        "relative_error": 0.1,
        "absolute_error": 0.1,
        "method": "auto",
        "max_products": 100,
        "known": hm.top_eigenpairs(MATRIX, 2),
        "seed": 0,
    },
    "layers.autocorrelation": lambda: {"second_moment": np.diag([5.0, 1.0]), "mean": np.array([2.0, 0.0])},
    "layers.best_kronecker_product": lambda: {"hessian": hm.layer_hessian(problem(), "0"), "tolerance": 1e-6},
    "layers.class_outliers": lambda: {"eigenvalues": np.array([9.0, 8.0, 1.0]), "num_classes": 3},
    "layers.cluster_ratios": lambda: {"means": np.arange(8.0).reshape(2, 2, 2), "total": 200.0},
    "layers.decoupling": lambda: {
        "hessian": hm.layer_hessian(problem(), "0"),
        "count": 2,
        "tolerance": 1e-4,
        "patch_rule": "mean_patch",
        "eigenpairs": None,
        "seed": 0,
    },
    "layers.input_correspondence": lambda: {"vectors": vectors(), "input_vectors": np.eye(4)},
    "layers.layer_eigenpairs": lambda: {
        "hessian": hm.layer_hessian(problem(), "0"),
        "count": 2,
        "tolerance": 1e-4,
        "relative_to": "norm",
        "block_size": 2,
        "seed": 0,
    },
    "layers.layer_eigenpairs_bytes": lambda: {
        "hessian": hm.layer_hessian(problem(), "0"),
        "count": 2,
        "tolerance": 1e-4,
        "block_size": 2,
    },
    "layers.matricised": lambda: {"vectors": vectors(), "weight_shape": (3, 4)},
    "layers.output_correspondence": lambda: {"vectors": vectors(), "output_vectors": np.eye(3)},
    "layers.overlap_curve": lambda: {"first": vectors(), "second": vectors()},
    "layers.overlap_of_models": lambda: {"bases": [vectors(), vectors()]},
    "layers.rank_one_ratios": lambda: {"vectors": vectors(), "weight_shape": (3, 4)},
}
NOT_ASKED = {"layers.BestKronecker", "layers.embedded"}  # a record; t-SNE, which takes seconds


class Broken(SymmetricOperator):
    """An operator whose products are wrong in one of many ways."""

    size = SIZE

    def __init__(self, images: Callable[[Tensor], Any], dtype: Any = torch.float64, size: Any = SIZE) -> None:
        self.images, self.dtype = images, dtype
        self.size = size

    def matmat(self, vectors: Tensor) -> Any:
        return self.images(vectors)


class Rectangular(hm.linalg.LinearOperator):
    shape = (SIZE, SIZE + 1)

    def matmat(self, vectors: Tensor) -> Tensor:
        return torch.zeros(SIZE, vectors.shape[1], dtype=torch.float64)


def odd_values() -> dict[str, Any]:
    """Wrong for a matrix, a vector, a number, a count, a seed or a name; some are right for one of them."""
    skewed = MATRIX.copy()
    skewed[2, 5] += 1e-3
    bad = MATRIX.copy()
    bad[1, 2] = bad[2, 1] = np.nan
    return {
        "None": None,
        "text": "text",
        "bytes": b"text",
        "2.5": 2.5,
        "True": True,
        "-1": -1,
        "0": 0,
        "1": 1,
        "huge integer": 10**400,
        "2^63": 2**63,
        "nan": float("nan"),
        "inf": float("inf"),
        "-inf": -float("inf"),
        "complex": 1 + 2j,
        "numpy 2.5": np.float64(2.5),
        "numpy bool": np.bool_(True),
        "tensor 2": torch.tensor(2),
        "list": [1.0, 2.0],
        "nested list": [[1.0, 0.0], [0.0, 1.0]],
        "list of text": ["a"],
        "dictionary": {"a": 1},
        "empty tuple": (),
        "object": object(),
        "class": np.ndarray,
        "function": len,
        "problem": problem(),
        "model": problem().model,
        "empty array": np.zeros((0, 0)),
        "0 by 3": np.zeros((0, 3)),
        "3 by 0": np.zeros((3, 0)),
        "no dimensions": np.array(3.0),
        "vector": np.ones(SIZE),
        "short vector": np.ones(3),
        "three dimensions": np.ones((2, SIZE, SIZE)),
        "rectangular": np.ones((SIZE, SIZE + 1)),
        "not symmetric": skewed,
        "not finite": bad,
        "zeros": np.zeros((SIZE, SIZE)),
        "integers": np.eye(SIZE, dtype=np.int8),
        "bools": np.eye(SIZE, dtype=bool),
        "float32": MATRIX.astype(np.float32),
        "float16": MATRIX.astype(np.float16),
        "complex array": MATRIX * 1j,
        "objects": np.array([[None] * SIZE] * SIZE),
        "texts": np.array([["a"] * SIZE] * SIZE),
        "dates": np.zeros((SIZE, SIZE), dtype="datetime64[s]"),
        "structured": np.zeros((SIZE, SIZE), dtype=[("a", float)]),
        "masked": np.ma.masked_array(MATRIX, MATRIX > 100),
        "masked in places": np.ma.masked_array(MATRIX, mask=np.eye(SIZE, dtype=bool)),
        "reversed": MATRIX[::-1, ::-1],
        "read only": np.broadcast_to(np.float64(1.0), (SIZE, SIZE)),
        "scipy sparse": scipy.sparse.csr_matrix(MATRIX),
        "torch sparse": torch.from_numpy(MATRIX).to_sparse(),
        "torch csr": torch.eye(SIZE, dtype=torch.float64).to_sparse_coo(),
        "meta": torch.empty(SIZE, SIZE, dtype=torch.float64, device="meta"),
        "bfloat16": torch.eye(SIZE, dtype=torch.bfloat16),
        "complex tensor": torch.eye(SIZE, dtype=torch.complex128),
        "conjugate": torch.eye(SIZE, dtype=torch.complex128).conj(),
        "with gradient": torch.eye(SIZE, dtype=torch.float64, requires_grad=True),
        "parameter": nn.Parameter(torch.eye(SIZE, dtype=torch.float64)),
        "operator": DenseOperator(torch.from_numpy(MATRIX)),
        "operator in float32": DenseOperator(torch.from_numpy(MATRIX).float()),
        "operator that is not symmetric": DenseOperator(torch.from_numpy(skewed)),
        "operator of nothing": DenseOperator(torch.zeros(0, 0, dtype=torch.float64)),
        "operator that is not square": Rectangular(),
        "operator to None": Broken(lambda vectors: None),
        "operator to arrays": Broken(lambda vectors: vectors.numpy()),
        "operator to one vector": Broken(lambda vectors: vectors[:, 0]),
        "operator to nan": Broken(lambda vectors: vectors * torch.nan),
        "operator to complex": Broken(lambda vectors: vectors * 1j),
        "operator to integers": Broken(lambda vectors: 2 * torch.ones_like(vectors, dtype=torch.int64)),
        "operator of a named dtype": Broken(lambda vectors: vectors, dtype="float64"),
        "operator of integers": Broken(lambda vectors: vectors, dtype=torch.int64),
        "operator of size 2.5": Broken(lambda vectors: vectors, size=2.5),
        "operator of size -1": Broken(lambda vectors: vectors, size=-1),
        "operator of size None": Broken(lambda vectors: vectors, size=None),
    }


def function_of(name: str) -> Callable[..., Any]:
    return getattr(layers, name.removeprefix("layers.")) if "." in name else getattr(hm.measurement, name)


def cases() -> Iterator[Any]:
    for name in QUESTIONS:
        for argument in inspect.signature(function_of(name)).parameters:
            yield pytest.param(name, argument, id=f"{name}-{argument}")


def test_every_public_measurement_is_asked() -> None:
    public = {*hm.measurement.__all__, *(f"layers.{name}" for name in layers.__all__)}
    assert public == {*QUESTIONS, *NOT_ASKED}
    for name, question in QUESTIONS.items():
        assert set(question()) == set(inspect.signature(function_of(name)).parameters)


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_questions_have_answers(name: str) -> None:
    assert function_of(name)(**QUESTIONS[name]()) is not None


@pytest.mark.parametrize(("name", "argument"), list(cases()))
def test_odd_arguments_end_in_a_sentence_or_in_a_result(name: str, argument: str) -> None:
    question, values = QUESTIONS[name](), odd_values()
    refused = 0
    for description, value in values.items():
        try:
            found = function_of(name)(**{**question, argument: value})
        except HessmapError as error:
            text = str(error)
            refused += 1
            assert text.endswith((".", "?")), description
            assert len(text.splitlines()) == 1, description
            assert len(text) < 400, description
        except Exception as error:
            if "raised in say" in getattr(error, "__notes__", ()):
                continue  # the caller's own function
            pytest.fail(f"{name}({argument}={description}) raised {type(error).__name__}: {error}")
        else:
            assert found is not None
    assert refused > (5 if argument not in ("vectors", "say") else -1)
