"""What every loader returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Data(NamedTuple):
    """Inputs (num_samples, input_dim) in float64 with one target a row: int64 labels, or float64 vectors.

    >>> import torch
    >>> inputs, targets = Data(torch.zeros(2, 3), torch.tensor([0, 1]))
    """

    inputs: Tensor
    targets: Tensor
