"""Parts of weights against projections onto dense eigenvectors; parts add up; masses; losses of the parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput


@pytest.fixture(scope="module")
def problem() -> hm.Problem:
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(25, 1, 5, 5, generator=generator, dtype=torch.float64)
    labels = torch.randint(3, (25,), generator=generator)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(32, 3)).double()
    return hm.Problem(model, "cross_entropy", inputs, labels)


def weights_of(problem: hm.Problem, layer: str) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in problem.named.items() if name.rpartition(".")[0] == layer}


@pytest.mark.parametrize("curvature", ["kfac", "ekfac", "best", "block", "diagonal"])
@pytest.mark.parametrize("layer", ["0", "3"])
@pytest.mark.parametrize("keep", [0.3, 0.8])
def test_the_kept_part_is_the_projection_onto_the_leading_dense_eigenvectors(
    problem: hm.Problem, curvature: str, layer: str, keep: float
) -> None:
    found = hm.curvature_projection(problem, layer, keep, curvature=curvature)  # type: ignore[arg-type]
    places = torch.cat(
        [torch.arange(problem.num_parameters)[problem.layout[name]] for name in weights_of(problem, layer)]
    )
    dense = hm.kronecker_curvature(problem, curvature).to_dense()[places][:, places]  # type: ignore[arg-type]
    values, vectors = torch.linalg.eigh(dense)
    values, vectors = values.flip(0), vectors.flip(1)
    shares = values.cumsum(0) / values.sum()
    count = int((shares < keep).sum()) + 1
    assert values[count - 1] - values[count] > 1e-9 * values[0]  # the leading space is unique
    leading = vectors[:, :count]
    weights = problem.parameters[places]
    expected = leading @ (leading.T @ weights)
    kept = np.concatenate([part.kept.ravel() for part in found.parts])
    np.testing.assert_allclose(kept, expected.numpy(), atol=1e-8)
    assert found.num_kept == count
    assert found.kept_mass == pytest.approx(float(shares[count - 1]))
    assert found.kept_norm_share == pytest.approx(float(expected.square().sum() / weights.square().sum()), rel=1e-6)
    np.testing.assert_allclose(found.eigenvalues, values.clamp_min(0).numpy(), atol=1e-10 * float(values[0]))
    size = np.square(found.components[:count]).sum()
    assert size == pytest.approx(float(expected.square().sum()), rel=1e-6)


@pytest.mark.parametrize("curvature", ["kfac", "block", "diagonal"])
def test_the_parts_add_up_to_the_weights(problem: hm.Problem, curvature: str) -> None:
    found = hm.curvature_projection(problem, "3", 0.5, curvature=curvature)  # type: ignore[arg-type]
    assert [part.name for part in found.parts] == ["3.weight", "3.bias"]
    for part in found.parts:
        np.testing.assert_allclose(part.kept + part.rest, weights_of(problem, "3")[part.name], rtol=0, atol=5e-16)
        assert part.kept.shape == weights_of(problem, "3")[part.name].shape


def test_losses_are_those_of_the_parts_alone(problem: hm.Problem) -> None:
    found = hm.curvature_projection(problem, "3", 0.6)
    for risk, field in ((found.risk_of_kept, "kept"), (found.risk_of_rest, "rest")):
        model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Tanh(), nn.Flatten(), nn.Linear(32, 3)).double()
        state = problem.model.state_dict() | {part.name: torch.tensor(getattr(part, field)) for part in found.parts}
        model.load_state_dict(state)
        expected = hm.Problem(model, "cross_entropy", problem.inputs, problem.targets).risk()
        assert risk == pytest.approx(expected, rel=1e-12)
    assert found.risk == pytest.approx(problem.risk())


def test_everything_is_kept_at_a_share_of_one_where_all_eigenvalues_are_positive(problem: hm.Problem) -> None:
    found = hm.curvature_projection(problem, "0", 1.0)
    assert found.num_kept == found.num_components
    assert found.risk_of_kept == pytest.approx(found.risk, rel=1e-9)
    fewer = hm.curvature_projection(problem, "0", 0.5)
    assert fewer.num_kept < found.num_kept


def test_a_curvature_is_used_for_several_layers_and_json_keeps_the_record(problem: hm.Problem) -> None:
    curvature = hm.kronecker_curvature(problem, "ekfac")
    for layer in ("0", "3"):
        shared = hm.curvature_projection(problem, layer, curvature=curvature)
        assert shared == hm.curvature_projection(problem, layer, curvature="ekfac")
        assert hm.records.CurvatureProjection.from_json(shared.to_json()) == shared
    assert hm.curvature_projection(problem, "0.weight").num_kept == hm.curvature_projection(problem, "0").num_kept


def test_invalid_arguments_raise(problem: hm.Problem) -> None:
    for keep in (0, 1.5, "most"):
        with pytest.raises(InvalidInput, match="keep"):
            hm.curvature_projection(problem, "0", keep)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="9"):
        hm.curvature_projection(problem, "9")
    with pytest.raises(InvalidInput, match="curvature"):
        hm.curvature_projection(problem, "0", curvature="hessian")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="negative"):
        hm.curvature_projection(problem, "0", curvature=hm.kronecker_curvature(problem, "block", part="loss"))
    other = hm.Problem(nn.Linear(2, 2), "squared", torch.randn(3, 2), torch.randn(3, 2))
    with pytest.raises(InvalidInput, match="names or shapes"):
        hm.curvature_projection(problem, "0", curvature=hm.kronecker_curvature(other))
