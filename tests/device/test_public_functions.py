"""Every public function gives the same numbers on a device as on the host, to rounding.

The host is the oracle: its numbers are compared with closed forms and with plain autograd elsewhere. A function that
refuses a model must refuse it on both, in the same sentence.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import HessmapError, InvalidInput
from hessmap.hessians import exact_diagonal, tangent_kernel
from hessmap.layers import decoupling, downstream_weights, logit_gradients, mean_output_hessian
from hessmap.maps.learning import learning_coefficient_estimate
from hessmap.maps.track import track_checkpoints
from hessmap.measurement import diagonal_estimate

SAMPLES, CLASSES = 24, 3
ROUNDING = {"map without the dense Hessian": 1e-6}  # on devices its products are in float32, verified in float64


class Transformer(nn.Module):
    """One encoder layer over five tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(7, 4)
        self.block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.output = nn.Linear(4, CLASSES)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.output(self.block(self.tokens(numbers)).mean(1))


def mlp() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, CLASSES)), torch.randn(SAMPLES, 5)


def cnn() -> tuple[nn.Module, Tensor]:
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES)
    return nn.Sequential(*layers).eval(), torch.randn(SAMPLES, 1, 6, 6)


def transformer() -> tuple[nn.Module, Tensor]:
    return Transformer(), torch.randint(7, (SAMPLES, 5))


MODELS = {"mlp": mlp, "cnn": cnn, "transformer": transformer}


def problem_of(
    name: str, device: torch.device | str, dtype: torch.dtype | None = None, may_move: bool = False
) -> hm.Problem:
    """A small problem on a device; without ``may_move`` it is kept there."""
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    targets = torch.randint(CLASSES, (SAMPLES,))
    place = None if may_move else device
    data = inputs.to(device), targets.to(device)
    return hm.Problem(model.to(device), "cross_entropy", *data, dtype=dtype, device=place)


def ones(problem: hm.Problem) -> Tensor:
    return torch.ones(problem.num_parameters, dtype=problem.dtype, device=problem.device)


def by_layer(measure: Callable[[hm.Problem, str], Any]) -> Callable[[hm.Problem], list[Any]]:
    return lambda problem: [measure(problem, name) for name in hm.layer_names(problem)]


def last_layer(problem: hm.Problem) -> str:
    return hm.layer_names(problem)[-1]


def map_numbers(found: Any) -> list[Any]:
    """Risk, gradient, the spectra of the three Hessians or the top eigenvalues, and the factors of the layers."""
    network = found.network
    whole = [] if network.whole is None else [network.whole.eigenvalues, network.whole.trace.value]
    spectra = [part.spectrum.eigenvalues for part in network.parts]
    return [network.risk, network.gradient_norm, *whole, *spectra, len(network.layers)]


def costs_of(plan: hm.records.CompressionPlan) -> list[float]:
    """Predicted and measured costs of all layers and widths, and of the whole plan."""
    costs = [cost for layer in plan.layers for cost in layer.costs]
    both = [number for cost in costs for number in (cost.predicted_increase, cost.measured_increase)]
    return [*both, plan.joint_increase, plan.measured_increase]


def halved(model: nn.Module) -> nn.Module:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    return other


def merged(problem: hm.Problem) -> nn.Module:
    return hm.merge([problem.model, halved(problem.model)], [hm.kronecker_curvature(problem)] * 2, damping=0.1)


def tracked(problem: hm.Problem) -> list[Any]:
    """The curvature of a model before and after a step of its weights."""
    model, data = problem.model, (problem.samples.first[0], problem.samples.first[1])
    options = {"dtype": problem.dtype, "device": problem.device}
    tracker = hm.Tracker(model, "cross_entropy", data, share=None, count=2, tolerance=1e-8, **options)
    for step in range(2):
        tracker(step)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)
    return [part for point in tracker.track.points for part in (point.risk, point.eigenvalues, point.trace.value)]


def stepped(problem: hm.Problem, model: nn.Module | None = None) -> list[float]:
    """The numbers of the next step of Adam."""
    model = model or problem.model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, eps=1e-3)
    report = hm.step_report(problem, optimizer, model=model, batch_size=6, num_batches=3)
    names = ("sharpness", "preconditioned_sharpness", "batch_sharpness", "gradient_noise_scale", "predicted_change")
    found = [getattr(report, name).value for name in (*names, "measured_change", "critical_learning_rate")]
    return [*found, *report.layer_terms.terms]


CALLS: dict[str, Callable[[hm.Problem], Any]] = {
    "gradient": lambda problem: problem.gradient(),
    "product": lambda problem: hm.loss_hessian(problem) @ ones(problem),
    "block of products": lambda problem: hm.outer_product_hessian(problem) @ torch.stack([ones(problem)] * 3, 1),
    "loss_hessian": lambda problem: hm.loss_hessian(problem).to_dense(),
    "outer_product_hessian": lambda problem: hm.outer_product_hessian(problem).to_dense(),
    "functional_hessian": lambda problem: hm.functional_hessian(problem).to_dense(),
    "fisher": lambda problem: hm.fisher(problem).to_dense(),
    "output_jacobian": hm.output_jacobian,
    "tangent_kernel": tangent_kernel,
    "exact_diagonal": exact_diagonal,
    "spectrum": lambda problem: hm.spectrum(hm.loss_hessian(problem)).eigenvalues,
    "top_eigenpairs": lambda problem: (
        hm.top_eigenpairs(
            hm.loss_hessian(problem), 3, tolerance=1e-8 if problem.dtype == torch.float64 else None
        ).eigenvalues
    ),
    "sharpness": lambda problem: (
        hm.sharpness(hm.loss_hessian(problem), tolerance=1e-6 if problem.dtype == torch.float64 else None).value
    ),
    "trace_estimate": lambda problem: hm.trace_estimate(hm.loss_hessian(problem)).value,
    "diagonal_estimate": lambda problem: diagonal_estimate(hm.loss_hessian(problem)).values,
    "density_estimate": lambda problem: hm.density_estimate(hm.loss_hessian(problem)).density,
    "numerical_rank": lambda problem: hm.numerical_rank(hm.outer_product_hessian(problem)).value,
    "effective_dimension": lambda problem: hm.effective_dimension(hm.outer_product_hessian(problem), 0.1).value,
    "solve": lambda problem: hm.solve(hm.outer_product_hessian(problem), ones(problem), shift=1.0).solution,
    "layer_names": lambda problem: [len(name) for name in hm.layer_names(problem)],
    "layer_factors": by_layer(lambda problem, name: hm.layer_factors(problem, name).output_factor),
    "layer_hessian": by_layer(lambda problem, name: hm.layer_hessian(problem, name).to_dense()),
    "layer_eigenpairs": by_layer(
        lambda problem, name: (
            hm.layer_eigenpairs(
                hm.layer_hessian(problem, name), 2, tolerance=1e-8 if problem.dtype == torch.float64 else None
            ).eigenvalues
        )
    ),
    "kronecker_approximation": by_layer(lambda problem, name: hm.kronecker_approximation(problem, name).to_dense()),
    "decoupling": lambda problem: (
        decoupling(hm.layer_hessian(problem, last_layer(problem)), 2).expectation.frobenius_error
    ),
    "kronecker_curvature": lambda problem: hm.kronecker_curvature(problem) @ ones(problem),
    "kronecker_curvature, solve": lambda problem: hm.kronecker_curvature(problem, "ekfac").solve(
        problem.gradient(), damping=0.1
    ),
    "kronecker_curvature of the loss": lambda problem: hm.kronecker_curvature(problem, "block", part="loss").to_dense(),
    "sample_gradients": lambda problem: hm.sample_gradients(problem) @ ones(problem),
    "sample_gradients, transposed": lambda problem: hm.sample_gradients(problem).T @ problem.weights,
    "sample_gradients, rows": lambda problem: hm.sample_gradients(problem).gram(),
    "fisher_diagonal": lambda problem: list(hm.fisher_diagonal(problem).values()),
    "influence": lambda problem: (
        hm.influence(problem, problem, damping=0.1, correction="leverage", self_influence=True).scores
    ),
    "laplace": lambda problem: [
        hm.laplace(problem).predict(problem.inputs).covariance,
        hm.laplace(problem).optimal_prior().marginal_likelihood().value,
        hm.laplace(problem).sample(1, torch.Generator().manual_seed(0)),
    ],
    "merge": lambda problem: list(
        hm.merge(
            [problem.model, halved(problem.model)], [hm.kronecker_curvature(problem)] * 2, damping=0.1
        ).parameters()
    ),
    "ewc_penalty": lambda problem: hm.ewc_penalty(problem, "kfac")(halved(problem.model)),
    "compression_plan": lambda problem: costs_of(hm.compression_plan(problem, (3, 6), 4, sparsity=0.5)),
    "pruning_plan": lambda problem: hm.pruning_plan(problem, 0.3, "obs").scores,
    "curvature_projection": lambda problem: hm.curvature_projection(problem, last_layer(problem)).parts[0].kept,
    "loss_plane": lambda problem: hm.loss_plane(problem, "random", num_points=3).loss,
    "line to another model": lambda problem: hm.loss_plane(problem, halved(problem.model), num_points=3).loss,
    "logit_gradients": lambda problem: logit_gradients(problem, last_layer(problem)).means,
    "downstream_weights": lambda problem: downstream_weights(problem, hm.layer_names(problem)[0]).derivatives,
    "mean_output_hessian": mean_output_hessian,
    "map": lambda problem: map_numbers(hm.map(problem, seconds=None)),
    "map without the dense Hessian": lambda problem: map_numbers(hm.map(problem, dense=False, seconds=None)),
    "Tracker": lambda problem: tracked(problem),
    "step_report": stepped,
    "certified_rank": lambda problem: hm.certified_rank(problem, "loss").value,
    "function_rank": lambda problem: hm.function_rank(problem.model, problem.samples.first[0]).ranks,
    "learning_coefficient_estimate": lambda problem: (
        learning_coefficient_estimate(problem, num_chains=2, num_draws=20, num_burn_in=5, check_settings=False).value
    ),
}


def numbers(found: Any) -> np.ndarray:
    if isinstance(found, list | tuple):
        return np.concatenate([numbers(part) for part in found]) if found else np.zeros(0)
    if isinstance(found, Tensor):
        return found.detach().cpu().double().numpy().ravel()
    return np.asarray(found, dtype=np.float64).ravel()


def outcome(call: Callable[[hm.Problem], Any], problem: hm.Problem) -> np.ndarray | str:
    try:
        return numbers(call(problem))
    except HessmapError as error:
        return str(error)


def compare(call: str, model: str, device: torch.device, dtype: torch.dtype | None, rounding: float) -> None:
    expected = outcome(CALLS[call], problem_of(model, "cpu", dtype))
    found = outcome(CALLS[call], problem_of(model, device, dtype))
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    assert found.shape == expected.shape
    scale = np.abs(expected).max() if expected.size else 0.0
    np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding * scale)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("call", CALLS)
def test_a_device_gives_the_numbers_of_the_host(call: str, model: str, device: torch.device) -> None:
    if device.type == "mps":
        pytest.skip("MPS has no float64")
    compare(call, model, device, None, ROUNDING.get(call, 1e-9))


def test_certify_gives_the_bound_of_the_host(device: torch.device) -> None:
    def bound(place: torch.device | str) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)).to(place)
        data = torch.randn(SAMPLES, 5).to(place), torch.randint(2, (SAMPLES,)).to(place)
        found = hm.certify(model, halved(model), data, iterations=20, num_draws=10)
        return [found.bound, found.kl, found.held_out_bound]

    np.testing.assert_allclose(bound(device), bound("cpu"), rtol=1e-9)


def test_train_refuses_a_model_or_data_on_a_device(device: torch.device) -> None:
    torch.manual_seed(0)
    model, inputs = mlp()
    data = inputs, torch.randint(CLASSES, (SAMPLES,))
    with pytest.raises(InvalidInput, match="train needs a model and data on the CPU; got a tensor on"):
        hm.train(copy.deepcopy(model).to(device), data, epochs=1)
    with pytest.raises(InvalidInput, match="train needs a model and data on the CPU; got a tensor on"):
        hm.train(model, (data[0].to(device), data[1]), epochs=1)


def test_track_checkpoints_gives_the_points_of_the_host(device: torch.device, tmp_path: Path) -> None:
    def points(place: torch.device | str, store: Path) -> list[Any]:
        torch.manual_seed(0)
        model, inputs = mlp()
        data = inputs.to(place), torch.randint(CLASSES, (SAMPLES,)).to(place)
        files = {step: tmp_path / f"{step}.pt" for step in (1, 2)}
        for step, file in files.items():
            torch.save((model if step == 1 else halved(model)).state_dict(), file)
        track = track_checkpoints(model.to(place), files, "cross_entropy", data, name="points", store=store)
        return [part for point in track.points for part in (point.risk, point.eigenvalues, point.trace.value)]

    expected = numbers(points("cpu", tmp_path / "host"))
    found = numbers(points(device, tmp_path / "device"))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())
