"""The columns of the layers of H_f share no direction: their ranks add up.

Singh, Bachmann & Hofmann 2021, section 4.3, prove it for linear networks and observe it for ReLU and tanh.
"""

from __future__ import annotations

import pytest
import torch

import hessmap as hm

WIDTHS = ((4, 3, 2), (4, 3, 3, 2), (6, 4, 5, 2), (5, 4, 4, 4, 3), (3, 8, 8, 2))


def singular_values(matrix: torch.Tensor, largest: float) -> tuple[int, float]:
    """How many lie above 1e-11 of a norm, and the gap below the smallest of them."""
    values = torch.linalg.svdvals(matrix) / largest
    kept = values[values > 1e-11]
    rest = values[len(kept) :]
    return len(kept), float(kept[-1] / rest.max()) if len(rest) and float(rest.max()) else float("inf")


@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("activation", ["identity", "relu", "tanh"])
def test_the_ranks_of_the_columns_add_up_to_that_of_the_functional_hessian(
    widths: tuple[int, ...], activation: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = widths[0], widths[-1]
    inputs, targets = (torch.randn(60, size, generator=generator, dtype=torch.float64) for size in sizes)
    problem = hm.Problem(hm.FullyConnected(widths, activation=activation).build(seed=0), "squared", inputs, targets)
    hessian = hm.functional_hessian(problem)
    dense = hessian.to_dense()
    norm = float(torch.linalg.matrix_norm(dense, 2))
    whole, gap = singular_values(dense, norm)
    columns = [singular_values(dense[:, place], norm) for _, place in problem.layout]
    assert whole == sum(count for count, _ in columns)
    assert min(gap, *(below for _, below in columns)) > 1e3
    assert whole < problem.num_parameters or activation == "tanh"
