"""Commands of other packages: absent, broken or odd ones leave the rest of the program as it is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner, Result

import hessmap
from hessmap.cli import program as program_module
from hessmap.cli.program import Roof
from hessmap.errors import InvalidInput, MissingExtra

PACKAGES = {"serve": "hessmap-explorer", "study": "hessmap-research", "papers": "hessmap-research"}
LINES = [
    ("serve", []),
    ("serve", ["--port", "0", "my_models:net"]),
    ("study", []),
    ("study", ["list"]),
    ("study", ["run", "fcn/simulate", "--json", "-x"]),
    ("papers", []),
    ("papers", ["2", "Table 8", "--missing"]),
]


def program(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, object]) -> typer.Typer:
    """A program with one command of its own, and entry points that load what is given (or raise it)."""
    app = typer.Typer(cls=Roof, pretty_exceptions_enable=False)

    @app.callback()
    def options(debug: bool = False) -> None:
        pass

    @app.command("map")
    def mapped() -> None:
        typer.echo("mapped")

    made = []
    for place, (name, adding) in enumerate(entries):
        module = ModuleType(f"foreign_{place}")
        module.add = adding  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        made.append(EntryPoint(name, f"foreign_{place}:add", program_module.GROUP))
    monkeypatch.setattr(program_module, "entry_points", lambda group: made if group == program_module.GROUP else [])
    program_module.add_commands_of_packages(app)
    return app


def invoked(app: typer.Typer, *words: str) -> Result:
    return CliRunner().invoke(app, list(words), env={"COLUMNS": "120"})


def echoing(name: str, text: str = "") -> Callable[[typer.Typer], None]:
    """An entry point that adds a command which prints a text."""

    def add(app: typer.Typer) -> None:
        app.command(name)(lambda: typer.echo(text or name))

    return add


def assert_names_the_package(name: str, stderr: str) -> None:
    (line,) = stderr.splitlines()
    package = PACKAGES[name]
    assert line.startswith(
        f"hessmap: hessmap {name} needs {package}; it is not installed. Install it with: pip install"
    )
    assert f"pip install ./{package.removeprefix('hessmap-')}" in line


@pytest.mark.parametrize(("name", "words"), LINES)
def test_command_of_an_absent_package_names_it_and_the_line_that_installs_it(
    name: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = invoked(program(monkeypatch), name, *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert_names_the_package(name, done.stderr)


def test_help_lists_commands_of_absent_packages_with_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = invoked(program(monkeypatch), "--help")
    assert shown.exit_code == 0
    for name, package in PACKAGES.items():
        assert re.search(rf"{name} .*Needs {package}", shown.output)
        assert package in invoked(program(monkeypatch), name, "--help").output


def test_installed_package_takes_the_place_of_the_message(monkeypatch: pytest.MonkeyPatch) -> None:
    app = program(monkeypatch, ("serve", echoing("serve", "served")), ("other", echoing("other")))
    assert invoked(app, "serve").stdout == "served\n"
    assert invoked(app, "other").stdout == "other\n"
    assert_names_the_package("papers", invoked(app, "papers").stderr)


def test_package_may_add_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(app: typer.Typer) -> None:
        group = typer.Typer(name="study")
        group.command("list")(lambda: typer.echo("listed"))
        group.command("run")(lambda: typer.echo("run"))
        app.add_typer(group)

    assert invoked(program(monkeypatch, ("study", add)), "study", "list").stdout == "listed\n"


def raising(error: BaseException) -> Callable[[typer.Typer], None]:
    def add(app: typer.Typer) -> None:
        echoing("serve")(app)
        raise error

    return add


@pytest.mark.parametrize(
    ("adding", "reason"),
    [
        (raising(ImportError("no module\nnamed x")), "ImportError: no module named x"),
        (raising(ZeroDivisionError()), "ZeroDivisionError"),
        (raising(SystemExit(3)), "SystemExit: 3"),
        (raising(InvalidInput("odd")), "InvalidInput: odd"),
        (None, "TypeError"),
        (lambda: None, "TypeError"),
        (echoing("map", "another map"), "a package must not replace a command; map exists"),
    ],
)
def test_broken_package_breaks_no_other_command(adding: object, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = program(monkeypatch, ("broken", echoing("other")), ("serve", adding), ("later", echoing("later")))
    for words in ("map", "other", "later"):
        assert invoked(app, words).stdout.strip() == {"map": "mapped"}.get(words, words)
    assert invoked(app, "--help").exit_code == 0
    done = invoked(app, "serve", "--port", "3")
    assert (done.exit_code, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("hessmap: hessmap serve needs hessmap-explorer; foreign_1:add cannot be loaded (")
    assert reason in line
    assert "pip install ./explorer" in line


@pytest.mark.parametrize("name", ["map", "broken"])
def test_broken_package_of_others_never_hides_a_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = program(monkeypatch, (name, raising(ImportError("odd"))))
    assert invoked(app, "map").stdout == "mapped\n"
    if name == "broken":
        done = invoked(app, name)
        assert done.exit_code == 2
        assert "Repair or uninstall foreign_0:add" in done.stderr


def test_module_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("serve", "no_such_module:add", program_module.GROUP)
    monkeypatch.setattr(program_module, "entry_points", lambda group: [entry])
    app = typer.Typer(cls=Roof)
    program_module.add_commands_of_packages(app)
    assert "no_such_module:add cannot be loaded (ModuleNotFoundError: " in invoked(app, "serve").stderr


def test_debug_shows_why_a_package_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    done = invoked(program(monkeypatch, ("serve", raising(ZeroDivisionError("deep")))), "--debug", "serve")
    assert isinstance(done.exception, MissingExtra)
    assert isinstance(done.exception.__cause__, ZeroDivisionError)


def wrapped_interruption() -> ImportError:
    error = ImportError("initialization failed")
    error.__cause__ = KeyboardInterrupt()
    return error


@pytest.mark.parametrize("error", [KeyboardInterrupt(), wrapped_interruption()])
def test_interruption_while_a_package_loads_is_no_broken_package(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(type(error)):
        program(monkeypatch, ("serve", raising(error)))


@pytest.fixture(scope="module")
def library_alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment that holds what is installed here but for the two packages beside the library."""
    folder = tmp_path_factory.mktemp("installed")
    installed = [Path(place) for place in sys.path if place and any(Path(place).glob("*.dist-info"))]
    for path in (path for place in installed for path in place.iterdir()):
        is_hidden = path.name.startswith(("hessmap_", "__editable__")) or path.suffix == ".pth"
        if not is_hidden and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    source = Path(hessmap.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(folder)]), "COLUMNS": "120"}


def run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """The program without the module ``site``, which would add what is installed."""
    command = [sys.executable, "-S", "-m", "hessmap", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("name", "words"), [("serve", []), ("study", ["list"]), ("papers", ["2", "--missing"])])
def test_real_program_without_the_other_packages_names_them(
    name: str, words: list[str], library_alone: dict[str, str]
) -> None:
    done = run(library_alone, name, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert_names_the_package(name, done.stderr)


def test_real_program_without_the_other_packages_works(library_alone: dict[str, str]) -> None:
    shown = run(library_alone, "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    for name in ("map", "maps", "tracks", "predict", "certify", "function", "learning", "data"):
        assert re.search(rf"^\W*{name}\b", shown.stdout, re.MULTILINE), name
    assert "Needs hessmap-explorer" in shown.stdout
    assert "Needs hessmap-research" in shown.stdout
    predicted = run(library_alone, "predict", "64-30-20-10")
    assert (predicted.returncode, predicted.stderr) == (0, "")
    assert "Hessian" in predicted.stdout
