"""``hessmap study``: what the commands print, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hessmap.cli import app

STORE = ("--store", "store.sqlite")


def study(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["study", *words], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return result


def test_list_describe_run_show_and_export_speak_json() -> None:
    name = "toy_studies:SQUARE"
    assert "fcn/simulate" in [item["name"] for item in json.loads(study("list", "--json", *STORE).stdout)["studies"]]
    assert json.loads(study("describe", name, "--json", *STORE).stdout)["num_cases"] == 8
    summary = json.loads(study("run", name, "--engine", "inline", "--json", *STORE).stdout)
    assert (summary["record"], summary["num_done"]) == ("RunSummary", 8)
    shown = json.loads(study("show", name, "--json", *STORE).stdout)
    assert (shown["outcome"]["num_agree"], len(shown["records"])) == (8, 8)
    assert not Path("figures").exists()
    exported = json.loads(study("export", name, "--json", *STORE).stdout)
    assert exported == {"path": "results/toy-square.json", "num_records": 8, "notes": []}
    stored = json.loads(study("list", "--json", *STORE).stdout)["stored"]
    assert [(item["study"], item["num_done"]) for item in stored] == [("toy/square", 8)]
    assert json.loads(study("describe", name, "--json", *STORE).stdout)["num_done"] == 8


def test_the_listing_and_a_description_are_readable() -> None:
    listed = study("list", *STORE).stdout
    assert "fcn/simulate" in listed
    assert "fcn/bias-in-some-layers " in listed  # a name is never broken over lines
    text = study("describe", "toy_studies:ON_DATA", *STORE).stdout
    assert "3, 0 of them done" in text
    assert "digits; can use digits, mnist" in text
    assert "3 s of one core" in text


def test_show_prints_table_and_verdict_and_writes_figures_and_page() -> None:
    study("run", "toy_studies:SQUARE", "--engine", "inline", *STORE)
    text = study("show", "toy_studies:SQUARE", "--rows", "2", "--html", "page.html", "--figure", "a.svg", *STORE).stdout
    assert "6 more lines" in text
    assert "8 of 8 cases agree with the prediction." in text
    assert "<svg" in Path("page.html").read_text()
    assert "<svg" in Path("a.svg").read_text()


def test_show_writes_nothing_that_was_not_asked_for() -> None:
    study("run", "toy_studies:SQUARE", "--engine", "inline", *STORE)
    before = sorted(Path().rglob("*"))
    for words in ((), ("--json",), ("--rows", "0")):
        study("show", "toy_studies:SQUARE", *words, *STORE)
    assert sorted(Path().rglob("*")) == before


def test_show_needs_no_store_where_results_are_committed() -> None:
    study("run", "toy_studies:SQUARE", "--engine", "inline", *STORE)
    study("export", "toy_studies:SQUARE", "--results", "kept", *STORE)
    words = ("show", "toy_studies:SQUARE", "--results", "kept", "--html", "page.html", "--store", "none.sqlite")
    assert "From kept/toy-square.json" in study(*words).stdout
    assert not Path("none.sqlite").exists()


def test_export_can_keep_what_another_store_held() -> None:
    for count, store in ((1, "first.sqlite"), (2, "second.sqlite")):
        case = json.dumps({"width": count})
        study("run", "toy_studies:SQUARE", "--engine", "inline", "--case", case, "--store", store)
    words = ("export", "toy_studies:SQUARE", "--results", "kept", "--json", "--store")
    assert json.loads(study(*words, "second.sqlite").stdout)["num_records"] == 1
    assert json.loads(study(*words, "first.sqlite", "--keep").stdout)["num_records"] == 2
    records = json.loads(Path("kept/toy-square.json").read_text())["records"]
    assert [record["case"]["width"] for record in records] == [1, 2]
    assert json.loads(study(*words, "first.sqlite").stdout)["num_records"] == 1


def test_a_failing_case_is_listed_with_its_command_and_the_exit_code_tells() -> None:
    text = study("run", "toy_studies:FAILING", "--engine", "inline", *STORE, code=1).stdout
    assert "6 done, 2 failed" in text
    assert "ArithmeticError: 3 is one below a multiple of four" in text
    assert "hessmap study run toy_studies:FAILING --case '{\"width\":3}' --store store.sqlite" in text
    assert "Traceback" not in text
    study("run", "toy_studies:FAILING", "--engine", "inline", "--case", '{"width":3}', *STORE, code=1)
    assert "--retry-failed" in study("run", "toy_studies:FAILING", "--engine", "inline", *STORE).stdout


def test_the_store_can_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HESSMAP_STORE", "elsewhere/mine.sqlite")
    study("run", "toy_studies:SQUARE", "--engine", "inline")
    assert Path("elsewhere/mine.sqlite").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "fcn/simulation"), "Did you mean 'fcn/simulate'"),
        (("show", "toy_studies:SQUARE"), "study toy/square must have records"),
        (("export", "toy_studies:SQUARE"), "study toy/square must have records"),
        (("run", "toy_studies:SQUARE", "--case", "width=3"), "a case must be spelled in JSON"),
        (("run", "toy_studies:SQUARE", "--engine", "cloud"), "engine must be one of processes, inline, dask"),
        (("run", "toy_studies:SQUARE", "--workers", "0"), "workers must be at least 1; got 0"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(words: tuple[str, ...], message: str) -> None:
    result = study(*words, *STORE, code=2)
    assert message in result.stderr
    assert "Traceback" not in result.output
