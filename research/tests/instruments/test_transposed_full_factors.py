"""Correspondences and full factors of weights that are stored as inputs x outputs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hessmap.errors import UnsupportedNetwork
from hessmap.layers import layer_factors, layer_hessian
from hessmap_research.instruments.matricisation import full_factors, input_correspondence, output_correspondence
from transposed_problems import BUILDS, REPEATED, problem_of


@pytest.mark.parametrize("name", ["embedding", "bag of sums", "projection"])
def test_correspondences_keep_inputs_and_outputs_apart(name: str) -> None:
    problem = problem_of(BUILDS[name])
    factors = layer_factors(problem, "words")
    vectors = np.linalg.eigh(layer_hessian(problem, "words").to_dense().numpy())[1]
    inputs = output_correspondence(vectors, torch.linalg.eigh(factors.input_factor)[1])
    outputs = input_correspondence(vectors, torch.linalg.eigh(factors.output_factor)[1])
    assert inputs.sum(1) == pytest.approx(np.full(len(factors.input_factor), len(factors.output_factor)))
    assert outputs.sum(1) == pytest.approx(np.full(len(factors.output_factor), len(factors.input_factor)))


@pytest.mark.parametrize("name", REPEATED)
def test_an_embedding_that_acts_twice_has_no_full_factors(name: str) -> None:
    with pytest.raises(UnsupportedNetwork, match="parameter 'words.weight' belongs to none"):
        full_factors(problem_of(REPEATED[name]))


@pytest.mark.parametrize("name", BUILDS)
def test_full_factors_need_linear_layers(name: str) -> None:
    with pytest.raises(UnsupportedNetwork, match="full factors need linear layers that act once per sample"):
        full_factors(problem_of(BUILDS[name]))
