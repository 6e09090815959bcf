"""Commands to copy are quoted, whatever a store calls its entries; jobs import no code that a store alone names."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from explorers import PORT, RESULTS, client, refused, track

from hessmap.records import MapOptions, Store, add_map, add_track, command_line, load_map, load_track
from hessmap.views.page import map_page, track_page
from hessmap_explorer.jobs import Job, Jobs
from hessmap_explorer.settings import Explorer
from views.synthetic_map import curvature_map

ODD_NAMES = (
    "a; touch PWNED #",
    "$(touch PWNED)",
    "`touch PWNED`",
    "a' ; touch PWNED '",
    'a" && touch PWNED "',
    "a\ntouch PWNED",
    "a | touch PWNED & ~ * ? !x \\",
    "--help",
    "-h",
    "",
    "名前 é",
)


def run_in_a_shell(command: str, folder: Path) -> list[str]:
    """The words that a program called hessmap is given where the command is pasted into a shell."""
    program = folder / "hessmap"
    program.write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=environment, capture_output=True, check=True)
    assert done.stderr == b""
    assert not (folder / "PWNED").exists()
    return done.stdout.decode().split("\0")[:-1]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_shell_gives_the_program_the_words(tmp_path: Path, name: str) -> None:
    values = run_in_a_shell(command_line("maps", "compare", f"--html={name}", values=["b", name]), tmp_path)
    separator = ["--"] if name.startswith("-") else []
    assert values == ["maps", "compare", f"--html={name}", *separator, "b", name]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_every_command_of_the_explorer_and_of_pages_is_quoted(tmp_path: Path, name: str) -> None:
    explorer = Explorer(port=PORT, store=tmp_path / "store.sqlite", results=RESULTS)
    with Store(explorer.store, create=True) as store:
        add_map(store, name, curvature_map(), MapOptions(name=name, data=name, widths="8-12-4-4"))
        add_map(store, "plain", curvature_map())
        add_track(store, track(name, [0, 10]))
    asked = client(explorer)
    compared = asked.get("/api/compare", params={"old": "plain", "new": name}).json()["command"]
    assert run_in_a_shell(compared, tmp_path)[-2:] == ["plain", name]
    (shown,) = asked.get("/api/tracks/shown", params={"name": name}).json()["tracks"]
    assert run_in_a_shell(shown["command"], tmp_path)[-1] == name
    (listed,) = [one for one in asked.get("/api/maps").json()["maps"] if one["name"] == name]
    assert run_in_a_shell(listed["command"], tmp_path) == [
        "map",
        f"--data={name}",
        "--widths=8-12-4-4",
        f"--name={name}",
    ]
    with Store(explorer.store) as store:
        pages = map_page(load_map(store, name)), track_page(load_track(store, name))
    for page, words in zip(
        pages, (["maps", "show", "--html=map.html"], ["tracks", "show", "--html=track.html"]), strict=True
    ):
        assert command_line(*words, values=[name]) in unescape(page)


@pytest.mark.parametrize("data", ["digits; touch PWNED", "$(touch PWNED)", "--help"])
def test_the_command_of_a_study_is_quoted(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data in an address is refused unless the study has it; here any passes."""
    monkeypatch.setattr("hessmap_explorer.studies.study_description", lambda *_: _Description())
    asked = client(Explorer(port=PORT, store=tmp_path / "none.sqlite", results=tmp_path))
    (command,) = asked.get("/api/studies/certificates/digits", params={"data": data}).json()["commands"]
    assert run_in_a_shell(command, tmp_path) == ["study", "run", f"--data={data}", "certificates/digits"]


class _Description:
    def to_dict(self) -> dict[str, Any]:
        return {}


def test_the_command_of_a_job_is_quoted(tmp_path: Path) -> None:
    words = ("maps", "directions", "--layer=a; touch PWNED", "--store=/tmp/x", "--json", "--", "$(touch PWNED)")
    shown = run_in_a_shell(Job(1, "directions", "title", words).command, tmp_path)
    assert shown == ["maps", "directions", "--layer=a; touch PWNED", "--", "$(touch PWNED)"]


# Jobs import what the explorer was started with


FOREIGN = {
    "model": MapOptions(model="evil:net", data="digits"),
    "data": MapOptions(data="evil:data", widths="8-12-4-4"),
    "both": MapOptions(model="evil:net", data="my:train"),
    "model without a colon": MapOptions(model="evil"),
    "near": MapOptions(model="my:net ", data="my:train"),
}


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The words of jobs that were started; none of them runs."""
    found: list[tuple[str, ...]] = []

    def start(jobs: Jobs, kind: str, title: str, words: list[str], *_: Any, **__: Any) -> Job:
        found.append(tuple(words))
        return Job(len(found), kind, title, tuple(words))

    monkeypatch.setattr(Jobs, "start", start)
    return found


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_job_imports_nothing_that_a_store_alone_names(
    tmp_path: Path, kind: str, started: list[tuple[str, ...]]
) -> None:
    for number, own in enumerate(({}, {"model": "my:net", "data": "my:train"})):
        explorer = Explorer(port=PORT, store=tmp_path / f"{number}.sqlite", **own)
        with Store(explorer.store, create=True) as store:
            add_map(store, "foreign", curvature_map(), FOREIGN[kind])
            add_map(store, "sound", curvature_map(), MapOptions(widths="8-12-4-4"))
        asked = client(explorer)
        for body in ({"name": "foreign"}, {"name": "sound", "against": "foreign"}):
            answer = asked.post("/api/jobs/directions", json=body)
            assert "only if the explorer was started with its model and data; 'foreign' is of" in refused(answer, 400)
    assert started == []


def test_a_job_names_what_may_be_imported(tmp_path: Path, started: list[tuple[str, ...]]) -> None:
    explorer = Explorer(port=PORT, store=tmp_path / "store.sqlite", model="my:net", data="my:train")
    own = MapOptions(model="my:net", data="my:train")
    with Store(explorer.store, create=True) as store:
        add_map(store, "own", curvature_map(), own)
        add_map(store, "other", curvature_map(), dataclasses.replace(own, loss="squared"))
        add_map(store, "digits", curvature_map(), MapOptions(widths="8-12-4-4"))
    asked = client(explorer)
    for body in ({"name": "own", "against": "other"}, {"name": "digits"}):
        assert asked.post("/api/jobs/directions", json=body).status_code == 200
    trusted = [[word for word in words if word.startswith(("--trust", "--yes"))] for words in started]
    assert trusted == [["--trust=my:net", "--trust=my:train"], []]


def test_a_map_replaced_within_a_second_is_read_again(tmp_path: Path, started: list[tuple[str, ...]]) -> None:
    """What may be imported is decided by what the store holds now, not by a map that was read before."""
    explorer = Explorer(port=PORT, store=tmp_path / "store.sqlite")
    asked = client(explorer)
    with Store(explorer.store, create=True) as store:
        add_map(store, "one", curvature_map(), MapOptions(widths="8-12-4-4"))
        assert asked.post("/api/jobs/directions", json={"name": "one"}).status_code == 200
        add_map(store, "one", curvature_map(), MapOptions(model="evil:net"), replace=True)
        refused(asked.post("/api/jobs/directions", json={"name": "one"}), 400)
    assert len(started) == 1


@pytest.mark.parametrize("options", ["{", "[]", "hessmap map --help", "hessmap map 'x", "[" * 9000, '{"nope": 1}'])
def test_options_that_cannot_be_read_are_refused_by_the_name_of_their_map(
    tmp_path: Path, options: str, started: list[tuple[str, ...]]
) -> None:
    explorer = Explorer(port=PORT, store=tmp_path / "store.sqlite")
    with Store(explorer.store, create=True) as store:
        add_map(store, "odd", curvature_map())
        add_map(store, "python", curvature_map())
        store.execute("UPDATE map SET options = ? WHERE name = 'odd'", (options,))
    asked = client(explorer)
    for answer in (asked.post("/api/jobs/directions", json={"name": "odd"}), asked.get("/api/maps/odd")):
        assert "'odd': " in refused(answer, 409)
    assert "'python' was not" in refused(asked.post("/api/jobs/directions", json={"name": "python"}), 400)
    assert asked.get("/api/maps/python").status_code == 200
    assert started == []
