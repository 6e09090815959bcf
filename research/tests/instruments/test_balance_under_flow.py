"""The balance of a ReLU network under gradient flow, against the law of its decay."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.theory.functions import balance_defect_prediction
from hessmap_research.instruments.stationary import gradient_flow


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_balance_by_layer_and_unit_decays_as_the_law_says():
    """Two units that all samples switch on and one that they switch off: the flow crosses no kink."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)).double()
    with torch.no_grad():
        model[0].weight[:], model[2].weight[:] = 0.2 * drawn(3, 2), 0.2 * drawn(2, 3, seed=2)
        model[0].bias[:] = torch.tensor([2.0, 2.5, -3.0])
    inputs, targets, ridge = drawn(8, 2), drawn(8, 2, seed=1), 0.1
    twin = copy.deepcopy(model)
    parameters = list(twin.parameters())

    def gradient(flat: np.ndarray) -> np.ndarray:
        nn.utils.vector_to_parameters(torch.from_numpy(flat.copy()), parameters)
        risk = (twin(inputs) - targets).square().sum(1).mean() + ridge * sum(p.square().sum() for p in parameters)
        return torch.cat([g.reshape(-1) for g in torch.autograd.grad(risk, parameters)]).numpy()

    start = nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    end = gradient_flow(gradient, start, [0.5], relative_tolerance=1e-8, absolute_tolerance=1e-10)[0]
    nn.utils.vector_to_parameters(torch.from_numpy(end), parameters)
    before, after = hm.maps.functions.balance(model), hm.maps.functions.balance(twin)
    law = balance_defect_prediction
    assert after.defects == pytest.approx(law(before.defects, ridge, 0.5), abs=1e-6)
    assert after.unit_defects[0] == pytest.approx(law(before.unit_defects[0], ridge, 0.5), abs=1e-6)
    assert before.unit_defects[0].sum() == pytest.approx(before.defects[0])
    assert abs(before.defects[0]) > 0.1
