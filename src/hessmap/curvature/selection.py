"""Some of a model's parameters, by name, by pattern or by layer."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from torch import Tensor, nn

from hessmap.errors import require, unknown_name


def selected_names(
    patterns: str | Sequence[str] | None, names: Sequence[str], frozen: Sequence[str] = ()
) -> tuple[str, ...]:
    """The names that one of the patterns means, in their own order: a name, a glob, or a layer that holds them.

    >>> selected_names(["*.bias", "2"], ["0.weight", "0.bias", "2.weight", "20.weight"])
    ('0.bias', '2.weight')
    """
    if patterns is None:
        return tuple(names)
    wanted = [patterns] if isinstance(patterns, str) or not isinstance(patterns, Sequence) else list(patterns)
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


class ChosenParameters(NamedTuple):
    """The parameters that are differentiated, and all others, both without gradient."""

    named: dict[str, Tensor]
    fixed: dict[str, Tensor]
    num_left_out: int


def chosen_parameters(model: nn.Module, patterns: str | Sequence[str] | None) -> ChosenParameters:
    """Choose among the trainable parameters of a private copy, and freeze it.

    ``num_left_out`` counts the trainable ones that no pattern means.
    """
    everything = {name: value for name, value in model.named_parameters() if value.numel()}
    trainable = [name for name, value in everything.items() if value.requires_grad]
    must = "the model must have a parameter to differentiate"
    require(bool(trainable), must, "all are frozen, or there is none")
    chosen = selected_names(patterns, trainable, [name for name in everything if name not in trainable])
    for value in everything.values():
        value.requires_grad_(False)
    named = {name: everything[name].detach() for name in chosen}
    fixed = {name: value.detach() for name, value in everything.items() if name not in chosen}
    return ChosenParameters(named, fixed, len(trainable) - len(chosen))


def _means(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or name.startswith(f"{pattern}.")


def _layers(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name))
