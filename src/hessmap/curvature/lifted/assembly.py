"""From derivatives along perturbations to blocks of the Hessian: GEMMs over the samples.

For calls k <= l with features a, and the curvature S, input_tangents A and slope g of ``sweep``, both terms of

    d2 / dW_k[j,b] dW_l[i,a]  =  sum_n ( S_n[j,i] a_l[n,a]  +  A_n[j,a] g_l[n,i] ) a_k[n,b]

share the last factor. Where every sample passes once through both calls, one product per block does: rows[j, (i,a), n]
against a_k[n, b], samples innermost because they are many. Else positions are summed over like samples, the earlier
call's first: it has more of them. A call that was perturbed in its weights has met its features already. A bias is a
feature that is always one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.lifted.batch_call import BatchCall, Piece
from hessmap.curvature.lifted.hessian_buffer import HessianBuffer

_GROUP = 16  # outputs, and inputs, whose diagonal blocks are formed together
_CACHED = 2**18  # entries of ``rows`` that are formed and used before the next ones
_HELD = 2**22  # entries that positions are summed into before the next ones


def add_pair(
    buffer: HessianBuffer,
    early: BatchCall,
    late: BatchCall,
    outputs: slice,
    curvature: Tensor,
    input_tangents: Tensor | None,
) -> None:
    """Add the block of some outputs of a call with a later one, and its transpose."""
    if early is late and early.call.is_plain and len(curvature) == early.call.num_outputs:
        _add_symmetric(buffer, early, curvature)
        return
    if early.call.is_plain:
        _add_plain(buffer, early, late, outputs, curvature, input_tangents)
        return
    each, samples = early.call.directions_per_output, len(early.slope)
    slopes = curvature.view(-1, each, samples, curvature.shape[2])
    tangents = input_tangents.view(-1, each, samples, input_tangents.shape[2]) if input_tangents is not None else None
    if early.call.space == "weights":
        _write(buffer, early, late, outputs.start, late.gradient(slopes, tangents))
        return
    step = max(1, _HELD // (samples * early.call.num_features * (late.call.output_size + late.call.input_size)))
    for first in range(0, len(slopes), step):
        chosen, start = slice(first, first + step), outputs.start + first
        features = early.of_outputs(slice(start, min(start + step, outputs.stop))).mT
        met = _position_sums(features, slopes[chosen])
        met_tangents = _position_sums(features, tangents[chosen]) if tangents is not None else None
        _write(buffer, early, late, start, late.gradient(met, met_tangents))


def _position_sums(features: Tensor, values: Tensor) -> Tensor:
    """Values (outputs, positions, samples, entries) summed over positions against features of the same outputs,
    (outputs, samples, features, positions)."""
    return (features @ values.transpose(1, 2)).transpose(1, 2)


def _add_plain(
    buffer: HessianBuffer,
    early: BatchCall,
    late: BatchCall,
    outputs: slice,
    curvature: Tensor,
    input_tangents: Tensor | None,
) -> None:
    features = early.features[0, :, 0]
    step = max(1, _CACHED // (len(features) * late.call.num_outputs * late.call.num_features))
    for first in range(0, len(curvature), step):
        chosen = slice(first, first + step)
        rows = _rows(buffer, late, curvature[chosen], input_tangents[chosen] if input_tangents is not None else None)
        if early is not late and _is_whole(early) and _is_whole(late):
            _multiply_into_place(buffer, early, late, outputs.start + first, rows)
            continue
        block = buffer.scratch("block", len(rows), features.shape[1], rows.shape[1])
        torch.bmm(features.T.expand(len(rows), -1, -1), rows.mT, out=block)
        block = block.view(*block.shape[:2], late.call.num_outputs, -1)
        _write(buffer, early, late, outputs.start + first, block)


def _is_whole(call: BatchCall) -> bool:
    """Whether its parameters are one matrix, all of it in its own order."""
    return len(call.pieces) == 1 and call.pieces[0].entries is None


def _multiply_into_place(buffer: HessianBuffer, early: BatchCall, late: BatchCall, first: int, rows: Tensor) -> None:
    """The product of a plain pair without a copy, and its mirror image while it is near the processor."""
    own, other = early.pieces[0].name, late.pieces[0].name
    here, there, chosen = early.call.num_outputs, late.call.num_outputs, slice(first, first + len(rows))
    target = buffer.block(own, here, other, there)[chosen]
    flat = target.flatten(2)
    factor = early.features[0, :, 0].T.expand(len(rows), -1, -1)
    torch.baddbmm(flat, factor, rows.mT, beta=0 if buffer.is_unwritten(own, other) else 1, out=flat)
    buffer.block(other, there, own, here).permute(2, 3, 0, 1)[chosen] = target


def _rows(buffer: HessianBuffer, late: BatchCall, curvature: Tensor, input_tangents: Tensor | None) -> Tensor:
    """The bracket of the formula, shape (directions, outputs * features of the later call, samples)."""
    call = late.call
    if not call.is_plain:
        return late.gradient(curvature, input_tangents, per_sample=True).flatten(1, 2)
    directions, samples = curvature.shape[:2]
    rows = buffer.scratch("rows", directions, call.num_outputs, call.num_features, samples)
    torch.mul(_samples_last(curvature)[:, :, None], _samples_last(late.features[0, :, 0])[None], out=rows)
    if input_tangents is not None and call.weight is not None:
        rows[:, :, : input_tangents.shape[2]].addcmul_(
            _samples_last(input_tangents)[:, None], _samples_last(late.slope[:, :, 0])[None, :, None]
        )
    return rows.flatten(1, 2)


def _samples_last(values: Tensor) -> Tensor:
    return values.transpose(-1, -2).contiguous()


def _write(buffer: HessianBuffer, early: BatchCall, late: BatchCall, first: int, block: Tensor) -> None:
    """Put a block (outputs of the earlier call from ``first`` on, features, outputs of the later, features) into its
    place and its mirror image."""
    rows, here, there = slice(first, first + len(block)), early.call.num_outputs, late.call.num_outputs
    for own in early.pieces:
        for other in late.pieces:
            part = block[:, own.features, :, other.features]
            if own.entries is not None or other.entries is not None:
                _add_at_entries(buffer, _entries(own, here)[rows], own, _entries(other, there), other, part)
                if early is not late:
                    _add_at_entries(
                        buffer, _entries(other, there), other, _entries(own, here)[rows], own, part.permute(2, 3, 0, 1)
                    )
                continue
            unwritten = buffer.is_unwritten(own.name, other.name)
            _put(buffer.block(own.name, here, other.name, there)[rows], part, unwritten)
            if early is not late:
                mirrored = buffer.block(other.name, there, own.name, here).permute(2, 3, 0, 1)
                _put(mirrored[rows], part, unwritten)


def _entries(piece: Piece, num_outputs: int) -> Tensor:
    if piece.entries is not None:
        return piece.entries
    features = piece.features.stop - piece.features.start
    return torch.arange(num_outputs * features).view(num_outputs, features)


def _add_at_entries(
    buffer: HessianBuffer, rows: Tensor, own: Piece, columns: Tensor, other: Piece, part: Tensor
) -> None:
    """Add a block whose parameters are used in part, or in another order than their own."""
    places = buffer.rows(own.name, rows.flatten())[:, None], buffer.rows(other.name, columns.flatten())[None]
    buffer.matrix[places] += part.reshape(rows.numel(), columns.numel())


def _put(target: Tensor, values: Tensor, is_unwritten: bool) -> None:
    if is_unwritten:
        target.copy_(values)
    else:
        target.add_(values)


def _add_symmetric(buffer: HessianBuffer, own: BatchCall, curvature: Tensor) -> None:
    """Add the block of a plain call with itself: half of it or less, the rest by symmetry.

    sum_n S_n[j,i] a[n,a] a[n,b] is symmetric in (j,i) and in (a,b): only groups with i >= j and b >= a are formed.
    ``curvature`` is (outputs, samples, outputs).
    """
    inputs, size = own.features[0, :, 0], own.call.num_outputs
    for number, piece in enumerate(own.pieces):
        features = piece.features
        for a in range(features.start, features.stop, _GROUP):
            group = slice(a, min(a + _GROUP, features.stop))
            products = buffer.scratch("products", len(inputs), _width(group), inputs.shape[1] - a)
            torch.mul(inputs[:, group, None], inputs[:, None, a:], out=products)
            for j in range(0, size, _GROUP):
                outputs = slice(j, min(j + _GROUP, size))
                pairs = curvature[outputs, :, j:].transpose(1, 2).flatten(0, 1)
                block = buffer.scratch("block", len(pairs), products[0].numel())
                torch.mm(pairs, products.flatten(1), out=block)
                block = block.view(_width(outputs), size - j, _width(group), inputs.shape[1] - a)
                _write_symmetric(buffer, own, number, outputs, group, block)


def _write_symmetric(
    buffer: HessianBuffer, own: BatchCall, number: int, outputs: slice, group: slice, block: Tensor
) -> None:
    """A block (j, i >= j, a, b >= a) to its own place and to the three that mirror it, for every parameter b is of."""
    size, name, features = own.call.num_outputs, own.pieces[number].name, own.pieces[number].features
    local = slice(group.start - features.start, group.stop - features.start)
    for piece in own.pieces[number:]:
        other_name, other = piece.name, piece.features
        unwritten = buffer.is_unwritten(name, other_name)
        first = max(other.start, group.start)
        part = block[..., first - group.start : other.stop - group.start]
        target = buffer.block(name, size, other_name, size)
        _put_mirrored(target[:, local, :, first - other.start :], outputs, part, unwritten)
        beyond = max(other.start, group.stop)  # columns whose mirror image is not in the group itself
        part = block[..., beyond - group.start : other.stop - group.start].mT
        target = buffer.block(other_name, size, name, size)
        _put_mirrored(target[:, beyond - other.start :, :, local], outputs, part, unwritten)


def _put_mirrored(target: Tensor, outputs: slice, part: Tensor, is_unwritten: bool) -> None:
    """Pairs of outputs (j, i >= j) to their place and to (i, j)."""
    _put(target[outputs, :, outputs.start :], part.permute(0, 2, 1, 3), is_unwritten)
    _put(target[outputs.stop :, :, outputs], part[:, _width(outputs) :].permute(1, 2, 0, 3), is_unwritten)


def _width(part: slice) -> int:
    return int(part.stop - part.start)
