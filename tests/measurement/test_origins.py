"""Measurements say where their numbers come from, and refuse numbers that are not exact where exactness is claimed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.records import Spectrum


def problem() -> hm.Problem:
    net = hm.FullyConnected((3, 4, 2), activation="tanh")
    return hm.Problem(net.build(dtype=torch.float32), "squared", *hm.datasets.gaussian(6, 3, 2), l2=0.5)


@pytest.mark.parametrize("measure", [hm.spectrum, hm.numerical_rank])
def test_what_is_read_off_a_hessian_carries_its_data_and_its_notes(measure):
    subject = problem()
    hessian = hm.loss_hessian(subject)
    for origin in (measure(hessian).provenance, measure(hessian.block("0.weight")).provenance):
        assert origin.data_hash == subject.data_hash
        assert any("promoted from float32" in note for note in origin.notes)
        assert any("from l2=0.5" in note for note in origin.notes)
        assert origin.versions["torch"].startswith("2.")
    again = type(measure(hessian)).from_json(measure(hessian).to_json())
    assert again.provenance.data_hash == subject.data_hash


def test_what_is_read_off_a_matrix_carries_versions_and_time():
    for found in (hm.spectrum(np.eye(2)), hm.numerical_rank(np.eye(2)), hm.numerical_rank(np.ones((2, 3)))):
        assert found.provenance.created.endswith("Z")
        assert found.provenance.data_hash is None


def test_a_rank_read_off_a_spectrum_keeps_the_origin_of_the_spectrum():
    found: Spectrum = hm.spectrum(hm.loss_hessian(problem()))
    assert hm.numerical_rank(found).provenance == found.provenance


def test_integers_that_float64_rounds_have_no_certified_rank():
    rows = np.array([[2**53 + 1, 2**53], [1, 1]])  # rank 2, rounded to rank 1
    with pytest.raises(InvalidInput, match=r"an integer above 2\^53 has no float64"):
        hm.exact.certified_matrix_rank(rows)
    assert hm.exact.certified_matrix_rank(np.array([[2**53 - 1, 2**53 - 2], [1, 1]])).value == 2


@pytest.mark.parametrize("name", ["input_rank", "residual_rank", "centred_input_rank", "num_samples"])
@pytest.mark.parametrize("value", [2.0, "2"])
def test_generic_rank_refuses_what_is_no_integer(name, value):
    with pytest.raises(InvalidInput, match=f"{name} must be an integer; got {value!r}"):
        hm.generic_rank(hm.FullyConnected((3, 4, 2)), **{name: value})


def test_generic_rank_refuses_a_text_for_a_truth_value():
    with pytest.raises(InvalidInput, match="mean_residual_is_zero must be True or False; got 'no'"):
        hm.generic_rank(hm.FullyConnected((3, 4, 2)), mean_residual_is_zero="no")
