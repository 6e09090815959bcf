"""The explorer where hessmap-research is not installed: two screens name the package, all others work."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from explorers import Served, running_explorer

from hessmap_explorer.settings import NO_RESEARCH
from patience import PATIENCE

# The package is not found, as if it were not installed: find_spec gives None, an import fails.
PROGRAM = textwrap.dedent("""
    import sys

    class Without:
        def __init__(self, finder):
            self.finder = finder

        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] == "hessmap_research":
                return None
            return self.finder.find_spec(name, path, target)

        def __getattr__(self, name):
            return getattr(self.finder, name)

    sys.meta_path = [Without(finder) for finder in sys.meta_path]
    from hessmap.__main__ import main

    main()
""")
REFUSED = ("studies", "studies/fcn/simulate", "studies/fcn/simulate/case?key={}", "studies/no/such-study", "papers")
ANSWERED = (
    "about",
    "predict/families",
    "predict?family=attention",
    "predict/curve?family=fully_connected&over=widths.1&low=3&high=6",
    "maps",
    "maps/before",
    "maps/before/record",
    "compare?old=before&new=after",
    "tracks",
    "tracks/shown?name=run1",
    "functions",
    "functions/one",
    "certificates/one",
    "jobs",
)
SCREENS = ("predict", "maps", "maps/before", "training", "compare?old=before&new=after", "function", "jobs")


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running_explorer(["-c", PROGRAM], tmp_path_factory.mktemp("alone")) as started:
        yield started


@pytest.fixture(scope="module")
def asked(alone: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=alone.base, headers={"origin": alone.base}, timeout=PATIENCE) as client:
        client.get(alone.link, follow_redirects=True)
        yield client


@pytest.mark.parametrize("path", REFUSED)
def test_studies_and_papers_name_the_package(asked: httpx.Client, path: str) -> None:
    answer = asked.get(f"/api/{path}")
    assert (answer.status_code, answer.json()) == (400, {"error": NO_RESEARCH})
    assert "hessmap-research" in NO_RESEARCH


def test_a_study_is_not_started(asked: httpx.Client) -> None:
    answer = asked.post("/api/jobs/study", json={"study": "fcn/simulate"})
    assert (answer.status_code, answer.json()) == (400, {"error": NO_RESEARCH})
    assert asked.get("/api/jobs").json()["jobs"] == []


@pytest.mark.parametrize("path", ANSWERED)
def test_everything_else_is_answered(asked: httpx.Client, path: str) -> None:
    answer = asked.get(f"/api/{path}")
    assert answer.status_code == 200, answer.text


def test_what_is_unknown_is_unknown(asked: httpx.Client) -> None:
    assert asked.get("/api/no-such-screen").status_code == 404


def test_the_screens_say_it_and_the_others_are_drawn(alone: Served, browser: Any) -> None:
    from playwright.sync_api import expect

    context = browser.new_context()
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    page.goto(alone.link)
    for path in ("studies", "studies/fcn/simulate", "papers"):
        page.goto(f"{alone.base}/{path}")
        expect(page.get_by_role("alert")).to_have_text(NO_RESEARCH, timeout=1000 * PATIENCE)
    faults: list[str] = []
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    for path in SCREENS:
        page.goto(f"{alone.base}/{path}")
        expect(page.locator("#screen h1").first).to_be_visible(timeout=1000 * PATIENCE)
        expect(page.get_by_role("alert")).to_have_count(0)
    context.close()
    assert faults == []
