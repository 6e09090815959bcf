"""Function and certificate with data, downloads of every figure, and pages that are sent, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from explorers import Served

from hessmap.records import Store, load_map
from hessmap.views.page import map_page
from patience import PATIENCE

pytest.importorskip("playwright.sync_api", reason="the package playwright drives the browser")
from playwright.sync_api import expect

expect.set_options(timeout=1000 * PATIENCE)


def test_function_and_certificate_show_what_was_kept(visit: Any) -> None:
    page = visit.page
    visit.open("/function")
    expect(page.locator("#function .verdict")).to_contain_text("samples")
    expect(page.locator("#function figure")).to_have_count(4)
    expect(page.locator("#plane .verdict")).to_contain_text("quadratic model")
    expect(page.locator("#certificate .verdict")).to_contain_text("With confidence")
    gauge = page.locator("#certificate figure")
    gauge.scroll_into_view_if_needed()
    expect(gauge).to_have_attribute("data-drawn", "true")
    expect(gauge).to_contain_text("bound 0.")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["maps/before", "compare?old=before&new=after", "training?name=run1", "function"])
def test_every_figure_of_a_screen_is_downloaded(visit: Any, path: str, tmp_path: Path) -> None:
    page = visit.page
    visit.open(f"/{path}")
    expect(page.locator("figure").first).to_be_visible()
    for figure in page.locator("figure").all():
        figure.scroll_into_view_if_needed()
        expect(figure).to_have_attribute("data-drawn", "true")
        for kind, beginning in (("SVG", b"<svg"), ("PNG", b"\x89PNG"), ("CSV", b'"series"')):
            with page.expect_download() as started:
                figure.get_by_role("button", name=kind).click()
            target = tmp_path / started.value.suggested_filename
            started.value.save_as(target)
            assert target.read_bytes().startswith(beginning), (path, kind)
        figure.get_by_role("button", name="Python").click()
        expect(figure.locator("pre")).to_contain_text("savefig(")


def test_a_page_that_is_sent_is_one_file(browser: Any, served: Served, tmp_path: Path) -> None:
    with Store(served.store) as store:
        text = map_page(load_map(store, "before"))
    path = tmp_path / "map.html"
    path.write_text(text, encoding="utf-8")
    context = browser.new_context(color_scheme="dark", java_script_enabled=False)
    asked: list[str] = []
    faults: list[str] = []
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    page.goto(path.as_uri())
    expect(page.locator("figure")).to_have_count(4)
    assert [address for address in asked if re.match(r"https?:|ws:", address)] == []
    assert len([address for address in asked if address.startswith("file:")]) == 1
    assert faults == []
    context.close()


def test_broken_entries_are_named_beside_the_sound_ones(visit: Any, served: Served) -> None:
    page = visit.page
    broken = served.store.parent / "explorer" / "function-broken.json"
    broken.symlink_to("/etc/passwd")
    with Store(served.store) as store:
        store.execute("UPDATE map SET options = '{' WHERE name = 'after'")
    try:
        visit.open("/function")
        expect(page.get_by_role("alert")).to_contain_text("function-broken.json")
        expect(page.locator("#function .verdict")).to_contain_text("samples")
        visit.open("/maps")
        expect(page.get_by_role("alert")).to_contain_text("'after': ")
        expect(page.locator('a[href="/maps/before"]')).to_be_visible()
    finally:
        broken.unlink()
        with Store(served.store) as store:
            store.execute("UPDATE map SET options = NULL WHERE name = 'after'")
