"""The smallest base that works: a symmetric operator asks for a size, a number format and block products.

Blocks of a larger symmetric operator, whose products are those of the whole with vectors that are zero elsewhere.

Their dense forms take products with their own columns alone (``SymmetricOperator.dense_block``): a small block of a
network whose Hessian fits no memory has a matrix and a spectrum.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import require
from hessmap.linalg.layout import Layout
from hessmap.linalg.memory import require_memory
from hessmap.records import Provenance, html_table

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator as ScipyOperator


Places = slice | Tensor  # some rows or columns of an operator

KEPT = 2**27  # bytes of a dense form up to which an operator keeps it, to copy from
_SHOWN_BLOCKS = 30
_COLUMNS, _TOGETHER = 64, 2**28  # of a block that are multiplied together: so many, and so many bytes of vectors


class LinearOperator(ABC):
    """A real matrix known by its products; dense form and ``@``, of tensors and of numpy arrays, come free."""

    dtype: torch.dtype = torch.float64
    makes_new_images: bool = False  # whether a product never shares memory with its vectors or with what is kept

    @property
    def block_size(self) -> int:
        """How many vectors it takes to make a product with each of them as cheap as it gets."""
        return 16

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @abstractmethod
    def matmat(self, vectors: Tensor) -> Tensor:
        """The product with the columns of ``vectors``, shape (shape[1], count) -> (shape[0], count)."""

    def expect_products(self, count: int) -> None:  # noqa: B027, most operators have nothing to prepare
        """Hear that about so many products will come: an operator may prepare for them, in a part of their time."""

    @overload
    def __matmul__(self, vectors: Tensor) -> Tensor: ...

    @overload
    def __matmul__(self, vectors: NDArray[Any]) -> NDArray[Any]: ...

    def __matmul__(self, vectors: Tensor | NDArray[Any]) -> Tensor | NDArray[Any]:
        """The product with a vector or with columns; an array gives an array, in its own number format."""
        if isinstance(vectors, np.ndarray):
            return self._numpy_product(vectors)
        must = "an operator multiplies tensors and arrays"
        require(isinstance(vectors, Tensor), must, f"got {type(vectors).__name__}")
        is_real = not vectors.is_complex() and vectors.layout == torch.strided
        require(is_real, "an operator multiplies real, dense vectors", f"got {vectors.dtype}, {vectors.layout}")
        rows = self.shape[1]
        require(
            vectors.ndim in (1, 2) and vectors.shape[0] == rows,
            f"the operator of shape {self.shape} needs vectors with {rows} entries",
            f"got shape {tuple(vectors.shape)}",
        )
        columns = vectors.to(self.dtype).reshape(rows, -1)
        return self.matmat(columns).reshape(self.shape[0], *vectors.shape[1:])

    # numpy then leaves array @ operator to the operator, which has no such product, instead of trying every entry.
    __array_ufunc__ = None

    def _numpy_product(self, vectors: NDArray[Any]) -> NDArray[Any]:
        must = "an operator multiplies arrays of real numbers"
        require(vectors.dtype.kind in "fiub", must, f"got {vectors.dtype}")
        given = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float64))
        found: NDArray[Any] = (self @ given).detach().to("cpu", torch.float64).numpy()
        return found.astype(vectors.dtype) if vectors.dtype.kind == "f" else found

    def matrix_for_products(self, count: int) -> Tensor | None:
        """The dense form, to multiply with instead, where writing it down costs less than about so many products."""
        return None

    def to_dense(self) -> Tensor:
        """The matrix, in memory that the operator does not use: the caller may change it."""
        return self.matmat(torch.eye(self.shape[1], dtype=self.dtype))

    def _copy_of_kept(self, find: Callable[[], Tensor]) -> Tensor:
        """A dense form for a caller to change. A small one is found once and copied at every call; a large one is found
        at every call, because a second one may not fit the memory."""
        kept: Tensor | None = self.__dict__.get("_kept_matrix")
        if kept is None:
            kept = find()
            if kept.nbytes > KEPT:
                return kept
            self.__dict__["_kept_matrix"] = kept
        return kept.clone()

    def to_scipy(self) -> ScipyOperator:
        """The same products for ``scipy.sparse.linalg``, which calls them with arrays in float64.

        >>> from scipy.sparse.linalg import eigsh
        >>> H = DenseOperator(torch.diag(torch.tensor([5.0, 3.0, 1.0, -2.0], dtype=torch.float64)))
        >>> eigsh(H.to_scipy(), k=2, which="LA", return_eigenvectors=False).round(12)
        array([3., 5.])
        """
        from scipy.sparse.linalg import LinearOperator as ScipyOperator

        products = {"matvec": self._numpy_product, "matmat": self._numpy_product}
        if isinstance(self, SymmetricOperator):
            products |= {"rmatvec": self._numpy_product, "rmatmat": self._numpy_product}
        return ScipyOperator(shape=self.shape, dtype=np.float64, **products)

    def __repr__(self) -> str:
        size = "×".join(map(str, self.shape))
        return f"{type(self).__name__}({size}, {str(self.dtype).removeprefix('torch.')})"

    def _repr_html_(self) -> str:
        """Its line, and the blocks of its parameters if it knows them."""
        layout: Layout | None = getattr(self, "layout", None)
        line = f"<code>{html.escape(repr(self))}</code>"
        if layout is None:
            return line
        rows = [(name, "×".join(map(str, shape))) for name, shape in layout.shapes[:_SHOWN_BLOCKS]]
        more = f"<p>and {len(layout.shapes) - _SHOWN_BLOCKS} more</p>" if len(layout.shapes) > _SHOWN_BLOCKS else ""
        return f"{line}{html_table(('block', 'shape'), rows)}{more}"

    def in_single_precision(self) -> LinearOperator | None:
        """The same operator with cheaper products, in float32, of vectors in float64; None if there is none."""
        return None


class SymmetricOperator(LinearOperator):
    """A symmetric operator over parameters: ``layout`` names its blocks, ``scale`` is what ranks are relative to."""

    layout: Layout | None = None

    @property
    @abstractmethod
    def size(self) -> int: ...

    @property
    def shape(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def scale(self) -> float | None:
        """The norm that thresholds are relative to; None leaves it to the operator's own spectrum."""
        return None

    @property
    def provenance(self) -> Provenance | None:
        """Where its numbers come from, for the results that are read off it; None if it does not know."""
        return None

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        """The diagonal in float64 where more is known than products, at the cost of at most about so many; or None."""
        return None

    def dense_block(self, rows: Places, columns: Places) -> Tensor:
        """The entries at some rows and columns, from a product for each of the columns, or of the rows if these are
        fewer: never more than the block needs, however large the operator is."""
        places = [torch.arange(self.size)[chosen] for chosen in (rows, columns)]
        if len(places[0]) < len(places[1]):
            return self.dense_block(columns, rows).T.contiguous()
        shape = len(places[0]), len(places[1])
        what = f"a dense block of {shape[0]} x {shape[1]} entries"
        require_memory(what, self.dtype.itemsize * shape[0] * shape[1], "Use products with it")
        found = torch.empty(shape, dtype=self.dtype)
        step = max(1, min(_COLUMNS, _TOGETHER // (self.dtype.itemsize * max(1, self.size))))
        for start in range(0, shape[1], step):
            chosen = places[1][start : start + step]
            units = torch.zeros(self.size, len(chosen), dtype=self.dtype)
            units[chosen, torch.arange(len(chosen))] = 1.0
            found[:, start : start + step] = self.matmat(units)[rows]
        return found

    def block(self, row: str, column: str | None = None) -> LinearOperator:
        """The block of one parameter (symmetric), or of a pair of parameters (rectangular)."""

        require(self.layout is not None, "blocks need an operator with a layout", "this one has none")
        assert self.layout is not None
        rows = self.layout[row]
        if column is None or column == row:
            return DiagonalBlock(self, row)
        return RectangularBlock(self, rows, self.layout[column])


class DenseOperator(SymmetricOperator):
    """A symmetric matrix as an operator, which is not copied."""

    def __init__(self, matrix: Tensor, layout: Layout | None = None, scale: float | None = None) -> None:
        require(
            matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1],
            "a symmetric operator needs a square matrix",
            f"got shape {tuple(matrix.shape)}",
        )
        self.matrix = matrix
        self.layout = layout
        self._scale = scale
        self.dtype = matrix.dtype

    @property
    def size(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def scale(self) -> float | None:
        return self._scale

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.matrix @ vectors

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        return self.matrix.diagonal().to("cpu", torch.float64, copy=True)

    def dense_block(self, rows: Places, columns: Places) -> Tensor:
        return self.matrix[rows][:, columns].clone()

    def to_dense(self) -> Tensor:
        return self.matrix.clone()


class SymmetricBlock(SymmetricOperator):
    """Some rows and the same columns of a larger operator; it has the larger one's scale and provenance."""

    def __init__(self, whole: SymmetricOperator, places: Places) -> None:
        self.whole = whole
        self.places = places
        self.dtype: torch.dtype = whole.dtype

    @property
    def scale(self) -> float | None:
        return self.whole.scale

    @property
    def provenance(self) -> Provenance | None:
        return self.whole.provenance

    def expect_products(self, count: int) -> None:
        self.whole.expect_products(count)

    def matrix_for_products(self, count: int) -> Tensor | None:
        found = self.whole.matrix_for_products(count)
        return None if found is None else found[self.places][:, self.places].contiguous()

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.whole.matmat(_embedded_rows(vectors, self.places, self.whole.size))[self.places]

    def to_dense(self) -> Tensor:
        return self._copy_of_kept(lambda: self.whole.dense_block(self.places, self.places))


class DiagonalBlock(SymmetricBlock):
    """The block of one parameter."""

    def __init__(self, whole: SymmetricOperator, name: str) -> None:
        assert whole.layout is not None
        super().__init__(whole, whole.layout[name])
        self.layout = whole.layout.restricted_to([name])

    @property
    def size(self) -> int:
        assert self.layout is not None
        return self.layout.size

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        diagonal = self.whole.exact_diagonal(max_products)
        return None if diagonal is None else diagonal[self.places]


class PrincipalBlock(SymmetricBlock):
    """The rows and columns at some places, wherever they are."""

    def __init__(self, whole: SymmetricOperator, places: Tensor) -> None:
        super().__init__(whole, places)
        self._size = len(places)

    @property
    def size(self) -> int:
        return self._size

    @property
    def block_size(self) -> int:
        return self.whole.block_size


class RectangularBlock(LinearOperator):
    """The block of a pair of parameters: a map from the second's directions to the first's gradients."""

    def __init__(self, whole: SymmetricOperator, rows: slice, columns: slice) -> None:
        self.whole = whole
        self.rows = rows
        self.columns = columns
        self.dtype = whole.dtype

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    @property
    def scale(self) -> float | None:
        return self.whole.scale

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.whole.matmat(_embedded_rows(vectors, self.columns, self.whole.size))[self.rows]

    def to_dense(self) -> Tensor:
        return self._copy_of_kept(lambda: self.whole.dense_block(self.rows, self.columns))


def _embedded_rows(vectors: Tensor, places: Places, size: int) -> Tensor:
    """The rows of ``vectors`` at their places among ``size``, and zeros elsewhere."""
    padded = vectors.new_zeros(size, vectors.shape[1])
    padded[places] = vectors
    return padded
