"""Input-output Jacobians of all samples at once, or of one point as an operator.

For a sequence of known layers the Jacobians of a batch are a product of matrices from the outputs: the vector-Jacobian
product of a layer maps a block (samples, outputs, entries that leave the layer) to (samples, outputs, entries that
enter it). For all other models they come from autograd.

``ExactFunction`` has the Jacobians of this network at these points over GF(P), without rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import jvp, vjp, vmap
from torch.nn.grad import conv2d_input

from hessmap.exact import (
    Chain,
    Evaluation,
    FieldArray,
    Floats,
    LeakyRelu,
    Mask,
    MaxPool,
    PrimeField,
    Selection,
    Signs,
    evaluate,
    from_floats,
    gradients_by_inputs,
    identity,
    in_field,
    layer_outputs,
    layer_patches,
    read_chain,
    require_outputs,
    signs,
)
from hessmap.functions.network_function import NetworkFunction, plain_layers, points_beside
from hessmap.linalg import Layout, SymmetricOperator, checked_shortcut, is_answerable, random_vector, require_memory
from hessmap.networks import is_elementwise

Vjp = Callable[[Tensor], Tensor]
Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class LinearVjp:
    """Through a linear map, which may act on the last of several dimensions."""

    weight: Tensor

    def __call__(self, block: Tensor) -> Tensor:
        return (block.reshape(*block.shape[:2], -1, self.weight.shape[0]) @ self.weight).flatten(2)


@dataclass(frozen=True, eq=False)
class ElementwiseVjp:
    """Through an elementwise layer; ``slopes`` (samples, entries)."""

    slopes: Tensor

    def __call__(self, block: Tensor) -> Tensor:
        return block * self.slopes[:, None]

    def in_place(self, block: Tensor) -> Tensor:
        return block.mul_(self.slopes[:, None])


@dataclass(frozen=True, eq=False)
class ConvolutionVjp:
    """Through a convolution: ``entering`` and ``leaving`` are the shapes of one sample."""

    weight: Tensor
    entering: torch.Size
    leaving: torch.Size
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    def __call__(self, block: Tensor) -> Tensor:
        images = block.reshape(-1, *self.leaving)
        shape = (len(images), *self.entering)
        back: Tensor = conv2d_input(  # type: ignore[no-untyped-call]
            shape, self.weight, images, self.stride, self.padding, self.dilation, self.groups
        )
        return back.reshape(*block.shape[:2], -1)


def chain_jacobians(vjps: list[Vjp], num_samples: int, output_dim: int) -> Tensor:
    """The Jacobians of all layers together: the unit vectors of the outputs times one layer after another, the last
    one first."""
    block, left = _first_block(vjps, num_samples, output_dim)
    for place, product in enumerate(left):
        # The first block is a view of a weight; those that products have made are not shared.
        block = product.in_place(block) if place and isinstance(product, ElementwiseVjp) else product(block)
    return block


def _first_block(vjps: list[Vjp], num_samples: int, output_dim: int) -> tuple[Tensor, list[Vjp]]:
    """The block to start from and the layers, last one first, that are left: a last linear layer is its own block."""
    if vjps and isinstance(last := vjps[-1], LinearVjp) and last.weight.shape[0] == output_dim:
        return last.weight.expand(num_samples, -1, -1), vjps[-2::-1]
    return torch.eye(output_dim, dtype=torch.float64).expand(num_samples, -1, -1), vjps[::-1]


_RESHAPING = (nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)


@dataclass(frozen=True)
class LayerProducts:
    """The layers of a model in order, all of known kinds, and the largest number of entries that leaves one."""

    layers: tuple[nn.Module, ...]
    output_dim: int
    largest_width: int

    @classmethod
    def of(cls, function: NetworkFunction) -> LayerProducts | None:
        """None for a model that is no plain sequence of known layers."""
        layers = plain_layers(function.model)
        if not layers or not all(_is_known(layer) for layer in layers):
            return None
        values, widths = function.inputs[:1].clone(), [function.input_dim]
        with torch.no_grad():
            for layer in layers:
                values = layer(values)
                widths.append(values.numel())
        return cls(layers, function.output_dim, max(widths))

    @torch.no_grad()
    def jacobians(self, inputs: Tensor) -> Tensor:
        """(samples, outputs, inputs)."""
        values, vjps = inputs, list[Vjp]()
        for layer in self.layers:
            values, vjp = _value_and_vjp(layer, values)
            if vjp is not None:
                vjps.append(vjp)
        return chain_jacobians(vjps, len(inputs), self.output_dim)


def _is_known(layer: nn.Module) -> bool:
    """Only exact types count, because a subclass may compute something else."""
    kind = type(layer)
    if isinstance(layer, nn.Conv2d) and kind is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.MaxPool2d) and kind is nn.MaxPool2d:
        return not layer.return_indices
    return kind is nn.Linear or is_elementwise(layer) or kind in _RESHAPING


def _value_and_vjp(layer: nn.Module, values: Tensor) -> tuple[Tensor, Vjp | None]:
    """What leaves the layer, and its vector-Jacobian product; None where entries stay as they are."""
    if isinstance(layer, nn.Linear):
        return layer(values), LinearVjp(layer.weight)
    if isinstance(layer, nn.Conv2d):
        return _convolution(layer, values)
    if isinstance(layer, nn.MaxPool2d):
        return _max_pool(layer, values)
    if isinstance(layer, _RESHAPING):
        return layer(values), None
    return _elementwise(layer, values)


def _elementwise(layer: nn.Module, values: Tensor) -> tuple[Tensor, Vjp]:
    if type(layer) is nn.ReLU:
        return F.relu(values), ElementwiseVjp((values > 0).to(torch.float64).flatten(1))
    leaf = values.detach().requires_grad_()
    with torch.enable_grad():
        outputs = layer(leaf + 0.0)
        (slopes,) = torch.autograd.grad(outputs.sum(), leaf)
    return outputs.detach(), ElementwiseVjp(slopes.flatten(1))


def _convolution(layer: nn.Conv2d, values: Tensor) -> tuple[Tensor, Vjp]:
    outputs = layer(values)
    assert not isinstance(layer.padding, str)
    steps = (_pair(layer.stride), _pair(layer.padding), _pair(layer.dilation))
    return outputs, ConvolutionVjp(layer.weight, values.shape[1:], outputs.shape[1:], *steps, layer.groups)


def _max_pool(layer: nn.MaxPool2d, values: Tensor) -> tuple[Tensor, Vjp]:
    outputs, indices = F.max_pool2d(
        values, layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, return_indices=True
    )
    size = values.shape[2] * values.shape[3]
    offsets = torch.arange(values.shape[1])[:, None, None] * size
    places = (indices + offsets).flatten(1)[:, None]

    def vjp(block: Tensor) -> Tensor:
        back = block.new_zeros(*block.shape[:2], values[0].numel())
        return back.scatter_add_(2, places.expand_as(block), block)

    return outputs, vjp


def _pair(size: int | tuple[int, ...]) -> Pair:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


# Bytes of the running product of one chunk: it should stay in the cache.
# benchmarks/input_jacobians.py times them.
_CHUNK = 2**22


def input_jacobians(function: NetworkFunction) -> Tensor:
    """Compute doutput/dinput of every sample.

    Args:
        function: The network and its points.

    Returns:
        Tensor: Shape (num_samples, output_dim, input_dim), float64.

    Raises:
        TooLarge: If the Jacobians do not fit the memory.
    """
    size = 8 * function.num_samples * function.output_dim * function.input_dim
    require_memory("the input Jacobians", 2 * size, "Use fewer samples, or function_rank, which keeps singular values")
    return torch.cat([part for part, _ in jacobian_chunks(function)])


def jacobian_chunks(function: NetworkFunction) -> Iterator[tuple[Tensor, str]]:
    """Compute input Jacobians of a few samples after another.

    Args:
        function: The network and its points.

    Returns:
        Pairs of Jacobians (samples, output_dim, input_dim) and method. "layers": for sequences of linear,
        convolution, pooling, reshaping and elementwise layers, a product of matrices from the outputs, compared
        with autograd on one random combination. "vjp" or "jvp": autograd, vectorised over the outputs or the
        inputs, whichever are fewer.
    """
    products = LayerProducts.of(function)
    if products is not None and not _agrees(function, products):
        products = None
    width = max(function.input_dim, function.output_dim) if products is None else products.largest_width
    each = 8 * min(function.input_dim, function.output_dim) * width
    size = max(1, _CHUNK // each)
    for inputs in torch.split(function.inputs, size):
        if products is not None:
            yield products.jacobians(inputs), "layers"
        elif function.input_dim < function.output_dim:
            yield _forward(function, inputs), "jvp"
        else:
            yield _backward(function, inputs), "vjp"


def _agrees(function: NetworkFunction, products: LayerProducts) -> bool:
    """J^T c of the first samples for a random c, both ways."""
    few = function.inputs[:2]
    mixture = random_vector(len(few) * function.output_dim).reshape(len(few), -1)
    return checked_shortcut(
        lambda: torch.einsum("nkd,nk->nd", products.jacobians(few), mixture), lambda: function.vjp(few, mixture)
    )


def _backward(function: NetworkFunction, inputs: Tensor) -> Tensor:
    """Samples do not see each other: one backward pass per output serves all samples of the batch."""
    leaf = inputs.clone().requires_grad_()
    with torch.enable_grad():
        outputs = function(leaf + 0.0)
        if not outputs.requires_grad:  # the outputs do not depend on the inputs
            return torch.zeros(len(inputs), function.output_dim, function.input_dim, dtype=torch.float64)
        units = torch.eye(function.output_dim, dtype=torch.float64)[:, None].expand(-1, len(inputs), -1)
        try:
            (rows,) = torch.autograd.grad(outputs, leaf, units, retain_graph=True, is_grads_batched=True)
        except RuntimeError as error:  # an operation that cannot be vectorised: one output at a time
            if not is_answerable(error):
                raise
            function.fallbacks.add("input Jacobians were computed output by output", error)
            rows = torch.stack([torch.autograd.grad(outputs, leaf, unit, retain_graph=True)[0] for unit in units])
    return rows.flatten(2).transpose(0, 1)


def _forward(function: NetworkFunction, inputs: Tensor) -> Tensor:
    units = torch.eye(function.input_dim, dtype=torch.float64).reshape(-1, 1, *inputs.shape[1:])

    def along(unit: Tensor) -> Tensor:
        change: Tensor = jvp(function, (inputs,), (unit.expand_as(inputs),))[1]
        return change

    try:
        columns: Tensor = vmap(along)(units)
    except Exception as error:  # no forward mode for an operation
        if not is_answerable(error):
            raise
        function.fallbacks.add("input Jacobians were made backwards, by more outputs than inputs", error)
        return _backward(function, inputs)
    return columns.permute(1, 2, 0)


class JacobianGram(SymmetricOperator):
    """J J^T or J^T J of one point, whichever is smaller, for Jacobians that are too large to be stored.

    Its eigenvalues are the squared singular values of J.

    Args:
        function: The network and its points.
        index: Index of the point.
    """

    def __init__(self, function: NetworkFunction, index: int) -> None:
        self.function = function
        self.point = function.inputs[index]
        self.is_by_outputs = function.output_dim <= function.input_dim

    @property
    def size(self) -> int:
        return min(self.function.output_dim, self.function.input_dim)

    def matmat(self, vectors: Tensor) -> Tensor:
        each = self._through_outputs if self.is_by_outputs else self._through_inputs
        return torch.stack([each(column) for column in vectors.T], dim=1)

    def _value(self, flat: Tensor) -> Tensor:
        return self.function(flat.reshape(1, *self.point.shape))[0]

    def _through_outputs(self, direction: Tensor) -> Tensor:
        return self._jvp(self._vjp(direction))

    def _through_inputs(self, direction: Tensor) -> Tensor:
        return self._vjp(self._jvp(direction))

    def _vjp(self, direction: Tensor) -> Tensor:
        product = vjp(self._value, self.point.reshape(-1))[1]
        gradient: Tensor = product(direction)[0]
        return gradient.detach()

    def _jvp(self, direction: Tensor) -> Tensor:
        change: Tensor = jvp(self._value, (self.point.reshape(-1),), (direction,))[1]
        return change.detach()


@dataclass(frozen=True, eq=False)
class ExactFunction:
    """A network over GF(P) with its evaluation at the points.

    Args:
        chain: Affine layers and activations with weights in the field.
        evaluation: Values and activation slopes at the points.
        num_ties: Number of units that are on a kink at the given points.
        is_moved: Points that were replaced by one beside them because a unit is on a kink there.
        is_on_kink: Points where a unit is on a kink even after that: what is computed there is not a derivative.
    """

    chain: Chain[FieldArray]
    evaluation: Evaluation
    num_ties: int
    is_moved: Mask
    is_on_kink: Mask

    def jacobians(self) -> Iterator[FieldArray]:
        """(output_dim, input_dim) of one point after another, by vector-Jacobian products with the identity."""
        for place in range(len(self.evaluation)):
            yield self._jacobian(self.evaluation[place : place + 1])

    def _jacobian(self, point: Evaluation) -> FieldArray:
        last = self.chain.layers[-1]
        rows = gradients_by_inputs(last, identity(last.weights.field, last.num_outputs))
        for layer, slope in zip(reversed(self.chain.layers[:-1]), reversed(point.slopes), strict=True):
            if isinstance(slope, Selection):
                rows = Selection(np.repeat(slope.choices, len(rows), axis=0), slope.num_units).backward(rows)
            elif slope is not None:
                rows = slope * rows
            rows = gradients_by_inputs(layer, rows)
        return rows


def exact_function(function: NetworkFunction, field: PrimeField, seed: int = 0) -> ExactFunction:
    """Evaluate a network over GF(P), without rounding.

    Args:
        function: The network and its points.
        field: The prime field.
        seed: Seed of the directions in which points on a kink are moved. Defaults to 0.

    Returns:
        ExactFunction: The network in the field, evaluated at the points.

    Raises:
        UnsupportedNetwork: If a layer has no exact form; the error names the layer and an alternative.
    """
    chain = read_chain(function.model, Layout(()), tuple(function.inputs.shape[1:]))
    inputs = function.inputs.numpy().reshape(function.num_samples, -1)
    expected = function.outputs(function.inputs).numpy()
    require_outputs(chain, inputs, expected, np.finfo(np.float64).eps, "Use function_rank without a certificate")
    found = signs(chain, inputs)
    num_ties, is_moved = found.num_ties, _kinked_points(chain, found, len(inputs))
    is_on_kink = is_moved
    if is_moved.any():
        inputs = np.where(is_moved[:, None], points_beside(function.inputs, seed).numpy().reshape(inputs.shape), inputs)
        found = signs(chain, inputs)
        is_on_kink = _kinked_points(chain, found, len(inputs))
    exact = in_field(chain, field)
    evaluation = evaluate(exact, from_floats(field, inputs), found.patterns)
    return ExactFunction(exact, evaluation, num_ties, is_moved, is_on_kink)


def _kinked_points(chain: Chain[Floats], found: Signs, num_samples: int) -> Mask:
    """The points around which the chain is not proved to be smooth: some unit sits on a kink and can leave it.

    A unit that sees nothing but constants (its weights are 0, or the units before it are off) stays where it is, and a
    tie among such units is no kink.
    """
    is_kinked = np.zeros(num_samples, dtype=np.bool_)
    depends = np.ones((num_samples, chain.input_dim), dtype=np.bool_)
    steps = zip(chain.layers, chain.activations, found.patterns, found.ties, strict=False)
    for layer, activation, pattern, tied in steps:
        terms = layer_patches(layer, depends.astype(np.float64), one=0)
        depends = layer_outputs((layer.weights != 0).astype(np.float64), terms) > 0
        if isinstance(activation, LeakyRelu):
            assert tied is not None
            is_kinked |= (tied & depends).any(axis=1)
            depends = depends & pattern if activation.slope == 0 else depends
        elif isinstance(activation, MaxPool):
            assert tied is not None
            assert pattern is not None
            is_kinked |= (tied & depends[:, activation.windows]).any(axis=(1, 2))
            depends = np.take_along_axis(depends, pattern.astype(np.int64), axis=1)
    return is_kinked
