"""The layers of a problem, read from the trace of its model.

A layer is a weight each of whose entries is used once per forward pass (in a linear map, a convolution, an embedding,
or as the scale of a normalisation). Its Hessian follows from its inputs and second derivatives in its outputs.
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
    Kind,
    LayerUse,
    Problem,
    Recording,
    recording_of,
    require_samples,
    require_true_derivatives,
)


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer of a problem: m outputs (channels) of n inputs (entries of a patch) at every position of a sample.

    Attributes:
        name: Name of the layer, as in ``model.named_modules()``.
        weight: Name of its weight among the problem's parameters.
        bias: Name of its bias, or None.
        kind: "linear", "convolution", "embedding", "normalisation" or "elementwise".
        num_outputs: Outputs of the whole weight (m).
        num_inputs: Inputs of the whole weight, without the bias (n).
        num_positions: Positions (pixels, tokens) at which a sample uses the weight.
        uses: Calls that use the weight, with their numbers in the trace: one, or several on disjoint rows (attention
            projects queries, keys and values by slices of one weight).
        is_transposed: Whether the weight is stored as inputs x outputs.
        with_bias: Whether the input is extended by a one, so that the bias is the last column of an m x (n + 1) weight
            (the last row if the weight is transposed).
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
        """Whether the whole weight is used once, in its stored order, and all outputs share the inputs."""
        use = self.uses[0][1]
        return len(self.uses) == 1 and use.num_groups == 1 and use.kind != "embedding" and use.weight_entries is None

    @property
    def has_factors(self) -> bool:
        """Whether its curvature has Kronecker factors: the whole weight is used once, in a linear map or an ungrouped
        convolution, and is stored as outputs x inputs or as inputs x outputs."""
        use = self.uses[0][1]
        if len(self.uses) > 1 or use.num_groups > 1 or use.kind not in ("linear", "convolution"):
            return False
        transposed = torch.arange(self.num_outputs * self.num_inputs).view(self.num_inputs, -1).T.flatten()
        return use.weight_entries is None or torch.equal(use.weight_entries.cpu(), transposed)

    @property
    def weight_shape(self) -> tuple[int, int]:
        """Shape of the stored weight as a matrix, including its bias."""
        inputs = self.num_inputs + self.with_bias
        return (inputs, self.num_outputs) if self.is_transposed else (self.num_outputs, inputs)

    @property
    def size(self) -> int:
        return self.num_outputs * (self.num_inputs + self.with_bias)

    @property
    def input_size(self) -> int:
        """Number of inputs per sample."""
        return sum(use.input_size for _, use in self.uses)

    @property
    def output_size(self) -> int:
        """Number of outputs per sample."""
        return sum(use.num_positions * use.num_outputs for _, use in self.uses)

    @property
    def layout(self) -> Layout:
        """One block: the weight, or the extended weight [W, b]."""
        name = f"[{self.weight}, {self.bias}]" if self.with_bias else self.weight
        return Layout(((name, self.weight_shape),))

    def unfolded_inputs(self, flat_inputs: Tensor) -> Tensor:
        """Return the vectors that the weight of a plain layer multiplies.

        Args:
            flat_inputs: Inputs of the layer, (samples, input_size).

        Returns:
            Patches (samples, positions, inputs), with a one appended for a bias.
        """
        rows = self.uses[0][1].features(flat_inputs)[0]
        return torch.cat([rows, rows.new_ones(*rows.shape[:2], 1)], 2) if self.with_bias else rows

    def outputs_by_use(self, values: Tensor) -> Iterator[tuple[LayerUse, Tensor]]:
        """Split values (.., output_size) by use: (.., positions, outputs) for each."""
        start = 0
        for _, use in self.uses:
            size = use.num_positions * use.num_outputs
            part = values[..., start : start + size]
            yield use, part.reshape(*values.shape[:-1], use.num_positions, use.num_outputs)
            start += size

    def features_by_use(self, flat_inputs: Tensor) -> Iterator[Tensor]:
        """Features (groups, samples, positions, inputs) of every use."""
        start = 0
        for _, use in self.uses:
            yield use.features(flat_inputs[:, start : start + use.input_size])
            start += use.input_size

    def jacobians(self, flat_inputs: Tensor, rows: Tensor) -> Tensor:
        """Matrices sum_p row_p x_p^T, (samples, rank, size), for rows (samples, rank, output_size)."""
        count, rank = rows.shape[:2]
        weight = rows.new_zeros(count, rank, self.num_outputs * self.num_inputs)
        bias = rows.new_zeros(count, rank, self.num_outputs)
        parts = zip(self.outputs_by_use(rows), self.features_by_use(flat_inputs), strict=True)
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
    """List the layers that ``layer_factors`` and ``layer_hessian`` support, in order of execution.

    Args:
        problem: Problem whose model is traced.

    Returns:
        Names of the layers, as in ``model.named_modules()``.

    Example:
        >>> import torch, hessmap as hm
        >>> model = hm.FullyConnected((3, 4, 2), activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,)))
        >>> layer_names(problem)
        ('0', '2')
    """
    require_samples(problem, "a layer's inputs and outputs")
    recording = recording_of(problem)
    weights = (use.weight.name for use in recording.uses if use.weight is not None)
    return tuple(
        name_of_layer(weight)
        for weight in dict.fromkeys(weights)
        if _why_no_layer(recording, weight, problem.layout.shape(weight)) == ""
    )


def find_layer(problem: Problem, name: str, with_bias: bool = False) -> Layer:
    """Look up a layer of a problem by its name.

    Args:
        problem: Problem whose model is traced.
        name: Name of the layer, as in ``model.named_modules()``.
        with_bias: Extend the weight by the layer's bias. Defaults to False.

    Returns:
        The layer: its sizes, its parameters and the calls that use them.

    Raises:
        InvalidInput: If there is no module of that name.
        UnsupportedNetwork: If the weight is shared, is used in an operation that is not a known layer, or has no bias
            although ``with_bias`` is set.

    Example:
        >>> import torch, hessmap as hm
        >>> model = hm.FullyConnected((3, 4, 2), activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,)))
        >>> find_layer(problem, "2").num_inputs
        4
    """
    require_samples(problem, "a layer Hessian")
    require_true_derivatives(problem.local)
    if not isinstance(name, str):
        raise unknown_name("layer", name, layer_names(problem))
    return _traced_layer(problem, name, with_bias)


def factored_weights(problem: Problem) -> frozenset[str]:
    """Names of the weights that have Kronecker factors, from the trace alone: no derivative is checked."""
    layers = (_traced_layer(problem, name) for name in layer_names(problem))
    return frozenset(layer.weight for layer in layers if layer.has_factors)


def _traced_layer(problem: Problem, name: str, with_bias: bool = False) -> Layer:
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
        raise _unsupported_error("the weight of a layer must be used once per forward pass", reason, problem)
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
    """Sizes of the whole weight, of which a use may take a part."""
    if use.kind in ("normalisation", "elementwise"):
        return prod(shape), 1
    return (shape[1], shape[0]) if output_axis == 1 else (shape[0], prod(shape[1:]))


def _output_axis(use: LayerUse, shape: tuple[int, ...]) -> int | None:
    """Axis of the stored weight along which its outputs lie; None if its entries are in another order."""
    entries = use.weight_entries
    if entries is None:
        return 0
    places, columns = entries.view(use.num_outputs, -1), prod(shape[1:])
    for axis, numbers in enumerate((places // columns, places % columns)):
        if bool((numbers == numbers[:, :1]).all()):
            return axis
    return None


def name_of_layer(weight: str) -> str:
    """Name of the layer that a weight belongs to.

    Example:
        >>> name_of_layer("encoder.0.weight"), name_of_layer("attention.in_proj_weight"), name_of_layer("gain")
        ('encoder.0', 'attention.in_proj', 'gain')
    """
    if weight == "weight":
        return ""
    return weight.removesuffix("_weight") if weight.endswith("_weight") else weight.removesuffix(".weight")


def _unsupported_error(must: str, got: str, problem: Problem) -> UnsupportedNetwork:
    known = ", ".join(repr(known) for known in layer_names(problem)) or "none"
    return UnsupportedNetwork(sentence(must, got, f"The layers of this problem are {known}"))


def _why_no_layer(recording: Recording, weight: str, shape: tuple[int, ...]) -> str:
    """Reason why the uses of a weight do not form a layer; empty if they do."""
    uses = [use for use in recording.uses_of(weight) if use.is_differentiable]
    name = name_of_layer(weight)
    if not uses:
        return f"the outputs do not depend on '{name}'"
    if weight not in recording.structured_names:
        unknown = next((use for use in uses if not use.is_structured), uses[0])
        return f"the weight of '{name}' is used in '{unknown.operation}', where the sample axis could not be identified"
    parts = [use for use in uses if use.weight is not None and use.weight.name == weight]
    if len(parts) < len(uses):
        return f"'{name}' is used as a bias"
    if not _are_disjoint(parts):
        return f"the weight of '{name}', or an entry of it, is used more than once in one forward pass"
    axes = {_output_axis(use, shape) for use in parts}
    _, num_inputs = _outputs_and_inputs(parts[0], shape, min(axes, key=str))
    if None in axes or len(axes) > 1 or any(use.num_inputs != num_inputs for use in parts):
        return f"the weight of '{name}' is used in slices that take different inputs"
    return ""


def _are_disjoint(uses: list[LayerUse]) -> bool:
    """Whether the uses take the whole weight once, or slices of it that do not overlap."""
    entries = [use.weight_entries for use in uses]
    if any(places is None for places in entries):
        return len(entries) == 1
    together = torch.cat([places for places in entries if places is not None])
    return int(torch.bincount(together).max()) == 1
