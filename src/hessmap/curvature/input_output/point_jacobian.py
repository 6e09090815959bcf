"""The Jacobian at one point as an operator, for what is too large to be stored."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import jvp, vjp

from hessmap.curvature.input_output.network_function import NetworkFunction
from hessmap.curvature.operator import SymmetricOperator


class JacobianGram(SymmetricOperator):
    """J J^T or J^T J of one point, whichever is smaller: its eigenvalues are the squared singular values of J."""

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
        return self._pushed(self._pulled(direction))

    def _through_inputs(self, direction: Tensor) -> Tensor:
        return self._pulled(self._pushed(direction))

    def _pulled(self, direction: Tensor) -> Tensor:
        pull = vjp(self._value, self.point.reshape(-1))[1]
        gradient: Tensor = pull(direction)[0]
        return gradient.detach()

    def _pushed(self, direction: Tensor) -> Tensor:
        change: Tensor = jvp(self._value, (self.point.reshape(-1),), (direction,))[1]
        return change.detach()
