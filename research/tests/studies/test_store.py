"""The SQLite store: one key one result, counters that follow, damage that is reported."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from hessmap.records.store import StoreError
from hessmap.records.store.store import SCHEMA_VERSION
from hessmap_research.runner.store import Outcome, StudyStore, run_lock

PROVENANCE = '{"versions":{"hessmap":"0.1.0","torch":"2.0"}}'


def done(width: int, value: int = 0) -> Outcome:
    return Outcome(f'{{"width":{width}}}', f'{{"value":{value}}}', None, 0.5, PROVENANCE)


def failed(width: int) -> Outcome:
    return Outcome(f'{{"width":{width}}}', None, "ValueError: no\ntrace", 0.5, PROVENANCE, attempts=2)


@pytest.fixture
def store(store_path: Path) -> Any:
    with StudyStore(store_path, create=True) as opened:
        yield opened


def counters(store: StudyStore) -> tuple[int, int, float]:
    (summary,) = store.summaries()
    return summary.num_done, summary.num_failed, summary.seconds


def test_what_is_added_comes_back(store: StudyStore) -> None:
    study = store.study_id("toy/a", 1)
    store.add(study, "", "", done(3, 9))
    store.add(study, "", "", failed(4))
    (row,) = store.rows("toy/a", 1)
    assert (row.case, row.record) == ({"width": 3}, {"value": 9})
    (failure,) = store.failures("toy/a", 1)
    assert (failure.key, failure.error, failure.attempts) == ('{"width":4}', "ValueError: no\ntrace", 2)
    assert store.statuses("toy/a", 1, "") == {'{"width":3}': "done", '{"width":4}': "failed"}
    assert store.provenances("toy/a", 1) == (PROVENANCE,)


def test_versions_data_and_studies_are_kept_apart(store: StudyStore) -> None:
    for name, version, data in (("toy/a", 1, "x"), ("toy/a", 2, "x"), ("toy/b", 1, "x"), ("toy/a", 1, "y")):
        store.add(store.study_id(name, version), data, f"hash of {data}", done(3))
    assert len(store.rows("toy/a", 1)) == 2
    assert len(store.rows("toy/a", 1, "y")) == 1
    assert len(store.rows("toy/a", 2)) == 1
    assert store.statuses("toy/a", 1, "another hash") == {}


def test_a_stored_record_is_not_doubled_nor_overwritten_unless_asked(store: StudyStore) -> None:
    study = store.study_id("toy/a", 1)
    store.add(study, "", "", done(3, 1))
    store.add(study, "", "", done(3, 2))
    store.add(study, "", "", failed(3))
    assert [row.record["value"] for row in store.rows("toy/a", 1)] == [1]
    store.add(study, "", "", done(3, 3), replace=True)
    assert [row.record["value"] for row in store.rows("toy/a", 1)] == [3]
    assert counters(store) == (1, 0, 0.5)


def test_a_failure_gives_way_to_a_record_and_the_counters_follow(store: StudyStore) -> None:
    study = store.study_id("toy/a", 1)
    store.add(study, "", "", failed(3))
    assert counters(store) == (0, 1, 0.5)
    store.add(study, "", "", done(3))
    assert counters(store) == (1, 0, 0.5)
    assert store.failures("toy/a", 1) == ()


def test_counters_follow_when_another_client_deletes(store: StudyStore, store_path: Path) -> None:
    study = store.study_id("toy/a", 1)
    for width in range(5):
        store.add(study, "", "", done(width))
    with sqlite3.connect(store_path) as client:
        client.execute("DELETE FROM result WHERE json_extract(case_key, '$.width') < 2")
    client.close()
    assert counters(store) == (3, 0, 1.5)


def test_of_changed_data_the_newest_content_counts(store: StudyStore) -> None:
    study = store.study_id("toy/a", 1)
    store.add(study, "digits", "old", done(1, 1))
    store.add(study, "digits", "new", done(1, 2))
    assert [row.record["value"] for row in store.rows("toy/a", 1)] == [2]


def test_any_client_can_read_the_views_made_for_people(store: StudyStore, store_path: Path) -> None:
    study = store.study_id("toy/a", 1)
    store.add(study, "digits", "abc", done(3, 9))
    store.add(study, "digits", "abc", failed(4))
    client = sqlite3.connect(store_path)
    assert client.execute("SELECT * FROM overview").fetchall() == [("toy/a", 1, 1, 1, 1.0)]
    query = 'SELECT study, data, "case", record, hessmap FROM readable WHERE status = ?'
    read = client.execute(query, ("done",)).fetchall()
    assert read == [("toy/a", "digits", '{"width":3}', '{"value":9}', "0.1.0")]
    assert client.execute('SELECT "case", attempts FROM failures').fetchall() == [('{"width":4}', 2)]
    assert client.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    client.close()


def test_a_row_that_is_neither_record_nor_error_is_impossible(store: StudyStore, store_path: Path) -> None:
    store.add(store.study_id("toy/a", 1), "", "", done(3))
    client = sqlite3.connect(store_path, isolation_level=None)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        client.execute("UPDATE result SET record = NULL")
    client.close()


def test_a_missing_store_is_not_made_by_reading(store_path: Path) -> None:
    with pytest.raises(StoreError, match="there is none at .*hessmap map makes one"):
        StudyStore(store_path)
    assert not store_path.exists()


def test_a_place_that_cannot_hold_a_store_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="the store must be readable and writable; .*hessmap.sqlite: "):
        StudyStore(tmp_path / "file" / "hessmap.sqlite", create=True)


def test_making_a_store_leaves_nothing_beside_it(store_path: Path) -> None:
    StudyStore(store_path, create=True).close()
    assert [path.name for path in store_path.parent.iterdir()] == [store_path.name]


def fill(store: StudyStore, num_rows: int = 400) -> None:
    study = store.study_id("toy/a", 1)
    for width in range(num_rows):
        store.add(study, "", "", done(width))


def filled(path: Path) -> None:
    with StudyStore(path, create=True) as store:
        fill(store)


def opened_and_checked(path: Path) -> None:
    with StudyStore(path, create=True) as store:
        store.require_sound()


@pytest.mark.parametrize(("start", "length"), [(0, 64), (8192, 16384)], ids=["header", "middle"])
def test_a_damaged_store_is_reported_and_left_as_it_is(store_path: Path, start: int, length: int) -> None:
    filled(store_path)
    content = bytearray(store_path.read_bytes())
    content[start : start + length] = b"\xa5" * length
    store_path.write_bytes(content)
    with pytest.raises(StoreError, match=r"is damaged .* It was not changed"):
        opened_and_checked(store_path)
    assert store_path.read_bytes() == content


@pytest.mark.parametrize("size", [0, 1000])
def test_a_truncated_store_is_reported_and_left_as_it_is(store_path: Path, size: int) -> None:
    filled(store_path)
    store_path.write_bytes(store_path.read_bytes()[:size])
    with pytest.raises(StoreError, match="is damaged"):
        opened_and_checked(store_path)
    assert store_path.stat().st_size == size


def test_a_sound_store_passes_the_same_check(store_path: Path) -> None:
    filled(store_path)
    opened_and_checked(store_path)


def test_a_file_of_another_program_is_refused(store_path: Path) -> None:
    store_path.parent.mkdir()
    client = sqlite3.connect(store_path)
    client.execute("CREATE TABLE other (a)")
    client.close()
    with pytest.raises(StoreError, match="must be a file of hessmap; .* is another SQLite file"):
        StudyStore(store_path, create=True)


@pytest.mark.parametrize("version", [0, 1, SCHEMA_VERSION - 1, SCHEMA_VERSION + 1, 99, -3])
def test_a_store_of_another_version_is_refused_and_left_as_it_is(store_path: Path, version: int) -> None:
    StudyStore(store_path, create=True).close()
    client = sqlite3.connect(store_path, isolation_level=None)
    client.execute(f"PRAGMA user_version = {version}")
    client.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    client.close()
    content = store_path.read_bytes()
    said = f"reads stores of version {SCHEMA_VERSION}; .* has version {version}. Use the hessmap"
    for create in (False, True):
        with pytest.raises(StoreError, match=said):
            StudyStore(store_path, create=create)
    assert store_path.read_bytes() == content


def test_a_full_disk_is_a_clear_error_and_what_is_stored_stays(store: StudyStore) -> None:
    fill(store, 1)
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(StoreError, match="the disk must have room .* make room and run the same command"):
        fill(store, 200)
    store.require_sound()
    assert 1 <= len(store.rows("toy/a", 1)) == counters(store)[0] < 200


def test_one_study_has_one_run_at_a_time(store_path: Path) -> None:
    store_path.parent.mkdir()
    with run_lock(store_path, "toy/a"), run_lock(store_path, "toy/b"):
        second = run_lock(store_path, "toy/a")
        with pytest.raises(StoreError, match=r"process \d+ is running toy/a"):
            second.__enter__()
    with run_lock(store_path, "toy/a"):
        pass
