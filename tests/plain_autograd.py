"""An oracle that knows nothing of hessmap: the gradient of the gradient of what the user wrote, row by row."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def plain_hessian(model: nn.Module, risk: Tensor) -> Tensor:
    parameters = list(model.parameters())
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(risk, parameters, create_graph=True)])
    rows = [torch.autograd.grad(entry, parameters, retain_graph=True, materialize_grads=True) for entry in gradient]
    return torch.stack([torch.cat([g.reshape(-1) for g in row]) for row in rows])
