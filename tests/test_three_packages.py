"""What the three packages say of themselves agrees: versions, what they need, the commands that they add."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import hessmap
from hessmap.cli.program import GROUP, PACKAGE_OF

ROOT = Path(__file__).parents[1]
OTHERS = ("explorer", "research")


def project(folder: str) -> dict[str, Any]:
    with (ROOT / folder / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)
    return found


def test_the_library_takes_its_version_from_its_source() -> None:
    described = project(".")
    assert "version" in described["project"]["dynamic"]
    assert described["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "hessmap.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev\d+|rc\d+)?", hessmap.__version__)


@pytest.mark.parametrize("folder", OTHERS)
def test_packages_share_one_version_and_need_the_library_of_that_version(folder: str) -> None:
    described = project(folder)["project"]
    assert described["version"] == hessmap.__version__
    (needed,) = [one for one in described["dependencies"] if re.match(r"hessmap\b(?!-)", one)]
    assert needed == f"hessmap[cli]=={hessmap.__version__}"


@pytest.mark.parametrize("folder", OTHERS)
def test_the_library_needs_no_other_package_and_python_is_one(folder: str) -> None:
    library, other = project(".")["project"], project(folder)["project"]
    extras = [one for needed in library["optional-dependencies"].values() for one in needed]
    assert not [one for one in (*library["dependencies"], *extras) if one.startswith(other["name"])]
    assert other["requires-python"] == library["requires-python"]


def test_every_command_of_a_package_is_known_to_the_library() -> None:
    """Where the package is missing, its commands say how to install it."""
    added = {
        command: (project(folder)["project"]["name"], folder)
        for folder in OTHERS
        for command in project(folder)["project"]["entry-points"][GROUP]
    }
    assert added == {name: (package.name, package.folder) for name, package in PACKAGE_OF.items()}
