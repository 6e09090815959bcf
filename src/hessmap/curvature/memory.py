"""How many bytes there are, and a refusal that says what to do instead."""

from __future__ import annotations

import os
from pathlib import Path

from hessmap.errors import TooLarge, sentence


def available_bytes() -> int:
    """Memory that can be had without swapping."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def readable_bytes(count: float) -> str:
    """
    >>> readable_bytes(288_000_000)
    '274.7 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def require_memory(what: str, needed: int, alternative: str) -> None:
    """Raise TooLarge, with the bytes and the alternative, unless that much memory is available."""
    available = available_bytes()
    if needed > available:
        must = f"{what} must fit the memory, {readable_bytes(available)} of which are available"
        raise TooLarge(sentence(must, f"it needs {readable_bytes(needed)}", alternative))
