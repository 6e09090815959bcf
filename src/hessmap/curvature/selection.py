"""Some of a model's parameters, by name, by pattern or by layer."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from hessmap.errors import require, unknown_name


def selected(patterns: str | Sequence[str] | None, names: Sequence[str], frozen: Sequence[str] = ()) -> tuple[str, ...]:
    """The names that one of the patterns means, in their own order: a name, a glob, or a layer that holds them.

    >>> selected(["*.bias", "2"], ["0.weight", "0.bias", "2.weight", "20.weight"])
    ('0.bias', '2.weight')
    """
    if patterns is None:
        return tuple(names)
    wanted = [patterns] if isinstance(patterns, str) else list(patterns)
    require(bool(wanted), "parameters must name at least one parameter", "the list is empty")
    for pattern in wanted:
        require(isinstance(pattern, str), "parameters are named by text", f"got a {type(pattern).__name__}")
        if any(_means(pattern, name) for name in names):
            continue
        asleep = [name for name in frozen if _means(pattern, name)]
        must = "parameters must be trainable to be differentiated"
        require(not asleep, must, f"'{pattern}' means {', '.join(asleep[:3])}, frozen", "Set requires_grad=True")
        raise unknown_name("parameters", pattern, list(names) + _layers(names))
    return tuple(name for name in names if any(_means(pattern, name) for pattern in wanted))


def _means(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")


def _layers(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name))
