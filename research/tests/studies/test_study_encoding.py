"""Cases and records as text."""

from __future__ import annotations

import json
import math
import sqlite3
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hessmap.errors import InvalidInput
from hessmap.records import RankMeasurement, Record, provenance
from hessmap.records.record import decode, encode
from hessmap_research.runner.encoding import case_key, case_of_key

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.one_of(st.integers(), FLOATS, st.text(), st.booleans(), st.none())
CASES = st.dictionaries(st.text(), st.one_of(SCALARS, st.lists(SCALARS, max_size=3).map(tuple)), max_size=5)


@given(CASES)
def test_a_case_comes_back_from_its_key(case: dict[str, Any]) -> None:
    assert case_of_key(case_key(case)) == case


@given(CASES, st.randoms())
def test_the_order_of_names_does_not_change_the_key(case: dict[str, Any], random: Any) -> None:
    names = list(case)
    random.shuffle(names)
    assert case_key({name: case[name] for name in names}) == case_key(case)


@pytest.mark.parametrize("value", [math.nan, math.inf, np.int64(3), {"a": 1}, (1, [math.inf])])
def test_a_case_with_a_value_that_has_no_one_spelling_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"a case must contain .*; 'width' is"):
        case_key({"width": value})


@pytest.mark.parametrize("text", ["width=3", "[1]", ""])
def test_a_text_that_is_no_case_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="a case must be"):
        case_of_key(text)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6).reshape(2, 3),
        np.array([1.5, np.inf, np.nan]),
        np.array([0.1], dtype=np.float32),
        np.array([True, False]),
        np.zeros((0, 2)),
    ],
    ids=str,
)
def test_arrays_keep_shape_and_number_format(array: Any) -> None:
    back = decode(encode({"values": array}))["values"]
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype


def test_floats_that_json_lacks_survive_and_sqlite_can_read_the_text() -> None:
    text = encode({"gap": math.inf, "low": -math.inf, "values": np.array([math.nan, 1.0]), "plain": 2.5})
    back = decode(text)
    assert back["gap"] == math.inf
    assert back["low"] == -math.inf
    assert math.isnan(back["values"][0])
    (plain,) = sqlite3.connect(":memory:").execute("SELECT json_extract(?, '$.plain')", (text,)).fetchone()
    assert plain == 2.5
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_record_inside_a_record_can_be_restored() -> None:
    rank = RankMeasurement(7, 1e-9, 2.0, 0.1, 0.0, math.inf, True, 12, provenance=provenance())
    text = encode({"measured": rank})
    assert "created" not in text
    back = decode(text)["measured"]
    assert back["value"] == 7
    assert Record.from_dict(back) == rank


@pytest.mark.parametrize(("value", "place"), [(object(), "record.a.b is a object"), ({1, 2}, "record.a.b is a set")])
def test_what_cannot_be_stored_is_named_with_its_place(value: object, place: str) -> None:
    with pytest.raises(InvalidInput, match=place):
        encode({"a": {"b": value}})


def test_an_array_of_texts_is_refused() -> None:
    with pytest.raises(InvalidInput, match="arrays of a record must be real; record.names has dtype <U1"):
        encode({"names": np.array(["a"])})


def test_numpy_numbers_and_tensors_become_plain() -> None:
    assert decode(encode({"a": np.float32(0.5), "b": np.int8(3), "c": np.array(2.0)})) == {"a": 0.5, "b": 3, "c": 2.0}
