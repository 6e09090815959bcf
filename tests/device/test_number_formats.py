"""Number formats on a device: float32 with a check in float64 by default, compensated sums where float64 is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from conftest import NAME
from test_public_functions import problem_of

import hessmap as hm
from hessmap.linalg import inner_matrix, inner_products, row_lengths, summed_on_host

MEASUREMENTS: dict[str, Callable[..., Any]] = {
    "top_eigenpairs": lambda hessian, **given: hm.top_eigenpairs(hessian, 3, **given),
    "sharpness": lambda hessian, **given: hm.sharpness(hessian, **given),
    "trace_estimate": lambda hessian, **given: hm.trace_estimate(hessian, method="hutchinson", **given),
    "density_estimate": lambda hessian, **given: hm.density_estimate(
        hessian, num_probes=4, num_steps=8, method="quadrature", **given
    ),
}
VALUES: dict[str, Callable[[Any], Any]] = {
    "top_eigenpairs": lambda found: found.eigenvalues,
    "density_estimate": lambda found: found.density,
}


def notes_on_float32(found: Any) -> list[str]:
    return [note for note in found.provenance.notes if "float32" in note and "promoted" not in note]


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_float32_with_a_check_in_float64_is_the_default_on_devices(name: str, device: torch.device) -> None:
    if device.type == "mps":
        pytest.skip("MPS has no float64")
    expected = MEASUREMENTS[name](hm.loss_hessian(problem_of("transformer", "cpu")))
    problem = problem_of("transformer", device)
    assert problem.dtype == torch.float64
    found = MEASUREMENTS[name](hm.loss_hessian(problem))
    assert not notes_on_float32(expected)
    assert len(notes_on_float32(found)) == 1
    value = VALUES.get(name, lambda found: found.value)
    np.testing.assert_allclose(value(found), value(expected), rtol=1e-5, atol=1e-5 * np.abs(value(expected)).max())
    if name == "top_eigenpairs":
        assert found.converged
        assert found.tolerance == 1e-5
        assert 0 < found.num_products - found.num_single_products < found.num_single_products
        # Rayleigh quotients in float64: values are right to the square of the residuals over the gap.
        np.testing.assert_allclose(value(found), value(expected), rtol=1e-8)


@pytest.mark.parametrize("name", ["top_eigenpairs", "trace_estimate", "density_estimate"])
def test_float64_on_request(name: str, device: torch.device) -> None:
    if device.type == "mps":
        pytest.skip("MPS has no float64")
    found = MEASUREMENTS[name](hm.loss_hessian(problem_of("transformer", device)), precision="float64")
    assert not notes_on_float32(found)


@pytest.fixture
def without_float64(device: torch.device) -> Iterator[None]:
    if NAME != "second":
        pytest.skip("needs the stand-in device")
    import second_device

    second_device.device.lacks = {torch.float64}
    yield
    second_device.device.lacks = set()


SIZE = 2**15 * 40 + 7


def test_sums_without_float64_are_compensated(without_float64: None, device: torch.device) -> None:
    drawn = torch.randn(3, SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    shifted = drawn + 100.0  # partial sums are large beside what is added
    there, other = shifted.to(device), drawn.to(device)
    exact = (shifted.double() @ drawn.double().T).numpy()
    sizes = (shifted.double().abs() @ drawn.double().abs().T).numpy()
    # A piece of 2^15 entries is summed by the matrix product in float32, the pieces without further rounding.
    assert np.abs(inner_matrix(there, other).numpy() - exact).max() <= 1e-6 * sizes.max()
    assert np.abs(inner_products(there, other).numpy() - exact.diagonal()).max() <= 1e-6 * sizes.max()
    np.testing.assert_allclose(row_lengths(there).numpy(), shifted.double().norm(dim=1).numpy(), rtol=1e-6)


def test_a_compensated_sum_has_twice_the_digits(without_float64: None, device: torch.device) -> None:
    drawn = torch.randn(10_001, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    values = torch.cat([drawn * 1e6, torch.ones(1, 2), -drawn * 1e6])  # what is left is 1
    assert summed_on_host(values.to(device), 0).tolist() == [1.0, 1.0]
    assert abs(float(values[:, 0].sum()) - 1) > 1e-3  # plain float32 loses it
