"""Which blocks of the source does a test run?

A block is a run of statements that are executed one after the other. ``instrumented`` puts a marker before each: adding
an integer to a set, which costs about 50 ns, much less than tracing lines. ``RECORDER`` is the module that the markers
belong to; a process that a test starts leaves its blocks in a file when it ends.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

RECORDER = """
import atexit, json, os, pathlib

hits = set()


def _leave() -> None:
    folder, test = os.environ.get("HESSMAP_BLOCKS"), os.environ.get("PYTEST_CURRENT_TEST")
    if folder and test and hits and str(os.getpid()) != os.environ["HESSMAP_BLOCKS_OWNER"]:
        path = pathlib.Path(folder) / f"{os.getpid()}.json"
        path.write_text(json.dumps({"test": test.rpartition(" ")[0], "blocks": sorted(hits)}))


atexit.register(_leave)
"""
_IMPORT = "from hessmap_blocks import hits as _hits_"
_BODIES = ("body", "orelse", "finalbody")


class Blocks:
    """The blocks of a file: which line belongs to which, and which run when the file is imported.

    Args:
        source: Text of the file.
        first: Number of its first block.
    """

    def __init__(self, source: str, first: int = 0) -> None:
        self.tree, self.first, self.count = ast.parse(source), first, 0
        self.of_line: dict[int, int] = {}
        self.at_import: set[int] = set()
        self._mark(self.tree, is_function=False)

    def instrumented(self) -> str:
        """The source with its markers."""
        place = next(
            (at for at, one in enumerate(self.tree.body) if not (_is_text(one) or _is_future(one))), len(self.tree.body)
        )
        self.tree.body.insert(place, ast.parse(_IMPORT).body[0])
        return ast.unparse(ast.fix_missing_locations(self.tree))

    def _mark(self, node: ast.AST, is_function: bool) -> None:
        for bodies in _bodies(node):
            marked, is_new = [], True
            for statement in bodies:
                is_text = _is_text(statement) or _is_future(statement)
                if is_new and not is_text:
                    number = self.first + self.count
                    self.count += 1
                    if not is_function:
                        self.at_import.add(number)
                    marked.append(ast.parse(f"_hits_.add({number})").body[0])
                    is_new = False
                marked.append(statement)
                if not is_text:
                    last = statement.end_lineno or statement.lineno
                    begin = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
                    self.of_line.update(dict.fromkeys(range(begin, last + 1), number))
                is_inner = is_function or isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
                self._mark(statement, is_inner)
                is_new = is_new or any(True for _ in _bodies(statement))
            bodies[:] = marked


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in _BODIES:
        body = getattr(node, name, None)
        if isinstance(body, list) and body:
            yield body
    for inner in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
        yield inner.body


def _is_text(statement: ast.stmt) -> bool:
    is_value = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_value and isinstance(statement.value.value, str)


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
