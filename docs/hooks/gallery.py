"""The gallery: every example is run when the site is built; its page shows what it printed and drew.

What an example draws is every PNG that it writes below the folder it runs in. Three are offered as notebooks, which are
run as well; their first cell installs hessmap where it is missing. Nothing is run again while neither the example nor
the package has changed (.cache/gallery).
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbclient
import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "gallery"
NOTEBOOKS = ("resnet_in_five_minutes", "gpt2_from_a_configuration", "papers_to_formulas")
EXAMPLES = sorted(
    [*(ROOT / "examples").glob("*.py"), ROOT / "examples" / "models" / "gpt2_from_a_configuration.py"],
    key=lambda path: (path.stem not in NOTEBOOKS, path.stem),
)
INSTALL = """# On a hosted notebook: upload the wheel that `make wheel` builds, then run this cell.
import importlib.util
from glob import glob

if importlib.util.find_spec("hessmap") is None:
    (wheel,) = glob("hessmap-*.whl")
    %pip install --quiet "{wheel}[cli]" transformers"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    package = package_hash()
    cards, entries = [], []
    for path in EXAMPLES:
        folder = outcome_folder(path, package)
        page = f"gallery/{path.stem.replace('_', '-')}.md"
        files.append(File.generated(config, page, content=example_page(path, folder)))
        for made in sorted([*folder.glob("*.png"), *folder.glob("*.ipynb")]):
            files.append(File.generated(config, f"gallery/{made.name}", abs_src_path=str(made)))
        cards.append(f"| [{title(path)}]({Path(page).name}) | {summary(path)} |")
        entries.append({title(path): page})
    files.append(File.generated(config, "gallery/index.md", content=index_page(cards)))
    gallery = next(entry["Gallery"] for entry in config.nav or [] if "Gallery" in entry)
    gallery[:] = [entry for entry in gallery if entry not in entries]
    gallery[1:1] = entries
    return files


def package_hash() -> str:
    sources = sorted((ROOT / "src").rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def outcome_folder(path: Path, package: str) -> Path:
    """The folder with output.txt, figures and notebook of an example, which is run if that has not been done."""
    key = hashlib.sha256(path.read_bytes() + package.encode() + Path(__file__).read_bytes()).hexdigest()[:16]
    folder = CACHE / f"{path.stem}-{key}"
    if not (folder / "output.txt").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as place:
            text = run_as_notebook(path, place, folder) if path.stem in NOTEBOOKS else run(path, place)
            for figure in sorted(Path(place).rglob("*.png")):
                (folder / f"{path.stem}-{figure.name}").write_bytes(figure.read_bytes())
        (folder / "output.txt").write_text(text, encoding="utf-8")
    return folder


def run(path: Path, place: str) -> str:
    """What the example prints, run in a folder."""
    environment = {**os.environ, "MPLBACKEND": "agg", "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PluginError(f"examples/{path.name} failed:\n{done.stderr}")
    return done.stdout


def run_as_notebook(path: Path, place: str, folder: Path) -> str:
    """What the example prints, run in a folder as a notebook, which is kept: its docstring, then its paragraphs."""
    book = nbformat.v4.new_notebook()
    book.cells = [nbformat.v4.new_markdown_cell(f"# {title(path)}\n\n{docstring(path)}")]
    book.cells += [nbformat.v4.new_code_cell(text) for text in (INSTALL, *paragraphs(path))]
    for number, cell in enumerate(book.cells):
        cell.id = f"cell-{number}"
    # The kernel warns that it speaks over loopback without encryption, for as long as the site is built.
    options = {"extra_arguments": ["--log-level=ERROR"], "resources": {"metadata": {"path": place}}}
    nbclient.NotebookClient(book, timeout=600, **options).execute()
    nbformat.write(book, folder / f"{path.stem}.ipynb")
    outputs = [output for cell in book.cells[1:] for output in cell.outputs]
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


def paragraphs(path: Path) -> list[str]:
    """The statements of a file, those without an empty line between them together; comments go with what follows."""
    lines = path.read_text(encoding="utf-8").splitlines()
    statements = ast.parse("\n".join(lines)).body[1:]
    ends = [statement.end_lineno or 0 for statement in statements]
    cells, start = [], ast.parse("\n".join(lines)).body[0].end_lineno or 0
    for end in ends:
        if end == len(lines) or not lines[end].strip():
            cells.append("\n".join(lines[start:end]).strip())
            start = end
    return cells


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def summary(path: Path) -> str:
    return " ".join(docstring(path).split("\n\n")[0].split())


def title(path: Path) -> str:
    return path.stem.replace("_", " ").capitalize()


def example_page(path: Path, folder: Path) -> str:
    code = re.sub(r'^""".*?"""\s*', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    output = (folder / "output.txt").read_text(encoding="utf-8").rstrip()
    parts = [f"# {title(path)}", docstring(path), f"```python\n{code.rstrip()}\n```"]
    parts += ["It prints:", f"```text\n{output}\n```"]
    parts += [f"![{figure.stem}]({figure.name})" for figure in sorted(folder.glob("*.png"))]
    if (book := folder / f"{path.stem}.ipynb").exists():
        parts.append(f"[This example as a notebook]({book.name}), with its outputs.")
    return "\n\n".join(parts) + "\n"


def index_page(cards: list[str]) -> str:
    text = """# Gallery

Examples that run from their first line to their last, here as they ran when this site was built. They are in
`examples/`, and `make test` runs them. The first three are notebooks too. They were run here; on hosted notebooks they
have not been tried.

| example | |
| --- | --- |
{cards}

The questions of the papers, each with its figure and its answer: [research pages](../../research/docs/index.md).
"""
    return text.format(cards="\n".join(cards))
