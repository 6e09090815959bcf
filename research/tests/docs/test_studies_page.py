"""The page of all studies: the answer stands before the counts, and what fails before what agrees."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest
from committed import committed

from hessmap_research.runner.registry import find, listing
from site_pages import ROOT


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("studies_hook", ROOT / "research" / "docs" / "hooks" / "studies.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cnn/rank-vs-filter", "layers/kronecker", "cnn/training"])
def test_an_entry_has_the_answer_then_what_fails_then_the_counts(hook: ModuleType, name: str) -> None:
    study = find(name)
    verdict = committed(name).outcome
    (listed,) = (listed for listed in listing() if listed.name == name)
    _, question, answer, counts, reference, *_ = hook.study_entry(listed).split("\n\n")
    assert question == study.question
    assert answer == f"**{hook.literal(study.answer(verdict))}**"
    assert counts.endswith(hook.literal(verdict.sentence))
    assert counts.startswith("Does not hold: ") == bool(verdict.failing)
    assert reference == f"*{hook.literal(study.reference)}*"


def test_signs_of_a_sentence_are_no_markdown(hook: ModuleType) -> None:
    assert hook.literal("E[M] <= k*, H_o") == r"E\[M\] &lt;= k\*, H\_o"
