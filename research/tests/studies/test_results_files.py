"""Exported results: stable in order, readable alone, and refused where they do not fit."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import toy_studies

from hessmap.errors import DataFileError, HessmapError
from hessmap_research.runner.collection import (
    NoRecords,
    collection_from_results,
    collection_from_store,
    results_path,
    study_collection,
    write_results,
)
from hessmap_research.runner.run import run
from hessmap_research.studies import grid


def exported(store: Path, folder: Path, name: str = "SQUARE") -> Path:
    study = getattr(toy_studies, name)
    return write_results(study, collection_from_store(study, store).stored, folder)


def lines_but_provenance(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if '"versions": ' not in line]


def test_an_export_can_be_shown_alone(store_path: Path, tmp_path: Path) -> None:
    run("toy_studies:FAILING", store_path, engine="inline")
    path = exported(store_path, tmp_path / "results", "FAILING")
    assert path == tmp_path / "results" / "toy-failing.json"
    there = collection_from_store(toy_studies.FAILING, store_path)
    alone = collection_from_results(toy_studies.FAILING, tmp_path / "results")
    for one, other in zip(alone.stored.rows, there.stored.rows, strict=True):
        assert (one.case, one.record) == (other.case, other.record)
    assert alone.outcome == there.outcome
    assert [failure.error for failure in alone.stored.failures] == [
        f"ArithmeticError: {width} is one below a multiple of four" for width in (3, 7)
    ]
    assert alone.path == path


def test_the_same_records_give_the_same_bytes_in_whatever_order_they_came(store_path: Path, tmp_path: Path) -> None:
    run("toy_studies:SQUARE", store_path, engine="inline")
    for width in reversed(range(8)):
        run("toy_studies:SQUARE", tmp_path / "other.sqlite", engine="inline", case={"width": width})
    one = exported(store_path, tmp_path / "one").read_bytes()
    assert exported(tmp_path / "other.sqlite", tmp_path / "two").read_bytes() == one
    assert one.decode().count("\n") == len(one.splitlines())
    assert [item["case"]["width"] for item in json.loads(one)["records"]] == list(range(8))


def test_a_run_leaves_out_what_exported_results_have(store_path: Path, tmp_path: Path) -> None:
    for width in (1, 5):
        run("toy_studies:SQUARE", tmp_path / "other.sqlite", engine="inline", case={"width": width})
    folder = exported(tmp_path / "other.sqlite", tmp_path / "results").parent
    rest = run("toy_studies:SQUARE", store_path, engine="inline", results=folder)
    assert (rest.num_done, rest.num_skipped, rest.num_left) == (6, 2, 0)
    rows = collection_from_store(toy_studies.SQUARE, store_path).stored.rows
    assert [row["width"] for row in rows] == [0, 2, 3, 4, 6, 7]
    with pytest.raises(DataFileError, match="toy-square"):
        run("toy_studies:SQUARE", store_path, engine="inline", results=tmp_path / "nowhere")


def test_a_change_of_one_record_changes_one_line(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("toy_studies:SQUARE", store_path, engine="inline")
    before = lines_but_provenance(exported(store_path, tmp_path / "one"))
    monkeypatch.setattr(toy_studies, "SQUARE", replace(toy_studies.SQUARE, measure=toy_studies.almost_square))
    run("toy_studies:SQUARE", store_path, engine="inline", case={"width": 3}, again=True)
    after = lines_but_provenance(exported(store_path, tmp_path / "one"))
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        ' "outcome": {"num_cases": 8, "num_agree": 7, "num_disagree": 1, "num_undecidable": 0, "num_failed": 0, '
        '"num_counterexamples": 0, "data": {"": 8}, "claims": {}},',
        '   "record": {"square":-1,"predicted":9}},',
    ]


def test_records_come_from_the_store_first_and_from_results_where_it_has_none(store_path: Path) -> None:
    study = toy_studies.SQUARE
    with pytest.raises(NoRecords, match=r"toy/square must have records of version 1; .* hessmap study run toy/square"):
        study_collection(study, store_path)
    run("toy_studies:SQUARE", store_path, engine="inline")
    write_results(study, study_collection(study, store_path).stored)
    from_store = study_collection(study, store_path)
    from_results = study_collection(study, store_path.with_name("none.sqlite"))
    assert (from_store.source, from_store.path) == ("the store", store_path)
    assert (from_results.source, from_results.path) == ("the exported toy-square.json", Path("results/toy-square.json"))
    assert study_collection(replace(study, cases=()), store_path).notes == (
        "8 records of cases that the study no longer has are left out.",
    )


def test_results_of_the_package_are_read_where_there_is_nothing_else_and_never_written(
    store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three places that have other cases of a study, the nearest is read: the store, ./results, the package."""
    package, study = tmp_path / "package", toy_studies.SQUARE
    for folder, widths in ((package, [1, 2, 3]), (Path("results"), [1, 2]), (None, [1])):
        made = store_path if folder is None else tmp_path / f"{folder.name}.sqlite"
        for width in widths:
            run("toy_studies:SQUARE", made, engine="inline", case={"width": width})
        if folder is not None:
            exported(made, folder)
    packed = package / "toy-square.json.gz"
    packed.write_bytes(gzip.compress((package / "toy-square.json").read_bytes()))
    (package / "toy-square.json").unlink()
    before = packed.read_bytes()
    monkeypatch.setattr("hessmap_research.runner.collection.PACKAGE_RESULTS", package)

    def widths_and_path() -> tuple[list[object], Path]:
        found = study_collection(study, store_path)
        return [row["width"] for row in found.stored.rows], found.path

    assert widths_and_path() == ([1], store_path)
    store_path.unlink()
    assert widths_and_path() == ([1, 2], Path("results/toy-square.json"))
    Path("results/toy-square.json").unlink()
    assert widths_and_path() == ([1, 2, 3], packed)
    path = write_results(study, study_collection(study, store_path).stored)
    assert (path, packed.read_bytes()) == (Path("results/toy-square.json"), before)


def test_beside_a_gzipped_file_plain_results_are_written_and_read(store_path: Path, tmp_path: Path) -> None:
    run("toy_studies:SQUARE", store_path, engine="inline", case={"width": 5})
    packed = tmp_path / "both" / "toy-square.json.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(b"{}"))
    before = packed.read_bytes()
    path = exported(store_path, packed.parent)
    assert path == packed.with_suffix("")
    assert packed.read_bytes() == before
    assert [row["width"] for row in collection_from_results(toy_studies.SQUARE, packed.parent).stored.rows] == [5]


def test_rows_follow_the_grid_of_the_study(store_path: Path) -> None:
    run("toy_studies:SQUARE", store_path, engine="inline")
    turned = replace(toy_studies.SQUARE, cases=grid(width=[5, 2, 7]))
    assert [row["width"] for row in study_collection(turned, store_path).stored.rows] == [5, 2, 7]


def test_one_data_set_can_be_picked(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap_research.runner.plan.hash_of_data", lambda name: f"hash of {name}")
    for data in ("mnist", "digits"):
        run("toy_studies:ON_DATA", store_path, engine="inline", data=data)
    both = study_collection(toy_studies.ON_DATA, store_path)
    assert [row["data"] for row in both.stored.rows] == ["digits"] * 3 + ["mnist"] * 5
    write_results(toy_studies.ON_DATA, both.stored)
    for one in (
        study_collection(toy_studies.ON_DATA, store_path, data="mnist"),
        study_collection(toy_studies.ON_DATA, results=Path("results"), data="mnist"),
    ):
        assert [row["data"] for row in one.stored.rows] == ["mnist"] * 5
        assert one.notes == ()


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1}'])
def test_a_file_that_is_no_export_is_refused(tmp_path: Path, text: str) -> None:
    path = results_path(toy_studies.SQUARE, tmp_path)
    path.write_text(text)
    with pytest.raises(DataFileError, match=r"must be as it was exported; .*toy-square\.json is not"):
        collection_from_results(toy_studies.SQUARE, tmp_path)


def test_results_of_another_version_are_refused(store_path: Path, tmp_path: Path) -> None:
    run("toy_studies:SQUARE", store_path, engine="inline")
    exported(store_path, tmp_path)
    with pytest.raises(DataFileError, match="is at version 2; .* holds version 1. Run and export it again"):
        collection_from_results(replace(toy_studies.SQUARE, version=2), tmp_path)
    with pytest.raises(DataFileError, match="must have been exported; there is no"):
        collection_from_results(toy_studies.SQUARE, tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"3", b"\xff\xfe", b"{}", b"[" * 100_000, b'{"records": 3}',
        b'{"records": [{"case": 3, "record": 1}], "failures": [], "version": 1, "provenance": []}',
        b'{"records": [{"case": {"a": {"float": "x"}}, "record": {"a": {"float": "x"}}}], "failures": []}',
        b'{"records": [{"case": {}, "record": {"array": [1], "shape": [9], "dtype": "int64"}}], "failures": []}',
        b'{"records": [], "failures": [3], "version": 1, "provenance": []}',
    ],
)  # fmt: skip
def test_a_file_with_odd_content_is_refused_in_a_sentence(content: bytes, tmp_path: Path) -> None:
    path = results_path(toy_studies.SQUARE, tmp_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(HessmapError, match="must"):
        collection_from_results(toy_studies.SQUARE, tmp_path)
