"""Maps in the store: by name, whole or not at all, readable for any client; older stores are brought up to date."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hessmap.errors import InvalidInput, UnknownName
from hessmap.maps.curvature_map import curvature_map
from hessmap.networks import FullyConnected
from hessmap.results.maps import CurvatureMap
from hessmap.runs.store import Outcome, Store, StoreError, add_map, free_name, load_map, map_summaries
from hessmap.runs.store.schema import SCHEMA, SCHEMA_VERSION


@pytest.fixture(scope="module")
def made() -> CurvatureMap:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(2, (20,), generator=generator)
    return curvature_map(FullyConnected((4, 3, 2), activation="relu").build(seed=0), (inputs, targets), title="a title")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "hessmap.sqlite"


def version_of(path: Path) -> int:
    client = sqlite3.connect(path)
    (version,) = client.execute("PRAGMA user_version").fetchone()
    client.close()
    return int(version)


def first_store(path: Path) -> None:
    """A store as version 1 wrote it, with one result."""
    path.parent.mkdir()
    client = sqlite3.connect(path, isolation_level=None)
    client.execute("PRAGMA journal_mode = WAL")
    client.executescript(SCHEMA)
    client.execute("INSERT INTO study (name, version) VALUES ('toy/a', 1)")
    client.execute("""INSERT INTO provenance (content) VALUES ('{"versions":{}}')""")
    client.execute(
        "INSERT INTO result (study_id, data, data_hash, case_key, status, record, attempts, seconds, finished,"
        """ provenance_id) VALUES (1, '', '', '{"width":3}', 'done', '{"value":9}', 1, 0.5, '', 1)"""
    )
    client.close()


def test_a_map_comes_back_as_it_was(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made, "hessmap map --name run1")
    with Store(path) as store:
        stored = load_map(store, "run1")
        (summary,) = map_summaries(store)
    assert (stored.name, stored.command, stored.record) == ("run1", "hessmap map --name run1", made)
    assert made.provenance is not None
    assert stored.record.provenance == made.provenance
    assert (summary.title, summary.network, summary.num_parameters) == ("a title", "4-3-2 relu", 18)
    assert (summary.created, summary.data_hash) == (made.provenance.created, made.provenance.data_hash)
    assert summary.risk == made.network.risk


def test_a_taken_name_is_refused_and_what_is_stored_stays(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made)
        with pytest.raises(InvalidInput, match="a name of its own; .* has 'run1' of .* give --replace"):
            add_map(store, "run1", replace(made, title="another"))
        assert load_map(store, "run1").record.title == "a title"
        add_map(store, "run1", replace(made, title="another"), replace=True)
        assert [summary.title for summary in map_summaries(store)] == ["another"]


def test_a_replacement_that_fails_leaves_the_old_map(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made)
        store.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON map BEGIN SELECT raise(ABORT, 'refused by a trigger'); END"
        )
        with pytest.raises(StoreError, match="refused by a trigger"):
            add_map(store, "run1", replace(made, title="another"), replace=True)
        assert load_map(store, "run1").record.title == "a title"


def test_a_free_name_is_the_wish_or_the_wish_with_a_number(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        for name in ("now", "now-2"):
            assert free_name(store, "map", "now") == name
            add_map(store, name, made)
        assert free_name(store, "map", "now") == "now-3"


def test_a_name_that_nobody_knows_is_met_with_the_near_ones(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        with pytest.raises(InvalidInput, match=r"stored before it is shown; .* has none\. Run hessmap map"):
            load_map(store, "run1")
        add_map(store, "run1", made)
        with pytest.raises(UnknownName, match="map must be one of run1; got 'run2'. Did you mean 'run1'"):
            load_map(store, "run2")


def test_a_map_without_provenance_or_with_an_infinite_risk_is_stored(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "bare", replace(made, provenance=None, network=replace(made.network, risk=float("nan"))))
        (summary,) = map_summaries(store)
    assert (summary.risk, summary.data_hash) == (None, "")
    assert summary.created


def test_any_client_can_read_the_views_of_maps(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made, "hessmap map")
    client = sqlite3.connect(path)
    read = client.execute("SELECT name, network, loss, num_samples, command, torch FROM maps").fetchall()
    query = "SELECT map, layer, shape, rank, top_eigenvalue, curvature_share FROM map_layers"
    layers = client.execute(query).fetchall()
    client.close()
    assert read == [("run1", "4-3-2 relu", "cross_entropy", 20, "hessmap map", torch.__version__)]
    assert layers == [
        ("run1", layer.name, layer.shape, layer.rank.value, layer.top_eigenvalue, layer.curvature_share)
        for layer in made.network.layers
    ]


def test_maps_that_were_made_alike_share_a_provenance(path: Path, made: CurvatureMap) -> None:
    with Store(path, create=True) as store:
        add_map(store, "run1", made)
        add_map(store, "run2", made)
        assert store.execute("SELECT count(*) FROM provenance") == [(1,)]


def test_an_older_store_is_brought_up_to_date_and_keeps_its_results(path: Path, made: CurvatureMap) -> None:
    first_store(path)
    assert version_of(path) == 1
    with Store(path) as store:
        assert [row.record for row in store.rows("toy/a", 1)] == [{"value": 9}]
        add_map(store, "run1", made)
        assert load_map(store, "run1").record == made
        store.add(store.study_id("toy/a", 1), "", "", Outcome('{"width":4}', "{}", None, 0.5, "{}"))
    assert version_of(path) == SCHEMA_VERSION


def test_a_store_brought_up_to_date_is_like_a_new_one(path: Path, tmp_path: Path) -> None:
    first_store(path)
    Store(path).close()
    Store(tmp_path / "new.sqlite", create=True).close()
    schemas = []
    for file in (path, tmp_path / "new.sqlite"):
        client = sqlite3.connect(file)
        schemas.append(client.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name").fetchall())
        client.close()
    assert schemas[0] == schemas[1]


def test_an_upgrade_that_fails_leaves_the_store_as_it_was(path: Path) -> None:
    first_store(path)
    client = sqlite3.connect(path, isolation_level=None)
    client.execute("CREATE VIEW map_layers AS SELECT 1")  # in the way of the last statement
    client.close()
    with pytest.raises(StoreError, match="map_layers already exists"):
        Store(path)
    assert version_of(path) == 1
    client = sqlite3.connect(path)
    assert client.execute("SELECT name FROM sqlite_schema WHERE name IN ('map', 'maps')").fetchall() == []
    client.close()


def test_a_damaged_older_store_is_not_touched(path: Path) -> None:
    first_store(path)
    client = sqlite3.connect(path, isolation_level=None)
    for number in range(400):
        client.execute("INSERT INTO provenance (content) VALUES (?)", (f"{number:0200}",))
    client.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    client.close()
    content = bytearray(path.read_bytes())
    content[-20000:-4000] = b"\xa5" * 16000
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        Store(path)
    assert path.read_bytes() == content
