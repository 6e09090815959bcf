"""The table of a study: cells as text, for the terminal and for the page alike.

How the names and values of a case are written for people: data sets, activations, counts, yes and no.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import and_
from typing import Any

import numpy as np

from hessmap.views.tables.contents import Table
from hessmap_research.runner.collection import Collection
from hessmap_research.runner.row import Row
from hessmap_research.runner.view import Column, View

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


def words(name: str) -> str:
    """A dotted name as words.

    >>> words("predicted.outer_product"), words("num_layers")
    ('predicted outer product', 'number of layers')
    """
    parts = [f"number of {part[4:]}" if part.startswith("num_") else part for part in name.split(".")]
    return " ".join(parts).replace("_", " ")


def study_table(collection: Collection, most_lines: int | None = None) -> Table:
    """One line for each row of a study, or each group where the view groups; of too many lines some of each kind."""
    view, rows = collection.study.view, collection.stored.rows
    groups: dict[object, list[Row]] = {}
    for place, row in enumerate(rows):
        key: object = tuple(row.get(name) for name in view.group_by) if view.group_by else place
        groups.setdefault(key, []).append(row)
    shown = spread(list(groups.values()), most_lines)
    lines = tuple(tuple(_cell(column, group) for column in view.columns) for group in shown)
    labels = tuple(column.label or words(column.name) for column in view.columns)
    is_number = tuple(_is_number(column, rows) for column in view.columns)
    return Table(labels, lines, is_number, _is_key(view, rows, lines), len(groups) - len(lines))


def spread(groups: list[list[Row]], most: int | None) -> list[list[Row]]:
    """As many groups, in their order, with the values of every field of their cases shown about equally often.

    One after another a group is taken whose values were taken least often so far, the first of them in a mixed order.

    >>> groups = [[Row({"net": net, "n": n}, {})] for net, n in (("linear", 1), ("linear", 2), ("relu", 1))]
    >>> [group[0].case["net"] for group in spread(groups, 2)]
    ['linear', 'relu']
    """
    if most is None or most >= len(groups):
        return groups
    cases = [rows[0].case for rows in groups]
    names = list(dict.fromkeys(name for case in cases for name in case))
    values = [[(name, repr(case.get(name))) for name in names] for case in cases]
    number_of = {value: number for number, value in enumerate(dict.fromkeys(chain(*values)))}
    numbers = np.array([[number_of[value] for value in line] for line in values])
    mixed = list(np.random.default_rng(0).permutation(len(groups)))
    num_taken = np.zeros(len(number_of))
    chosen = []
    for _ in range(most):
        least = mixed.pop(int(num_taken[numbers[mixed]].sum(axis=1).argmin()))
        num_taken[numbers[least]] += 1
        chosen.append(least)
    return [groups[place] for place in sorted(chosen)]


def _is_key(view: View, rows: Sequence[Row], lines: Sequence[Sequence[str]]) -> tuple[bool, ...]:
    """Which columns tell lines apart: fields that make the groups, or fields of any case, unless all lines agree."""
    fields = set(view.group_by) or {name for row in rows for name in row.case}
    is_field = tuple(column.name in fields for column in view.columns)
    differs = tuple(len({line[place] for line in lines}) > 1 for place in range(len(view.columns)))
    is_key = tuple(map(and_, is_field, differs))
    return is_key if any(is_key) else is_field


def _is_number(column: Column, rows: Sequence[Row]) -> bool:
    return all(isinstance(_plain(row, column.name), int | float | None) for row in rows)


def _plain(row: Row, name: str) -> object:
    """The value under a name; a rank counts as its value, and a name that the row lacks as None."""
    value = row.get(name)
    return value["value"] if isinstance(value, dict) and "value" in value else value


def _cell(column: Column, rows: Sequence[Row]) -> str:
    """One value, or the mean and the range of different numbers, or the different words of several rows."""
    values = [value for row in rows if (value := _plain(row, column.name)) is not None]
    texts = list(dict.fromkeys(column.said.get(text := _text(value, column.spec), text) for value in values))
    numbers = [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(texts) < 2 or len(numbers) < len(values):
        return ", ".join(texts)
    return f"{np.mean(numbers):{column.spec}} ({min(numbers):{column.spec}} to {max(numbers):{column.spec}})"


def _text(value: object, spec: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:{spec}}"
    if isinstance(value, tuple):
        return "-".join(_text(item, spec) for item in value)
    if isinstance(value, np.ndarray):
        return f"{' x '.join(map(str, value.shape))} numbers"
    return str(value)


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
