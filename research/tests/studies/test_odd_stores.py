"""Stores that are damaged or that another program wrote to: one sentence, no raw error, and the file as it was."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hessmap.cli import app
from hessmap.datasets import gaussian
from hessmap.errors import HessmapError
from hessmap.maps.curvature_map import curvature_map
from hessmap.maps.track import Tracker
from hessmap.networks import FullyConnected
from hessmap.records import add_map, encode, load_map, load_track, map_summaries, track_summaries
from hessmap_research.runner.collection import collection_from_store, read_results
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.registry import find
from hessmap_research.runner.store import Outcome, StudyStore

RESULTS = Path(__file__).parents[2] / "results"
STUDY = find("fcn/simulate")
COLUMNS = {
    "study": ("name", "version", "num_done", "num_failed", "seconds"),
    "provenance": ("content",),
    "result": ("case_key", "record", "error", "attempts", "data", "data_hash", "status"),
    "map": ("name", "created", "num_parameters", "risk", "options", "record"),
    "track": ("name", "part", "num_parameters", "share", "seconds", "spent", "settings"),
    "track_point": ("step", "record"),
}
ODD = ("", "text", "{", "null", "[]", "[1]", -1, 2.5, b"\x00\xff\xfe", '{"record":"Spectrum"}', '"x"', "[" * 5000)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("study", "list"),
    ("study", "show", STUDY.name),
    ("study", "show", STUDY.name, "--json"),
    ("study", "describe", STUDY.name),
    ("study", "export", STUDY.name, "--results", "out"),
    ("tracks", "list"),
    ("tracks", "list", "--json"),
    ("tracks", "show", "t1"),
    ("tracks", "show", "t1", "--json"),
    ("maps", "list"),
    ("maps", "list", "--json"),
    ("maps", "show", "m1"),
    ("maps", "compare", "m1", "m1"),
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with records and a failure of a study, a map and a track."""
    path = tmp_path_factory.mktemp("stores") / "sound.sqlite"
    *rows, last = read_results(STUDY, RESULTS).rows[:9]
    with StudyStore(path, create=True) as store:
        number = store.study_id(STUDY.name, STUDY.version)
        for row in rows:
            store.add(number, "", "", Outcome(case_key(row.case), encode(row.record), None, 0.5, "{}"))
        store.add(number, "", "", Outcome(case_key(last.case), None, "ValueError: no", 0.5, "{}"))
        data = gaussian(20, 3, output_dim=2)
        model = FullyConnected((3, 2, 2)).build(seed=0)
        add_map(store, "m1", curvature_map(model, data, "squared"))
    with Tracker(model, "squared", data, name="t1", store=path, share=None, count=1) as tracker:
        tracker(0)
        tracker(1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def read_everything(path: Path) -> list[HessmapError]:
    """Every way to read a store; what is refused. Anything else that is raised ends the test."""
    readers: tuple[Callable[[StudyStore], object], ...] = (
        StudyStore.summaries,
        map_summaries,
        track_summaries,
        lambda store: load_map(store, "m1"),
        lambda store: load_track(store, "t1"),
        lambda _: collection_from_store(STUDY, path).outcome,
    )
    refused = []
    for reader in readers:
        try:
            with StudyStore(path) as store:
                reader(store)
        except HessmapError as error:
            refused.append(error)
    assert not any("\n" in str(error) for error in refused)
    return refused


def run(path: Path, *commands: tuple[str, ...]) -> None:
    for words in commands:
        result = CliRunner().invoke(app, [*words, "--store", str(path)])
        assert result.exit_code in (0, 2), (words, result.output)


def copied(sound: Path, folder: Path, *statements: tuple[str, tuple[Any, ...]]) -> Path:
    path = folder / "odd.sqlite"
    shutil.copy(sound, path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("PRAGMA legacy_alter_table = ON")  # renames columns that views still name
        for statement, values in statements:
            connection.execute(statement, values)
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def test_sound_store_is_read_by_all(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    assert read_everything(path) == []
    run(path, *COMMANDS)


@pytest.mark.parametrize(("table", "column"), [(table, column) for table in COLUMNS for column in COLUMNS[table]])
def test_odd_values_in_any_column_are_read_or_refused(sound: Path, tmp_path: Path, table: str, column: str) -> None:
    refused = 0
    first = len(table + column) % 3
    for number, value in enumerate(ODD[first::3]):
        try:
            path = copied(sound, tmp_path, (f"UPDATE {table} SET {column} = ? WHERE rowid = 1", (value,)))
        except sqlite3.Error:  # the schema itself does not take it
            continue
        content = path.read_bytes()
        refused += bool(read_everything(path))
        run(path, COMMANDS[(number + len(column)) % len(COMMANDS)])
        assert path.read_bytes() == content
    assert refused or column in ("error", "attempts", "data", "data_hash", "status", "created", "name")


@pytest.mark.parametrize("table", COLUMNS)
def test_store_without_a_table_or_column_is_said_to_be_damaged(sound: Path, tmp_path: Path, table: str) -> None:
    statements = [f"DROP TABLE {table}", *(f"ALTER TABLE {table} RENAME COLUMN {name} TO x" for name in COLUMNS[table])]
    for statement in statements:
        path = copied(sound, tmp_path, (statement, ()))
        content = path.read_bytes()
        refused = read_everything(path)
        run(path, COMMANDS[len(statement) % len(COMMANDS)])
        assert path.read_bytes() == content
        if statement.startswith("DROP"):
            assert any(f"{table}). It was not changed" in str(error) for error in refused)


@pytest.mark.parametrize("seed", range(12))
def test_other_bytes_are_read_or_refused(sound: Path, tmp_path: Path, seed: int) -> None:
    """Bytes changed at random places, a run of equal bytes, or the end cut off."""
    draw = random.Random(seed)
    content = bytearray(sound.read_bytes())
    size = len(content)
    if seed % 3 == 0:
        for _ in range(draw.choice((1, 10, 100))):
            content[draw.randrange(size)] = draw.randrange(256)
    elif seed % 3 == 1:
        start, length = draw.randrange(size), draw.choice((16, 200, 4096))
        content[start : start + length] = bytes([draw.choice((0, 65, 255))]) * len(content[start : start + length])
    else:
        del content[draw.randrange(1, size) :]
    path = tmp_path / "odd.sqlite"
    path.write_bytes(content)
    read_everything(path)
    run(path, draw.choice(COMMANDS))
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["text", "folder", "empty", "other program", "later", "unreadable version"])
def test_what_is_no_store_is_refused_by_all(sound: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd.sqlite"
    if kind == "folder":
        path.mkdir()
    elif kind in ("text", "empty"):
        path.write_text("hello " * 1000 if kind == "text" else "")
    else:
        pragma = {"other program": "application_id = 1", "later": "user_version = 99"}.get(kind, "user_version = -3")
        path = copied(sound, tmp_path, (f"PRAGMA {pragma}", ()))
    assert len(read_everything(path)) == 6
    for words in COMMANDS:
        result = CliRunner().invoke(app, [*words, "--store", str(path)])
        assert result.exit_code == 2, (words, result.output)
        assert result.output.startswith("hessmap: ")
        assert result.output.count("\n") == 1


def test_sound_parts_of_a_store_stay_readable_beside_an_odd_row(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path, ("UPDATE map SET record = '{' ", ()))
    with StudyStore(path) as store:
        assert load_track(store, "t1").num_points == 2
        assert len(store.rows(STUDY.name, STUDY.version)) == 8
        with pytest.raises(HessmapError, match=r"odd\.sqlite is damaged \(.*It was not changed"):
            load_map(store, "m1")


def test_records_that_claims_cannot_read_are_said_to_be_so(sound: Path, tmp_path: Path) -> None:
    path = copied(sound, tmp_path)
    for odd in ({"measured": None}, {}, {"measured": "x"}):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE result SET record = ? WHERE record IS NOT NULL", (encode(odd),))
            connection.commit()
        with pytest.raises(HessmapError, match="must"):
            _ = collection_from_store(STUDY, path).outcome
