"""The diagonal of a Hessian of a small chain by hand: d2 risk / dW_ij^2 = sum_n M_n[i, i] x_n[j]^2.

M is the curvature that ``chain_sweep`` finds with a handful of matrix products; graphs of autograd for a network of a
thousand parameters take longer than their numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hessmap.curvature.batch_graph import BatchGraph
from hessmap.curvature.chain import Link, chain_of, flat_inputs
from hessmap.curvature.chain_products import ChainPiece, chain_piece
from hessmap.curvature.layers.diagonal_check import same_entries, same_gradient
from hessmap.curvature.lifted.chain_sweep import chain_derivatives
from hessmap.curvature.problem import Problem

_FEW = 16  # samples that are compared with autograd
_LIMIT = 2**25  # bytes of the largest sweep


def chain_diagonal(problem: Problem, kind: str, max_products: float | None = None) -> Tensor | None:
    """None if the model is no small chain, if it would cost more than about ``max_products`` products, or if the
    gradient or some entries on a few samples differ from autograd's. Without the penalty."""
    links = chain_of(problem) if problem.device.type == "cpu" else None
    if links is None or _sweep_bytes(problem, links) > min(_LIMIT, problem.memory_budget // 8):
        return None
    if max_products is not None and _cost(problem, links) > max_products:
        return None
    few = next(iter(problem.batches(_FEW)))
    found = _batch_diagonal(problem, links, few, kind)
    if found is None or not _agrees(problem, links, few, kind, found):
        return None
    if len(few[1]) == problem.num_samples:
        return found
    parts = [_batch_diagonal(problem, links, batch, kind) for batch in problem.batches(problem.num_samples)]
    known = [part for part in parts if part is not None]
    return torch.stack(known).sum(0) if len(known) == len(parts) else None


def _sweep_bytes(problem: Problem, links: tuple[Link, ...]) -> int:
    widths = [len(problem.named[link.weight]) for link in links]
    return 8 * problem.num_samples * max(width * sum(widths[place:]) for place, width in enumerate(widths))


def _cost(problem: Problem, links: tuple[Link, ...]) -> float:
    """In products: a direction goes forwards and backwards through the later links, half of what a product does."""
    works = [problem.named[link.weight].numel() for link in links]
    swept = [len(problem.named[link.weight]) * sum(works[place + 1 :]) for place, link in enumerate(links)]
    return sum(swept) / (2 * sum(works))


@torch.no_grad()
def _batch_diagonal(
    problem: Problem, links: tuple[Link, ...], batch: tuple[Any, Tensor, Tensor], kind: str
) -> Tensor | None:
    piece = _piece(problem, links, batch, kind)
    if piece is None:
        return None
    parts = []
    for place, step in enumerate(piece.steps):
        curvature = chain_derivatives(piece, place, slice(0, len(step.weight))).curvature[0]
        own = curvature.diagonal(dim1=0, dim2=2)  # (samples, outputs)
        parts.append((own.T @ step.inputs.square()).flatten())
        if step.has_bias:
            parts.append(own.sum(0))
    return torch.cat(parts).double()


def _piece(
    problem: Problem, links: tuple[Link, ...], batch: tuple[Any, Tensor, Tensor], kind: str
) -> ChainPiece | None:
    inputs = flat_inputs(problem, batch[0])
    return None if inputs is None else chain_piece(problem, links, inputs, *batch[1:], kind)


def _agrees(
    problem: Problem, links: tuple[Link, ...], batch: tuple[Any, Tensor, Tensor], kind: str, diagonal: Tensor
) -> bool:
    piece = _piece(problem, links, batch, "loss")
    assert piece is not None
    found, sizes = [], []
    for step in piece.steps:
        assert step.gradient is not None
        weight, size = step.gradient.T @ step.inputs, (step.gradient.abs().T @ step.inputs.abs()).max()
        parts = [weight.flatten(), step.gradient.sum(0)] if step.has_bias else [weight.flatten()]
        found += parts
        sizes += [size.expand_as(part) for part in parts]
    graph = BatchGraph(problem, batch, together=False)
    if not same_gradient(problem, graph, torch.cat(found).double(), torch.cat(sizes).double()):
        return False
    return same_entries(problem, graph, kind, diagonal)
