"""``hessmap papers``: overview, one paper, one item, filters, JSON and the page."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pytest
from typer.testing import CliRunner

from hessmap.cli.program import app
from hessmap_research.papers import Item, Paper, papers

RUNNER = CliRunner(env={"COLUMNS": "80"})
ITEMS = (
    Item(0, "Theorem 1", "ranks agree.", "verified", evidence="widths up to 64", left="widths up to 512: 3 h"),
    Item(0, "Figures 2, 3", "ranks grow.", "verified", evidence="as printed", page="layers.md#layerskronecker"),
    Item(0, "Table 4 A", "errors fall.", "inconclusive", evidence="two seeds", left="five seeds: 20 min"),
    Item(0, "Table 4 B", "errors are small.", "corrected", evidence="three seeds", numbers=(("error", "", "0.1"),)),
)


@pytest.fixture
def _a_made_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Paper(0, "Somebody 2020", "On ranks", "layers.md", "Do ranks grow?", "Yes.", "x.png", ITEMS)
    finished = Paper(1, "Nobody 2021", "On figures", "layers.md", "Do ranks grow?", "Yes.", "x.png", ITEMS[1:2])
    monkeypatch.setattr("hessmap_research.papers.papers", lambda: (made, finished))


def printed(*words: str) -> str:
    result = RUNNER.invoke(app, ["papers", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_overview_counts_every_status_at_80_columns() -> None:
    text = printed()
    assert "not reproduced" in text
    assert all(paper.name in text for paper in papers())
    assert all(len(line) <= 80 and "…" not in line for line in text.splitlines())


def test_one_paper_at_80_columns() -> None:
    whole = printed("2")
    assert "Table 8" in whole
    assert "Figure 23" in whole
    assert all(len(line) <= 80 and "…" not in line for line in whole.splitlines())


@pytest.mark.usefixtures("_a_made_paper")
def test_what_is_missing_may_be_a_larger_run_of_what_is_verified() -> None:
    missing = printed("0", "--missing")
    assert "left: widths up to 512: 3 h" in missing
    assert "Table 4 A" in missing
    assert "Figures 2, 3" not in missing


@pytest.mark.usefixtures("_a_made_paper")
@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (("0", "Figure 2", "--missing"), "Nothing is left to run of Figures 2, 3 of paper 0.\n"),
        (
            ("0", "Theorem 1", "--status", "corrected"),
            "Theorem 1 of paper 0 has the status 'verified', not 'corrected'.\n",
        ),
        (
            ("0", "Figure 2", "--missing", "--status", "verified"),
            "Nothing is left to run of Figures 2, 3 of paper 0.\n",
        ),
        (
            ("0", "Table 4", "--status", "verified"),
            "Table 4 A of paper 0 has the status 'inconclusive', not 'verified'.\n"
            "Table 4 B of paper 0 has the status 'corrected', not 'verified'.\n",
        ),
        (("1", "--missing"), "Nothing is left to run in paper 1.\n"),
        (("1", "--status", "not run"), "No item of paper 1 has the status 'not run'.\n"),
        (
            ("1", "--status", "verified", "--missing"),
            "No item of paper 1 has the status 'verified' and something left to run.\n",
        ),
        (
            ("--status", "not run"),
            "No item of paper 0 has the status 'not run'.\n\nNo item of paper 1 has the status 'not run'.\n",
        ),
    ],
)
def test_filters_that_keep_nothing_say_so(words: tuple[str, ...], sentences: str) -> None:
    assert printed(*words) == sentences
    assert [paper["items"] for paper in json.loads(printed(*words, "--json"))] in ([[]], [[], []])


@pytest.mark.usefixtures("_a_made_paper")
def test_all_items_of_a_name_are_shown_with_or_without_quotes() -> None:
    both = printed("0", "Table 4")
    assert "Table 4 A: errors fall." in both
    assert "\n\nTable 4 B: errors are small." in both
    assert printed("0", "Table", "4") == both
    assert "Table 4 A" not in printed("0", "table 4b")


def test_many_items_of_a_name_have_a_line_each() -> None:
    lemmas = printed("2", "lemma")
    assert "Lemma B.25" in lemmas
    assert "evidence" not in lemmas
    assert "Theorem 4.1" not in lemmas


def test_everything_about_an_item() -> None:
    text = printed("0", "fact 7")
    assert "fcn/conjectures" in text
    assert "hessmap.theory.fully_connected.linear.loss_rank" in text.replace("\n", "").replace(" ", "")


def test_json_and_the_page_hold_every_item(tmp_path: Path) -> None:
    found = json.loads(printed("--json"))
    assert [len(paper["items"]) for paper in found] == [len(paper.items) for paper in papers()]
    only = json.loads(printed("4", "--status", "corrected", "--json"))
    assert {item["status"] for item in only[0]["items"]} == {"corrected"}
    page = tmp_path / "papers.html"
    printed("--html", str(page))
    text = page.read_text(encoding="utf-8")
    assert text.count("<tr data-paper") == sum(len(paper.items) for paper in papers())
    assert "http://" not in text


@pytest.mark.usefixtures("_a_made_paper")
def test_the_page_links_to_the_documentation_from_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, docs = tmp_path / "clone" / "a folder" / "papers.html", tmp_path / "clone" / "my docs"
    docs.mkdir(parents=True)
    (docs / "index.md").touch()
    monkeypatch.setattr("hessmap_research.papers.text._CLONE", docs.parent.resolve())
    monkeypatch.setattr("hessmap_research.papers.text._DOCS", docs.resolve())
    printed("0", "--html", str(page))
    link = '<a href="../my%20docs/layers.md#layerskronecker">research/docs/layers.md#layerskronecker</a>'
    assert page.read_text(encoding="utf-8").count(link) == 1
    elsewhere = tmp_path / "papers.html"
    printed("0", "--html", str(elsewhere))
    assert "Page: research/docs/layers.md#layerskronecker</p>" in elsewhere.read_text(encoding="utf-8")


@pytest.mark.usefixtures("_a_made_paper")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("0", "Table 80"),
            "the item must be one of paper 0; got 'Table 80'. All of this kind: hessmap papers 0 table.",
        ),
        (("0", "Figure x y"), "got 'Figure x y'. All of this kind: hessmap papers 0 figure."),
        (("0", "nonsense"), "got 'nonsense'. All of them: hessmap papers 0."),
        (("0", ""), "got ''. All of them: hessmap papers 0."),
        (("--status", "nearly"), "status must be one of proved here, verified"),
        (("7",), "a paper must be a number from 0 to 1; got '7'. hessmap papers names them"),
        (("Table 8",), "got 'Table 8'. hessmap papers names them; an item follows its number, as in: hessmap papers 2"),
    ],
)
def test_mistakes_are_one_sentence(words: tuple[str, ...], message: str) -> None:
    result = RUNNER.invoke(app, ["papers", *words])
    assert result.exit_code == 2
    assert message in result.output
    assert len(result.output.splitlines()) == 1


def test_an_item_opens_as_a_page_with_formula_test_rows_and_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    result = RUNNER.invoke(app, ["papers", "1", "Theorem 7", "--open"])
    assert result.exit_code == 0, result.output
    (address,) = opened
    text = Path(url2pathname(urlparse(address).path)).read_text(encoding="utf-8")
    (item,) = papers()[1].items_named("Theorem 7")
    for part in (item.claim[:20], item.functions[0], item.tests[0], item.studies[0], item.figures[0], "Rows of"):
        assert escape(part) in text, part
    assert "Reference" in text
    assert RUNNER.invoke(app, ["papers", "1", "--open"]).exit_code != 0
    assert len(opened) == 1


def test_the_numbers_of_a_table_stand_in_rows() -> None:
    text = RUNNER.invoke(app, ["papers", "2", "Table 8"]).output
    line = next(line for line in text.splitlines() if "LeNet5 on MNIST, fc1" in line)
    assert "0.890" in line
    assert "0.72" in line
