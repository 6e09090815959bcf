"""Products of an operator as iterations need them: counted, finite, and in a unit in which squares can be taken."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, isfinite, log2

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, noting_errors, require, sentence
from hessmap.progress import report_products

Product = Callable[[Tensor], Tensor]


class ScaledProduct:
    """Products with the columns of blocks of vectors, counted, in units of a power of two near the first one that is
    not zero: squares then neither overflow nor vanish.

    They are in ``dtype``: float64, unless who iterates can do with less. ``check`` is called once, before the first
    product.
    """

    def __init__(self, product: Product, size: int, check: Callable[[ScaledProduct], None] | None = None) -> None:
        self.size = size
        self.dtype = torch.float64
        self.num_products = 0
        self.unit = 0.0  # 0 until a product was not zero
        self._product = product
        self._check = check

    @property
    def scale(self) -> float:
        """What products are divided by."""
        return self.unit or 1.0

    def __call__(self, vectors: Tensor) -> Tensor:
        """The product with (size, count) vectors over ``scale``, in memory of its own."""
        check, self._check = self._check, None
        if check is not None:
            check(self)
        if not vectors.numel():
            return torch.zeros_like(vectors)
        returned = self._images(vectors)
        images = returned.to("cpu", self.dtype)
        self.num_products += vectors.shape[1]
        report_products(vectors.shape[1])
        low, high = torch.aminmax(images)
        largest = float(torch.maximum(-low, high))
        require(isfinite(largest), "the products of an operator must be finite", "there is NaN or inf in one")
        if self.unit == 0.0 and largest > 0:
            self.unit = 2.0 ** floor(log2(largest))
        return images / self.scale if images.data_ptr() == returned.data_ptr() else images.div_(self.scale)

    def _images(self, vectors: Tensor) -> Tensor:
        """What the operator returns, if it is what a product must be. Its own exceptions pass through with a note."""
        with noting_errors("the product of an operator"):
            images = self._product(vectors)
        if not isinstance(images, Tensor) or images.shape != vectors.shape or images.is_complex():
            must = "the product of an operator must be a real tensor of the shape of its vectors"
            kind = f"{tuple(images.shape)} of {images.dtype}" if isinstance(images, Tensor) else type(images).__name__
            raise InvalidInput(sentence(must, f"got {kind} for {tuple(vectors.shape)}"))
        return images.detach()
