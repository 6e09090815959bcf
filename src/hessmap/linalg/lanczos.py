"""Lanczos processes: Krylov spaces of a symmetric product, grown block by block. In each

    A Q = Q T + B C,    Q^T Q = I,  Q^T B = 0,  T = Q^T A Q

with the basis Q, the matrix T projected onto it, the next block B and its coupling C. How far Q stays orthogonal, and
what becomes of directions that vanish from a block, is for the process to say:

- ``BlockLanczos`` in one Krylov space: eigenpairs and linear systems are found by it;
- ``ParallelLanczos`` in several Krylov spaces side by side, one vector a step: Gauss rules and norms are found by it.

Products are made by a ``ScaledProduct``: counted, finite, and in a unit in which squares can be taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import floor, log2
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, noting_errors, require, sentence
from hessmap.linalg.devices import empty, full_precision, normal_vectors, widest_dtype
from hessmap.linalg.orthogonalisation import (
    MeasuredOrthogonality,
    OrthogonalityEstimate,
    inner_matrix,
    inner_products,
    orthonormal_directions,
    pieces,
    remove_basis,
    row_lengths,
)
from hessmap.progress import report_products

Product = Callable[[Tensor], Tensor]
_MIN_RANGE = 1e30  # the largest number of a format in which vectors can be lifted; float16 ends before


class ScaledProduct:
    """Products with the columns of blocks of vectors, counted, in units of a power of two near the first one that is
    not zero: squares then neither overflow nor vanish. Where that one is so small that its numbers have few digits, the
    vectors are multiplied by ``input_scale`` before: a linear operator then has products with all digits.

    They are on the device of the vectors and in ``dtype``: float64, unless the iteration can do with less. ``check`` is
    called once: before the first product, without vectors, or after it with the first vector and its image if the
    iteration ``starts_at_random``; it may leave one more random vector and its image in ``spare``. With
    ``remembers_first`` a first product is kept, for ``change``. Images of a product that ``is_new``, in memory that
    nothing else uses, are scaled in place.

    Args:
        product: Function of (size, count) vectors.
        size: Number of rows of the operator.
        check: Called once with the product, and the first vector and its image or None. Default: no check.
        is_new: Whether images are in memory that nothing else uses. Defaults to False.
    """

    def __init__(
        self,
        product: Product,
        size: int,
        check: Callable[[ScaledProduct, Tensor | None, Tensor | None], None] | None = None,
        is_new: bool = False,
    ) -> None:
        self.size = size
        self.dtype = torch.float64
        self.device = torch.device("cpu")  # where an iteration keeps its vectors
        self.num_products = 0
        self.unit = 0.0  # 0 until a product was not zero
        self.lift = 1.0
        self.remembers_first = False
        self.starts_at_random = False
        self.seed = 0  # of the check's vectors
        self.keeps_spare = False
        self.spare: tuple[Tensor, Tensor] | None = None
        self._first: tuple[Tensor, Tensor] | None = None  # a vector whose product was not zero, and that product
        self._product = product
        self._check = check
        self._is_new = is_new

    def place_on(self, device: torch.device) -> None:
        """Keep the vectors of iterations on a device, in its widest format."""
        self.device, self.dtype = device, widest_dtype(device)

    def check_now(self) -> None:
        """Run the check before an iteration allocates its vectors."""
        check, self._check = self._check, None
        if check is not None:
            check(self, None, None)

    @property
    def scale(self) -> float:
        """What products are divided by."""
        return self.unit or 1.0

    def __call__(self, vectors: Tensor, *, is_read: bool = False) -> Tensor:
        """The product with (size, count) vectors over ``scale``, in memory of its own.

        A product must be finite. With ``is_read`` the caller reads numbers that are computed from all of its entries,
        and passes these to ``require_finite_products``: a device does not wait for one more.
        """
        check, self._check = self._check, None
        if check is not None and not (self.starts_at_random and vectors.numel()):
            check(self, None, None)
            check = None
        if not vectors.numel():
            return torch.zeros_like(vectors)
        images = self._scaled_products(vectors)
        largest = 0.0 if is_read and self.unit else _largest_entry(images)
        if self.unit == 0.0 and largest > 0:
            self.lift = _needed_lift(largest, images.dtype)
            if self.lift != 1:
                images = self._scaled_products(vectors)
                largest = _largest_entry(images)
            self.unit = 2.0 ** floor(log2(largest)) / self.lift
        own, divisor = images.to(vectors.device, self.dtype), self.scale * self.lift
        is_new = self._is_new or own is not images
        scaled = own.div_(divisor) if is_new else own / divisor
        if self.remembers_first and self._first is None and self.unit:
            place = int(scaled.abs().amax(0).argmax())
            self._first = vectors[:, place : place + 1].clone(), scaled[:, place : place + 1].clone()
        if check is not None:
            check(self, vectors[:, :1], scaled[:, :1])
        return scaled

    def use_matrix(self, matrix: Tensor) -> None:
        """Multiply with a matrix from now on, which must be that of the operator."""
        self._product, self._is_new = lambda vectors: matrix @ vectors.to(matrix), True

    @property
    def first(self) -> tuple[Tensor, Tensor] | None:
        """The first vector whose product was not zero, as a column, and that product, if they are kept."""
        return self._first

    def change(self, rounding: float) -> float:
        """How far the first product is from what it was when it is made once more, relative to its size.

        An operator whose products change from call to call has no eigenpairs. Up to ``rounding``, in the unit of the
        product and for a vector of length one, a difference is none: products with vectors of the kernel are rounding.
        0.0 where all products were zero.
        """
        if self._first is None:
            return 0.0
        vector, image = self._first
        beyond = float((self(vector) - image).norm()) - rounding * float(vector.norm())
        return max(0.0, beyond) / float(image.norm())

    def _scaled_products(self, vectors: Tensor) -> Tensor:
        """The products of lifted vectors."""
        images = self._images(vectors if self.lift == 1 else vectors * self.lift)
        self.num_products += vectors.shape[1]
        report_products(vectors.shape[1])
        return images

    def _images(self, vectors: Tensor) -> Tensor:
        """What the operator returns, if it is what a product must be. Its own exceptions pass through with a note."""
        with noting_errors("the product of an operator"), full_precision(self.device):
            images = self._product(vectors)
        if not isinstance(images, Tensor) or images.shape != vectors.shape or images.is_complex():
            must = "the product of an operator must be a real tensor of the shape of its vectors"
            kind = f"{tuple(images.shape)} of {images.dtype}" if isinstance(images, Tensor) else type(images).__name__
            raise InvalidInput(sentence(must, f"got {kind} for {tuple(vectors.shape)}"))
        return images.detach()


def require_finite_products(numbers: Tensor) -> None:
    """Raise unless products are finite, by numbers on the host that all of their entries enter.

    Args:
        numbers: Inner products or lengths of products.

    Raises:
        InvalidInput: If one is NaN or inf.
    """
    is_finite = bool(torch.isfinite(numbers).all())
    require(is_finite, "the products of an operator must be finite", "there is NaN or inf in one")


def _largest_entry(images: Tensor) -> float:
    """The largest magnitude of products, which must be finite."""
    low, high = torch.aminmax(images)
    largest = torch.maximum(-low, high).to("cpu", torch.float64)
    require_finite_products(largest)
    return float(largest)


def _needed_lift(largest: float, dtype: torch.dtype) -> float:
    """A power of two that lifts products of this size to where even their rounding has all of its digits; 1 where they
    are, or in a format that has no room for it."""
    numbers = torch.finfo(dtype if dtype.is_floating_point else torch.float64)
    if largest >= numbers.tiny / numbers.eps or numbers.max < _MIN_RANGE:
        return 1.0
    return 2.0 ** (floor(log2(numbers.tiny / numbers.eps**2)) - floor(log2(largest)))


class LanczosProcess(ABC):
    """One Krylov space, or several that share every product; then all tensors have a first dimension of spaces.

    Vectors are rows: ``block`` is (width, size), in the number format of the product, ``coupling`` (width, dimension).
    The basis may be stored in float32, for products in float32: it is orthonormal to 1e-7 then. Values are in the unit
    of the product. With an ``addition`` of rows and a matrix M, the operator is A + rows^T M rows.
    """

    def __init__(
        self,
        product: ScaledProduct,
        spaces: tuple[int, ...],
        capacity: int,
        num_stored: int,
        precision: torch.dtype,
        home: torch.device | None = None,
    ) -> None:
        self.product = product
        self.size = product.size
        self.dimension = 0
        self.addition: tuple[Tensor, Tensor] | None = None
        self.block = torch.zeros(*spaces, 0, self.size, dtype=product.dtype, device=product.device)
        self.coupling = torch.zeros(*spaces, 0, 0, dtype=torch.float64)
        self._vectors = _empty_on(home or product.device, (*spaces, num_stored, self.size), precision)
        self._projected = torch.zeros(*spaces, capacity, capacity, dtype=torch.float64)

    @property
    def capacity(self) -> int:
        """How many vectors there can be."""
        return self._projected.shape[-1]

    @property
    def room(self) -> int:
        """How many more vectors there can be."""
        return self.capacity - self.dimension

    @property
    def width(self) -> int:
        """Of the next block; 0 when the spaces have ended: the operator does not lead out of them."""
        return self.block.shape[-2]

    @property
    def basis(self) -> Tensor:
        """Orthonormal rows."""
        return self._vectors[..., : self.dimension, :]

    @property
    def projection(self) -> Tensor:
        return self._projected[..., : self.dimension, : self.dimension]

    def expand(self) -> None:
        """Take the block into the basis, multiply it, and make the next one of what is new."""
        old, width = self.dimension, self.width
        self._store_block()
        rest = self._images()
        if self.addition is not None:
            rows, matrix = self.addition
            inside = self.block.flatten(0, -2) @ rows.mT @ matrix.to(rows)  # on the device: the host reads nothing
            rest += (inside @ rows).view_as(rest)
        taken = self._remove_basis(rest)
        require_finite_products(taken)
        self._project(old, taken)
        coefficients = self._make_block(rest, width)
        self.coupling = torch.zeros(*self.block.shape[:-1], self.dimension, dtype=torch.float64)
        self.coupling[..., : coefficients.shape[-2], old:] = coefficients

    @abstractmethod
    def _remove_basis(self, rest: Tensor) -> Tensor:
        """Take the basis, or its last vectors, out of new rows, in place, and return what was taken of them."""

    @abstractmethod
    def _make_block(self, rest: Tensor, width: int) -> Tensor:
        """Make the next block of rows without a part in the basis; return its coefficients in them."""

    def _store_block(self) -> None:
        old = self.dimension
        self.dimension += self.width
        self._vectors[..., old : self.dimension, :] = self.block

    def _images(self) -> Tensor:
        return self.product(self.block.flatten(0, -2).T, is_read=True).T.contiguous().view_as(self.block)

    def _project(self, old: int, inside: Tensor) -> None:
        """Write the columns of the new vectors into T: what was taken of the last vectors, the earlier ones being 0."""
        new, rows = slice(old, self.dimension), slice(self.dimension - inside.shape[-2], self.dimension)
        self._projected[..., new], self._projected[..., new, :] = 0.0, 0.0
        self._projected[..., rows, new] = inside
        self._projected[..., new, rows] = inside.mT
        if inside.shape[-1] > 1:
            corner = inside[..., old - self.dimension :, :]
            self._projected[..., new, new] = (corner + corner.mT) / 2


def _empty_on(device: torch.device, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """On the host, pages that are not written to take no memory."""
    return empty(shape, dtype) if device.type == "cpu" else torch.empty(shape, dtype=dtype, device=device)


_NEGLIGIBLE = 1e-13  # of the norm: what is left of a direction that the basis already holds is rounding
_PIECE = 4096  # entries of every vector that are combined at a time
_SENT = 2**20  # the same where the result goes to another device


class LanczosState(NamedTuple):
    """What an expansion changes, beside what it adds to the basis and to the projected matrix."""

    dimension: int
    block: Tensor
    coupling: Tensor
    num_near: int | None
    is_closed: bool


class BlockLanczos(LanczosProcess):
    """Every block is cleared of the whole basis; directions that vanish from it are dropped. With a ``generator``
    random ones take their place, as long as there are any: then the process goes on when a Krylov space has ended.

    ``is_semi_orthogonal``: a block is reorthogonalised against a basis in float32 only where it has lost orthogonality
    to it; inner products stay below 3e-4, the recurrence is right to about 1e-5 of the norm. ``norm`` is that of the
    operator, as far as it is known.

    Args:
        product: Products of the operator.
        capacity: Most vectors that are stored.
        generator: Draws random directions in the place of vanished ones. Default: none.
        precision: Of the stored vectors. Defaults to float64.
        is_semi_orthogonal: Whether orthogonality to half of the digits is enough. Defaults to False.
        home: Device of the stored vectors. Defaults to that of the product; vectors elsewhere are streamed.
    """

    def __init__(
        self,
        product: ScaledProduct,
        capacity: int,
        generator: torch.Generator | None = None,
        precision: torch.dtype = torch.float64,
        is_semi_orthogonal: bool = False,
        home: torch.device | None = None,
    ) -> None:
        super().__init__(product, (), capacity, capacity, precision, home)
        self.generator = generator
        self.norm = 0.0
        self.orthogonality = MeasuredOrthogonality(self.size, product.device) if is_semi_orthogonal else None
        self._num_recent: int | None = None  # of the last vectors, in which the image of the block has parts; None: all
        self._is_invariant = True  # the operator leads out of the basis into the block alone
        self._known_images: Tensor | None = None  # of the block

    @property
    def precision(self) -> torch.dtype:
        """Of the stored vectors; blocks are in that of the product."""
        return self._vectors.dtype

    @property
    def state(self) -> LanczosState:
        return LanczosState(self.dimension, self.block, self.coupling, self._num_recent, self._is_invariant)

    @state.setter
    def state(self, state: LanczosState) -> None:
        self.dimension, self.block, self.coupling, self._num_recent, self._is_invariant = state

    def start(self, rows: Tensor, width: int) -> None:
        """Begin with some directions, filled up to a width; or go on with them, which must lie beside the basis."""
        most = self.size - self.dimension
        largest = float(rows.abs().max()) if rows.numel() else 0.0
        rows = (rows / (largest or 1.0)).to(self.block)
        found, _ = orthonormal_directions(rows, self.basis, 0.0, most, _NEGLIGIBLE)
        self.block = self._with_random_directions(found, width)
        self.coupling = torch.zeros(self.width, self.dimension, dtype=torch.float64)
        self._num_recent, self._is_invariant = None, not self.dimension

    def start_with_image(self, vector: Tensor, image: Tensor) -> None:
        """Continue with the part of a random vector outside of the basis, whose image is known: no product is made.

        With r = v - Q c and A Q = Q T + B C, the image of r is A v - Q T c - B C c.
        """
        row, rest = vector.T.to(self.block, copy=True), image.T.to(self.block, copy=True)
        inside = remove_basis(row, self.basis)
        inside += remove_basis(row, self.basis)
        if self.dimension:
            rest -= (self.projection @ inside).T.to(rest) @ self.basis.to(rest.dtype)
        if self.width:
            rest -= (self.coupling @ inside).T.to(rest) @ self.block
        length = float(row_lengths(row))
        self.block, self._known_images = row.div_(length), rest.div_(length)
        self.coupling = torch.zeros(1, self.dimension, dtype=torch.float64)
        self._num_recent, self._is_invariant = None, not self.dimension

    def join(self, after: LanczosState, addition: tuple[Tensor, Tensor] | None) -> None:
        """Keep vectors that a later state added to the basis, beside the present block.

        With A Q = Q T + B C now and new vectors W beside Q, of A + B^T M B (an ``addition``) or of A, the images of
        both leave the basis along B - (B W) W^T and the later block alone.
        """
        block, coupling, old = self.block, self.coupling, self.dimension
        self.state = after
        new = self.basis[old:].to(block.device)
        inside = inner_matrix(block, new)
        rows = torch.cat([block - inside.to(block) @ new.to(block), self.block])
        whole = torch.zeros(len(rows), self.dimension, dtype=torch.float64)
        whole[: len(block), :old] = coupling
        whole[len(block) :, old:] = self.coupling[:, old:]
        if addition is not None:
            moved = addition[1] @ inside
            whole[: len(block), old:] = -moved
            self._projected[old : self.dimension, old : self.dimension] -= inside.T @ moved
        most = self.size - self.dimension
        self.block, coefficients = orthonormal_directions(rows, self.basis, 0.0, most, _NEGLIGIBLE)
        self.coupling = coefficients @ whole
        self._num_recent, self._is_invariant = None, True

    def widen(self, rows: Tensor, most: int) -> None:
        """Add directions of some rows, ``most`` of them, to the next block; nothing in the basis is coupled to them."""
        fresh = self._orthogonal_to(rows, self.block, most)
        self.block = torch.cat([self.block, fresh])
        self.coupling = torch.cat([self.coupling, self.coupling.new_zeros(len(fresh), self.dimension)])

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values in ascending order, their vectors in the basis (columns), and the norms of their residuals."""
        values, vectors = torch.linalg.eigh(self.projection)
        if self.dimension:
            self.norm = max(self.norm, float(values.abs().max()))
        return values, vectors, torch.linalg.vector_norm(self.coupling @ vectors, dim=0)

    def restrict(self, values: Tensor, vectors: Tensor) -> None:
        """A thick restart: keep some Ritz vectors alone; the block and its coupling stay."""
        kept = vectors.shape[1]
        mixture = vectors.T.to(self._vectors)
        for part in pieces(self.size, _PIECE):  # in place, a few entries of every vector at a time
            self._vectors[:kept, part] = mixture @ self.basis[:, part]
        self.coupling = self.coupling @ vectors
        self.dimension = kept
        self._projected[:kept, :kept] = torch.diag(values)
        self._num_recent = None
        if self.orthogonality is not None:
            self.orthogonality.forget()

    def combine(self, vectors: Tensor) -> Tensor:
        """Vectors of the basis as vectors of the whole space, one a column."""
        device = self.product.device
        whole = _empty_on(device, (vectors.shape[1], self.size), widest_dtype(device))
        mixture = vectors.T.to(self._vectors)
        for part in pieces(self.size, _PIECE if self._vectors.device == device else _SENT):
            whole[:, part] = mixture @ self.basis[:, part]
        return whole.T

    def _images(self) -> Tensor:
        known, self._known_images = self._known_images, None
        return super()._images() if known is None else known

    def _store_block(self) -> None:
        super()._store_block()
        if self.precision != self.product.dtype or self.precision != torch.float64:
            stored = self.basis[-self.width :] if self._vectors.device == self.block.device else self.block
            self.block = stored.to(self.precision).to(self.product.dtype)

    def _remove_basis(self, rest: Tensor) -> Tensor:
        width, before = rest.shape[0], self._num_recent
        self._num_recent = width if self._is_invariant else None
        if self.orthogonality is None or before is None:
            inside = remove_basis(rest, self.basis, 2 * width)
        else:
            near = before + width
            inside = remove_basis(rest, self.basis[-near:])
            if self.orthogonality.is_lost(self.basis[:-near], rest):
                remove_basis(rest, self.basis)
        self.norm = max(self.norm, float(torch.linalg.vector_norm(inside, dim=0).max()))
        return inside

    def _make_block(self, rest: Tensor, width: int) -> Tensor:
        most = self.size - self.dimension
        found, coefficients = orthonormal_directions(rest, self.basis, self.norm, most, _NEGLIGIBLE)
        self.block = self._with_random_directions(found, width)
        return coefficients

    def _with_random_directions(self, found: Tensor, width: int) -> Tensor:
        """With random directions in the place of those that vanished."""
        missing = min(width, self.size - self.dimension) - found.shape[0]
        if self.generator is None or missing <= 0:
            return found
        random = torch.randn(missing, self.size, generator=self.generator, dtype=self.product.dtype).to(found.device)
        fresh = self._orthogonal_to(random, found, missing)
        return torch.cat([found, fresh]) if len(found) else fresh

    def _orthogonal_to(self, rows: Tensor, block: Tensor, most: int) -> Tensor:
        """Directions of rows, random or of length one, without their parts in the basis and in the block."""
        basis, rest = self.basis, rows.to(self.block, copy=True)
        reference = float(row_lengths(rest).max()) if len(rows) else 0.0
        for _ in range(2):
            remove_basis(rest, basis)
            remove_basis(rest, block)
        most = min(most, self.size - self.dimension - len(block))
        return orthonormal_directions(rest, basis, reference, most, _NEGLIGIBLE)[0]


Orthogonality = Literal["semi_orthogonal", "local"]
_ENDED = 1e-12  # of the norm: what is left of a Krylov space that has ended is rounding


class ParallelLanczos(LanczosProcess):
    """The three-term recurrence from several starts (rows), which share every product.

    Orthogonality is "semi_orthogonal", to half of all digits, or "local", of three successive vectors; no others are
    stored.
    ``num_vectors`` counts those of each space until it ended; its vectors are zero from then on. With ``removed``,
    orthonormal rows to which the starts are orthogonal, the operator is the one on their orthogonal complement.

    Args:
        product: Products of the operator.
        starts: First vectors of the spaces, as rows.
        capacity: Most steps; storage grows beyond where no basis is stored.
        orthogonality: "semi_orthogonal" (a stored basis) or "local".
        removed: Orthonormal rows whose complement the operator is restricted to. Default: none.
    """

    def __init__(
        self,
        product: ScaledProduct,
        starts: Tensor,
        capacity: int,
        orthogonality: Orthogonality,
        removed: Tensor | None = None,
    ) -> None:
        count, is_local = starts.shape[0], orthogonality == "local"
        precision = widest_dtype(product.device)
        super().__init__(product, (count,), capacity, 0 if is_local else capacity, precision)
        self.norms = torch.zeros(count, dtype=torch.float64)  # the largest coefficients so far
        self.num_vectors = torch.zeros(count, dtype=torch.int64)
        self.has_ended = torch.zeros(count, dtype=torch.bool)
        self.estimate = None if is_local else OrthogonalityEstimate(count, capacity, self.size, product.device)
        self._before: Tensor | None = None
        self._removed = removed
        self._normalise(starts[:, None].to(product.device, product.dtype, copy=True), row_lengths(starts))

    def _store_block(self) -> None:
        self.num_vectors += ~self.has_ended if self._some_ended else 1
        if self.estimate is not None:
            super()._store_block()
            return
        self.dimension += 1
        if self.room < 0:
            self._projected = torch.nn.functional.pad(self._projected, (0, self.capacity, 0, self.capacity))

    def _images(self) -> Tensor:
        if not self._some_ended:
            return super()._images()
        images, is_open = torch.zeros_like(self.block), (~self.has_ended).to(self.block.device)
        images[is_open, 0] = self.product(self.block[is_open, 0].T, is_read=True).T
        return images

    def _remove_basis(self, rest: Tensor) -> Tensor:
        """The last two vectors alone: the coupling is what to subtract of the one before."""
        if self._removed is not None:
            remove_basis(rest[:, 0], self._removed)
        taken = []
        if self._before is not None:
            taken.append(self.coupling[:, :, -1:])
            rest.addcmul_(taken[0].to(rest), self._before, value=-1)
        self._before = None
        taken.append(inner_products(self.block[:, 0], rest[:, 0])[:, None, None])
        rest.addcmul_(taken[-1].to(rest), self.block, value=-1)
        self._before = self.block
        return torch.cat(taken, 1)

    def _make_block(self, rest: Tensor, width: int) -> Tensor:
        lengths = row_lengths(rest[:, 0])
        diagonal, beside = self.projection.diagonal(0, 1, 2), self.projection.diagonal(1, 1, 2)
        self.norms = torch.maximum(torch.maximum(self.norms, diagonal[:, -1].abs()), lengths)
        if self.estimate is not None:
            known = lengths, self.norms, diagonal, beside
            for space in self.estimate.spaces_to_clear(self.basis, rest[:, 0], *known):
                remove_basis(rest[space], self.basis[space])
                lengths[space] = row_lengths(rest[space, 0])
        return self._normalise(rest, lengths)

    def _normalise(self, rest: Tensor, lengths: Tensor) -> Tensor:
        """Make the next block of new vectors, in place; zero where a space has ended."""
        self.has_ended = lengths <= _ENDED * self.norms
        self._some_ended = bool(self.has_ended.any())
        if not self._some_ended:
            self.block = rest.div_(lengths[:, None, None].to(rest))
            return lengths[:, None, None]
        rest[self.has_ended.to(rest.device)] = 0.0
        kept = 0 if self.has_ended.all() else 1
        lengths_or_one = torch.where(self.has_ended, 1.0, lengths)[:, None, None].to(rest)
        self.block = rest.div_(lengths_or_one)[:, :kept]
        return torch.where(self.has_ended, 0.0, lengths)[:, None, None][:, :kept]


def spectral_norm(product: Product, size: int, tolerance: float = 1e-3, device: torch.device | None = None) -> float:
    """Compute ||A|| as the largest Ritz value in magnitude.

    It ends when five more steps change it by less than the tolerance, or when the space has ended. Both ends of the
    spectrum converge at once, so a nearly symmetric one (+norm, -norm) is no obstacle; the copies of Ritz values that
    come without re-orthogonalisation do not move the largest.

    Args:
        product: Products with the columns of (size, count) vectors.
        size: Number of rows of A.
        tolerance: Relative change at which the iteration ends. Defaults to 1e-3.
        device: Where the vectors are kept. Default: the CPU.

    Returns:
        The norm, to about the tolerance.
    """
    scaled = ScaledProduct(product, size)
    scaled.place_on(torch.device("cpu") if device is None else device)
    start = normal_vectors((1, size), torch.Generator().manual_seed(0), scaled.dtype, scaled.device)
    process = ParallelLanczos(scaled, start, 32, "local")
    norm = 0.0
    while True:
        process.expand()
        is_last = process.width == 0 or process.dimension == size
        if process.dimension % 5 == 0 or is_last:
            before, norm = norm, float(torch.linalg.eigvalsh(process.projection).abs().max())
            if is_last or abs(norm - before) <= tolerance * norm:
                return process.product.scale * norm
