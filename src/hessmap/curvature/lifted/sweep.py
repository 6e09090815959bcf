"""Derivatives along perturbations of layer outputs: everything that has to be differentiated, for one batch.

Add a perturbation e_c to the output of every call c; f is the sum over samples and outputs of residual * output.
``lift`` finds the inputs a_c, the slopes df/de_c and the Jacobians doutput/de_c. ``sweep`` pushes some directions of
one e_k forward through the gradient (units, or what units of the weights do to the outputs, whichever are fewer), and
finds for every call l at or after k

    curvature[l - k]  d2 f / de_k de_l    (directions of k, samples, outputs * positions of l)
    motion[l - k]     d a_l / de_k        (directions of k, samples, inputs of l)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import jvp, vjp, vmap

from hessmap.curvature.lifted.calls import Call, Lift

Forward = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Network:
    """A forward pass whose calls can be perturbed: its named parameters (by identity) and its calls, and convolutions
    as matrices where that is faster."""

    forward: Forward
    names: Mapping[int, str]
    calls: Sequence[Call]
    matrices: Sequence[Tensor | None]

    def perturbed(self, data: Tensor, perturbations: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor]]:
        """The outputs, and the inputs of every call."""
        mode = Lift(self.names, len(data), perturbations, self.matrices)
        with mode:
            outputs = self.forward(data)
        return outputs, mode.inputs

    def still(self, data: Tensor, first: int = 0) -> list[Tensor]:
        """Zero perturbations from a call on."""
        shapes = ((len(data), call.num_outputs, call.num_positions) for call in self.calls[first:])
        return [torch.zeros(shape, dtype=torch.float64) for shape in shapes]


def network_of(forward: Forward, names: Mapping[int, str], inputs: Tensor) -> Network:
    """The calls of one forward pass, in order of execution."""
    seen = Lift(names, len(inputs))
    with torch.no_grad(), seen:
        forward(inputs)
    matrices = [
        call.window.matrix(weight) if call.window is not None and weight is not None else None
        for call, weight in zip(seen.calls, seen.weights, strict=True)
    ]
    return Network(forward, names, tuple(seen.calls), tuple(matrices))


@dataclass(frozen=True)
class Lifted:
    """A batch, seen from its calls: inputs (samples, input_size), slopes (samples, outputs, positions), and, where
    they were wanted, Jacobians (samples, outputs of the network, outputs * positions of the call)."""

    data: Tensor
    residual: Tensor
    inputs: Sequence[Tensor]
    slopes: Sequence[Tensor]
    jacobians: Sequence[Tensor]


@dataclass(frozen=True)
class Sweep:
    """The second derivatives along directions of one call, from that call on."""

    curvature: Sequence[Tensor]
    motion: Sequence[Tensor]


def lift(network: Network, data: Tensor, residual: Tensor, with_jacobians: bool) -> Lifted:
    """First derivatives: one pull-back of the residual, and one per output of the network if Jacobians are wanted."""
    linearised: Any = vjp(lambda moves: network.perturbed(data, moves), network.still(data), has_aux=True)
    _, pull, inputs = linearised
    slopes = pull(residual)[0]
    jacobians: list[Tensor] = []
    if with_jacobians:
        size = residual.shape[1]
        basis = torch.eye(size, dtype=torch.float64)[:, None, :].expand(-1, len(data), -1)
        pulled = vmap(lambda cotangent: pull(cotangent)[0])(basis)
        jacobians = [item.flatten(2).transpose(0, 1) for item in pulled]
    return Lifted(data, residual, inputs, slopes, jacobians)


def sweep(network: Network, lifted: Lifted, first: int, directions: Tensor) -> Sweep:
    """Second derivatives: push some perturbations of a call, (directions, samples, outputs, positions), forward through
    the gradient."""
    data = lifted.data
    own, *later = network.still(data, first)
    silent: list[Tensor | None] = [None] * first

    def gradient(perturbation: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        moved = [perturbation, *later]
        linearised: Any = vjp(lambda moves: network.perturbed(data, silent + moves), moved, has_aux=True)
        _, pull, inputs = linearised
        return pull(lifted.residual)[0], inputs[first:]

    curvature, motion = vmap(lambda direction: jvp(gradient, (own,), (direction,))[1])(directions)
    return Sweep([item.flatten(2) for item in curvature], motion)
