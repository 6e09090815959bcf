"""Linear operators: a subclass has a shape, a dtype, a device and ``matmat``; products, algebra and dense forms follow.

``+ - * / @ .T`` of operators are operators: ``H - G``, ``H + 0.1`` (H + 0.1 I), ``-H / 2``, ``A @ B``, ``v @ A``.

Blocks of a larger symmetric operator, whose products are those of the whole with vectors that are zero elsewhere.

Their dense forms take products with their own columns alone (``SymmetricOperator.dense_block``): a small block of a
network whose Hessian fits no memory has a matrix and a spectrum.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from numbers import Real
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import InvalidInput, checked_count, require, sentence
from hessmap.linalg.devices import require_memory
from hessmap.linalg.vectors import Layout
from hessmap.records import Provenance, html_table

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator as ScipyOperator


Places = slice | Tensor  # some rows or columns of an operator

KEPT = 2**27  # bytes of a dense form up to which an operator keeps it, to copy from
_SHOWN_BLOCKS = 30  # rows of the table that a notebook shows
_COLUMNS, _TOGETHER = 64, 2**28  # largest number, and bytes, of a block's columns in one product


class LinearOperator(ABC):
    """A real matrix given by its products with vectors.

    A subclass defines ``shape`` and ``matmat``, and sets ``dtype`` and ``device`` where they are not float64 and the
    CPU. The base class adds ``@`` for tensors and arrays, ``+ - * /`` with operators and numbers, ``.T``, ``to_dense``
    and ``to_scipy``.
    """

    dtype: torch.dtype = torch.float64
    device: torch.device = torch.device("cpu")  # of the vectors that ``matmat`` takes and returns
    makes_new_images: bool = False  # whether a product never shares memory with its vectors or with what is kept

    @property
    def block_size(self) -> int:
        """Number of vectors up to which a product with all of them is much cheaper than one product for each.

        1 unless a subclass states more: wider blocks need more products for the same eigenpairs.
        """
        return 1

    @property
    def memory_budget(self) -> int | None:
        """Bytes of its device that a measurement may hold beside the operator; None: the default of the device."""
        return None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]: ...

    @abstractmethod
    def matmat(self, vectors: Tensor) -> Tensor:
        """The product with the columns of ``vectors``, shape (shape[1], count) -> (shape[0], count)."""

    @overload
    def __matmul__(self, vectors: Tensor) -> Tensor: ...

    @overload
    def __matmul__(self, vectors: NDArray[Any]) -> NDArray[Any]: ...

    @overload
    def __matmul__(self, vectors: LinearOperator) -> LinearOperator: ...

    def __matmul__(self, vectors: Tensor | NDArray[Any] | LinearOperator) -> Tensor | NDArray[Any] | LinearOperator:
        """The product with a vector, with columns, or with an operator. A tensor on another device is moved and its
        product returned where it was; an array gives an array of its own dtype."""
        if isinstance(vectors, LinearOperator):
            return Composition(self, vectors)
        if isinstance(vectors, np.ndarray):
            return self._numpy_product(vectors)
        must = "an operator multiplies tensors, arrays and operators"
        require(isinstance(vectors, Tensor), must, f"got {type(vectors).__name__}")
        is_real = not vectors.is_complex() and vectors.layout == torch.strided
        require(is_real, "an operator multiplies real, dense vectors", f"got {vectors.dtype}, {vectors.layout}")
        rows = self.shape[1]
        require(
            vectors.ndim in (1, 2) and vectors.shape[0] == rows,
            f"the operator of shape {self.shape} needs vectors with {rows} entries",
            f"got shape {tuple(vectors.shape)}",
        )
        columns = vectors.to(self.device, self.dtype).reshape(rows, -1)
        return self.matmat(columns).reshape(self.shape[0], *vectors.shape[1:]).to(vectors.device)

    @overload
    def __rmatmul__(self, vectors: Tensor) -> Tensor: ...

    @overload
    def __rmatmul__(self, vectors: NDArray[Any]) -> NDArray[Any]: ...

    def __rmatmul__(self, vectors: Tensor | NDArray[Any]) -> Tensor | NDArray[Any]:
        """``v @ A`` of a vector or of rows."""
        found: Tensor | NDArray[Any] = self.T @ (vectors.T if vectors.ndim == 2 else vectors)
        return found.T if found.ndim == 2 else found

    @property
    def T(self) -> LinearOperator:
        """The transpose, for operators that define its products."""
        must = "an operator must define its transpose"
        remedy = "Define T, or use a SymmetricOperator"
        raise InvalidInput(sentence(must, f"{type(self).__name__} defines none", remedy))

    def __add__(self, other: LinearOperator | float) -> LinearOperator:
        return _combination(self, 1.0, other, 1.0)

    def __radd__(self, other: float) -> LinearOperator:
        return _combination(self, 1.0, other, 1.0)

    def __sub__(self, other: LinearOperator | float) -> LinearOperator:
        return _combination(self, 1.0, other, -1.0)

    def __rsub__(self, other: float) -> LinearOperator:
        return _combination(self, -1.0, other, 1.0)

    def __mul__(self, factor: float) -> LinearOperator:
        return _combination(self, _number(factor)) if _is_number(factor) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> LinearOperator:
        if not _is_number(divisor):
            return NotImplemented
        require(_number(divisor) != 0, "an operator is divided by a number other than 0", "got 0")
        return _combination(self, 1 / _number(divisor))

    def __neg__(self) -> LinearOperator:
        return _combination(self, -1.0)

    # numpy then leaves array @ operator and number * operator to the operator.
    __array_ufunc__ = None

    def _numpy_product(self, vectors: NDArray[Any]) -> NDArray[Any]:
        must = "an operator multiplies arrays of real numbers"
        require(vectors.dtype.kind in "fiub", must, f"got {vectors.dtype}")
        given = torch.from_numpy(np.ascontiguousarray(vectors, dtype=np.float64))
        found: NDArray[Any] = (self @ given).detach().to("cpu", torch.float64).numpy()
        return found.astype(vectors.dtype) if vectors.dtype.kind == "f" else found

    def matrix_for_products(self, count: int) -> Tensor | None:
        """The dense form to multiply with instead, if forming it costs less than about ``count`` products; or None."""
        return None

    def to_dense(self) -> Tensor:
        """The matrix, in memory that the operator does not use: the caller may change it."""
        return self.matmat(torch.eye(self.shape[1], dtype=self.dtype, device=self.device))

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

        def transposed(vectors: NDArray[Any]) -> NDArray[Any]:
            return self.T @ vectors

        products = {"matvec": self._numpy_product, "matmat": self._numpy_product}
        products |= {"rmatvec": transposed, "rmatmat": transposed}
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
    def T(self) -> LinearOperator:
        return self

    @property
    def scale(self) -> float | None:
        """The norm that thresholds are relative to; None leaves it to the operator's own spectrum."""
        return None

    @property
    def provenance(self) -> Provenance | None:
        """Where its numbers come from, for the results that are read off it; None if it does not know."""
        return None

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        """The diagonal in float64 if it is known at the cost of at most about ``max_products`` products; or None."""
        return None

    def dense_block(self, rows: Places, columns: Places) -> Tensor:
        """The entries at some rows and columns, from a product for each of the columns, or of the rows if these are
        fewer: never more than the block needs, however large the operator is."""
        places = [torch.arange(self.size, device=self.device)[chosen] for chosen in (rows, columns)]
        if len(places[0]) < len(places[1]):
            return self.dense_block(columns, rows).T.contiguous()
        shape = len(places[0]), len(places[1])
        what = f"a dense block of {shape[0]} x {shape[1]} entries"
        require_memory(what, self.dtype.itemsize * shape[0] * shape[1], "Use products with it")
        found = torch.empty(shape, dtype=self.dtype, device=self.device)
        step = max(1, min(_COLUMNS, _TOGETHER // (self.dtype.itemsize * max(1, self.size))))
        for start in range(0, shape[1], step):
            chosen = places[1][start : start + step]
            units = torch.zeros(self.size, len(chosen), dtype=self.dtype, device=self.device)
            units[chosen, torch.arange(len(chosen), device=self.device)] = 1.0
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
    """A symmetric matrix as an operator, which is not copied.

    Args:
        matrix: Square symmetric matrix.
        layout: Names of its blocks. Default: none.
        scale: Norm that thresholds are relative to. Default: that of its own spectrum.
    """

    def __init__(self, matrix: Tensor, layout: Layout | None = None, scale: float | None = None) -> None:
        require(
            matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1],
            "a symmetric operator needs a square matrix",
            f"got shape {tuple(matrix.shape)}",
        )
        self.matrix = matrix
        self.layout = layout
        self._scale = scale
        self.dtype, self.device = matrix.dtype, matrix.device

    @property
    def size(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def block_size(self) -> int:
        """A matrix is read once for a whole block."""
        return 16

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
    """Some rows and the same columns of a larger operator; it has the larger one's scale and provenance.

    Args:
        whole: The larger operator.
        places: Rows and columns of the block.
    """

    def __init__(self, whole: SymmetricOperator, places: Places) -> None:
        self.whole = whole
        self.places = places
        self.dtype, self.device = whole.dtype, whole.device

    @property
    def scale(self) -> float | None:
        return self.whole.scale

    @property
    def provenance(self) -> Provenance | None:
        return self.whole.provenance

    @property
    def block_size(self) -> int:
        return self.whole.block_size

    @property
    def memory_budget(self) -> int | None:
        return self.whole.memory_budget

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
    """The rows and columns at some places, wherever they are.

    Args:
        whole: The larger operator.
        places: Rows and columns of the block.
    """

    def __init__(self, whole: SymmetricOperator, places: Tensor) -> None:
        super().__init__(whole, places)
        self._size = len(places)

    @property
    def size(self) -> int:
        return self._size


class RectangularBlock(LinearOperator):
    """The block of a pair of parameters: a map from the second's directions to the first's gradients."""

    def __init__(self, whole: SymmetricOperator, rows: slice, columns: slice) -> None:
        self.whole = whole
        self.rows = rows
        self.columns = columns
        self.dtype, self.device = whole.dtype, whole.device

    @property
    def T(self) -> RectangularBlock:
        return RectangularBlock(self.whole, self.columns, self.rows)

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


@dataclass(frozen=True, eq=False)
class _Terms:
    """factor_1 A_1 + factor_2 A_2 + .. + shift I."""

    factors: tuple[float, ...]
    operators: tuple[LinearOperator, ...]
    shift: float

    def plus(self, other: _Terms) -> _Terms:
        return _Terms(self.factors + other.factors, self.operators + other.operators, self.shift + other.shift)

    def times(self, factor: float) -> _Terms:
        return _Terms(tuple(factor * own for own in self.factors), self.operators, factor * self.shift)

    def matmat(self, vectors: Tensor) -> Tensor:
        found = vectors * self.shift if self.shift else None
        for factor, operator in zip(self.factors, self.operators, strict=True):
            images = factor * operator.matmat(vectors.to(operator.dtype)).to(vectors.dtype)
            found = images if found is None else found.add_(images)
        assert found is not None
        return found


def _terms_of(operator: LinearOperator) -> _Terms:
    if isinstance(operator, LinearCombination | SymmetricCombination):
        return operator.terms
    return _Terms((1.0,), (operator,), 0.0)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) or (isinstance(value, Tensor | np.ndarray) and value.ndim == 0)


def _number(value: Any) -> float:
    number = float(value)
    require(bool(np.isfinite(number)), "factors and shifts of operators must be finite", f"got {number}")
    return number


def _combination(
    operator: LinearOperator, factor: float, other: LinearOperator | float = 0.0, other_factor: float = 0.0
) -> LinearOperator:
    """factor * operator + other_factor * other, where a number stands for its multiple of the identity."""
    terms = _terms_of(operator).times(factor)
    if isinstance(other, LinearOperator):
        must = "operators that are added must have the same shape and device"
        got = f"got {operator.shape} on {operator.device} and {other.shape} on {other.device}"
        require((operator.shape, operator.device) == (other.shape, other.device), must, got)
        terms = terms.plus(_terms_of(other).times(other_factor))
    elif _is_number(other):
        shift = other_factor * _number(other)
        must = "a number is added to a square operator, as its multiple of the identity"
        require(not shift or operator.shape[0] == operator.shape[1], must, f"the operator has shape {operator.shape}")
        terms = terms.plus(_Terms((), (), shift))
    else:
        return NotImplemented  # type: ignore[no-any-return]
    is_symmetric = all(isinstance(one, SymmetricOperator) for one in terms.operators)
    return SymmetricCombination(terms) if is_symmetric else LinearCombination(terms)


def _least_budget(operators: Iterable[LinearOperator]) -> int | None:
    """The smallest budget of the operators of a sum: each of them takes its products beside the vectors."""
    budgets = [budget for operator in operators if (budget := operator.memory_budget) is not None]
    return min(budgets, default=None)


class LinearCombination(LinearOperator):
    """A sum of multiples of operators and of the identity, made by ``+ - * /``."""

    makes_new_images = True

    def __init__(self, terms: _Terms) -> None:
        self.terms = terms
        self.dtype = reduce(torch.promote_types, [operator.dtype for operator in terms.operators])
        self.device = terms.operators[0].device

    @property
    def shape(self) -> tuple[int, int]:
        return self.terms.operators[0].shape

    @property
    def block_size(self) -> int:
        return min(operator.block_size for operator in self.terms.operators)

    @property
    def memory_budget(self) -> int | None:
        return _least_budget(self.terms.operators)

    @property
    def T(self) -> LinearCombination:
        transposes = tuple(operator.T for operator in self.terms.operators)
        return LinearCombination(_Terms(self.terms.factors, transposes, self.terms.shift))

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.terms.matmat(vectors)


class SymmetricCombination(SymmetricOperator):
    """A sum of multiples of symmetric operators and of the identity, made by ``+ - * /``.

    It has the layout and the provenance that all of its terms share, and the scale of a single term times its factor;
    thresholds of longer sums are relative to their own spectrum.
    """

    makes_new_images = True

    def __init__(self, terms: _Terms) -> None:
        self.terms = terms
        self.operators = [operator for operator in terms.operators if isinstance(operator, SymmetricOperator)]
        self.dtype = reduce(torch.promote_types, [operator.dtype for operator in self.operators])
        self.device = self.operators[0].device
        layout = self.operators[0].layout
        self.layout = layout if all(operator.layout == layout for operator in self.operators) else None

    @property
    def size(self) -> int:
        return self.operators[0].size

    @property
    def block_size(self) -> int:
        return min(operator.block_size for operator in self.operators)

    @property
    def memory_budget(self) -> int | None:
        return _least_budget(self.operators)

    @property
    def scale(self) -> float | None:
        whole = self.operators[0].scale
        is_multiple = len(self.operators) == 1 and not self.terms.shift and self.terms.factors[0]
        return None if whole is None or not is_multiple else abs(self.terms.factors[0]) * whole

    @property
    def provenance(self) -> Provenance | None:
        found = self.operators[0].provenance
        return found if all(operator.provenance == found for operator in self.operators) else None

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.terms.matmat(vectors)

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        each = None if max_products is None else max_products / len(self.operators)
        total = torch.full((self.size,), self.terms.shift, dtype=torch.float64)
        for factor, operator in zip(self.terms.factors, self.operators, strict=True):
            diagonal = operator.exact_diagonal(each)
            if diagonal is None:
                return None
            total += factor * diagonal.to(total)
        return total

    def to_dense(self) -> Tensor:
        """The sum of the dense forms, each by the engine of its operator."""
        found = torch.zeros(self.size, self.size, dtype=self.dtype, device=self.device)
        for factor, operator in zip(self.terms.factors, self.operators, strict=True):
            found += factor * operator.to_dense().to(found)
        found.diagonal().add_(self.terms.shift)
        return found

    def in_single_precision(self) -> LinearOperator | None:
        narrow = tuple(operator.in_single_precision() for operator in self.operators)
        found = tuple(operator for operator in narrow if isinstance(operator, SymmetricOperator))
        is_whole = len(found) == len(self.operators)
        return SymmetricCombination(_Terms(self.terms.factors, found, self.terms.shift)) if is_whole else None


class Composition(LinearOperator):
    """The product of two operators, made by ``@``."""

    def __init__(self, left: LinearOperator, right: LinearOperator) -> None:
        must = "operators that are multiplied must have matching shapes and the same device"
        got = f"got {left.shape} on {left.device} and {right.shape} on {right.device}"
        require(left.shape[1] == right.shape[0] and left.device == right.device, must, got)
        self.left, self.right = left, right
        self.dtype, self.device = torch.promote_types(left.dtype, right.dtype), left.device

    @property
    def shape(self) -> tuple[int, int]:
        return self.left.shape[0], self.right.shape[1]

    @property
    def T(self) -> Composition:
        return Composition(self.right.T, self.left.T)

    def matmat(self, vectors: Tensor) -> Tensor:
        inner = self.right.matmat(vectors.to(self.right.dtype))
        return self.left.matmat(inner.to(self.left.dtype)).to(self.dtype)


class FunctionOperator(SymmetricOperator):
    """A symmetric operator whose products a function computes; see ``as_operator``."""

    def __init__(
        self,
        function: Callable[[Tensor], Tensor],
        size: int,
        dtype: torch.dtype,
        device: torch.device,
        takes_columns: bool,
    ) -> None:
        self.function = function
        self.dtype, self.device = dtype, device
        self.makes_new_images = not takes_columns
        self._size, self._takes_columns = size, takes_columns

    @property
    def size(self) -> int:
        return self._size

    def matmat(self, vectors: Tensor) -> Tensor:
        if self._takes_columns:
            return self.function(vectors)
        images = [self.function(vector) for vector in vectors.T.contiguous()]
        for image in images:
            is_vector = isinstance(image, Tensor) and image.shape == (self.size,)
            got = f"got {tuple(image.shape) if isinstance(image, Tensor) else type(image).__name__}"
            require(is_vector, f"the function of an operator must return a tensor of shape ({self.size},)", got)
        return torch.stack(images, 1) if images else vectors.clone()


def as_operator(
    function: Callable[[Tensor], Tensor],
    size: int,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str = "cpu",
    takes_columns: bool = False,
) -> SymmetricOperator:
    """Make a symmetric operator of a function that multiplies a vector by a matrix.

    Args:
        function: Takes a tensor of shape (size,) and returns its product, of the same shape.
        size: Number of rows and columns.
        dtype: Of the vectors that the function takes. Defaults to float64; measurements of an operator in float32 have
            the tolerances of float32.
        device: Of the vectors that the function takes. Defaults to the CPU.
        takes_columns: Whether the function multiplies the columns of a (size, count) tensor instead of one vector.

    Returns:
        SymmetricOperator: For every measurement, and for ``+ - * / @``.

    Raises:
        InvalidInput: If ``function`` is not callable, ``size`` is negative or ``dtype`` is not a real floating dtype.

    Notes:
        The first measurement checks with two random products that the function is linear and symmetric.

    Example:
        >>> import hessmap as hm
        >>> A = as_operator(lambda v: torch.tensor([2.0, 5.0], dtype=v.dtype) * v, 2)
        >>> round(hm.sharpness(A + 1.0).value, 9)
        6.0
    """
    require(callable(function), "an operator is made of a function of a vector", f"got {type(function).__name__}")
    is_float = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    require(is_float, "dtype must be a floating-point dtype of torch", f"got {dtype!r}")
    return FunctionOperator(function, checked_count("size", size, 0), dtype, torch.device(device), takes_columns)
