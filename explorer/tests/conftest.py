"""One explorer and one browser for all tests that look at its pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from explorers import Served, running_explorer

from patience import PATIENCE


@dataclass
class Visit:
    """A page of the explorer, with all that a browser complained about."""

    page: object
    base: str
    faults: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no browser is here: apt-get install chromium")
    pytest.importorskip("playwright.sync_api", reason="the package playwright drives the browser")
    return found


@pytest.fixture(scope="module")
def served(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running_explorer(["-m", "hessmap"], tmp_path_factory.mktemp("explorer")) as started:
        yield started


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def visit(served: Served, browser: object, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A signed-in page; whatever went wrong on it fails the test that used it."""
    options = {"viewport": {"width": 1400, "height": 900}, "color_scheme": "light", **getattr(request, "param", {})}
    context = browser.new_context(**options)  # type: ignore[attr-defined]
    context.set_default_timeout(1000 * PATIENCE)
    faults: list[str] = []

    def only_this_server(route: object) -> None:
        address = route.request.url  # type: ignore[attr-defined]
        if address.startswith((served.base, "data:", "blob:")):
            route.continue_()  # type: ignore[attr-defined]
        else:
            faults.append(f"request to {address}")
            route.abort()  # type: ignore[attr-defined]

    context.route("**/*", only_this_server)
    page = context.new_page()
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(served.link)
    yield Visit(page, served.base, faults)
    context.close()
    assert faults == []
