"""Records as tables, and the sentence where pandas is missing."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.records.record import columns_of


@pytest.fixture
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in whose tables are dictionaries of columns."""
    module = ModuleType("pandas")
    module.__spec__ = ModuleSpec("pandas", None)  # others look it up: torch, when it is first compiled with
    module.DataFrame = dict
    monkeypatch.setitem(sys.modules, "pandas", module)


def small_map(**options: Any) -> hm.records.CurvatureMap:
    inputs, labels = hm.datasets.digits(num_samples=30)
    model = hm.FullyConnected((64, 3, 10), activation="tanh").build(seed=0)
    return hm.map(model, (inputs, labels), **options)


@pytest.mark.usefixtures("pandas")
def test_arrays_are_columns() -> None:
    found = hm.top_eigenpairs(np.diag([3.0, 2.0, 1.0]), 2).to_frame()
    assert found["eigenvalues"].round(9).tolist() == [3.0, 2.0]
    assert set(found) == {"eigenvalues", "residuals"}
    density = hm.density_estimate(np.diag([3.0, 2.0, 1.0]), num_probes=2).to_frame()
    assert set(density) == {"grid", "density", "lower", "upper"}


@pytest.mark.usefixtures("pandas")
@pytest.mark.parametrize("dense", [True, False])
def test_a_map_has_a_row_for_every_layer(dense: bool) -> None:
    made = small_map(dense=dense)
    found = made.to_frame()
    assert found["name"] == ["0", "2"]
    assert found["num_parameters"] == [192, 30]
    assert all(len(column) == 2 for column in found.values())
    assert ("rank.value" in found) == dense


@pytest.mark.usefixtures("pandas")
def test_a_record_of_numbers_has_one_row() -> None:
    found = hm.sharpness(np.diag([4.0, 1.0])).to_frame()
    assert found["largest_stable_step"] == [pytest.approx(0.5)]
    assert not [name for name in found if "provenance" in name]


def test_nothing_of_it_needs_pandas_until_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    record = hm.sharpness(np.diag([4.0, 1.0]))
    assert columns_of(record)["value"] == [pytest.approx(4.0)]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InvalidInput, match="to_frame needs pandas; it is not installed. Install it"):
        record.to_frame()


def test_pictures_by_function_and_by_method() -> None:
    made = small_map(dense=False)
    records = (made, made.network, made.network.whole, hm.top_eigenpairs(np.diag([3.0, 2.0, 1.0]), 2))
    for record in records:
        assert hm.plot(record).axes
        assert record.plot().axes
    assert hm.plot(made, "layers").axes
    assert hm.plot(made, "density").axes


def test_reprs_have_at_most_two_lines() -> None:
    made = small_map()
    for record in (made, made.network, made.network.whole, made.network.layers[0], made.work):
        lines = repr(record).splitlines()
        assert len(lines) <= 2
        assert max(map(len, lines)) <= 120
    assert repr(made).startswith("CurvatureMap(64-3-10 tanh, cross_entropy loss, 30 samples; 222 parameters, exact:")
