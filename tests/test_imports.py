"""Which package and which folder may import which, read from the syntax tree of every file; the light imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hessmap"
RESEARCH = ROOT / "research" / "src" / "hessmap_research"
EXPLORER = ROOT / "explorer" / "src" / "hessmap_explorer"

# The library from the bottom; packages of one line never import each other.
FLOORS = (
    ("errors", "progress"),
    ("records",),
    ("linalg",),
    ("losses", "networks", "datasets", "measurement"),  # measurement takes operators, never a network or its data
    ("training", "problem", "theory"),
    ("hessians", "exact"),
    ("layers", "functions"),
    ("certificates", "applications"),
    ("maps",),
    ("views",),
    ("cli",),
)
FLOOR = {package: floor for floor, packages in enumerate(FLOORS) for package in packages}
# Theory takes integers: it must not see data, and shares no numerics with the measurements that confirm it.
ALSO_HIDDEN = {"theory": {"datasets", "losses", "linalg", "measurement"}}
WITHOUT_TORCH = {"errors", "progress", "records", "theory"}
# Of the three packages: which others each may import, and where it may.
ANYWHERE = ("",)
MAY_IMPORT = {
    "hessmap": {},
    "hessmap_research": {"hessmap": ANYWHERE},
    "hessmap_explorer": {"hessmap": ANYWHERE, "hessmap_research": ("studies.py", "figures/studies.py")},
}


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
    """Every import of the library that breaks the rule, as ``file:line reason``."""
    found = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        if parts == ("__init__",) or parts == ("__main__",):
            continue  # the public face imports from every package, lazily
        for line, name in imported_modules(path, ("hessmap", *parts[:-1])):
            reason = why_forbidden(parts[0], name)
            if reason:
                found.append(f"{path.relative_to(source)}:{line} {reason}")
    return found


def why_forbidden(package: str, imported: str) -> str:
    """Why a file of a package may not import the dotted name; empty when it may."""
    if package not in FLOOR:
        return f"{package} is not a package of the design"
    parts = imported.split(".")
    if parts[0] == "torch" and package in WITHOUT_TORCH:
        return f"{package} imports torch"
    if parts[0] != "hessmap":
        return ""
    other = parts[1] if len(parts) > 1 else ""
    if other == package or other == "__version__":
        return ""
    if other not in FLOOR:
        return f"{package} imports the public face: {imported}"
    if FLOOR[other] >= FLOOR[package]:
        return f"{package} imports {other}, which is not below it"
    if other in ALSO_HIDDEN.get(package, set()):
        return f"{package} imports {other}, which it must not see"
    if hidden := first_hidden(parts[1:]):
        return f"{package} imports {imported}, but {hidden} is not exported"
    return ""


@cache
def exported(folder: Path) -> frozenset[str] | None:
    """``__all__`` of a package; None for a file, whose names are all public."""
    file = folder / "__init__.py"
    for node in parsed(file).body if file.exists() else ():
        match node:
            case ast.Assign(targets=[ast.Name("__all__")], value=ast.List(elts=names)):
                return frozenset(str(name.value) for name in names if isinstance(name, ast.Constant))
    return frozenset() if file.exists() else None


def first_hidden(parts: list[str]) -> str:
    """The first part of a dotted name that the package before it does not export; empty where all are exported."""
    folder = SOURCE / parts[0]
    for part in parts[1:]:
        names = exported(folder)
        if names is None:
            return part if part.startswith("_") else ""
        if part not in names:
            return part
        folder /= part
    return ""


def test_every_package_imports_only_packages_below_it() -> None:
    assert violations(SOURCE) == []


def test_the_walk_sees_every_package() -> None:
    packages = {path.relative_to(SOURCE).with_suffix("").parts[0] for path in SOURCE.rglob("*.py")}
    assert packages - {"__init__", "__main__"} == set(FLOOR)


@pytest.mark.parametrize(
    ("package", "text", "reason"),
    [
        ("problem", "from hessmap.views.plots import spectrum_figure", "problem imports views"),
        ("networks", "import hessmap.datasets", "networks imports datasets"),
        ("theory", "from hessmap.measurement import spectrum", "theory imports measurement"),
        ("theory", "from hessmap.hessians import loss_hessian", "theory imports hessians"),
        ("measurement", "from hessmap import theory", "measurement imports theory"),
        ("measurement", "def late():\n    from ..networks import describe", "measurement imports networks"),
        ("theory", "def late():\n    import torch.func", "theory imports torch"),
        ("records", "from torch import Tensor", "records imports torch"),
        ("views", "from hessmap.cli import app", "views imports cli"),
        ("maps", "import hessmap", "maps imports the public face"),
        ("maps", "from hessmap.linalg.lanczos import basis", "lanczos is not exported"),
        ("utils", "import math", "utils is not a package"),
    ],
)
def test_the_guard_bites_on_a_forbidden_import(tmp_path: Path, package: str, text: str, reason: str) -> None:
    folder = tmp_path / package
    folder.mkdir()
    (folder / "allowed.py").write_text("import math\n" if package != "utils" else "")
    (folder / "forbidden.py").write_text(text)
    found = violations(tmp_path)
    assert len(found) == 1
    assert reason in found[0]


def test_the_guard_lets_the_flow_pass(tmp_path: Path) -> None:
    for package, text in {
        "maps": "from hessmap.theory import predict_ranks\nfrom hessmap.measurement import spectrum",
        "theory": "from hessmap.networks import FullyConnected\nfrom hessmap.records import RankPrediction",
        "measurement": "from hessmap.linalg import SymmetricOperator\nfrom .spectra import x",
    }.items():
        (tmp_path / package).mkdir()
        (tmp_path / package / "fine.py").write_text(text)
    assert violations(tmp_path) == []


def across_packages(name: str, source: Path) -> list[str]:
    """Every import by which one of the three packages sees another that it must not see."""
    found = []
    for path in sorted(source.rglob("*.py")):
        file = path.relative_to(source).as_posix()
        for line, imported in imported_modules(path, (name, *path.relative_to(source).parts[:-1])):
            other = imported.split(".")[0]
            places = MAY_IMPORT[name].get(other, ())
            if other in MAY_IMPORT and other != name and not any(file == one or not one for one in places):
                found.append(f"{name}: {file}:{line} imports {imported}")
    return found


@pytest.mark.parametrize(
    ("name", "source"), [("hessmap", SOURCE), ("hessmap_research", RESEARCH), ("hessmap_explorer", EXPLORER)]
)
def test_each_of_the_three_packages_sees_what_it_is_built_on(name: str, source: Path) -> None:
    assert len(list(source.rglob("*.py"))) > 20
    assert across_packages(name, source) == []


@pytest.mark.parametrize(
    ("name", "file", "text", "is_fine"),
    [
        ("hessmap", "maps/a.py", "def late():\n    import hessmap_research.papers", False),
        ("hessmap", "cli/a.py", "from hessmap_explorer import server", False),
        ("hessmap_research", "runner/a.py", "from hessmap_explorer.server import serve", False),
        ("hessmap_research", "runner/a.py", "import hessmap\nfrom hessmap.cli.options import console", True),
        ("hessmap_explorer", "maps.py", "from hessmap_research.runner.registry import find", False),
        ("hessmap_explorer", "figures/maps.py", "import hessmap_research", False),
        ("hessmap_explorer", "studies.py", "from hessmap_research.runner.registry import find", True),
        ("hessmap_explorer", "figures/studies.py", "import hessmap_research\nimport hessmap.maps", True),
    ],
)
def test_the_guard_bites_across_packages(tmp_path: Path, name: str, file: str, text: str, is_fine: bool) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert len(across_packages(name, tmp_path)) == (0 if is_fine else 1)


def test_tests_of_the_library_need_the_library_alone() -> None:
    """Tests that import another package are in its own folder."""
    found = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, name in imported_modules(path, ())
        if name.split(".")[0] in ("hessmap_research", "hessmap_explorer")
    ]
    assert found == []


def test_no_two_files_of_tests_have_one_name() -> None:
    """pytest imports them by name alone."""
    folders = ("tests", "explorer/tests", "research/tests")
    names = Counter(path.name for folder in folders for path in (ROOT / folder).rglob("*.py"))
    assert [name for name, count in names.items() if count > 1 and name != "conftest.py"] == []


def imports_by_name(source: Path) -> set[tuple[str, str]]:
    """Every import_module("hessmap...") of a file, and the name."""
    found = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(parsed(path)):
            match node:
                case ast.Call(func=ast.Name("import_module") | ast.Attribute(attr="import_module"), args=[first, *_]):
                    if isinstance(first, ast.Constant) and str(first.value).startswith("hessmap"):
                        found.add((str(path.relative_to(source)), str(first.value)))
    return found


def test_only_pictures_and_progress_are_asked_of_views_by_name() -> None:
    asked = {("progress.py", "hessmap.views.progress"), ("records/record.py", "hessmap.views.plots")}
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


@pytest.mark.parametrize("source", [SOURCE, RESEARCH, EXPLORER], ids=lambda source: source.name)
def test_no_file_gives_a_name_two_values(source: Path) -> None:
    """The second would also be what the functions between the two read."""
    twice = {}
    for path in source.rglob("*.py"):
        targets = [
            target
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        ]
        inside = (node for target in targets for node in ast.walk(target))
        names = Counter(node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        if found := [name for name, count in names.items() if count > 1 and name != "_"]:
            twice[str(path.relative_to(source))] = found
    assert not twice
