"""Products with the three Hessians: by automatic differentiation, for any module, or by hand for a chain of layers.

The forward pass is linearised once per batch and reused for every column; where all the data fit the budget, it is
linearised once and kept. Where many products are to come, the graph may be traced and compiled.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from hessmap.hessians.compiled import NotTraceable, least_seconds, pays, traced_products, why_not_traceable
from hessmap.hessians.mlp import chain_columns, chain_product
from hessmap.linalg import disagreement, random_vector, tolerance
from hessmap.problem import (
    PRODUCTS,
    BatchGraph,
    Link,
    Problem,
    RowProduct,
    batch_bytes,
    bytes_per_sample,
    chain_of,
    require_true_derivatives,
    samples_at_once,
    take_rows,
)

_BLOCK = 64
_SMALL_CHAIN = 20_000  # parameters up to which a product is so short that its calls cost more than its numbers
_CHAIN_BLOCK = 8  # vectors of such a chain: more of them gain less than the products that wider blocks need
_FEW_SAMPLES = 8  # that products by hand are checked on
_SMALL_OUTPUT = 64  # outputs up to which the Hessian of the loss in them is written down
_COPIES = 6  # of a block of vectors that a product holds at once
_SMALL_GRAPH = 2**20  # bytes of a batch up to which many vectors are multiplied together


class BlockProducts:
    """Products of one kind of curvature with blocks of vectors.

    Chains of layers are multiplied by hand, once that was seen to agree with autograd on a few samples; with
    ``by_hand=False`` nothing is. Other graphs are traced and compiled if the problem says so, or if that pays for the
    number of products that are expected; with ``may_trace=False`` none is.
    """

    def __init__(self, problem: Problem, kind: str, by_hand: bool = True, may_trace: bool = True) -> None:
        self.problem = problem
        self.kind = kind
        self._by_hand = by_hand and problem.output_dim <= _SMALL_OUTPUT
        self._stored: list[RowProduct] | None = None
        self._is_decided = not (by_hand and may_trace) or problem.compile is False
        self._is_traced = False
        self._num_expected, self._num_made, self._seconds = 0, 0, 0.0

    def expect(self, count: int) -> None:
        """So many products will come: what is prepared for them may take a part of their time."""
        self._num_expected = self._num_made + count

    @property
    def is_chain(self) -> bool:
        """Whether products are made by hand, of held samples."""
        return self._chain is not None and self.problem.samples.is_held

    @property
    def num_expected(self) -> int:
        return max(0, self._num_expected - self._num_made)

    @cached_property
    @torch.inference_mode(False)
    def _chain(self) -> tuple[Link, ...] | None:
        links = chain_of(self.problem) if self._by_hand else None
        if links is None:
            return None
        few = next(iter(self.problem.batches(_FEW_SAMPLES)))
        by_hand = chain_product(self.problem, links, few, self.kind)
        if by_hand is None:
            return None
        row = random_vector(self.problem.num_parameters)[None].to(self.problem.parameters)
        expected = PRODUCTS[self.kind](BatchGraph(self.problem, few, together=False))(row)
        return links if disagreement(by_hand(row), expected) <= tolerance(self.problem.dtype) else None

    @torch.inference_mode(False)
    def __call__(self, vectors: Tensor) -> Tensor:
        """With the columns of ``vectors``, in the problem's number format and on its device, and moved back."""
        problem = self.problem
        require_true_derivatives(problem)
        point = problem.parameters
        given = vectors.T.to(point.device, point.dtype).contiguous()
        given = given.clone() if given.is_inference() else given
        total = 2 * problem.l2 * given if self.kind == "loss" and problem.l2 else None
        if not self._is_decided:
            self._decide(given[:1])
        width = min(max(1, len(given)), columns_at_once(problem))
        if self._chain and not self._is_traced:
            width = min(width, chain_columns(problem, self._chain))
        for product in self._batches(width) if self._stored is None else self._stored:
            began = time.perf_counter()
            if total is None and width >= len(given):  # no sum yet: of ten million parameters, zeros take their time
                total = product(given)
            else:
                total = torch.zeros_like(given) if total is None else total
                for start in range(0, len(given), width):
                    part = slice(start, start + width)
                    total[part] += product(given[part])
            self._seconds += time.perf_counter() - began
        self._num_made += len(given)
        total = torch.zeros_like(given) if total is None else total
        return total.T.to(vectors.device, vectors.dtype)

    def _decide(self, row: Tensor) -> None:
        """Whether products are traced from now on: as the problem says, or once the first ones tell that it pays."""
        problem = self.problem
        if problem.compile is True:
            self._trace()
        elif self._chain or why_not_traceable(problem):
            self._is_decided = True
        elif self._stored and self._num_made and len(row):
            ahead = self.num_expected * self._seconds / self._num_made
            if ahead > least_seconds():
                self._is_decided = True
                plain = self._stored
                if pays(lambda: [product(row) for product in plain], len(plain), self.num_expected):
                    self._trace(row)

    def _trace(self, row: Tensor | None = None) -> None:
        """Trace; with a row, keep to what is there already unless that is slower."""
        self._is_decided = True
        try:
            found = traced_products(self.problem, self.kind)
        except NotTraceable as reason:
            self.problem.add_note(f"products of the {self.kind} curvature: not traced, {reason}")
            return
        if row is not None and self._stored and _seconds(self._stored, row) <= _seconds(found.products, row):
            self.problem.add_note(f"{found.note}, not used because it is slower")
            return
        self.problem.add_note(found.note)
        self._stored, self._is_traced = found.products, True

    @property
    def block_size(self) -> int:
        """Vectors that are worth a product together: many of a small graph, hardly any of a large one."""
        if self._chain:
            few = min(_CHAIN_BLOCK, chain_columns(self.problem, self._chain))
            return few if self.problem.num_parameters <= _SMALL_CHAIN else 1
        held = self.problem.num_samples * bytes_per_sample(self.problem)
        return 16 if held <= _SMALL_GRAPH // 8 else 4 if held <= _SMALL_GRAPH // 2 else 1

    def _batches(self, width: int) -> Iterator[RowProduct]:
        """The product of every batch, one pass over the data; all of them are kept if they fit the budget."""
        problem = self.problem
        each = bytes_per_sample(problem)
        size = min(samples_at_once(problem, 1), max(1, batch_bytes(problem) // each))
        together = size * each <= _SMALL_GRAPH
        if together:
            size = samples_at_once(problem, width)
        keeps = problem.num_samples * each <= problem.memory_budget // 2
        kept: list[RowProduct] = []
        for batch in problem.batches(size):
            by_hand = chain_product(problem, self._chain, batch, self.kind) if self._chain else None
            product = by_hand or PRODUCTS[self.kind](BatchGraph(problem, batch, together))
            if keeps:
                kept.append(product)
            yield product
        self._stored = kept if keeps else None


def _seconds(products: list[RowProduct], row: Tensor) -> float:
    """Of a product over all batches, the better of two."""
    spent = []
    for _ in range(2):
        start = time.perf_counter()
        for product in products:
            product(row)
        spent.append(time.perf_counter() - start)
    return min(spent)


def hessian_product(problem: Problem, part: str, vectors: Tensor) -> Tensor:
    """The product of one of the three Hessians with the columns of (num_parameters, count) vectors, by autograd."""
    return BlockProducts(problem, part, by_hand=False)(vectors)


def uncancelled_size(problem: Problem, part: str, vector: Tensor) -> float:
    """The largest entry of the product with every other sample alone, of those that one batch holds.

    Where samples cancel each other (the functional Hessian of a linear network at a least-squares solution is zero),
    their sum is rounding, and this is what it is small against.
    """
    inputs, targets, weights = next(iter(problem.batches(samples_at_once(problem, 1))))
    every_other = take_rows(inputs, slice(None, None, 2)), targets[::2], weights[::2]
    product = PRODUCTS[part](BatchGraph(problem, every_other, together=False))
    return float(product(vector.T.to(problem.parameters)).abs().max())


def columns_at_once(problem: Problem) -> int:
    """Vectors of a block that, with their copies, take at most half of the budget."""
    each = _COPIES * problem.num_parameters * problem.parameters.element_size()
    return max(1, min(_BLOCK, problem.memory_budget // (2 * each)))
