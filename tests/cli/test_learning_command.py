"""``hessmap learning``: the exact coefficient and an estimate, as a table and as JSON."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from hessmap.cli import app
from hessmap.records import LearningCoefficientEstimate, Record


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["learning", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_exact_coefficient_stands_between_rank_and_parameters():
    text = run("exact", "5-5-5", "--rank", "2")
    assert "23/2" in text
    assert "12.5" in text
    found = json.loads(run("exact", "5-4-5", "--rank", "2", "--bias", "--loss", "cross_entropy", "--json"))
    assert found["value"] == {"fraction": "11"}  # 9 of 5-4-4, and two for the four outputs that softmax sees
    assert found["kind"] == "exact"


def test_an_estimate_is_a_record(tmp_path):
    figure = tmp_path / "chains.png"
    words = "estimate --widths 64-2-10 --epochs 1 --samples 30 --draws 16 --chains 2 --no-check-settings --json"
    found = Record.from_json(run(*words.split(), "--figure", str(figure)))
    assert isinstance(found, LearningCoefficientEstimate)
    assert found.settings.num_chains == 2
    assert figure.stat().st_size > 1000
