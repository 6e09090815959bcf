"""What a store or a folder holds may be anything: each entry is shown, or refused by its name, and never a 500."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from explorers import PORT, RESULTS, client, filled_store, keep_results, refused
from starlette.testclient import TestClient

from hessmap.records import encode
from hessmap_explorer import reading
from hessmap_explorer.functions import free_result_name, kept_result
from hessmap_explorer.settings import Explorer
from hessmap_research.runner.collection import read_results
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.registry import find
from hessmap_research.runner.store import Outcome, StudyStore

STUDY = find("fcn/simulate")
SECRET = "root of all secrets"
ODD: tuple[Any, ...] = (
    None,
    "",
    "\ud800",
    "a\nb\x1b[31m",
    "x" * 3000,
    -1,
    0,
    10**30,
    1e308,
    {"float": "nan"},
    {"float": "-inf"},
    {"array": [], "shape": [0], "dtype": "float64"},
    {"array": ["nan", 1.0], "shape": [2], "dtype": "float64"},
    {"array": [1.0], "shape": [1, 1, 1], "dtype": "float64"},
    [],
    {},
    True,
)


def places(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside of JSON; of long lists the first ones."""
    yield path
    if isinstance(content, dict):
        for name, item in content.items():
            yield from places(item, (*path, name))
    elif isinstance(content, list):
        for number, item in enumerate(content[:2]):
            yield from places(item, (*path, number))


def with_value(content: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(content)
    inner = changed
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return changed


def odd_versions(content: Any, seed: int, most: int) -> Iterator[Any]:
    """JSON with one value replaced or left out."""
    draw = random.Random(seed)
    paths = list(places(content))
    for _ in range(most):
        path = draw.choice(paths)
        if path and isinstance(path[-1], str) and draw.random() < 0.2:
            changed = copy.deepcopy(content)
            inner = changed
            for name in path[:-1]:
                inner = inner[name]
            del inner[path[-1]]
            yield changed
        else:
            yield with_value(content, path, draw.choice(ODD))


def shown_or_refused(answer: Any, name: str) -> None:
    """200 with strict JSON, or 4xx with a sentence that names the entry."""
    assert answer.status_code < 500, answer.text
    json.loads(answer.content, parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"))
    if answer.status_code != 200:
        assert name in refused(answer, answer.status_code)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    keep_results(folder)
    return folder


@pytest.fixture
def explorer(tmp_path: Path, kept: Path) -> Explorer:
    made = Explorer(port=PORT, store=tmp_path / "store.sqlite", results=tmp_path / "results")
    shutil.copytree(kept, made.folder)
    return made


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["function", "plane", "certificate"])
def test_a_kept_result_with_any_value_changed_is_shown_or_refused(explorer: Explorer, kind: str, seed: int) -> None:
    asked = client(explorer)
    path = explorer.folder / f"{kind}-one.json"
    for changed in odd_versions(json.loads(path.read_text()), seed, 30):
        path.write_text(json.dumps(changed))
        shown_or_refused(asked.get(f"/api/{kind}s/one"), "one")


@pytest.mark.parametrize("seed", range(3))
def test_a_map_with_any_value_changed_is_shown_or_refused(tmp_path: Path, seed: int) -> None:
    store = filled_store(tmp_path / "store.sqlite")
    asked = client(Explorer(port=PORT, store=store))
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        ((record,),) = connection.execute("SELECT record FROM map WHERE name = 'before'").fetchall()
        for changed in odd_versions(json.loads(record), seed, 20):
            connection.execute("UPDATE map SET record = ? WHERE name = 'before'", (json.dumps(changed),))
            reading._read_map.cache_clear()  # the summary, by which a map is remembered, is the same
            for address in ("maps/before", "maps/before/record", "maps/before/rank?tolerance=1e-9"):
                shown_or_refused(asked.get(f"/api/{address}"), "before")
            shown_or_refused(asked.get("/api/compare?old=before&new=after"), "before")
    assert asked.get("/api/maps/after").status_code == 200


@pytest.mark.parametrize("seed", range(3))
def test_a_track_with_any_value_changed_is_shown_or_refused(tmp_path: Path, seed: int) -> None:
    store = filled_store(tmp_path / "store.sqlite")
    asked = client(Explorer(port=PORT, store=store))
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        query = "FROM track_point WHERE track_id = (SELECT id FROM track WHERE name = 'run1') AND step = 10"
        ((number, record),) = connection.execute(f"SELECT id, record {query}").fetchall()
        for changed in odd_versions(json.loads(record), seed, 25):
            connection.execute("UPDATE track_point SET record = ? WHERE id = ?", (json.dumps(changed), number))
            shown_or_refused(asked.get("/api/tracks/shown?name=run1"), "run1")
            shown_or_refused(asked.get("/api/tracks/shown?name=run2&name=run1"), "run1")
            assert asked.get("/api/tracks/shown?name=run2").status_code == 200


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("source", ["store", "results"])
def test_a_study_with_any_value_changed_is_shown_or_refused(explorer: Explorer, source: str, seed: int) -> None:
    rows = read_results(STUDY, RESULTS).rows[:4]
    name = f"{STUDY.name.replace('/', '-')}.json"
    content = json.loads((RESULTS / name).read_text())
    content["records"] = content["records"][:4]
    explorer.results.mkdir()
    asked = client(explorer)
    key = case_key(rows[0].case)
    if source == "store":
        with StudyStore(explorer.store, create=True) as store:
            number = store.study_id(STUDY.name, STUDY.version)
            for row in rows:
                store.add(number, "", "", Outcome(case_key(row.case), encode(row.record), None, 0.5, "{}"))
    for changed in odd_versions(content["records"][0]["record"] if source == "store" else content, seed, 12):
        if source == "store":
            with closing(sqlite3.connect(explorer.store, isolation_level=None)) as connection:
                connection.execute("UPDATE result SET record = ? WHERE id = 1", (json.dumps(changed),))
        else:
            (explorer.results / name).write_text(json.dumps(changed))
        shown_or_refused(asked.get(f"/api/studies/{STUDY.name}"), "")
        shown_or_refused(asked.get(f"/api/studies/{STUDY.name}/case", params={"key": key}), "")


@pytest.mark.parametrize("column", ["created", "network", "num_parameters", "risk", "options", "num_samples"])
def test_a_list_names_the_maps_that_it_cannot_show(tmp_path: Path, column: str) -> None:
    store = filled_store(tmp_path / "store.sqlite")
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute(f"UPDATE map SET {column} = ? WHERE name = 'before'", (b"\xff\x00",))
    listed = client(Explorer(port=PORT, store=store)).get("/api/maps").json()
    assert [one["name"] for one in listed["maps"]] == ["after"]
    assert len(listed["refused"]) == 1
    assert "'before': " in listed["refused"][0]


@pytest.mark.parametrize("column", ["part", "settings", "share", "seconds"])
def test_a_list_names_the_tracks_that_it_cannot_show(tmp_path: Path, column: str) -> None:
    store = filled_store(tmp_path / "store.sqlite")
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute(f"UPDATE track SET {column} = ? WHERE name = 'run1'", (b"\xff\x00",))
    asked = client(Explorer(port=PORT, store=store))
    listed = asked.get("/api/tracks").json()
    assert "run2" in [one["name"] for one in listed["tracks"]]
    shown_or_refused(asked.get("/api/tracks/shown?name=run1"), "run1")


# Files of the folder


def _link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def _socket(path: Path) -> None:
    place = Path.cwd()
    os.chdir(path.parent)  # the address of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(place)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**12)


NO_FILES: dict[str, Callable[[Path], None]] = {
    "dangling link": _link("/nowhere/at/all"),
    "link to a file": _link("../secret"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a sound result": _link("function-one.json"),
    "link to a device": _link("/dev/zero"),
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "socket": _socket,
}
NO_RESULTS: dict[str, Callable[[Path], Any]] = {
    "empty": Path.touch,
    "deep lists": lambda path: path.write_text("[" * 100_000),
    "deep lists that end": lambda path: path.write_text("[" * 900 + "]" * 900),
    "deep objects": lambda path: path.write_text('{"a":' * 3000),
    "many digits": lambda path: path.write_text("9" * 5000),
    "bytes": lambda path: path.write_bytes(b"\xff\xfe\x00\x80"),
    "other values": lambda path: path.write_text('[1, "a", null]'),
    "null": lambda path: path.write_text("null"),
    "half a surrogate": lambda path: path.write_text('{"record": "\\ud800"}'),
    "not finite": lambda path: path.write_text('{"record": NaN, "function_rank": Infinity}'),
    "more bytes than memory": _sparse,
}


@pytest.mark.parametrize("kind", ["function", "plane", "certificate"])
@pytest.mark.parametrize("odd", [*NO_FILES, *NO_RESULTS])
def test_an_odd_file_is_refused_by_its_name_and_the_others_are_shown(explorer: Explorer, odd: str, kind: str) -> None:
    (explorer.folder.parent / "secret").write_text(json.dumps({"record": SECRET}))
    name = f"{kind}-odd.json"
    (NO_FILES | NO_RESULTS)[odd](explorer.folder / name)
    asked = client(explorer)
    listed = asked.get("/api/functions")
    assert listed.status_code == 200
    names = [one["name"] for one in listed.json()[kind]]
    assert "one" in names
    assert ("odd" in names) == (odd in NO_RESULTS)
    assert any(name in text for text in listed.json()["refused"]) == (odd in NO_FILES)
    answer = asked.get(f"/api/{kind}s/odd")
    assert name in refused(answer, 404)
    assert SECRET not in answer.text
    assert asked.get(f"/api/{kind}s/one").status_code == 200


@pytest.mark.parametrize(
    "name", [b"function-a b.json", b"function-\xff.json", b"function-a\nb.json", b"function-.json"]
)
def test_a_file_under_an_odd_name_is_refused(explorer: Explorer, name: bytes) -> None:
    (explorer.folder / os.fsdecode(name)).write_text("{}")
    listed = client(explorer).get("/api/functions").json()
    assert [one["name"] for one in listed["function"]] == ["one"]
    assert "letters, digits" in listed["refused"][0]


@pytest.mark.parametrize("odd", [odd for odd in NO_FILES if odd != "link to a sound result"])
def test_results_of_a_study_are_an_ordinary_file(explorer: Explorer, odd: str) -> None:
    name = f"{STUDY.name.replace('/', '-')}.json"
    (explorer.folder.parent / "secret").write_text((RESULTS / name).read_text())
    explorer.results.mkdir()
    NO_FILES[odd](explorer.results / name)
    answer = client(explorer).get(f"/api/studies/{STUDY.name}")
    assert name in refused(answer, 404)


def test_the_folder_itself_may_be_a_file(explorer: Explorer) -> None:
    shutil.rmtree(explorer.folder)
    explorer.folder.write_text("")
    asked = client(explorer)
    assert asked.get("/api/functions").json() == {"function": [], "plane": [], "certificate": [], "refused": []}
    shown_or_refused(asked.get("/api/functions/one"), "one")


@pytest.mark.parametrize("odd", ["dangling link", "link to a file", "pipe", "folder"])
def test_a_job_finds_a_free_name_and_writes_through_no_link(
    explorer: Explorer, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.strftime", lambda *_: "now")
    secret = explorer.folder.parent / "secret"
    secret.write_text(SECRET)
    NO_FILES[odd](explorer.folder / "function-now.json")
    for suffix in (".new", ".json.new"):
        (explorer.folder / f"function-now-2{suffix}").symlink_to(secret)
    name = free_result_name(explorer.folder, "function")
    assert name == "now-2"
    kept_result(explorer.folder, "function", name, {"a": 1})
    assert json.loads((explorer.folder / "function-now-2.json").read_text()) == {"a": 1}
    assert secret.read_text() == SECRET


# Keys of cases


@pytest.mark.parametrize(
    "key",
    [
        "[" * 19_000,
        "[" * 500 + "]" * 500,
        '{"a":' + "[" * 900 + "]" * 900 + "}",
        '{"a":' + "[" * 300 + "]" * 300 + "}",
        '{"a":' * 900 + "1" + "}" * 900,
        '{"a":' * 3000,
        "9" * 5000,
        '{"width":' + "9" * 5000 + "}",
        '{"width": 1e400}',
        '{"width": NaN}',
        '{"\\ud800": "\\udfff"}',
        '"\\ud800"',
        "\x00",
        "-" * 20_001,
    ],
)
def test_a_key_of_a_case_is_a_case_or_a_sentence(key: str, tmp_path: Path) -> None:
    asked = client(Explorer(port=PORT, store=tmp_path / "none.sqlite", results=RESULTS))
    answer = asked.get(f"/api/studies/{STUDY.name}/case", params={"key": key})
    assert 400 <= answer.status_code < 500
    assert len(refused(answer, answer.status_code)) < 2000


@pytest.mark.parametrize("path", ["map", "study", "check", "directions", "function"])
def test_half_a_surrogate_in_a_body_is_refused(explorer: Explorer, path: str) -> None:
    asked: TestClient = client(explorer)
    for body in ('{"\\ud800": 1}', '{"name": "\\ud800"}', '{"query": {"\\ud800": "\\udfff"}}', '{"study": "\\ud800"}'):
        answer = asked.post(f"/api/jobs/{path}", content=body.encode())
        assert 400 <= answer.status_code < 500, answer.text
        refused(answer, answer.status_code)
