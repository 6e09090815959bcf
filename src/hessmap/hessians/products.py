"""Products with the Hessians of a problem: which engine computes them, in which batches, and their sum over the data.

``choose_engine`` decides by the structure of the model and by sizes alone, so that the same product has the same bits
before and after other calls:

    "compiled"  the derivative of the gradient as a traced graph, on request (``compiled.py``)
    "mlp"       linear layers and elementwise activations, by Pearlmutter's formulas (``mlp.py``)
    "autograd"  everything else: reverse over reverse on a kept graph (``problem/autograd.py``, ``loss_product``)

A closed form or a compiled graph is used once it agreed with autograd on a few samples. Where the problem asks for
finite differences, no engine is chosen: products are differences of gradients (``finite_difference.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

import torch
from torch import Tensor

from hessmap.errors import require
from hessmap.hessians.compiled import NotTraceable, traced_products
from hessmap.hessians.finite_difference import FiniteDifferences
from hessmap.hessians.mlp import DenseLayer, as_mlp, mlp_columns, mlp_product
from hessmap.linalg import checked_shortcut, full_precision, random_vector, rows_that_fit
from hessmap.problem import (
    PRODUCTS,
    BatchGraph,
    Problem,
    RowProduct,
    batch_bytes,
    bytes_per_sample,
    require_true_derivatives,
    samples_at_once,
    take_rows,
)

EngineName = Literal["compiled", "mlp", "autograd"]
ALL_ENGINES: tuple[EngineName, ...] = ("compiled", "mlp", "autograd")

# Sizes for two CPU cores; benchmarks/peers/rows.py times the products that they shape.
_BLOCK = 64  # vectors multiplied at once, at most
_SMALL_MLP = 20_000  # parameters up to which a product is so short that its calls cost more than its numbers
_MLP_BLOCK = 8  # vectors of such an MLP: more of them gain less than the products that wider blocks need
_FEW_SAMPLES = 8  # on which closed forms are compared with autograd
_SMALL_OUTPUT = 64  # outputs up to which the Hessian of the loss in them is formed
_COPIES = 6  # of a block of vectors that a product holds at once
_SMALL_GRAPH = 2**20  # bytes of a batch up to which many vectors are multiplied together


@dataclass(frozen=True)
class Engine:
    """How the products of one kind of curvature are computed.

    Attributes:
        name: "compiled", "mlp" or "autograd".
        batch_size: Samples of a batch.
        width: Vectors multiplied at once.
        vectorised: Whether autograd takes all vectors of a block in one backward pass.
        keeps_batches: Whether the linearised batches fit the budget and are kept for the next product.
        layers: The layers of an MLP.
        compiled: The compiled products of all batches.
    """

    name: EngineName
    batch_size: int
    width: int
    vectorised: bool
    keeps_batches: bool
    layers: tuple[DenseLayer, ...] | None = None
    compiled: list[RowProduct] | None = None


def choose_engine(problem: Problem, kind: str, allowed: tuple[EngineName, ...] = ALL_ENGINES) -> Engine:
    """Choose the engine of a problem's products by structure and size.

    Args:
        problem: The problem whose curvature is multiplied.
        kind: "loss", "outer_product", "functional" or "empirical_fisher".
        allowed: Engines that may be chosen; "autograd" always may.

    Returns:
        Engine: The engine, its batch size and its block width.
    """
    each, budget = bytes_per_sample(problem), problem.memory_budget
    width = columns_at_once(problem)
    batch_size = rows_that_fit(batch_bytes(problem), each, samples_at_once(problem, 1))
    keeps_batches = problem.num_samples * each <= budget // 2
    vectorised = batch_size * each <= _SMALL_GRAPH
    if problem.compile and "compiled" in allowed:
        compiled = _compiled_or_none(problem, kind)
        if compiled is not None:
            return Engine("compiled", batch_size, width, vectorised, keeps_batches, compiled=compiled)
    layers = _checked_mlp(problem, kind) if "mlp" in allowed else None
    if layers is not None:
        width = min(width, mlp_columns(problem, layers))
        return Engine("mlp", batch_size, width, vectorised, keeps_batches, layers=layers)
    if vectorised:  # half of the budget holds the batch and half as much again for every vector
        width = rows_that_fit(budget / 2 - batch_size * each, batch_size * each / 2, width)
    return Engine("autograd", batch_size, width, vectorised, keeps_batches)


def _compiled_or_none(problem: Problem, kind: str) -> list[RowProduct] | None:
    try:
        found = traced_products(problem, kind)
    except NotTraceable as reason:
        problem.add_note(f"products of the {kind} curvature: not traced, {reason}")
        return None
    problem.add_note(found.note)
    return found.products


def _checked_mlp(problem: Problem, kind: str) -> tuple[DenseLayer, ...] | None:
    """The layers of an MLP whose closed-form product agrees with autograd's on a few samples."""
    layers = as_mlp(problem) if problem.output_dim <= _SMALL_OUTPUT else None
    if layers is None:
        return None
    few = next(iter(problem.batches(_FEW_SAMPLES)))
    closed_form = mlp_product(problem, layers, few, kind)
    if closed_form is None:
        return None
    row = random_vector(problem.num_parameters, problem.dtype)[None].to(problem.device)
    autograd = PRODUCTS[kind](BatchGraph(problem, few, vectorised=False))
    return layers if checked_shortcut(partial(closed_form, row), partial(autograd, row)) else None


class BlockProducts:
    """Products of one kind of curvature with blocks of vectors: a sum over batches, each linearised once."""

    def __init__(self, problem: Problem, kind: str, allowed: tuple[EngineName, ...] = ALL_ENGINES) -> None:
        self.problem = problem
        self.kind = kind
        self._allowed = allowed
        self._kept: list[RowProduct] | None = None
        self._is_checked = False

    @cached_property
    @torch.inference_mode(False)
    def engine(self) -> Engine:
        """The engine of all products, chosen at the first."""
        return choose_engine(self.problem, self.kind, self._allowed)

    @torch.inference_mode(False)
    def __call__(self, vectors: Tensor) -> Tensor:
        """Multiply the columns of ``vectors``, in the problem's dtype and on its device, and move the result back."""
        with full_precision(self.problem.device):
            if self.problem.products == "finite_difference":
                return self._by_differences(vectors)
            if not self._is_checked:
                require_true_derivatives(self.problem)
                self._is_checked = True
            return self._sum_over_batches(vectors)

    def _sum_over_batches(self, vectors: Tensor) -> Tensor:
        problem, point = self.problem, self.problem.parameters
        rows = vectors.T.to(point.device, point.dtype).contiguous()
        rows = rows.clone() if rows.is_inference() else rows
        total = 2 * problem.l2 * rows if self.kind == "loss" and problem.l2 else None
        width = min(max(1, len(rows)), self.engine.width)
        for product in self._batches():
            if total is None and width >= len(rows):  # no sum yet: zeros for ten million parameters take time
                total = product(rows)
                continue
            total = torch.zeros_like(rows) if total is None else total
            for start in range(0, len(rows), width):
                part = slice(start, start + width)
                total[part] += product(rows[part])
        total = torch.zeros_like(rows) if total is None else total
        return total.T.to(vectors.device, vectors.dtype)

    def _by_differences(self, vectors: Tensor) -> Tensor:
        problem = self.problem
        must = "finite differences give products of the loss Hessian alone"
        require(self.kind == "loss", must, f"got the {self.kind} curvature", "Use loss_hessian(problem)")
        given = vectors.T.to(problem.parameters)
        found = FiniteDifferences(problem)(given) + 2 * problem.l2 * given
        return found.T.to(vectors)

    @property
    def block_size(self) -> int:
        """Vectors worth multiplying together: many for a small graph, few for a large one."""
        if self.problem.products == "finite_difference":
            return 1
        engine, problem = self.engine, self.problem
        if engine.layers is not None:
            return min(_MLP_BLOCK, engine.width) if problem.num_parameters <= _SMALL_MLP else 1
        held = problem.num_samples * bytes_per_sample(problem)
        return 16 if held <= _SMALL_GRAPH // 8 else 4 if held <= _SMALL_GRAPH // 2 else 1

    @property
    def bytes_for_vectors(self) -> int:
        """What the problem's budget leaves for the vectors of a measurement: at least half of it, the other half being
        for linearised batches and the copies of a product."""
        problem = self.problem
        copies = _COPIES * problem.num_parameters * problem.parameters.element_size()
        held = 0 if problem.products == "finite_difference" else self._held_bytes
        return max(problem.memory_budget - held - copies, problem.memory_budget // 2)

    @property
    def _held_bytes(self) -> int:
        """Of the linearised batches that exist at once."""
        num_samples = self.problem.num_samples if self.engine.keeps_batches else self.engine.batch_size
        return num_samples * bytes_per_sample(self.problem)

    def let_go(self) -> None:
        """Do not keep linearised batches any more; the next product makes them again."""
        self._kept = None

    def _batches(self) -> Iterator[RowProduct]:
        """The product of every batch, in one pass over the data; all of them are kept if they fit the budget."""
        engine, problem = self.engine, self.problem
        kept = engine.compiled if engine.compiled is not None else self._kept
        if kept is not None:
            yield from kept
            return
        made: list[RowProduct] = []
        problem.hold(self, self._held_bytes)
        for batch in problem.batches(engine.batch_size):
            closed_form = mlp_product(problem, engine.layers, batch, self.kind) if engine.layers else None
            product = closed_form or PRODUCTS[self.kind](BatchGraph(problem, batch, engine.vectorised))
            if engine.keeps_batches:
                made.append(product)
            yield product
        if engine.keeps_batches:
            self._kept = made
        else:
            problem.hold(self, 0)


def hessian_product(problem: Problem, part: str, vectors: Tensor) -> Tensor:
    """The product of one of the three Hessians with the columns of (num_parameters, count) vectors, by autograd."""
    return BlockProducts(problem, part, ("autograd",))(vectors)


def uncancelled_size(problem: Problem, part: str, vector: Tensor) -> float:
    """The largest entry of the product with every other sample alone, of those in one batch.

    Where samples cancel each other (the functional Hessian of a linear network at a least-squares solution is zero),
    their sum is rounding, and this is what it is small against.
    """
    inputs, targets, weights = next(iter(problem.batches(samples_at_once(problem, 1))))
    every_other = take_rows(inputs, slice(None, None, 2)), targets[::2], weights[::2]
    product = PRODUCTS[part](BatchGraph(problem, every_other, vectorised=False))
    return float(product(vector.T.to(problem.parameters)).abs().max())


def columns_at_once(problem: Problem) -> int:
    """Vectors of a block that, with their copies, take at most half of the budget."""
    each = _COPIES * problem.num_parameters * problem.parameters.element_size()
    return rows_that_fit(problem.memory_budget // 2, each, _BLOCK)
