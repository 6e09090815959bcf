"""``hessmap papers``: overview, one paper, one item, filters, JSON and the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hessmap.papers import papers
from hessmap.views.cli.app import app

RUNNER = CliRunner(env={"COLUMNS": "80"})


def printed(*words: str) -> str:
    result = RUNNER.invoke(app, ["papers", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_overview_counts_every_status_at_80_columns() -> None:
    text = printed()
    assert "not reproduced" in text
    assert all(paper.name in text for paper in papers())
    assert all(len(line) <= 80 and "…" not in line for line in text.splitlines())


def test_one_paper_and_what_is_missing_of_it() -> None:
    whole, missing = printed("2"), printed("2", "--missing")
    assert "Table 8" in whole
    assert "Table 8" in missing
    assert "Figure 23" in whole
    assert "Figure 23" not in missing
    assert all(len(line) <= 80 and "…" not in line for line in whole.splitlines())


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


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("2", "Table 80"), "item of this paper"),
        (("--status", "nearly"), "status"),
        (("7",), "less than or equal to 4"),
    ],
)
def test_mistakes_are_one_sentence(words: tuple[str, ...], message: str) -> None:
    result = RUNNER.invoke(app, ["papers", *words])
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output
