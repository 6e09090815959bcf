"""Small faults that could be in a source file: one comparison, constant, sign, argument or guard is another.

Each is a piece of the text that is replaced by another, found by the syntax tree. What is written for readers alone
(docstrings, annotations, the text of errors) is left as it is.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
EXTREMES = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}
EXTREMES |= {"amin": "amax", "amax": "amin", "argmin": "argmax", "argmax": "argmin"}
WORDS = {"sentence", "InvalidInput", "print", "warn", "cast", "TypeVar"}  # calls whose arguments are for readers
SYMMETRIC = {"isinstance", "min", "max", "minimum", "maximum", "zip", "require", "super"}
GUARDS = ("require", "checked", "refuse")


@dataclass(frozen=True)
class Mutant:
    """One fault: what of the source it replaces (in bytes), by what, and its kind."""

    kind: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def applied_to(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


def mutants_of(source: str) -> list[Mutant]:
    """All mutants of a file, in the order of its text."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for node in meant_for_machines(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before = source.encode()[start:end].decode()
        for kind, other in changes(node):
            after = "pass" if isinstance(other, ast.Pass) else f"({ast.unparse(other)})"
            found.append(Mutant(kind, node.lineno, start, end, before, after))
    return sorted(found, key=lambda one: (one.start, one.end, one.kind))


def meant_for_machines(tree: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Every node below that has a place, without annotations, words and what is imported for types alone."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "type_comment", "decorator_list") or isinstance(tree, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or is_for_readers(child):
                continue
            if isinstance(child, ast.expr | ast.stmt):
                yield child
            yield from meant_for_machines(child)


def is_for_readers(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return True
    return isinstance(node, ast.Call) and called_name(node) in WORDS


def changes(node: ast.expr | ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """The kind of a fault and what stands for the node then."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            other = copy.deepcopy(node)
            other.ops[place] = COMPARISONS[type(operator)]()
            yield "comparison", other
    elif isinstance(node, ast.BoolOp):
        yield "and, or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.BinOp):
        yield from binary_changes(node)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield ("not" if isinstance(node.op, ast.Not) else "sign"), node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is int and abs(node.value) < 100:
        yield "off by one", ast.Constant(node.value + 1)
    elif isinstance(node, ast.Call):
        yield from call_changes(node)
    elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        yield "transposed", node.value
    elif is_guard(node):
        yield "removed guard", ast.Pass()


def binary_changes(node: ast.BinOp) -> Iterator[tuple[str, ast.AST]]:
    if any(isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) or is_text(side) for side in (node.left, node.right)):
        return
    if isinstance(node.op, ast.Add | ast.Sub):
        yield "sign", ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
    if isinstance(node.op, ast.Mult) and is_factor(node.left):
        yield "dropped factor", node.right
    if isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv) and is_factor(node.right):
        yield "dropped factor", node.left


def call_changes(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    name = called_name(node)
    if name in EXTREMES:
        other = copy.deepcopy(node)
        if isinstance(other.func, ast.Attribute):
            other.func.attr = EXTREMES[name]
        elif isinstance(other.func, ast.Name):
            other.func.id = EXTREMES[name]
        yield "min, max", other
    first = node.args[:2]
    if (
        len(first) == 2
        and name not in SYMMETRIC
        and not any(isinstance(one, ast.Starred) or is_text(one) for one in first)
    ):
        swapped = ast.Call(node.func, [first[1], first[0], *node.args[2:]], node.keywords)
        if ast.unparse(swapped) != ast.unparse(node):
            yield "transposed", swapped


def is_guard(node: ast.expr | ast.stmt) -> bool:
    """A call whose result nobody reads, named as a check, or a branch that does nothing but leave."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return (called_name(node.value) or "").lstrip("_").startswith(GUARDS)
    is_exit = isinstance(node, ast.If) and not node.orelse and len(node.body) == 1
    return is_exit and isinstance(node.body[0], ast.Raise | ast.Return | ast.Continue | ast.Break)


def called_name(node: ast.Call) -> str | None:
    return getattr(node.func, "id", None) or getattr(node.func, "attr", None)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def is_factor(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in (2, 0.5)
