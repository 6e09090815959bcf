"""The Hessian of softmax cross-entropy, diag(p) - p p^T, applied row by row without a matrix.

A vocabulary has tens of thousands of classes: rows go in chunks, so that nothing as large as the logits is made but
what is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

_CHUNK = 2**17  # entries of a temporary


def row_chunks(rows: Tensor, copies: int = 1) -> Iterator[slice]:
    """Slices of the rows of (.., rows, classes), each with about as many entries as a temporary may have."""
    count, step = rows.shape[-2], max(1, _CHUNK // max(1, copies * rows.shape[-1]))
    return (slice(start, start + step) for start in range(0, count, step))


def softmax_rows(outputs: Tensor) -> Tensor:
    probabilities = torch.empty_like(outputs)
    for part in row_chunks(outputs):
        probabilities[part] = outputs[part].softmax(1)
    return probabilities


def softmax_hessian_product(
    probabilities: Callable[[slice], Tensor], scales: Tensor, top: Tensor, vectors: Tensor
) -> Tensor:
    """scale * (diag(p) - p p^T) v of every row, for vectors (.., rows, classes).

    The Hessian does not see a constant added to v: v is taken relative to its entry at the ``top`` class, the one of
    the largest probability, so that nothing cancels where that probability is nearly one.
    """
    product = torch.empty_like(vectors)
    copies = vectors[..., 0, 0].numel()
    for part in row_chunks(vectors, copies):
        own, given = probabilities(part), _rows_of(vectors, part)
        places = top[part, None].expand(*given.shape[:-1], 1)
        shifted = given - given.gather(-1, places)
        mean = (own * shifted).sum(-1, keepdim=True)
        _rows_of(product, part).copy_((scales[part, None] * own) * (shifted - mean))
    return product


def _rows_of(values: Tensor, part: slice) -> Tensor:
    """``values[..., part, :]`` by ``narrow``: an index that takes all rows is ``aten::alias``, which vmap refuses."""
    return values.narrow(-2, part.start, min(part.stop, values.shape[-2]) - part.start)


class WeightedCrossEntropy(torch.autograd.Function):
    """sum_n weight_n loss_n of logits; of its derivatives no more is kept than the first one.

    ``loss`` gives the values, slopes, and the probabilities that belong to a slope.
    """

    @staticmethod
    def forward(ctx, outputs, targets, weights, loss):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(outputs, targets, weights)
        ctx.loss = loss
        return (weights * loss.value(outputs, targets)).sum()

    @staticmethod
    def backward(ctx, scale):  # type: ignore[no-untyped-def]
        outputs, targets, weights = ctx.saved_tensors
        slopes = _WeightedSlope.apply(outputs, targets, weights * scale, ctx.loss)  # type: ignore[no-untyped-call]
        return slopes, None, None, None


def _inverse(values: Tensor) -> Tensor:
    return torch.where(values == 0, torch.zeros_like(values), 1 / values)


class _WeightedSlope(torch.autograd.Function):
    """weight_n dloss_n/doutputs, whose own derivative recovers the probabilities from the slopes."""

    @staticmethod
    def forward(ctx, outputs, targets, weights, loss):  # type: ignore[no-untyped-def]
        slopes = loss.gradient(outputs, targets).mul_(weights[:, None])
        # Detached: an output that hooks save would hold its own graph.
        ctx.save_for_backward(slopes.detach(), targets, weights, outputs.argmax(1))
        ctx.loss = loss
        return slopes

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, vectors):  # type: ignore[no-untyped-def]
        slopes, targets, weights, top = ctx.saved_tensors
        totals = ctx.loss.total_shares(targets, slopes.dtype)
        scales = weights * totals
        # slope = weight (total p - shares); where a weight is zero, so is the product
        by_weight, by_total = _inverse(scales)[:, None], _inverse(totals)[:, None]

        def probabilities(part: slice) -> Tensor:
            shares: Tensor = ctx.loss.shares(targets[part], slopes.shape[1], slopes.dtype)
            found: Tensor = slopes[part] * by_weight[part] + shares * by_total[part]
            return found

        return softmax_hessian_product(probabilities, scales, top, vectors), None, None, None
