"""Odd arguments of the instruments of the papers end in a sentence or in a result, never in a raw traceback."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import flint
import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap_research.deep_linear import deep_linear_of, reduce_deep_linear
from hessmap_research.deep_linear.reduction import reduced_spectrum
from hessmap_research.instruments.matricisation import (
    cluster_ratios,
    input_correspondence,
    matricised,
    output_correspondence,
    rank_one_ratios,
)
from hessmap_research.studies.teacher.erf_full_rank import smallest_eigenvalue_enclosure
from odd_values import assert_sentence_or_result, vectors

FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        cluster_ratios,
        input_correspondence,
        matricised,
        output_correspondence,
        rank_one_ratios,
        reduced_spectrum,
        smallest_eigenvalue_enclosure,
    )
}


@cache
def reduction() -> Any:
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (torch.randn(30, width, generator=generator, dtype=torch.float64) for width in (4, 2))
    model = hm.FullyConnected((4, 3, 2)).build()
    return reduce_deep_linear(deep_linear_of(hm.Problem(model, "squared", inputs, targets)))


# A question that every function answers; each of its arguments is then replaced by odd ones.
QUESTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "cluster_ratios": lambda: {"means": np.arange(8.0).reshape(2, 2, 2), "total": 200.0},
    "input_correspondence": lambda: {"vectors": vectors(), "input_vectors": np.eye(4)},
    "matricised": lambda: {"vectors": vectors(), "weight_shape": (3, 4)},
    "output_correspondence": lambda: {"vectors": vectors(), "output_vectors": np.eye(3)},
    "rank_one_ratios": lambda: {"vectors": vectors(), "weight_shape": (3, 4)},
    "reduced_spectrum": lambda: {"reduction": reduction()},
    "smallest_eigenvalue_enclosure": lambda: {"matrix": flint.arb_mat([[2, 1], [1, 2]]), "bits": 64},
}


def cases() -> Iterator[Any]:
    for name, function in FUNCTIONS.items():
        for argument in inspect.signature(function).parameters:
            yield pytest.param(name, argument, id=f"{name}-{argument}")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_questions_have_answers(name: str) -> None:
    assert set(QUESTIONS[name]()) == set(inspect.signature(FUNCTIONS[name]).parameters)
    assert FUNCTIONS[name](**QUESTIONS[name]()) is not None


@pytest.mark.parametrize(("name", "argument"), list(cases()))
def test_odd_arguments_end_in_a_sentence_or_in_a_result(name: str, argument: str) -> None:
    assert_sentence_or_result(FUNCTIONS[name], QUESTIONS[name](), argument)
