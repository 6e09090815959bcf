"""Split R-hat, block means and trends, on chains whose behaviour is known."""

from __future__ import annotations

import numpy as np
import pytest

from hessmap.errors import InvalidInput
from hessmap.maps.learning import block_means, split_r_hat, trend


def test_independent_draws_agree_and_shifted_or_drifting_chains_do_not():
    draws = np.random.default_rng(0).normal(size=(6, 4000))
    assert split_r_hat(draws) == pytest.approx(1, abs=5e-3)
    assert split_r_hat(draws + np.arange(6)[:, None]) > 1.5
    drifting = draws + np.linspace(0, 2, 4000)
    assert split_r_hat(drifting) > 1.1, "all chains drift together, which only halves show"


def test_constant_chains_are_not_divided_by_zero():
    assert split_r_hat(np.ones((3, 8))) == 1
    assert split_r_hat(np.ones((3, 8)) * np.arange(3)[:, None]) == np.inf


def test_the_trend_of_a_line_is_its_rise_between_the_middles_of_the_outer_blocks():
    line = np.linspace(0, 1, 8001)[None, :8000] + np.zeros((4, 1))
    moved, error = trend(line)
    assert moved == pytest.approx(7 / 8, rel=1e-3)
    assert error == pytest.approx(0, abs=1e-12)
    noise = np.random.default_rng(1).normal(size=(8, 800))
    moved, error = trend(noise)
    assert abs(moved) < 4 * error


def test_blocks_keep_every_draw():
    chains = np.arange(20.0).reshape(2, 10)
    assert block_means(chains, 3).shape == (2, 3)
    assert block_means(chains, 1) == pytest.approx(chains.mean(axis=1, keepdims=True))


def test_too_few_draws_are_refused():
    with pytest.raises(InvalidInput, match=r"rows of at least 8 draws; they have shape \(2, 5\)"):
        trend(np.zeros((2, 5)))
    with pytest.raises(InvalidInput, match="rows of at least 4 draws"):
        split_r_hat(np.zeros(9))
