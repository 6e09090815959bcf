"""What strangers and scripts send: every answer is a sentence of its own kind, never a trace, never a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest
from explorers import PORT, RESULTS, client, filled_store, refused
from starlette.testclient import TestClient

from hessmap_explorer.settings import Explorer

ODD = (
    "",
    "0",
    "-1",
    "1e400",
    "nan",
    "9" * 400,
    "0x10",
    "1_000",
    "²",
    "٣",
    "名前",
    "a\x00b",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16"),
    "%00",
    "%2e%2e%2f",
    "../../etc/passwd",
    "..\\..\\x",
    "{}",
    "[]",
    "null",
    "true",
    "'; drop table maps; --",
    "<script>alert(1)</script>",
    "x" * 5000,
)
PATHS = (
    "/api/maps/{}",
    "/api/maps/{}/record",
    "/api/maps/before/rank?tolerance={}",
    "/api/maps/before/rank?tolerance=1e-9&network={}",
    "/api/compare?old=before&new={}",
    "/api/tracks/shown?name={}",
    "/api/studies/{}/x",
    "/api/studies/fcn/{}",
    "/api/studies/fcn/bias?data={}",
    "/api/studies/fcn/bias/case?key={}",
    "/api/functions/{}",
    "/api/planes/{}",
    "/api/certificates/{}",
    "/api/jobs/{}",
    "/api/{}",
    "/static/{}",
    "/{}",
    "/api/predict?family={}",
    "/api/predict?widths={}",
    "/api/predict?input_rank={}",
    "/api/predict?{}=1",
    "/api/predict?family=convolutional&kernels={}",
    "/api/predict?family=images&side={}",
    "/api/predict?family=attention&heads={}",
    "/api/predict?family=residual&inner_width={}",
    "/api/predict?family=teacher_student&coefficients={}",
    "/api/predict?family=teacher_student&inputs={}",
    "/api/predict/curve?over=widths.1&low=1&high={}",
    "/api/predict/curve?over={}&low=1&high=9",
    "/api/predict/curve?over=widths.{}&low=1&high=9",
)
BODIES: tuple[Any, ...] = (
    None,
    [],
    "text",
    7,
    {"name": None},
    {"name": ["x"]},
    {"name": "x", "seed": 10**400},
    {"name": "x", "seconds": 1e308},
    {"name": "x", "samples": 1.5},
    {"study": 7},
    {"study": "fcn/bias", "data": "x" * 100},
    {"query": []},
    {"query": {"widths": 7}},
    {"query": {"a\x00": "b"}},
    {"iterations": True},
    {"tolerance": "nan"},
    {"name": "before", "layer": "--help"},
    {"name": "before", "against": "none"},
    {"name": "none", "count": 10**9},
    {"nested": {"deep": [[[[[[1]]]]]]}},
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    store = filled_store(tmp_path_factory.mktemp("odd") / "store.sqlite")
    return client(Explorer(port=PORT, store=store, results=RESULTS))


@pytest.mark.parametrize("path", PATHS)
def test_no_odd_value_breaks_an_address(asked: TestClient, path: str) -> None:
    from urllib.parse import quote

    for value in ODD:
        answer = asked.get(path.format(quote(value, safe="")), follow_redirects=False)
        assert answer.status_code < 500, (path, value[:40], answer.text)
        if answer.is_redirect:  # the empty value: the screen that the explorer opens on
            assert answer.headers["location"] in ("/predict", "/maps")
        elif answer.status_code == 404 and "html" in answer.headers["content-type"]:
            assert answer.text == asked.get("/no-such-page").text  # the same for every address
        elif answer.status_code != 200:
            refused(answer, answer.status_code)


@pytest.mark.parametrize(
    "kind", ["map", "study", "check", "directions", "function", "plane", "certificate", "1/stop", "x/stop"]
)
def test_no_odd_body_starts_or_breaks_a_job(asked: TestClient, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap_explorer.jobs.Jobs.start", _must_not_start)
    for body in BODIES:
        answer = asked.post(f"/api/jobs/{kind}", content=json.dumps(body))
        assert 400 <= answer.status_code < 500, (kind, body, answer.text)
        refused(answer, answer.status_code)


def _must_not_start(*_: Any, **__: Any) -> Any:
    raise AssertionError("an odd body must not start a job")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
@pytest.mark.parametrize("path", ["/", "/api/predict", "/static/app.js"])
def test_odd_methods_are_refused(asked: TestClient, method: str, path: str) -> None:
    assert "by its own method" in refused(asked.request(method, path), 405)


def test_a_body_that_is_deep_long_or_of_no_text_is_refused(asked: TestClient) -> None:
    deep = "[" * 30_000 + "]" * 30_000
    for content in (deep, "{" * 60_000, '{"name": "' + "x" * 63_000 + '"}', "\ufeff{}", '{"name": NaN}', "1" * 60_000):
        answer = asked.post("/api/jobs/map", content=content.encode())
        assert 400 <= answer.status_code < 500, content[:40]
        refused(answer, answer.status_code)
    answer = asked.post("/api/jobs/map", content=b'{"name": "\xff\xfe"}')
    refused(answer, answer.status_code)
    assert 400 <= answer.status_code < 500


def test_many_fields_and_long_addresses_are_refused(asked: TestClient) -> None:
    many = "&".join(f"f{number}=1" for number in range(3000))
    for path in (f"/api/predict?{many}", f"/api/predict?widths={'9' * 60_000}", f"/api/maps/{'x' * 60_000}"):
        answer = asked.get(path)
        assert 400 <= answer.status_code < 500
        assert len(refused(answer, answer.status_code)) < 3000  # no echo of what was sent


@pytest.mark.parametrize(
    "header",
    [
        {"content-length": "-1"},
        {"content-length": "1e3"},
        {"content-length": "\xb2"},
        {"content-length": "9" * 5000},
        {"transfer-encoding": "chunked"},
        {"cookie": "a" * 5000},
        {"cookie": f"hessmap-{PORT}=\xff"},
        {"origin": "http://127.0.0.1:8642.evil.example"},
        {"host": "127.0.0.1:8642@evil.example"},
    ],
)
def test_odd_headers_are_refused(asked: TestClient, header: dict[str, str]) -> None:
    sent = {name: value.encode("latin-1") for name, value in header.items()}
    answer = asked.post("/api/jobs/map", json={"name": ""}, headers=sent)
    assert 400 <= answer.status_code < 500
    refused(answer, answer.status_code)
