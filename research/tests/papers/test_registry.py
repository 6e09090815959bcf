"""The registry of the papers: every name in it exists, and every status agrees with the stored outcomes."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from committed import committed

from hessmap.errors import InvalidInput
from hessmap_research.papers import STATUSES, Item, papers, stored_outcomes
from hessmap_research.papers.documents import beginning, with_beginning
from hessmap_research.papers.registry import _item, outcomes_text
from hessmap_research.runner.claims import StudyOutcome
from hessmap_research.runner.registry import listing

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "research" / "docs"
ITEMS = [item for paper in papers() for item in paper.items]
STUDIES = {study.name for study in listing()}
# Of a theory docstring: what it refers to in a paper.
REFERENCE = re.compile(r"Reference:|Singh, |Jacot 2023|Wu et al|teacher-student paper")
DATA_SETS = {"mnist": r"(?<!Fashion-)\bMNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
# What hessmap has on subjects that none of the five papers treats.
OTHER_THEORY = (
    "hessmap.theory.attention.",
    "hessmap.theory.residual.",
    "hessmap.theory.learning.",
    "hessmap_research.formulas.softmax_blocks.",
)
OTHER_STUDIES = ("attention/", "residual/", "learning/", "certificates/data-priors")


def outcomes_of(study: str) -> StudyOutcome:
    return committed(study).outcome


@cache
def headings(page: str) -> set[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item.paper}: {item.item}")
def test_every_name_of_an_item_exists(item: Item) -> None:
    for name in item.functions:
        module, attribute = name.rsplit(".", 1)
        assert callable(getattr(importlib.import_module(module), attribute)), name
    assert set(item.studies) <= STUDIES
    assert all((ROOT / test).exists() for test in item.tests)
    if item.page:
        page, _, anchor = item.page.partition("#")
        assert not anchor or anchor in headings(page), item.page
        assert (DOCS / page).exists()


# Functions that no test calls by name: steps of others, which the tests of the item call.
TESTED_THROUGH = {
    **dict.fromkeys(
        ("product_dimensions", "dimensions_to", "dimensions_from", "is_free", "merged_network", "has_law"),
        "outer_product_rank",
    ),
    **dict.fromkeys(("gauge_forms", "point_forms"), "functional_column_upper_bounds"),
    **dict.fromkeys(
        (
            *(
                "own_block_upper_bound",
                "claims_with_bias",
                "non_linear_claims",
                "one_biased_claims",
                "has_biased_ranks",
            ),
            *("image_convolutional_ranks", "convolutional_ranks"),
        ),
        "predict_ranks",
    ),
    "NormSplit": "norm_split",
    **dict.fromkeys(("ErrorFunction", "ErrorFunctionPairs"), "TeacherStudent"),
    "rank_with_output_bias": "effective_parameters",
}


@pytest.mark.parametrize("item", [item for item in ITEMS if item.functions], ids=lambda one: f"{one.paper}: {one.item}")
def test_the_tests_of_an_item_use_each_of_its_functions(item: Item) -> None:
    text = "\n".join((ROOT / test).read_text(encoding="utf-8") for test in item.tests)
    for name in (function.rpartition(".")[2] for function in item.functions):
        called = TESTED_THROUGH.get(name, name)
        assert re.search(rf"\b{called}\b", text), f"{name} is not in {', '.join(item.tests)}"


def test_items_are_found_by_their_other_names_and_show_their_figures() -> None:
    assert [item.item for item in papers()[0].items_named("S7.2")] == ["Fact 13"]
    assert [item.item for item in papers()[2].items_named("Equation 3")] == ["Conjecture: decoupling"]
    assert [item.item for item in papers()[2].items_named("G.3.1")] == ["Section G.3.1: the overlap falls behind m"]
    ranges = ["Section 3.2: the range of H_o", "Section 3.2: the range of H_f"]
    assert [item.item for item in papers()[0].items_named("Section 3.2")] == ranges
    (item,) = papers()[1].items_named("Theorem 7")
    assert item.figures
    assert all((DOCS / figure).is_file() for figure in item.figures)


@pytest.mark.parametrize("item", [item for item in ITEMS if item.outcomes], ids=lambda one: f"{one.paper}: {one.item}")
def test_the_outcomes_that_a_status_needs_are_the_stored_ones(item: Item) -> None:
    for study, claim, outcome in item.outcomes:
        assert study in item.studies
        found = outcomes_of(study)
        if claim == "cases":
            assert outcome == "agrees"
            assert found.num_agree > 0
            assert found.num_disagree == 0
        else:
            assert found.claim(claim).outcome == outcome, f"{study}: {claim}"


def check_status(item: Item) -> None:
    """A status follows from the verdicts that the item cites; what is left for a larger run goes with any."""
    outcomes = [outcome for _, _, outcome in item.outcomes]
    name = f"{item.paper}: {item.item}"
    if item.status in ("verified", "proved here", "conjecture"):
        assert set(outcomes) <= {"agrees", "holds"}, name
        assert outcomes or item.tests, name
    if item.status == "inconclusive":
        assert "inconclusive" in outcomes or item.left, name
    if item.status == "not run":
        assert not outcomes, name
    if item.status == "not reproduced":
        assert outcomes, name
    if item.studies and item.status != "not run":
        assert item.outcomes or item.tests, name
    assert item.evidence or item.status == "not run", name
    assert item.claim.endswith("."), name


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: f"{item.paper}: {item.item}")
def test_statuses_follow_from_the_verdicts(item: Item) -> None:
    check_status(item)


def test_what_is_verified_may_have_a_larger_run_left_but_no_verdict_against_it() -> None:
    verified = replace(
        Item(0, "Theorem 1", "Ranks agree.", "verified", evidence="widths up to 64", left="widths up to 512: 3 h"),
        studies=("fcn/rank-vs-width",),
        outcomes=(("fcn/rank-vs-width", "cases", "agrees"),),
    )
    check_status(verified)
    assert verified.is_missing
    for wrong in (
        replace(verified, outcomes=(("fcn/rank-vs-width", "fraction-falls", "does not hold"),)),
        replace(verified, outcomes=()),
        replace(verified, status="not run"),
        replace(verified, evidence=""),
    ):
        with pytest.raises(AssertionError, match="0: Theorem 1"):
            check_status(wrong)


def test_what_is_verified_on_a_data_set_has_results_on_it() -> None:
    """Of every study that the item names, for every set that its claim names."""
    for item in ITEMS:
        if item.status == "verified":
            named = {name for name, spelled in DATA_SETS.items() if re.search(spelled, item.claim)}
            held = {study: set(stored_outcomes()[study].data) for study in item.studies}
            missing = {study: named - data for study, data in held.items() if data != {""} and named - data}
            assert not missing, f"{item.paper}: {item.item}: {missing}"


def test_what_remains_to_be_run_says_how_long_it_would_take() -> None:
    for item in ITEMS:
        if item.is_missing:
            assert re.search(r"\d (s|min|h|CPU-seconds)\b", item.left), f"{item.paper}: {item.item}: {item.left!r}"


def test_every_study_is_in_it() -> None:
    of_papers = {study for study in STUDIES if not study.startswith(OTHER_STUDIES)}
    assert {study for item in ITEMS for study in item.studies} == of_papers


def referring_functions() -> Iterator[str]:
    """Public functions and classes of theory, or formulas of the papers, whose docstring refers to a paper."""
    library, research = ROOT / "src", ROOT / "research" / "src"
    theory = ((library, path) for path in sorted((library / "hessmap" / "theory").rglob("*.py")))
    formulas = ((research, path) for path in sorted((research / "hessmap_research" / "formulas").rglob("*.py")))
    for source, path in (*theory, *formulas):
        module = ".".join(path.relative_to(source).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            is_public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if is_public and REFERENCE.search(ast.get_docstring(node) or ""):
                yield f"{module}.{node.name}"


def test_every_function_of_theory_with_a_reference_is_in_it() -> None:
    listed = {name for item in ITEMS for name in item.functions}
    found = list(referring_functions())
    assert len(found) > 40
    assert [name for name in found if name not in listed and not name.startswith(OTHER_THEORY)] == []


def test_the_stored_outcomes_and_the_pages_are_up_to_date() -> None:
    """``make papers`` writes both."""
    stored = ROOT / "research/src/hessmap_research/papers/verdicts.json"
    assert stored.read_text(encoding="utf-8") == outcomes_text(ROOT / "research" / "results")
    for paper in papers():
        text = (DOCS / paper.page).read_text(encoding="utf-8")
        assert text == with_beginning(text, paper), f"research/docs/{paper.page}"
        assert (DOCS / paper.picture).exists()


def test_a_page_has_the_numbers_that_there_are() -> None:
    item = Item(0, "Figure 1", "Errors fall.", "verified", evidence="seen")
    numbers: dict[str, tuple[tuple[str, str, str], ...]] = {
        "both": (("error", "0.5", "0.4"), ("norm", "", "2")),
        "none": (),
    }
    rows = {
        name: beginning(replace(papers()[0], items=(replace(item, numbers=some),))) for name, some in numbers.items()
    }
    assert "| seen. Ours: error 0.4 (paper: 0.5); norm 2. |" in rows["both"]
    assert "| seen |" in rows["none"]


def test_the_counts_are_those_of_the_issue_and_more() -> None:
    assert [paper.number for paper in papers()] == [0, 1, 2, 3, 4]
    assert len(ITEMS) > 190
    assert set(stored_outcomes()) <= STUDIES
    assert all(sum(paper.counts().values()) == len(paper.items) for paper in papers())


def test_a_wrong_status_or_field_is_refused() -> None:
    known = {"item": "Theorem 1", "claim": "c.", "status": "verified"}
    assert _item(0, known).kind == "theorem"
    with pytest.raises(InvalidInput, match="'verifed'"):
        _item(0, {**known, "status": "verifed"})
    with pytest.raises(InvalidInput, match="an item has the fields of Item; 'Theorem 1'"):
        _item(0, {**known, "colour": "red"})
    assert list(STATUSES)[-1] == "not run"


def uncited_studies(item: Item) -> list[str]:
    """The studies with claims that an item names and of which it cites no outcome, where it was run."""
    cited = {study for study, *_ in item.outcomes}
    named = item.studies if item.status != "not run" else ()
    return [study for study in named if study not in cited and outcomes_of(study).claims]


def test_every_study_that_an_item_names_has_a_verdict_that_it_cites() -> None:
    """What a status does not stand on, nothing would hold against it."""
    offenders = [f"{item.paper}: {item.item}: {study}" for item in ITEMS for study in uncited_studies(item)]
    assert not offenders, "cite a verdict of each, or name the study no more:\n" + "\n".join(offenders)


def test_a_study_without_a_cited_verdict_is_found() -> None:
    item = Item(0, "Theorem 1", "Ranks agree.", "verified", evidence="seen", studies=("fcn/ntk", "fcn/conjectures"))
    assert uncited_studies(item) == ["fcn/ntk", "fcn/conjectures"]
    assert uncited_studies(replace(item, outcomes=(("fcn/ntk", "cases", "agrees"),))) == ["fcn/conjectures"]
    assert uncited_studies(replace(item, status="not run")) == []


@pytest.mark.parametrize(
    "item", [item for item in ITEMS if item.row_filters], ids=lambda one: f"{one.paper}: {one.item}"
)
def test_the_rows_that_an_item_chooses_exist(item: Item) -> None:
    for study in dict.fromkeys(study for study, _, _ in item.row_filters):
        assert study in item.studies
        chosen = item.chosen(study)
        rows = [
            row
            for row in committed(study).stored.rows
            if all(str(row.get(name)) in values for name, values in chosen.items())
        ]
        assert rows
        for name, values in chosen.items():
            assert {str(row.get(name)) for row in rows} == set(values), (study, name)
