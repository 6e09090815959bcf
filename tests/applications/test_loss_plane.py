"""Losses on planes against direct evaluation, exactness on quadratics, orthonormal directions, barriers."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hessmap as hm
from hessmap.applications import filter_normalised_directions
from hessmap.errors import InvalidInput


def classifier(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(3, (30,), generator=generator)


@pytest.fixture(scope="module")
def problem(data: tuple[Tensor, Tensor]) -> hm.Problem:
    return hm.Problem(classifier(0), "cross_entropy", *data)


def quadratic_problem() -> hm.Problem:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    targets = torch.randn(20, 2, generator=generator, dtype=torch.float64)
    torch.manual_seed(2)
    return hm.Problem(nn.Linear(4, 2), "squared", inputs, targets, l2=0.05)


@pytest.mark.parametrize("directions", ["sharpest", "random"])
@pytest.mark.parametrize("dimensions", [1, 2])
def test_the_quadratic_model_is_the_loss_where_that_is_quadratic(directions: str, dimensions: int) -> None:
    plane = hm.loss_plane(quadratic_problem(), directions, dimensions=dimensions, extent=3.0)  # type: ignore[arg-type]
    assert plane.quadratic is not None
    assert plane.loss.shape == (41,) if dimensions == 1 else (21, 21)
    np.testing.assert_allclose(plane.quadratic, plane.loss, rtol=1e-10)
    assert plane.explained == pytest.approx(1.0, abs=1e-12)
    assert plane.orthogonality_error is not None
    assert plane.orthogonality_error < 1e-12


def test_losses_are_those_of_models_with_the_moved_weights(problem: hm.Problem, data: tuple[Tensor, Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, problem.num_parameters, generator=generator, dtype=torch.float64)
    plane = hm.loss_plane(problem, list(vectors), extent=(-0.5, 1.0), num_points=4)
    model = classifier(0)
    for i, first in enumerate(plane.coordinates[0]):
        for j, second in enumerate(plane.coordinates[1]):
            moved = problem.parameters + first * vectors[0] + second * vectors[1]
            nn.utils.vector_to_parameters(moved, model.parameters())
            expected = float(cross_entropy(model(data[0]), data[1]).detach())
            assert plane.loss[i, j] == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(plane.norms, vectors.norm(dim=1).numpy(), rtol=1e-12)
    matrix = hm.loss_plane(problem, vectors.T, extent=(-0.5, 1.0), num_points=4)
    np.testing.assert_allclose(matrix.loss, plane.loss, rtol=1e-14)


def test_the_quadratic_model_is_that_of_dense_derivatives(problem: hm.Problem) -> None:
    plane = hm.loss_plane(problem, "random", num_points=3, extent=0.2)
    basis = filter_normalised_directions(problem)

    def risk(flat: Tensor) -> Tensor:
        return cross_entropy(problem.function(problem.inputs)(flat), problem.targets)

    gradient, hessian = torch.func.grad(risk)(problem.parameters), torch.func.hessian(risk)(problem.parameters)
    for i, first in enumerate(plane.coordinates[0]):
        for j, second in enumerate(plane.coordinates[1]):
            step = basis @ torch.tensor([first, second], dtype=torch.float64)
            assert plane.quadratic is not None
            expected = problem.risk() + float(gradient @ step + step @ hessian @ step / 2)
            assert plane.quadratic[i, j] == pytest.approx(expected, rel=1e-9)


def test_sharpest_directions_have_the_largest_eigenvalues(problem: hm.Problem) -> None:
    plane = hm.loss_plane(problem, num_points=3)
    values = torch.linalg.eigvalsh(hm.loss_hessian(problem).to_dense()).flip(0)[:2].numpy()
    np.testing.assert_allclose(plane.curvature, np.diag(values), atol=1e-7)
    assert plane.converged
    ends = [axis[-1] for axis in plane.coordinates]
    np.testing.assert_allclose(values / 2 * np.square(ends), plane.risk, rtol=1e-6)


def test_explained_is_the_coefficient_of_determination(problem: hm.Problem) -> None:
    plane = hm.loss_plane(problem, "random", num_points=7)
    assert plane.quadratic is not None
    rest = ((plane.loss - plane.quadratic) ** 2).mean()
    assert plane.explained == pytest.approx(1 - rest / plane.loss.var(), rel=1e-10)


def test_random_directions_are_filter_normalised_and_orthonormal() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4)).double()
    problem = hm.Problem(model, "cross_entropy", torch.randn(5, 2, 4, 4), torch.randint(4, (5,)))
    basis = filter_normalised_directions(problem, 3, seed=5)
    assert float((basis.T @ basis - torch.eye(3)).abs().max()) < 1e-12
    first = basis[:, 0]
    weights = [value for value in problem.named.values() if value.ndim > 1]
    reach = torch.cat([value.flatten() for value in weights]).norm()
    for name, value in problem.named.items():
        part = (reach * first[problem.layout[name]]).reshape(value.shape)
        if value.ndim == 1:
            assert not part.any()
        else:
            np.testing.assert_allclose(part.flatten(1).norm(dim=1), value.flatten(1).norm(dim=1), rtol=1e-10)
    assert torch.equal(basis, filter_normalised_directions(problem, 3, seed=5))
    assert not torch.allclose(basis, filter_normalised_directions(problem, 3, seed=6))
    assert hm.loss_plane(problem, "random", num_points=3).coordinates[0][-1] == pytest.approx(float(reach))


def test_the_barrier_agrees_with_direct_evaluation(problem: hm.Problem, data: tuple[Tensor, Tensor]) -> None:
    other = classifier(1)
    plane = hm.loss_plane(problem, other)
    assert plane.barrier is not None
    assert plane.labels == ("from the problem's model (0) to the other one (1)",)
    assert plane.barrier.end == pytest.approx(hm.Problem(other, "cross_entropy", *data).risk(), rel=1e-12)
    assert plane.barrier.start == pytest.approx(problem.risk(), rel=1e-12)
    model, heights = classifier(0), []
    own = [parameter.detach().clone() for parameter in model.parameters()]
    for share in np.linspace(0, 1, 41):
        with torch.no_grad():
            for parameter, start, end in zip(model.parameters(), own, other.parameters(), strict=True):
                parameter.copy_((1 - share) * start + share * end)
            value = float(cross_entropy(model(data[0]), data[1]))
        heights.append(value - (1 - share) * plane.barrier.start - share * plane.barrier.end)
    assert plane.barrier.height == pytest.approx(max(heights), abs=1e-12)
    assert plane.barrier.position == pytest.approx(np.argmax(heights) / 40)
    assert plane.explained is not None
    assert hm.loss_plane(problem, other, extent=(0.1, 1.0)).barrier is None


def test_a_line_between_two_minima_of_a_quadratic_has_no_barrier() -> None:
    problem = quadratic_problem()
    other = nn.Linear(4, 2).double()
    plane = hm.loss_plane(problem, other)
    assert plane.barrier is not None
    assert plane.barrier.height == pytest.approx(0.0, abs=1e-12)  # convex


def test_batch_norm_statistics_are_interpolated_with_the_weights() -> None:
    def network(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
        model(torch.randn(50, 4) + seed)
        return model.eval()

    inputs, labels = torch.randn(30, 4), torch.randint(3, (30,))
    first, second = network(0), network(1)
    plane = hm.loss_plane(hm.Problem(first, "cross_entropy", inputs, labels), second, num_points=5)
    assert plane.barrier is not None
    assert plane.barrier.end == pytest.approx(hm.Problem(second, "cross_entropy", inputs, labels).risk(), rel=1e-9)
    assert plane.quadratic is None
    assert plane.explained is None
    middle = copy.deepcopy(first).double()
    state = {name: value.double() for name, value in first.state_dict().items()}
    for name, value in second.state_dict().items():
        state[name] = (state[name] + value.double()) / 2
    middle.load_state_dict(state)
    expected = float(cross_entropy(middle(inputs.double()), labels).detach())
    assert plane.loss[2] == pytest.approx(expected, rel=1e-9)


def test_a_plane_through_three_models_contains_them(problem: hm.Problem, data: tuple[Tensor, Tensor]) -> None:
    others = [classifier(1), classifier(2)]
    plane = hm.loss_plane(problem, others)
    assert plane.labels == ("to model 1", "to model 2")
    places = [int(np.argmin(np.abs(plane.coordinates[0] - value))) for value in (0.0, 1.0)]
    zero, one = places
    np.testing.assert_allclose(plane.coordinates[0][places], [0, 1], atol=1e-12)
    risks = [hm.Problem(other, "cross_entropy", *data).risk() for other in others]
    assert [plane.loss[one, zero], plane.loss[zero, one]] == pytest.approx(risks, rel=1e-9)
    assert plane.loss[zero, zero] == pytest.approx(problem.risk(), rel=1e-9)


def test_objectives_have_planes(problem: hm.Problem, data: tuple[Tensor, Tensor]) -> None:
    objective = hm.Problem(
        classifier(0), objective=lambda model, batch: cross_entropy(model(batch[0]), batch[1]), data=[data]
    )
    for directions in ("random", classifier(1)):
        one, two = (hm.loss_plane(item, directions, num_points=3) for item in (problem, objective))  # type: ignore[arg-type]
        np.testing.assert_allclose(one.loss, two.loss, rtol=1e-9)
        assert one.quadratic is not None
        assert two.quadratic is not None
        np.testing.assert_allclose(one.quadratic, two.quadratic, rtol=1e-7)


def test_infinite_losses_are_counted_and_left_out() -> None:
    model = nn.Linear(2, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    problem = hm.Problem(model, objective=lambda model, batch: model(batch).log().mean(), data=[torch.ones(3, 2)])
    plane = hm.loss_plane(problem, torch.ones(2), num_points=5, extent=2.0)
    assert plane.num_not_finite == 2  # log(-2) and log(0)
    assert plane.explained is not None


def test_a_plane_goes_through_json(problem: hm.Problem) -> None:
    for plane in (hm.loss_plane(problem, num_points=3), hm.loss_plane(problem, classifier(1), num_points=3)):
        assert hm.records.LossPlane.from_json(plane.to_json()) == plane


@pytest.mark.parametrize(
    ("directions", "message"),
    [
        ("flattest", "sharpest"),
        (torch.ones(3), "43 numbers"),
        (torch.zeros(43), "zero"),
        (nn.Linear(2, 2), "has no"),
        (nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4)), "shape"),
        ([], "0 items"),
        (3, "got 3"),
    ],
)
def test_directions_are_checked(problem: hm.Problem, directions: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        hm.loss_plane(problem, directions)  # type: ignore[arg-type]


def test_a_plane_has_at_most_two_dimensions(problem: hm.Problem) -> None:
    for dimensions in (0, 3):
        with pytest.raises(InvalidInput, match="dimensions"):
            hm.loss_plane(problem, dimensions=dimensions)
    three = torch.eye(problem.num_parameters, 3, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="one or two directions"):
        hm.loss_plane(problem, three)


def test_parameters_that_are_not_differentiated_must_be_equal(data: tuple[Tensor, Tensor]) -> None:
    some = hm.Problem(classifier(0), "cross_entropy", *data, parameters="0")
    with pytest.raises(InvalidInput, match="not differentiated"):
        hm.loss_plane(some, classifier(1))
    with pytest.raises(InvalidInput, match="must differ"):
        hm.loss_plane(some, classifier(0))
