"""Which second derivative a layer needs is a property of all samples: a few of them may have less than the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm
from hessmap.hessians.products import hessian_product
from hessmap.layers import layer_factors, layer_hessian, layer_names, plan_layer_hessian
from hessmap.layers.batches import LayerBatch, layer_batch
from hessmap.layers.curvature_choice import is_piecewise_linear
from hessmap.layers.stored_samples import Form, SampleStore, stored_product
from hessmap.maps.curvature_map.layers import measured_factors

FEW = 16


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sequential(*layers: nn.Module) -> nn.Sequential:
    """A model whose first layer is the one that is measured."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = nn.Sequential(*layers).double().eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.6)
    return model


def welsch(outputs: Tensor, targets: Tensor) -> Tensor:
    """Convex up to a distance of one."""
    return (1 - torch.exp(-0.5 * (outputs - targets).square())).sum(1)


@dataclass(frozen=True)
class Rare:
    """A problem of which few samples have a term in their second derivative that the others do not have."""

    name: str
    model: nn.Sequential
    loss: str | Callable[[Tensor, Tensor], Tensor]
    inputs: Tensor
    targets: Tensor

    def problem(self, **options: object) -> hm.Problem:
        return hm.Problem(self.model, self.loss, self.inputs, self.targets, **options)

    def streamed(self) -> hm.Problem:
        return hm.Problem(self.model, self.loss, DataLoader(TensorDataset(self.inputs, self.targets), batch_size=20))

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if callable(self.loss):
            return self.loss(outputs, targets)
        if self.loss == "cross_entropy":
            return F.cross_entropy(outputs, targets, reduction="none")
        return 0.5 * (outputs - targets).square().sum(1)

    def output_factor(self) -> Tensor:
        """The mean over samples and positions of d2 loss / dz2 by autograd, sample by sample."""
        with torch.no_grad():
            leaving = self.model[0](self.inputs)
        total = torch.zeros(leaving.shape[1], leaving.shape[1], dtype=torch.float64)
        for one, target in zip(leaving, self.targets, strict=True):

            def loss(z: Tensor, target: Tensor = target) -> Tensor:
                return self.values(self.model[1:](z[None]), target[None])[0]

            second = torch.autograd.functional.hessian(loss, one)
            outputs, positions = len(one), one[0].numel()
            blocks = second.reshape(outputs, positions, outputs, positions)
            total += torch.einsum("apbp->ab", blocks) / positions
        return total / len(leaving)


def chosen_rarely(count: int) -> Tensor:
    """Three places that are neither among the first samples nor among those that are spread over the data."""
    spread = torch.linspace(0, count - 1, FEW).long().tolist()
    return torch.tensor([n for n in range(30, count) if n not in spread][:: count // 5][:3])


def fitted_but_some(
    name: str, model: nn.Sequential, inputs: Tensor, loss: object = "squared", off: float = 5.0
) -> Rare:
    targets = model(inputs).detach()
    targets[chosen_rarely(len(inputs))] += off
    return Rare(name, model, loss, inputs, targets)


def linear_but_some(name: str, activation: nn.Module, end: float) -> Rare:
    """All units in the linear range of their activation, which begins at ``end``, but on some samples."""
    model = sequential(nn.Linear(3, 4), activation, nn.Linear(4, 3))
    with torch.no_grad():
        model[0].weight.abs_()
        model[0].bias.fill_(end + 0.1)
    inputs = drawn(97, 3, seed=4).abs()
    inputs[chosen_rarely(97)] *= -1.0
    return Rare(name, model, "cross_entropy", inputs, torch.arange(97) % 3)


def without_input_but_fitted() -> Rare:
    """The samples that are not fitted send nothing into the layer: its Hessian does not change with them, its output
    factor does."""
    model, inputs = sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2)), drawn(80, 3, seed=2)
    inputs[chosen_rarely(80)] = 0.0
    return fitted_but_some("no input", model, inputs)


RARE = [
    fitted_but_some("tanh", sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)), drawn(120, 3)),
    fitted_but_some(
        "deep gelu", sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), drawn(61, 2)
    ),
    fitted_but_some(
        "convolution",
        sequential(nn.Conv2d(1, 2, 3), nn.Softplus(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 2)),
        drawn(70, 1, 6, 6),
    ),
    fitted_but_some("not convex", sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), drawn(90, 3), welsch, 1.5),
    fitted_but_some(
        "not convex, curved", sequential(nn.Linear(3, 4), nn.SiLU(), nn.Linear(4, 2)), drawn(90, 3), welsch
    ),
    linear_but_some("elu", nn.ELU(), 0.0),
    linear_but_some("hardswish", nn.Hardswish(), 3.0),
    linear_but_some("softplus beyond its threshold", nn.Softplus(beta=5, threshold=5), 1.0),
    without_input_but_fitted(),
]
CURVED = [case for case in RARE if case.name != "not convex"]
rare = pytest.mark.parametrize("case", RARE, ids=lambda case: case.name)


def block(problem: hm.Problem, weight: str = "0.weight") -> Tensor:
    place = problem.layout[weight]
    units = torch.eye(problem.num_parameters, dtype=problem.dtype)[:, place]
    return hessian_product(problem, "loss", units)[place]


def assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    assert found.shape == expected.shape
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())


@pytest.mark.parametrize("case", CURVED, ids=lambda case: case.name)
def test_the_rare_samples_are_not_among_the_few_that_are_compared(case: Rare) -> None:
    problem = case.problem()
    few = problem.subsample(FEW)
    layer = layer_hessian(problem, "0").layer
    rows, full = (layer_batch(problem, layer, kind, few) for kind in ("gauss_newton", "full"))
    moments = [part.rows.flatten(2).mT @ part.signed_values(part.rows.flatten(2)) for part in (rows, full)]
    assert_close(*moments)


@rare
def test_factors_are_those_of_all_samples(case: Rare) -> None:
    expected = case.output_factor()
    for problem in (case.problem(), case.streamed()):
        assert_close(layer_factors(problem, "0").output_factor, expected)
        assert_close(layer_hessian(problem, "0").factors["uncorrelated_patches"].output_factor, expected)
    product = hm.kronecker_approximation(case.problem(), "0")
    assert_close(product.output_factor, expected)


@rare
def test_layer_hessians_are_those_of_all_samples(case: Rare) -> None:
    for problem in (case.problem(), case.streamed()):
        hessian, expected = layer_hessian(problem, "0"), block(problem)
        assert_close(hessian.to_dense(), expected)
        assert_close(hessian @ torch.eye(hessian.size, dtype=torch.float64), expected)
        assert_close(hessian.exact_diagonal(), expected.diagonal())
        found = hm.layer_eigenpairs(hessian, 2)
        assert found.eigenvalues == pytest.approx(torch.linalg.eigvalsh(expected).flip(0)[:2].numpy(), rel=1e-6)
        measured = hm.layers.decoupling(hessian, 2)
        difference = torch.kron(*_factors(problem)) - expected
        assert measured.expectation.frobenius_error == pytest.approx(float(difference.norm() / expected.norm()))
        assert_close(hm.loss_hessian(problem).exact_diagonal()[problem.layout["0.weight"]], expected.diagonal())


def _factors(problem: hm.Problem) -> tuple[Tensor, Tensor]:
    found = layer_factors(problem, "0")
    return found.output_factor, found.input_factor


@pytest.mark.parametrize("case", CURVED, ids=lambda case: case.name)
def test_the_plan_is_that_of_all_samples(case: Rare) -> None:
    problem = case.problem()
    hessian = layer_hessian(problem, "0")
    assert hessian.plan.curvature == layer_factors(problem, "0").curvature == "full"
    assert plan_layer_hessian(problem, "0").stored_bytes == hessian.plan.stored_bytes == hessian.stored_bytes


@pytest.mark.parametrize("case", CURVED[:3], ids=lambda case: case.name)
def test_single_precision_has_the_same_factors(case: Rare) -> None:
    expected = case.output_factor()
    assert_close(layer_factors(case.problem(dtype=torch.float32), "0").output_factor, expected, 1e-4)


def test_maps_have_the_factors_of_all_samples() -> None:
    problem = RARE[5].problem()
    found = measured_factors(problem, None)[0]["0"]
    values = torch.linalg.eigvalsh(RARE[5].output_factor()).flip(0)
    assert found.outlier_share == pytest.approx(float(values[:2].clamp(min=0).sum() / values.abs().sum()))


class AttentionFree(nn.Module):
    """Everything behind the first layer is piecewise linear, but its parts are of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 3, groups=2)
        self.norm, self.slope, self.last = nn.BatchNorm2d(4), nn.PReLU(), nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = F.max_pool2d(F.leaky_relu(self.norm(self.first(inputs))), 2)
        hidden = hidden + F.pad(self.slope(self.second(F.pad(hidden, (1, 1, 1, 1)))), (0, 0, 0, 0)) / 2
        pooled = torch.cat([hidden.mean((2, 3)), hidden.amax((2, 3)).abs()], 1)
        return self.last(torch.maximum(pooled, -0.5 * pooled).clamp(-3, 3))


PIECEWISE_LINEAR = {
    "relu": (sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), drawn(40, 3)),
    "many kinds": (AttentionFree().double().eval(), drawn(40, 1, 6, 6)),
    "last layer": (sequential(nn.Linear(3, 3)), drawn(40, 3)),
}


@pytest.mark.parametrize("name", PIECEWISE_LINEAR)
def test_piecewise_linear_networks_need_no_pass_over_the_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a pass over all data")

    monkeypatch.setattr("hessmap.layers.curvature_choice._has_functional_term", refuse)
    model, inputs = PIECEWISE_LINEAR[name]
    problem = hm.Problem(model, "cross_entropy", inputs, torch.arange(40) % 3)
    for layer in layer_names(problem):
        hessian = layer_hessian(problem, layer)
        assert hessian.plan.curvature == "gauss_newton"
        assert_close(hessian.to_dense(), block(problem, hessian.layer.weight), 1e-11)


class Square(torch.autograd.Function):
    """A user's function, whose node could be taken for one of torch's by its name alone."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, inputs: Tensor) -> Tensor:
        ctx.save_for_backward(inputs)
        return inputs.square()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, slope: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * slope


Relu = type("Relu", (Square,), {})


@pytest.mark.parametrize(
    ("function", "is_linear"),
    [
        (lambda x: (2 * x).relu() / 3 - x.abs().max(), True),
        (lambda x: torch.where(x > 0, x, -2 * x) @ torch.ones(4, 2, dtype=torch.float64), True),
        (lambda x: F.batch_norm(x, x.detach().mean(0), x.detach().var(0)), True),
        (lambda x: F.batch_norm(x, None, None, training=True), False),
        (lambda x: x * x.relu(), False),
        (lambda x: 1 / x, False),
        (lambda x: x.detach() / x, False),
        (lambda x: x @ x.T, False),
        (lambda x: F.elu(x + 100), False),
        (Relu.apply, False),
        (lambda x: torch.addmm(x, x, x.T @ torch.ones(3, 4, dtype=torch.float64)), False),
        (lambda x: torch.ones(3, dtype=torch.float64, requires_grad=True).sin() + x.sum(), True),
    ],
)
def test_operations_are_known_by_their_nodes(function: Callable[[Tensor], Tensor], is_linear: bool) -> None:
    leaf = drawn(3, 4).requires_grad_()
    assert is_piecewise_linear(function(leaf), leaf) == is_linear


def test_a_network_that_is_fitted_everywhere_has_gauss_newton_alone() -> None:
    model, inputs = sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)), drawn(50, 3)
    problem = hm.Problem(model, "squared", inputs, model(inputs).detach())
    assert layer_factors(problem, "0").curvature == "gauss_newton"


def test_the_decision_is_made_once_for_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = RARE[0].problem()
    layer_factors(problem, "0")
    monkeypatch.setattr("hessmap.layers.curvature_choice._choose_curvature", None)
    layer_hessian(problem, "0")


@pytest.mark.parametrize("form", ["patches", "jacobians"])
@pytest.mark.parametrize("order", [(False, True, False), (True, False, True)])
def test_a_store_takes_batches_with_and_without_signs(form: Form, order: tuple[bool, ...]) -> None:
    problem = RARE[0].problem()
    layer = layer_hessian(problem, "0").layer
    vectors = drawn(layer.size, 3)
    store, expected = SampleStore(layer, form, 30, 2), torch.zeros_like(vectors)
    for number, has_signs in enumerate(order):
        rows = drawn(10, 2, 1, layer.num_outputs, seed=number)
        signs = torch.where(drawn(10, 2, seed=9) < 0, -1.0, 1.0).double() if has_signs else None
        entering = drawn(10, layer.num_inputs, seed=20 + number)
        store.add(LayerBatch(layer, entering, torch.ones(10, dtype=torch.float64), rows, signs))
        matrices = torch.einsum("nrpo,ni->nroi", rows, entering).reshape(20, -1)
        scaled = matrices if signs is None else signs.reshape(20, 1) * matrices
        expected += matrices.T @ (scaled @ vectors)
    assert_close(stored_product(store.stored, layer.weight_shape, 0.0, vectors), expected)


def test_directions_on_which_the_signs_cancel_are_not_left_out() -> None:
    """Two samples with opposite curvature along one output, whose traces cancel, and smaller curvature elsewhere."""

    class Signed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 3, bias=False)

        def forward(self, inputs: Tensor) -> Tensor:
            z = self.first(inputs)
            return torch.stack([z[:, 0].square(), 0.1 * z[:, 1] + 0.02 * z[:, 1].square()], 1)

    model = Signed().double()
    inputs = torch.eye(4, dtype=torch.float64)[:2].repeat_interleave(2, 0)
    outputs = model(inputs).detach()

    def linear(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs * targets).sum(1)

    targets = torch.ones_like(outputs)
    targets[2:, 0] = -1.0
    problem = hm.Problem(model, linear, inputs, targets)
    hessian = layer_hessian(problem, "first")
    expected = torch.linalg.eigvalsh(block(problem, "first.weight")).flip(0)
    found = hm.layer_eigenpairs(hessian, 1, block_size=1)
    assert found.eigenvalues[0] == pytest.approx(float(expected[0]), rel=1e-8)
