"""One loss at every position of a sample: tokens of a text, pixels of an image."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, require, sentence, short_text
from hessmap.losses.base import Loss, VectorProduct


class PositionLoss(Loss):
    """The sum over the positions of a sample of a loss of vectors; the weight of a sample is that of its positions.

    So the risk is the mean over all positions of the data that count, however they are spread over the samples.
    Outputs are (num_samples, positions * num_outputs), prepared targets (num_samples, positions) or (num_samples,
    positions, num_outputs). All samples of a batch have the same number of positions, another batch may have more.

    Args:
        base: The loss of one position.
        num_outputs: Outputs of a position.
        channels_first: Whether the axis of the outputs comes before those of the positions.
        last_label: Label of the last position of shifted labels, where the label of a position is the one after its
            own. Defaults to None: labels are not shifted.
    """

    factor_is_minimal = True

    def __init__(self, base: Loss, num_outputs: int, channels_first: bool, last_label: int | None = None) -> None:
        self.base = base
        self.num_outputs = num_outputs
        self.channels_first = channels_first
        self.last_label = last_label
        self.name = base.name
        self.held_weights = base.held_weights
        self.is_log_likelihood = base.is_log_likelihood
        self.is_sum = base.is_sum

    def to(self, dtype: torch.dtype, device: torch.device) -> PositionLoss:
        moved = copy.copy(self)
        moved.base = self.base.to(dtype, device)
        return moved

    def accepts(self, output_shape: tuple[int, ...]) -> bool:
        return len(output_shape) > 1 and output_shape[0 if self.channels_first else -1] == self.num_outputs

    def prepare(self, targets: Tensor, output_dim: int) -> Tensor:
        if targets.is_floating_point():
            rows = self._rows(targets.reshape(len(targets), -1))
        else:
            labels = targets.reshape(len(targets), -1)
            if self.last_label is not None:
                labels = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], self.last_label)], 1)
            rows = labels.flatten()
        prepared = self.base.prepare(rows, self.num_outputs)
        return prepared.reshape(len(targets), -1, *prepared.shape[1:])

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.base.value(*self._pair(outputs, targets)).reshape(len(outputs), -1).sum(1)

    def risk(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        rows, labels = self._pair(outputs, targets)
        return self.base.risk(rows, labels, self._position_weights(weights, rows))

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self._outputs(self.base.gradient(*self._pair(outputs, targets)), len(outputs))

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        blocks = self.base.hessian(*self._pair(outputs, targets))
        return self._block_diagonal(blocks, len(outputs))

    def hessian_product(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> VectorProduct:
        rows, labels = self._pair(outputs, targets)
        product, count = self.base.hessian_product(rows, labels, self._position_weights(weights, rows)), len(outputs)
        return lambda vectors: self._outputs(product(self._rows(vectors)), count)

    def hessian_factor(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The triangle of a QR decomposition of every position's root, without columns that are zero."""
        root = self.base.hessian_factor(*self._pair(outputs, targets))
        narrow = torch.linalg.qr(root.mT).R.mT
        sizes = narrow.abs().amax(1)
        used = (sizes > 1e-12 * sizes.amax(1, keepdim=True)).any(0)
        used[0] = True
        return self._block_diagonal(narrow[:, :, used], len(outputs))

    def random_gradient(self, outputs: Tensor, targets: Tensor, generator: torch.Generator) -> Tensor:
        return self._outputs(self.base.random_gradient(*self._pair(outputs, targets), generator), len(outputs))

    def target_weights(self, targets: Tensor) -> Tensor:
        return self.base.target_weights(targets.flatten(0, 1)).reshape(len(targets), -1).sum(1)

    def _pair(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and targets with the positions of all samples one after the other."""
        rows, flat = self._rows(outputs), targets.flatten(0, 1)
        got = f"a sample has {len(rows) // len(outputs)} positions and {targets.shape[1]} targets"
        require(len(rows) == len(flat), "every position must have a target", got)
        return rows, flat

    def _rows(self, values: Tensor) -> Tensor:
        """(.., samples, positions * outputs) as (.., samples * positions, outputs)."""
        leading = values.shape[:-2]
        if self.channels_first:
            values = values.reshape(*values.shape[:-1], self.num_outputs, -1).mT
        return values.reshape(*leading, -1, self.num_outputs)

    def _outputs(self, rows: Tensor, num_samples: int) -> Tensor:
        """The inverse of ``_rows``."""
        values = rows.reshape(*rows.shape[:-2], num_samples, -1, self.num_outputs)
        return (values.mT if self.channels_first else values).flatten(-2)

    @staticmethod
    def _position_weights(weights: Tensor, rows: Tensor) -> Tensor:
        return weights.repeat_interleave(len(rows) // len(weights))

    def _block_diagonal(self, blocks: Tensor, num_samples: int) -> Tensor:
        """(samples * positions, outputs, columns) as (samples, positions * outputs, positions * columns)."""
        own = blocks.reshape(num_samples, -1, *blocks.shape[1:])
        count, outputs, columns = own.shape[1:]
        if self.channels_first:
            whole = own.new_zeros(num_samples, outputs, count, columns, count)
            whole.diagonal(dim1=2, dim2=4).copy_(own.permute(0, 2, 3, 1))
        else:
            whole = own.new_zeros(num_samples, count, outputs, count, columns)
            whole.diagonal(dim1=1, dim2=3).copy_(own.permute(0, 2, 3, 1))
        return whole.reshape(num_samples, outputs * count, columns * count)


def over_positions(
    loss: Loss,
    output_shape: tuple[int, ...],
    targets: Tensor,
    axis: int | None = None,
    prefers_channels_first: bool = False,
    last_label: int | None = None,
) -> Loss:
    """The loss itself for one vector per sample, and at every position for more axes.

    Outputs (samples, positions.., outputs) or (samples, outputs, positions..): ``axis`` says which, or the shape of
    integer targets. Real targets have the shape of the outputs and do not tell it: the last axis then.
    """
    _require_axis(axis, output_shape)
    if len(output_shape) <= 1:
        return loss
    shape = tuple(targets.shape[1:])
    if targets.is_floating_point():
        got = f"the model gives {output_shape} per sample and the targets {shape}"
        require(shape == output_shape, "real targets must have the shape of the outputs", got)
        channels_first = prefers_channels_first if axis is None else axis == 1
    else:
        channels_first = _channels_first(loss.name, output_shape, shape, axis, prefers_channels_first)
    return PositionLoss(loss, output_shape[0 if channels_first else -1], channels_first, last_label)


def _channels_first(
    name: str,
    output_shape: tuple[int, ...],
    target_shape: tuple[int, ...],
    axis: int | None,
    prefers_channels_first: bool,
) -> bool:
    """Where the classes are, for labels of every position."""
    fits_last, fits_1 = target_shape == output_shape[:-1], target_shape == output_shape[1:]
    fits = fits_last or fits_1 if axis is None else fits_1 if axis == 1 else fits_last
    if not fits:
        must = "there must be one label for every position of the outputs"
        got = f"the model gives {output_shape} per sample and the labels have shape {target_shape} per sample"
        positions = {"(samples, positions.., classes)": output_shape[:-1], "(samples, classes, ..)": output_shape[1:]}
        wanted = " or ".join(f"{shape} for outputs {words}" for words, shape in positions.items())
        raise InvalidInput(sentence(must, got, f"Pass labels of shape {wanted}"))
    if axis is None and fits_last and fits_1 and not prefers_channels_first:
        must = "it must be clear which axis of the outputs holds the classes"
        got = f"the model gives {output_shape} per sample, and labels of shape {target_shape} fit '{name}' both ways"
        raise InvalidInput(sentence(must, got, "Pass class_axis=-1 for (samples, positions, classes), or class_axis=1"))
    return axis == 1 if axis is not None else fits_1 and (prefers_channels_first or not fits_last)


def _require_axis(axis: int | None, output_shape: tuple[int, ...]) -> None:
    must = "class_axis must be 1 (outputs are samples, classes, positions) or -1 (samples, positions, classes)"
    is_axis = axis is None or (type(axis) is int and axis in (1, -1))
    require(is_axis, must, f"got {short_text(axis)} for outputs of shape {output_shape} per sample")
