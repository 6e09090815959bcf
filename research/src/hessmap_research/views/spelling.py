"""How the names and values of a case are written for people: data sets, activations, counts, yes and no."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hessmap_research.views.table import words

_SPELLINGS = {
    "mnist": "MNIST",
    "fashion-mnist": "Fashion-MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "relu": "ReLU",
    "elu": "ELU",
    "gelu": "GELU",
}
# A name by itself, not as a part of another one.
_NAMES = re.compile(rf"(?<![\w-])({'|'.join(sorted(_SPELLINGS, key=len, reverse=True))})(?![\w-])")
_ACTIVATIONS = {"identity": "linear", "linear": "linear"}
_COUNTED = {"hidden": "hidden layers"}
_PLURALS = {"data": "data sets", "init": "initialisations", "batch": "batches"}
_MOST_NAMED = 2  # fields that bands go over


def spelled(text: object) -> str:
    """Names of data sets and activations as they are written.

    >>> spelled("relu, fashion-mnist"), spelled("cifar10"), spelled("my-relu")
    ('ReLU, Fashion-MNIST', 'CIFAR-10', 'my-relu')
    """
    return _NAMES.sub(lambda found: _SPELLINGS[found[0]], str(text))


def shown_value(name: str, value: Any) -> str:
    """The value of a field where its name stands beside it, or goes without saying.

    >>> shown_value("activation", "identity"), shown_value("way", "output_zero"), shown_value("data", "mnist")
    ('linear', 'output zero', 'MNIST')
    """
    if _last(name) == "activation":
        value = _ACTIVATIONS.get(value, value)
    return spelled(value).replace("_", " ")


def phrase(name: str, value: Any) -> str:
    """A field with its value.

    >>> phrase("data", "cifar10"), phrase("num_hidden", 1), phrase("num_layers", 3), phrase("layer_norm", False)
    ('CIFAR-10', '1 hidden layer', '3 layers', 'without layer norm')
    >>> phrase("activation", "relu"), phrase("width", 4), phrase("is_trained", False)
    ('ReLU', 'width 4', 'not trained')
    """
    last = _last(name)
    if last in ("data", "activation"):
        return shown_value(name, value)
    if isinstance(value, bool):
        return _yes_or_no(last, value)
    if last.startswith("num_"):
        return f"{value} {counted(last, is_one=str(value) == '1')}"
    return f"{words(name)} {spelled(value)}"


def counted(name: str, is_one: bool) -> str:
    """What a field that begins with "num_" counts."""
    what = words(name.removeprefix("num_"))
    what = _COUNTED.get(what, what)
    return what.removesuffix("s") if is_one else what


def plurals(names: Iterable[str]) -> str:
    """Fields in whose values rows differ; of many it is said that they are many.

    >>> plurals(["seed"]), plurals(["init", "seed"]), plurals(["a", "b", "seed"])
    ('seeds', 'initialisations and seeds', 'cases')
    """
    found = list(names)
    if len(found) > _MOST_NAMED:
        return "cases"
    return " and ".join(_PLURALS.get(name, f"{words(name).removesuffix('s')}s") for name in found)


def _yes_or_no(last: str, value: bool) -> str:
    if last.startswith("is_"):
        return f"{'' if value else 'not '}{words(last[3:])}"
    return f"{'with' if value else 'without'} {words(last.removeprefix('has_'))}"


def _last(name: str) -> str:
    return name.rpartition(".")[2]
