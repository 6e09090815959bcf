"""The examples on models of other projects run from their first line to their last."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import pytest
import torch

from site_pages import ROOT, blocks

pytestmark = pytest.mark.models
EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "models").glob("*.py"))
NEEDS = {
    "bert_classifier": ["transformers"],
    "gpt2_from_a_configuration": ["transformers"],
    "lora_only": ["transformers", "peft"],
    "resnet_of_timm": ["timm"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(path, capsys):
    for package in NEEDS.get(path.stem, ()):
        pytest.importorskip(package)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the packages
        runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    (block,) = [block for block in blocks(ROOT / "README.md") if block.needs_models]
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of the packages
        exec(compile(block.code, block.page, "exec"), {"__name__": "page"})
    assert list(tmp_path.glob("*.png"))


def test_there_are_examples():
    assert {path.stem for path in EXAMPLES} == set(NEEDS)
