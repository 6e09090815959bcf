"""What a recording tells of a model: every use of a trainable parameter, and how the samples lie in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hessmap.curvature.convolution_geometry import ConvolutionGeometry

Kind = Literal["linear", "convolution", "embedding", "normalisation", "elementwise", "other"]


@dataclass(frozen=True, eq=False)
class ParameterPart:
    """A parameter, or some entries of it, as they enter a call.

    ``index`` has the shape of the tensor that enters and holds, for each of its entries, the place in the flat
    parameter of ``num_entries``; None stands for the parameter as it is.
    """

    name: str
    index: Tensor | None = None
    num_entries: int = 0

    def entries(self, shape: tuple[int, ...], transposed: bool = False) -> Tensor | None:
        """Places in the flat parameter of a weight seen as (outputs, inputs), or None for its own order."""
        if self.index is None and not transposed:
            return None
        index = torch.arange(prod(shape)).reshape(shape) if self.index is None else self.index
        places = (index.T if transposed else index.reshape(len(index), -1)).flatten()
        is_own_order = len(places) == self.num_entries and torch.equal(places, torch.arange(len(places)))
        return None if is_own_order else places


@dataclass(frozen=True)
class SampleAxis:
    """Where the samples lie in rows (.., features): along ``axis`` of the leading ones.

    An axis that is longer than the number of samples was folded: samples then vary slowest in it, or fastest.
    """

    axis: int
    varies_slowest: bool = True

    def split(self, rows: Tensor, num_samples: int) -> Tensor:
        """Rows (.., features) as (samples, positions, features)."""
        each = rows.shape[self.axis] // num_samples
        if each == 1:
            return rows.movedim(self.axis, 0).reshape(num_samples, -1, rows.shape[-1])
        sizes = (num_samples, each) if self.varies_slowest else (each, num_samples)
        place = self.axis if self.varies_slowest else self.axis + 1
        unfolded = rows.reshape(*rows.shape[: self.axis], *sizes, *rows.shape[self.axis + 1 :])
        return unfolded.movedim(place, 0).reshape(num_samples, -1, rows.shape[-1])

    def join(self, values: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The way back: (samples, positions, features) as rows whose leading sizes are ``shape``."""
        num_samples = len(values)
        each = shape[self.axis] // num_samples
        others = (*shape[: self.axis], each, *shape[self.axis + 1 :])
        spread = values.reshape(num_samples, *others, values.shape[-1])
        place = self.axis if self.varies_slowest else self.axis + 1
        return spread.movedim(0, place).reshape(*shape, values.shape[-1])


@dataclass(frozen=True, eq=False)
class LayerUse:
    """One use of parameters: ``z = W a + b`` at every position of a sample, where a are the ``num_inputs`` features
    that the outputs of a group share; or, of kind "other", a use of which nothing is known but its parameters.

    A linear layer has one group; a convolution is linear over its patches; an embedding over unit vectors; scale and
    shift of a normalisation, or of anything else that is multiplied or added entry by entry, are as many groups as
    outputs with one feature each. ``weight`` and ``bias`` are None where they are missing or not differentiated.
    ``samples`` is None where the samples were not found in what enters: shared by all of them, or chosen by the data.
    """

    kind: Kind
    operation: str
    parameters: frozenset[str]
    weight: ParameterPart | None = None
    bias: ParameterPart | None = None
    weight_shape: tuple[int, ...] = ()
    transposed: bool = False
    num_inputs: int = 0
    num_outputs: int = 0
    num_groups: int = 1
    num_positions: int = 0
    input_size: int = 0  # numbers that enter per sample
    geometry: ConvolutionGeometry | None = None
    padding_index: int | None = None
    samples: SampleAxis | None = None
    is_differentiable: bool = True
    reason: str = field(default="", compare=False)

    @property
    def is_structured(self) -> bool:
        """Whether its derivatives can be written down from what enters and leaves it."""
        return self.kind != "other" and self.samples is not None and self.is_differentiable

    @property
    def images_per_sample(self) -> int:
        return self.num_positions // prod(self.geometry.positions) if self.geometry else 1

    @cached_property
    def weight_entries(self) -> Tensor | None:
        """Places of the weight, seen as (outputs, inputs), in the flat parameter; None for its own order."""
        assert self.weight is not None
        return self.weight.entries(self.weight_shape, self.transposed)

    def features(self, inputs: Tensor) -> Tensor:
        """What the weight multiplies, (groups, samples, positions, num_inputs), of inputs (samples, input_size)."""
        if self.kind == "embedding":
            return self._unit_vectors(inputs)[None]
        if self.geometry is not None:
            images = inputs.reshape(len(inputs) * self.images_per_sample, -1)
            patches = self.geometry.patches(images)
            return patches.reshape(self.num_groups, len(inputs), self.num_positions, self.num_inputs)
        return inputs.reshape(len(inputs), self.num_positions, self.num_groups, -1).permute(2, 0, 1, 3)

    def sample_inputs(self, inputs: Tensor, num_samples: int, dtype: torch.dtype) -> Tensor:
        """What enters a call, in the order of the samples: (samples, input_size)."""
        assert self.samples is not None
        if self.kind == "embedding":
            inputs = inputs[..., None].to(dtype)
        rows = inputs.flatten(1) if self.geometry is not None else inputs
        return self.samples.split(rows, num_samples).flatten(1).to(dtype)

    def sample_outputs(self, outputs: Tensor, num_samples: int) -> Tensor:
        """What leaves a call as rows, in the order of the samples: (samples, outputs, positions)."""
        assert self.samples is not None
        if self.geometry is None:
            return self.samples.split(outputs, num_samples).mT
        images = self.samples.split(outputs.flatten(1), num_samples)
        by_image = images.reshape(num_samples, -1, self.num_outputs, prod(self.geometry.positions))
        return by_image.transpose(1, 2).flatten(2)

    def row_outputs(self, values: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The way back: (samples, outputs, positions) in the shape that leaves the call."""
        assert self.samples is not None
        if self.geometry is None:
            return self.samples.join(values.mT, shape[:-1])
        by_image = values.reshape(len(values), self.num_outputs, self.images_per_sample, -1).transpose(1, 2)
        return self.samples.join(by_image.flatten(2), shape[:1]).reshape(shape)

    def _unit_vectors(self, numbers: Tensor) -> Tensor:
        """Rows of an embedding as unit vectors; torch gives the row of the padding index no gradient."""
        units = F.one_hot(numbers.long(), self.num_inputs).to(numbers.dtype)
        if self.padding_index is not None:
            units[..., self.padding_index] = 0
        return units


@dataclass(frozen=True, eq=False)
class Recording:
    """All uses of a model's trainable parameters in one forward pass, in order.

    ``decisions`` tells, for every call that could be a use, which one it is; the same calls come in the same order
    whenever the model is run. ``is_fixed`` is false for a model whose calls depend on the data.
    """

    uses: tuple[LayerUse, ...]
    decisions: tuple[int | None, ...]
    names: tuple[str, ...]
    is_fixed: bool = True

    def uses_of(self, name: str) -> tuple[LayerUse, ...]:
        return tuple(use for use in self.uses if name in use.parameters)

    @property
    def structured_names(self) -> frozenset[str]:
        """Parameters all of whose uses are known."""
        if not self.is_fixed:
            return frozenset()
        found = (name for name in self.names if self.uses_of(name))
        return frozenset(
            name
            for name in found
            if all(use.is_structured and name in _roles(use) for use in self.uses_of(name) if use.is_differentiable)
            and any(use.is_differentiable for use in self.uses_of(name))
        )


def _roles(use: LayerUse) -> set[str]:
    return {part.name for part in (use.weight, use.bias) if part is not None}
