"""The import rule, walked over the syntax tree of every file, and the weight of the light imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hessmap"

# From the bottom; rooms of one line never import each other.
FLOORS = (
    ("errors", "progress"),
    ("results",),
    ("networks", "datasets"),
    ("training",),
    ("curvature",),
    ("theory", "measurement"),
    ("runs",),
    ("certificates",),
    ("maps",),
    ("studies",),
    ("papers",),
    ("views",),
)
FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
# Theory takes integers, measurement takes operators: neither may see what a network is trained with or on.
ALSO_HIDDEN = {
    "theory": {"datasets", "training", "curvature"},
    "measurement": {"networks", "datasets", "training"},
}
WITHOUT_TORCH = {"errors", "progress", "results", "theory", "papers"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported_modules(path: Path, package: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of every import of a file, nested ones too, relative ones resolved."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, node.module or "")).strip(".")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def violations(source: Path) -> list[str]:
    """Every import that breaks the rule, as ``file:line reason``."""
    found = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        if parts == ("__init__",) or parts == ("__main__",):
            continue  # the public face imports from every room, lazily
        room = parts[0]
        package = ("hessmap", *parts[:-1])
        for line, name in imported_modules(path, package):
            reason = why_forbidden(room, name)
            if reason:
                found.append(f"{path.relative_to(source)}:{line} {reason}")
    return found


def why_forbidden(room: str, imported: str) -> str:
    """Why a file of the room may not import the dotted name; empty when it may."""
    if room not in FLOOR:
        return f"{room} is not a room of the design"
    parts = imported.split(".")
    if parts[0] == "torch" and room in WITHOUT_TORCH:
        return f"{room} imports torch"
    if parts[0] != "hessmap":
        return ""
    other = parts[1] if len(parts) > 1 else ""
    if other == room or other == "__version__":
        return ""
    if other not in FLOOR:
        return f"{room} imports the public face: {imported}"
    if FLOOR[other] >= FLOOR[room]:
        return f"{room} imports {other}, which is not below it"
    if other in ALSO_HIDDEN.get(room, set()):
        return f"{room} imports {other}, which it must not see"
    return ""


def test_every_room_imports_only_rooms_below_it() -> None:
    assert violations(SOURCE) == []


def test_the_walk_sees_the_rooms() -> None:
    rooms = {path.relative_to(SOURCE).with_suffix("").parts[0] for path in SOURCE.rglob("*.py")}
    assert {"errors", "results", "curvature", "theory", "measurement", "views"} <= rooms


@pytest.mark.parametrize(
    ("room", "text", "reason"),
    [
        ("curvature", "from hessmap.views.plots import spectrum_figure", "curvature imports views"),
        ("networks", "import hessmap.datasets", "networks imports datasets"),
        ("theory", "from hessmap.measurement import spectrum", "theory imports measurement"),
        ("measurement", "from hessmap import theory", "measurement imports theory"),
        ("measurement", "def late():\n    from ..networks import describe", "measurement imports networks"),
        ("theory", "def late():\n    import torch.func", "theory imports torch"),
        ("results", "from torch import Tensor", "results imports torch"),
        ("studies", "import hessmap", "studies imports the public face"),
        ("utils", "import math", "utils is not a room"),
    ],
)
def test_the_guard_bites_on_a_forbidden_import(tmp_path: Path, room: str, text: str, reason: str) -> None:
    folder = tmp_path / room
    folder.mkdir()
    (folder / "allowed.py").write_text("import math\n" if room != "utils" else "")
    (folder / "forbidden.py").write_text(text)
    found = violations(tmp_path)
    assert len(found) == 1
    assert reason in found[0]


def test_the_guard_lets_the_flow_pass(tmp_path: Path) -> None:
    for room, text in {
        "studies": "from hessmap.theory import predict_ranks\nfrom hessmap.measurement import spectrum",
        "theory": "from hessmap.networks import FullyConnected\nfrom hessmap.records import RankPrediction",
        "measurement": "from hessmap.linalg.operator import SymmetricOperator\nfrom .spectra import x",
    }.items():
        (tmp_path / room).mkdir()
        (tmp_path / room / "fine.py").write_text(text)
    assert violations(tmp_path) == []


def imports_by_name(source: Path) -> set[tuple[str, str]]:
    """Every import_module("hessmap...") of a room: its file, and the name."""
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            match node:
                case ast.Call(func=ast.Name("import_module") | ast.Attribute(attr="import_module"), args=[first, *_]):
                    if isinstance(first, ast.Constant) and str(first.value).startswith("hessmap"):
                        found.add((str(path.relative_to(source)), str(first.value)))
    return found


def test_only_pictures_and_progress_are_asked_of_views_by_name() -> None:
    asked = {("progress.py", "hessmap.views.progress"), ("results/pictures.py", "hessmap.views.plots")}
    assert imports_by_name(SOURCE) == asked


def test_no_file_loads_the_statistics_of_scipy_before_they_are_asked_for() -> None:
    """They take longer to load than the rest of scipy together."""
    for path in SOURCE.rglob("*.py"):
        for node in parsed(path).body:
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import | ast.ImportFrom) else set()
            module = str(node.module) if isinstance(node, ast.ImportFrom) else ""
            assert not {f"{module}.{name}".strip(".")[:11] for name in names} & {"scipy.stats"}, path


@pytest.mark.parametrize(
    "statement",
    [
        "import hessmap",
        "import hessmap.cli",
        "import hessmap.theory",
        "import hessmap.records",
        "import hessmap.networks",
        "import hessmap; hessmap.FullyConnected((4, 3, 2)); hessmap.predict_ranks",
    ],
)
def test_a_light_import_does_not_load_torch(statement: str) -> None:
    heavy = "{'torch', 'matplotlib', 'sklearn'}"
    program = f"import sys; {statement}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
