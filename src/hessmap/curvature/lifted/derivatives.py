"""Derivatives along perturbations of layer outputs: everything that has to be differentiated, for one batch.

Add a perturbation e_c to the output of every call c; f is the sum over samples and outputs of residual * output.
``first_derivatives`` finds the inputs a_c, the slopes df/de_c and the Jacobians doutput/de_c. ``second_derivatives``
pushes some directions of one e_k forward through the gradient (units, or what units of the weights do to the outputs,
whichever are fewer), and finds for every call l at or after k

    curvature[l - k]  d2 f / de_k de_l    (directions of k, samples, outputs * positions of l)
    input_tangents[l - k]  d a_l / de_k   (directions of k, samples, inputs of l)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from hessmap.curvature.lifted.network import Network
from hessmap.curvature.nested_tensors import Inputs, num_rows


@dataclass(frozen=True)
class FirstDerivatives:
    """A batch, from its calls: inputs (samples, input_size), slopes (samples, outputs, positions), and, where
    they were wanted, Jacobians (samples, outputs of the network, outputs * positions of the call)."""

    data: Inputs
    residual: Tensor
    inputs: Sequence[Tensor]
    slopes: Sequence[Tensor]
    jacobians: Sequence[Tensor]


@dataclass(frozen=True)
class SecondDerivatives:
    """The second derivatives along directions of one call, from that call on."""

    curvature: Sequence[Tensor]
    input_tangents: Sequence[Tensor]


def first_derivatives(network: Network, data: Inputs, residual: Tensor, with_jacobians: bool) -> FirstDerivatives:
    """One vector-Jacobian product of the residual, and one per output of the network if Jacobians are wanted."""
    start = network.zero_perturbations(data)
    linearised: Any = vjp(lambda moved: network.perturbed_outputs(data, moved), start, has_aux=True)
    _, to_calls, inputs = linearised
    slopes = to_calls(residual)[0]
    jacobians: list[Tensor] = []
    if with_jacobians:
        size = residual.shape[1]
        basis = torch.eye(size, dtype=residual.dtype)[:, None, :].expand(-1, num_rows(data), -1)
        by_output = vmap(lambda cotangent: to_calls(cotangent)[0])(basis)
        jacobians = [item.flatten(2).transpose(0, 1) for item in by_output]
    return FirstDerivatives(data, residual, inputs, slopes, jacobians)


def second_derivatives(network: Network, lifted: FirstDerivatives, first: int, directions: Tensor) -> SecondDerivatives:
    """Push some perturbations of a call, (directions, samples, outputs, positions), forward through
    the gradient."""
    data = lifted.data
    own, *later = network.zero_perturbations(data, first)
    none: list[Tensor | None] = [None] * first

    def gradient(perturbation: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        start = [perturbation, *later]
        linearised: Any = vjp(lambda moved: network.perturbed_outputs(data, none + moved), start, has_aux=True)
        _, to_calls, inputs = linearised
        return to_calls(lifted.residual)[0], inputs[first:]

    curvature, input_tangents = vmap(lambda direction: jvp(gradient, (own,), (direction,))[1])(directions)
    return SecondDerivatives([item.flatten(2) for item in curvature], input_tangents)
