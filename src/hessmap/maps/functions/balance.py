"""How far neighbouring layers are from balanced."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from torch import nn

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.measurement import Floats
from hessmap.networks.module_tree import Rules, sequential_layers
from hessmap.records import BalanceMeasurement

_RULES = Rules("balance needs a sequence of linear layers with homogeneous activations", "")
_HOMOGENEOUS = (nn.ReLU, nn.LeakyReLU, nn.Identity, nn.Flatten, nn.Dropout)


def balance(model: nn.Module) -> BalanceMeasurement:
    """D_l = ||W_(l+1)||^2 - ||W_l||^2 - ||b_l||^2 of each pair of neighbouring layers, and of each hidden unit.

    Zero at every local minimum of a loss with an l2 penalty on all parameters, for homogeneous activations. Reference:
    Jacot 2023, Proposition 12 and Remark 6.

    >>> model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU(), nn.Linear(1, 1, bias=False))
    >>> for weight, value in zip(model.parameters(), (1.0, 3.0)):
    ...     _ = nn.init.constant_(weight, value)
    >>> balance(model).defects.tolist()
    [8.0]
    """
    layers = []
    for name, layer in sequential_layers(model, _RULES):
        if isinstance(layer, nn.Linear) and type(layer) is nn.Linear:
            layers.append((name, layer))
        elif type(layer) not in _HOMOGENEOUS:
            raise UnsupportedNetwork(sentence(_RULES.must, f"layer {name} is {type(layer).__name__}"))
    if len(layers) < 2:
        raise UnsupportedNetwork(sentence("balance needs at least two linear layers", f"there are {len(layers)}"))
    squares = [_squares(layer) for _, layer in layers]
    units = tuple(leaving - entering for (entering, _), (_, leaving) in pairwise(squares))
    defects = np.array([unit.sum() for unit in units])
    scale = max(float(entering.sum()) for entering, _ in squares)
    return BalanceMeasurement(
        names=tuple(name for name, _ in layers),
        defects=defects,
        unit_defects=units,
        relative=float(np.abs(defects).max()) / scale if scale else 0.0,
        largest_unit_defect=max(float(np.abs(unit).max()) for unit in units),
    )


def _squares(layer: nn.Linear) -> tuple[Floats, Floats]:
    """Of every output unit ||row||^2 + bias^2, and of every input unit ||column||^2."""
    weight = layer.weight.detach().double().numpy()
    bias = 0.0 if layer.bias is None else layer.bias.detach().double().numpy()
    return np.square(weight).sum(axis=1) + np.square(bias), np.square(weight).sum(axis=0)
