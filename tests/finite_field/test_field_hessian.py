"""Every entry of the Hessians over GF(P) against integer Hessians by automatic differentiation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from integer_networks import EXACT_BELOW, integer_data, integer_network, naive_hessians, with_integers
from torch import Tensor, nn

from hessmap.errors import TooLarge
from hessmap.exact import hessian as hessian_module
from hessmap.exact.certified import exact_problem
from hessmap.exact.evaluation import evaluate, signs
from hessmap.exact.field import FieldArray, PrimeField, from_floats
from hessmap.exact.hessian import OutputDerivatives, field_hessian
from hessmap.exact.network import Affine, Chain, LeakyRelu, in_field
from hessmap.linalg import devices
from hessmap.networks import Polynomial, PolynomialActivation
from hessmap.problem.problem import Problem
from hessmap.records import PARTS, Part

FIELD = PrimeField(2**62 - 57)
CUBIC = PolynomialActivation(Polynomial((1, -1, 0.5, 2)))


def tied() -> nn.Module:
    """One module called twice, and a weight shared with another module."""
    twice, other = nn.Linear(3, 3, dtype=torch.float64), nn.Linear(3, 3, bias=False, dtype=torch.float64)
    other.weight = twice.weight
    return nn.Sequential(twice, nn.ReLU(), twice, nn.Identity(), other, nn.Linear(3, 2, dtype=torch.float64))


def odd_order() -> nn.Module:
    """Activations first, last and in a row, linear layers in a row, nested, flattened, a dropout that is off."""
    inner = nn.Sequential(nn.Linear(4, 3, dtype=torch.float64), nn.Linear(3, 4, bias=False, dtype=torch.float64))
    quadratic = PolynomialActivation(Polynomial((0, 1, 1)))
    last = nn.Linear(4, 3, dtype=torch.float64)
    return nn.Sequential(nn.Flatten(), nn.ReLU(), inner, nn.LeakyReLU(0.5), quadratic, nn.Dropout(0), last, nn.ReLU())


def frozen() -> nn.Module:
    model = integer_network((4, 3, 3, 2), nn.ReLU(), bias=True, seed=2)
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "one layer": (lambda: integer_network((3, 2), None, bias=True, seed=0), 3, 2),
    "linear": (lambda: integer_network((4, 3, 2, 3), None, bias=False, seed=0), 4, 3),
    "linear with bias": (lambda: integer_network((3, 2, 3, 2), None, bias=True, seed=1), 3, 2),
    "relu": (lambda: integer_network((4, 5, 3, 2), nn.ReLU(), bias=False, seed=2), 4, 2),
    "relu with bias": (lambda: integer_network((4, 5, 4, 2), nn.ReLU(), bias=True, seed=3), 4, 2),
    "leaky relu": (lambda: integer_network((3, 4, 3, 2), nn.LeakyReLU(0.25), bias=True, seed=4), 3, 2),
    "polynomial": (lambda: integer_network((2, 3, 2), CUBIC, bias=False, seed=5), 2, 2),
    "deep polynomial": (
        lambda: integer_network((2, 2, 2, 2), PolynomialActivation(Polynomial((1, 0, 1))), bias=True, seed=6),
        2,
        2,
    ),
    "tied": (lambda: with_integers(tied(), 7, largest=2), 3, 2),
    "odd order": (lambda: with_integers(odd_order(), 8, largest=1), 4, 3),
    "frozen": (frozen, 4, 2),
}


def residues(matrix: Tensor, scale: int) -> np.ndarray:
    """A dyadic matrix modulo the prime, after a check that float64 held it exactly."""
    assert float((matrix * scale).abs().max()) < EXACT_BELOW
    assert torch.equal(matrix * scale, (matrix * scale).round())
    return from_floats(FIELD, matrix.numpy()).residues


def assert_equal(found: FieldArray, expected: Tensor, scale: int = 2**10) -> None:
    np.testing.assert_array_equal(found.residues, residues(expected, scale))
    assert float(expected.abs().max()) <= 2.0**found.height.magnitude_bits
    cleared = expected * 2.0**found.height.denominator_bits
    assert torch.equal(cleared, cleared.round())


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_entry_equals_the_integer_hessian(name: str, part: Part) -> None:
    build, input_dim, output_dim = NETWORKS[name]
    problem = Problem(build(), "squared", *integer_data(7, input_dim, output_dim, seed=3))
    found = exact_problem(problem, FIELD).hessian(part)
    assert found.residues.any() or (name, part) == ("one layer", "functional")
    assert_equal(found, naive_hessians(problem)[part])


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["linear", "relu with bias", "deep polynomial"])
def test_unequal_weights_enter_as_they_are(name: str, part: Part) -> None:
    build, input_dim, output_dim = NETWORKS[name]
    weights = torch.tensor([1.0, 3.0, 0.0, 2.0, 2.0])
    problem = Problem(build(), "squared", *integer_data(5, input_dim, output_dim, seed=4), weights=weights)
    found = exact_problem(problem, FIELD).hessian(part)
    assert_equal(found, naive_hessians(problem, problem.weights)[part])


@pytest.mark.parametrize("weights", [None, torch.tensor([1.0, 1.0, 2.0, 4.0])], ids=["equal", "unequal"])
def test_l2_adds_to_the_loss_hessian_in_proportion_to_the_weights(weights: Tensor | None) -> None:
    data = integer_data(4, 3, 2, seed=5)
    build = NETWORKS["linear with bias"][0]
    plain, penal = (Problem(build(), "squared", *data, weights=weights, l2=l2) for l2 in (0.0, 0.75))
    # Equal weights count one each, a multiple N of the mean; unequal ones are the mean's own.
    penalty = 2 * 0.75 * torch.eye(plain.num_parameters, dtype=torch.float64) * (4 if weights is None else 1)
    naive = naive_hessians(plain, None if weights is None else plain.weights)
    assert_equal(exact_problem(penal, FIELD).hessian("loss"), naive["loss"] + penalty)
    assert_equal(exact_problem(penal, FIELD).hessian("functional"), naive["functional"])


@pytest.mark.parametrize("name", ["linear", "relu", "odd order", "deep polynomial"])
def test_the_split_into_chunks_does_not_matter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, input_dim, output_dim = NETWORKS[name]
    problem = Problem(build(), "squared", *integer_data(9, input_dim, output_dim, seed=6))
    whole = exact_problem(problem, FIELD).hessian("loss").residues
    monkeypatch.setattr(hessian_module, "_CHUNK_NUMBERS", 2 * 5**2)
    np.testing.assert_array_equal(exact_problem(problem, FIELD).hessian("loss").residues, whole)


@pytest.mark.parametrize("part", PARTS)
def test_a_convolution_is_an_affine_layer_with_repeated_positions(part: Part) -> None:
    """Two filters of size 3 on 6 inputs, four places each: one parameter stands in four places, zeros in all others."""
    model = nn.Sequential(
        nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3, bias=False), nn.Flatten(), nn.ReLU(), nn.Linear(8, 2, bias=False)
    ).double()
    problem = Problem(with_integers(model, 9), "squared", *integer_data(5, 6, 2, seed=9))
    expanded, positions = np.zeros((8, 6)), np.full((8, 6), -1)
    for channel, place, tap in np.ndindex(2, 4, 3):
        expanded[4 * channel + place, place + tap] = problem.parameters[3 * channel + tap]
        positions[4 * channel + place, place + tap] = 3 * channel + tap
    dense = Affine(problem.parameters[6:].numpy().reshape(2, 8), np.arange(6, 22).reshape(2, 8), has_bias=False)
    chain = Chain((Affine(expanded, positions, has_bias=False), dense), (LeakyRelu(),), problem.num_parameters)
    inputs, targets = problem.inputs.numpy(), problem.targets.numpy()
    exact = in_field(chain, FIELD)
    evaluation = evaluate(exact, from_floats(FIELD, inputs), signs(chain, inputs).patterns)
    derivatives = OutputDerivatives(evaluation.outputs - from_floats(FIELD, targets))
    assert_equal(field_hessian(exact, evaluation, derivatives, part), naive_hessians(problem)[part])


def test_labels_are_one_hot() -> None:
    inputs, _ = integer_data(6, 4, 3, seed=7)
    build = NETWORKS["linear"][0]
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    problem = Problem(build(), "squared", inputs, labels)
    by_hand = Problem(build(), "squared", inputs, torch.eye(3, dtype=torch.float64)[labels])
    found = exact_problem(problem, FIELD).hessian("functional")
    assert_equal(found, naive_hessians(by_hand)["functional"])


def test_a_matrix_beyond_the_memory_is_refused_with_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    build, input_dim, output_dim = NETWORKS["linear"]
    problem = Problem(build(), "squared", *integer_data(4, input_dim, output_dim, seed=8))
    monkeypatch.setattr(devices, "available_bytes", lambda device: 8 * problem.num_parameters**2)
    with pytest.raises(TooLarge, match=r"the Hessian over GF\(P\) must fit into memory.*Use numerical_rank"):
        exact_problem(problem, FIELD).hessian("loss")
