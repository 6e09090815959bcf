"""What a fit descends is what a certificate is made of: its divergence and complexity are those of the theory."""

from __future__ import annotations

from math import log

import pytest
import torch

from hessmap.certificates.fit import FitSettings, PosteriorFit
from hessmap.certificates.posterior import divergence
from hessmap.theory.pac_bayes import PriorGrid, maurer_complexity


@pytest.mark.parametrize("index", [1, 7, 250])
@pytest.mark.parametrize(
    ("delta", "grid"), [(0.025, PriorGrid()), (0.2, PriorGrid(2.0, precision=10)), (0.1, PriorGrid(1.0, 50, 300))]
)
def test_complexity_of_a_fit_at_a_point_of_the_grid_is_that_of_the_theory(
    problem, index: int, delta: float, grid: PriorGrid
) -> None:
    model, initial, data = problem
    fit = PosteriorFit(model, initial, data, "standard", FitSettings(delta=delta, grid=grid))
    with torch.no_grad():
        fit.log_prior_deviation.fill_(0.5 * log(grid.variance(index)))
        found = float(fit.kl()), float(fit.complexity())
    exact = divergence(fit.network.posterior(), fit.prior, grid.variance(index))
    assert found[0] == pytest.approx(exact, rel=1e-5)  # the weights are in float32
    wanted = maurer_complexity(found[0], len(data.inputs), grid.log_cost(index), delta)
    assert found[1] == pytest.approx(wanted, rel=1e-12)
