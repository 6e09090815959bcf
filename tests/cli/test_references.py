"""A user's own model and data by ``package.module:attribute``; every way to get it wrong has its sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from hessmap.cli.subject import referenced_data, referenced_model
from hessmap.errors import InvalidInput

SOURCE = """
import torch
from torch import nn

classifier = nn.Linear(4, 3)
inputs, targets = torch.ones(5, 4), torch.zeros(5)
pair = (inputs, targets)
number = 3

def make():
    return nn.Sequential(nn.Linear(2, 1))

def wide(width):
    return nn.Linear(width, 1)

def wrong():
    return "a text"

def broken():
    raise RuntimeError("no weights here")

def make_pair():
    return pair

class Zoo:
    small = nn.Linear(1, 1)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a package of the user's, as the current one; modules and sys.path are put back."""
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "models.py").write_text(SOURCE)
    (package / "failing.py").write_text("1 / 0")
    (package / "needing.py").write_text("import a_module_that_is_not_there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("own_package")]:
        del sys.modules[name]


def test_an_instance_is_taken_as_it_is() -> None:
    assert isinstance(referenced_model("own_package.models:classifier"), nn.Linear)


def test_a_callable_without_arguments_is_called() -> None:
    assert isinstance(referenced_model("own_package.models:make"), nn.Sequential)


def test_dots_lead_into_attributes() -> None:
    assert isinstance(referenced_model("own_package.models:Zoo.small"), nn.Linear)


@pytest.mark.parametrize("name", ["pair", "make_pair"])
def test_data_is_the_object_or_what_its_function_returns(name: str) -> None:
    inputs, targets = referenced_data(f"own_package.models:{name}")
    assert torch.equal(inputs, torch.ones(5, 4))
    assert len(targets) == 5


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("own_package.models", "named as package.module:attribute; got 'own_package.models'"),
        ("own_package.modls:make", "no module 'own_package.modls'"),
        ("not_there.models:make", "no module 'not_there'"),
        ("own_package.models:classifer", "there is no 'classifer'. Similar names in own_package.models: classifier"),
        ("own_package.models:Zoo.smal", "there is no 'smal'. Similar names in own_package.models: small"),
        ("own_package.models:number", "own_package.models:number is a int"),
        ("own_package.models:wrong", r"wrong\(\) returned a str"),
        ("own_package.models:wide", "without arguments; missing a required argument: 'width'"),
        ("own_package.models:broken", "it raised RuntimeError: no weights here"),
        ("own_package.failing:model", "it raised ZeroDivisionError"),
        ("own_package.needing:model", "must import; it raised ModuleNotFoundError.*a_module_that_is_not_there"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(reference: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        referenced_model(reference)
