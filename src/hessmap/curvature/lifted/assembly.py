"""From derivatives in layer outputs to blocks of the Hessian: GEMMs over the samples.

For calls k <= l with inputs a and the curvature S, motion A and gradient g of ``sweep``, both terms of

    d2 / dW_k[j,b] dW_l[i,a]  =  sum_n ( S_n[j,i] a_l[n,a]  +  A_n[j,a] g_l[n,i] ) a_k[n,b]

share the last factor, so one product per block does: rows[j, n, (i,a)] against a_k. A bias is an input that is always
one; a diagonal layer keeps only a = i. Positions (tokens) are summed over like samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.curvature.layout import Layout
from hessmap.curvature.lifted.calls import Call

_GROUP = 8  # outputs whose diagonal blocks are formed together


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
    hessian: Tensor, early: Side, late: Side, directions: slice, curvature: Tensor, motion: Tensor | None, slope: Tensor
) -> None:
    """Add the block of two calls, and its transpose, for some output directions of the earlier call."""
    rows = _rows(late, curvature, motion, slope)
    block = _contract(early, rows, directions)
    _place(hessian, early, late, directions, block)
    if early is not late:
        _place_transposed(hessian, early, late, directions, block)


def _rows(late: Side, curvature: Tensor, motion: Tensor | None, slope: Tensor) -> Tensor:
    """The bracket of the formula, shape (directions, samples, outputs * features of the later call)."""
    call = late.call
    shape = (*curvature.shape[:2], call.num_positions, call.num_outputs)
    curvature = curvature.reshape(shape)
    if call.kind == "diagonal":
        return _diagonal_rows(late, curvature, motion, slope)
    if call.num_positions == 1:
        rows = curvature[:, :, 0, :, None] * late.inputs[None, :, 0, None, :]
        if motion is not None and call.weight is not None:
            rows[..., : motion.shape[3]].addcmul_(motion[:, :, 0, None, :], slope[None, :, 0, :, None])
    else:
        rows = torch.einsum("dnti,nta->dnia", curvature, late.inputs)
        if motion is not None and call.weight is not None:
            rows[..., : motion.shape[3]] += torch.einsum("dnta,nti->dnia", motion, slope)
    return rows.flatten(2)


def _diagonal_rows(late: Side, curvature: Tensor, motion: Tensor | None, slope: Tensor) -> Tensor:
    features = []
    if late.call.weight is not None:
        scaled = torch.einsum("dnti,nti->dni", curvature, late.inputs)
        features.append(scaled if motion is None else scaled + torch.einsum("dnti,nti->dni", motion, slope))
    if late.call.bias is not None:
        features.append(curvature.sum(2))
    return torch.stack(features, 3).flatten(2)


def _contract(early: Side, rows: Tensor, directions: slice) -> Tensor:
    """rows against the inputs of the earlier call, shape (directions * features, outputs * features of the later).

    With several positions, directions run over (position, output): each is contracted with its own position's input.
    """
    call = early.call
    index = torch.arange(call.output_size)[directions]
    position = index // call.num_outputs
    if call.kind == "dense":
        inputs = early.inputs.permute(1, 2, 0)[position]  # (directions, features, samples)
        if call.num_positions == 1:
            inputs = early.inputs[:, 0].T.expand(len(index), -1, -1)
        return torch.bmm(inputs, rows)
    own = early.inputs.permute(1, 2, 0)[position, index % call.num_outputs]  # (directions, samples)
    features = [own] if call.weight is not None else []
    features += [torch.ones_like(own)] if call.bias is not None else []
    return torch.bmm(torch.stack(features, 1), rows)


def _place(hessian: Tensor, early: Side, late: Side, directions: slice, block: Tensor) -> None:
    outputs = torch.arange(early.call.output_size)[directions] % early.call.num_outputs
    block = block.reshape(len(outputs), early.num_features, late.call.num_outputs, late.num_features)
    for own, rows in early.pieces:
        for other, columns in late.pieces:
            target = hessian[rows, columns].view(early.call.num_outputs, -1, late.call.num_outputs, _width(other))
            _accumulate(target, outputs, block[:, own, :, other])


def _place_transposed(hessian: Tensor, early: Side, late: Side, directions: slice, block: Tensor) -> None:
    outputs = torch.arange(early.call.output_size)[directions] % early.call.num_outputs
    block = block.reshape(len(outputs), early.num_features, late.call.num_outputs, late.num_features)
    for own, rows in early.pieces:
        for other, columns in late.pieces:
            target = hessian[columns, rows].view(late.call.num_outputs, -1, early.call.num_outputs, _width(own))
            _accumulate(target.permute(2, 3, 0, 1), outputs, block[:, own, :, other])


def _accumulate(target: Tensor, outputs: Tensor, block: Tensor) -> None:
    """Add slices of a block to their outputs; directions of one position are consecutive outputs, several may repeat."""
    start = 0
    while start < len(outputs):
        first = int(outputs[start])
        count = min(len(outputs) - start, len(target) - first)
        target[first : first + count] += block[start : start + count]
        start += count


def _width(features: slice) -> int:
    return int(features.stop - features.start)


def add_symmetric(hessian: Tensor, own: Side, curvature: Tensor) -> None:
    """Add the block of a dense call with itself, one position: half of it by symmetry in the pair of outputs.

    sum_n S_n[j,i] a[n,b] a[n,a], with the products a a^T formed once; ``curvature`` is (outputs, samples, outputs).
    """
    inputs = own.inputs[:, 0]
    squares = (inputs[:, :, None] * inputs[:, None, :]).flatten(1)
    size, features = own.call.num_outputs, own.num_features
    for start in range(0, size, _GROUP):
        stop = min(start + _GROUP, size)
        pairs = curvature[start:stop, :, start:].transpose(1, 2).flatten(0, 1)
        block = (pairs @ squares).view(stop - start, size - start, features, features)
        for first, rows in own.pieces:
            for second, columns in own.pieces:
                target = hessian[rows, columns].view(size, _width(first), size, _width(second))
                part = block[:, :, first, second]
                target[start:stop, :, start:] += part.permute(0, 2, 1, 3)
                target[stop:, :, start:stop] += part[:, stop - start :].permute(1, 2, 0, 3)
