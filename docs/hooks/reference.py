"""Reference pages from the docstrings: one for every package or public module that lists its names, and an index."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import hessmap

HIDDEN = ("hessmap.cli", "hessmap.views")  # drawn for people: no interface
MODULES = ("hessmap.errors",)  # a module without a list: all that it defines


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages; the navigation lists them in the order of the alphabet."""
    pages = {module.__name__: reference_page(module, names) for module, names in packages()}
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    files.append(File.generated(config, "reference/index.md", content=index_page()))
    entries = next(entry["Reference"] for entry in config.nav or [] if "Reference" in entry)
    entries[:] = [entry for entry in entries if "reference/hessmap." not in str(entry)]  # built again by serve
    entries += [{name: f"reference/{name}.md"} for name in pages]
    return files


def packages() -> Iterator[tuple[ModuleType, list[str]]]:
    """Every package of hessmap and every module that a package lists, with its names except for modules."""
    public = set(MODULES)
    for found in sorted(pkgutil.walk_packages(hessmap.__path__, "hessmap."), key=lambda found: found.name):
        if found.name.startswith(HIDDEN) or (not found.ispkg and found.name not in public):
            continue
        module = import_module(found.name)
        names = getattr(module, "__all__", None) or [name for name in vars(module) if is_own(module, name)]
        modules = [getattr(module, name) for name in names if inspect.ismodule(getattr(module, name))]
        public |= {below.__name__ for below in modules if hasattr(below, "__all__")}
        names = [name for name in names if not inspect.ismodule(getattr(module, name))]
        if names or modules:
            yield module, names


def is_own(module: ModuleType, name: str) -> bool:
    return not name.startswith("_") and getattr(getattr(module, name), "__module__", None) == module.__name__


def reference_page(module: ModuleType, names: list[str]) -> str:
    blocks = "\n\n".join(f"::: {module.__name__}.{name}" for name in sorted(names, key=str.lower))
    table = formula_table() if module.__name__ == "hessmap.theory" else ""
    return f"# `{module.__name__}`\n\n{inspect.getdoc(module)}\n\n{table}{blocks}\n"


def formula_table() -> str:
    """The index of rank formulas as a table."""
    rows = ["| network | Hessian | function | kind | reference |", "| --- | --- | --- | --- | --- |"]
    for network, hessian, function, kind, reference in hessmap.theory.INDEX:
        name = f"hessmap.theory.{function}"
        rows.append(f"| {network} | {hessian} | [`{function}`][{name}] | {kind} | {reference} |")
    return "\n".join(rows) + "\n\n"


def index_page() -> str:
    """The names at the top of hessmap, each with the first sentence of its docstring."""
    lines = [
        "# Reference",
        "",
        "`import hessmap as hm` gives the names below, each loaded when it is first used. Everything else is one level",
        "down, for example `hm.measurement.auto_spectrum`. What hessmap raises is in [`hessmap.errors`]"
        "(hessmap.errors.md); the program is described under [the command line](../command-line.md).",
        "",
        "| name | |",
        "| --- | --- |",
    ]
    for name, home in sorted(hessmap._HOME_OF.items(), key=lambda entry: entry[0].lower()):
        summary = first_sentence(inspect.getdoc(getattr(hessmap, name)) or "")
        lines.append(f"| [`hm.{name}`][hessmap.{home}.{name}] | {summary} |")
    return "\n".join(lines) + "\n"


def first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    end = paragraph.find(". ")
    return (paragraph if end < 0 else paragraph[: end + 1]).replace("|", "\\|")
