"""Whether a study's measurement has changed: a hash of its code, the same wherever its file is moved."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hessmap.runs.study import Study


def source_hash(study: Study) -> str:
    """A hash of the study's function and of what it uses of its own file, or "" where there is no file.

    Imports, docstrings, comments, and the cases, checks and figures of the study are left out: a study that was moved,
    or is only shown and judged otherwise, has the same hash. So has one whose imported functions changed.
    """
    try:
        path = inspect.getsourcefile(study.measure)
    except TypeError:
        return ""
    if path is None:
        return ""
    definitions = {name: node for node in ast.parse(Path(path).read_bytes()).body for name in _names(node)}
    # A lambda is not told from others: all of the file counts then.
    used = _used_names(study.measure.__name__, definitions) or definitions
    code = "\n".join(ast.unparse(_Bare().visit(definitions[name])) for name in sorted(used))
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def _names(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(name)):
            yield name
        case ast.Assign(targets=targets):
            yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))


def _used_names(first: str, definitions: dict[str, ast.stmt]) -> set[str]:
    """The names of definitions that the first one leads to, itself included; none if it is not there."""
    found: set[str] = set()
    pending = {first} & set(definitions)
    while pending:
        found |= pending
        names = {node.id for name in pending for node in ast.walk(definitions[name]) if isinstance(node, ast.Name)}
        pending = names & set(definitions) - found
    return found


class _Bare(ast.NodeTransformer):
    """Code without imports and docstrings."""

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node
