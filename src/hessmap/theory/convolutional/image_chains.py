"""A linear network of two-dimensional convolutions as a chain of filters: polynomials in two variables.

Along either axis a network without padding is a chain of filters (``filter_chains``) with the same channels; what one
position of a vertex looks at is a rectangle, with as many taps as both chains have, multiplied. Merging and gauge
(``deep_law``) hold as they do in one dimension, so the counts of ``deep_law`` and ``deep_columns`` bound the ranks. The
finer counts of one dimension, of degrees that are as equal as can be, have no counterpart.
"""

from __future__ import annotations

from dataclasses import dataclass

from hessmap.errors import require
from hessmap.theory.convolutional.filter_chains import FilterChain


@dataclass(frozen=True)
class ImageChain:
    """The ``rows`` and the ``columns`` of the filters, two chains with the same channels, read as one.

    >>> chain = ImageChain(FilterChain((1, 2, 3), (2, 3)), FilterChain((1, 2, 3), (3, 3)))
    >>> chain.kernels, chain.taps(0, 2), chain.layer_parameters
    ((6, 9), 20, (12, 54))
    """

    rows: FilterChain
    columns: FilterChain

    def __post_init__(self) -> None:
        must = "rows and columns of filters must have the same channels"
        require(self.rows.channels == self.columns.channels, must, f"{self.rows.channels}, {self.columns.channels}")

    @property
    def channels(self) -> tuple[int, ...]:
        return self.rows.channels

    @property
    def kernels(self) -> tuple[int, ...]:
        return tuple(above * beside for above, beside in zip(self.rows.kernels, self.columns.kernels, strict=True))

    @property
    def num_layers(self) -> int:
        return self.rows.num_layers

    @property
    def layer_parameters(self) -> tuple[int, ...]:
        pairs = zip(self.rows.layer_parameters, self.columns.kernels, strict=True)
        return tuple(count * taps for count, taps in pairs)

    @property
    def has_balanced_degrees(self) -> bool:
        """Never: the kernel of a matrix of polynomials in two variables has no degrees to balance."""
        return False

    def taps(self, first: int, last: int) -> int:
        """At how many positions of vertex ``first`` one position of vertex ``last`` looks."""
        return self.rows.taps(first, last) * self.columns.taps(first, last)

    def phases(self, first: int, last: int) -> int:
        return self.rows.phases(first, last) * self.columns.phases(first, last)

    def is_gapless(self, first: int, last: int) -> bool:
        """Whether the formula of one hidden layer in one dimension applies between two vertices: nowhere."""
        return first == last
