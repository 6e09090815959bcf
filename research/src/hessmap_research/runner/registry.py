"""Finding studies. The listing reads the files without running them, so that it stays instant."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hessmap.errors import InvalidInput, require, sentence, unknown_name

if TYPE_CHECKING:
    from hessmap_research.runner.study import Study

_ROOT = Path(__file__).parents[1] / "studies"
_PACKAGE = "hessmap_research.studies"
_LISTED = ("name", "question", "reference")
_DECLARED_BY = ("Study", "random_networks")


@dataclass(frozen=True)
class Listing:
    """What the declaration of a study says in plain strings, and the module and attribute that hold it."""

    name: str
    question: str
    reference: str
    module: str
    attribute: str


def listing() -> tuple[Listing, ...]:
    """All studies of the project, sorted by name; nothing is imported."""
    return tuple(sorted(_listings(_ROOT, _PACKAGE), key=lambda listed: listed.name))


def find(address: str) -> Study:
    """The study of a name ("fcn/simulate"), or of an address ("package.module:attribute") for one of the user's own."""
    if ":" in address:
        return _study_at(address)
    family = address.partition("/")[0]
    if family.isidentifier():  # the other families need not be read
        for folder in (family, "random_networks"):
            for listed in _listings(_ROOT / folder, f"{_PACKAGE}.{folder}"):
                if listed.name == address:
                    return _study_at(f"{listed.module}:{listed.attribute}")
    raise unknown_name("study", address, [listed.name for listed in listing()])


def _study_at(address: str) -> Study:
    from hessmap_research.runner.study import Study

    module_name, _, attribute = address.partition(":")
    must = "an address must be written as package.module:attribute"
    require(all(module_name.split(".")) and attribute.isidentifier(), must, f"got {address!r}")
    try:
        study = getattr(importlib.import_module(module_name), attribute, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InvalidInput(sentence("the module of a study must be importable", f"no module {error.name!r}")) from error
    if not isinstance(study, Study):
        got = f"{address} is a {type(study).__name__}"
        raise InvalidInput(sentence("the address of a study must lead to a Study", got))
    return study


def _listings(folder: Path, package: str) -> Iterator[Listing]:
    """The studies below a folder: what modules of its sub-packages assign as ``NAME = Study(...)``, or by a table."""
    for found in pkgutil.iter_modules([str(folder)]):
        module = f"{package}.{found.name}"
        if found.ispkg:
            yield from _listings(folder / found.name, module)
        elif folder != _ROOT:
            path = folder / f"{found.name}.py"
            for attribute, fields in _declarations_once(path, path.stat().st_mtime_ns):
                yield Listing(**fields, module=module, attribute=attribute)


@cache
def _declarations_once(path: Path, changed: int) -> tuple[tuple[str, dict[str, str]], ...]:
    """A file is read again only when it has changed."""
    return tuple(_declarations(path))


def _declarations(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The studies of a file: the name each is assigned to, and its listed fields."""
    try:
        statements = ast.parse(path.read_bytes()).body
    except SyntaxError as error:
        got = f"{path.name} line {error.lineno} is not ({error.msg})"
        raise InvalidInput(sentence("the file of a study must be Python", got)) from error
    for node in statements:
        match node:
            case ast.Assign(targets=[ast.Name(attribute)], value=ast.Call(ast.Name(maker), keywords=keywords)) if (
                maker in _DECLARED_BY
            ):
                given = {keyword.arg: keyword.value for keyword in keywords}
                yield attribute, {field: _literal(given.get(field), field, path) for field in _LISTED}


def _literal(node: ast.expr | None, field: str, path: Path) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    must = f"the {field} of a study must be one plain string"
    raise InvalidInput(sentence(must, f"{path.name} gives something else"))
