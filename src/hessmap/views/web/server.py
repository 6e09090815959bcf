"""Serving the explorer on this machine alone."""

from __future__ import annotations

import socket
from collections.abc import Callable

import uvicorn

from hessmap.errors import InvalidInput, sentence
from hessmap.views.web.app import explorer_app
from hessmap.views.web.settings import HOST, Explorer


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
    config = uvicorn.Config(explorer_app(explorer), log_level="critical", access_log=False, timeout_graceful_shutdown=2)
    on_start()
    uvicorn.Server(config).run(sockets=[listening])
