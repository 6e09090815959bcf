"""Every route of the explorer: what it answers, and what it says to bad input (4xx, a sentence, never a trace)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explorers import PORT, RESULTS, client, filled_store, refused
from starlette.testclient import TestClient

import hessmap as hm
from hessmap.records import MapOptions, Store, add_map, load_map
from hessmap_explorer.settings import Explorer
from views.synthetic_map import curvature_map


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    return Explorer(port=PORT, store=filled_store(tmp_path_factory.mktemp("routes") / "store.sqlite"), results=RESULTS)


@pytest.fixture(scope="module")
def asked(explorer: Explorer) -> TestClient:
    return client(explorer)


@pytest.fixture(scope="module")
def nothing(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """An explorer without a store."""
    return client(Explorer(port=PORT, store=tmp_path_factory.mktemp("nothing") / "none.sqlite"))


def found(answer: Any) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["/", "/predict", "/maps/a-name", "/studies/fcn/simulate", "/jobs"])
def test_every_screen_is_the_same_page(asked: TestClient, path: str) -> None:
    answer = asked.get(path)
    assert answer.status_code == 200
    assert 'src="/static/app.js"' in answer.text


def test_about(asked: TestClient) -> None:
    assert found(asked.get("/api/about"))["data"] == "digits"


# Predict


def test_every_family_describes_its_fields_and_answers_its_defaults(asked: TestClient) -> None:
    described = found(asked.get("/api/predict/families"))
    names = [family["name"] for family in described["families"]]
    assert {"fully_connected", "convolutional", "locally_connected", "teacher_student", "attention"} <= set(names)
    for name in names:
        assert found(asked.get("/api/predict", params={"family": name}))["ranks"]
    for asks in (family["asks"] for family in described["families"]):
        assert set(asks) <= set(described["questions"])


def test_ranks_are_those_of_the_library(asked: TestClient) -> None:
    shown = found(asked.get("/api/predict?widths=64-30-20-10&input_rank=61"))
    assert {rank["part"]: rank["value"] for rank in shown["ranks"]} == {
        "loss": 1410,
        "outer_product": 610,
        "functional": 900,
    }
    assert all(rank["kind"] == "exact" and rank["reference"] for rank in shown["ranks"])
    assert shown["num_parameters"] == 2720
    assert shown["ranks"][0]["share"] == pytest.approx(1410 / 2720)
    convolutional = found(asked.get("/api/predict?family=convolutional&channels=1-8&kernels=3&strides=2&outputs=4"))
    expected = hm.predict_ranks(hm.Convolutional(20, (1, 8), (3,), (2,), 4))
    assert convolutional["ranks"][0]["value"] == expected.loss.value
    teacher = found(asked.get("/api/predict?family=teacher_student&inputs=3&hidden=2&num_extra=1&extra=output_zero"))
    assert teacher["ranks"][0]["value"] == 8  # the doctest of wider_student_rank


def test_the_printed_lines_give_the_same_ranks(asked: TestClient, capsys: pytest.CaptureFixture[str]) -> None:
    for query in ("widths=6-5-4&residual_rank=1", "family=locally_connected", "family=teacher_student"):
        shown = found(asked.get(f"/api/predict?{query}"))
        exec(shown["python"], {})
        assert str(shown["ranks"][0]["value"]) in capsys.readouterr().out


def test_the_curve_runs_over_the_number_that_is_dragged(asked: TestClient) -> None:
    figure = found(asked.get("/api/predict/curve?widths=6-5-4&over=widths.1&low=1&high=9"))
    assert figure["title"] == "Rank over width 2"
    loss = next(trace for trace in figure["traces"] if trace["colour"] == "loss")
    assert loss["x"] == list(range(1, 10))
    assert loss["y"] == [hm.predict_ranks(hm.FullyConnected((6, width, 4))).loss.value for width in range(1, 10)]
    ranks = found(asked.get("/api/predict/curve?widths=6-5-4&over=input_rank&low=1&high=9"))
    assert ranks["traces"][0]["y"][-1] is None  # seven inputs cannot have rank nine: a gap, no error


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("widths=0-3", "widths"),
        ("widths=a-b", "widths must be whole numbers with - between; got 'a'"),
        ("widths=-3-4", "whole numbers"),
        ("widths=" + "-".join(["3"] * 99), "at most 32 layers"),
        ("widths=4-999999999-3", "numbers here go up to 100,000"),
        ("widths=٣-4", "whole numbers"),
        ("family=perceptron", "family must be one of"),
        ("colour=red", "a field of Fully connected must be one of"),
        ("loss=hinge", "loss must be one of"),
        ("bias=maybe", "bias must be one of true, false"),
        ("input_rank=65", "input_rank"),
        ("widths=4-3&widths=5-3", "every field is given once"),
        ("family=teacher_student&coefficients=one", "coefficients must be numbers"),
        ("family=convolutional&kernels=3", "kernels"),
    ],
)
def test_a_prediction_that_cannot_be_made_says_why(asked: TestClient, query: str, words: str) -> None:
    answer = asked.get(f"/api/predict?{query}")
    assert words in refused(answer, answer.status_code)
    assert 400 <= answer.status_code < 500


@pytest.mark.parametrize(
    "query", ["over=widths.9", "over=bias", "over=nothing", "over=widths", "over=widths.1&low=9&high=1"]
)
def test_a_curve_that_cannot_be_drawn_says_why(asked: TestClient, query: str) -> None:
    answer = asked.get(
        f"/api/predict/curve?low=1&high=9&{query}" if "low" not in query else f"/api/predict/curve?{query}"
    )
    assert refused(answer, answer.status_code)
    assert 400 <= answer.status_code < 500


# Maps


def test_a_map_stored_from_python_is_listed_and_shown(tmp_path: Path) -> None:
    made = hm.map(hm.FullyConnected((4, 3, 2)).build(seed=0), (torch.ones(5, 4), torch.arange(5) % 2), title="own")
    made.save_to_store(path=tmp_path / "runs.sqlite")
    asked = client(Explorer(port=PORT, store=tmp_path / "runs.sqlite"))
    assert [one["name"] for one in found(asked.get("/api/maps"))["maps"]] == ["own"]
    assert found(asked.get("/api/maps/own/record")) == json.loads(made.to_json())


def test_maps_are_listed_newest_first(asked: TestClient, nothing: TestClient) -> None:
    assert [one["name"] for one in found(asked.get("/api/maps"))["maps"]] == ["after", "before"]
    assert found(nothing.get("/api/maps")) == {"maps": [], "refused": []}


def test_a_map_has_its_numbers_figures_and_lines(asked: TestClient, explorer: Explorer) -> None:
    shown = found(asked.get("/api/maps/before"))
    assert [network["name"] for network in shown["networks"]] == ["network", "network without activations"]
    assert len(shown["layers"]["blocks"]) == 3
    assert {trace["colour"] for trace in shown["networks"][0]["spectrum"]["traces"]} == {
        "loss",
        "outer_product",
        "functional",
    }
    with Store(explorer.store) as store:
        record = load_map(store, "before").record
    assert found(asked.get("/api/maps/before/record")) == json.loads(record.to_json())


@pytest.mark.parametrize("tolerance", [1e-12, 1e-6, 0.5, 1e-17])
def test_the_threshold_moves_rank_and_gap(asked: TestClient, explorer: Explorer, tolerance: float) -> None:
    """Counted here by hand, from the eigenvalues of the record."""
    with Store(explorer.store) as store:
        network = load_map(store, "before").record.network
    shown = found(asked.get(f"/api/maps/before/rank?tolerance={tolerance}"))["ranks"]
    for rank in shown:
        part = network[rank["part"]]
        values = np.sort(np.abs(part.spectrum.eigenvalues))[::-1]
        count = sum(value > tolerance * part.measurement.scale for value in values)
        assert rank["value"] == count
        if 0 < count < len(values):
            assert rank["gap"] == pytest.approx(values[count - 1] / values[count])


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/maps/none", 404),
        ("/api/maps/none/record", 404),
        ("/api/maps/before/rank?tolerance=0", 422),
        ("/api/maps/before/rank?tolerance=2", 422),
        ("/api/maps/before/rank?tolerance=nan", 422),
        ("/api/maps/before/rank", 422),
        ("/api/maps/before/rank?tolerance=1e-9&network=7", 400),
        ("/api/maps/..%2f..%2fetc%2fpasswd", 404),
        ("/api/compare?old=before&new=none", 404),
        ("/api/compare?old=before&new=before", 404),
        ("/api/compare?old=before", 422),
        ("/api/tracks/shown?name=none", 404),
        ("/api/tracks/shown", 422),
        ("/api/tracks/shown?" + "&".join(f"name=t{number}" for number in range(9)), 400),
        ("/api/studies/fcn/none", 404),
        ("/api/studies/os/system", 404),
        ("/api/studies/fcn/simulate?data=mnist", 400),
        ("/api/studies/fcn/simulate/case?key={}", 404),
        ("/api/studies/fcn/simulate/case?key=[1]", 400),
        ("/api/studies/fcn/simulate/case?key=nonsense", 400),
        ("/api/studies/fcn/simulate/case", 422),
        ("/api/functions/none", 404),
        ("/api/functions/..%2fstore", 404),
        ("/api/certificates/none", 404),
        ("/api/jobs/7", 404),
        ("/api/jobs/seven", 422),
        ("/api/nothing", 404),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(asked: TestClient, path: str, status: int) -> None:
    refused(asked.get(path), status)


def test_without_a_store_every_screen_is_empty_and_nothing_is_made(nothing: TestClient) -> None:
    assert found(nothing.get("/api/tracks")) == {"tracks": [], "refused": []}
    assert found(nothing.get("/api/functions")) == {"function": [], "plane": [], "certificate": [], "refused": []}
    assert "must be stored" in refused(nothing.get("/api/maps/a"), 400)
    assert "must be stored" in refused(nothing.get("/api/tracks/shown?name=a"), 400)


def test_an_answer_to_post_is_not_one_to_get(asked: TestClient) -> None:
    assert "by its own method" in refused(asked.post("/api/maps", json={}), 405)


def test_two_maps_are_compared(asked: TestClient) -> None:
    shown = found(asked.get("/api/compare?old=before&new=after"))
    assert [len(figure["traces"]) for figure in shown["figures"]] == [2, 2, 2, 2]
    assert shown["tables"][0]["labels"][1:3] == ["before", "after"]


# Training


def test_a_track_breaks_where_nothing_was_measured(asked: TestClient) -> None:
    shown = found(asked.get("/api/tracks/shown?name=run1"))
    figure = next(one for one in shown["figures"] if one["title"] == "Largest eigenvalues")
    sharpness = next(trace for trace in figure["traces"] if trace["label"] == "largest: the sharpness")
    gap = sharpness["y"].index(None)
    assert (sharpness["x"][gap - 1], sharpness["x"][gap + 1]) == (30, 200)
    assert [(line["at"], line["end"]) for line in figure["lines"]] == [(30, 200)]
    limit = next(trace for trace in figure["traces"] if trace["label"] == "threshold of SGD")
    assert set(limit["y"]) == {20.0, None}


def test_tracks_are_overlaid_in_colours_of_their_own(asked: TestClient) -> None:
    shown = found(asked.get("/api/tracks/shown?name=run1&name=run2"))
    labels = {trace["label"]: trace["colour"] for trace in shown["figures"][0]["traces"]}
    assert labels["run1"] != labels["run2"]
    assert [one["num_points"] for one in shown["tracks"]] == [7, 3]


# Studies and papers


def test_the_gallery_has_every_study_with_its_paper_and_verdict(asked: TestClient) -> None:
    studies = {one["name"]: one for one in found(asked.get("/api/studies"))["studies"]}
    assert len(studies) >= 65
    assert studies["fcn/rank-vs-width"]["outcome"] == "all hold"
    assert studies["fcn/rank-vs-width"]["papers"]
    assert "digits" in studies["certificates/digits"]["data"]


def test_a_study_has_its_answer_and_points_lead_to_cases(asked: TestClient) -> None:
    shown = found(asked.get("/api/studies/fcn/bias"))
    assert shown["has_records"]
    assert shown["answer"]
    points = [trace for figure in shown["figures"] for trace in figure["traces"] if trace["kind"] == "points"]
    trace = next(one for one in points if len(one["keys"]) == len(one["x"]))
    key = trace["keys"][0].split("\n")[0]
    case = found(asked.get("/api/studies/fcn/bias/case", params={"key": key}))
    assert case["key"] == key
    assert case["command"].startswith("hessmap study run fcn/bias --case")
    content = json.loads((RESULTS / "fcn-bias.json").read_text())
    assert case["record"] in [item["record"] for item in content["records"]]


def test_papers_have_their_items(asked: TestClient) -> None:
    shown = found(asked.get("/api/papers"))
    assert len(shown["papers"]) >= 5
    assert {item["status"] for item in shown["items"]} <= set(shown["statuses"])


# Jobs


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("map", {}, "name must be as the page sends it"),
        ("map", {"name": "../x"}, "name"),
        ("map", {"name": "x", "widths": "--help"}, "widths"),
        ("map", {"name": "x", "widths": "64-10; rm"}, "widths"),
        ("map", {"name": "x", "loss": "os.system"}, "loss"),
        ("map", {"name": "x", "epochs": -1}, "epochs"),
        ("map", {"name": "x", "epochs": "3"}, "epochs"),
        ("map", {"name": "x", "model": "os:system"}, "model"),
        ("study", {"study": "os:system"}, "study must be one of"),
        ("study", {"study": "fcn/simulate", "data": "../x"}, "data"),
        ("check", {"query": {"widths": "1-2-x"}}, "whole numbers"),
        ("check", {"query": {"family": "teacher_student", "num_extra": "1"}}, "as wide as its teacher"),
        ("function", {"tolerance": 2.0}, "tolerance"),
        ("plane", {"directions": "flat"}, "directions"),
        ("plane", {"points": 1}, "points"),
        ("certificate", {"iterations": 1}, "iterations"),
        ("9/stop", {}, "a job must be one of"),
    ],
)
def test_a_job_that_cannot_be_started_says_why(asked: TestClient, path: str, body: Any, words: str) -> None:
    answer = asked.post(f"/api/jobs/{path}", json=body)
    assert words in refused(answer, answer.status_code)
    assert 400 <= answer.status_code < 500


def test_a_body_that_is_no_json_is_refused(asked: TestClient) -> None:
    for content in (b"\x80\x04pickle", b"cos\nsystem\n", b"{"):
        for kind in ("application/json", "application/x-pickle"):
            answer = asked.post("/api/jobs/map", content=content, headers={"content-type": kind})
            assert answer.status_code in (400, 422)
            refused(answer, answer.status_code)


def test_a_model_of_the_users_own_comes_from_the_command_line(tmp_path: Path) -> None:
    own = client(Explorer(port=PORT, store=tmp_path / "s.sqlite", model="my:net", data="my:train"))
    answer = own.post("/api/jobs/map", json={"name": "x", "widths": "4-3-2"})
    assert "a model of your own has its own widths" in refused(answer, 400)
    assert "needs the weights" in refused(own.post("/api/jobs/certificate", json={}), 400)


def test_a_wrong_address_gets_a_page_and_wrong_data_a_sentence(asked: TestClient) -> None:
    page = asked.get("/nosuch/x")
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")
    assert '<main id="screen"' in page.text
    for path in ("/api/nosuch", "/static/nosuch.js"):
        refused(asked.get(path), 404)


def test_the_explorer_opens_on_the_served_model(tmp_path: Path) -> None:
    store = tmp_path / "store.sqlite"
    with Store(store, create=True) as opened:
        add_map(opened, "example", curvature_map(), MapOptions())
    plain, own = Explorer(store=store), Explorer(store=store, model="my:net")
    assert client(plain).get("/", follow_redirects=False).headers["location"] == "/predict"
    assert client(own).get("/", follow_redirects=False).headers["location"] == "/maps"
    with Store(store) as opened:
        for name in ("first", "the last"):
            add_map(opened, name, curvature_map(), MapOptions(model="my:net"))
    assert client(own).get("/", follow_redirects=False).headers["location"] == "/maps/the%20last"


def test_papers_have_a_question_above_their_answer(asked: TestClient) -> None:
    papers = asked.get("/api/papers").json()["papers"]
    assert len(papers) == 5
    assert all(paper["question"].endswith("?") and paper["answer"].endswith(".") for paper in papers)
