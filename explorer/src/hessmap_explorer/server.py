"""Serving the explorer on this machine alone, to clients that send whole requests in time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hessmap.errors import InvalidInput, sentence
from hessmap_explorer.app import explorer_app
from hessmap_explorer.settings import HOST, Explorer

_ROUNDS = 3  # of the event loop, after which it has read what a new connection had sent before


@dataclass(frozen=True)
class ConnectionLimits:
    """How long a connection may take for a whole request, and how many connections may be open.

    A browser has six to one server; 100 leave files to open where a process may have 256.
    """

    request_seconds: float = 10.0
    most_open: int = 100


def bound_socket(port: int) -> socket.socket:
    """A socket on 127.0.0.1 at a port; 0 is any that is free. It listens already: the link works when it is printed."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((HOST, port))
        found.listen()
    except OSError as error:
        found.close()
        must, remedy = "the port must be free", "Give another --port, or 0 for any"
        raise InvalidInput(sentence(must, f"{port} is not ({error.strerror})", remedy)) from error
    return found


def serve(explorer: Explorer, listening: socket.socket, on_start: Callable[[], None] = lambda: None) -> None:
    """Serve until Ctrl-C."""
    server = explorer_server(explorer_app(explorer))
    on_start()
    server.run(sockets=[listening])


def explorer_server(app: Any, limits: ConnectionLimits | None = None) -> uvicorn.Server:
    """The server of an ASGI app, whose connections are held to limits.

    Args:
        app: The app.
        limits: Those of ``ConnectionLimits`` by default.

    Returns:
        The server; ``run(sockets=[...])`` serves until Ctrl-C or until its ``should_exit`` is set.
    """
    chosen = limits or ConnectionLimits()

    class Connection(LimitedConnection):
        limits = chosen

    # No websocket: a connection that is upgraded to one would leave the protocol that holds it to its limits.
    return uvicorn.Server(
        uvicorn.Config(
            app, http=Connection, ws="none", log_level="critical", access_log=False, timeout_graceful_shutdown=2
        )
    )


class LimitedConnection(H11Protocol):
    """A connection that is closed unless a whole request, header and body, arrives in time.

    uvicorn waits without end for the rest of a request: a few hundred connections that send nothing, or a byte now and
    then, take all files that the process may open. Where too many are open, those that wait for a request are closed,
    the oldest first; a connection whose request is being answered is not.
    """

    limits = ConnectionLimits()
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_timer()
        self._make_room(_ROUNDS)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._has_whole_request():
            self._stop_timer()

    def on_response_complete(self) -> None:
        self._start_timer()  # for the next request, which may have been received already
        super().on_response_complete()
        if self._has_whole_request():
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _make_room(self, rounds: int) -> None:
        """Close connections that wait for a request where too many are open, after some rounds of the loop."""
        if rounds:
            self.loop.call_soon(self._make_room, rounds - 1)
            return
        surplus = len(self.connections) - self.limits.most_open
        ours = [one for one in self.connections if isinstance(one, LimitedConnection)]
        waiting = sorted((one for one in ours if not one._has_whole_request()), key=LimitedConnection._deadline)
        for connection in waiting[: max(0, surplus)]:
            connection.transport.abort()  # what it did not read of an answer is dropped

    def _has_whole_request(self) -> bool:
        is_answering = self.cycle is not None and not self.cycle.response_complete
        return is_answering and self.conn.their_state is not h11.SEND_BODY

    def _start_timer(self) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self._timer = self.loop.call_later(self.limits.request_seconds, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _deadline(self) -> float:
        return 0.0 if self._timer is None else self._timer.when()
