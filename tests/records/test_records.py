"""Records: frozen, comparable, readable, and JSON both ways."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

import numpy as np
import pytest

from hessmap.errors import InvalidInput, UnknownName
from hessmap.records import Provenance, RankMeasurement, RankPrediction, RankValue, Record, Spectrum, provenance


@dataclass(frozen=True, eq=False, repr=False)
class Sample(Record):
    name: str
    values: np.ndarray
    parts: tuple[RankValue, ...] = ()
    provenance: Provenance | None = field(default=None, compare=False)


def sample(**changes: object) -> Sample:
    values = np.array([[1.0, np.inf], [np.nan, 0.1]])
    made = Sample("first", values, (RankValue(3, "exact", "a theorem"),), provenance())
    return dataclasses.replace(made, **changes)


def test_json_goes_both_ways_exactly_and_is_strict():
    made = sample(values=np.array([0.1, 1 / 3, np.inf]))
    text = made.to_json()
    json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))
    back = Sample.from_json(text)
    assert back == made
    assert back.values.dtype == np.float64
    assert isinstance(back.parts[0], RankValue)
    assert back.provenance == made.provenance


def test_nan_survives_json():
    assert np.isnan(Sample.from_json(sample().to_json()).values[1, 0])


def test_equality_compares_arrays_and_leaves_provenance_out():
    plain = sample(values=np.zeros(3))
    assert plain == sample(values=np.zeros(3), provenance=None)
    assert plain != sample(values=np.array([0.0, 0.0, 1e-300]))
    assert plain != sample(values=np.zeros(3), name="second")
    assert plain != sample(values=np.zeros(3), parts=(RankValue(4, "exact", "a theorem"),))
    assert plain != "first"
    assert hash(plain) == hash(sample(values=np.zeros(3), provenance=None))


def test_equal_records_have_equal_hashes_however_their_numbers_are_stored():
    one, other = sample(values=np.array([0.0, 2.0])), sample(values=np.array([-0.0, 2.0]))
    assert one == other
    assert hash(one) == hash(other)
    whole = sample(values=np.array([0, 2]))
    assert one == whole
    assert hash(one) == hash(whole)
    assert hash(one) != hash(sample(values=np.array([0.0, 3.0])))


def test_a_record_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        sample().name = "other"


def test_readable_forms_name_the_values():
    rank = RankMeasurement(3, 1e-12, 1.0, 0.5, 1e-16, 5e15, True, 7)
    assert repr(rank) == ("RankMeasurement(value=3, threshold=1e-12, scale=1, gap=5e+15, decidable=True, size=7)")
    page = RankValue(3, "exact", "<b>")._repr_html_()
    assert "<table>" in page
    assert "&lt;b&gt;" in page
    spectrum = Spectrum(np.arange(9.0)[::-1], "dense", True, np.zeros(0), 8.0)
    assert "9 values from 8 down to 0" in repr(spectrum)


def test_json_of_another_record_is_refused():
    with pytest.raises(InvalidInput, match="must contain a RankPrediction; it contains a RankValue"):
        RankPrediction.from_json(RankValue(3, "exact", "x").to_json())
    with pytest.raises(UnknownName, match="record must be one of .*; got 'RankVaule'. Did you mean 'RankValue'"):
        Record.from_dict({"record": "RankVaule"})


def test_text_that_holds_no_record_is_refused():
    with pytest.raises(InvalidInput, match="a record is read from JSON; the text is not"):
        Record.from_json("{")
    with pytest.raises(UnknownName, match="record must be one of .*; got None"):
        Record.from_json("[]")
    with pytest.raises(InvalidInput, match="must contain the fields of a RankValue; .* missing .*'reference'"):
        Record.from_dict({"record": "RankValue", "value": 3, "kind": "exact"})


def test_what_json_cannot_hold_is_refused_by_its_place():
    with pytest.raises(InvalidInput, match=r"Sample.parts\[0\] is a set"):
        sample(parts=({1, 2},)).to_json()
    with pytest.raises(InvalidInput, match=r"Sample.values has dtype complex128"):
        sample(values=np.zeros(2, dtype=complex)).to_json()


def test_provenance_says_how_to_make_it_again():
    made = provenance(dtype="float64", seed=3, data_hash="ab", notes=("a note",))
    assert made.versions["torch"].startswith("2.")
    assert (made.seed, made.data_hash, made.notes) == (3, "ab", ("a note",))
    assert made.created.endswith("Z")
