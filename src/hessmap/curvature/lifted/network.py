"""A forward pass whose layer calls can be perturbed in their outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import Tensor

from hessmap.curvature.convolution_geometry import ConvolutionGeometry
from hessmap.curvature.nested_tensors import Inputs, num_rows
from hessmap.curvature.problem import Problem
from hessmap.curvature.recording import LayerCall, LayerUse, Recording, recording_of, replay

Space = Literal["outputs", "weights"]


@dataclass(frozen=True, eq=False)
class Call:
    """A use of parameters, ``z = W a + b``, of which ``weight`` and ``bias`` are differentiated here (None: not).

    The entries tell where the weight, seen as (outputs, inputs), and the bias lie in their flat parameters; None stands
    for their own order.
    """

    use: LayerUse
    weight: str | None
    bias: str | None
    weight_entries: Tensor | None = None
    bias_entries: Tensor | None = None

    @property
    def num_positions(self) -> int:
        """How often a sample passes through it (tokens, pixels)."""
        return self.use.num_positions

    @property
    def num_inputs(self) -> int:
        return self.use.num_inputs

    @property
    def num_outputs(self) -> int:
        return self.use.num_outputs

    @property
    def num_groups(self) -> int:
        return self.use.num_groups

    @property
    def input_size(self) -> int:
        return self.use.input_size

    @property
    def geometry(self) -> ConvolutionGeometry | None:
        return self.use.geometry

    @property
    def output_size(self) -> int:
        return self.num_positions * self.num_outputs

    @property
    def num_features(self) -> int:
        """Parameters per output."""
        return (self.num_inputs if self.weight is not None else 0) + (self.bias is not None)

    @property
    def space(self) -> Space:
        """Where it is perturbed: in its outputs, or in its weights if they are fewer."""
        return "weights" if self.num_features < self.num_positions else "outputs"

    @property
    def directions_per_output(self) -> int:
        return self.num_features if self.space == "weights" else self.num_positions

    @property
    def is_in_own_order(self) -> bool:
        return self.weight_entries is None and self.bias_entries is None

    @property
    def is_plain(self) -> bool:
        """A linear layer that every sample passes through once."""
        is_single = self.num_positions == self.num_groups == 1 and self.use.kind == "linear"
        return is_single and self.space == "outputs" and self.is_in_own_order

    @property
    def stored_size(self) -> int:
        """Numbers stored of a sample: its inputs, slopes and features, and the slopes spread over the image."""
        features = self.num_groups * self.num_positions * (self.num_inputs + 1)
        geometry = self.geometry
        spread = self.num_outputs * prod(geometry.kernel) * prod(geometry.padded) if geometry else 0
        return self.input_size + self.output_size + 2 * features + 2 * spread

    def features(self, inputs: Tensor) -> Tensor:
        """What the weights multiply, (groups, samples, positions, num_inputs), of inputs (samples, input_size)."""
        return self.use.features(inputs)


@dataclass(frozen=True, eq=False)
class Network:
    """The forward pass of a problem with the calls through which its parameters act, and convolutions as matrices where
    that is faster."""

    problem: Problem
    calls: tuple[Call, ...]
    places: dict[int, int]  # of a recorded use among the calls
    recording: Recording
    matrices: tuple[Tensor | None, ...]

    def forward(self, data: Inputs) -> Tensor:
        return self.problem.forward(self.problem.named, data)

    def perturbed_outputs(self, data: Inputs, perturbations: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor]]:
        """The outputs, and the inputs (samples, input_size) of every call.

        A perturbation (samples, outputs, positions) is added to what leaves its call.
        """
        count, inputs = num_rows(data), list[Tensor]()

        def at_use(number: int, call: LayerCall) -> Tensor:
            place = self.places[number]
            if place != len(inputs):
                raise RuntimeError("the calls of the model depend on its samples")
            use, perturbation = self.calls[place].use, perturbations[place]
            inputs.append(use.sample_inputs(call.inputs, count, self.problem.dtype))
            outputs = call.outputs() if use.geometry is None else _convolution(call, use.geometry, self.matrices[place])
            return outputs if perturbation is None else outputs + use.row_outputs(perturbation, tuple(outputs.shape))

        return replay(self.problem, self.recording, data, self.places, at_use), inputs

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
    calls: list[Call] = []
    places: dict[int, int] = {}
    for number, use in enumerate(uses):
        call = None if use is None else _call(use, known)
        if call is not None:
            places[number] = len(calls)
            calls.append(call)
    return Network(problem, tuple(calls), places, recording, tuple(_matrix(problem, call) for call in calls))


def _call(use: LayerUse, known: frozenset[str]) -> Call | None:
    weight = use.weight if use.weight is not None and use.weight.name in known else None
    bias = use.bias if use.bias is not None and use.bias.name in known else None
    if weight is None and bias is None:
        return None
    return Call(
        use,
        None if weight is None else weight.name,
        None if bias is None else bias.name,
        None if weight is None else use.weight_entries,
        None if bias is None or bias.index is None else bias.index.flatten(),
    )


def _matrix(problem: Problem, call: Call) -> Tensor | None:
    """A convolution of a whole parameter as one matrix."""
    use = call.use
    if use.geometry is None or use.weight is None or use.weight.index is not None:
        return None
    weight = problem.named[use.weight.name]
    with torch.no_grad():
        return use.geometry.matrix(weight)
