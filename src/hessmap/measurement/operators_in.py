"""What every measurement takes in: an operator, a tensor or an array. Here they are checked, all in one place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator as ScipyOperator
from torch import Tensor

from hessmap.errors import InvalidInput, checked_count, noting_errors, require, sentence
from hessmap.linalg import (
    LinearOperator,
    ScaledProduct,
    ShardedOperator,
    SymmetricBlock,
    asymmetry,
    frobenius_norm,
    inner_products,
    largest_entry,
    normal_vectors,
    row_lengths,
)

Floats = NDArray[np.float64]
Matrix: TypeAlias = LinearOperator | ScipyOperator | Tensor | NDArray[Any]

ASYMMETRY_TOLERANCE = 1e-10
FLOAT32_TOLERANCE = 1e-5
EPS = float(np.finfo(np.float64).eps)
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)
FLOAT32_EPS = float(np.finfo(np.float32).eps)
_TINY = float(np.finfo(np.float32).tiny)  # of the narrowest format in which an operator may compute
LINEARITY_TOLERANCE = 0.03  # the rounding of bfloat16 passes
_ABOVE_ROUNDING = 10  # an asymmetry is one if it is so much larger than the rounding of the products that show it
_OTHER_SEED = 0x9E3779B9  # in the 32 bits that torch uses: other vectors than those of the iteration
_MIXTURES = 4  # of two vectors, whose products show the rounding of products
# Operators that were found to be symmetric, by their identity: each is asked once.
_SYMMETRIC: WeakValueDictionary[tuple[int, str], Any] = WeakValueDictionary()


def float_array(values: Tensor | NDArray[Any], name: str = "a measured matrix") -> Floats:
    """Validate a tensor or array as a finite float64 array, without a copy where it already is one.

    Args:
        values: Dense real tensor or array of any shape in float64, or of integers or booleans, which are converted.
        name: Name of the values in error messages. Defaults to "a measured matrix".

    Returns:
        The values as a numpy array in float64.

    Raises:
        InvalidInput: If the values are not a dense real tensor or array, have masked or non-finite entries, or are
            floats of fewer digits than float64, whose rounding is far above the thresholds of this library.

    Example:
        >>> float_array(np.array([1, 2]))
        array([1., 2.])
    """
    if isinstance(values, Tensor):
        values = _tensor_array(values, name)
    if not isinstance(values, np.ndarray):
        remedy = "Use its toarray()" if hasattr(values, "toarray") else ""
        remedy = "Use loss_hessian(problem) for a problem" if hasattr(values, "num_parameters") else remedy
        raise InvalidInput(sentence(f"{name} must be a tensor or an array", f"got {type(values).__name__}", remedy))
    has_gaps = isinstance(values, np.ma.MaskedArray) and bool(np.ma.getmaskarray(values).any())
    got = "the masked array has some"
    require(not has_gaps, f"{name} must not contain masked entries", got, "Call .filled(value)")
    values = np.asarray(values)
    require(values.dtype.kind != "c", f"{name} must be real", f"got {values.dtype}")
    if values.dtype.kind in "iub":
        values = values.astype(np.float64)
    if values.dtype != np.float64:
        remedy = "Build it in float64; converting it afterwards keeps the rounding of the narrower format"
        raise InvalidInput(sentence(f"{name} must be float64", f"got {values.dtype}", remedy))
    if not np.isfinite(largest_entry(values)):
        place = tuple(int(index) for index in np.argwhere(~np.isfinite(values))[0])
        raise InvalidInput(sentence(f"{name} must be finite", f"entry {place} is {values[place]}"))
    return values


def _tensor_array(values: Tensor, name: str) -> NDArray[Any]:
    is_dense = values.layout == torch.strided and not values.is_quantized
    require(is_dense, f"{name} must be dense", f"got a tensor of layout {values.layout}", "Use its to_dense()")
    require(values.device.type != "meta", f"{name} must contain numbers", "it is a tensor on the device 'meta'")
    if values.dtype == torch.bfloat16:  # which numpy does not know
        values = values.float()
    found: NDArray[Any] = values.detach().to("cpu").resolve_conj().resolve_neg().numpy()
    return found


class FromScipy(LinearOperator):
    """The products of a scipy operator, whose symmetry is checked like that of any other operator."""

    def __init__(self, operator: ScipyOperator) -> None:
        kind = np.dtype(operator.dtype)
        require(kind.kind in "fiub", "a measured operator must be real", f"got a scipy operator of dtype {kind}")
        self.operator = operator
        self.dtype = torch.float32 if kind.itemsize < 8 and kind.kind == "f" else torch.float64

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.operator.shape
        return int(rows), int(columns)

    def matmat(self, vectors: Tensor) -> Tensor:
        images = np.array(self.operator.matmat(vectors.numpy(force=True)))  # a copy: torch reads no read-only array
        return torch.from_numpy(images).to(self.dtype)


def _known_operator(matrix: Matrix) -> LinearOperator | Tensor | NDArray[Any]:
    """A scipy operator as one of this library; anything else as it is."""
    return FromScipy(matrix) if isinstance(matrix, ScipyOperator) else matrix


def dense_array(matrix: Matrix, name: str = "a measured matrix") -> Floats:
    """The matrix as a finite float64 array of two dimensions; that of an operator in float32 is converted."""
    matrix = _known_operator(matrix)
    if isinstance(matrix, ShardedOperator):
        raise sharded_refusal("a dense form")
    if isinstance(matrix, LinearOperator):
        _operator_shape(matrix)
        with noting_errors("the dense form of an operator"):
            dense = matrix.to_dense()
        is_converted = is_low_precision(matrix) and isinstance(dense, Tensor) and dense.is_floating_point()
        array = float_array(dense.double() if is_converted else dense, name)
    else:
        array = float_array(matrix, name)
    require(array.ndim == 2, "a matrix must have two dimensions", f"got shape {array.shape}")
    return array


def symmetric_array(matrix: Matrix) -> tuple[Floats, float]:
    """The symmetric part of a nearly symmetric matrix, and the Frobenius norm of what was dropped."""
    array = dense_array(matrix)
    _require_square(array.shape)
    dropped = asymmetry(array)
    if not dropped <= asymmetry_tolerance(matrix):
        got = f"||H - H^T|| / ||H|| is {2 * dropped:.3g}"
        remedy = "Pass (H + H.T) / 2 if that is what is meant"
        raise InvalidInput(sentence("a measurement needs a symmetric matrix", got, remedy))
    if dropped == 0:
        return array, 0.0
    return (array + array.T) / 2, dropped * frobenius_norm(array)


def measured_product(matrix: Matrix) -> ScaledProduct:
    """The products of a symmetric matrix or operator. An operator is asked at its first product whether it is one."""
    matrix = _known_operator(matrix)
    if not isinstance(matrix, LinearOperator):
        array, _ = symmetric_array(matrix)
        # torch reads neither reversed nor read-only arrays.
        tensor = torch.from_numpy(np.require(array, requirements=("C_CONTIGUOUS", "WRITEABLE")))
        return ScaledProduct(tensor.matmul, len(array))
    if isinstance(matrix, ShardedOperator):
        raise sharded_refusal("this measurement")
    shape = _operator_shape(matrix)
    _require_square(shape)
    check = None if is_known_symmetric(matrix) else partial(_require_symmetric, matrix)
    found = ScaledProduct(partial(_product, matrix), shape[0], check, is_new=matrix.makes_new_images)
    found.place_on(matrix.device)
    return found


def sharded_refusal(what: str) -> InvalidInput:
    """The error for a measurement that needs whole vectors, of an operator whose vectors are sharded."""
    known = "sharpness, top_eigenpairs, trace_estimate, density_estimate and krylov_solve"
    return InvalidInput(sentence(f"{what} needs whole vectors", "those of this operator are sharded", f"Use {known}"))


def hint_num_products(matrix: Matrix, product: ScaledProduct, count: int) -> None:
    """Let ``product`` use the operator's matrix where forming it costs less than about ``count`` products. The
    operator itself stays as it is."""
    if isinstance(matrix, LinearOperator):
        written = matrix.matrix_for_products(count)
        if written is not None:
            product.use_matrix(written)


def _operator_shape(matrix: LinearOperator) -> tuple[int, int]:
    """The shape of an operator that says what it is."""
    rows, columns = (checked_count("the size of an operator", size, 0) for size in matrix.shape)
    is_float = isinstance(matrix.dtype, torch.dtype) and matrix.dtype.is_floating_point
    require(is_float, "the dtype of an operator must be a floating point format of torch", f"got {matrix.dtype!r}")
    return rows, columns


def _product(matrix: LinearOperator, vectors: Tensor) -> Tensor:
    return matrix.matmat(vectors.to(matrix.device, matrix.dtype))


def _require_square(shape: tuple[int, ...]) -> None:
    is_square = len(shape) == 2 and shape[0] == shape[1]
    require(is_square, "a measurement needs a square matrix", f"got shape {shape}")


def _require_symmetric(
    matrix: LinearOperator, product: ScaledProduct, vector: Tensor | None, image: Tensor | None
) -> None:
    """u.(H v) = v.(H u) for two random vectors, of which the first product of an iteration may be one.

    Both sides differ by about ||H - H^T|| in the Frobenius norm, and ||H u|| is about ||H||, in any dimension. Products
    have their own rounding, which is no asymmetry: where both sides differ, it is measured by H(a u + b v) for some
    random a and b, which must be a H u + b H v.
    """
    if product.size > 1:
        generator = torch.Generator().manual_seed(product.seed ^ _OTHER_SEED)
        draw = partial(normal_vectors, (product.size, 1), generator, product.dtype, product.device)
        one = draw() if vector is None else vector
        first = product(one) if image is None else image
        other = draw()
        # A vector of the iteration has length one, those that are drawn have the root of the size.
        stretch = product.size**0.5 / (float(row_lengths(one.T)) or 1.0)
        crossed, size = inner_products(other.T, first.T), stretch * float(row_lengths(first.T))
        del first  # three vectors at most are held beside those of an iteration
        other_image = product(other)
        difference = stretch * float((inner_products(one.T, other_image.T) - crossed).abs())
        size += float(row_lengths(other_image.T))
        if difference > asymmetry_tolerance(matrix) * size:
            image = product(one) if image is None else image
            pair = torch.cat([one, other], 1), torch.cat([image, other_image], 1)
            _require_symmetric_beyond_rounding(matrix, product, *pair, stretch, difference, size)
        if product.keeps_spare:
            product.spare = other, other_image
    key, owner = _identity(matrix)
    with suppress(TypeError):  # an object without weak references is asked every time
        _SYMMETRIC[key] = owner


def _require_symmetric_beyond_rounding(
    matrix: LinearOperator,
    product: ScaledProduct,
    vectors: Tensor,
    images: Tensor,
    stretch: float,
    difference: float,
    size: float,
) -> None:
    """Two products differ from symmetric ones: whether by more than the rounding of such products.

    The first vector counts ``stretch`` times, as in the difference and the size.
    """
    mixture = torch.randn(2, _MIXTURES, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(images)
    mixture[0] *= stretch
    expected = images @ mixture
    rounding = float((product(vectors @ mixture) - expected).norm(dim=0).max())
    if product.scale > _TINY:  # below, numbers have few digits left
        nudged = vectors[:, :1] * (1 + 16 * rounding_unit(matrix) * torch.sign(vectors[:, 1:]))
        noise = partial(_noise, product, nudged, images[:, :1], stretch)
        _require_linear(rounding, float(expected.norm(dim=0).max()), noise)
    got = f"u.(H v) and v.(H u) of random u and v differ by {difference / size:.3g} of ||H u|| + ||H v||"
    remedy = "Look for a function of the model that hides its second derivative, or for an error in matmat"
    is_symmetric = difference <= _ABOVE_ROUNDING * rounding
    require(is_symmetric, "a measurement needs a symmetric operator", got, remedy)


def _require_linear(difference: float, size: float, noise: Callable[[], float]) -> None:
    """What no rounding explains is no linear operator, and its asymmetry no rounding."""
    got = f"H(a u + b v) and a H u + b H v differ by {difference / (size or 1.0):.3g} of their size"
    must, remedy = "a measurement needs a linear operator", "Look for an error in matmat"
    is_linear = difference <= LINEARITY_TOLERANCE * size or difference <= _ABOVE_ROUNDING * noise()
    require(is_linear, must, got, remedy)


def _noise(product: ScaledProduct, nudged: Tensor, images: Tensor, stretch: float) -> float:
    """The change of a product where its vector changes in the last digits. Of an operator whose terms cancel (a Hessian
    less an approximation that is exact) it is as large as the product itself."""
    return stretch * float((product(nudged) - images).norm())


def is_known_symmetric(matrix: LinearOperator) -> bool:
    """Whether the operator, or the larger one that it is a diagonal block of, was found to be symmetric."""
    key, owner = _identity(matrix)
    if _SYMMETRIC.get(key) is owner:
        return True
    return isinstance(matrix, SymmetricBlock) and is_known_symmetric(matrix.whole)


def _identity(matrix: LinearOperator) -> tuple[tuple[int, str], object]:
    """What a symmetry belongs to: a part of a problem, whichever operator speaks of it, or the operator itself."""
    problem, part = getattr(matrix, "problem", None), getattr(matrix, "part", None)
    owner = problem if problem is not None and isinstance(part, str) else matrix
    return (id(owner), part if owner is problem and isinstance(part, str) else ""), owner


def operator_scale(matrix: object) -> float | None:
    """The norm that an operator says its thresholds are relative to; None for anything else."""
    scale = getattr(matrix, "scale", None)
    return None if scale is None else float(scale)


def is_low_precision(matrix: object) -> bool:
    """Whether products with an operator are rounded to less than float64."""
    if isinstance(matrix, ScipyOperator):
        return FromScipy(matrix).dtype != torch.float64
    return isinstance(matrix, LinearOperator) and matrix.dtype != torch.float64


def is_iterated_in_single(matrix: object) -> bool:
    """Whether measurements use float32 products by default, verified in float64: of operators in float64 on an
    accelerator, where float64 is up to 64 times slower, that offer products in float32."""
    if not isinstance(matrix, LinearOperator) or matrix.device.type == "cpu" or is_low_precision(matrix):
        return False
    return type(matrix).in_single_precision is not LinearOperator.in_single_precision


def rounding_unit(matrix: object) -> float:
    """Machine epsilon of the number format of a matrix or operator.

    Args:
        matrix: Operator, tensor or array.

    Returns:
        2^-23 for an operator that computes in float32 or a shorter format, else 2^-52.

    Example:
        >>> rounding_unit(np.eye(2)) == 2.0**-52
        True
    """
    return FLOAT32_EPS if is_low_precision(matrix) else EPS


def asymmetry_tolerance(matrix: object) -> float:
    """Of products that are rounded to float32, by an operator in float32 or by one that says so, or in float64."""
    is_rounded = is_low_precision(matrix) or getattr(matrix, "precision", torch.float64) != torch.float64
    return max(FLOAT32_TOLERANCE if is_rounded else ASYMMETRY_TOLERANCE, _product_error(matrix))


def reachable_tolerance(matrix: object, default: float) -> float:
    """The default tolerance, increased to what products of the operator can reach.

    Args:
        matrix: Operator, tensor or array.
        default: Tolerance, relative to the norm, for products in float64.

    Returns:
        ``default``, at least 1e-5 for an operator in float32 or a shorter format, or one on an accelerator that is
        iterated in float32 and verified in float64, and at least the ``product_error`` that an operator states (finite
        differences).

    Notes:
        Products in float32 were measured to have errors up to 1e-6 of the norm, eight machine epsilons; ten times that
        is reached with residuals that can be trusted.

    Example:
        >>> reachable_tolerance(np.eye(2), 1e-8)
        1e-08
    """
    is_single = is_low_precision(matrix) or is_iterated_in_single(matrix)
    return max(default, FLOAT32_TOLERANCE if is_single else 0.0, _product_error(matrix))


def _product_error(matrix: object) -> float:
    """Relative error of products beyond rounding, of an operator that states one (finite differences)."""
    return float(getattr(matrix, "product_error", 0.0))
