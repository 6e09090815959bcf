"""The density of many eigenvalues: bins in the place of single values change nothing that can be seen."""

from __future__ import annotations

import numpy as np

from hessmap.records import DensityCurve, smoothed_density


def test_bins_change_the_curve_by_less_than_a_ten_thousandth() -> None:
    generator = np.random.default_rng(0)
    parts = generator.normal(0, 0.01, 25_000), generator.exponential(0.1, 5_000), np.linspace(0.5, 2.0, 7)
    values = np.sort(np.concatenate(parts))[::-1]
    curve = DensityCurve.of_eigenvalues(values)
    places, grid = (np.arcsinh(part / curve.linear_part) for part in (values, curve.grid))
    each = smoothed_density(grid, places, np.full(len(values), 1 / len(values)), curve.width)
    each /= np.hypot(curve.grid, curve.linear_part)
    np.testing.assert_allclose(curve.density, each, rtol=1e-4, atol=1e-9 * each.max())
    assert curve.size == len(values)
    assert abs(np.trapezoid(curve.density, curve.grid) - 1) < 1e-3
