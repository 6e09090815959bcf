"""Which layers a problem has, and what enters and leaves one of them, read off the recording of its model.

A layer is a weight whose entries act once per forward pass (in a linear map, a convolution, an embedding, as the scale
of a normalisation): its Hessian is made of the inputs and of second derivatives in the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, sentence, unknown_name
from hessmap.linalg import Layout
from hessmap.problem import (
    Inputs,
    Kind,
    LayerCall,
    LayerUse,
    Problem,
    Recording,
    num_rows,
    recording_of,
    replay,
    require_problem,
    require_true_derivatives,
)


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of a problem: m outputs (channels) from n inputs (entries of a patch) at every position of a sample.

    ``uses`` are the calls of its weight by their number in the recording: one, or several of which each has rows of its
    own (attention projects queries, keys and values by slices of one weight). ``is_transposed`` says that the weight is
    stored as inputs x outputs. ``with_bias`` extends the input by a one, so that the bias is the last column of an
    m x (n + 1) weight, or its last row where the weight is transposed.
    """

    name: str
    weight: str
    bias: str | None
    kind: Kind
    num_outputs: int
    num_inputs: int
    num_positions: int
    uses: tuple[tuple[int, LayerUse], ...]
    is_transposed: bool
    with_bias: bool

    @property
    def is_plain(self) -> bool:
        """One use of the whole weight in its own order, in which all outputs share the inputs."""
        use = self.uses[0][1]
        return len(self.uses) == 1 and use.num_groups == 1 and use.kind != "embedding" and use.weight_entries is None

    @property
    def weight_shape(self) -> tuple[int, int]:
        """The weight as a matrix, as it is stored, with its bias."""
        inputs = self.num_inputs + self.with_bias
        return (inputs, self.num_outputs) if self.is_transposed else (self.num_outputs, inputs)

    @property
    def size(self) -> int:
        return self.num_outputs * (self.num_inputs + self.with_bias)

    @property
    def input_size(self) -> int:
        """Numbers that enter per sample."""
        return sum(use.input_size for _, use in self.uses)

    @property
    def output_size(self) -> int:
        """Numbers that leave per sample."""
        return sum(use.num_positions * use.num_outputs for _, use in self.uses)

    @property
    def layout(self) -> Layout:
        """One block: the weight, or with its bias as a last column the extended weight [W, b]."""
        name = f"[{self.weight}, {self.bias}]" if self.with_bias else self.weight
        return Layout(((name, self.weight_shape),))

    def unfolded_inputs(self, entering: Tensor) -> Tensor:
        """What the weight of a plain layer multiplies, (samples, positions, inputs), and a one for a bias.

        ``entering`` is (samples, input_size), what each sample sends in.
        """
        rows = self.uses[0][1].features(entering)[0]
        return torch.cat([rows, rows.new_ones(*rows.shape[:2], 1)], 2) if self.with_bias else rows

    def outputs_by_use(self, values: Tensor) -> Iterator[tuple[LayerUse, Tensor]]:
        """Values (.., output_size) of every use as (.., positions, outputs)."""
        start = 0
        for _, use in self.uses:
            size = use.num_positions * use.num_outputs
            part = values[..., start : start + size]
            yield use, part.reshape(*values.shape[:-1], use.num_positions, use.num_outputs)
            start += size

    def features_by_use(self, entering: Tensor) -> Iterator[Tensor]:
        """(groups, samples, positions, inputs) of every use."""
        start = 0
        for _, use in self.uses:
            yield use.features(entering[:, start : start + use.input_size])
            start += use.input_size

    def jacobians(self, entering: Tensor, rows: Tensor) -> Tensor:
        """The matrices sum_p row_p x_p^T, (samples, rank, size), of rows (samples, rank, output_size)."""
        count, rank = rows.shape[:2]
        weight = rows.new_zeros(count, rank, self.num_outputs * self.num_inputs)
        bias = rows.new_zeros(count, rank, self.num_outputs)
        parts = zip(self.outputs_by_use(rows), self.features_by_use(entering), strict=True)
        for (use, own), features in parts:
            grouped = own.reshape(count, rank, use.num_positions, use.num_groups, -1)
            found = torch.einsum("nrpgo,gnpi->nrgoi", grouped, features).flatten(2)
            entries = use.weight_entries
            weight[..., slice(None) if entries is None else entries] = found
            if self.with_bias:
                assert use.bias is not None
                index = use.bias.index
                bias[..., slice(None) if index is None else index.flatten()] = own.sum(2)
        if not self.with_bias:
            return weight
        if self.is_transposed:
            return torch.cat([weight, bias], 2)
        return torch.cat([weight.view(count, rank, self.num_outputs, -1), bias[..., None]], 3).flatten(2)


def layer_names(problem: Problem) -> tuple[str, ...]:
    """The layers that ``layer_factors`` and ``layer_hessian`` can treat, in order of execution.

    >>> import torch, hessmap as hm
    >>> model = hm.FullyConnected((3, 4, 2), activation="relu").build(seed=0)
    >>> layer_names(hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,))))
    ('0', '2')
    """
    require_problem(problem)
    recording = recording_of(problem)
    weights = (use.weight.name for use in recording.uses if use.weight is not None)
    return tuple(
        name_of_layer(weight)
        for weight in dict.fromkeys(weights)
        if _why_no_layer(recording, weight, problem.layout.shape(weight)) == ""
    )


def find_layer(problem: Problem, name: str, with_bias: bool = False) -> Layer:
    """The layer of that name, or a sentence that says why it is none."""
    require_problem(problem)
    require_true_derivatives(problem)
    if not isinstance(name, str):
        raise unknown_name("layer", name, layer_names(problem))
    recording, modules = recording_of(problem), dict(problem.model.named_modules())
    weight = next((known for known in problem.named if name_of_layer(known) == name), None)
    if weight is None and name not in modules:
        raise unknown_name("layer", name, layer_names(problem))
    if weight is None:
        got = f"'{name}' is a {type(modules[name]).__name__}"
        must = "a layer must be linear or a convolution, an embedding or a normalisation with a trainable weight"
        raise _unsupported_error(must, got, problem)
    reason = _why_no_layer(recording, weight, problem.layout.shape(weight))
    if reason:
        raise _unsupported_error("a layer must act once: outputs are then linear in its weight", reason, problem)
    found = ((number, use) for number, use in enumerate(recording.uses) if weight in use.parameters)
    uses = tuple((number, use) for number, use in found if use.is_differentiable)
    biases = {use.bias.name for _, use in uses if use.bias is not None}
    bias = next(iter(biases)) if len(biases) == 1 and all(use.bias is not None for _, use in uses) else None
    if with_bias and (bias is None or len(recording.uses_of(bias)) != len(uses)):
        raise _unsupported_error("with_bias needs a layer with a trainable bias", f"'{name}' has none", problem)
    first, shape = uses[0][1], problem.layout.shape(weight)
    axis = _output_axis(first, shape)
    positions = max(use.num_positions for _, use in uses)
    sizes = _outputs_and_inputs(first, shape, axis)
    return Layer(name, weight, bias, first.kind, *sizes, positions, uses, axis == 1, with_bias)


def _outputs_and_inputs(use: LayerUse, shape: tuple[int, ...], output_axis: int | None) -> tuple[int, int]:
    """Of the whole weight, of which a use may have a part."""
    if use.kind in ("normalisation", "elementwise"):
        return prod(shape), 1
    return (shape[1], shape[0]) if output_axis == 1 else (shape[0], prod(shape[1:]))


def _output_axis(use: LayerUse, shape: tuple[int, ...]) -> int | None:
    """Along which axis of the stored weight its outputs lie; None if its entries act in another order."""
    entries = use.weight_entries
    if entries is None:
        return 0
    places, columns = entries.view(use.num_outputs, -1), prod(shape[1:])
    for axis, numbers in enumerate((places // columns, places % columns)):
        if bool((numbers == numbers[:, :1]).all()):
            return axis
    return None


def name_of_layer(weight: str) -> str:
    """
    >>> name_of_layer("encoder.0.weight"), name_of_layer("attention.in_proj_weight"), name_of_layer("gain")
    ('encoder.0', 'attention.in_proj', 'gain')
    """
    if weight == "weight":
        return ""
    return weight.removesuffix("_weight") if weight.endswith("_weight") else weight.removesuffix(".weight")


def layer_inputs_and_outputs(
    problem: Problem, layer: Layer, inputs: Inputs, perturbation: Tensor
) -> tuple[Tensor, Tensor]:
    """The outputs of the network, and what entered the layer, (samples, input_size), where a perturbation (samples,
    output_size) is added to what leaves it."""
    count, entering = num_rows(inputs), dict[int, Tensor]()
    uses = dict(layer.uses)
    parts = dict(zip(uses, (part.mT for _, part in layer.outputs_by_use(perturbation)), strict=True))

    def at_use(number: int, call: LayerCall) -> Tensor:
        entering[number] = uses[number].sample_inputs(call.inputs, count, problem.dtype)
        outputs = call.outputs()
        return outputs + uses[number].row_outputs(parts[number], tuple(outputs.shape))

    outputs = replay(problem, recording_of(problem), inputs, uses, at_use)
    return outputs, torch.cat([entering[number] for number in uses], 1)


def _unsupported_error(must: str, got: str, problem: Problem) -> UnsupportedNetwork:
    known = ", ".join(repr(known) for known in layer_names(problem)) or "none"
    return UnsupportedNetwork(sentence(must, got, f"The layers of this problem are {known}"))


def _why_no_layer(recording: Recording, weight: str, shape: tuple[int, ...]) -> str:
    """Why the uses of a weight are no layer; empty if they are."""
    uses = [use for use in recording.uses_of(weight) if use.is_differentiable]
    name = name_of_layer(weight)
    if not uses:
        return f"the outputs do not depend on '{name}'"
    if weight not in recording.structured_names:
        unknown = next((use for use in uses if not use.is_structured), uses[0])
        return f"the weight of '{name}' acts through '{unknown.operation}', of which the samples are not known"
    parts = [use for use in uses if use.weight is not None and use.weight.name == weight]
    if len(parts) < len(uses):
        return f"'{name}' acts as a shift"
    if not _are_disjoint(parts):
        return f"the weight of '{name}', or an entry of it, is used more than once in one forward pass"
    axes = {_output_axis(use, shape) for use in parts}
    _, num_inputs = _outputs_and_inputs(parts[0], shape, min(axes, key=str))
    if None in axes or len(axes) > 1 or any(use.num_inputs != num_inputs for use in parts):
        return f"the weight of '{name}' acts in slices that have some of its inputs each"
    return ""


def _are_disjoint(uses: list[LayerUse]) -> bool:
    """The whole weight once, or slices of it, none of which overlap."""
    entries = [use.weight_entries for use in uses]
    if any(places is None for places in entries):
        return len(entries) == 1
    together = torch.cat([places for places in entries if places is not None])
    return int(torch.bincount(together).max()) == 1
