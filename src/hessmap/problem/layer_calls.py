"""Calls of torch operations as layers z = W a + b, and the record of all uses of a model's parameters.

A table has one reader per operation through which parameters act as layers; a reader finds what enters, what leaves and
which part of which parameter takes part. A use also has the axis of the samples in its inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import vmap

from hessmap.problem.evaluation import matrix_convolution
from hessmap.problem.geometry import ConvolutionGeometry

Kind = Literal["linear", "convolution", "embedding", "normalisation", "elementwise", "other"]


@dataclass(frozen=True, eq=False)
class ParameterPart:
    """A parameter, or some entries of it, as they enter a call.

    Args:
        name: Name of the parameter.
        index: For each entry of the tensor that enters, its index in the flat parameter. Defaults to None: the
            parameter as it is.
        num_entries: Number of entries of the parameter.
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
class ParameterBlock:
    """A differentiated parameter of a use.

    Args:
        name: Name of the parameter.
        features: Which of the use's features, of which the bias's one is the last, it multiplies.
        entries: Their places in the flat parameter, (outputs, features); None for its own order.
    """

    name: str
    features: slice
    entries: Tensor | None

    def places(self, num_outputs: int) -> Tensor:
        """Places in the flat parameter, (outputs, features), on the CPU."""
        if self.entries is not None:
            return self.entries.cpu()
        features = self.features.stop - self.features.start
        return torch.arange(num_outputs * features).view(num_outputs, features)


@dataclass(frozen=True, eq=False)
class LayerUse:
    """One use of parameters, z = W a + b at every position of a sample; or, of kind "other", an unknown use.

    A linear layer has one group; a convolution is linear over its patches, an embedding over unit vectors. Scale and
    shift of a normalisation, and whatever else is multiplied or added entry by entry, have as many groups as
    outputs, with one feature each.

    Args:
        kind: Kind of layer.
        operation: Name of the operation.
        parameters: Names of the parameters that take part.
        weight: The part of a parameter that is the weight; None if it is missing or not differentiated.
        bias: The part of a parameter that is the bias; None if it is missing or not differentiated.
        weight_shape: Shape of the weight.
        transposed: Whether the weight has its inputs as rows. Defaults to False.
        num_inputs: Features that the outputs of a group share.
        num_outputs: Outputs at a position.
        num_groups: Number of groups. Defaults to 1.
        num_positions: Positions of a sample.
        input_size: Numbers that enter per sample.
        geometry: Geometry of a convolution.
        padding_index: Row of an embedding that torch gives no gradient.
        samples: Axis of the samples in the inputs; None if it was not found: inputs that all samples share, or that
            the data select.
        is_differentiable: Whether derivatives reach the parameters through this use. Defaults to True.
        reason: Why the use is not structured, for errors.
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

    @property
    def output_size(self) -> int:
        return self.num_positions * self.num_outputs

    @property
    def num_features(self) -> int:
        """Differentiated parameters per output: those of the weight, and one of the bias."""
        return (0 if self.weight is None else self.num_inputs) + (self.bias is not None)

    @property
    def space(self) -> Literal["outputs", "weights"]:
        """Where it is perturbed: in its outputs, or in its weights if they are fewer."""
        return "weights" if self.num_features < self.num_positions else "outputs"

    @property
    def directions_per_output(self) -> int:
        return self.num_features if self.space == "weights" else self.num_positions

    @property
    def is_plain(self) -> bool:
        """A linear layer that every sample passes through once, with its parameters in their own order."""
        is_single = self.num_positions == self.num_groups == 1 and self.kind == "linear" and self.space == "outputs"
        return is_single and self.weight_entries is None and self.bias_entries is None

    @property
    def stored_size(self) -> int:
        """Numbers stored per sample: inputs, gradients and features, and the gradients spread over the image."""
        features = self.num_groups * self.num_positions * (self.num_inputs + 1)
        geometry = self.geometry
        spread = self.num_outputs * prod(geometry.kernel) * prod(geometry.padded) if geometry else 0
        return self.input_size + self.output_size + 2 * features + 2 * spread

    @cached_property
    def bias_entries(self) -> Tensor | None:
        """Places of the bias in the flat parameter; None for its own order, or without a differentiated bias."""
        return None if self.bias is None or self.bias.index is None else self.bias.index.flatten()

    @cached_property
    def weight_entries(self) -> Tensor | None:
        """Places of the weight, seen as (outputs, inputs), in the flat parameter; None for its own order, or without a
        differentiated weight."""
        return None if self.weight is None else self.weight.entries(self.weight_shape, self.transposed)

    @cached_property
    def pieces(self) -> tuple[ParameterBlock, ...]:
        """Its differentiated parameters: the weight, then the bias."""
        last = self.num_features - 1
        parts = (
            (self.weight, slice(0, self.num_inputs), self.weight_entries),
            (self.bias, slice(last, last + 1), self.bias_entries),
        )
        return tuple(
            ParameterBlock(part.name, features, None if entries is None else entries.view(self.num_outputs, -1))
            for part, features, entries in parts
            if part is not None
        )

    def features(self, inputs: Tensor) -> Tensor:
        """What the weight multiplies, (groups, samples, positions, num_inputs), of inputs (samples, input_size)."""
        if self.kind == "embedding":
            return self._unit_vectors(inputs)[None]
        if self.geometry is not None:
            images = inputs.reshape(len(inputs) * self.images_per_sample, -1)
            patches = self.geometry.patches(images)
            return patches.reshape(self.num_groups, len(inputs), self.num_positions, self.num_inputs)
        return inputs.reshape(len(inputs), self.num_positions, self.num_groups, -1).permute(2, 0, 1, 3)

    def extended_features(self, inputs: Tensor) -> Tensor:
        """What the differentiated parameters multiply, (groups, samples, positions, num_features): the features with a
        one for the bias, or the one alone."""
        if self.bias is None:
            return self.features(inputs)
        ones = inputs.new_ones(self.num_groups, len(inputs), self.num_positions, 1)
        return ones if self.weight is None else torch.cat([self.features(inputs), ones], 3)

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
class UseOnBatch:
    """A use on the samples of a batch: what its parameters multiply, and derivatives in what leaves it.

    Args:
        use: The use.
        inputs: What enters it, (samples, input_size).
        output_gradient: Gradient in what leaves it, (samples, outputs, positions). Defaults to None: not needed.
    """

    use: LayerUse
    inputs: Tensor
    output_gradient: Tensor | None = None

    @cached_property
    def features(self) -> Tensor:
        """What the parameters multiply, (groups, samples, positions, features); kept, unlike ``features_of``."""
        return self.features_of(slice(None))

    def features_of(self, samples: slice) -> Tensor:
        """The same of some samples."""
        return self.use.extended_features(self.inputs[samples])

    def of_outputs(self, outputs: slice) -> Tensor:
        """What the parameters of some outputs multiply, (outputs, samples, positions, features)."""
        size = self.use.num_outputs // self.use.num_groups
        return self.features[torch.arange(outputs.start, outputs.stop) // size]

    def by_output(self, rows: Tensor) -> Tensor:
        """Rows in the shape that leaves the call, (rows, *shape), as (samples, rows, outputs, positions)."""
        count = len(self.inputs)
        found: Tensor = vmap(lambda row: self.use.sample_outputs(row, count))(rows)
        return found.transpose(0, 1)

    def as_leaving(self, rows: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The way back: (samples, rows, outputs, positions) in the shape that leaves the call."""
        found: Tensor = vmap(lambda row: self.use.row_outputs(row, shape))(rows.transpose(0, 1))
        return found

    def directions(self, outputs: slice) -> Tensor:
        """Perturbations of some of its outputs, (outputs * directions of each, samples, outputs, positions): units, or
        what units of the parameters do."""
        use, like, samples = self.use, self.inputs, len(self.inputs)
        if use.space == "outputs":
            units = torch.eye(use.output_size, dtype=like.dtype, device=like.device)
            units = units.view(use.num_outputs, -1, use.output_size)
            return units[outputs].reshape(-1, 1, use.num_outputs, use.num_positions).expand(-1, samples, -1, -1)
        count = outputs.stop - outputs.start
        directions = like.new_zeros(count, use.num_features, samples, use.num_outputs, use.num_positions)
        for place, features in enumerate(self.of_outputs(outputs)):
            directions[place, :, :, outputs.start + place] = features.movedim(2, 0)
        return directions.flatten(0, 1)

    def along(self, jacobian: Tensor, outputs: slice) -> Tensor:
        """The derivative (samples, directions, outputs of the network) of the outputs along ``directions``."""
        chosen = jacobian.view(*jacobian.shape[:2], self.use.num_outputs, -1)[:, :, outputs]
        if self.use.space == "outputs":
            return chosen.flatten(2).mT
        return torch.einsum("ncot,ontf->nofc", chosen, self.of_outputs(outputs)).flatten(1, 2)

    def gradient(self, output_gradients: Tensor, input_tangents: Tensor | None, per_sample: bool = False) -> Tensor:
        """The gradient of its parameters, (rows.., outputs, features), with samples last if they are not summed over.

        ``output_gradients`` (rows.., samples, outputs * positions) are multiplied by the features, and the output
        gradient of the batch by the tangents (rows.., samples, inputs) of its inputs.
        """
        use, end = self.use, "n" if per_sample else ""
        output_gradients = output_gradients.reshape(*output_gradients.shape[:-1], use.num_groups, -1, use.num_positions)
        found = torch.einsum(f"...ngot,gntf->...gof{end}", output_gradients, self.features)
        if input_tangents is not None and use.weight is not None and use.kind != "embedding":
            weights = found[..., : use.num_inputs, :] if per_sample else found[..., : use.num_inputs]
            weights += self._from_tangents(input_tangents, end)
        groups = -4 if per_sample else -3
        return found.flatten(groups, groups + 1)

    def _from_tangents(self, input_tangents: Tensor, end: str) -> Tensor:
        """The output gradient of the batch times tangents of its inputs, (rows.., groups, outputs, features)."""
        use, rows = self.use, input_tangents.shape[:-1]
        if use.geometry is None:
            assert self.output_gradient is not None
            own = self.output_gradient.view(len(self.inputs), use.num_groups, -1, use.num_positions)
            tangents = input_tangents.reshape(*rows, use.num_positions, use.num_groups, use.num_inputs)
            return torch.einsum(f"...ntgf,ngot->...gof{end}", tangents, own)
        places = prod(use.geometry.image)
        tangents = input_tangents.reshape(*rows, use.num_groups, -1, places)
        spread = self._spread.view(use.num_groups, len(self.inputs), places, -1, prod(use.geometry.kernel))
        found = torch.einsum(f"...ngcu,gnuok->...gock{end}", tangents, spread)
        first = -3 if end else -2
        return found.flatten(first, first + 1)

    @cached_property
    def _spread(self) -> Tensor:
        """The output gradients where the kernel of a convolution looks."""
        assert self.use.geometry is not None
        assert self.output_gradient is not None
        return self.use.geometry.spread(self.output_gradient)


@dataclass(frozen=True, eq=False)
class Recording:
    """All uses of a model's trainable parameters in one forward pass, in order.

    Args:
        uses: The uses.
        decisions: For every call that could be a use, its number among the uses, or None. The same calls come in
            the same order whenever the model is run.
        names: Names of all differentiated parameters.
        is_fixed: Whether the calls are the same for all data. Defaults to True.
    """

    uses: tuple[LayerUse, ...]
    decisions: tuple[int | None, ...]
    names: tuple[str, ...]
    is_fixed: bool = True

    def uses_of(self, name: str) -> tuple[LayerUse, ...]:
        return tuple(use for use in self.uses if name in use.parameters)

    @cached_property
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


Parts = Callable[[Any], ParameterPart | None]


@dataclass(frozen=True, eq=False)
class LayerCall:
    """A call of a torch operation that can be written as z = W a + b over rows.

    Args:
        kind: Kind of layer.
        operation: Name of the operation.
        weight: The parameter, or part of one, that is the weight; None if it is not differentiated.
        bias: The same of the bias; None if there is none.
        weight_value: Value of the weight.
        bias_value: Value of the bias.
        inputs: Rows (.., features); for a convolution images (images, channels, ..), for an embedding indices.
        outputs: Computes rows (.., outputs); for a convolution (images, outputs, positions).
        returned: Brings such rows into the shape of the operation's own result.
        num_inputs: Features that an output depends on.
        num_outputs: Outputs at a position.
        num_groups: Groups of outputs with features of their own. Defaults to 1.
        transposed: Whether the weight has its inputs as rows. Defaults to False.
        geometry: Geometry of a convolution.
        padding_index: Row of an embedding that torch gives no gradient.
        fast_outputs: Computes the outputs of a convolution by matrix products, where that is possible.
    """

    kind: Kind
    operation: str
    weight: ParameterPart | None
    bias: ParameterPart | None
    weight_value: Tensor | None
    bias_value: Tensor | None
    inputs: Tensor
    outputs: Callable[[], Tensor]
    returned: Callable[[Tensor], Tensor]
    num_inputs: int
    num_outputs: int
    num_groups: int = 1
    transposed: bool = False
    geometry: ConvolutionGeometry | None = None
    padding_index: int | None = None
    fast_outputs: Callable[[], Tensor] | None = None  # the same by matrix products, for float64 on CPUs

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(part.name for part in (self.weight, self.bias) if part is not None)


def layer_call(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], parts: Parts
) -> LayerCall | None:
    """The call as a layer, if the operation is known and a parameter stands where a weight or a bias does."""
    known = _KNOWN.get(func)
    if known is None:
        return None
    names, reader = known
    return reader(func, dict(zip(names, args, strict=False)) | kwargs, parts)


def _same(outputs: Tensor) -> Tensor:
    return outputs


def _linear_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    weight, bias = parts(given["weight"]), parts(given.get("bias"))
    entering, matrix, shift = given["input"], given["weight"], given.get("bias")
    if (weight is None and bias is None) or matrix.ndim != 2 or entering.ndim < 2:
        return None
    sizes = matrix.shape[1], matrix.shape[0]
    return LayerCall(
        "linear",
        "linear",
        weight,
        bias,
        matrix,
        shift,
        entering,
        lambda: F.linear(entering, matrix, shift),
        _same,
        *sizes,
    )


def _matmul_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    entering, matrix = given["input"], given["other"]
    if func is torch.Tensor.__rmatmul__:
        entering, matrix = matrix, entering
    weight = parts(matrix)
    if weight is None or matrix.ndim != 2 or entering.ndim < 2:
        return None
    made = lambda: entering @ matrix  # noqa: E731
    sizes = matrix.shape[0], matrix.shape[1]
    return LayerCall("linear", "matmul", weight, None, matrix, None, entering, made, _same, *sizes, transposed=True)


def _addmm_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    shift, entering, matrix = given["input"], given["mat1"], given["mat2"]
    weight, bias = parts(matrix), parts(shift)
    fits = shift.shape == matrix.shape[1:] and given.get("beta", 1) == given.get("alpha", 1) == 1
    if (weight is None and bias is None) or not fits:
        return None
    made = lambda: torch.addmm(shift, entering, matrix)  # noqa: E731
    sizes = matrix.shape[0], matrix.shape[1]
    return LayerCall("linear", "addmm", weight, bias, matrix, shift, entering, made, _same, *sizes, transposed=True)


def _convolution_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    entering, kernel, shift = given["input"], given["weight"], given.get("bias")
    weight, bias = parts(kernel), parts(shift)
    if (weight is None and bias is None) or entering.ndim != kernel.ndim:
        return None
    options = (given.get(key, default) for key, default in _CONVOLUTION.items())
    geometry = ConvolutionGeometry.of_call(entering.shape[2:], kernel.shape[2:], *options)

    def outputs() -> Tensor:
        made: Tensor = func(**given)
        return made.flatten(2)

    def fast_outputs() -> Tensor:
        return matrix_convolution(**given).flatten(2)

    def returned(values: Tensor) -> Tensor:
        num_axes = entering.ndim - 2
        return values.reshape(*values.shape[:2], *geometry.positions[len(geometry.positions) - num_axes :])

    sizes = prod(kernel.shape[1:]), len(kernel), geometry.groups
    return LayerCall(
        "convolution",
        func.__name__,
        weight,
        bias,
        kernel,
        shift,
        entering,
        outputs,
        returned,
        *sizes,
        geometry=geometry,
        fast_outputs=fast_outputs if func is F.conv2d else None,
    )


def _embedding_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    numbers, table = given["input"], given["weight"]
    weight = parts(table)
    is_plain = given.get("max_norm") is None and not given.get("scale_grad_by_freq") and not given.get("sparse")
    if weight is None or not is_plain or numbers.ndim == 0 or table.ndim != 2:
        return None
    padding = given.get("padding_idx")
    padding = padding + len(table) if padding is not None and padding < 0 else padding
    return LayerCall(
        "embedding",
        "embedding",
        weight,
        None,
        table,
        None,
        numbers,
        lambda: F.embedding(numbers, table, given.get("padding_idx")),
        _same,
        table.shape[0],
        table.shape[1],
        transposed=True,
        padding_index=padding,
    )


def _normalisation_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    """Normalise without scale and shift, features last; then scale and shift are a diagonal layer."""
    scale, shift = given.get("weight"), given.get("bias")
    weight, bias = parts(scale), parts(shift)
    if weight is None and bias is None:
        return None
    if func is F.group_norm:  # the same through layer_norm, whose gradient can be pushed forward
        groups = given["input"].reshape(len(given["input"]), given["num_groups"], -1)
        normalised = F.layer_norm(groups, groups.shape[-1:], eps=given.get("eps", 1e-5)).reshape(given["input"].shape)
    else:
        normalised = func(**(given | {"weight": None} | ({"bias": None} if "bias" in given else {})))
    if "normalized_shape" in given:
        axes = len(given["normalized_shape"])
        entering = normalised.reshape(*normalised.shape[:-axes], -1)
        returned = lambda values: values.reshape(normalised.shape)  # noqa: E731
    else:
        entering = normalised.movedim(1, -1)
        returned = lambda values: values.movedim(-1, 1)  # noqa: E731
    size = entering.shape[-1]

    def outputs() -> Tensor:
        scaled = entering if scale is None else entering * scale.reshape(size)
        return scaled if shift is None else scaled + shift.reshape(size)

    return LayerCall(
        "normalisation",
        func.__name__,
        weight,
        bias,
        scale,
        shift,
        entering,
        outputs,
        returned,
        1,
        size,
        num_groups=size,
    )


def _elementwise_call(func: Callable[..., Any], given: dict[str, Any], parts: Parts) -> LayerCall | None:
    """A gain or a shift over the last axes of what enters."""
    entering, own = given["input"], given["other"]
    if parts(own) is None:
        entering, own = own, entering
    part = parts(own)
    if part is None or not isinstance(entering, Tensor) or given.get("alpha", 1) != 1 or given.get("out") is not None:
        return None
    shape = own.shape
    while shape and shape[0] == 1:
        shape = shape[1:]
    axes = len(shape)
    if not axes or own.ndim > entering.ndim or axes >= entering.ndim or entering.shape[-axes:] != shape:
        return None
    rows, size, is_gain = entering.flatten(-axes), prod(shape), func in _GAINS
    flat = own.reshape(size)
    outputs = (lambda: rows * flat) if is_gain else (lambda: rows + flat)
    returned = lambda values: values.reshape(entering.shape)  # noqa: E731
    sizes = rows, outputs, returned, 1, size, size
    if is_gain:
        return LayerCall("elementwise", "mul", part, None, flat, None, *sizes)
    return LayerCall("elementwise", "add", None, part, None, flat, *sizes)


_CONVOLUTION: dict[str, Any] = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_GAINS = (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__)
_SHIFTS = (torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__)
_PRODUCTS = (
    *(torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__),
    *(torch.Tensor.__rmatmul__, torch.mm, torch.Tensor.mm),
)
_Reader = Callable[[Callable[..., Any], dict[str, Any], Parts], LayerCall | None]
_KNOWN: Mapping[Callable[..., Any], tuple[tuple[str, ...], _Reader]] = {
    F.linear: (("input", "weight", "bias"), _linear_call),
    torch.addmm: (("input", "mat1", "mat2"), _addmm_call),
    torch.Tensor.addmm: (("input", "mat1", "mat2"), _addmm_call),
    F.embedding: (
        ("input", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse"),
        _embedding_call,
    ),
    F.batch_norm: (
        ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
        _normalisation_call,
    ),
    F.layer_norm: (("input", "normalized_shape", "weight", "bias", "eps"), _normalisation_call),
    F.rms_norm: (("input", "normalized_shape", "weight", "eps"), _normalisation_call),
    F.group_norm: (("input", "num_groups", "weight", "bias", "eps"), _normalisation_call),
    **dict.fromkeys((F.conv1d, F.conv2d, F.conv3d), (("input", "weight", "bias", *_CONVOLUTION), _convolution_call)),
    **dict.fromkeys((*_GAINS, *_SHIFTS), (("input", "other"), _elementwise_call)),
    **dict.fromkeys(_PRODUCTS, (("input", "other"), _matmul_call)),
}
