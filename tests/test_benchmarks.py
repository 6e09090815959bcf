"""Every name of hessmap that a benchmark or a tool of the repository uses exists: the benchmarks take hours to run."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted([*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / ".ci").glob("*.py")])
PACKAGES = ("hessmap", "hessmap_explorer", "hessmap_research")


def names_of_hessmap(text: str) -> Iterator[str]:
    """The dotted names that a module imports from the three packages, or reads off one that it imported."""
    tree = ast.parse(text)
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in PACKAGES:
                    yield alias.name
                    bound[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        parts: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute):
            parts.insert(0, inner.attr)
            inner = inner.value
        if parts and isinstance(inner, ast.Name) and inner.id in bound:
            yield ".".join((bound[inner.id], *parts))


def missing_names(text: str) -> list[str]:
    """Those names that do not exist; of an object that is no module, its own attributes are not looked at."""
    return [name for name in dict.fromkeys(names_of_hessmap(text)) if not exists(name)]


def exists(name: str) -> bool:
    found: object = importlib.import_module(name.partition(".")[0])
    path = name.partition(".")[0]
    for part in name.split(".")[1:]:
        if not isinstance(found, ModuleType):
            return True
        path = f"{path}.{part}"
        if hasattr(found, part):
            found = getattr(found, part)
        elif find_spec(path) is not None:
            found = importlib.import_module(path)
        else:
            return False
    return True


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for package in PACKAGES:
        if package in text and find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    assert missing_names(text) == []


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("import hessmap as hm\nhm.zoo_network('tanh')", ["hessmap.zoo_network"]),
        ("def f():\n    from hessmap.runs.store import Store", ["hessmap.runs.store.Store"]),
        ("import hessmap\nhessmap.measurement.no_such(hessmap.Problem)", ["hessmap.measurement.no_such"]),
        ("from hessmap import Problem, nothing", ["hessmap.nothing"]),
        ("import hessmap as hm\nhm.Problem.any_attribute, hm.measurement.auto_spectrum", []),
        ("import numpy as np\nnp.no_such", []),
    ],
)
def test_a_name_that_is_gone_is_found(text: str, missing: list[str]) -> None:
    assert missing_names(text) == missing


def test_there_are_benchmarks() -> None:
    assert len(FILES) > 30
