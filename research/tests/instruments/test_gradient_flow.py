"""Gradient flow against solutions in closed form, in any shape, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from hessmap.errors import InvalidInput
from hessmap_research.instruments.stationary import IntegrationError, gradient_flow


def test_a_quadratic_loss_decays_by_the_exponential_of_its_hessian() -> None:
    generator = np.random.default_rng(0)
    root = generator.normal(size=(4, 4))
    hessian = root @ root.T
    start, times = generator.normal(size=4), np.array([0.0, 0.3, 1.7])
    points = gradient_flow(lambda theta: hessian @ theta, start, times)
    values, vectors = np.linalg.eigh(hessian)
    exact = np.array([vectors @ (np.exp(-values * time) * (vectors.T @ start)) for time in times])
    np.testing.assert_allclose(points, exact, atol=1e-9)


def test_many_students_flow_at_once_and_keep_their_shape() -> None:
    start = np.arange(1.0, 7.0).reshape(3, 2)
    points = gradient_flow(lambda theta: theta**3, start, [0.5, 2.0])
    assert points.shape == (2, 3, 2)
    exact = start / np.sqrt(1 + 2 * start**2 * np.array([0.5, 2.0])[:, None, None])
    np.testing.assert_allclose(points, exact, rtol=1e-8)


def test_time_zero_alone_is_the_start() -> None:
    np.testing.assert_array_equal(gradient_flow(lambda theta: theta, [3.0, 4.0], [0.0]), [[3.0, 4.0]])


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_flow_that_blows_up_is_reported() -> None:
    with pytest.raises(IntegrationError, match="the flow must reach time 2; it stopped at"):
        gradient_flow(lambda theta: -(theta**2), [1.0], [0.5, 2.0])


@pytest.mark.parametrize(
    ("times", "message"),
    [([1.0, 0.5], "times must be increasing"), ([-1.0, 0.5], "not negative"), ([], "times must be increasing")],
)
def test_bad_times_are_refused(times: list[float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        gradient_flow(lambda theta: theta, [1.0], times)


def test_a_gradient_of_another_shape_and_bad_tolerances_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"must have the shape of the parameters; it has \(1,\), they have \(2,\)"):
        gradient_flow(lambda theta: theta[:1], [1.0, 2.0], [1.0])
    with pytest.raises(InvalidInput, match="the relative tolerance must be positive; got 0"):
        gradient_flow(lambda theta: theta, [1.0], [1.0], relative_tolerance=0.0)
