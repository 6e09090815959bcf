"""Connections that send half a request, or nothing: they are closed, and keep nobody else from the explorer.

The server is a real one with real sockets. No assertion depends on how long something took: a test waits for what must
happen, and what must not happen is ordered before it on the clock of the server's own loop.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hessmap_explorer.app import explorer_app
from hessmap_explorer.server import ConnectionLimits, bound_socket, explorer_server
from hessmap_explorer.settings import HOST, Explorer
from patience import PATIENCE

SOON = 0.05  # seconds; closing a connection early is what these tests wait for
NEVER = 1e6
LENGTH = b"Content-Length: 5000\r\n"


@contextmanager
def served(app: Any, port_of: socket.socket, limits: ConnectionLimits) -> Iterator[int]:
    server = explorer_server(app, limits)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [port_of]})
    thread.start()
    try:
        yield port_of.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


@contextmanager
def explorer(folder: Path, limits: ConnectionLimits) -> Iterator[Explorer]:
    with bound_socket(0) as listening:
        shown = Explorer(port=listening.getsockname()[1], store=folder / "none.sqlite")
        with served(explorer_app(shown), listening, limits):
            yield shown


def connected(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=PATIENCE)


def head(shown: Explorer, method: str = "GET", more: bytes = b"") -> bytes:
    """The header of a request that the explorer answers."""
    lines = [f"{method} /api/about HTTP/1.1", f"Host: {shown.hosts[0]}", f"Origin: http://{shown.hosts[0]}"]
    lines.append(f"Cookie: {shown.cookie}={shown.token}")
    return "\r\n".join(lines).encode() + b"\r\n" + more + b"\r\n"


def answer(connection: socket.socket) -> bytes:
    """One answer with its body, of a known length; what came before the end where the connection was closed."""
    received = b""
    while True:
        header, found, body = received.partition(b"\r\n\r\n")
        length = [line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if found and length and len(body) >= int(length[0].partition(b":")[2]):
            return received
        part = connection.recv(65536)
        if not part:
            return received
        received += part


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes it; waits until it does, or says something."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


HALVES = {
    "nothing": b"",
    "one byte": b"G",
    "no end of the header": b"GET / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n",
    "a line that goes on": b"GET /" + b"a" * 3000,
}


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES)
def test_half_a_header_is_closed(tmp_path: Path, sent: bytes) -> None:
    with explorer(tmp_path, ConnectionLimits(request_seconds=SOON)) as shown, connected(shown.port) as half:
        half.sendall(sent)
        assert is_closed(half)


def test_a_request_without_its_body_is_closed(tmp_path: Path) -> None:
    with explorer(tmp_path, ConnectionLimits(request_seconds=SOON)) as shown, connected(shown.port) as half:
        request = head(shown, "POST", LENGTH).replace(b"/api/about", b"/api/jobs/map")
        half.sendall(request + b'{"name":')
        assert is_closed(half)


def test_half_a_second_request_is_closed(tmp_path: Path) -> None:
    """uvicorn's own timer for a connection that is kept ends with the first byte of the next request."""
    with explorer(tmp_path, ConnectionLimits(request_seconds=SOON)) as shown, connected(shown.port) as half:
        half.sendall(head(shown))
        assert answer(half).startswith(b"HTTP/1.1 200")
        with suppress(OSError):  # it may be closed already
            half.sendall(b"GET /api/ab")
        assert is_closed(half)


def test_bytes_now_and_then_do_not_keep_a_connection(tmp_path: Path) -> None:
    with explorer(tmp_path, ConnectionLimits(request_seconds=SOON)) as shown, connected(shown.port) as half:
        half.settimeout(SOON / 5)
        for _ in range(100_000):
            try:
                half.sendall(b"G")
                if half.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("the connection was kept")


@pytest.mark.parametrize("sent", HALVES.values(), ids=HALVES)
def test_many_half_open_connections_keep_nobody_out(tmp_path: Path, sent: bytes) -> None:
    """More than may be open, none of which ever runs out of time: the oldest make room."""
    limits = ConnectionLimits(request_seconds=NEVER, most_open=8)
    with explorer(tmp_path, limits) as shown, ExitStack() as stack:
        halves = []
        for _ in range(40):
            halves.append(stack.enter_context(connected(shown.port)))
            halves[-1].sendall(sent)
        for _ in range(3):
            client = stack.enter_context(connected(shown.port))
            client.sendall(head(shown))
            assert answer(client).startswith(b"HTTP/1.1 200")
        assert all(is_closed(half) for half in halves[:20])


def test_more_half_open_connections_than_the_process_may_open_files(tmp_path: Path) -> None:
    """The command with the limits of a user, where a process may have 160 files."""
    code = (
        "import resource, sys; from hessmap.cli import app\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (160, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))\n"
        "app(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "serve", "--port=0", "--store=none.sqlite"]
    with (
        ExitStack() as stack,
        subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            link = urlsplit(process.stdout.readline().split()[-1])
            port = link.port
            assert port is not None
            shown = Explorer(port=port, token=link.query.partition("=")[2])
            for _ in range(300):
                stack.enter_context(connected(port)).sendall(b"GET / HTTP/1.1\r\n")
            client = stack.enter_context(connected(port))
            client.sendall(head(shown))
            assert answer(client).startswith(b"HTTP/1.1 200")
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)


def slow_app(seconds: float) -> Any:
    """Answers after a time that is measured on the loop of the server, as its timers are."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await asyncio.sleep(seconds)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
            await send({"type": "http.response.body", "body": b"slow"})

    return app


@pytest.mark.parametrize("kind", ["GET", "POST", "two at once"])
def test_a_request_that_takes_long_to_answer_is_not_cut(kind: str) -> None:
    request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
    if kind == "POST":
        request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    num_requests = 2 if kind == "two at once" else 1
    limits = ConnectionLimits(request_seconds=SOON, most_open=4)
    with bound_socket(0) as listening, served(slow_app(6 * SOON), listening, limits) as port, ExitStack() as stack:
        client = stack.enter_context(connected(port))
        client.sendall(num_requests * request)
        for _ in range(20):
            stack.enter_context(connected(port))  # too many others do not cut it either
        received = b""
        while received.count(b"slow") < num_requests:
            part = client.recv(65536)
            assert part
            received += part
        assert received.count(b"200 OK") == num_requests


def test_a_websocket_is_answered_as_a_page_that_is_not_there(tmp_path: Path) -> None:
    upgrade = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n"
    with explorer(tmp_path, ConnectionLimits()) as shown, connected(shown.port) as client:
        client.sendall(head(shown, more=upgrade).replace(b"/api/about", b"/ws"))
        assert answer(client).startswith(b"HTTP/1.1 404")
