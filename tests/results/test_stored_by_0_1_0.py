"""What version 0.1.0 stored can be read, shown and gone on with: a store and records that it wrote."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from hessmap.results.record import Record
from hessmap.runs.store import Store, add_map, load_map, load_track, map_summaries, track_summaries
from hessmap.views.cli import app

STORED = Path(__file__).parents[1] / "stored"
RECORDS = json.loads((STORED / "records-0.1.0.json").read_text())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(shutil.copy(STORED / "hessmap-0.1.0.sqlite", tmp_path / "hessmap.sqlite"))


def numbers(value: Any) -> list[float]:
    """Every number of strict JSON, in order."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [float(value)] if isinstance(value, int | float) else []


@pytest.mark.parametrize("written", RECORDS, ids=lambda written: written["record"])
def test_a_record_of_0_1_0_is_read_with_all_its_numbers(written: dict[str, Any]) -> None:
    record = Record.from_dict(written)
    assert np.isin(numbers(written), numbers(record.to_dict())).all()
    assert Record.from_json(record.to_json()) == record
    assert repr(record)


def test_the_records_are_of_many_kinds() -> None:
    assert len(RECORDS) >= 40
    assert {"CurvatureMap", "CurvatureTrack", "Spectrum", "FunctionRank"} <= {item["record"] for item in RECORDS}


def test_maps_and_tracks_of_0_1_0_come_back(path: Path) -> None:
    with Store(path) as store:
        assert [summary.name for summary in map_summaries(store)] == ["first", "second", "certified"]
        first = load_map(store, "first")
        assert first.command == "hessmap map --name first"
        assert (first.record.title, first.record.network.description) == ("a title", "4-3-2 relu")
        assert first.record.linear_twin is not None
        assert all(part.certificate is not None for part in load_map(store, "certified").record.network.parts)
        (summary,) = track_summaries(store)
        assert (summary.name, summary.num_points, summary.last_step) == ("descent", 3, 10)
        track = load_track(store, "descent")
        assert [point.step for point in track.points] == [0, 5, 10]
        assert all(point.eigenvalues.size == 2 and point.trace is not None for point in track.points)


def test_a_store_of_0_1_0_takes_new_maps_beside_its_own(path: Path) -> None:
    with Store(path) as store:
        add_map(store, "third", load_map(store, "first").record)
    with Store(path) as store:
        assert [summary.name for summary in map_summaries(store)] == ["first", "second", "certified", "third"]
    foreign_keys = sqlite3.connect(path).execute("PRAGMA foreign_key_check").fetchall()
    assert foreign_keys == []


def test_study_records_of_0_1_0_come_back(path: Path) -> None:
    with Store(path) as store:
        rows = {row["width"]: row for row in store.rows("toy/ranks", 1)}
        (failure,) = store.failures("toy/ranks", 1)
    assert failure.error.startswith("ArithmeticError: three is refused\n")
    assert sorted(rows) == [1, 2]
    assert [rows[width].number("measured") for width in (1, 2)] == [1.0, 2.0]
    assert rows[1]["shape"] == (2, 3)
    assert rows[1]["gap"] == np.inf
    np.testing.assert_array_equal(rows[1]["values"], [1.0, np.inf])


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("map", "list"), "4-3-2 relu"),
        (("map", "show", "first"), "Verdicts"),
        (("map", "show", "certified"), "certified"),
        (("map", "compare", "first", "second"), "first → second"),
        (("track", "list"), "descent"),
        (("track", "show", "descent"), "sharpness"),
        (("study", "list"), "toy/ranks"),
    ],
)
def test_the_commands_show_what_0_1_0_stored(path: Path, words: tuple[str, ...], shown: str) -> None:
    result = CliRunner().invoke(app, [*words, "--store", str(path)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert shown in result.stdout


def test_a_record_under_a_former_name_with_former_fields_is_read() -> None:
    @dataclasses.dataclass(frozen=True, eq=False, repr=False)
    class PlainName(Record):
        method: str
        former_names = ("OddName",)
        renamed_fields = {"road": "method", "gone": ""}  # noqa: RUF012

    @dataclasses.dataclass(frozen=True, eq=False, repr=False)
    class Derived(PlainName):
        """Does not inherit the former name."""

    assert Record.from_dict({"record": "OddName", "road": "dense", "gone": 3}) == PlainName("dense")
    assert isinstance(Record.from_dict({"record": "Derived", "road": "dense"}), Derived)
