"""From derivatives along perturbations to blocks of the Hessian: GEMMs over the samples.

For calls k <= l with features a, and the curvature S, motion A and slope g of ``sweep``, both terms of

    d2 / dW_k[j,b] dW_l[i,a]  =  sum_n ( S_n[j,i] a_l[n,a]  +  A_n[j,a] g_l[n,i] ) a_k[n,b]

share the last factor. Where every sample passes once through both calls, one product per block does: rows[j, (i,a), n]
against a_k[n, b], samples innermost because they are many. Else positions are summed over like samples, the earlier
call's first: it has more of them. A call that was perturbed in its weights has met its features already. A bias is a
feature that is always one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.lifted.canvas import Canvas
from hessmap.curvature.lifted.side import Side

_GROUP = 16  # outputs, and inputs, whose diagonal blocks are formed together
_CACHED = 2**19  # entries of ``rows`` that are formed and used before the next ones
_HELD = 2**22  # entries that positions are summed into before the next ones


def add_pair(canvas: Canvas, early: Side, late: Side, outputs: slice, curvature: Tensor, motion: Tensor | None) -> None:
    """Add the block of some outputs of a call with a later one, and its transpose."""
    if early.call.is_plain:
        _add_plain(canvas, early, late, outputs, curvature, motion)
        return
    each, samples = early.call.directions_per_output, len(early.slope)
    slopes = curvature.view(-1, each, samples, curvature.shape[2])
    moved = motion.view(-1, each, samples, motion.shape[2]) if motion is not None else None
    if early.call.space == "weights":
        _write(canvas, early, late, outputs.start, late.gradient(slopes, moved))
        return
    step = max(1, _HELD // (samples * early.call.num_features * (late.call.output_size + late.call.input_size)))
    for first in range(0, len(slopes), step):
        chosen, start = slice(first, first + step), outputs.start + first
        features = early.of_outputs(slice(start, min(start + step, outputs.stop))).mT
        met = _met(features, slopes[chosen])
        met_motion = _met(features, moved[chosen]) if moved is not None else None
        _write(canvas, early, late, start, late.gradient(met, met_motion))


def _met(features: Tensor, values: Tensor) -> Tensor:
    """Values (outputs, positions, samples, entries) summed over positions against features of the same outputs,
    (outputs, samples, features, positions)."""
    return (features @ values.transpose(1, 2)).transpose(1, 2)


def _add_plain(
    canvas: Canvas, early: Side, late: Side, outputs: slice, curvature: Tensor, motion: Tensor | None
) -> None:
    features = early.features[0, :, 0]
    step = max(1, _CACHED // (len(features) * late.call.num_outputs * late.call.num_features))
    for first in range(0, len(curvature), step):
        chosen = slice(first, first + step)
        rows = _rows(canvas, late, curvature[chosen], motion[chosen] if motion is not None else None)
        block = canvas.scratch("block", len(rows), features.shape[1], rows.shape[1])
        torch.bmm(features.T.expand(len(rows), -1, -1), rows.mT, out=block)
        block = block.view(*block.shape[:2], late.call.num_outputs, -1)
        _write(canvas, early, late, outputs.start + first, block)


def _rows(canvas: Canvas, late: Side, curvature: Tensor, motion: Tensor | None) -> Tensor:
    """The bracket of the formula, shape (directions, outputs * features of the later call, samples)."""
    call = late.call
    if not call.is_plain:
        return late.gradient(curvature, motion, per_sample=True).flatten(1, 2)
    directions, samples = curvature.shape[:2]
    rows = canvas.scratch("rows", directions, call.num_outputs, call.num_features, samples)
    torch.mul(_samples_last(curvature)[:, :, None], _samples_last(late.features[0, :, 0])[None], out=rows)
    if motion is not None and call.weight is not None:
        rows[:, :, : motion.shape[2]].addcmul_(
            _samples_last(motion)[:, None], _samples_last(late.slope[:, :, 0])[None, :, None]
        )
    return rows.flatten(1, 2)


def _samples_last(values: Tensor) -> Tensor:
    return values.transpose(-1, -2).contiguous()


def _write(canvas: Canvas, early: Side, late: Side, first: int, block: Tensor) -> None:
    """Put a block (outputs of the earlier call from ``first`` on, features, outputs of the later, features) into its
    place and its mirror image."""
    rows, here, there = slice(first, first + len(block)), early.call.num_outputs, late.call.num_outputs
    for own_name, own in early.pieces:
        for other_name, other in late.pieces:
            part, unwritten = block[:, own, :, other], canvas.is_unwritten(own_name, other_name)
            _put(canvas.block(own_name, here, other_name, there)[rows], part, unwritten)
            if early is not late:
                mirrored = canvas.block(other_name, there, own_name, here).permute(2, 3, 0, 1)
                _put(mirrored[rows], part, unwritten)


def _put(target: Tensor, values: Tensor, is_unwritten: bool) -> None:
    if is_unwritten:
        target.copy_(values)
    else:
        target.add_(values)


def add_symmetric(canvas: Canvas, own: Side, curvature: Tensor) -> None:
    """Add the block of a plain call with itself: half of it or less, the rest by symmetry.

    sum_n S_n[j,i] a[n,a] a[n,b] is symmetric in (j,i) and in (a,b): only groups with i >= j and b >= a are formed.
    ``curvature`` is (outputs, samples, outputs).
    """
    inputs, size = own.features[0, :, 0], own.call.num_outputs
    for piece, (_, features) in enumerate(own.pieces):
        for a in range(features.start, features.stop, _GROUP):
            group = slice(a, min(a + _GROUP, features.stop))
            products = canvas.scratch("products", len(inputs), _width(group), inputs.shape[1] - a)
            torch.mul(inputs[:, group, None], inputs[:, None, a:], out=products)
            for j in range(0, size, _GROUP):
                outputs = slice(j, min(j + _GROUP, size))
                pairs = curvature[outputs, :, j:].transpose(1, 2).flatten(0, 1)
                block = canvas.scratch("block", len(pairs), products[0].numel())
                torch.mm(pairs, products.flatten(1), out=block)
                block = block.view(_width(outputs), size - j, _width(group), inputs.shape[1] - a)
                _write_symmetric(canvas, own, piece, outputs, group, block)


def _write_symmetric(canvas: Canvas, own: Side, piece: int, outputs: slice, group: slice, block: Tensor) -> None:
    """A block (j, i >= j, a, b >= a) to its own place and to the three that mirror it, for every parameter b is of."""
    size, (name, features) = own.call.num_outputs, own.pieces[piece]
    local = slice(group.start - features.start, group.stop - features.start)
    for other_name, other in own.pieces[piece:]:
        unwritten = canvas.is_unwritten(name, other_name)
        first = max(other.start, group.start)
        part = block[..., first - group.start : other.stop - group.start]
        target = canvas.block(name, size, other_name, size)
        _put_mirrored(target[:, local, :, first - other.start :], outputs, part, unwritten)
        beyond = max(other.start, group.stop)  # columns whose mirror image is not in the group itself
        part = block[..., beyond - group.start : other.stop - group.start].mT
        target = canvas.block(other_name, size, name, size)
        _put_mirrored(target[:, beyond - other.start :, :, local], outputs, part, unwritten)


def _put_mirrored(target: Tensor, outputs: slice, part: Tensor, is_unwritten: bool) -> None:
    """Pairs of outputs (j, i >= j) to their place and to (i, j)."""
    _put(target[outputs, :, outputs.start :], part.permute(0, 2, 1, 3), is_unwritten)
    _put(target[outputs.stop :, :, outputs], part[:, _width(outputs) :].permute(1, 2, 0, 3), is_unwritten)


def _width(part: slice) -> int:
    return int(part.stop - part.start)
