"""Dense Hessians of a batch: derivatives along perturbations of layer outputs, then GEMMs over the samples.

Add a perturbation e_c to the output of every call c; f is the sum over samples and outputs of residual * output.
``first_derivatives`` finds the inputs a_c, the gradients df/de_c and the Jacobians doutput/de_c. ``second_derivatives``
pushes some directions of one e_k forward through the gradient (units, or what units of the weights do to the outputs,
whichever are fewer), and finds for every call l at or after k

    curvature[l - k]  d2 f / de_k de_l    (directions of k, samples, outputs * positions of l)
    input_tangents[l - k]  d a_l / de_k   (directions of k, samples, inputs of l)

For calls k <= l with features a, this curvature S, input tangents A and gradient g, both terms of

    d2 / dW_k[j,b] dW_l[i,a]  =  sum_n ( S_n[j,i] a_l[n,a]  +  A_n[j,a] g_l[n,i] ) a_k[n,b]

share the last factor. Where every sample passes once through both calls, one product per block is enough:
rows[j, (i,a), n] times a_k[n, b], samples innermost because they are many. Otherwise positions are summed over like
samples, the earlier call's first: it has more of them. A call that was perturbed in its weights already contains its
features. A bias is a feature that is always one.

First touching a page costs as much as several flops per entry, so the matrix starts uninitialised (in huge pages), the
first batch of samples copies and only later ones add, and scratch memory is allocated once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from hessmap.linalg import Layout, empty
from hessmap.problem import (
    ConvolutionGeometry,
    Inputs,
    LayerCall,
    LayerUse,
    ParameterBlock,
    Problem,
    UseOnBatch,
    num_rows,
    perturbed_pass,
    recording_of,
)


class HessianBuffer:
    """A symmetric matrix in the making. ``uses`` names a parameter once for every call of it: the block of two
    parameters that are used once each is written once per batch, all others start from zero. A parameter of which a
    call uses some entries alone, or in another order, counts as used more than once."""

    def __init__(self, layout: Layout, uses: Iterable[str], dtype: torch.dtype) -> None:
        self._places = dict(layout)
        self._dtype = dtype
        self.matrix = empty((layout.size, layout.size), dtype)
        self.is_first_batch = True
        self._scratch: dict[str, Tensor] = {}
        counts = Counter(uses)
        self._used_once = {name for name in layout.names if counts[name] == 1}
        for name, place in layout:
            if name not in self._used_once:
                self.matrix[place] = 0.0
                self.matrix[:, place] = 0.0

    def scratch(self, name: str, *shape: int) -> Tensor:
        """Unwritten memory of this shape; it is overwritten by the next call with the same name."""
        size = prod(shape)
        buffer = self._scratch.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._scratch[name] = empty((size,), self._dtype)
        return buffer[:size].view(shape)

    def block(self, row: str, row_outputs: int, column: str, column_outputs: int) -> Tensor:
        """The block of two parameters as (outputs, features, outputs, features), to be written into."""
        rows, columns = self._places[row], self._places[column]
        features = (columns.stop - columns.start) // column_outputs
        return self.matrix[rows, columns].view(row_outputs, -1, column_outputs, features)

    def is_first_write(self, row: str, column: str) -> bool:
        """Whether entries of the block are to be copied into, not added to."""
        return self.is_first_batch and row in self._used_once and column in self._used_once

    def rows(self, name: str, entries: Tensor) -> Tensor:
        """Rows of the matrix at some places of a flat parameter."""
        rows: Tensor = self._places[name].start + entries
        return rows


@dataclass(frozen=True, eq=False)
class Network:
    """The forward pass of a problem with the calls through which its parameters act, and convolutions as matrices where
    that is faster."""

    problem: Problem
    calls: tuple[LayerUse, ...]
    places: dict[int, int]  # of a recorded use among the calls
    matrices: tuple[Tensor | None, ...]

    def forward(self, data: Inputs) -> Tensor:
        return self.problem.forward(self.problem.named, data)

    def perturbed_outputs(self, data: Inputs, perturbations: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor]]:
        """The outputs, and the inputs (samples, input_size) of every call.

        A perturbation (samples, outputs, positions) is added to what leaves its call.
        """

        def layer_outputs(number: int, call: LayerCall) -> Tensor:
            place = self.places[number]
            geometry = self.calls[place].geometry
            return call.outputs() if geometry is None else _convolution(call, geometry, self.matrices[place])

        added = dict(zip(self.places, perturbations, strict=True))
        return perturbed_pass(self.problem, data, added, layer_outputs)

    def zero_perturbations(self, data: Inputs, first: int = 0) -> list[Tensor]:
        """Zeros in what leaves the calls, from a call on."""
        count, like = num_rows(data), self.problem.parameters
        return [like.new_zeros(count, call.num_outputs, call.num_positions) for call in self.calls[first:]]


def _convolution(call: LayerCall, geometry: ConvolutionGeometry, matrix: Tensor | None) -> Tensor:
    """Outputs (samples, outputs, positions), through operations whose gradients can be pushed forward."""
    assert call.weight_value is not None
    if matrix is None:
        images = call.inputs.reshape(*call.inputs.shape[:2], *geometry.image)
        outputs = geometry.convolve(images, call.weight_value)
    else:
        outputs = (call.inputs.flatten(1) @ matrix).reshape(len(call.inputs), call.num_outputs, -1)
    return outputs if call.bias_value is None else outputs + call.bias_value[:, None]


def lifted_network(problem: Problem) -> Network:
    """The calls of a problem through which parameters act that have no other use."""
    recording = recording_of(problem)
    uses = [use if use.is_structured and use.images_per_sample == 1 else None for use in recording.uses]
    known = recording.structured_names - {
        name
        for use, own in zip(recording.uses, uses, strict=True)
        if own is None and use.is_differentiable
        for name in use.parameters
    }
    calls: list[LayerUse] = []
    places: dict[int, int] = {}
    for number, use in enumerate(uses):
        call = None if use is None else _call(use, known)
        if call is not None:
            places[number] = len(calls)
            calls.append(call)
    return Network(problem, tuple(calls), places, tuple(_matrix(problem, call) for call in calls))


def _call(use: LayerUse, known: frozenset[str]) -> LayerUse | None:
    """The use with those of its weight and bias that are known; None if neither is."""
    weight = use.weight if use.weight is not None and use.weight.name in known else None
    bias = use.bias if use.bias is not None and use.bias.name in known else None
    return None if weight is None and bias is None else replace(use, weight=weight, bias=bias)


def _matrix(problem: Problem, use: LayerUse) -> Tensor | None:
    """A convolution of a whole parameter as one matrix."""
    if use.geometry is None or use.weight is None or use.weight.index is not None:
        return None
    weight = problem.named[use.weight.name]
    with torch.no_grad():
        return use.geometry.matrix(weight)


@dataclass(frozen=True)
class FirstDerivatives:
    """A batch, from its calls: inputs (samples, input_size), output gradients (samples, outputs, positions), and, where
    they were wanted, Jacobians (samples, outputs of the network, outputs * positions of the call)."""

    data: Inputs
    residual: Tensor
    inputs: Sequence[Tensor]
    output_gradients: Sequence[Tensor]
    jacobians: Sequence[Tensor]


@dataclass(frozen=True)
class SecondDerivatives:
    """The second derivatives along directions of one call, from that call on."""

    curvature: Sequence[Tensor]
    input_tangents: Sequence[Tensor]


def first_derivatives(network: Network, data: Inputs, residual: Tensor, with_jacobians: bool) -> FirstDerivatives:
    """One vector-Jacobian product of the residual, and one per output of the network if Jacobians are wanted."""
    start = network.zero_perturbations(data)
    linearised: Any = vjp(lambda moved: network.perturbed_outputs(data, moved), start, has_aux=True)
    _, to_calls, inputs = linearised
    output_gradients = to_calls(residual)[0]
    jacobians: list[Tensor] = []
    if with_jacobians:
        size = residual.shape[1]
        basis = torch.eye(size, dtype=residual.dtype)[:, None, :].expand(-1, num_rows(data), -1)
        by_output = vmap(lambda cotangent: to_calls(cotangent)[0])(basis)
        jacobians = [item.flatten(2).transpose(0, 1) for item in by_output]
    return FirstDerivatives(data, residual, inputs, output_gradients, jacobians)


def second_derivatives(network: Network, lifted: FirstDerivatives, first: int, directions: Tensor) -> SecondDerivatives:
    """Push some perturbations of a call, (directions, samples, outputs, positions), forward through
    the gradient."""
    data = lifted.data
    own, *later = network.zero_perturbations(data, first)
    none: list[Tensor | None] = [None] * first

    def gradient(perturbation: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        start = [perturbation, *later]
        linearised: Any = vjp(lambda moved: network.perturbed_outputs(data, none + moved), start, has_aux=True)
        _, to_calls, inputs = linearised
        return to_calls(lifted.residual)[0], inputs[first:]

    curvature, input_tangents = vmap(lambda direction: jvp(gradient, (own,), (direction,))[1])(directions)
    return SecondDerivatives([item.flatten(2) for item in curvature], input_tangents)


# Sizes for two CPU cores; benchmarks/dense_hessian.py and benchmarks/conv_hessian.py time the matrices.
_GROUP = 16  # outputs, and inputs, whose diagonal blocks are formed together
_CACHED = 2**18  # entries of ``rows`` that are formed and used before the next ones
_HELD = 2**22  # entries that positions are summed into before the next ones


def add_pair(
    buffer: HessianBuffer,
    early: UseOnBatch,
    late: UseOnBatch,
    outputs: slice,
    curvature: Tensor,
    input_tangents: Tensor | None,
) -> None:
    """Add the block of some outputs of a call with a later one, and its transpose."""
    if early is late and early.use.is_plain and len(curvature) == early.use.num_outputs:
        _add_symmetric(buffer, early, curvature)
        return
    if early.use.is_plain:
        _add_plain(buffer, early, late, outputs, curvature, input_tangents)
        return
    each, samples = early.use.directions_per_output, len(early.inputs)
    output_gradients = curvature.view(-1, each, samples, curvature.shape[2])
    tangents = input_tangents.view(-1, each, samples, input_tangents.shape[2]) if input_tangents is not None else None
    if early.use.space == "weights":
        _write(buffer, early, late, outputs.start, late.gradient(output_gradients, tangents))
        return
    step = max(1, _HELD // (samples * early.use.num_features * (late.use.output_size + late.use.input_size)))
    for first in range(0, len(output_gradients), step):
        chosen, start = slice(first, first + step), outputs.start + first
        features = early.of_outputs(slice(start, min(start + step, outputs.stop))).mT
        met = _position_sums(features, output_gradients[chosen])
        met_tangents = _position_sums(features, tangents[chosen]) if tangents is not None else None
        _write(buffer, early, late, start, late.gradient(met, met_tangents))


def _position_sums(features: Tensor, values: Tensor) -> Tensor:
    """Values (outputs, positions, samples, entries) summed over positions against features of the same outputs,
    (outputs, samples, features, positions)."""
    return (features @ values.transpose(1, 2)).transpose(1, 2)


def _add_plain(
    buffer: HessianBuffer,
    early: UseOnBatch,
    late: UseOnBatch,
    outputs: slice,
    curvature: Tensor,
    input_tangents: Tensor | None,
) -> None:
    features = early.features[0, :, 0]
    step = max(1, _CACHED // (len(features) * late.use.num_outputs * late.use.num_features))
    for first in range(0, len(curvature), step):
        chosen = slice(first, first + step)
        rows = _rows(buffer, late, curvature[chosen], input_tangents[chosen] if input_tangents is not None else None)
        if early is not late and _is_whole(early) and _is_whole(late):
            _multiply_into_place(buffer, early, late, outputs.start + first, rows)
            continue
        block = buffer.scratch("block", len(rows), features.shape[1], rows.shape[1])
        torch.bmm(features.T.expand(len(rows), -1, -1), rows.mT, out=block)
        block = block.view(*block.shape[:2], late.use.num_outputs, -1)
        _write(buffer, early, late, outputs.start + first, block)


def _is_whole(own: UseOnBatch) -> bool:
    """Whether its parameters are one matrix, all of it in its own order."""
    return len(own.use.pieces) == 1 and own.use.pieces[0].entries is None


def _multiply_into_place(buffer: HessianBuffer, early: UseOnBatch, late: UseOnBatch, first: int, rows: Tensor) -> None:
    """The product of a plain pair without a copy, and its mirror image while it is near the processor."""
    own, other = early.use.pieces[0].name, late.use.pieces[0].name
    here, there, chosen = early.use.num_outputs, late.use.num_outputs, slice(first, first + len(rows))
    target = buffer.block(own, here, other, there)[chosen]
    flat = target.flatten(2)
    factor = early.features[0, :, 0].T.expand(len(rows), -1, -1)
    torch.baddbmm(flat, factor, rows.mT, beta=0 if buffer.is_first_write(own, other) else 1, out=flat)
    buffer.block(other, there, own, here).permute(2, 3, 0, 1)[chosen] = target


def _rows(buffer: HessianBuffer, late: UseOnBatch, curvature: Tensor, input_tangents: Tensor | None) -> Tensor:
    """The bracket of the formula, shape (directions, outputs * features of the later call, samples)."""
    call = late.use
    if not call.is_plain:
        return late.gradient(curvature, input_tangents, per_sample=True).flatten(1, 2)
    directions, samples = curvature.shape[:2]
    rows = buffer.scratch("rows", directions, call.num_outputs, call.num_features, samples)
    torch.mul(_samples_last(curvature)[:, :, None], _samples_last(late.features[0, :, 0])[None], out=rows)
    if input_tangents is not None and call.weight is not None:
        assert late.output_gradient is not None
        rows[:, :, : input_tangents.shape[2]].addcmul_(
            _samples_last(input_tangents)[:, None], _samples_last(late.output_gradient[:, :, 0])[None, :, None]
        )
    return rows.flatten(1, 2)


def _samples_last(values: Tensor) -> Tensor:
    return values.transpose(-1, -2).contiguous()


def _write(buffer: HessianBuffer, early: UseOnBatch, late: UseOnBatch, first: int, block: Tensor) -> None:
    """Put a block (outputs of the earlier call from ``first`` on, features, outputs of the later, features) into its
    place and its mirror image."""
    rows, here, there = slice(first, first + len(block)), early.use.num_outputs, late.use.num_outputs
    for own in early.use.pieces:
        for other in late.use.pieces:
            part = block[:, own.features, :, other.features]
            if own.entries is not None or other.entries is not None:
                places, others = own.places(here)[rows], other.places(there)
                _add_at_entries(buffer, places, own, others, other, part)
                if early is not late:
                    _add_at_entries(buffer, others, other, places, own, part.permute(2, 3, 0, 1))
                continue
            is_first_write = buffer.is_first_write(own.name, other.name)
            _put(buffer.block(own.name, here, other.name, there)[rows], part, is_first_write)
            if early is not late:
                mirrored = buffer.block(other.name, there, own.name, here).permute(2, 3, 0, 1)
                _put(mirrored[rows], part, is_first_write)


def _add_at_entries(
    buffer: HessianBuffer, rows: Tensor, own: ParameterBlock, columns: Tensor, other: ParameterBlock, part: Tensor
) -> None:
    """Add a block whose parameters are used in part, or in another order than their own."""
    places = buffer.rows(own.name, rows.flatten())[:, None], buffer.rows(other.name, columns.flatten())[None]
    buffer.matrix[places] += part.reshape(rows.numel(), columns.numel())


def _put(target: Tensor, values: Tensor, is_first_write: bool) -> None:
    if is_first_write:
        target.copy_(values)
    else:
        target.add_(values)


def _add_symmetric(buffer: HessianBuffer, own: UseOnBatch, curvature: Tensor) -> None:
    """Add the block of a plain call with itself: half of it or less, the rest by symmetry.

    sum_n S_n[j,i] a[n,a] a[n,b] is symmetric in (j,i) and in (a,b): only groups with i >= j and b >= a are formed.
    ``curvature`` is (outputs, samples, outputs).
    """
    inputs, size = own.features[0, :, 0], own.use.num_outputs
    for number, piece in enumerate(own.use.pieces):
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
    buffer: HessianBuffer, own: UseOnBatch, number: int, outputs: slice, group: slice, block: Tensor
) -> None:
    """A block (j, i >= j, a, b >= a) to its own place and to the three that mirror it, for every parameter b is of."""
    size, name, features = own.use.num_outputs, own.use.pieces[number].name, own.use.pieces[number].features
    local = slice(group.start - features.start, group.stop - features.start)
    for piece in own.use.pieces[number:]:
        other_name, other = piece.name, piece.features
        is_first_write = buffer.is_first_write(name, other_name)
        first = max(other.start, group.start)
        part = block[..., first - group.start : other.stop - group.start]
        target = buffer.block(name, size, other_name, size)
        _put_mirrored(target[:, local, :, first - other.start :], outputs, part, is_first_write)
        beyond = max(other.start, group.stop)  # columns whose mirror image is not in the group itself
        part = block[..., beyond - group.start : other.stop - group.start].mT
        target = buffer.block(other_name, size, name, size)
        _put_mirrored(target[:, beyond - other.start :, :, local], outputs, part, is_first_write)


def _put_mirrored(target: Tensor, outputs: slice, part: Tensor, is_first_write: bool) -> None:
    """Pairs of outputs (j, i >= j) to their place and to (i, j)."""
    _put(target[outputs, :, outputs.start :], part.permute(0, 2, 1, 3), is_first_write)
    _put(target[outputs.stop :, :, outputs], part[:, _width(outputs) :].permute(1, 2, 0, 3), is_first_write)


def _width(part: slice) -> int:
    return int(part.stop - part.start)
