"""The pages of the two sites as tests see them: their blocks of code, their links, their place in the navigation.

A block of code says its language. ``python`` runs in one namespace a page, with ``>>>`` as a doctest, and with
``title="x.py"`` becomes a module as well; ``console`` holds commands, whose options must exist; ``text`` is output;
``sql`` runs in test_study_documentation.py. What takes long is marked ``<!-- slow -->`` and runs with ``make
test-slow``, the blocks before it too; what needs libraries of other projects is marked ``<!-- needs models -->`` and
runs with ``make test-models``.
"""

from __future__ import annotations

import doctest
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.core import TyperGroup

from hessmap.cli import app

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *(path for name in ("docs", "benchmarks") for path in (ROOT / name).rglob("*.md")),
        *ROOT.glob("*.md"),
        ROOT / "explorer" / "README.md",
    ]
)
RESEARCH_PAGES = [ROOT / "research" / "README.md", *sorted((ROOT / "research" / "docs").rglob("*.md"))]
LANGUAGES = {"python", "console", "text", "sql", "toml", "yaml", "bibtex"}
ROOT_PAGES = ("changelog", "code-of-conduct", "contributing", "security")
GENERATED = {  # pages that hooks make, by the folder of their site
    ROOT / "docs": ("reference/", "gallery/", *(f"project/{page}.md" for page in ROOT_PAGES)),
    ROOT / "research" / "docs": ("all-studies.md",),
}
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)\s]+?)(?:#([^)]*))?\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
COMMAND = re.compile(r"^(?:\$ )?(hessmap\b.*?)(?: {2,}.*|\s#.*)?$", re.MULTILINE)  # without what it is explained by
PROGRAM = typer.main.get_command(app)
# A fence with its language and what follows it, or a comment whose code runs and is not shown.
BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>[\w-]*)(?P<options>[^\n]*)\n(?P<code>.*?)^ *(?P=fence) *$"
    r"|^<!-- (?P<hidden>run|slow)\n(?P<setup>.*?)-->",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A block of code, its language ("" where none is given), and whether it takes long or needs other libraries."""

    page: str
    line: int
    language: str
    title: str
    code: str
    is_slow: bool
    needs_models: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a page. ``<!-- slow -->`` in the line before a fence marks the block as one that takes long."""
    text = path.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        if found["hidden"]:
            yield Block(page_name(path), line, "python", "", found["setup"], found["hidden"] == "slow")
            continue
        indent = len(found["indent"])
        code = "\n".join(row[indent:] for row in found["code"].splitlines()) + "\n"
        title = re.search(r'title="([^"]+)"', found["options"])
        before = text[: found.start()].rstrip()
        is_slow, needs_models = before.endswith("<!-- slow -->"), before.endswith("<!-- needs models -->")
        yield Block(page_name(path), line, found["language"], title[1] if title else "", code, is_slow, needs_models)


def with_python(pages: Iterable[Path]) -> list[Path]:
    return [path for path in pages if any(block.language == "python" for block in blocks(path))]


def with_slow_python(pages: Iterable[Path]) -> list[Path]:
    return [path for path in with_python(pages) if any(block.is_slow for block in blocks(path))]


def run_page(page: list[Block], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("HESSMAP_STORE", str(folder / "hessmap.sqlite"))
    loaded = set(sys.modules)
    namespace: dict[str, object] = {"__name__": "page"}
    with torch.random.fork_rng():
        for block in page:
            if block.language == "python" and not block.needs_models:
                run_block(block, namespace, folder)
    for name in set(sys.modules) - loaded:
        if getattr(sys.modules[name], "__file__", None) and Path(str(sys.modules[name].__file__)).parent == folder:
            del sys.modules[name]


def run_block(block: Block, namespace: dict[str, object], folder: Path) -> None:
    if block.title.endswith(".py"):
        (folder / block.title).write_text(block.code, encoding="utf-8")
    if ">>>" in block.code:
        test = doctest.DocTestParser().get_doctest(block.code, namespace, block.place, block.page, block.line - 1)
        said: list[str] = []
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, out=said.append, clear_globs=False)
        namespace.update(test.globs)
        assert not said, "".join(said)
    else:
        exec(compile("\n" * (block.line - 1) + block.code, block.page, "exec"), namespace)


def commands(pages: Iterable[Path]) -> list[Any]:
    """Every command of the program that a page shows, with its place, as parameters of a test."""
    return [
        pytest.param(command, id=f"{block.place} {command}")
        for path in pages
        for block in blocks(path)
        if block.language == "console"
        for command in COMMAND.findall(block.code.replace("\\\n", ""))
        if "--install-completion" not in command  # done as soon as it is read
    ]


def understood(command: str) -> None:
    """Raise unless its commands and options exist and their values are of the right kind; nothing is run."""
    _understood(PROGRAM, shlex.split(command.split(" > ")[0])[1:], "hessmap")


def _understood(program: Any, words: list[str], name: str, parent: Any = None) -> None:
    context = program.make_context(name, list(words), parent=parent)
    if isinstance(program, TyperGroup) and (rest := [*context._protected_args, *context.args]):
        found, command, others = program.resolve_command(context, rest)
        _understood(command, others, found, context)


def entries(navigation: Any) -> Iterator[str]:
    """The pages of a navigation, in order."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for below in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from entries(below)


def check_navigation(navigation: Any, docs: Path) -> None:
    """Every page of the folder is in the navigation once, and nothing else but what hooks make."""
    listed = list(entries(navigation))
    assert len(listed) == len(set(listed))
    written = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert written == {page for page in listed if not page.startswith(GENERATED[docs])}


def broken_links(path: Path) -> list[str]:
    """Links of a page inside the project that lead to no file."""
    text = CODE.sub("", path.read_text(encoding="utf-8"))
    return [
        target
        for target, _ in LINK.findall(text)
        if not (path.parent / target).exists() and not is_generated((path.parent / target).resolve())
    ]


def is_generated(target: Path) -> bool:
    return any(
        target.is_relative_to(docs) and target.relative_to(docs).as_posix().startswith(pages)
        for docs, pages in GENERATED.items()
    )


def page_checks(pages: Sequence[Path]) -> tuple[Callable[..., None], ...]:
    """The tests of the code of some pages: languages, code, slow code, commands."""

    @pytest.mark.parametrize("path", pages, ids=page_name)
    def test_every_block_says_its_language(path: Path) -> None:
        assert [block.place for block in blocks(path) if block.language not in LANGUAGES] == []

    @pytest.mark.parametrize("path", with_python(pages), ids=page_name)
    def test_the_code_of_the_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run_page([block for block in blocks(path) if not block.is_slow], tmp_path, monkeypatch)

    @pytest.mark.slow
    @pytest.mark.parametrize("path", with_slow_python(pages), ids=page_name)
    def test_the_slow_code_of_the_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run_page(list(blocks(path)), tmp_path, monkeypatch)

    @pytest.mark.parametrize("command", commands(pages))
    def test_the_program_understands_the_command(command: str) -> None:
        understood(command)

    return (
        test_every_block_says_its_language,
        test_the_code_of_the_page_runs,
        test_the_slow_code_of_the_page_runs,
        test_the_program_understands_the_command,
    )
