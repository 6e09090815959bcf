"""Results in files: every kind comes back equal, and a foreign file is named with the reason."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap.errors import DataFileError, InvalidInput, UnknownName
from hessmap.networks import FullyConnected
from hessmap.records import Record, Store, map_summaries, register_reader, save_archive

INPUTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture(scope="module")
def made() -> Record:
    targets = torch.randint(2, (20,), generator=torch.Generator().manual_seed(1))
    return hm.map(FullyConnected((4, 3, 2), activation="relu").build(seed=0), (INPUTS, targets), title="a title")


def network() -> torch.nn.Module:
    return FullyConnected((4, 3, 2), activation="tanh").build(seed=0)


def problem(model: torch.nn.Module | None = None) -> hm.Problem:
    return hm.Problem(model or network(), "cross_entropy", INPUTS, torch.arange(20) % 2)


def step(model: torch.nn.Module) -> Record:
    return hm.step_report(problem(model), torch.optim.SGD(model.parameters(), lr=0.1))


MATRIX = np.diag(np.arange(1.0, 9.0))
RESULTS: dict[str, Callable[[], Record]] = {
    "rank": lambda: hm.numerical_rank(np.diag([3.0, 1.0, 0.0])),
    "spectrum": lambda: hm.spectrum(np.diag([3.0, 1.0, 0.0])),
    "estimate": lambda: hm.trace_estimate(np.diag(np.arange(9.0))),
    "density": lambda: hm.density_estimate(np.diag(np.arange(9.0))),
    "eigenpairs": lambda: hm.top_eigenpairs(np.diag(np.arange(9.0)), 2),
    "prediction": lambda: hm.predict_ranks(FullyConnected((4, 3, 2))),
    "sharpness": lambda: hm.sharpness(MATRIX),
    "diagonal": lambda: hm.measurement.diagonal_estimate(MATRIX),
    "log_determinant": lambda: hm.measurement.log_determinant_estimate(MATRIX, shift=1.0),
    "solution": lambda: hm.solve(MATRIX, np.ones(8), shift=1.0),
    "krylov_solution": lambda: hm.measurement.krylov_solve(MATRIX, np.ones(8), shift=1.0),
    "effective_dimension": lambda: hm.effective_dimension(MATRIX, epsilon=1.0),
    "overlap": lambda: hm.measurement.subspace_overlap(np.eye(8)[:, :2], np.eye(8)[:, 1:3]),
    "effective_parameters": lambda: hm.effective_parameters(inputs=4, hidden=2, activation="relu"),
    "generic_rank": lambda: hm.generic_rank(FullyConnected((4, 3, 2)), "loss"),
    "function_rank": lambda: hm.function_rank(network(), INPUTS),
    "step": lambda: step(network()),
    "kronecker_error": lambda: hm.kronecker_error(own := problem(), hm.kronecker_curvature(own, "kfac")),
    "influence": lambda: hm.influence(problem(), problem()),
    "pruning": lambda: hm.pruning_plan(problem()),
    "compression": lambda: hm.compression_plan(problem()),
    "plane": lambda: hm.loss_plane(problem()),
    "projection": lambda: hm.curvature_projection(problem(), "0"),
    "cost": lambda: hm.cost_plan(problem(), "sharpness"),
    "fraction": lambda: hm.learning_coefficient(FullyConnected((5, 5, 5)), rank=2),
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_record_is_read_as_it_was_saved(tmp_path: Path, name: str) -> None:
    record = RESULTS[name]()
    record.save(tmp_path / "new" / "one.json")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["one.json"]
    found = hm.load(tmp_path / "new" / "one.json")
    assert type(found) is type(record)
    assert found == record
    lines = repr(record).splitlines()
    assert len(lines) <= 2
    assert max(map(len, lines)) <= 120


def test_a_map_is_read_from_a_file_and_from_a_store(tmp_path: Path, made: Record) -> None:
    path = tmp_path / "runs" / "maps.sqlite"
    made.save(tmp_path / "map.json")
    assert made.save_to_store(path=path) == "a title"
    assert made.save_to_store(path=path) == "a title-2"
    assert hm.load(tmp_path / "map.json") == hm.load(path, "a title") == made
    with Store(path) as store:
        assert [one.name for one in map_summaries(store)] == ["a title", "a title-2"]
    with pytest.raises(InvalidInput, match="loaded by its name; .* contains a title, a title-2. Pass name="):
        hm.load(path)
    with pytest.raises(UnknownName, match="Did you mean 'a title'"):
        hm.load(path, "atitle")
    with pytest.raises(InvalidInput, match="has 'a title'"):
        made.save_to_store("a title", path)


def test_the_command_line_lists_a_map_stored_from_python(tmp_path: Path, made: Record, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made.save_to_store("from python")
    command = [sys.executable, "-m", "hessmap", "maps", "list"]
    assert "from python" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_an_archive_is_read_by_the_reader_of_its_kind(tmp_path: Path) -> None:
    register_reader("Pair", lambda header, arrays: (header["of"], arrays))
    arrays = {"file": np.arange(6.0).reshape(2, 3), "0/weight": np.zeros(0, dtype=np.float32)}
    save_archive(tmp_path / "pair.npz", "Pair", {"of": [1, "two"]}, arrays)
    of, found = hm.load(tmp_path / "pair.npz")
    assert of == [1, "two"]
    assert found.keys() == arrays.keys()
    for name, values in arrays.items():
        assert found[name].dtype == values.dtype
        assert np.array_equal(found[name], values)
    assert np.array_equal(np.load(tmp_path / "pair.npz")["file"], arrays["file"])  # other programs can read it


def test_a_kind_of_a_package_that_is_not_imported_yet_is_found(tmp_path: Path) -> None:
    from hessmap.certificates.verification import Verification

    fields = {"record": Verification.__name__}
    (tmp_path / "one.json").write_text(json.dumps(fields))
    program = f"import hessmap as hm; hm.load({str(tmp_path / 'one.json')!r})"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "the JSON must contain the fields of a Verification" in ended.stderr


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "absent": (lambda path: None, "No such file"),
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
    "empty": (lambda path: path.write_bytes(b""), "must be JSON"),
    "words": (lambda path: path.write_text("words"), "must be JSON"),
    "bytes": (lambda path: path.write_bytes(bytes(range(256))), "must be JSON"),
    "a list": (lambda path: path.write_text("[1, 2]"), 'the key "record"'),
    "another object": (lambda path: path.write_text('{"a": 1}'), 'the key "record"'),
    "an unknown kind": (lambda path: path.write_text('{"record": "Recipe"}'), "got 'Recipe'"),
    "a zip of others": (lambda path: zipfile.ZipFile(path, "w").close(), "must contain record.json"),
    "an unknown archive": (lambda path: save_archive(path, "Recipe", {}, {}), "no reader is registered for 'Recipe'"),
    "a torch file": (lambda path: torch.save({"a": 1}, path), "must contain record.json"),
    "wrong fields": (lambda path: path.write_text('{"record": "RankValue", "value": "3"}'), "must be a whole number"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_named_with_the_reason(tmp_path: Path, name: str) -> None:
    write, reason = FOREIGN[name]
    write(tmp_path / "odd")
    with pytest.raises(DataFileError, match="a file to load must .*odd: ") as caught:
        hm.load(tmp_path / "odd")
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_database_is_not_a_store(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE a (b)")
    with pytest.raises(OSError, match="must be a file of hessmap"):
        hm.load(tmp_path / "other.sqlite", "run1")


def test_a_save_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    record = RESULTS["rank"]()
    record.save(tmp_path / "rank.json")
    broken = hm.records.Provenance({"a": object()})
    with pytest.raises(InvalidInput, match="is a object"):
        broken.save(tmp_path / "rank.json")
    assert hm.load(tmp_path / "rank.json") == record
