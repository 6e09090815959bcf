"""Operators in float32: their matrices are measured in float64, and nothing is claimed below their own rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.linalg.operator import DenseOperator
from hessmap.records import Spectrum
from known_spectra import rotated

EPS = float(np.finfo(np.float32).eps)


def problem(dtype: torch.dtype) -> hm.Problem:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    return hm.Problem(model, "cross_entropy", torch.randn(40, 6), torch.arange(40) % 3, dtype=dtype)


def test_the_method_that_is_announced_is_the_one_that_is_used() -> None:
    narrow, wide = (hm.loss_hessian(problem(dtype)) for dtype in (torch.float32, torch.float64))
    lines: list[str] = []
    found = hm.measurement.auto_spectrum(narrow, log=lines.append)
    assert isinstance(found, Spectrum)
    assert lines[0].startswith("dense: ")
    assert (found.method, found.entries) == ("dense", "float32")
    truth = hm.spectrum(wide)
    assert found.eigenvalues == pytest.approx(truth.eigenvalues, abs=found.eigenvalue_error)
    assert found.eigenvalue_error == pytest.approx(narrow.size * EPS * found.norm, rel=0.5)
    assert "the entries of the matrix are float32; they were decomposed in float64" in found.provenance.notes
    assert truth.entries == "float64"
    assert Spectrum.from_json(found.to_json()) == found


def test_ranks_of_float32_have_a_threshold_above_its_rounding() -> None:
    narrow, wide = (hm.loss_hessian(problem(dtype)) for dtype in (torch.float32, torch.float64))
    for given in (narrow, hm.spectrum(narrow)):
        found = hm.numerical_rank(given)
        assert found.threshold == pytest.approx(max(1e-5, narrow.size * EPS) * narrow.scale, rel=1e-3)
    assert hm.numerical_rank(wide).threshold == pytest.approx(1e-12 * wide.scale, rel=1e-3)
    low = DenseOperator(torch.from_numpy(rotated(np.concatenate([np.linspace(1, 2, 7), np.zeros(40)]))).float())
    rank = hm.numerical_rank(low)
    assert (rank.value, rank.decidable) == (7, True)
    block = hm.loss_hessian(problem(torch.float32)).block("0.weight", "2.weight")
    assert hm.numerical_rank(block).threshold > 1e-6 * hm.loss_hessian(problem(torch.float32)).scale


def test_a_system_that_is_singular_in_float32_is_refused() -> None:
    matrix = rotated(np.array([1.0, 1.0, 1e-7]))
    assert hm.measurement.solve(matrix, np.ones(3)).reciprocal_condition > 1e-8
    with pytest.raises(
        InvalidInput, match=r"numerically singular \(rcond .*change the shift. The entries of H are float32"
    ):
        hm.measurement.solve(DenseOperator(torch.from_numpy(matrix).float()), np.ones(3))


def test_arrays_in_float32_are_still_refused() -> None:
    """Whoever has the array can build it in float64; of an operator the problem says so in its notes."""
    with pytest.raises(InvalidInput, match="must be float64; got float32. Build it in float64"):
        hm.spectrum(np.eye(3, dtype=np.float32))


def test_spectra_that_were_stored_before_have_entries_in_float64() -> None:
    stored = hm.spectrum(np.eye(3)).to_dict()
    del stored["entries"]
    assert Spectrum.from_dict(stored).entries == "float64"
