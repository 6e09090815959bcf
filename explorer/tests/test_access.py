"""Who may ask the explorer: token, Host, Origin, and headers that keep its pages to themselves."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from explorers import OWN, PORT, client, refused
from starlette.testclient import TestClient

from hessmap.errors import InvalidInput
from hessmap_explorer.app import explorer_app
from hessmap_explorer.server import bound_socket
from hessmap_explorer.settings import HOST, Explorer
from patience import PATIENCE


@pytest.fixture(scope="module")
def explorer(tmp_path_factory: pytest.TempPathFactory) -> Explorer:
    return Explorer(port=PORT, store=tmp_path_factory.mktemp("access") / "store.sqlite")


def stranger(explorer: Explorer) -> TestClient:
    return TestClient(explorer_app(explorer), base_url=OWN, follow_redirects=False)


def test_without_the_token_nothing_is_shown(explorer: Explorer) -> None:
    for path in ("/", "/predict", "/api/maps", "/static/app.js", "/static/page.css"):
        assert "needs its token" in refused(stranger(explorer).get(path), 401)
    assert "needs its token" in refused(stranger(explorer).get("/?token=wrong"), 401)
    wrong, last = stranger(explorer), "y" if explorer.token.endswith("x") else "x"
    wrong.cookies.set(explorer.cookie, explorer.token[:-1] + last)
    assert "needs its token" in refused(wrong.get("/api/maps"), 401)


def test_the_link_signs_in_and_takes_the_token_out_of_the_address(explorer: Explorer) -> None:
    browser = stranger(explorer)
    answer = browser.get(f"/predict?widths=4-3-2&token={explorer.token}")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/predict?widths=4-3-2"
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", f"{explorer.cookie}="))
    assert browser.get("/predict?widths=4-3-2").status_code == 200


def test_a_link_never_leads_to_another_host(explorer: Explorer) -> None:
    answer = stranger(explorer).get(f"{OWN}//evil.example/a?token={explorer.token}")
    assert answer.headers["location"] == "/evil.example/a"


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", ""])
def test_another_host_is_refused(explorer: Explorer, host: str) -> None:
    assert "the Host is another" in refused(client(explorer, host=host).get("/api/maps"), 421)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", f"http://127.0.0.1:{PORT + 1}", "null", f"https://127.0.0.1:{PORT}"]
)
def test_another_origin_is_refused(explorer: Explorer, origin: str) -> None:
    asked = client(explorer, origin=origin)
    assert "came from another" in refused(asked.get("/api/maps"), 403)
    assert "came from another" in refused(asked.post("/api/jobs/map", json={"name": "x"}), 403)


def test_what_writes_needs_an_origin_and_reads_of_other_sites_are_refused(explorer: Explorer) -> None:
    asked = client(explorer)
    del asked.headers["origin"]
    assert "came from another" in refused(asked.post("/api/jobs/1/stop", json={}), 403)
    assert asked.get("/api/maps").status_code == 200
    other = {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}
    assert "came from another" in refused(asked.get("/api/maps", headers=other), 403)
    assert (
        asked.get("/predict", headers={"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status_code == 200
    )


def test_every_answer_keeps_to_itself(explorer: Explorer) -> None:
    for answer in (client(explorer).get("/predict"), stranger(explorer).get("/"), client(explorer).get("/nothing")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers


def test_a_long_request_is_refused(explorer: Explorer) -> None:
    assert "at most 64,000 bytes" in refused(client(explorer).post("/api/jobs/map", json={"name": "x" * 70_000}), 413)


@pytest.mark.parametrize(
    "path",
    [
        "../app.py",
        "%2e%2e/app.py",
        "..%2fapp.py",
        "vendor/../../app.py",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "__init__.py",
        "",
    ],
)
def test_no_path_leads_out_of_the_static_files(explorer: Explorer, path: str) -> None:
    answer = client(explorer).get(f"/static/{path}")
    assert answer.status_code in (404, 405)
    assert "def explorer_app" not in answer.text
    if answer.headers["content-type"].startswith("text/html"):  # the client resolved the path: an unknown page
        assert '<main id="screen"' in answer.text
    else:
        assert "explorer" in refused(answer, answer.status_code)


def test_it_listens_on_this_machine_alone_and_says_where_a_port_is_taken() -> None:
    assert HOST == "127.0.0.1"
    with bound_socket(0) as first:
        host, port = first.getsockname()
        assert host == "127.0.0.1"
        socket.create_connection((host, port), timeout=PATIENCE).close()  # the link is printed before the server is up
        with pytest.raises(InvalidInput, match=rf"the port must be free; {port} is not"):
            bound_socket(port)


def test_two_explorers_have_different_tokens_and_cookies(tmp_path: Path) -> None:
    one, other = Explorer(port=1, store=tmp_path / "a"), Explorer(port=2, store=tmp_path / "a")
    assert one.token != other.token
    assert len(one.token) >= 32
    assert one.cookie != other.cookie
    assert one.token not in repr(one)
