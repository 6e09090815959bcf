"""The index of rank formulas: every function exists, is public, and covers what predictions use."""

from __future__ import annotations

import sys
from importlib import import_module
from operator import attrgetter
from typing import Any

import pytest

from hessmap import theory
from hessmap.theory import INDEX, find_formulas


def function_of(name: str) -> Any:
    return attrgetter(name)(theory)


@pytest.mark.parametrize("formula", INDEX, ids=lambda formula: f"{formula.hessian} {formula.function}")
def test_every_formula_is_a_public_function_with_its_reference(formula: theory.Formula) -> None:
    function = function_of(formula.function)
    module = sys.modules[function.__module__]
    assert function.__name__ in getattr(module, "__all__", theory.__all__)
    assert formula.reference
    names_its_kind = function.__annotations__["return"] == "PatchRank"  # is_exact of the result
    assert "bound" not in formula.kind or "bound" in formula.function or names_its_kind


def test_every_rank_formula_of_a_network_is_in_the_index() -> None:
    """Ranks and bounds are found by their names; what is derived from others is listed here."""
    derived = {
        "fully_connected.linear": {"loss_layer_upper_bounds"},
        "fully_connected.signature": {"functional_inertia", "functional_signature"},  # signs, not ranks
        "convolutional.deep_columns": {"functional_column_upper_bounds", "layer_upper_bounds"},
    }
    listed = {formula.function for formula in INDEX}
    for folder in ("fully_connected", "convolutional", "attention"):
        package = import_module(f"hessmap.theory.{folder}")
        for name in package.__all__:
            names = getattr(getattr(package, name), "__all__", [])
            for found in names:
                is_rank = found.startswith(("outer_product", "functional", "loss")) and "column_ranks" not in found
                if is_rank and found not in derived.get(f"{folder}.{name}", ()):
                    assert f"{folder}.{name}.{found}" in listed


def test_the_index_is_searched_by_network_hessian_and_kind() -> None:
    found = find_formulas("convolution linear one", "H_L", "theorem")
    assert [formula.function for formula in found] == ["convolutional.one_layer.loss_rank"]
    assert find_formulas() == list(INDEX)
    assert find_formulas("no such network") == []
