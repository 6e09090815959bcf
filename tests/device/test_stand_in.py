"""What only the stand-in device can be asked: transfers, missing float64, limited memory, its random state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import NAME
from test_public_functions import CALLS, MODELS, numbers, problem_of

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.linalg import preserved_random_state

pytestmark = pytest.mark.skipif(NAME != "second", reason="needs the stand-in device")
IN_FLOAT32 = (
    *("gradient", "product", "loss_hessian", "outer_product_hessian", "functional_hessian", "fisher"),
    *("output_jacobian", "tangent_kernel", "exact_diagonal", "top_eigenpairs", "sharpness", "trace_estimate"),
    *("density_estimate", "layer_factors", "layer_hessian", "layer_eigenpairs", "mean_output_hessian"),
)
# Vectors moved per product, start and results included. Of 255 parameters a vector is as short as the coefficients of a
# step; test_memory_and_transfers.py has longer ones, below half a vector.
MOST_MOVED = {"top_eigenpairs": 0.75, "density_estimate": 0.5, "trace_estimate": 0.5}


@pytest.fixture
def stand_in(device: torch.device) -> Iterator[Any]:
    import second_device

    found = second_device.device
    yield found
    found.lacks, found.total_bytes = set(), 2**40


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("call", IN_FLOAT32)
def test_without_float64_numbers_are_those_of_float32(
    call: str, model: str, stand_in: Any, device: torch.device
) -> None:
    expected = numbers(CALLS[call](problem_of(model, "cpu", torch.float32)))
    stand_in.lacks = {torch.float64}
    problem = problem_of(model, device)
    assert problem.dtype == torch.float32
    assert any("has no float64" in note for note in problem.notes)
    found = numbers(CALLS[call](problem))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


def test_float64_on_a_device_without_it_is_refused(stand_in: Any, device: torch.device) -> None:
    stand_in.lacks = {torch.float64}
    with pytest.raises(InvalidInput, match="second:0 has no float64. Use dtype=torch.float32"):
        problem_of("mlp", device, torch.float64)


def test_missing_memory_is_reported_as_such(stand_in: Any, device: torch.device) -> None:
    problem = problem_of("transformer", device)
    hessian = hm.loss_hessian(problem)
    stand_in.total_bytes = stand_in.live_bytes() + 2**12
    with pytest.raises(torch.OutOfMemoryError, match="out of memory"):
        hessian @ torch.ones(problem.num_parameters, dtype=torch.float64)


def test_the_random_state_of_the_device_is_restored(device: torch.device) -> None:
    first = torch.rand(3, device=device)
    state = torch.second.get_rng_state()
    with preserved_random_state(5):
        seeded = torch.rand(3, device=device)
    with preserved_random_state(5):
        again = torch.rand(3, device=device)
    assert torch.equal(torch.second.get_rng_state(), state)
    assert torch.equal(seeded, again)
    assert not torch.equal(seeded, first)


@pytest.mark.parametrize("call", MOST_MOVED)
def test_few_bytes_are_moved_per_product(call: str, stand_in: Any, device: torch.device) -> None:
    problem = problem_of("transformer", device)
    hessian = hm.loss_hessian(problem)
    start = torch.ones(problem.num_parameters, dtype=torch.float64, device=device)
    hessian @ start  # checks of the model cross once
    with stand_in.counted() as moved:
        found = {
            "top_eigenpairs": lambda: hm.top_eigenpairs(hessian, 3),
            "density_estimate": lambda: hm.density_estimate(hessian, num_probes=2, num_steps=8, method="quadrature"),
            "trace_estimate": lambda: hm.trace_estimate(hessian, method="hutchinson"),
        }[call]()
    vectors = (moved.up_bytes + moved.down_bytes) / (8 * problem.num_parameters * found.num_products)
    assert vectors < MOST_MOVED[call]


class Recording(torch.nn.Module):
    """A linear model that records whether TF32 is allowed in its forward and backward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.seen: dict[str, set[bool]] = {"forward": set(), "backward": set()}

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = self.linear(inputs)
        self.seen["forward"].add(torch.backends.cudnn.allow_tf32)
        if outputs.requires_grad:
            outputs.register_hook(lambda _: self.seen["backward"].add(torch.backends.cudnn.allow_tf32))
        return outputs


@pytest.mark.parametrize("where", ["cpu", "device"])
@pytest.mark.parametrize("call", ["gradient", "product", "output_jacobian", "layer_factors", "sharpness"])
def test_tf32_is_off_while_a_model_on_a_device_is_evaluated(call: str, where: str, device: torch.device) -> None:
    torch.manual_seed(0)
    assert torch.backends.cudnn.allow_tf32  # torch's default
    model = Recording().to(device if where == "device" else "cpu")
    own = next(model.parameters()).device
    labels = torch.randint(2, (4,), device=own)
    problem = hm.Problem(model, "cross_entropy", torch.randn(4, 3).to(own), labels, device=own)
    problem.model.seen["forward"].clear()
    problem.model.seen["backward"].clear()
    CALLS[call](problem)
    is_on = where == "cpu"
    assert problem.model.seen == {"forward": {is_on}, "backward": {is_on}}
    assert torch.backends.cudnn.allow_tf32
