"""Functions and certificates that the explorer keeps, with data; and the Python lines of every figure, run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from explorers import PORT, RESULTS, client, filled_store, keep_results, refused
from starlette.testclient import TestClient

from hessmap.records import DEFAULT_STORE, LossPlane
from hessmap_explorer.functions import kept_result
from hessmap_explorer.predict import FAMILIES
from hessmap_explorer.python_lines import directions_lines, eigenvector_lines
from hessmap_explorer.settings import Explorer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it: a store, the exported results, a function, a certificate."""
    place = tmp_path_factory.mktemp("kept")
    (place / "results").symlink_to(RESULTS)
    (place / DEFAULT_STORE).parent.mkdir(parents=True)
    filled_store(place / DEFAULT_STORE)
    kept = (place / DEFAULT_STORE).parent / "explorer"
    keep_results(kept)
    kept_result(kept, "certificate", "foreign", {"bound": 0.1})
    kept_result(kept, "plane", "foreign", {"loss": 0.1})
    kept_result(kept, "function", "foreign", {"function_rank": [1]})
    (kept / "certificate-cut.json").write_text('{"bound": 0.')
    return place


@pytest.fixture
def asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.chdir(folder)
    yield client(Explorer(port=PORT))
    plt.close("all")


def found(asked: TestClient, path: str) -> Any:
    answer = asked.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_function_has_its_verdict_tables_and_figures(asked: TestClient) -> None:
    shown = found(asked, "/api/functions/one")
    assert shown["verdict"].startswith(("The function has", "The Jacobians have"))
    assert [line[0] for line in shown["layers"]["lines"]] == ["0", "2"]
    assert dict(shown["jacobians"])["largest rank over the samples"].endswith(" of 3")
    assert len(shown["figures"]) == 4
    assert "None" not in str([shown["jacobians"], shown["notes"]])


def test_a_certificate_has_its_promise_gauge_and_remarks(asked: TestClient) -> None:
    shown = found(asked, "/api/certificates/one")
    assert dict(shown["numbers"])["bound"].startswith(shown["gauge"]["traces"][0]["label"].removeprefix("bound "))
    assert shown["gauge"]["traces"][0]["x"][0] == pytest.approx(float(shown["promise"][1].rstrip("%")) / 100, abs=1e-4)
    assert shown["remarks"]["Assumed"]


def test_a_plane_has_its_losses_and_what_the_quadratic_model_explains(asked: TestClient, folder: Path) -> None:
    shown = found(asked, "/api/planes/one")
    files = (folder / DEFAULT_STORE).parent / "explorer"
    kept = LossPlane.from_json((files / "plane-one.json").read_text())
    loss, quadratic = shown["figures"]
    np.testing.assert_allclose(np.array(loss["traces"][0]["z"]).T, kept.loss)
    np.testing.assert_allclose(np.array(quadratic["traces"][0]["z"]).T, kept.quadratic)
    assert loss["traces"][0]["low"] == quadratic["traces"][0]["low"] == [kept.loss.min()]
    assert f"{100 * (kept.explained or 0):.1f} %" in " ".join(shown["findings"])
    line = found(asked, "/api/planes/line")
    barrier = LossPlane.from_json((files / "plane-line.json").read_text()).barrier
    assert barrier is not None
    assert line["figures"][0]["lines"][0]["at"] == barrier.position
    assert f"Barrier {barrier.height:.4g}" in " ".join(line["findings"])


@pytest.mark.parametrize("path", ["certificates/foreign", "functions/foreign", "planes/foreign", "certificates/cut"])
def test_a_file_that_is_no_result_is_refused(asked: TestClient, path: str) -> None:
    assert "a kept result must be readable" in refused(asked.get(f"/api/{path}"), 404)


def _first_number(family: str) -> str:
    field = next(field for field in FAMILIES[family].fields if field.kind in ("count", "counts"))
    return f"{field.name}.1" if field.kind == "counts" else field.name


def figures_in(content: Any) -> list[Any]:
    """Every figure of an answer, wherever it stands."""
    if isinstance(content, dict) and "traces" in content:
        return [content]
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    return [figure for part in inner for figure in figures_in(part)]


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("maps/before", 4),
        ("compare?old=before&new=after", 4),
        ("tracks/shown?name=run1", 3),
        ("tracks/shown?name=run1&name=run2", 3),
        ("functions/one", 4),
        ("planes/one", 2),
        ("planes/line", 1),
        ("certificates/one", 1),
        ("studies/fcn/bias", 2),
        ("predict/curve?over=input_rank&low=3&high=6", 1),
        *((f"predict/curve?family={name}&over={_first_number(name)}&low=3&high=6", 1) for name in FAMILIES),
    ],
)
def test_the_lines_of_every_figure_draw_it(asked: TestClient, folder: Path, path: str, count: int) -> None:
    figures = figures_in(found(asked, f"/api/{path}"))
    assert len(figures) >= count
    for figure in figures[:count]:
        for old in folder.glob("*.svg"):
            old.unlink()
        exec(compile(figure["python"], figure["title"], "exec"), {})
        assert [one.stat().st_size > 1000 for one in folder.glob("*.svg")] == [True], figure["title"]
        plt.close("all")


def test_the_lines_of_directions_run_their_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command itself is a training; what it prints stands in its place."""
    import json
    import subprocess

    printed = {"vectors": [[[0.1, 0.2]], [[0.3, -0.1]]], "overlap": {"values": [0.9, 0.8], "chance": [0.1, 0.2]}}
    commands = []

    def run(command: list[str], **_: Any) -> Any:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, json.dumps(printed).encode())

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.chdir(folder)
    words = ["maps", "directions", "--json", "--", "before"]
    for lines in (eigenvector_lines(words, 1), directions_lines(words, "overlap")):
        (folder / "directions.svg").unlink(missing_ok=True)
        exec(lines, {})
        assert (folder / "directions.svg").stat().st_size > 1000
        plt.close("all")
    assert commands == [["hessmap", *words]] * 2
