"""The three wheels as pip installs them: what is in each, and that the library runs alone and the others with it.

``make wheel`` runs this on what it built (``HESSMAP_WHEELS``); else the wheels are built here, from copies.
"""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest

import hessmap
from patience import PATIENCE

ROOT = Path(__file__).parents[1]
FOLDERS = {"hessmap": ROOT, "hessmap_explorer": ROOT / "explorer", "hessmap_research": ROOT / "research"}
NOT_OF_THE_LIBRARY = ("plotly", "studies", "papers", "results", "static", "serve", "explorer", "research", "tests")
slow = pytest.mark.slow


@dataclass(frozen=True)
class Wheel:
    """A built wheel: its files without those of its metadata, and its metadata."""

    path: Path
    content: dict[str, bytes]
    metadata: Message
    licences: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Wheel:
        with zipfile.ZipFile(path) as archive:
            every = {name: archive.read(name) for name in archive.namelist()}
        (about,) = (name for name in every if name.endswith(".dist-info/METADATA"))
        folder = about.removesuffix("METADATA")
        own = {name: text for name, text in every.items() if not name.startswith(folder)}
        licences = tuple(name.rsplit("/", 1)[1] for name in every if name.startswith(f"{folder}licenses/"))
        return cls(path, own, message_from_string(every[about].decode()), licences)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Wheel]:
    given = os.environ.get("HESSMAP_WHEELS")
    folder = ROOT / given if given else built_wheels(tmp_path_factory.mktemp("wheels"))
    found = {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}
    assert sorted(found) == sorted(FOLDERS)
    return {name: Wheel.read(path) for name, path in found.items()}


def built_wheels(folder: Path) -> Path:
    """Build all three from copies; that of the research package still has a result of an earlier build."""
    pytest.importorskip("build", reason="the package build makes wheels")
    left_out = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "tests", "docs")
    copy = folder / "repository"
    for name in ("src", "explorer", "research"):
        shutil.copytree(ROOT / name, copy / name, ignore=left_out)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    stale = copy / "research/build/lib/hessmap_research/results/no-longer.json.gz"
    stale.parent.mkdir(parents=True)
    stale.write_bytes(gzip.compress(b"{}"))
    for project in (copy, copy / "explorer", copy / "research"):
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist")]
        done = subprocess.run([*command, str(project)], check=False, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


def sources(name: str) -> dict[str, bytes]:
    """Every file of a package as the repository has it."""
    root = FOLDERS[name] / "src"
    paths = [path for path in (root / name).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}


@slow
@pytest.mark.parametrize("name", ["hessmap", "hessmap_explorer"])
def test_a_wheel_has_every_file_of_its_package_and_no_other(wheels: dict[str, Wheel], name: str) -> None:
    """Modules, templates, scripts and data alike: none of them is forgotten by the list of package data."""
    assert wheels[name].content == sources(name)


@slow
def test_the_wheel_of_the_library_has_nothing_of_the_others(wheels: dict[str, Wheel]) -> None:
    library = wheels["hessmap"]
    parts = {part for name in library.content for part in Path(name).with_suffix("").parts}
    assert not parts & set(NOT_OF_THE_LIBRARY)
    assert not any("plotly" in licence for licence in library.licences)
    required = " ".join(library.metadata.get_all("Requires-Dist", []))
    assert not any(package in required for package in ("fastapi", "uvicorn", "distributed", "scikit-learn"))


@slow
def test_the_wheel_of_the_studies_has_their_results(wheels: dict[str, Wheel]) -> None:
    content = wheels["hessmap_research"].content
    packed = {name: text for name, text in content.items() if name.startswith("hessmap_research/results/")}
    stored = {path.name: path.read_bytes() for path in (ROOT / "research" / "results").glob("*.json")}
    assert len(stored) > 50
    unpacked = {Path(name).name.removesuffix(".gz"): gzip.decompress(text) for name, text in packed.items()}
    assert unpacked == stored
    assert {name: text for name, text in content.items() if name not in packed} == sources("hessmap_research")


@slow
@pytest.mark.parametrize("name", FOLDERS)
def test_a_wheel_carries_its_licences_and_the_common_version(wheels: dict[str, Wheel], name: str) -> None:
    bundled = {"hessmap": {"digits-LICENSE.txt"}, "hessmap_explorer": {"plotly-LICENSE.txt"}}
    assert set(wheels[name].licences) == {"LICENSE", *bundled.get(name, ())}
    assert wheels[name].metadata["Version"] == hessmap.__version__


def test_the_packages_share_a_version_and_a_licence() -> None:
    for folder in ("explorer", "research"):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert project["version"] == hessmap.__version__
        assert f"hessmap[cli]=={hessmap.__version__}" in project["dependencies"]
        assert (ROOT / folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of this environment without those of this project, installed or editable."""
    folder = tmp_path_factory.mktemp("others")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(("hessmap", "__editable__")) and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


@dataclass(frozen=True)
class Installed:
    """Wheels in a folder of their own, with the other packages of this environment."""

    search_path: str
    folder: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Python with nothing but these packages: without the module site, no editable install is found."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HESSMAP_")}
        environment |= {"PYTHONPATH": self.search_path, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-S", *words]
        options = {"check": False, "capture_output": True, "text": True, "timeout": PATIENCE}
        return subprocess.run(command, cwd=self.folder, env=environment, **options)  # type: ignore[call-overload]

    def hessmap(self, *words: str) -> str:
        done = self.run("-m", "hessmap", *words)
        assert done.returncode == 0, done.stderr
        return str(done.stdout)


def installed(wheels: dict[str, Wheel], names: tuple[str, ...], others: Path, folder: Path) -> Installed:
    """What ``pip install --no-deps`` does with a wheel of pure Python: its files and its metadata in one folder."""
    for name in names:
        with zipfile.ZipFile(wheels[name].path) as archive:
            archive.extractall(folder / "packages")
    (folder / "work").mkdir()
    return Installed(os.pathsep.join((str(folder / "packages"), str(others))), folder / "work")


@pytest.fixture(scope="module")
def library(wheels: dict[str, Wheel], others: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return installed(wheels, ("hessmap",), others, tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def everything(wheels: dict[str, Wheel], others: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return installed(wheels, tuple(FOLDERS), others, tmp_path_factory.mktemp("everything"))


@slow
def test_examples_run_with_the_library_alone(library: Installed) -> None:
    """Those of docstrings; that of the README needs transformers, ``make first-contact`` runs it."""
    program = """if True:
        import doctest, importlib, importlib.util, sys
        import hessmap
        assert hessmap.__file__.startswith(sys.argv[1]), hessmap.__file__
        assert not any(map(importlib.util.find_spec, ("hessmap_explorer", "hessmap_research")))
        names = ("maps.curvature_map.curvature_map", "measurement.eigenpairs", "certificates.certify")
        found = [doctest.testmod(importlib.import_module(f"hessmap.{name}")) for name in names]
        print(sum(one.attempted for one in found))
        sys.exit(sum(one.failed for one in found))
    """
    done = library.run("-c", program, str(library.folder.parent))
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > 5


@slow
@pytest.mark.parametrize(
    ("words", "package"),
    [
        (("study",), "hessmap-research"),
        (("study", "show", "cnn/locality"), "hessmap-research"),
        (("papers", "--json"), "hessmap-research"),
        (("serve",), "hessmap-explorer"),
    ],
)
def test_a_command_of_another_package_names_it(library: Installed, words: tuple[str, ...], package: str) -> None:
    done = library.run("-m", "hessmap", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"needs {package}; it is not installed. Install it with: pip install ./" in done.stderr


@slow
def test_commands_of_the_library_run_without_the_others(library: Installed) -> None:
    assert "696" in library.hessmap("predict", "64-12-8-10", "--input-rank", "61")
    assert "hessmap-explorer" in library.hessmap("--help")


@slow
def test_stored_results_are_shown_from_the_wheels(everything: Installed) -> None:
    shown = everything.hessmap("study", "show", "cnn/locality")
    assert "packages/hessmap_research/results/cnn-locality.json.gz" in shown.replace("\n", "")
    assert "agree" in shown
    assert "Singh, Bachmann & Hofmann 2021" in everything.hessmap("papers")
    everything.hessmap("papers", "--html", "papers.html")
    assert (everything.folder / "papers.html").stat().st_size > 100_000
    assert "127.0.0.1" in everything.hessmap("serve", "--help")


@slow
def test_a_study_runs_and_is_exported_beside_the_packages(everything: Installed) -> None:
    packages = everything.folder.parent / "packages"
    before = sorted(path for path in packages.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__")
    everything.hessmap("study", "run", "fcn/simulate", "--engine", "inline")
    everything.hessmap("study", "export", "fcn/simulate")
    assert (everything.folder / "results" / "fcn-simulate.json").is_file()
    assert (
        sorted(path for path in packages.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__") == before
    )
