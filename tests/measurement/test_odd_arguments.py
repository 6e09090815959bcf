"""Odd arguments of every public measurement end in a sentence or in a result, never in a raw traceback."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import hessmap as hm
from hessmap import layers
from hessmap.measurement import overlap
from odd_values import MATRIX, SIZE, assert_sentence_or_result, problem, vectors

# A question that every function answers; each of its arguments is then replaced by odd ones.
QUESTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "auto_spectrum": lambda: {"matrix": MATRIX, "count": 2, "method": "auto", "log": str, "seed": 0},
    "choose_method": lambda: {"matrix": MATRIX, "count": 2, "method": "auto", "seed": 0},
    "density_estimate": lambda: {
        "matrix": MATRIX,
        "num_steps": 4,
        "num_probes": 2,
        "width": 0.1,
        "method": "quadrature",
        "memory_budget": 2**20,
        "precision": "auto",
        "seed": 0,
    },
    "diagonal_estimate": lambda: {
        "matrix": MATRIX,
        "relative_error": 0.1,
        "method": "auto",
        "max_products": 100,
        "seed": 0,
        "memory_budget": 2**20,
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
        "memory_budget": 2**20,
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
    "sharpness": lambda: {
        "matrix": MATRIX,
        "tolerance": 1e-4,
        "max_products": 100,
        "method": "three_term",
        "eigenvector": True,
        "memory_budget": 2**20,
        "seed": 0,
    },
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
        "method": "auto",
        "memory_budget": 2**20,
        "seed": 0,
    },
    "trace_estimate": lambda: {
        "matrix": MATRIX,
        "relative_error": 0.1,
        "absolute_error": 0.1,
        "method": "auto",
        "max_products": 100,
        "known": hm.top_eigenpairs(MATRIX, 2),
        "precision": "auto",
        "seed": 0,
        "memory_budget": 2**20,
    },
    "layers.autocorrelation": lambda: {"second_moment": np.diag([5.0, 1.0]), "mean": np.array([2.0, 0.0])},
    "layers.best_kronecker_product": lambda: {"hessian": hm.layer_hessian(problem(), "0"), "tolerance": 1e-6},
    "layers.class_outliers": lambda: {"eigenvalues": np.array([9.0, 8.0, 1.0]), "num_classes": 3},
    "layers.decoupling": lambda: {
        "hessian": hm.layer_hessian(problem(), "0"),
        "count": 2,
        "tolerance": 1e-4,
        "patch_rule": "mean_patch",
        "eigenpairs": None,
        "seed": 0,
    },
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
    "overlap_curve": lambda: {"first": vectors(), "second": vectors()},
    "overlap.overlap_of_models": lambda: {"bases": [vectors(), vectors()]},
}
# What packages above use with values that they have checked, and types.
NOT_ASKED = {
    *("EPS", "RELATIVE_TOLERANCE", "BlockTraces", "Floats", "Matrix", "ProbedOperator", "Reference"),
    *("basis_bytes", "block_traces", "default_block", "eigenpairs_bytes", "float_array", "form_errors"),
    *("largest_ritz_value", "negative_share", "reachable_tolerance", "rounding_unit"),
    *("EigenpairPlan", "budget_of", "planned_eigenpairs", "SKETCH", "probe_plan", "verified_single"),
}
# The measurements of the package of layers; its other functions take a layer apart.
OF_LAYERS = {
    *("autocorrelation", "best_kronecker_product", "class_outliers", "decoupling"),
    *("layer_eigenpairs", "layer_eigenpairs_bytes"),
}


def function_of(name: str) -> Callable[..., Any]:
    home, _, name = name.rpartition(".")
    return getattr({"": hm.measurement, "layers": layers, "overlap": overlap}[home], name)


def cases() -> Iterator[Any]:
    for name in QUESTIONS:
        for argument in inspect.signature(function_of(name)).parameters:
            yield pytest.param(name, argument, id=f"{name}-{argument}")


def test_every_public_measurement_is_asked() -> None:
    public = {*hm.measurement.__all__, *(f"layers.{name}" for name in OF_LAYERS), "overlap.overlap_of_models"}
    assert public == {*QUESTIONS, *NOT_ASKED}
    for name, question in QUESTIONS.items():
        assert set(question()) == set(inspect.signature(function_of(name)).parameters)


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_questions_have_answers(name: str) -> None:
    assert function_of(name)(**QUESTIONS[name]()) is not None


@pytest.mark.parametrize(("name", "argument"), list(cases()))
def test_odd_arguments_end_in_a_sentence_or_in_a_result(name: str, argument: str) -> None:
    assert_sentence_or_result(function_of(name), QUESTIONS[name](), argument)
