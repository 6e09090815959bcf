"""A call as rows or columns of a block: what its weights multiply, and the gradient of them that slopes make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from hessmap.curvature.lifted.calls import Call


@dataclass(frozen=True)
class Side:
    """A call on a batch. ``features`` (groups, samples, positions, parameters per output) is what the weights multiply,
    with the bias's one appended; ``pieces`` are the parameters it has and their features."""

    call: Call
    features: Tensor
    slope: Tensor  # (samples, outputs, positions)
    pieces: tuple[tuple[str, slice], ...]

    @cached_property
    def spread(self) -> Tensor:
        """The slopes where the kernel of a convolution looks."""
        assert self.call.window is not None
        return self.call.window.spread(self.slope)

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
            units = torch.eye(call.output_size, dtype=torch.float64).view(call.num_outputs, -1, call.output_size)
            return units[outputs].reshape(-1, 1, call.num_outputs, call.num_positions).expand(-1, samples, -1, -1)
        moves = self.slope.new_zeros(count, call.num_features, samples, call.num_outputs, call.num_positions)
        for place, features in enumerate(self.of_outputs(outputs)):
            moves[place, :, :, outputs.start + place] = features.movedim(2, 0)
        return moves.flatten(0, 1)

    def along(self, jacobian: Tensor, outputs: slice) -> Tensor:
        """The derivative (samples, directions, outputs of the network) of the outputs along ``directions``."""
        chosen = jacobian.view(*jacobian.shape[:2], self.call.num_outputs, -1)[:, :, outputs]
        if self.call.space == "outputs":
            return chosen.flatten(2).mT
        return torch.einsum("ncot,ontf->nofc", chosen, self.of_outputs(outputs)).flatten(1, 2)

    def gradient(self, slopes: Tensor, motion: Tensor | None, per_sample: bool = False) -> Tensor:
        """The gradient of its parameters, (rows.., outputs, parameters), with samples last if they are not summed over.

        ``slopes`` (rows.., samples, outputs * positions) meet the features, and the slope of the batch meets the motion
        (rows.., samples, inputs) of its inputs.
        """
        call, end = self.call, "n" if per_sample else ""
        slopes = slopes.reshape(*slopes.shape[:-1], call.num_groups, -1, call.num_positions)
        found = torch.einsum(f"...ngot,gntf->...gof{end}", slopes, self.features)
        if motion is not None and call.weight is not None:
            weights = found[..., : call.num_inputs, :] if per_sample else found[..., : call.num_inputs]
            weights += self._from_motion(motion, end)
        groups = -4 if per_sample else -3
        return found.flatten(groups, groups + 1)

    def _from_motion(self, motion: Tensor, end: str) -> Tensor:
        """The slope of the batch against moved inputs, (rows.., groups, outputs of each, features)."""
        call, rows = self.call, motion.shape[:-1]
        if call.window is None:
            own = self.slope.view(len(self.slope), call.num_groups, -1, call.num_positions)
            moved = motion.reshape(*rows, call.num_positions, call.num_groups, call.num_inputs)
            return torch.einsum(f"...ntgf,ngot->...gof{end}", moved, own)
        places = prod(call.window.image)
        moved = motion.reshape(*rows, call.num_groups, -1, places)
        spread = self.spread.view(call.num_groups, len(self.slope), places, -1, prod(call.window.kernel))
        found = torch.einsum(f"...ngcu,gnuok->...gock{end}", moved, spread)
        first = -3 if end else -2
        return found.flatten(first, first + 1)


def side(call: Call, inputs: Tensor, slope: Tensor) -> Side:
    """The call with its features extended by one for a bias, or replaced by one if the weight is frozen."""
    shape = call.num_groups, len(inputs), call.num_positions
    features, pieces = [], []
    if call.weight is not None:
        features.append(call.features(inputs))
        pieces.append((call.weight, slice(0, call.num_inputs)))
    if call.bias is not None:
        features.append(inputs.new_ones(*shape, 1))
        pieces.append((call.bias, slice(call.num_features - 1, call.num_features)))
    return Side(call, torch.cat(features, 3), slope, tuple(pieces))
