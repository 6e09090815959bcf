"""Products of an operator as iterations need them: counted, finite, and in a unit in which squares can be taken."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, isfinite, log2

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, noting_errors, require, sentence
from hessmap.linalg.devices import full_precision, widest_dtype
from hessmap.progress import report_products

Product = Callable[[Tensor], Tensor]
_ROOMY = 1e30  # the largest number of a format in which vectors can be lifted; float16 ends before


class ScaledProduct:
    """Products with the columns of blocks of vectors, counted, in units of a power of two near the first one that is
    not zero: squares then neither overflow nor vanish. Where that one is so small that its numbers have few digits, the
    vectors are multiplied by ``lift`` before: a linear operator then has products with all digits.

    They are on the device of the vectors and in ``dtype``: float64, unless the iteration can do with less. ``check`` is
    called once: before the first product, without vectors, or after it with the first vector and its image if the
    iteration ``starts_at_random``; it may leave one more random vector and its image in ``spare``. With
    ``keeps_first`` a first product is kept, for ``change``. Images of a product that ``is_new``, in memory that nothing
    else uses, are scaled in place.

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
        self.keeps_first = False
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

    def __call__(self, vectors: Tensor) -> Tensor:
        """The product with (size, count) vectors over ``scale``, in memory of its own."""
        check, self._check = self._check, None
        if check is not None and not (self.starts_at_random and vectors.numel()):
            check(self, None, None)
            check = None
        if not vectors.numel():
            return torch.zeros_like(vectors)
        images, largest = self._lifted_images(vectors)
        if self.unit == 0.0 and largest > 0:
            self.lift = _needed_lift(largest, images.dtype)
            if self.lift != 1:
                images, largest = self._lifted_images(vectors)
            self.unit = 2.0 ** floor(log2(largest)) / self.lift
        own, divisor = images.to(vectors.device, self.dtype), self.scale * self.lift
        is_new = self._is_new or own is not images
        scaled = own.div_(divisor) if is_new else own / divisor
        if self.keeps_first and self._first is None and self.unit:
            place = int(scaled.abs().amax(0).argmax())
            self._first = vectors[:, place : place + 1].clone(), scaled[:, place : place + 1].clone()
        if check is not None:
            check(self, vectors[:, :1], scaled[:, :1])
        return scaled

    def use_matrix(self, matrix: Tensor) -> None:
        """Multiply with a matrix from now on, which must be that of the operator."""
        self._product, self._is_new = lambda vectors: matrix @ vectors.to(matrix), True

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

    def _lifted_images(self, vectors: Tensor) -> tuple[Tensor, float]:
        """The products of lifted vectors, and their largest entry."""
        images = self._images(vectors if self.lift == 1 else vectors * self.lift)
        self.num_products += vectors.shape[1]
        report_products(vectors.shape[1])
        low, high = torch.aminmax(images)
        largest = float(torch.maximum(-low, high))
        require(isfinite(largest), "the products of an operator must be finite", "there is NaN or inf in one")
        return images, largest

    def _images(self, vectors: Tensor) -> Tensor:
        """What the operator returns, if it is what a product must be. Its own exceptions pass through with a note."""
        with noting_errors("the product of an operator"), full_precision(self.device):
            images = self._product(vectors)
        if not isinstance(images, Tensor) or images.shape != vectors.shape or images.is_complex():
            must = "the product of an operator must be a real tensor of the shape of its vectors"
            kind = f"{tuple(images.shape)} of {images.dtype}" if isinstance(images, Tensor) else type(images).__name__
            raise InvalidInput(sentence(must, f"got {kind} for {tuple(vectors.shape)}"))
        return images.detach()


def _needed_lift(largest: float, dtype: torch.dtype) -> float:
    """A power of two that lifts products of this size to where even their rounding has all of its digits; 1 where they
    are, or in a format that has no room for it."""
    numbers = torch.finfo(dtype if dtype.is_floating_point else torch.float64)
    if largest >= numbers.tiny / numbers.eps or numbers.max < _ROOMY:
        return 1.0
    return 2.0 ** (floor(log2(numbers.tiny / numbers.eps**2)) - floor(log2(largest)))
