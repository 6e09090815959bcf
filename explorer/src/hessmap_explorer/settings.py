"""What an explorer shows and to whom: fixed when it is started, never by a browser."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from hessmap.errors import sentence
from hessmap.records import DEFAULT_STORE

HOST = "127.0.0.1"
NO_RESEARCH = sentence(
    "studies and papers need the package hessmap-research",
    "it is not installed",
    "Install it with: pip install ./research (in a clone), or from its wheel",
)


@dataclass(frozen=True)
class Explorer:
    """``model``, ``initial`` and ``data`` are references (package.module:attribute) from the command line.

    Without a model the embedded example stands in its place: a small network that is trained on digits. ``token`` is
    the secret of the link; who does not have it sees nothing.
    """

    port: int = 8642
    store: Path = DEFAULT_STORE
    results: Path | None = None
    model: str | None = None
    initial: str | None = None
    data: str = "digits"
    loss: str = "cross_entropy"
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def cookie(self) -> str:
        """Cookies are shared by all ports of a machine: the name tells two explorers apart."""
        return f"hessmap-{self.port}"

    @property
    def link(self) -> str:
        return f"http://{HOST}:{self.port}/?token={self.token}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """What a browser that was sent here calls this server; any other name is a trick."""
        return tuple(f"{name}:{self.port}" for name in (HOST, "localhost"))

    @property
    def folder(self) -> Path:
        """Where results lie that the store has no table for: functions and certificates."""
        return self.store.parent / "explorer"
