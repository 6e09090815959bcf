"""Certified ranks against integer ranks, the known counterexamples, and the refusals."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import ANY

import numpy as np
import pytest
import torch
from integer_networks import integer_data, integer_network, integer_rank, naive_hessians
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from hessmap.errors import InvalidInput, UnknownName, UnsupportedNetwork
from hessmap.exact import certified_data_ranks, certified_matrix_rank, certified_rank
from hessmap.networks import FullyConnected, Polynomial, PolynomialActivation
from hessmap.problem.problem import Problem
from hessmap.records import PARTS, DataRanks, Part, RankCertificate

QUADRATIC = PolynomialActivation(Polynomial((0, 1, 0.5)))


def normal_problem(net: FullyConnected, num_samples: int, loss: str = "squared", seed: int = 0) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_samples, net.input_dim, dtype=torch.float64, generator=generator)
    targets = torch.randn(num_samples, net.output_dim, dtype=torch.float64, generator=generator)
    if loss == "cross_entropy":
        targets = targets.argmax(1)
    return Problem(net.build(seed=seed), loss, inputs, targets)


def with_weights(*matrices: list[list[float]]) -> nn.Sequential:
    layers = []
    for matrix in matrices:
        weight = torch.tensor(matrix, dtype=torch.float64)
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=torch.float64)
        layer.weight = nn.Parameter(weight)
        layers.append(layer)
    return nn.Sequential(*layers)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("widths", "activation", "bias", "num_samples"),
    [
        ((5, 3, 4), None, False, 3),
        ((4, 2, 3, 3), None, True, 9),
        ((4, 5, 3), nn.ReLU(), False, 5),
        ((3, 4, 3, 2), nn.ReLU(), True, 20),
        ((3, 4, 2), nn.LeakyReLU(0.25), True, 6),
        ((3, 4, 2), QUADRATIC, False, 4),
        ((2, 3, 2, 2), PolynomialActivation(Polynomial((1, 0, 1))), True, 3),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_the_rank_is_that_of_the_integer_hessian(
    widths: tuple[int, ...], activation: nn.Module | None, bias: bool, num_samples: int, part: Part
) -> None:
    for seed in range(3):
        model = integer_network(widths, activation, bias, seed)
        problem = Problem(model, "squared", *integer_data(num_samples, widths[0], widths[-1], seed))
        found = certified_rank(problem, part, seed=seed)
        assert found.value == integer_rank(naive_hessians(problem)[part], scale=2**10)
        assert found.size == problem.num_parameters
        assert 0 < found.failure_bound < 1e-12


@pytest.mark.parametrize(("input_rank", "residual_rank"), [(1, 1), (3, 2), (4, 4), (4, 0)])
def test_dyadic_data_of_given_rank_have_the_rank_of_the_formula(input_rank: int, residual_rank: int) -> None:
    """Linear networks: rk(H_o) = q0 (r + K - q0), rk(H_L) = rk(H_o) + 2 q M - (L - 1) q^2 (Singh, Bachmann & Hofmann
    2021, Theorem 3 and Fact 7, the latter corrected for s < q0), q0 = min(r, K, M_i), q = min(q0, s)."""
    net = FullyConnected((5, 6, 4))
    generator = np.random.default_rng(input_rank)
    factors = [generator.integers(-8, 9, size=shape) / 16 for shape in ((12, input_rank), (input_rank, 5))]
    inputs = factors[0] @ factors[1]  # exact: the factors have few bits
    model = net.build(seed=1)
    for layer in (model[0], model[2]):
        # Few-bit weights too, so that outputs and with them targets of given residuals are exact.
        layer.weight.data = (layer.weight.data * 16).round() / 16
    outputs = model(torch.from_numpy(inputs)).detach().numpy()
    residuals = generator.integers(-8, 9, size=(12, residual_rank)) @ generator.integers(-8, 9, size=(residual_rank, 4))
    problem = Problem(model, "squared", torch.from_numpy(inputs), torch.from_numpy(outputs - residuals))
    ranks = certified_data_ranks(problem)
    r, s, hidden, outputs_dim = input_rank, min(input_rank, residual_rank), 6, 4
    assert (ranks.input_rank, ranks.residual_rank) == (r, s)
    outer = min(r, 4) * (r + outputs_dim - min(r, 4))
    active = min(r, 4, s)
    assert certified_rank(problem, "outer_product").value == outer
    assert certified_rank(problem, "loss").value == outer + 2 * active * hidden - active**2
    assert certified_rank(problem, "functional").value == 2 * active * hidden + 2 * active * s - 2 * active**2


def test_weights_of_maximal_rank_are_not_enough_for_the_formula() -> None:
    """Singh, Bachmann & Hofmann 2021, Theorem 3 under assumption A1: 2-3-2-3-2 should have 4, these weights give 3."""
    model = with_weights(
        [[1, 0], [0, 1], [0, 0]], [[1, 0, 0], [0, 0, 1]], [[1, 0], [0, 0], [0, 1]], [[1, 0, 0], [0, 1, 0]]
    )
    inputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]])
    problem = Problem(model, "squared", inputs, torch.zeros(3, 2))
    assert certified_rank(problem, "outer_product").value == 3


@pytest.mark.parametrize(("factor", "rank"), [(3.0, 1), (2.5, 2)])
def test_a_special_residual_scale_loses_rank(factor: float, rank: int) -> None:
    """1-1-1 with target = factor * output: at factor 3, Omega = -2 w1 w2 Sxx and the determinant vanishes exactly."""
    inputs = torch.tensor([[1.0], [0.3], [-0.7]], dtype=torch.float64)
    few_bits = inputs.float().double()
    exact = Problem(with_weights([[0.5]], [[1.5]]), "squared", few_bits, factor * 0.75 * few_bits)
    assert certified_rank(exact).value == rank
    rounded = Problem(with_weights([[0.5]], [[1.5]]), "squared", inputs, factor * 0.75 * inputs)
    assert certified_rank(rounded).value == 2  # the product 2.25 * 0.3 rounds, and the coincidence is gone


def test_relu_ranks_exceed_the_linear_formulas() -> None:
    """Widths 4-5-2 and many samples: 25 and 30, where the linear formulas give 8 and 24: they are no upper bounds."""
    problem = normal_problem(FullyConnected((4, 5, 2), activation="relu"), num_samples=60)
    assert certified_rank(problem, "outer_product").value == 25
    assert certified_rank(problem, "loss").value == 30


def test_ties_follow_torch_and_are_counted() -> None:
    """A unit at exactly 0 has derivative 0: at the tie it is dead, so only the other unit contributes its two."""
    model = nn.Sequential(with_weights([[1, -1], [1, 1]])[0], nn.ReLU(), with_weights([[1, 1]])[0])
    problem = Problem(model, "squared", torch.tensor([[1.0, 1.0]]), torch.tensor([[7.0]]))
    found = certified_rank(problem, "loss")
    assert found.num_ties == 1
    assert found.value == integer_rank(naive_hessians(problem)["loss"]) == 2
    assert certified_rank(problem, "functional").value == integer_rank(naive_hessians(problem)["functional"]) == 2
    moved = Problem(model, "squared", torch.tensor([[1.0, 0.5]]), torch.tensor([[7.0]]))
    assert (certified_rank(moved, "functional").num_ties, certified_rank(moved, "functional").value) == (0, 4)


def test_float_products_lose_structural_rank_and_the_certificate_says_so() -> None:
    generator = np.random.default_rng(0)
    rounded = generator.normal(size=(9, 2)) @ generator.normal(size=(2, 7))
    assert np.linalg.matrix_rank(rounded) == 2
    assert certified_matrix_rank(rounded).value == 7
    dyadic = (generator.integers(-99, 99, size=(9, 2)) / 64) @ (generator.integers(-99, 99, size=(2, 7)) / 64)
    found = certified_matrix_rank(dyadic)
    assert (found.value, found.size, found.part) == (2, 7, None)


def test_l2_fills_the_rank_of_the_loss_hessian_alone() -> None:
    net = FullyConnected((4, 3, 2))
    inputs, targets = integer_data(6, 4, 2, seed=0)
    problem = Problem(net.build(seed=0), "squared", inputs, targets, l2=0.1)
    assert certified_rank(problem, "loss").value == net.num_parameters
    assert certified_rank(problem, "outer_product").value < net.num_parameters
    assert certified_rank(problem, "loss").provenance.notes == problem.notes


def data_problem(inputs: Tensor, residuals: Tensor) -> Problem:
    """One linear layer of zeros, so that the residuals are minus the targets."""
    model = nn.Linear(inputs.shape[1], residuals.shape[1], dtype=torch.float64)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    return Problem(model, "squared", inputs, -residuals)


def test_data_ranks_tell_centred_from_uncentred() -> None:
    inputs = torch.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 2.0]], dtype=torch.float64)
    residuals = torch.tensor([[1.0, 2.0], [-1.0, -2.0]], dtype=torch.float64)
    found = certified_data_ranks(data_problem(inputs, residuals))
    assert (found.input_rank, found.centred_input_rank) == (2, 1)
    assert (found.residual_rank, found.residual_rank_with_bias, found.mean_residual_is_zero) == (1, 1, True)
    moved = certified_data_ranks(data_problem(inputs, residuals + torch.tensor([1.0, 0.0])))
    assert (moved.residual_rank, moved.residual_rank_with_bias, moved.mean_residual_is_zero) == (2, 2, False)
    assert DataRanks.from_json(moved.to_json()) == moved


def test_data_ranks_of_centred_inputs_agree_with_the_fraction_rank() -> None:
    inputs = torch.tensor([[1.0, 2.0], [-1.0, -2.0], [2.0, 4.0], [-2.0, -4.0]], dtype=torch.float64)
    residuals = torch.tensor([[1.0], [1.0], [1.0], [1.0]], dtype=torch.float64)
    found = certified_data_ranks(data_problem(inputs, residuals))
    assert (found.input_rank, found.centred_input_rank) == (1, 1)
    assert (found.residual_rank, found.residual_rank_with_bias, found.mean_residual_is_zero) == (0, 1, False)
    assert 0 < found.failure_bound < 1e-14


def test_samples_without_weight_do_not_count() -> None:
    inputs, targets = integer_data(6, 4, 2, seed=1)
    weights = torch.tensor([1.0, 2.0, 0.0, 0.0, 0.0, 0.0])
    problem = Problem(FullyConnected((4, 3, 2)).build(seed=0), "squared", inputs, targets, weights=weights)
    assert certified_data_ranks(problem).input_rank == 2
    assert certified_rank(problem, "outer_product").value == 2 * (2 + 2 - 2)


def test_the_certificate_is_reproducible_and_survives_json() -> None:
    problem = normal_problem(FullyConnected((3, 4, 2), bias=True), num_samples=10)
    first, again = certified_rank(problem, seed=4), certified_rank(problem, seed=4)
    assert first == again
    assert first.prime != certified_rank(problem, seed=5).prime
    assert RankCertificate.from_json(first.to_json()) == first
    assert first.provenance.data_hash == problem.data_hash
    assert first.provenance.dtype == f"GF({first.prime})"


@pytest.mark.parametrize("activation", ["tanh", "erf", "elu", "gelu"])
def test_transcendental_activations_are_refused_with_what_to_use_instead(activation: str) -> None:
    problem = normal_problem(FullyConnected((3, 4, 2), activation=activation), num_samples=10)
    kind = type(problem.model[1]).__name__
    message = rf"exact arithmetic needs .* activations, .*; layer 1 is {kind}\. Use numerical_rank .* generic_rank"
    with pytest.raises(UnsupportedNetwork, match=message):
        certified_rank(problem)


@pytest.mark.parametrize("loss", ["cross_entropy", "log_cosh"])
def test_transcendental_losses_are_refused_with_what_to_use_instead(loss: str) -> None:
    problem = normal_problem(FullyConnected((3, 4, 2)), num_samples=10, loss=loss)
    message = rf"needs the squared loss, .*; the loss is '{loss}'\. Use numerical_rank .*, or generic_rank"
    with pytest.raises(UnsupportedNetwork, match=message):
        certified_rank(problem)


class Halved(nn.Sequential):
    """A Sequential whose hook changes what it computes."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 2, dtype=torch.float64))
        self[0].register_forward_hook(lambda module, inputs, outputs: outputs / 2)


def test_hooks_that_change_the_outputs_are_found() -> None:
    inputs, targets = integer_data(5, 3, 2, seed=0)
    with pytest.raises(UnsupportedNetwork, match=r"layer 0 \(Linear\) has forward hooks, .* Remove them first"):
        certified_rank(Problem(Halved(), "squared", inputs, targets))


def test_a_linear_layer_over_tokens_is_one_layer_on_many_patches() -> None:
    """Two outputs of one layer with bias: rank two if the tokens differ, one if they are equal."""
    model = nn.Sequential(nn.Linear(3, 1, dtype=torch.float64), nn.Flatten())
    inputs = torch.tensor([[[1.0, 0.0, 2.0], [2.0, 0.0, 4.0]]], dtype=torch.float64)
    assert certified_rank(Problem(model, "squared", inputs, torch.zeros(1, 2))).value == 2
    assert certified_rank(Problem(model, "squared", inputs[:, [0, 0]], torch.zeros(1, 2))).value == 1


def test_unknown_parts_and_shapes_are_named() -> None:
    problem = normal_problem(FullyConnected((3, 2)), num_samples=4)
    with pytest.raises(UnknownName, match="part must be one of outer_product, functional, loss; got 'outer'"):
        certified_rank(problem, "outer")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"a rank needs a matrix; got an array of shape \(3,\)"):
        certified_matrix_rank(np.zeros(3))


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.array([[1j, 0], [0, 1]]), "an exact rank needs real numbers; got complex128"),
        (np.array([["1"]]), "an exact rank needs real numbers"),
        (np.array([[2**53 + 1]]), "an integer above 2\\^53 has no float64"),
        (np.array([[np.nan]]), "needs finite numbers"),
    ],
)
def test_a_matrix_that_float64_does_not_hold_is_refused(matrix: np.ndarray, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        certified_matrix_rank(matrix)


def test_matrices_come_as_arrays_lists_or_tensors() -> None:
    rows = [[1, 2], [2, 4]]
    values = {certified_matrix_rank(matrix).value for matrix in (rows, np.array(rows), torch.tensor(rows))}
    assert values == {1}
    assert certified_matrix_rank(np.zeros((0, 3))).value == 0


def network(seed: int = 0) -> nn.Sequential:
    return FullyConnected((3, 4, 2), bias=True, activation="relu").build(seed=seed, dtype=torch.float32)


def samples(num_samples: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num_samples, 3, generator=generator), torch.randn(num_samples, 2, generator=generator)


@pytest.mark.parametrize("part", PARTS)
def test_a_rank_does_not_hang_on_how_the_data_come(part: Part) -> None:
    inputs, targets = samples()
    expected = certified_rank(Problem(network(), "squared", inputs, targets), part)
    assert certified_rank(Problem(network(), "squared", inputs, targets, dtype=torch.float32), part) == replace(
        expected, provenance=ANY
    )
    batches = [(inputs[:4], targets[:4]), (inputs[4:], targets[4:])]
    generator = torch.Generator().manual_seed(0)
    shuffled = DataLoader(TensorDataset(inputs, targets), batch_size=2, shuffle=True, generator=generator)
    for data in (batches, shuffled):
        assert certified_rank(Problem(network(), "squared", data), part).value == expected.value


def test_what_calls_the_model_in_another_way_is_refused() -> None:
    inputs, targets = samples()

    class Keyword(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)

    by_hand = Problem(network(), "squared", inputs, targets, forward=lambda model, batch: model(batch))
    with pytest.raises(UnsupportedNetwork, match=r"\(Sequential\) is called by a user-defined forward function"):
        certified_rank(by_hand)
    by_keyword = Problem(Keyword(*network()), "squared", {"x": inputs}, targets)
    with pytest.raises(UnsupportedNetwork, match=r"the model \(Keyword\) is called with a dict of tensors"):
        certified_rank(by_keyword)
    with pytest.raises(InvalidInput, match="needs a Problem; got None"):
        certified_rank(None)  # type: ignore[arg-type]
