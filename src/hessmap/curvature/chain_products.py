"""Products with the three Hessians of a chain, forwards and backwards by hand: matrix products and little else.

A vector V moves the weights; d is the derivative along it. With a the inputs of a link, z its outputs, g = dloss/dz,

    forwards    dz = V a + W da,   da = s dz        s = activation'(z)
    outputs     dg = A dz                           A = d2loss/doutput2
    backwards   dW = dg a^T + g da^T,   dg = s (W^T dg + V^T g) + b dz      b = activation''(z) (W^T g)

(Pearlmutter 1994). H_o keeps A and leaves out what g enters; H_f does the reverse. Samples come first, then vectors:
rows of (samples, vectors, units) are ready for the next product without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hessmap.curvature.chain import Link, activated, flat_inputs

if TYPE_CHECKING:
    from hessmap.curvature.problem import Problem

CHAIN_PARTS = ("loss", "outer_product", "functional")
_FEWEST_SAMPLES, _ENTRIES = 256, 2**17  # samples at once: as many as keep a layer's numbers in the cache
_BLOCK = 16
_COPIES = 8  # of a layer's numbers that a product holds at once


@dataclass(frozen=True)
class Step:
    """A link on some samples: its inputs a, slopes s and bends b of its activation (samples, 1, outputs), gradients g
    of its outputs."""

    weight: Tensor
    has_bias: bool
    inputs: Tensor
    slope: Tensor | None
    bend: Tensor | None
    gradient: Tensor | None


@dataclass(frozen=True)
class Moves:
    """Rows of vectors as the links need them: the weights (vectors, outputs, inputs), the biases, and the weights once
    more as (outputs, vectors * inputs)."""

    weights: list[Tensor]
    biases: list[Tensor | None]
    turned: list[Tensor]


class ChainProduct:
    """The product of one of the three Hessians with rows of vectors, over samples that come in pieces."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces

    @torch.no_grad()
    def __call__(self, rows: Tensor) -> Tensor:
        moves = self._moves(rows)
        weights = [torch.zeros_like(move) for move in moves.weights]
        biases = [None if bias is None else torch.zeros_like(bias) for bias in moves.biases]
        for piece in self.pieces:
            piece.add_product(moves, weights, biases)
        parts: list[Tensor] = []
        for weight, bias in zip(weights, biases, strict=True):
            parts += [weight.flatten(1)] if bias is None else [weight.flatten(1), bias]
        return torch.cat(parts, 1)

    def _moves(self, rows: Tensor) -> Moves:
        weights: list[Tensor] = []
        biases: list[Tensor | None] = []
        start = 0
        for step in self.pieces[0].steps:
            outputs, inputs = step.weight.shape
            stop = start + outputs * inputs
            weights.append(rows[:, start:stop].reshape(-1, outputs, inputs).contiguous())
            biases.append(rows[:, stop : stop + outputs] if step.has_bias else None)
            start = stop + outputs * step.has_bias
        turned = [weight.transpose(0, 1).reshape(weight.shape[1], -1) for weight in weights]
        return Moves(weights, biases, turned)


@dataclass(frozen=True)
class Piece:
    """Some samples: the steps of the chain, and the second derivative of the loss in its outputs, one a sample."""

    steps: Sequence[Step]
    curvature: Tensor | None

    def add_product(self, moves: Moves, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> None:
        changes, after = self._forwards(moves)
        change = self._curved(changes[-1])
        for place in reversed(range(len(self.steps))):
            step, weight, bias = self.steps[place], weights[place], biases[place]
            count, outputs, inputs = weight.shape
            weight.view(-1, inputs).addmm_(change.flatten(1).T, step.inputs)
            if bias is not None:
                bias += change.sum(0)
            if place == 0:
                return
            if step.gradient is not None:
                met = step.gradient.T @ after[place - 1].flatten(1)
                weight += met.view(outputs, count, inputs).transpose(0, 1)
            change = self._pulled(place, change, moves.turned[place], changes[place - 1])

    def _forwards(self, moves: Moves) -> tuple[list[Tensor], list[Tensor]]:
        """How the outputs of every link change, and the inputs of all but the first."""
        changes: list[Tensor] = []
        after: list[Tensor] = []
        for step, move, bias in zip(self.steps, moves.weights, moves.biases, strict=True):
            count, outputs, inputs = move.shape
            change = (step.inputs @ move.view(-1, inputs).T).view(-1, count, outputs)
            if after:
                change.view(-1, outputs).addmm_(after[-1].view(-1, inputs), step.weight.T)
            if bias is not None:
                change += bias
            changes.append(change)
            if step.slope is not None:
                after.append(change * step.slope)
        return changes, after

    def _curved(self, change: Tensor) -> Tensor:
        if self.curvature is None:
            return torch.zeros_like(change)
        if change.shape[1] == 1:  # a call for every sample would cost more than its numbers
            return (self.curvature * change).sum(2)[:, None]
        return torch.bmm(change, self.curvature)

    def _pulled(self, place: int, change: Tensor, turned: Tensor, moved: Tensor) -> Tensor:
        """From the gradients of a link's outputs to those of the one before, as far as they change."""
        step, before = self.steps[place], self.steps[place - 1]
        assert before.slope is not None
        outputs, inputs = step.weight.shape
        flat = change.view(-1, outputs)
        if step.gradient is None:
            found = flat @ step.weight
        else:
            found = (step.gradient @ turned).view(-1, inputs).addmm_(flat, step.weight)
        pulled = found.view(moved.shape).mul_(before.slope)
        return pulled if before.bend is None else pulled.addcmul_(moved, before.bend)


def chain_samples(problem: Problem, links: Sequence[Link]) -> int:
    """How many samples are worth a product together, and fit the budget with one vector."""
    useful = max(_FEWEST_SAMPLES, _ENTRIES // _widest(problem, links))
    return max(1, min(useful, problem.memory_budget // _bytes_per_sample(problem, links)))


def chain_columns(problem: Problem, links: Sequence[Link]) -> int:
    """How many vectors are multiplied together: a few, which fit the budget on that many samples."""
    held = min(problem.num_samples, chain_samples(problem, links)) * _bytes_per_sample(problem, links)
    return max(1, min(_BLOCK, problem.memory_budget // held))


def _widest(problem: Problem, links: Sequence[Link]) -> int:
    return max(len(problem.named[link.weight]) for link in links)


def _bytes_per_sample(problem: Problem, links: Sequence[Link]) -> int:
    return _COPIES * problem.parameters.element_size() * _widest(problem, links)


def chain_product(
    problem: Problem, links: Sequence[Link], batch: tuple[Any, Tensor, Tensor], part: str
) -> ChainProduct | None:
    """The product of a batch, or None if its inputs are not those of a chain."""
    inputs = flat_inputs(problem, batch[0])
    if inputs is None:
        return None
    targets, weights = batch[1:]
    size = chain_samples(problem, links)
    places = (slice(start, start + size) for start in range(0, len(inputs), size))
    return ChainProduct(
        [_piece(problem, links, inputs[place], targets[place], weights[place], part) for place in places]
    )


@torch.no_grad()
def _piece(
    problem: Problem, links: Sequence[Link], inputs: Tensor, targets: Tensor, weights: Tensor, part: str
) -> Piece:
    entering, slopes, bends = [inputs], [], []
    for link in links:
        bias = None if link.bias is None else problem.named[link.bias]
        value, slope, bend = activated(link, F.linear(entering[-1], problem.named[link.weight], bias))
        entering.append(value)
        slopes.append(slope)
        bends.append(bend)
    outputs = entering.pop()
    curvature = weights[:, None, None] * problem.loss.hessian(outputs, targets) if part != "functional" else None
    gradient = weights[:, None] * problem.loss.gradient(outputs, targets) if part != "outer_product" else None
    steps: list[Step] = []
    for place in reversed(range(len(links))):
        link, is_last = links[place], place == len(links) - 1
        weight, bend = problem.named[link.weight], bends[place]
        if gradient is not None and not is_last:
            pulled = gradient @ problem.named[links[place + 1].weight]
            bend = None if bend is None else (bend * pulled).to(inputs.dtype)
            gradient = pulled * slopes[place]
        own = None if gradient is None else gradient.to(inputs.dtype)
        steps.append(
            Step(
                weight.detach(),
                link.bias is not None,
                entering[place],
                None if is_last else slopes[place][:, None],
                bend[:, None] if bend is not None and gradient is not None else None,
                own,
            )
        )
    return Piece(steps[::-1], None if curvature is None else curvature.to(inputs.dtype))
