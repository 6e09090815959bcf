"""Whether layers are all there is: their structure is compared with autograd on a few samples.

A use of a weight that no layer shows moves its gradient, which is compared in every entry; samples or positions in
another order than the layers tell move second derivatives, of which some entries are compared.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hessmap.curvature.agreement import tolerance
from hessmap.curvature.batch_graph import PRODUCTS, BatchGraph, vjp_rows
from hessmap.curvature.layers.layer_graph import LayerGraph
from hessmap.curvature.problem import Problem
from hessmap.curvature.products import columns_at_once

_SLIGHT = 1e-4  # of the largest entry: a parameter that has less is compared on that scale


def agrees_with_autograd(
    problem: Problem, batch: tuple[Any, Tensor, Tensor], layers: LayerGraph, kind: str, diagonal: Tensor
) -> bool:
    """The gradient, and of every parameter the largest entry of the diagonal and one at random, on some samples."""
    graph = BatchGraph(problem, batch, layers.together)
    return same_gradient(problem, graph, *_layer_gradient(problem, layers)) and same_entries(
        problem, graph, kind, diagonal
    )


def same_entries(problem: Problem, graph: BatchGraph, kind: str, diagonal: Tensor) -> bool:
    """Of every parameter the largest entry of the diagonal and one at random."""
    if not bool(torch.isfinite(diagonal).all()):
        return False
    largest, scale = diagonal.abs().max(), torch.zeros_like(diagonal)
    entries, generator = [], torch.Generator().manual_seed(problem.num_parameters)
    for _, place in problem.layout:
        own = diagonal[place].abs()
        scale[place] = torch.maximum(own.max(), _SLIGHT * largest)
        entries += [
            place.start + int(own.argmax()),
            place.start + int(torch.randint(len(own), (), generator=generator)),
        ]
    errors = (diagonal[entries] - _autograd_entries(graph, kind, torch.tensor(entries))).abs()
    return bool((errors <= tolerance(problem.dtype) * scale[entries]).all())


def _layer_gradient(problem: Problem, layers: LayerGraph) -> tuple[Tensor, Tensor]:
    """sum_p slope_p x_p^T, and for every entry the largest sum of the magnitudes in its layer."""
    outputs = layers.outputs.detach()
    slope = layers.weights[:, None] * problem.loss.gradient(outputs, layers.targets).to(outputs.dtype)
    slopes = vjp_rows([layers.outputs], layers.places, [slope[None]], together=False)
    found, sizes = [], []
    for use, rows in zip(layers.uses, slopes, strict=True):
        left = (
            use.by_output(rows)[:, 0].reshape(len(use.entering), use.num_groups, -1, use.num_positions).transpose(0, 1)
        )
        right = use.inputs(slice(None))  # (groups, samples, positions, columns)
        found.append((left @ right).sum(1).flatten(0, 1))
        sizes.append((left.abs() @ right.abs()).sum(1).max().expand_as(found[-1]))
    return layers.flat(problem.layout, found), layers.flat(problem.layout, sizes)


def same_gradient(problem: Problem, graph: BatchGraph, found: Tensor, scale: Tensor) -> bool:
    """A flat gradient beside autograd's, small against the sums of the magnitudes."""
    with torch.enable_grad():
        risk = (graph.weights * problem.loss.value(graph.outputs, graph.targets)).sum()
    parts = zip(graph.gradient(risk), graph.leaves, strict=True)
    expected = torch.cat(
        [(torch.zeros_like(leaf) if part is None else part.detach()).flatten() for part, leaf in parts]
    )
    errors = (found - expected.to("cpu", torch.float64)).abs()
    return bool((errors <= tolerance(problem.dtype) * torch.maximum(scale, _SLIGHT * scale.max())).all())


def _autograd_entries(graph: BatchGraph, kind: str, entries: Tensor) -> Tensor:
    """Some entries of a diagonal, from products with unit vectors."""
    if kind == "loss" and not graph.together:
        return _own_derivatives(graph, entries)
    problem, product, found = graph.problem, PRODUCTS[kind](graph), []
    for some in torch.split(entries, columns_at_once(problem)):
        numbers = torch.arange(len(some))
        units = torch.zeros(len(some), problem.num_parameters, dtype=torch.float64)
        units[numbers, some] = 1.0
        found.append(product(units.to(problem.parameters)).to(units)[numbers, some])
    return torch.cat(found)


def _own_derivatives(graph: BatchGraph, entries: Tensor) -> Tensor:
    """The same from the second derivative of the risk in each entry's own parameter: vectors of all parameters, and
    derivatives in them, would take most of the time of a large network."""
    with torch.enable_grad():
        gradient = graph.gradient(graph.problem.loss.risk(graph.outputs, graph.targets, graph.weights))
    places = [place for _, place in graph.problem.layout]
    found = torch.zeros(len(entries), dtype=torch.float64)
    for number, entry in enumerate(entries.tolist()):
        owner = next(n for n, place in enumerate(places) if place.start <= entry < place.stop)
        slope, leaf, inside = gradient[owner], graph.leaves[owner], entry - places[owner].start
        if slope is not None and slope.grad_fn is not None:
            own = torch.autograd.grad(slope.flatten()[inside], leaf, retain_graph=True, allow_unused=True)[0]
            found[number] = 0.0 if own is None else own.flatten()[inside]
    return found
