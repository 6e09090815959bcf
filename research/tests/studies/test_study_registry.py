"""Finding studies without running them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import toy_studies

from hessmap.errors import InvalidInput, UnknownName
from hessmap_research.runner import registry
from hessmap_research.runner.registry import find, listing
from hessmap_research.runner.study import Study


@pytest.mark.parametrize("listed", listing(), ids=lambda listed: listed.name)
def test_a_listed_study_lives_in_its_family_and_says_the_same_when_imported(listed: registry.Listing) -> None:
    study = find(listed.name)
    assert (study.name, study.question, study.reference) == (listed.name, listed.question, listed.reference)
    folder = listed.module.split(".")[2]
    assert folder in (listed.name.partition("/")[0], "random_networks")


def test_every_study_has_a_name_of_its_own() -> None:
    names = [listed.name for listed in listing()]
    assert len(set(names)) == len(names)


def test_the_listing_is_sorted_and_holds_the_simulation() -> None:
    names = [listed.name for listed in listing()]
    assert names == sorted(names)
    assert "fcn/simulate" in names


def test_listing_and_importing_studies_loads_neither_torch_nor_matplotlib() -> None:
    program = (
        "import sys; from hessmap_research.runner.registry import find, listing; listed = listing();"
        "assert not any(name.startswith('hessmap_research.studies.fcn') for name in sys.modules);"
        "[find(study.name) for study in listed];"
        "print(sorted({'torch', 'matplotlib', 'sklearn'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_study_of_the_users_own_is_found_by_its_address() -> None:
    assert find("toy_studies:SQUARE") is toy_studies.SQUARE


def test_an_unknown_study_offers_the_near_one() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'fcn/simulate'"):
        find("fcn/simulation")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("toy_studies:NOT_A_STUDY", "must lead to a Study; toy_studies:NOT_A_STUDY is a int"),
        ("toy_studies:NOWHERE", "must lead to a Study; toy_studies:NOWHERE is a NoneType"),
        ("no_such_module.at_all:STUDY", "must be importable; no module 'no_such_module'"),
    ],
)
def test_a_wrong_address_is_one_sentence(address: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        find(address)


def test_a_declaration_that_cannot_be_listed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text("STUDY = Study(name='a/b', question='why' + '?', reference='none')")
    with pytest.raises(InvalidInput, match=r"the question of a study must be one plain string; odd\.py"):
        list(registry._declarations(path))
    path.write_text("def broken:")
    with pytest.raises(InvalidInput, match=r"must be Python; odd\.py line 1 is not"):
        list(registry._declarations(path))
    path.write_text("HELPER = dict(name='a/b')")
    assert list(registry._declarations(path)) == []


def test_a_file_may_declare_several_studies(tmp_path: Path) -> None:
    fields = "question='why?', reference='none'"
    text = f"FIRST = Study(name='a/one', {fields})\nx = 2\nOTHER = Study(name='a/two', {fields})\n"
    (tmp_path / "both.py").write_text(text)
    found = list(registry._declarations(tmp_path / "both.py"))
    assert [(attribute, said["name"]) for attribute, said in found] == [("FIRST", "a/one"), ("OTHER", "a/two")]


@pytest.mark.parametrize("name", ["fcn", "", "/fcn/simulate", "../runs/study", "fcn/", "fcn/simulate/more", "no/such"])
def test_a_name_that_leads_nowhere_is_unknown(name: str) -> None:
    with pytest.raises(UnknownName, match="study must be one of"):
        find(name)


@pytest.mark.parametrize("name", ["simulate", "FCN/simulate", "fcn/rank_vs_width", "fcn/", "/a", "fcn/a--b"])
def test_a_name_of_another_shape_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="must be family/question in small letters"):
        Study(name=name, question="", reference="", cases=(), measure=toy_studies.square, view=toy_studies.VIEW)


def test_the_data_choice_is_the_default_the_wanted_or_an_error() -> None:
    assert toy_studies.ON_DATA.data_choice(None) == "digits"
    assert toy_studies.ON_DATA.data_choice("mnist") == "mnist"
    assert toy_studies.SQUARE.data_choice(None) == ""
    with pytest.raises(UnknownName, match="data of study toy/on-data must be one of digits, mnist"):
        toy_studies.ON_DATA.data_choice("cifar10")
    with pytest.raises(InvalidInput, match="study toy/square uses no data"):
        toy_studies.SQUARE.data_choice("digits")


def test_cases_depend_on_the_data_and_carry_its_name() -> None:
    assert [len(toy_studies.ON_DATA.cases_on(data)) for data in ("digits", "mnist")] == [3, 5]
    assert toy_studies.ON_DATA.cases_on("digits")[0] == {"data": "digits", "width": 0}
