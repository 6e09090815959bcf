"""The explorer as people use it, in a real browser: every flow, without a console error or a request elsewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from explorers import Served, point

import hessmap as hm
from hessmap.records import Store, add_point, load_map
from patience import PATIENCE

pytest.importorskip("playwright.sync_api", reason="the package playwright drives the browser")
from playwright.sync_api import expect

expect.set_options(timeout=1000 * PATIENCE)
SCREENS = ("predict", "maps", "maps/before", "training", "compare", "studies", "papers", "function", "jobs")


def loss_rank(page: Any) -> Any:
    return page.locator('.rank[data-part="loss"] .value').first


def test_typing_an_architecture_shows_its_ranks_and_the_address_is_the_state(visit: Any) -> None:
    page = visit.page
    visit.open("/predict")
    expect(loss_rank(page)).to_have_text("1,440")
    page.get_by_role("spinbutton", name="Widths 2").fill("5")
    expected = hm.predict_ranks(hm.FullyConnected((64, 5, 20, 10))).loss.value
    expect(loss_rank(page)).to_have_text(f"{expected:,}")
    page.get_by_label("Add to Widths").click()
    deeper = hm.predict_ranks(hm.FullyConnected((64, 5, 20, 20, 10))).loss.value
    expect(loss_rank(page)).to_have_text(f"{deeper:,}")
    expect(page).to_have_url(f"{visit.base}/predict?family=fully_connected&widths=64-5-20-20-10")
    page.reload()
    expect(loss_rank(page)).to_have_text(f"{deeper:,}")
    page.get_by_role("spinbutton", name="Input rank", exact=True).fill("65")
    expect(page.get_by_role("alert")).to_contain_text("input_rank")
    visit.faults.clear()  # the browser notes the refusal


def test_dragging_a_slider_moves_the_rank_and_what_the_curve_runs_over(visit: Any) -> None:
    page = visit.page
    visit.open("/predict?widths=8-6-4")
    expect(page.locator(".curve figure[data-drawn]")).to_be_visible()
    slider = page.get_by_role("slider", name="Widths 3, slider")
    slider.focus()
    page.keyboard.press("ArrowRight")
    expected = hm.predict_ranks(hm.FullyConnected((8, 6, 5))).loss.value
    expect(loss_rank(page)).to_have_text(f"{expected:,}")
    expect(page.locator(".curve h3")).to_have_text("Rank over width 3")


def test_every_family_shows_ranks(visit: Any) -> None:
    page = visit.page
    visit.open("/predict")
    for family in page.locator(".family").all():
        family.click()
        expect(loss_rank(page)).to_be_visible()
        expect(page.get_by_role("alert")).to_have_count(0)


def test_the_check_in_exact_arithmetic_agrees(visit: Any) -> None:
    page = visit.page
    visit.open("/predict?widths=6-5-4&residual_rank=1")
    page.get_by_role("button", name="Check in exact arithmetic").click()
    expect(page.locator(".checked .verdict")).to_have_count(3)
    for line in page.locator(".checked .verdict").all():
        expect(line).to_contain_text("agrees")


def test_dragging_the_threshold_moves_rank_and_gap(visit: Any, served: Served) -> None:
    page = visit.page
    visit.open("/maps/before")
    with Store(served.store) as store:
        network = load_map(store, "before").record.network
    first = page.locator('section[data-network="0"]')
    rank = first.locator('.rank[data-part="loss"] .value')
    expect(rank).to_have_text(f"{network['loss'].measurement.value}")
    line = first.get_by_role("slider")
    expect(first.locator("figure[data-drawn]")).to_be_visible()
    before = first.locator('.rank[data-part="loss"] .gap').inner_text()
    line.scroll_into_view_if_needed()
    box = line.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y - 60, steps=5)
    page.mouse.up()
    tolerance = 10 ** float(line.get_attribute("aria-valuenow"))
    part = network["loss"]
    near = {int((abs(part.spectrum.eigenvalues) > tolerance * slack).sum()) for slack in (0.98, 1.02)}
    expect(page).to_have_url(re.compile(r"/maps/before\?tolerance="))
    expect(first.locator('.rank[data-part="loss"] .gap')).not_to_have_text(before)
    expect(rank).to_have_text(re.compile("|".join(map(str, range(min(near), max(near) + 1)))))


def test_a_click_on_a_layer_shows_its_block(visit: Any) -> None:
    page = visit.page
    visit.open("/maps/before")
    page.get_by_role("row", name="Layer 2").click()
    expect(page.locator('[data-layer="2"]')).to_contain_text("Its block of the loss Hessian")


def test_a_study_answers_first_and_a_point_leads_to_its_case(visit: Any) -> None:
    page = visit.page
    visit.open("/studies")
    page.get_by_label("Search questions").fill("bias in every layer")
    page.get_by_role("link", name="fcn/bias").first.click()
    expect(page.locator(".answer")).to_contain_text("cases agree with the prediction")
    figure = page.locator("figure[data-drawn]").first
    expect(figure).to_be_visible()
    circle = figure.locator(".points path.point").nth(3)
    circle.scroll_into_view_if_needed()
    box = circle.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("hessmap study run fcn/bias --case")
    expect(dialog).to_contain_text('"measured"')
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


@pytest.mark.slow
def test_a_small_map_is_made_watched_and_opened(visit: Any, served: Served) -> None:
    page = visit.page
    visit.open("/maps")
    if not page.get_by_label("Name").is_visible():
        page.get_by_text("New map").click()
    for label, value in (("Name", "fresh"), ("Widths", "64-3-10"), ("Epochs", "1"), ("Samples", "60")):
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="Make the map").click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.get_by_role("link", name="Open the result").click()
    expect(page.get_by_role("heading", name="64-3-10 relu")).to_be_visible()
    with Store(served.store) as store:
        assert load_map(store, "fresh").record.network.num_parameters == 64 * 3 + 3 * 10


@pytest.mark.slow
def test_a_job_can_be_stopped(visit: Any) -> None:
    page = visit.page
    visit.open("/studies/fcn/rank-vs-width")
    page.get_by_role("button", name="Run the study").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.locator('.job[data-status="stopped"], .job[data-status="done"]')).to_be_visible()


def test_a_track_grows_while_it_is_watched(visit: Any, served: Served) -> None:
    page = visit.page
    visit.open("/training?name=run2")
    expect(page.locator("p.points")).to_contain_text("3 points")
    expect(page.locator("figure[data-drawn]").first).to_be_visible()
    with Store(served.store) as store:
        add_point(store, "run2", point(30, 14.0), 11.0, 1.1)
    expect(page.locator("p.points")).to_contain_text("4 points")
    page.get_by_label("run1").check(force=True)
    expect(page.locator("figure").first).to_contain_text("run1")


def test_two_maps_are_compared(visit: Any) -> None:
    page = visit.page
    visit.open("/compare?old=before&new=after")
    expect(page.get_by_role("heading", name="The three Hessians")).to_be_visible()
    expect(page.locator("figure[data-drawn]").first).to_contain_text("after")


@pytest.mark.parametrize("kind", ["SVG", "PNG", "CSV"])
@pytest.mark.slow
def test_a_figure_is_downloaded(visit: Any, kind: str, tmp_path: Path) -> None:
    page = visit.page
    visit.open("/predict?widths=8-6-4")
    expect(page.locator(".curve figure[data-drawn]")).to_be_visible()
    with page.expect_download() as started:
        page.locator(".curve").get_by_role("button", name=kind).click()
    path = tmp_path / started.value.suggested_filename
    started.value.save_as(path)
    content = path.read_bytes()
    beginnings = {"SVG": b"<svg", "PNG": b"\x89PNG", "CSV": b'"series"'}
    assert path.suffix == f".{kind.lower()}"
    assert content.startswith(beginnings[kind])
    if kind == "CSV":
        expected = hm.predict_ranks(hm.FullyConnected((8, 7, 4))).loss.value
        assert f'"H_L",7,{expected},' in content.decode()


def test_the_lines_of_python_are_shown(visit: Any) -> None:
    page = visit.page
    visit.open("/predict?widths=8-6-4")
    page.locator(".curve").get_by_role("button", name="Python").click()
    expect(page.locator(".curve pre")).to_contain_text("hm.predict_ranks(")


def test_the_keyboard_is_enough(visit: Any) -> None:
    page = visit.page
    visit.open("/predict")
    expect(loss_rank(page)).to_be_visible()
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Maps":
            break
    assert page.evaluate("document.activeElement.textContent") == "Maps"
    ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert ring != "none"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Maps of curvature")).to_be_visible()
    page.locator('a[href="/maps/before"]').focus()
    page.keyboard.press("Enter")
    line = page.locator('section[data-network="0"]').get_by_role("slider")
    rank = page.locator('section[data-network="0"] .rank[data-part="loss"] .value')
    expect(rank).to_be_visible()
    at_start = rank.inner_text()
    line.focus()
    for _ in range(4):
        page.keyboard.press("PageUp")
    expect(rank).not_to_have_text(at_start)
    page.get_by_role("row", name="Layer 0").focus()
    page.keyboard.press("Enter")
    expect(page.locator('[data-layer="0"]')).to_be_visible()


@pytest.mark.parametrize(
    "visit",
    [
        {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
        for width, scheme in ((420, "dark"), (1400, "light"))
    ],
    indirect=True,
    ids=["phone in the dark", "desk in the light"],
)
@pytest.mark.slow
def test_every_screen_fits_its_width_in_its_colours(visit: Any) -> None:
    page = visit.page
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    for screen in SCREENS:
        visit.open(f"/{screen}")
        expect(page.locator("main h1")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, screen
        red, green, blue = json.loads(
            page.evaluate("getComputedStyle(document.body).backgroundColor").replace("rgb(", "[").replace(")", "]")
        )
        assert (red + green + blue < 384) == is_dark, screen
    page.get_by_label("Switch between light and dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == ("light" if is_dark else "dark")


def test_what_is_not_there_is_said_on_the_page(visit: Any) -> None:
    page = visit.page
    visit.open("/maps/none")
    expect(page.get_by_role("alert")).to_contain_text("map must be one of")
    visit.faults.clear()  # the browser notes the 404
