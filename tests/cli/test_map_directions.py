"""``hessmap maps directions``: the network is made again from the options of its map, and foreign code is asked for."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hessmap.cli import app
from hessmap.records import CurvatureMap, MapOptions, Store, add_map, load_map
from patience import PATIENCE

STORE = Path("store.sqlite")
FOREIGN = """
from pathlib import Path
Path("IMPORTED").touch()
import torch
from torch import nn

def data():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(30, 5, generator=generator), torch.randint(3, (30,), generator=generator)

class Zoo:
    net = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))

net = Zoo.net
"""


def run(*words: str, code: int = 0) -> Result:
    command = "map" if words[0].startswith("-") else "maps"
    result = CliRunner().invoke(app, [command, *words, "--store", str(STORE)], env={"COLUMNS": "400"})
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> CurvatureMap:
    """The map of a small network, made by the command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("made"))
        run("--widths=64-3-10", "--samples=60", "--epochs=2", "--seed=3", "--no-files", "--name=own")
        with Store(STORE) as store:
            return load_map(store, "own").record


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "foreign_code.py").write_text(FOREIGN)
    yield tmp_path
    sys.modules.pop("foreign_code", None)


OWN = MapOptions(widths="64-3-10", samples=60, epochs=2, seed=3)


def stored(made: CurvatureMap, **maps: MapOptions | None) -> None:
    with Store(STORE, create=True) as store:
        for name, options in maps.items():
            add_map(store, name, made, options)


def test_the_network_is_made_again_from_its_options(made: CurvatureMap) -> None:
    """The sharpest direction of the network that was made again has the largest eigenvalue of the map."""
    stored(made, own=OWN, other=replace(OWN, seed=4))
    found = json.loads(run("directions", "own", "--against=other", "--count=2", "--json").stdout)
    eigenvalues = made.network["loss"].spectrum.eigenvalues
    assert found["eigenvalues"] == pytest.approx(sorted(eigenvalues, reverse=True)[:2], rel=1e-4)
    assert found["size"] == made.network.num_parameters
    assert len(found["overlap"]["values"]) == 2


def test_a_map_made_in_python_cannot_be_made_again(made: CurvatureMap) -> None:
    stored(made, python=None)
    assert (
        "must have been made by hessmap map to be recomputed; 'python' was not"
        in run("directions", "python", code=2).stderr
    )


NAMED = {
    "model": ({"one": MapOptions(model="foreign_code:net", data="foreign_code:data")}, ()),
    "nested": ({"one": MapOptions(model="foreign_code:Zoo.net", data="foreign_code:data")}, ()),
    "data": ({"one": MapOptions(data="foreign_code:data", widths="5-3-3", epochs=1)}, ()),
    "against": ({"one": OWN, "two": MapOptions(model="foreign_code:net")}, ("--against=two",)),
}


@pytest.mark.parametrize("kind", NAMED)
def test_code_that_a_store_names_is_not_imported_without_a_terminal(made: CurvatureMap, kind: str) -> None:
    maps, words = NAMED[kind]
    stored(made, **maps)
    refused = run("directions", "one", *words, code=2)
    assert "'foreign_code:" in refused.stderr
    assert "Give --yes" in refused.stderr
    assert "Traceback" not in refused.output
    assert not Path("IMPORTED").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--trust=foreign_code:net",),
        ("--trust=foreign_code:data", "--trust=foreign_code"),
        ("--trust=foreign_code:net", "--trust=foreign_code:dat"),
    ],
)
def test_trust_is_in_what_it_names_alone(made: CurvatureMap, words: tuple[str, ...]) -> None:
    stored(made, one=MapOptions(model="foreign_code:net", data="foreign_code:data"))
    refused = run("directions", "one", *words, code=2)
    trusted = [word.removeprefix("--trust=") for word in words]
    for reference in ("foreign_code:net", "foreign_code:data"):
        assert (repr(reference) in refused.stderr) == (reference not in trusted)
    assert not Path("IMPORTED").exists()


@pytest.mark.parametrize("words", [("--yes",), ("--trust=foreign_code:net", "--trust=foreign_code:data")])
def test_trusted_code_is_imported(made: CurvatureMap, words: tuple[str, ...]) -> None:
    stored(made, one=MapOptions(model="foreign_code:net", data="foreign_code:data"))
    assert json.loads(run("directions", "one", "--count=1", "--json", *words).stdout)["size"] == 39
    assert Path("IMPORTED").exists()


@pytest.mark.parametrize("answer", ["n", "", "y"])
def test_a_terminal_is_asked(made: CurvatureMap, answer: str, folder: Path) -> None:
    """On a terminal of its own; what is asked names the code and the folder."""
    stored(made, one=MapOptions(model="foreign_code:net", data="foreign_code:data"))
    ours, theirs = pty.openpty()
    words = ["maps", "directions", "one", "--count=1", "--json", "--store", str(STORE)]
    with subprocess.Popen(
        [sys.executable, "-m", "hessmap", *words],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "400"},
    ) as process:
        os.write(ours, f"{answer}\n".encode())
        printed, said = process.communicate(timeout=10 * PATIENCE)
    os.close(ours)
    os.close(theirs)
    assert "'foreign_code:net', 'foreign_code:data'" in said
    assert str(folder) in said
    is_trusted = answer == "y"
    assert (process.returncode == 0) == is_trusted, said
    assert Path("IMPORTED").exists() == is_trusted
    assert bool(printed) == is_trusted


@pytest.mark.parametrize(
    "odd",
    [
        {"data": "no_such_data"},
        {"data": "../../etc/passwd"},
        {"widths": "x"},
        {"widths": "64-0-10"},
        {"activation": "__import__"},
        {"loss": "os.system"},
        {"epochs": -3},
        {"seed": -1},
        {"samples": 0},
        {"side": 0},
        {"samples": 10**30},
        {"model": "no_colon"},
    ],
)
def test_odd_options_of_a_foreign_store_are_one_sentence(made: CurvatureMap, odd: dict[str, Any]) -> None:
    stored(made, one=replace(OWN, **odd))
    refused = run("directions", "one", "--yes", code=2)
    (line,) = [line for line in refused.stderr.splitlines() if line.startswith("hessmap: ")]
    assert line.endswith((".", "?"))


@pytest.mark.parametrize("options", ["", "{", "[" * 9000, '{"data": 7}', '{"model": "os:abort", "x": 1}', "--help"])
def test_options_that_cannot_be_read_are_one_sentence(made: CurvatureMap, options: str) -> None:
    stored(made, one=OWN)
    with Store(STORE) as store:
        store.execute("UPDATE map SET options = ?", (options,))
    for words in (("directions", "one", "--yes"), ("list",), ("show", "one")):
        assert "'one': " in run(*words, code=2).stderr
