"""One batch, differentiated once and kept as the graph that vector-Jacobian products go through.

The parameters are leaves of their own, not slices of a flat vector, whose derivatives would each be as long as all of
them together. Vectors come and go as rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem

RowProduct = Callable[[Tensor], Tensor]
_FEW = 2  # vectors that are not worth the batching
_SMALL_OUTPUT = 64  # outputs up to which the Hessian of the loss in them is written down


class BatchGraph:
    """The parameters of a problem as leaves and the outputs of one batch as a function of them.

    ``together`` takes the products of all rows at once, which pays where an operation costs less than its call; else
    they go one by one through convolutions that are written as matrix products.
    """

    def __init__(self, problem: Problem, batch: tuple[Any, Tensor, Tensor], together: bool) -> None:
        self.problem = problem
        self.inputs, self.targets, self.weights = batch
        self.together = together
        self.named = {name: value.detach().requires_grad_() for name, value in problem.named.items()}
        self.leaves = list(self.named.values())
        with torch.enable_grad():
            self.outputs = problem.forward(
                self.named, self.inputs, fast_convolutions=not together and has_slow_convolutions(problem)
            )

    def gradient(self, risk: Tensor) -> list[Tensor | None]:
        """Of a number, in the leaves, to be differentiated again."""
        if not risk.requires_grad:
            return [None] * len(self.leaves)
        return list(torch.autograd.grad(risk, self.leaves, create_graph=True, allow_unused=True))

    def split(self, rows: Tensor) -> list[Tensor]:
        """Rows as parameters, with the rows as a first axis."""
        parts = torch.split(rows, [leaf.numel() for leaf in self.leaves], dim=1)
        return [part.reshape(-1, *leaf.shape) for part, leaf in zip(parts, self.leaves, strict=True)]

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.reshape(len(part), -1) for part in parts], 1)

    def vjp(
        self, roots: Sequence[Tensor | None], places: Sequence[Tensor], cotangents: Sequence[Tensor]
    ) -> list[Tensor]:
        """Cotangents (first axis: rows) of the roots, in the places; what does not depend on a place gives zero."""
        return vjp_rows(roots, places, cotangents, self.together)


def has_slow_convolutions(problem: Problem) -> bool:
    """torch has no fast float64 convolution for CPUs."""
    return problem.dtype == torch.float64 and problem.device.type == "cpu"


def vjp_rows(
    roots: Sequence[Tensor | None],
    places: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    together: bool,
    *,
    side_by_side: bool = False,
) -> list[Tensor]:
    """Cotangents (first axis: rows) of the roots, in the places, all at once or one by one; the graph stays.

    ``side_by_side`` lays the rows of a sample next to each other in memory; their axis is the first all the same.
    """
    used = [(root, given) for root, given in zip(roots, cotangents, strict=True) if root is not None and root.grad_fn]
    count = len(cotangents[0])
    ends, given = [root for root, _ in used], [cotangent for _, cotangent in used]
    if used and together and count > _FEW:
        images = _images(ends, places, given, together=True)
        return [_zeros(count, place) if image is None else image for image, place in zip(images, places, strict=True)]
    found = [_zeros(count, place, side_by_side) for place in places]
    for number in range(count) if used else ():
        images = _images(ends, places, [cotangent[number] for cotangent in given], together=False)
        for total, image in zip(found, images, strict=True):
            if image is not None:
                total[number] = image
    return found


def _zeros(count: int, place: Tensor, side_by_side: bool = False) -> Tensor:
    if side_by_side:
        return place.new_zeros(len(place), count, *place.shape[1:]).transpose(0, 1)
    return place.new_zeros(count, *place.shape)


def _images(
    ends: list[Tensor], places: Sequence[Tensor], cotangents: list[Tensor], together: bool
) -> Sequence[Tensor | None]:
    try:
        return torch.autograd.grad(
            ends, places, cotangents, retain_graph=True, allow_unused=True, is_grads_batched=together
        )
    except RuntimeError:
        if not together:
            raise
    # Some operations have no batched derivative (grouped convolutions).
    single = [
        torch.autograd.grad(ends, places, given, retain_graph=True, allow_unused=True)
        for given in zip(*cotangents, strict=True)
    ]
    return [None if parts[0] is None else torch.stack(parts) for parts in zip(*single, strict=True)]


def loss_product(graph: BatchGraph) -> RowProduct:
    """The Hessian is symmetric: the vjp of the gradient is the product."""
    with torch.enable_grad():
        values = graph.problem.loss.value(graph.outputs, graph.targets)
        roots = graph.gradient((graph.weights * values).sum())
    return lambda rows: graph.joined(graph.vjp(roots, graph.leaves, graph.split(rows)))


def functional_product(graph: BatchGraph) -> RowProduct:
    outputs = graph.outputs.detach()
    with torch.no_grad():
        residual = (graph.weights[:, None] * graph.problem.loss.gradient(outputs, graph.targets)).to(outputs.dtype)
    with torch.enable_grad():
        roots = graph.gradient((residual * graph.outputs).sum())
    return lambda rows: graph.joined(graph.vjp(roots, graph.leaves, graph.split(rows)))


def outer_product(graph: BatchGraph) -> RowProduct:
    outputs, weights = graph.outputs.detach(), graph.weights
    loss, targets = graph.problem.loss, graph.targets
    if outputs.shape[1] <= _SMALL_OUTPUT:
        hessian = (weights[:, None, None] * loss.hessian(outputs, targets)).to(outputs.dtype).detach()
        return _through_outputs(graph, lambda pushed: (hessian @ pushed[..., None])[..., 0])
    point = outputs.clone().requires_grad_()
    with torch.enable_grad():
        slope = loss.gradient(point, targets).to(point.dtype)
    return _through_outputs(graph, lambda pushed: graph.vjp([slope], [point], [weights[:, None] * pushed])[0])


def empirical_product(graph: BatchGraph) -> RowProduct:
    slope = graph.problem.loss.gradient(graph.outputs.detach(), graph.targets).to(graph.outputs.dtype).detach()
    weights = graph.weights
    return _through_outputs(graph, lambda pushed: slope * (weights * (slope * pushed).sum(-1))[..., None])


def _through_outputs(graph: BatchGraph, curved: RowProduct) -> RowProduct:
    """v -> J^T curved(J v)."""
    # J v is the vjp of the vjp: reverse mode only, which every module has.
    start = torch.zeros_like(graph.outputs, requires_grad=True)
    transposed: list[Tensor | None] = [None] * len(graph.leaves)
    if graph.outputs.grad_fn:
        with torch.enable_grad():
            transposed = list(
                torch.autograd.grad(graph.outputs, graph.leaves, start, create_graph=True, allow_unused=True)
            )

    def product(rows: Tensor) -> Tensor:
        pushed = graph.vjp(transposed, [start], graph.split(rows))[0]
        return graph.joined(graph.vjp([graph.outputs], graph.leaves, [curved(pushed)]))

    return product


PRODUCTS: dict[str, Callable[[BatchGraph], RowProduct]] = {
    "loss": loss_product,
    "outer_product": outer_product,
    "functional": functional_product,
    "empirical_fisher": empirical_product,
}
