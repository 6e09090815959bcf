"""What eigenpairs will take before they are computed: the method, blocks, stored vectors, bytes and products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from hessmap.errors import TooLarge, require_name
from hessmap.linalg import STREAMED, LinearOperator, checked_budget, default_budget, readable_bytes
from hessmap.measurement.eigenpair_iteration import NUM_STORED, num_stored
from hessmap.measurement.operators_in import FromScipy, Matrix

EigenpairMethod = Literal["auto", "thick_restart", "offloaded_restart", "three_term"]
METHODS: tuple[EigenpairMethod, ...] = get_args(EigenpairMethod)

# Products of Lanczos with restarts: at the start, per eigenpair, per vector of a block. The plane through the medians
# of benchmarks/lanczos_products.py (loss Hessians of four networks, untrained and trained, to 1e-8); single operators
# took between 0.6 and 1.6 times as many.
_PRODUCTS_AT_START, _PRODUCTS_PER_PAIR, _PRODUCTS_PER_VECTOR = 13.1, 4.25, 15.6
_PASSES = 2  # of the recurrence: one for the values, one for the vector
_WIDE = torch.float64.itemsize
_CHECK_VECTORS = 5  # held while one combination of the eigenvectors is multiplied and compared
_FLOAT32_CHECK_VECTORS = 10  # the same for vectors in float32: two combinations, which are summed in float64


def default_block(matrix: Matrix, size: int, count: int) -> int:
    """Return the number of vectors of a Lanczos block: one, unless the operator multiplies blocks more cheaply.

    Args:
        matrix: Operator, tensor or array.
        size: Number of its rows.
        count: Number of wanted eigenpairs.

    Returns:
        A width between 1 and ``size``.

    Example:
        >>> import numpy as np
        >>> default_block(np.eye(50), 50, 2), default_block(np.eye(50), 50, 100)
        (4, 16)
    """
    if isinstance(matrix, FromScipy | LinearOperator):
        widest = matrix.block_size
    else:
        widest = 1 if hasattr(matrix, "matmat") else 16
    return min(size, widest, max(4, count))


def expected_products(size: int, count: int, block_size: int) -> int:
    """Predict the number of products that eigenpairs take to 1e-8.

    Args:
        size: Number of rows of the operator.
        count: Number of eigenpairs.
        block_size: Vectors of a Lanczos block.

    Returns:
        The median over measured networks, at most ``size``.
    """
    expected = _PRODUCTS_AT_START + _PRODUCTS_PER_PAIR * count + _PRODUCTS_PER_VECTOR * block_size
    return min(size, round(expected))


def default_basis(size: int, count: int, block_size: int) -> int:
    """Return how many vectors are stored before a restart by default.

    Args:
        size: Number of rows of the operator.
        count: Number of eigenpairs.
        block_size: Vectors of a Lanczos block.

    Returns:
        The number of vectors, without those of the test for missed eigenvalues.
    """
    return min(size, 2 * count + max(8 * block_size, 32))


def basis_bytes(size: int, count: int, block_size: int, precision: torch.dtype = torch.float64) -> int:
    """Return the memory of the vectors that ``top_eigenpairs`` stores by default.

    Args:
        size: Number of rows of the operator.
        count: Number of eigenpairs.
        block_size: Vectors of a Lanczos block.
        precision: Of the stored vectors. Defaults to float64.

    Returns:
        Bytes of the Lanczos basis.
    """
    return size * precision.itemsize * num_stored(size, default_basis(size, count, block_size), NUM_STORED)


def eigenpairs_bytes(size: int, count: int, block_size: int, precision: torch.dtype = torch.float64) -> int:
    """Return the memory that ``top_eigenpairs`` takes with its default basis.

    Args:
        size: Number of rows of the operator.
        count: Number of eigenpairs.
        block_size: Vectors of a Lanczos block.
        precision: Of the stored vectors. Defaults to float64.

    Returns:
        Bytes of the basis, the returned vectors and the blocks of a step.
    """
    return basis_bytes(size, count, block_size, precision) + 8 * size * (count + 6 * block_size)


@dataclass(frozen=True)
class VectorFormat:
    """Sizes of the vectors of an iteration.

    Attributes:
        size: Entries of a vector.
        stored: Bytes of an entry of the basis.
        working: Bytes of an entry of blocks and images.
        copies: Copies of an image that exist at once: 1 where the operator returns new memory, else 2.
        on_host: Whether the results take memory of the same budget.
    """

    size: int
    stored: int
    working: int
    copies: int
    on_host: bool


@dataclass(frozen=True)
class EigenpairPlan:
    """How eigenpairs will be computed within a memory budget.

    Attributes:
        method: "thick_restart" (a stored basis), "offloaded_restart" (a basis in host memory), or "three_term" (two
            vectors beside the pairs found).
        width: Vectors of a block.
        capacity: Vectors of the basis before a restart.
        num_probe_vectors: Further vectors for the test of missed eigenvalues; 0: the test stores none.
        num_bytes: Bytes that are held at most, beside the operator and its products' temporaries.
        num_products: Predicted number of products to 1e-8.
        is_limited: Whether the budget is below what the default would take.
        host_bytes: Bytes of a basis in host memory. Defaults to 0.
    """

    method: str
    width: int
    capacity: int
    num_probe_vectors: int
    num_bytes: int
    num_products: int
    is_limited: bool
    host_bytes: int = 0


def budget_of(matrix: Matrix, given: float | None) -> int:
    """Return the bytes that a measurement may hold.

    Args:
        matrix: Operator, tensor or array.
        given: Budget of the call, or None for that of the operator, or else the default of its device.

    Returns:
        The number of bytes.

    Raises:
        InvalidInput: If the given budget is not a number of at least one byte.

    Example:
        >>> import numpy as np
        >>> budget_of(np.eye(2), 1e6)
        1000000
    """
    if given is not None:
        return checked_budget(given, least=1)
    own = matrix.memory_budget if isinstance(matrix, LinearOperator) else None
    device = matrix.device if isinstance(matrix, LinearOperator) else None
    return default_budget(device) if own is None else own


def eigenpair_plan(
    vectors: VectorFormat,
    total: int,
    width: int,
    budget: int,
    *,
    capacity: int | None = None,
    method: EigenpairMethod = "auto",
    needs_vectors: bool = True,
    is_width_free: bool = True,
    host_budget: int = 0,
) -> EigenpairPlan:
    """Choose how eigenpairs are computed within a budget.

    Args:
        vectors: Sizes of the vectors.
        total: Number of eigenpairs, of both ends together.
        width: Vectors of a block by default.
        budget: Bytes that may be held.
        capacity: Vectors of the basis that were asked for. Default: as many as fit, up to ``default_basis``.
        method: "thick_restart", "offloaded_restart", "three_term", or "auto": restarts where their smallest useful
            basis fits; else a basis in host memory where that fits and needs fewer products than the recurrence.
        needs_vectors: Whether eigenvectors are wanted. Defaults to True.
        is_width_free: Whether a smaller block may be chosen. Defaults to True.
        host_budget: Bytes of host memory that a basis may take, for vectors on a device. Defaults to 0: none.

    Returns:
        EigenpairPlan: The plan that fits.

    Raises:
        TooLarge: If no method fits, with the bytes and what to do.
    """
    require_name("method", method, METHODS)
    size = vectors.size
    if method == "offloaded_restart" and vectors.on_host:
        method = "thick_restart"
    wished = default_basis(size, total, width) if capacity is None else capacity
    products = expected_products(size, total, width)
    whole = _restart_bytes(vectors, total, width, wished, NUM_STORED, total)
    is_on_device = method in ("auto", "thick_restart")
    if is_on_device and whole <= budget:
        return EigenpairPlan("thick_restart", width, wished, NUM_STORED, whole, products, False)
    if is_on_device:
        narrow = 1 if is_width_free else width
        wished = default_basis(size, total, narrow) if capacity is None else capacity
        each = size * vectors.stored
        for extra in (NUM_STORED, 0):
            least = capacity or min(size, _least_basis(total, narrow, method))
            spare = budget - _restart_bytes(vectors, total, narrow, least, extra, 1)
            if spare >= 0 or (method == "thick_restart" and extra == 0 and capacity is not None):
                chosen = min(wished, least + max(0, spare) // max(1, each))
                held = _restart_bytes(vectors, total, narrow, chosen, extra, 1)
                if held > budget:
                    break
                share = default_basis(size, total, narrow) / max(1, chosen)
                return EigenpairPlan(
                    "thick_restart", narrow, chosen, extra, held, round(products * max(1.0, share)), True
                )
    held = recurrence_bytes(vectors, total, needs_vectors)
    passes = _PASSES * total if needs_vectors else 1
    recurrence = EigenpairPlan(
        "three_term", 1, 0, 0, held, passes * expected_products(size, 1, 1), is_limited=whole > budget
    )
    offloaded = _offloaded_plan(vectors, total, budget, host_budget, capacity)
    if method in ("auto", "offloaded_restart") and offloaded is not None:
        fits_alone = method == "offloaded_restart" or held > budget
        if fits_alone or offloaded.num_products < recurrence.num_products:
            return offloaded
    if method in ("thick_restart", "offloaded_restart") or held > budget:
        raise _too_large(vectors, total, needs_vectors, budget, method)
    return recurrence


def _offloaded_plan(
    vectors: VectorFormat, total: int, budget: int, host_budget: int, capacity: int | None
) -> EigenpairPlan | None:
    """Restarts with the basis in host memory: the device holds the vectors of a step and two blocks of the basis, the
    host the basis and the results. None where either does not fit."""
    size, each = vectors.size, max(1, vectors.size * vectors.stored)
    held = _restart_bytes(vectors, total, 1, 2 * STREAMED, 0, 1)
    room = (host_budget - total * _WIDE * size) // each
    wished = default_basis(size, total, 1) if capacity is None else capacity
    least = min(size, _least_basis(total, 1, "auto")) if capacity is None else capacity
    if vectors.on_host or held > budget or room < least:
        return None
    chosen = min(wished, room)
    extra = NUM_STORED if room >= wished + NUM_STORED else 0
    products = expected_products(size, total, 1) * max(1.0, default_basis(size, total, 1) / max(1, chosen))
    on_host = each * num_stored(size, chosen, extra) + total * _WIDE * size
    return EigenpairPlan("offloaded_restart", 1, chosen, extra, held, round(products), True, on_host)


def recurrence_bytes(vectors: VectorFormat, total: int, needs_vectors: bool) -> int:
    """Return what the three-term recurrence holds: two vectors, an image, and the eigenvectors.

    Args:
        vectors: Sizes of the vectors.
        total: Number of eigenpairs.
        needs_vectors: Whether eigenvectors are computed.

    Returns:
        Bytes.
    """
    count = 2 + vectors.copies + (total if needs_vectors else 0)
    found = vectors.size * vectors.working * max(count, 2 + 2 * vectors.copies if needs_vectors else 0)
    is_copied = needs_vectors and vectors.on_host and vectors.working != _WIDE
    return found + (vectors.size * _WIDE * total if is_copied else 0)


def _least_basis(total: int, width: int, method: EigenpairMethod) -> int:
    """Below, a restart keeps so little that the recurrence needs fewer products."""
    return total + (2 * width if method == "thick_restart" else max(2 * width, 4))


def _restart_bytes(vectors: VectorFormat, total: int, width: int, capacity: int, extra: int, together: int) -> int:
    """What Lanczos with restarts holds: the basis, the vectors of a step or of the final checks, and the results."""
    size, working = vectors.size, vectors.working
    stored = size * vectors.stored * num_stored(size, capacity, extra)
    first = 2  # the first product, which is compared at the end
    step = (1 + vectors.copies if width == 1 else 6 * width) * working
    probe = (width + (0 if extra else 3 + vectors.copies)) * working
    mixed = 3 * torch.float32.itemsize if vectors.stored == torch.float32.itemsize else 0
    is_float32 = max(working, vectors.stored) == torch.float32.itemsize
    checked = _FLOAT32_CHECK_VECTORS if is_float32 else _CHECK_VECTORS
    checks = width * working + max(3 * min(total, together), checked) * max(working, vectors.stored)
    results = width * working + total * _WIDE if vectors.on_host else 0
    return stored + size * (first * working + mixed + max(step, probe, checks, results))


def _too_large(
    vectors: VectorFormat, total: int, needs_vectors: bool, budget: int, method: EigenpairMethod
) -> TooLarge:
    if method == "offloaded_restart":
        least = _restart_bytes(vectors, total, 1, 2 * STREAMED, 0, 1)
        remedy = "Use method='three_term', fewer eigenpairs, or a larger memory_budget; the basis must fit the host"
    elif method == "thick_restart":
        least = _restart_bytes(vectors, total, 1, _least_basis(total, 1, method), 0, 1)
        remedy = "Use method='three_term', fewer eigenpairs or a larger memory_budget"
    else:
        least = recurrence_bytes(vectors, total, needs_vectors)
        other = "fewer eigenpairs, " if total > 1 else "sharpness without the eigenvector, " if needs_vectors else ""
        remedy = f"Use {other}float32, or a larger memory_budget"
    what = f"{total} eigenpair{'s' if total > 1 else ''} of an operator of size {vectors.size:,}"
    num_vectors = -(-least // max(1, vectors.size * vectors.working))
    needs = f"{what} take{'s' if total == 1 else ''} at least {readable_bytes(least)} ({num_vectors} vectors)"
    return TooLarge(f"{needs}; the memory budget is {readable_bytes(budget)}. {remedy}.")
