"""Records with a value of another type than their fields declare: refused by field, value and remedy."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from test_odd_files import places, put

from hessmap.datasets import gaussian_mixture
from hessmap.errors import InvalidInput
from hessmap.maps.curvature_map import curvature_map
from hessmap.networks import FullyConnected
from hessmap.records import LearningCoefficient, Provenance, RankMeasurement, RankValue, Record, Spectrum
from hessmap.records.record import decode
from hessmap.records.strict_json import require_field_types

RANK = RankMeasurement(3, 1e-12, 1.0, 0.5, 1e-16, 5e15, True, 7)
SPECTRUM = Spectrum(np.arange(3.0)[::-1], "dense", True, np.zeros(0), 2.0)
ORIGIN = Provenance(
    dtype="float64", seed=3, data_hash="ab", versions={"torch": "2.13"}, created="now", notes=("a note",)
)
ODD: dict[str, tuple[Record, str, Any, str]] = {
    "text for a whole number": (RANK, "value", "3", "value of a RankMeasurement must be a whole number; it is '3'"),
    "fraction for a whole number": (RANK, "value", 3.0, "a whole number; it is 3.0"),
    "truth for a whole number": (RANK, "value", True, "a whole number; it is True"),
    "null for a whole number": (RANK, "value", None, "a whole number; it is None"),
    "text for a number": (RANK, "threshold", "1e-12", "a number; it is '1e-12'"),
    "truth for a number": (RANK, "threshold", False, "a number; it is False"),
    "list for a truth": (RANK, "decidable", [True], r"true or false; it is \(True,\)"),
    "number for a truth": (RANK, "decidable", 1, "true or false; it is 1"),
    "text for a truth": (RANK, "decidable", "no", "true or false; it is 'no'"),
    "number for a text": (SPECTRUM, "method", 3, "a text; it is 3"),
    "list for an array": (SPECTRUM, "eigenvalues", [1.0], r"an array of numbers; it is \(1.0,\)"),
    "array of truths": (SPECTRUM, "residuals", {"array": [True], "shape": [1], "dtype": "bool"}, "an array of numbers"),
    "null for an array": (SPECTRUM, "eigenvalues", None, "an array of numbers; it is None"),
    "no kind of truth": (RankValue(3, "exact", "x"), "kind", "proved", "one of 'exact', .*; it is 'proved'"),
    "another record": (SPECTRUM, "provenance", RANK.to_dict(), "a Provenance or null; it is"),
    "text for a list": (ORIGIN, "notes", "a note", "a list; it is 'a note'"),
    "number in a list": (ORIGIN, "notes", ["a", 1], r"notes\[1\] of a Provenance must be a text; it is 1"),
    "number in a table": (ORIGIN, "versions", {"torch": 2.13}, r"versions\['torch'\] of a Provenance must be a text"),
    "list for a table": (ORIGIN, "versions", [], r"a JSON object; it is \(\)"),
    "fraction for a seed": (ORIGIN, "seed", 1.5, "a whole number or null; it is 1.5"),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_value_of_another_type_is_refused_by_its_field(name: str) -> None:
    record, field, value, words = ODD[name]
    text = json.dumps({**record.to_dict(), field: value})

    with pytest.raises(InvalidInput, match=rf"^the field .*{words}.*\. Make the record again, or correct the file\.$"):
        Record.from_json(text)
    with pytest.raises(InvalidInput, match=words):  # a record among the results of a study
        decode(json.dumps({"measured": json.loads(text)}))


@pytest.mark.parametrize("record", [RANK, SPECTRUM, ORIGIN])
def test_right_values_are_read_and_whole_numbers_are_numbers(record: Record) -> None:
    assert Record.from_json(record.to_json()) == record
    whole = json.dumps({**RANK.to_dict(), "scale": 1, "threshold": 0})
    assert RankMeasurement.from_json(whole).scale == 1


def test_every_scalar_of_a_map_is_held_to_its_type() -> None:
    """Text, or a number where there is text, in the place of each value in turn: nothing of it is read."""
    data = gaussian_mixture(30, 4, num_classes=3, separation=2.0)
    written = curvature_map(FullyConnected((4, 3, 3)).build(seed=0), data, "squared", ranks=True).to_dict()
    free = {"inputs", "settings", "array", "shape", "dtype", "float", "record"}  # tables of anything, parts of arrays
    tried = 0
    for place in places(written)[::3]:
        here = written
        for name in place:
            here = here[name]
        if isinstance(here, dict | list) or here is None or free.intersection(place):
            continue
        tried += 1
        with pytest.raises(InvalidInput, match="must be"):
            Record.from_json(put(written, place, 3 if isinstance(here, str) else "odd"))
    assert tried > 30


def test_annotations_of_every_record_are_understood() -> None:
    """A field whose annotation is not known to the check would be let pass or refused whatever it holds."""
    from hessmap.records.record import _RECORDS
    from hessmap.records.strict_json import _annotations

    kinds = {kind for kind in _RECORDS.values() if kind.__module__.startswith("hessmap.")}
    assert len(kinds) > 50
    for kind in kinds:
        for field in dataclasses.fields(kind):
            assert field.name in _annotations(kind), (kind, field.name)
            with pytest.raises(InvalidInput, match="must be"):
                require_field_types(kind, {field.name: object()})


def test_fractions_are_fractions() -> None:
    require_field_types(LearningCoefficient, {"value": Fraction(7, 2)})
    with pytest.raises(InvalidInput, match="the field value of a LearningCoefficient must be a fraction; it is 3.5"):
        require_field_types(LearningCoefficient, {"value": 3.5})
