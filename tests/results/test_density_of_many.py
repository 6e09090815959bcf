"""The density of many eigenvalues: bins in the place of single values change nothing that can be seen."""

from __future__ import annotations

import numpy as np

from hessmap.results.whole_curvature import DensityCurve, smoothed_density


def test_bins_change_the_curve_by_less_than_a_ten_thousandth() -> None:
    generator = np.random.default_rng(0)
    parts = generator.normal(0, 0.01, 25_000), generator.exponential(0.1, 5_000), np.linspace(0.5, 2.0, 7)
    values = np.sort(np.concatenate(parts))[::-1]
    curve = DensityCurve.of_eigenvalues(values)
    each = smoothed_density(curve.grid, values, np.full(len(values), 1 / len(values)), curve.width)
    np.testing.assert_allclose(curve.density, each, rtol=1e-4, atol=1e-9 * each.max())
    assert curve.size == len(values)
    spacing = curve.grid[1] - curve.grid[0]
    assert abs(curve.density.sum() * spacing - 1) < 1e-3
