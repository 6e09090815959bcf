"""``hessmap map --name`` and ``hessmap maps list | show | compare``: what the commands print, store and write."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from hessmap.cli import app
from hessmap.records import CurvatureMap, MapComparison

SMALL = ("--widths", "64-4-10", "--samples", "60")
STORE = ("--store", "store.sqlite")
NO_FIGURES = ("hessmap.views.plots.save_figure", lambda *_: [])  # beside a new map: most of its time


STORED = ("list", "show", "compare")


def run(*words: str, code: int = 0) -> Result:
    """``hessmap maps`` if the first word is a command about stored maps, else ``hessmap map``."""
    command = "maps" if words[0] in STORED else "map"
    result = CliRunner().invoke(app, [command, *words], env={"COLUMNS": "160"})
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with two checkpoints of one network and a map of another loss, made once."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(*NO_FIGURES)
        run(*SMALL, *STORE, "--name", "run1", "--epochs", "1")
        run(*SMALL, *STORE, "--name", "run3", "--epochs", "3")
        run(*SMALL, *STORE, "--name", "squares", "--epochs", "1", "--loss", "squared", "--no-certify")
        return (folder / "store.sqlite").read_bytes()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: bytes) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HESSMAP_STORE", raising=False)
    monkeypatch.setattr(*NO_FIGURES)
    (tmp_path / "store.sqlite").write_bytes(stored)
    return tmp_path


class Page(HTMLParser):
    """What a page would load, and whether its tags close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attributes)
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def self_contained(path: str) -> str:
    """The text of a page, which must be whole, load nothing, and fit light, dark and a phone."""
    text = Path(path).read_text()
    page = Page(text)
    assert page.open == []
    assert all(target.startswith(("#", "data:")) for target in page.loads)
    without_scripts = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"url\((?!#)|@import|<script", without_scripts)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    return text


def test_list_shows_every_map_with_its_network_and_risk() -> None:
    text = run("list", *STORE).stdout
    for shown in ("run1", "run3", "squares", "64-4-10 relu", "cross_entropy", "296"):
        assert shown in text
    listed = json.loads(run("list", "--json", *STORE).stdout)
    assert [item["name"] for item in listed] == ["run1", "run3", "squares"]
    assert listed[1]["command"].startswith("hessmap map --samples=60 --widths=64-4-10 ")
    assert listed[1]["risk"] < listed[0]["risk"]


def test_list_without_a_store_says_how_to_make_one_and_makes_none() -> None:
    assert "hessmap map makes one" in run("list", "--store", "none.sqlite").stdout
    assert json.loads(run("list", "--json", "--store", "none.sqlite").stdout) == []
    assert not Path("none.sqlite").exists()


def test_show_prints_the_map_and_the_command_that_made_it() -> None:
    text = run("show", "run3", *STORE).stdout
    for shown in (
        "run3: hessmap map --samples=60 --widths=64-4-10",
        "--epochs=3",
        "64-4-10 relu",
        "Layers",
        "Findings",
    ):
        assert shown in text


def test_show_json_is_the_record_and_a_page_beside_it_is_said_on_stderr() -> None:
    shown = run("show", "run3", "--json", "--html", "pages/map.html", *STORE)
    assert CurvatureMap.from_json(shown.stdout).title == "run3"
    assert shown.stderr.strip() == "Written: pages/map.html"


def without_scripts(text: str) -> str:
    """A page as it is read; its interactive figures write pictures of their own by a script."""
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_the_page_of_a_map_has_findings_figures_tables_and_how_to_reproduce() -> None:
    run("show", "run3", "--html", "map.html", *STORE)
    text = self_contained("map.html")
    assert "<h1>64-4-10 relu, cross_entropy loss, 60 samples</h1>" in text
    assert without_scripts(text).count("<svg") == 3
    assert "largest eigenvalue of the Hessian (sharpness)" in text
    assert "Where the parameters are, and where the curvature is" in text
    assert "hessmap maps show --html=map.html run3" in text
    assert re.search(r"hessmap map --samples=60 --widths=64-4-10 --epochs=3 --name=run3", text)
    for fixed in ("#222222", "#ffffff;", "#8a8a8a", "fill: #f4f4f4"):
        assert fixed not in text.split("</style>", 1)[1], "a colour that does not follow the page"


def test_compare_says_what_changed_per_layer() -> None:
    text = run("compare", "run1", "run3", *STORE).stdout
    for shown in ("run1 → run3", "gradient norm", "largest eigenvalue", "The risk fell from", "as sharp"):
        assert shown in text


def test_compare_speaks_json_and_agrees_with_the_maps() -> None:
    found = MapComparison.from_json(run("compare", "run1", "run3", "--json", *STORE).stdout)
    old, new = (CurvatureMap.from_json(run("show", name, "--json", *STORE).stdout) for name in ("run1", "run3"))
    assert (found.old.name, found.new.name, found.caveats) == ("run1", "run3", ())
    for change, before, after in zip(found.layers, old.network.layers, new.network.layers, strict=True):
        assert (change.top_eigenvalue.old, change.top_eigenvalue.new) == (before.top_eigenvalue, after.top_eigenvalue)
        assert change.top_eigenvalue.ratio == after.top_eigenvalue / before.top_eigenvalue


def test_the_page_of_a_comparison_has_caveats_figures_tables_and_both_commands() -> None:
    run("compare", "run1", "squares", "--html", "comparison.html", "--figure", "bars.svg", *STORE)
    text = self_contained("comparison.html")
    assert without_scripts(text).count("<svg") == 3
    assert 'class="verdict open"' in text
    assert "The losses differ: cross_entropy and squared." in text
    for name in ("run1", "squares"):
        assert re.search(f"hessmap map --samples=60 .*--widths=64-4-10 .*--name={name}", text)
    assert "<svg" in Path("bars.svg").read_text()


def test_a_map_can_be_compared_with_itself() -> None:
    assert "Nothing changed" in run("compare", "run1", "run1", "--html", "same.html", *STORE).stdout


def test_a_taken_name_is_refused_before_any_work_and_replaced_when_asked() -> None:
    refused = run(*SMALL, *STORE, "--name", "run1", code=2)
    assert "a map must have a unique name; store.sqlite has 'run1'" in refused.stderr
    assert "training" not in refused.stderr
    run(*SMALL, *STORE, "--name", "run1", "--seed", "5", "--epochs", "1", "--replace")
    (found,) = [item for item in json.loads(run("list", "--json", *STORE).stdout) if item["name"] == "run1"]
    assert "--seed=5" in found["command"]


def test_without_a_name_the_time_is_the_name_and_two_in_a_second_do_not_collide() -> None:
    for _ in range(2):
        run(*SMALL, *STORE, "--epochs", "1")
    names = [item["name"] for item in json.loads(run("list", "--json", *STORE).stdout)]
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"\d{8}-\d{6}(-2)?", name) for name in names[3:])


def test_the_store_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HESSMAP_STORE", "store.sqlite")
    assert "run3" in run("list").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list_", "run1"], "Got unexpected extra argument"),
        (["my_models"], "a model is named as PACKAGE.MODULE:ATTRIBUTE; got 'my_models'."),
        (["directions", "--epochs", "1"], "Stored maps: hessmap maps directions."),
        (["show", "run4", *STORE], "map must be one of run1, run3, squares; got 'run4'"),
        (["compare", "run1", "run4", *STORE], "got 'run4'"),
        (["show", "run1", "--store", "none.sqlite"], "the store must exist; there is none at none.sqlite"),
        (
            ["show", "run1", "--html", "store.sqlite/map.html", *STORE],
            "the file must be writable; store.sqlite/map.html",
        ),
        (["compare", "run1", "run3", "--figure", "bars.gif", *STORE], "a figure file must end in .png, .svg, .pdf"),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(words: list[str], message: str) -> None:
    done = run(*words, code=2)
    assert message in done.stderr
    assert done.stdout == ""


def test_help_teaches_the_commands_and_speaks_of_hessmap_map() -> None:
    text = run("--help").stdout
    assert re.search(r"Usage: \w+ map \[OPTIONS\] \[PACKAGE.MODULE:ATTRIBUTE\]", text)
    for shown in ("hessmap maps list", "--objective my:contrastive", "--loss own", "--ranks", "--replace"):
        assert shown in text
    for command in STORED:
        assert "--store" in run(command, "--help").stdout


@pytest.mark.parametrize("words", [["list"], ["show", "run1"], ["compare", "run1", "run3"]])
def test_stored_maps_are_shown_without_torch(words: list[str]) -> None:
    program = (
        "import sys; from hessmap.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sorted({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, "maps", *words, *STORE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "run1" in done.stdout
    assert done.stdout.rsplit("LOADED", 1)[1].split() == []
