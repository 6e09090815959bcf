"""The one vector format: all parameters flat, row-major, in the order of ``model.named_parameters()``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from hessmap.errors import unknown_name


@dataclass(frozen=True)
class Layout:
    """Parameter names, their shapes, and where each lies in the flat vector.

    Args:
        shapes: Name and shape of every parameter, in order.

    Example:
        >>> layout = Layout((("0.weight", (3, 2)), ("2.weight", (1, 3))))
        >>> layout.size, layout["2.weight"]
        (9, slice(6, 9, None))
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.shapes)

    @property
    def size(self) -> int:
        return sum(prod(shape) for _, shape in self.shapes)

    def __iter__(self) -> Iterator[tuple[str, slice]]:
        start = 0
        for name, shape in self.shapes:
            yield name, slice(start, start + prod(shape))
            start += prod(shape)

    def __getitem__(self, name: str) -> slice:
        for known, place in self:
            if known == name:
                return place
        raise unknown_name("parameter", name, self.names)

    def shape(self, name: str) -> tuple[int, ...]:
        self[name]
        return dict(self.shapes)[name]

    def restricted_to(self, names: Iterable[str]) -> Layout:
        """The layout of some parameters alone, in this layout's order."""
        wanted = set(names)
        return Layout(tuple(item for item in self.shapes if item[0] in wanted))
