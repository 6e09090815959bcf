"""Derivatives along perturbations of the outputs of a chain, forwards and backwards by hand.

For the units e of one link k, with s = activation', b = activation'' (W^T g) and A = d2loss/doutput2 as in
``chain_products``, for the links m from k on

    forwards    dz_k = e,   da_m = s dz_(m-1),   dz_m = W da_m
    outputs     dg = A dz
    backwards   dg_m = s (W^T dg_(m+1)) + b dz_m

dg is ``curvature`` and da ``input_tangents`` of ``derivatives``, of the outer-product term as well. Samples are
innermost in memory, as ``assembly`` reads them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from hessmap.curvature.chain import Link, chain_of
from hessmap.curvature.chain_products import ChainPiece, ChainStep
from hessmap.curvature.lifted.batch_call import BatchCall, batch_call
from hessmap.curvature.lifted.derivatives import SecondDerivatives
from hessmap.curvature.lifted.network import Network

_FEW_OUTPUTS = 32


def lifted_chain(network: Network) -> tuple[Link, ...] | None:
    """The links of a chain whose calls are all there is, in their order."""
    links = chain_of(network.problem)
    if links is None or not all(call.is_plain for call in network.calls):
        return None
    used = [(call.weight, call.bias) for call in network.calls]
    return links if used == [(link.weight, link.bias) for link in links] else None


def chain_calls(network: Network, piece: ChainPiece) -> list[BatchCall]:
    """The calls on a batch, with slopes of zero where no gradient is needed."""
    found = []
    for call, step in zip(network.calls, piece.steps, strict=True):
        slope = step.gradient if step.gradient is not None else step.inputs.new_zeros(len(step.inputs), 1)
        found.append(batch_call(call, step.inputs, slope[:, :, None]))
    return found


def chain_derivatives(piece: ChainPiece, first: int, outputs: slice) -> SecondDerivatives:
    """The second derivatives along some outputs of a link, from that link on."""
    steps = piece.steps[first:]
    forwards, entering = _forwards(steps, outputs)
    tangent = _at_outputs(piece.curvature, forwards[-1])
    curvature = [tangent]
    for step, later, moved in zip(steps[-2::-1], steps[:0:-1], forwards[-2::-1], strict=True):
        assert step.slope is not None
        tangent = (later.weight.T @ tangent).mul_(_samples_last(step.slope))
        if step.second_derivative is not None:
            tangent.addcmul_(moved, _samples_last(step.second_derivative))
        curvature.append(tangent)
    has_gradient = steps[0].gradient is not None
    return SecondDerivatives(
        [item.mT for item in curvature[::-1]], [item.mT for item in entering] if has_gradient else []
    )


def _forwards(steps: Sequence[ChainStep], outputs: slice) -> tuple[list[Tensor], list[Tensor]]:
    """Tangents (directions, units, samples) of what leaves the links, and of what enters all but the first."""
    own, samples = steps[0], len(steps[0].inputs)
    units = torch.eye(len(own.weight), dtype=own.weight.dtype)[outputs]
    leaving, entering = [units[:, :, None].expand(-1, -1, samples)], list[Tensor]()
    for step, later in itertools.pairwise(steps):
        assert step.slope is not None
        entering.append(leaving[-1] * _samples_last(step.slope))
        leaving.append(later.weight @ entering[-1])
    return leaving, entering


def _at_outputs(curvature: Tensor | None, tangent: Tensor) -> Tensor:
    """The second derivative of the loss times tangents: few outputs go one by one, over all samples."""
    found = torch.zeros(tangent.shape, dtype=tangent.dtype)
    if curvature is None:
        return found
    if tangent.shape[1] > _FEW_OUTPUTS:
        return torch.bmm(curvature, tangent.permute(2, 1, 0)).permute(2, 1, 0).contiguous()
    rows = curvature.permute(1, 2, 0).contiguous()
    for place in range(tangent.shape[1]):
        found.addcmul_(rows[:, place], tangent[:, place, None])
    return found


def _samples_last(values: Tensor) -> Tensor:
    """(units, samples) of (samples, 1, units)."""
    return values[:, 0].T.contiguous()
