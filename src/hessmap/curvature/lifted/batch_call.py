"""A call as rows or columns of a block: what its weights multiply, and the gradient of them that slopes make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from hessmap.curvature.lifted.network import Call


@dataclass(frozen=True, eq=False)
class Piece:
    """A parameter of a call: which of the call's features are its own, and where they lie in the flat parameter, shape
    (outputs, features); None for its own order."""

    name: str
    features: slice
    entries: Tensor | None


@dataclass(frozen=True, eq=False)
class BatchCall:
    """A call on a batch. ``features`` (groups, samples, positions, parameters per output) is what the weights multiply,
    with the bias's one appended; ``pieces`` are its parameters."""

    call: Call
    features: Tensor
    slope: Tensor  # (samples, outputs, positions)
    pieces: tuple[Piece, ...]

    @cached_property
    def spread(self) -> Tensor:
        """The slopes where the kernel of a convolution looks."""
        assert self.call.geometry is not None
        return self.call.geometry.spread(self.slope)

    def of_outputs(self, outputs: slice) -> Tensor:
        """What the parameters of some outputs multiply, (outputs, samples, positions, parameters)."""
        size = self.call.num_outputs // self.call.num_groups
        return self.features[torch.arange(outputs.start, outputs.stop) // size]

    def directions(self, outputs: slice) -> Tensor:
        """Perturbations of some of its outputs, (outputs * directions of each, samples, outputs, positions): units, or
        what units of the parameters do."""
        call, samples = self.call, len(self.slope)
        count = outputs.stop - outputs.start
        if call.space == "outputs":
            units = torch.eye(call.output_size, dtype=self.slope.dtype).view(call.num_outputs, -1, call.output_size)
            return units[outputs].reshape(-1, 1, call.num_outputs, call.num_positions).expand(-1, samples, -1, -1)
        directions = self.slope.new_zeros(count, call.num_features, samples, call.num_outputs, call.num_positions)
        for place, features in enumerate(self.of_outputs(outputs)):
            directions[place, :, :, outputs.start + place] = features.movedim(2, 0)
        return directions.flatten(0, 1)

    def along(self, jacobian: Tensor, outputs: slice) -> Tensor:
        """The derivative (samples, directions, outputs of the network) of the outputs along ``directions``."""
        chosen = jacobian.view(*jacobian.shape[:2], self.call.num_outputs, -1)[:, :, outputs]
        if self.call.space == "outputs":
            return chosen.flatten(2).mT
        return torch.einsum("ncot,ontf->nofc", chosen, self.of_outputs(outputs)).flatten(1, 2)

    def gradient(self, slopes: Tensor, input_tangents: Tensor | None, per_sample: bool = False) -> Tensor:
        """The gradient of its parameters, (rows.., outputs, parameters), with samples last if they are not summed over.

        ``slopes`` (rows.., samples, outputs * positions) meet the features, and the slope of the batch meets the
        tangents (rows.., samples, inputs) of its inputs.
        """
        call, end = self.call, "n" if per_sample else ""
        slopes = slopes.reshape(*slopes.shape[:-1], call.num_groups, -1, call.num_positions)
        found = torch.einsum(f"...ngot,gntf->...gof{end}", slopes, self.features)
        if input_tangents is not None and call.weight is not None and call.use.kind != "embedding":
            weights = found[..., : call.num_inputs, :] if per_sample else found[..., : call.num_inputs]
            weights += self._from_tangents(input_tangents, end)
        groups = -4 if per_sample else -3
        return found.flatten(groups, groups + 1)

    def _from_tangents(self, input_tangents: Tensor, end: str) -> Tensor:
        """The slope of the batch against tangents of its inputs, (rows.., groups, outputs of each, features)."""
        call, rows = self.call, input_tangents.shape[:-1]
        if call.geometry is None:
            own = self.slope.view(len(self.slope), call.num_groups, -1, call.num_positions)
            tangents = input_tangents.reshape(*rows, call.num_positions, call.num_groups, call.num_inputs)
            return torch.einsum(f"...ntgf,ngot->...gof{end}", tangents, own)
        places = prod(call.geometry.image)
        tangents = input_tangents.reshape(*rows, call.num_groups, -1, places)
        spread = self.spread.view(call.num_groups, len(self.slope), places, -1, prod(call.geometry.kernel))
        found = torch.einsum(f"...ngcu,gnuok->...gock{end}", tangents, spread)
        first = -3 if end else -2
        return found.flatten(first, first + 1)


def batch_call(call: Call, inputs: Tensor, slope: Tensor) -> BatchCall:
    """The call with its features extended by one for a bias, or replaced by one if the weight is frozen."""
    shape = call.num_groups, len(inputs), call.num_positions
    features, pieces = [], []
    if call.weight is not None:
        features.append(call.features(inputs))
        entries = None if call.weight_entries is None else call.weight_entries.view(call.num_outputs, -1)
        pieces.append(Piece(call.weight, slice(0, call.num_inputs), entries))
    if call.bias is not None:
        features.append(inputs.new_ones(*shape, 1))
        entries = None if call.bias_entries is None else call.bias_entries.view(call.num_outputs, 1)
        pieces.append(Piece(call.bias, slice(call.num_features - 1, call.num_features), entries))
    return BatchCall(call, torch.cat(features, 3), slope, tuple(pieces))
