"""Nothing of the public face moves a global random state: of python, of numpy, of torch."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap import datasets
from hessmap.theory import functions
from random_states import states


@cache
def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(24, 4, generator=generator, dtype=torch.float64)
    return inputs, torch.arange(24) % 3


def net(activation: str = "relu", seed: int = 0) -> nn.Module:
    return hm.FullyConnected((4, 5, 3), activation=activation, bias=True).build(seed=seed)


@cache
def problem(loss: str = "cross_entropy") -> Any:
    return hm.Problem(net(), loss, *data())


def hessian() -> Any:
    return hm.loss_hessian(problem())


def images() -> nn.Module:
    return hm.Convolutional(6, (1, 2), (3,), outputs=2).build(seed=0)


def certificate() -> Any:
    return hm.certify(net(), net(seed=1), data(), iterations=3, num_draws=50, basis_samples=10)


def map_of(seed: int) -> Any:
    return hm.map(net(seed=seed), data())


def tracker(folder: Any) -> Any:
    made = hm.Tracker(net(), "cross_entropy", data(), store=folder / "store.sqlite")
    made(1)
    return made


def loaded(folder: Any) -> Any:
    hm.spectrum(np.eye(3)).save(folder / "spectrum.json")
    return hm.load(folder / "spectrum.json")


def step_report() -> Any:
    model = net()
    given = hm.Problem(model, "cross_entropy", *data())
    return hm.step_report(given, torch.optim.Adam(model.parameters()), batch_size=8, num_batches=2)


def checkpoints(folder: Any) -> Any:
    torch.save(net().state_dict(), folder / "step-1.pt")
    return hm.maps.track.track_checkpoints(
        net(), [folder / "step-1.pt"], "cross_entropy", data(), store=folder / "store.sqlite"
    )


CASES: dict[str, Callable[..., Any]] = {
    "Convolutional": lambda: images(),
    "FullyConnected": lambda: [net(), hm.FullyConnected((2, 2)).build(seed=1, init="orthogonal")],
    "LocallyConnected": lambda: hm.networks.LocallyConnected(3, 2, 2, 2).build(seed=0),
    "describe": lambda: hm.describe(net()),
    "learning_coefficient": lambda: hm.learning_coefficient(hm.FullyConnected((4, 5, 3)), rank=2),
    "next_token": lambda: hm.next_token(),
    "learning_coefficient_estimate": lambda: hm.maps.learning.learning_coefficient_estimate(
        problem(), num_chains=2, num_draws=20, num_burn_in=10
    ),
    "certified_rank_bounds": lambda: hm.exact.certified_rank_bounds(problem(), "outer_product"),
    "certify_from_data": lambda: hm.certify_from_data(
        lambda: net(), data(), train=lambda model, part: model, posterior="prior"
    ),
    "Residual": lambda: hm.networks.Residual(3, 2).build(seed=0),
    "SelfAttention": lambda: hm.networks.SelfAttention(4, 2).build(seed=0),
    "predict_ranks": lambda: hm.predict_ranks(hm.FullyConnected((4, 5, 3))),
    "predict_spectrum": lambda: hm.predict_spectrum(hm.FullyConnected((4, 5, 3)), [1.0]),
    "effective_parameters": lambda: hm.effective_parameters(4, 5),
    "train": lambda: hm.train(nn.Sequential(net(), nn.Dropout(0.5)), data(), epochs=2, batch_size=5),
    "certify": lambda: certificate(),
    "Problem": lambda: hm.Problem(net(), "squared", *data()).risk(),
    "fisher": lambda: hm.fisher(problem()).to_dense(),
    "empirical_fisher": lambda: hm.hessians.empirical_fisher(problem()).to_dense(),
    "loss_hessian": lambda: hm.loss_hessian(problem()).to_dense(),
    "outer_product_hessian": lambda: hm.outer_product_hessian(problem()).to_dense(),
    "functional_hessian": lambda: hm.functional_hessian(problem()).to_dense(),
    "output_jacobian": lambda: hm.output_jacobian(problem()),
    "tangent_kernel": lambda: hm.hessians.tangent_kernel(problem()),
    "kronecker_approximation": lambda: hm.kronecker_approximation(problem(), "0"),
    "kronecker_curvature": lambda: hm.kronecker_curvature(problem()),
    "kronecker_error": lambda: hm.kronecker_error(problem(), hm.kronecker_curvature(problem())),
    "sample_gradients": lambda: hm.sample_gradients(problem()).gram(),
    "fisher_diagonal": lambda: hm.fisher_diagonal(problem(), fisher="sampled", seed=1),
    "influence": lambda: hm.influence(problem(), problem(), damping=0.1, correction="leverage"),
    "laplace": lambda: hm.laplace(problem()).sample(2, torch.Generator().manual_seed(0)),
    "merge": lambda: hm.merge([net(), net()], [hm.fisher_diagonal(problem())] * 2),
    "ewc_penalty": lambda: hm.ewc_penalty(problem())(net()),
    "compression_plan": lambda: hm.compression_plan(problem(), (2, 4), 3, prediction="diagonal", sparsity=0.5),
    "loss_plane": lambda: [hm.loss_plane(problem(), kind, num_points=3) for kind in ("sharpest", "random")],
    "curvature_projection": lambda: hm.curvature_projection(problem(), "0"),
    "pruning_plan": lambda: hm.pruning_plan(problem(), 0.5, "obs"),
    "as_operator": lambda: hm.as_operator(lambda vector: 2 * vector, 3) @ torch.ones(3, dtype=torch.float64),
    "ggn": lambda: hm.ggn(problem()).to_dense(),
    "layer_factors": lambda: hm.layer_factors(problem(), "0"),
    "layer_hessian": lambda: hm.layer_hessian(problem(), "0"),
    "layer_names": lambda: hm.layer_names(problem()),
    "spectrum": lambda: hm.spectrum(hessian()),
    "numerical_rank": lambda: hm.numerical_rank(hessian()),
    "certified_rank": lambda: hm.certified_rank(problem("squared"), "loss"),
    "certified_data_ranks": lambda: hm.exact.certified_data_ranks(problem("squared")),
    "certified_matrix_rank": lambda: hm.exact.certified_matrix_rank(np.eye(3)),
    "generic_rank": lambda: hm.generic_rank(hm.FullyConnected((3, 2, 2)), "loss"),
    "effective_dimension": lambda: hm.effective_dimension(hessian(), 0.1),
    "reconstruction_error": lambda: hm.measurement.reconstruction_error(hm.spectrum(hessian())),
    "solve": lambda: hm.solve(hessian(), torch.ones(hessian().size, dtype=torch.float64), shift=1.0),
    "top_eigenpairs": lambda: hm.top_eigenpairs(hessian(), 3),
    "auto_spectrum": lambda: hm.measurement.auto_spectrum(hessian()),
    "choose_method": lambda: hm.measurement.choose_method(hessian()),
    "density_estimate": lambda: hm.density_estimate(hessian(), num_probes=3, num_steps=5),
    "diagonal_estimate": lambda: hm.measurement.diagonal_estimate(hessian()),
    "effective_dimension_estimate": lambda: hm.measurement.effective_dimension_estimate(hessian(), 0.1),
    "frobenius_norm_estimate": lambda: hm.measurement.frobenius_norm_estimate(hessian()),
    "gradient_overlap": lambda: hm.measurement.gradient_overlap(problem().gradient(), hm.top_eigenpairs(hessian(), 2)),
    "krylov_solve": lambda: hm.measurement.krylov_solve(
        hessian(), torch.ones(hessian().size, dtype=torch.float64), shift=1.0
    ),
    "log_determinant_estimate": lambda: hm.measurement.log_determinant_estimate(
        hm.outer_product_hessian(problem()), 1.0
    ),
    "rank_estimate": lambda: hm.measurement.rank_estimate(hm.outer_product_hessian(problem())),
    "sharpness": lambda: hm.sharpness(hessian()),
    "trace_estimate": lambda: hm.trace_estimate(hessian()),
    "layer_eigenpairs": lambda: hm.layer_eigenpairs(hm.layer_hessian(problem(), "0"), 2),
    "decoupling": lambda: hm.layers.decoupling(hm.layer_hessian(problem(), "0"), 2),
    "balance": lambda: hm.maps.functions.balance(net()),
    "bottleneck_view": lambda: hm.maps.functions.bottleneck_view(net(), data()[0]),
    "certified_function_rank": lambda: hm.maps.functions.certified_function_rank(net(), data()[0]),
    "class_regions": lambda: hm.maps.functions.class_regions(
        hm.FullyConnected((2, 3)).build(), (0, 1, 0, 1), grid_size=5, largest_grid=9
    ),
    "denoising_score": lambda: hm.maps.functions.denoising_score(nn.Identity(), data()[0], num_points=5),
    "function_rank": lambda: hm.function_rank(net(), data()[0], certify=True),
    "input_jacobians": lambda: hm.maps.functions.input_jacobians(net(), data()[0]),
    "representation_cost": lambda: hm.maps.functions.representation_cost(net(), data()[0]),
    "map": lambda: map_of(0),
    "compare_maps": lambda: hm.compare_maps(map_of(0), map_of(1)),
    "cost_plan": lambda: hm.cost_plan(problem(), "sharpness"),
    "load": loaded,
    "step_report": step_report,
    "Tracker": tracker,
    "track_checkpoints": checkpoints,
}
# What holds values alone, needs more than one process, or is met through another name above.
NOT_CALLED = {
    *("Polynomial", "TeacherStudent", "LinearSpectrumLaw", "Certificate", "LargeProblem"),
    *("distributed", "sharded_hessian", "subspace_overlap", "progress", "plot"),
}
DATA: dict[str, Callable[[], Any]] = {
    "digits": lambda: datasets.digits(20, seed=3),
    "gaussian": lambda: datasets.gaussian(5, 3),
    "gaussian_mixture": lambda: datasets.gaussian_mixture(5, 3, 2),
    "linear_teacher": lambda: datasets.linear_teacher(5, 3, 2, noise=0.1),
    "dyadic": lambda: datasets.dyadic(5, 3),
    "random_labels": lambda: datasets.random_labels(datasets.Data(*data())),
    "subsample": lambda: datasets.subsample(datasets.Data(*data()), 5, seed=2),
    "kernel ridge": lambda: functions.kernel_ridge(data()[0].numpy(), data()[0].numpy(), ridge=0.1),
}


@pytest.mark.parametrize("name", [*CASES, *DATA])
def test_no_public_function_moves_a_random_state(name, tmp_path):
    call = {**CASES, **DATA}[name]
    before = states()
    call(tmp_path) if inspect.signature(call).parameters else call()
    assert states() == before


@pytest.mark.parametrize(
    "draw",
    [
        random.random,
        lambda: np.random.rand(),  # noqa: NPY002 - the global one is meant
        lambda: torch.rand(1),
        lambda: nn.Linear(2, 2),
    ],
)
def test_a_draw_from_any_of_them_is_seen(draw):
    before = states()
    draw()
    assert states() != before


def test_every_public_function_is_among_the_cases():
    names = {name for name in hm.__all__ if callable(getattr(hm, name)) and not inspect.ismodule(getattr(hm, name))}
    assert names - set(CASES) - NOT_CALLED == set()
