"""Input-output Jacobians of all samples at once, or of one point as an operator."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from hessmap.curvature.fallbacks import is_answerable
from hessmap.curvature.input_output.layer_products import LayerProducts
from hessmap.curvature.input_output.network_function import NetworkFunction
from hessmap.curvature.memory import require_memory
from hessmap.curvature.operator import SymmetricOperator

_AGREEMENT = 1e-10
# Bytes of the running product of one chunk: it should stay in the cache.
_CHUNK = 2**22


def input_jacobians(function: NetworkFunction) -> Tensor:
    """doutput/dinput of every sample, shape (num_samples, output_dim, input_dim)."""
    size = 8 * function.num_samples * function.output_dim * function.input_dim
    require_memory("the input Jacobians", 2 * size, "Use fewer samples, or function_rank, which keeps singular values")
    return torch.cat([part for part, _ in jacobian_chunks(function)])


def jacobian_chunks(function: NetworkFunction) -> Iterator[tuple[Tensor, str]]:
    """The Jacobians of some samples after another, and the method.

    "layers": for sequences of linear, convolution, pooling, reshaping and elementwise layers, a product of matrices
    from the outputs, checked against automatic differentiation of one random combination. "vjp" or "jvp": automatic
    differentiation, vectorised over the outputs or the inputs, whichever are fewer.
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
    generator = torch.Generator().manual_seed(0)
    mixture = torch.randn(len(few), function.output_dim, generator=generator, dtype=torch.float64)
    expected = function.vjp(few, mixture)
    found = torch.einsum("nkd,nk->nd", products.jacobians(few), mixture)
    return torch.allclose(found, expected, rtol=_AGREEMENT, atol=_AGREEMENT * float(expected.abs().max()))


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
            function.fallbacks.add("input Jacobians were made output by output", error)
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
    """J J^T or J^T J of one point, whichever is smaller: its eigenvalues are the squared singular values of J.

    For Jacobians that are too large to be stored.
    """

    def __init__(self, function: NetworkFunction, place: int) -> None:
        self.function = function
        self.point = function.inputs[place]
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
