"""Convolutions, pools and patches over GF(P): every entry of the Hessians, and every pattern, against oracles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from integer_networks import naive_hessians, with_integers
from rational_oracle import rational_hessians
from test_field_hessian import assert_equal
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork
from hessmap.exact import certified_rank
from hessmap.exact import hessian as hessian_module
from hessmap.exact.certified import exact_problem
from hessmap.exact.field import PrimeField
from hessmap.measurement import numerical_rank
from hessmap.networks import Convolutional, LocallyConnected, Polynomial, PolynomialActivation
from hessmap.problem.problem import Problem
from hessmap.records import PARTS, Part

FIELD = PrimeField(2**62 - 57)
QUADRATIC = PolynomialActivation(Polynomial((0, 1, 1)))


def layers(*modules: nn.Module) -> Callable[[], nn.Sequential]:
    return lambda: nn.Sequential(*modules)


# Name: model, shape of a sample, number of outputs. Averages are over powers of two, which float64 holds exactly.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "conv": (layers(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(12, 2, bias=False)), (2, 5), 2),
    "deep linear": (
        layers(
            nn.Conv1d(1, 2, 3, bias=False), nn.Conv1d(2, 2, 2, bias=False), nn.Flatten(), nn.Linear(8, 2, bias=False)
        ),
        (1, 7),
        2,
    ),
    "stride, padding, dilation, groups": (
        layers(
            nn.Conv1d(2, 4, 2, stride=2, padding=1, dilation=2, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2)
        ),
        (2, 6),
        2,
    ),
    "circular": (
        layers(nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)),
        (1, 4),
        2,
    ),
    "same": (
        layers(nn.Conv2d(1, 2, (1, 3), padding="same"), nn.LeakyReLU(0.5), nn.Flatten(), nn.Linear(12, 2)),
        (1, 2, 3),
        2,
    ),
    "conv2d, relu, max-pool": (
        layers(
            nn.Conv2d(1, 2, 2),
            nn.ReLU(),
            nn.MaxPool2d(2, stride=1),
            nn.Conv2d(2, 2, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2, 2),
        ),
        (1, 4, 4),
        2,
    ),
    "max-pool behind the second": (
        layers(
            nn.Conv1d(1, 2, 2), nn.ReLU(), nn.Conv1d(2, 2, 2), nn.MaxPool1d(2, stride=1), nn.Flatten(), nn.Linear(6, 2)
        ),
        (1, 6),
        2,
    ),
    "max-pool with padding": (
        layers(nn.Conv1d(1, 2, 2), nn.MaxPool1d(3, stride=2, padding=1, ceil_mode=True), nn.Flatten(), nn.Linear(6, 2)),
        (1, 6),
        2,
    ),
    "pools at both ends": (
        layers(nn.MaxPool1d(2), nn.Conv1d(1, 3, 2, bias=False), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()),
        (1, 6),
        3,
    ),
    "average-pool": (
        layers(
            nn.Conv2d(1, 2, 2),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.LeakyReLU(0.25),
            nn.MaxPool2d((1, 2)),
            nn.Flatten(),
            nn.Linear(4, 2),
        ),
        (1, 5, 5),
        2,
    ),
    "adaptive average": (
        layers(nn.Conv1d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(4, 2)),
        (1, 5),
        2,
    ),
    "polynomial": (layers(nn.Conv1d(1, 2, 2), QUADRATIC, nn.Flatten(), nn.Linear(6, 2)), (1, 4), 2),
    "deep polynomial": (
        layers(
            nn.Conv1d(1, 2, 2),
            QUADRATIC,
            nn.Conv1d(2, 2, 2, bias=False),
            QUADRATIC,
            nn.Flatten(),
            nn.Linear(4, 1, bias=False),
        ),
        (1, 4),
        1,
    ),
    "linear first": (
        layers(nn.Linear(3, 6), nn.ReLU(), nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 2, 2), nn.Flatten(), nn.Linear(4, 2)),
        (3,),
        2,
    ),
    "tokens": (layers(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2), nn.Flatten(), nn.Linear(8, 2)), (4, 3), 2),
    "shared patches": (
        lambda: LocallyConnected(3, 2, 2, 2, shared_weights=True, activation="relu").build(),
        (6,),
        2,
    ),
    "own patches": (lambda: LocallyConnected(3, 2, 2, 2, activation="relu").build(), (6,), 2),
    "architecture": (
        lambda: Convolutional(6, (1, 2, 2), (3, 2), (1, 2), 2, True, "relu", (0, 1)).build(),
        (6,),
        2,
    ),
}


def integer_problem(name: str, num_samples: int = 6, **options: object) -> Problem:
    build, shape, output_dim = NETWORKS[name]
    model = with_integers(build().double(), seed=1, largest=2)
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randint(-3, 4, (num_samples, *shape), generator=generator).double()
    targets = torch.randint(-5, 6, (num_samples, output_dim), generator=generator).double()
    return Problem(model, "squared", inputs, targets, **options)  # type: ignore[arg-type]


def scale_of(name: str) -> int:
    """A power of two that clears the slopes and averages of the network from its Hessian."""
    return 2**3 if "polynomial" in name else 2**12


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_every_entry_equals_the_integer_hessian(name: str, part: Part) -> None:
    problem = integer_problem(name)
    found = exact_problem(problem, FIELD).hessian(part)
    assert found.residues.any() or (name, part) == ("pools at both ends", "functional")
    assert_equal(found, naive_hessians(problem)[part], scale_of(name))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["conv2d, relu, max-pool", "deep polynomial", "linear first", "tokens"])
def test_unequal_weights_and_chunks_change_nothing_else(name: str, part: Part, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = torch.tensor([1.0, 3.0, 0.0, 2.0, 2.0])
    problem = integer_problem(name, num_samples=5, weights=weights)
    monkeypatch.setattr(hessian_module, "_CHUNK_NUMBERS", 1)
    found = exact_problem(problem, FIELD).hessian(part)
    assert_equal(found, naive_hessians(problem, problem.weights)[part], scale_of(name))


RATIONAL_NETWORKS: dict[str, Callable[[], nn.Sequential]] = {
    "relu, max-pool": layers(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(2, 2)),
    "max-pool, relu, conv": layers(
        nn.Conv2d(1, 1, 2), nn.MaxPool2d(2, 1), nn.ReLU(), nn.Conv2d(1, 2, 1, bias=False), nn.Flatten(), nn.Linear(2, 2)
    ),
    "average over nine": layers(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(2, 2)),
    "relu behind an average over nine": layers(
        nn.Conv2d(1, 3, 1), nn.AvgPool2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(3, 2, bias=False)
    ),
}


def normal_images(model: nn.Module, shape: tuple[int, ...], num_samples: int, output_dim: int, seed: int) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    inputs = torch.randn(num_samples, *shape, generator=generator, dtype=torch.float64)
    targets = torch.randn(num_samples, output_dim, generator=generator, dtype=torch.float64)
    return Problem(model, "squared", inputs, targets)


@pytest.mark.parametrize("name", RATIONAL_NETWORKS)
def test_ranks_of_float_networks_are_those_of_their_rational_hessians(name: str) -> None:
    """Weights and data of 53 bits, few samples so that the rank is not full; ninths are exact in the field."""
    problem = normal_images(RATIONAL_NETWORKS[name](), (1, 3, 3), num_samples=3, output_dim=2, seed=4)
    expected = rational_hessians(problem.model, problem.inputs, problem.targets)
    exact = exact_problem(problem, FIELD)
    for part in PARTS:
        rows = expected[part].tolist()
        residues = [[int(x.p) * pow(int(x.q), -1, FIELD.prime) % FIELD.prime for x in row] for row in rows]
        np.testing.assert_array_equal(exact.hessian(part).residues, residues)
        assert certified_rank(problem, part).value == expected[part].rank()


def test_heights_bound_the_rational_entries_of_an_average_over_nine() -> None:
    problem = normal_images(RATIONAL_NETWORKS["average over nine"](), (1, 3, 3), num_samples=2, output_dim=2, seed=4)
    expected = rational_hessians(problem.model, problem.inputs, problem.targets)["loss"]
    height = exact_problem(problem, FIELD).hessian("loss").height
    denominators = [int(x.q) for row in expected.tolist() for x in row]
    odd = {q // (q & -q) for q in denominators}
    assert max(odd) > 1
    assert all(9**k % q == 0 for q in odd for k in [height.division_bits // 4])
    assert max(q & -q for q in denominators) <= 2**height.denominator_bits
    assert max(abs(x) for row in expected.tolist() for x in row) <= 2**height.magnitude_bits


def test_a_network_for_images_has_the_rank_of_its_float_hessian() -> None:
    """Two Conv2d with ReLU and max-pool on 8 x 8 images, as many samples as give neither full nor trivial rank."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 10),
    )
    problem = normal_images(model, (1, 8, 8), num_samples=30, output_dim=10, seed=0)
    found = certified_rank(problem, "outer_product")
    assert found.size == problem.num_parameters == 426
    hessian = naive_hessians(problem)["outer_product"]
    assert found.value == numerical_rank(hessian).value < found.size
    assert found.failure_bound < 1e-9


class Twice(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return 2 * inputs


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (nn.Sequential(nn.Conv2d(1, 1, 2), nn.BatchNorm2d(1), nn.Flatten()), (1, 2, 2), "layer 1 is BatchNorm2d"),
        (nn.Sequential(nn.Conv1d(1, 1, 2), nn.Tanh(), nn.Flatten()), (1, 2), "layer 1 is Tanh"),
        (nn.Sequential(nn.Conv1d(1, 1, 2), nn.LPPool1d(2, 1), nn.Flatten()), (1, 2), "layer 1 is LPPool1d"),
        (nn.Sequential(Twice(), nn.Flatten(), nn.Linear(2, 1)), (1, 2), "layer 0 is Twice"),
        (nn.Sequential(nn.ConvTranspose1d(1, 1, 1), nn.Flatten()), (1, 1), "layer 0 is ConvTranspose1d"),
    ],
)
def test_what_is_not_exact_is_refused_with_its_layer_and_what_to_use(
    model: nn.Module, shape: tuple[int, ...], message: str
) -> None:
    problem = Problem(model.double().eval(), "squared", torch.ones(2, *shape), torch.zeros(2, 1))
    with pytest.raises(UnsupportedNetwork, match=rf"convolution, pooling .*; {message}\. Use numerical_rank"):
        certified_rank(problem)
