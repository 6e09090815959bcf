"""Every block of code of the site runs: Python from top to bottom of a page, commands as far as the program reads them.

A block says its language. ``python`` runs in one namespace a page, with ``>>>`` as a doctest, and with ``title="x.py"``
becomes a module as well; ``console`` holds commands, whose options must exist; ``text`` is output; ``sql`` runs in
test_study_documentation.py. What takes long is marked ``<!-- slow -->`` and runs with ``make test-slow``, the blocks
before it too.
"""

from __future__ import annotations

import doctest
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from site_pages import PAGES, Block, blocks, page_name
from typer.core import TyperGroup

from hessmap.cli import app

PROGRAM = typer.main.get_command(app)
LANGUAGES = {"python", "console", "text", "sql", "toml", "yaml", "bibtex"}
WITH_PYTHON = [path for path in PAGES if any(block.language == "python" for block in blocks(path))]
WITH_SLOW = [path for path in WITH_PYTHON if any(block.is_slow for block in blocks(path))]
COMMAND = re.compile(r"^(?:\$ )?(hessmap\b.*?)(?: {2,}.*|\s#.*)?$", re.MULTILINE)  # without what it is explained by
COMMANDS = [
    pytest.param(block.place, command, id=f"{block.place} {command}")
    for path in PAGES
    for block in blocks(path)
    if block.language == "console"
    for command in COMMAND.findall(block.code.replace("\\\n", ""))
    if "--install-completion" not in command  # done as soon as it is read
]


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_every_block_says_its_language(path: Path) -> None:
    assert [block.place for block in blocks(path) if block.language not in LANGUAGES] == []


@pytest.mark.parametrize("path", WITH_PYTHON, ids=page_name)
def test_the_code_of_the_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page([block for block in blocks(path) if not block.is_slow], tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_SLOW, ids=page_name)
def test_the_slow_code_of_the_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_page(list(blocks(path)), tmp_path, monkeypatch)


def run_page(page: list[Block], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("HESSMAP_STORE", str(folder / "hessmap.sqlite"))
    loaded = set(sys.modules)
    namespace: dict[str, object] = {"__name__": "page"}
    with torch.random.fork_rng():
        for block in page:
            if block.language == "python":
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


@pytest.mark.parametrize(("place", "command"), COMMANDS)
def test_the_program_understands_the_command(place: str, command: str) -> None:
    """Its commands and options exist and their values are of the right kind; nothing is run."""
    words = shlex.split(command.split(" > ")[0])[1:]
    understood(PROGRAM, words, "hessmap")


def understood(program: Any, words: list[str], name: str, parent: Any = None) -> None:
    context = program.make_context(name, list(words), parent=parent)
    if isinstance(program, TyperGroup) and (rest := [*context._protected_args, *context.args]):
        found, command, others = program.resolve_command(context, rest)
        understood(command, others, found, context)


def test_a_command_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        understood(PROGRAM, ["predict", "64-10", "--input-rnk", "3"], "hessmap")
