"""From derivatives in layer outputs to blocks of the Hessian: GEMMs over the samples.

For calls k <= l with inputs a, and the curvature S, motion A and slope g of ``sweep``, both terms of

    d2 / dW_k[j,b] dW_l[i,a]  =  sum_n ( S_n[j,i] a_l[n,a]  +  A_n[j,a] g_l[n,i] ) a_k[n,b]

share the last factor, so one product per block does: rows[j, (i,a), n] against a_k[n, b], samples innermost because
they are many. A bias is an input that is always one; a diagonal layer keeps only a = i. Positions (tokens) are summed
over like samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.curvature.layout import Layout
from hessmap.curvature.lifted.calls import Call
from hessmap.curvature.lifted.canvas import Canvas

_GROUP = 16  # outputs, and inputs, whose diagonal blocks are formed together
_CACHED = 2**19  # entries of ``rows`` that are formed and used before the next ones


@dataclass(frozen=True)
class Side:
    """A call as rows or columns of a block: its inputs with the bias's one appended, and where they go."""

    call: Call
    inputs: Tensor  # (samples, positions, features)
    pieces: tuple[tuple[slice, slice], ...]  # (features of the extended input, place in the flat vector)

    @property
    def num_features(self) -> int:
        return self.inputs.shape[2] if self.call.kind == "dense" else len(self.pieces)

    @property
    def size(self) -> int:
        return self.call.num_outputs * self.num_features

    @property
    def has_one_position(self) -> bool:
        return self.call.kind == "dense" and self.call.num_positions == 1


def side(call: Call, inputs: Tensor, layout: Layout) -> Side:
    """The call with its input extended by one for a bias, or replaced by one if the weight is frozen."""
    features, pieces, width = [], [], 0
    size = inputs.shape[2] if call.kind == "dense" else 1
    if call.weight is not None:
        features.append(inputs)
        pieces.append((slice(0, size), layout[call.weight]))
        width = size
    if call.bias is not None:
        if call.kind == "dense":
            features.append(inputs.new_ones(*inputs.shape[:2], 1))
        pieces.append((slice(width, width + 1), layout[call.bias]))
    extended = torch.cat(features, 2) if len(features) > 1 else features[0] if features else inputs
    return Side(call, extended, tuple(pieces))


def add_pair(
    canvas: Canvas, early: Side, late: Side, start: int, curvature: Tensor, motion: Tensor | None, slope: Tensor
) -> None:
    """Add the block of two calls, and its transpose; curvature and motion hold the earlier call's directions from
    ``start`` on. A direction is a (position, output) of the earlier call; those of one position are done together."""
    outputs, samples = early.call.num_outputs, curvature.shape[1]
    fresh = _freshness(canvas, early, late)
    step = max(1, _CACHED // (samples * late.size))
    place = start
    while place < start + len(curvature):
        position, first = divmod(place, outputs)
        count = min(step, outputs - first, start + len(curvature) - place)
        chosen = slice(place - start, place - start + count)
        rows = _rows(canvas, late, curvature[chosen], motion[chosen] if motion is not None else None, slope)
        block = _contract(canvas, early, position, first, rows)
        _write(canvas, early, late, first, block, fresh)
        place += count


def _freshness(canvas: Canvas, early: Side, late: Side) -> bool:
    """True if the block may be copied into; a block that several positions add to is zeroed first."""
    new = [
        (rows, columns, canvas.is_new(rows, columns), canvas.is_new(columns, rows))
        for _, rows in early.pieces
        for _, columns in late.pieces
    ]
    # Directions cover a block once if the call has one position and is not its own transposed partner.
    once = early.call.num_positions == 1 and all(one for _, _, one, _ in new)
    once = once and (early is late or all(other for _, _, _, other in new))
    if not once:
        for rows, columns, one, other in new:
            if one:
                canvas.matrix[rows, columns] = 0.0
            if other:
                canvas.matrix[columns, rows] = 0.0
    return once


def _rows(canvas: Canvas, late: Side, curvature: Tensor, motion: Tensor | None, slope: Tensor) -> Tensor:
    """The bracket of the formula, shape (directions, outputs * features of the later call, samples)."""
    call = late.call
    directions, samples = curvature.shape[:2]
    curvature = curvature.reshape(directions, samples, call.num_positions, call.num_outputs)
    if call.kind == "diagonal":
        return _diagonal_rows(late, curvature, motion, slope)
    if not late.has_one_position:
        rows = torch.einsum("dnti,nta->dian", curvature, late.inputs)
        if motion is not None and call.weight is not None:
            rows[:, :, : motion.shape[3]] += torch.einsum("dnta,nti->dian", motion, slope)
        return rows.flatten(1, 2)
    rows = canvas.scratch("rows", directions, call.num_outputs, late.num_features, samples)
    torch.mul(_samples_last(curvature)[:, :, None], _samples_last(late.inputs[None])[:, None], out=rows)
    if motion is not None and call.weight is not None:
        rows[:, :, : motion.shape[3]].addcmul_(_samples_last(motion)[:, None], _samples_last(slope[None])[:, :, None])
    return rows.flatten(1, 2)


def _samples_last(values: Tensor) -> Tensor:
    """(directions, samples, one position, features) as (directions, features, samples)."""
    return values[:, :, 0].transpose(1, 2).contiguous()


def _diagonal_rows(late: Side, curvature: Tensor, motion: Tensor | None, slope: Tensor) -> Tensor:
    features = []
    if late.call.weight is not None:
        scaled = torch.einsum("dnti,nti->dni", curvature, late.inputs)
        features.append(scaled if motion is None else scaled + torch.einsum("dnti,nti->dni", motion, slope))
    if late.call.bias is not None:
        features.append(curvature.sum(2))
    return torch.stack(features, 3).flatten(2).transpose(1, 2)


def _contract(canvas: Canvas, early: Side, position: int, first: int, rows: Tensor) -> Tensor:
    """Rows of consecutive outputs against the earlier call's inputs, (outputs, features, columns of the later)."""
    inputs = early.inputs[:, position]
    if early.call.kind == "dense":
        block = canvas.scratch("block", len(rows), early.num_features, rows.shape[1])
        return torch.bmm(inputs.T.expand(len(rows), -1, -1), rows.mT, out=block)
    own = inputs[:, first : first + len(rows)].T
    features = [own] if early.call.weight is not None else []
    features += [torch.ones_like(own)] if early.call.bias is not None else []
    return torch.bmm(torch.stack(features, 1), rows.mT)


def _write(canvas: Canvas, early: Side, late: Side, first: int, block: Tensor, fresh: bool) -> None:
    block = block.view(*block.shape[:2], late.call.num_outputs, late.num_features)
    rows = slice(first, first + len(block))
    for own, early_place in early.pieces:
        for other, late_place in late.pieces:
            early_side, late_side = (early_place, early.call.num_outputs), (late_place, late.call.num_outputs)
            part = block[:, own, :, other]
            _put(canvas.block(early_side, late_side)[rows], part, fresh)
            if early is not late:
                _put(canvas.block(late_side, early_side).permute(2, 3, 0, 1)[rows], part, fresh)


def _put(target: Tensor, values: Tensor, fresh: bool) -> None:
    if fresh:
        target.copy_(values)
    else:
        target.add_(values)


def add_symmetric(canvas: Canvas, own: Side, curvature: Tensor) -> None:
    """Add the block of a dense call with itself, one position: half of it or less, the rest by symmetry.

    sum_n S_n[j,i] a[n,a] a[n,b] is symmetric in (j,i) and in (a,b): only groups with i >= j and b >= a are formed.
    ``curvature`` is (outputs, samples, outputs).
    """
    inputs, size = own.inputs[:, 0], own.call.num_outputs
    fresh = _freshness(canvas, own, own)
    for piece, (features, _) in enumerate(own.pieces):
        for a in range(features.start, features.stop, _GROUP):
            group = slice(a, min(a + _GROUP, features.stop))
            products = canvas.scratch("products", len(inputs), _width(group), own.num_features - a)
            torch.mul(inputs[:, group, None], inputs[:, None, a:], out=products)
            for j in range(0, size, _GROUP):
                outputs = slice(j, min(j + _GROUP, size))
                pairs = curvature[outputs, :, j:].transpose(1, 2).flatten(0, 1)
                block = canvas.scratch("block", len(pairs), products[0].numel())
                torch.mm(pairs, products.flatten(1), out=block)
                block = block.view(_width(outputs), size - j, _width(group), own.num_features - a)
                _write_symmetric(canvas, own, piece, outputs, group, block, fresh)


def _write_symmetric(
    canvas: Canvas, own: Side, piece: int, outputs: slice, group: slice, block: Tensor, fresh: bool
) -> None:
    """A block (j, i >= j, a, b >= a) to its own place and to the three that mirror it, for every parameter b is of."""
    size, (features, rows) = own.call.num_outputs, own.pieces[piece]
    local = slice(group.start - features.start, group.stop - features.start)
    for other, columns in own.pieces[piece:]:
        first = max(other.start, group.start)
        part = block[..., first - group.start : other.stop - group.start]
        target = canvas.block((rows, size), (columns, size))
        _put_mirrored(target[:, local, :, first - other.start :], outputs, part, fresh)
        beyond = max(other.start, group.stop)  # columns whose mirror image is not in the group itself
        part = block[..., beyond - group.start : other.stop - group.start].mT
        target = canvas.block((columns, size), (rows, size))
        _put_mirrored(target[:, beyond - other.start :, :, local], outputs, part, fresh)


def _put_mirrored(target: Tensor, outputs: slice, part: Tensor, fresh: bool) -> None:
    """Pairs of outputs (j, i >= j) to their place and to (i, j)."""
    _put(target[outputs, :, outputs.start :], part.permute(0, 2, 1, 3), fresh)
    _put(target[outputs.stop :, :, outputs], part[:, _width(outputs) :].permute(1, 2, 0, 3), fresh)


def _width(part: slice) -> int:
    return int(part.stop - part.start)
