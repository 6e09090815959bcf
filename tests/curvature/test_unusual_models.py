"""Weights used in ways that no list has: every number equals double backward, or is refused in a sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import hessmap as hm
from hessmap.errors import UnsupportedNetwork
from hidden_products import HiddenProduct

INPUTS = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(5) % 3
NUMBERS = (INPUTS[..., 0].abs() * 2).long().clamp(0, 4)
Body = Callable[["Wrapped", Tensor], Tensor]


class Wrapped(nn.Module):
    """A layer and a head, between which a case puts its own way to use the weights."""

    def __init__(self, body: Body, **modules: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        for name, module in modules.items():
            self.add_module(name, module)
        self.body = body

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(self, inputs))


class OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs):
        ctx.save_for_backward(inputs)
        return inputs**3

    @staticmethod
    @once_differentiable
    def backward(ctx, slope):
        return 3 * ctx.saved_tensors[0] ** 2 * slope


def input_gradient(model: Wrapped, inputs: Tensor) -> Tensor:
    with torch.enable_grad():
        inputs = inputs.detach().requires_grad_()
        return torch.autograd.grad(torch.tanh(model.layer(inputs)).sum(), inputs, create_graph=True)[0].mean(1)


def transform(model: Wrapped, inputs: Tensor) -> Tensor:
    return torch.func.grad(lambda rows: torch.tanh(model.layer(rows)).sum())(inputs).mean(1)


def tangent(model: Wrapped, inputs: Tensor) -> Tensor:
    return sum(torch.func.jvp(lambda rows: torch.tanh(model.layer(rows)), (inputs,), (inputs.cos(),))).mean(1)


def read_by_numpy(model: Wrapped, inputs: Tensor) -> Tensor:
    return (torch.tanh(model.layer(inputs)) @ torch.tensor(model.layer.weight.detach().numpy())).mean(1)


def column_slices(model: Wrapped, inputs: Tensor) -> Tensor:
    weight, bias = model.layer.weight, model.layer.bias
    return torch.tanh(F.linear(inputs[..., :2], weight[:, :2], bias) + F.linear(inputs[..., 2:], weight[:, 2:])).mean(1)


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates scripting; models that were scripted are still there
        inner = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.Tanh()).double())
    return Wrapped(lambda model, x: model.inner(x).mean(1) + model.layer(x).mean(1), inner=inner)


def pruned() -> nn.Module:
    model = Wrapped(lambda model, x: torch.tanh(model.layer(x)).mean(1))
    prune.random_unstructured(model.layer, "weight", amount=0.4)
    return model


BODIES: dict[str, Body] = {
    "vmap": lambda model, x: torch.vmap(lambda row: torch.tanh(model.layer(row)))(x).mean(1),
    "vmap beside a layer": lambda model, x: (
        model.layer(x).tanh().mean(1) + torch.vmap(lambda row: torch.tanh(row @ model.layer.weight))(x).mean(1)
    ),
    "torch.func.grad inside": transform,
    "torch.func.jvp inside": tangent,
    "autograd.grad inside": input_gradient,
    "constant factor of the weight": lambda model, x: (
        model.layer(x).tanh().mean(1) * model.layer.weight.detach().norm()
    ),
    "values read by numpy": read_by_numpy,
    "autograd.Function of the weight": lambda model, x: HiddenProduct.apply(x, model.layer.weight).tanh().mean(1),
    "autograd.Function behind a layer": lambda model, x: HiddenProduct.apply(model.layer(x), x.new_ones(4, 4)).mean(1),
    "slices of the inputs": column_slices,
    "rows by repeated index": lambda model, x: F.linear(x, model.layer.weight[[0, 0, 1, 2]]).tanh().mean(1),
    "expanded": lambda model, x: F.linear(x, model.layer.weight[:1].expand(4, 4)).tanh().mean(1),
    "weight as its own bias": lambda model, x: F.linear(x, model.layer.weight, model.layer.weight[0]).tanh().mean(1),
    "samples as a kernel": lambda model, x: (
        F.conv1d(model.layer.weight[None], x.reshape(-1, 1, 4).repeat(1, 4, 1))
        .reshape(len(x), 3)[:, [0, 1, 2, 0]]
        .tanh()
    ),
    "in place": lambda model, x: x.clone().mul_(model.layer.bias).add_(model.layer(x)).tanh().mean(1),
}
MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda body=body: Wrapped(body) for name, body in BODIES.items()},
    "scripted": scripted,
    "pruned": pruned,
}


def built(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return make().double()


def close(found: Tensor, expected: Tensor) -> bool:
    return float((found - expected).detach().abs().max()) <= 1e-11 * float(expected.detach().abs().max())


def derivative(values: Tensor, model: nn.Module) -> Tensor:
    """Of every entry, in all parameters; zero where it does not depend on one."""
    places, rows = list(model.parameters()), []
    for value in values.flatten():
        options = {"create_graph": True, "allow_unused": True, "materialize_grads": True}
        found = torch.autograd.grad(value, places, **options) if value.requires_grad else map(torch.zeros_like, places)
        rows.append(torch.cat([part.reshape(-1) for part in found]))
    return torch.stack(rows)


def autograd_hessian(model: nn.Module) -> Tensor:
    return derivative(derivative(F.cross_entropy(model(INPUTS), LABELS), model), model).detach()


@pytest.mark.parametrize("name", MODELS)
def test_every_number_is_that_of_double_backward(name: str) -> None:
    model = built(MODELS[name])
    expected = autograd_hessian(model)
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    hessian = hm.loss_hessian(problem)
    assert close(hessian @ torch.eye(hessian.size, dtype=torch.float64), expected)
    assert close(hessian.to_dense(), expected)
    assert close(problem.gradient(), derivative(F.cross_entropy(model(INPUTS), LABELS), model)[0])
    diagonal = hm.loss_hessian(problem).exact_diagonal()
    assert diagonal is None or close(diagonal, expected.diagonal())
    assert close(hm.output_jacobian(problem).flatten(0, 1), derivative(model(INPUTS), model))


@pytest.mark.parametrize("name", MODELS)
def test_every_layer_hessian_is_its_block_or_is_refused(name: str) -> None:
    model = built(MODELS[name])
    expected = autograd_hessian(model)
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    places = dict(problem.layout)
    assert name in ("vmap", "torch.func.grad inside", "torch.func.jvp inside", "scripted") or "head" in hm.layer_names(
        problem
    )
    for layer in hm.layer_names(problem):
        try:
            found = hm.layer_hessian(problem, layer)
        except UnsupportedNetwork as error:
            assert "must agree to 1e-10" in str(error)  # noqa: PT017 - either is right
            continue
        place = places[found.layer.weight]
        assert close(found.to_dense(), expected[place, place])


@pytest.mark.parametrize("way", ["linear", "transposed product", "product"])
def test_a_weight_has_one_kronecker_approximation_however_it_is_stored(way: str) -> None:
    class Stored(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            matrix = torch.linspace(-1, 1, 20).reshape(5, 4)
            self.weight, self.head = nn.Parameter(matrix.T.clone() if way == "product" else matrix), nn.Linear(5, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            rows = inputs.mean(1)
            ways = {"linear": lambda: F.linear(rows, self.weight), "transposed product": lambda: rows @ self.weight.T}
            return self.head(torch.tanh(ways.get(way, lambda: rows @ self.weight)()))

    model = built(Stored)
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    hessian, product = hm.layer_hessian(problem, ""), hm.kronecker_approximation(problem, "")
    factors = hm.layer_factors(problem, "")
    shape = (4, 5) if way == "product" else (5, 4)
    assert hessian.weight_shape == product.weight_shape == tuple(model.weight.shape) == shape
    assert factors.output_factor.shape == (5, 5)
    moment = torch.einsum("ni,nj->ij", INPUTS.mean(1), INPUTS.mean(1)) / 5
    assert close(factors.input_factor, moment)
    kron = torch.kron(*(
        (moment, factors.output_factor) if way == "product" else (factors.output_factor, moment)
    ))  # fmt: skip
    assert close(product.to_dense(), kron)
    assert close(hessian.to_dense(), autograd_hessian(model)[:20, :20])


def test_the_older_weight_norm_is_right_where_torch_is_not() -> None:
    """torch's own second derivative of the fused weight norm is not symmetric: differences of gradients decide."""

    def normed() -> nn.Module:
        model = Wrapped(lambda model, x: torch.tanh(model.layer(x)).mean(1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nn.utils.weight_norm(model.layer)
        return model

    model = built(normed)
    model(INPUTS)  # its weight is then no leaf, and would not be copied
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    hessian, columns = hm.loss_hessian(problem).to_dense(), []
    for parameter in model.parameters():
        for entry in range(parameter.numel()):
            slopes = []
            for sign in (1, -1):
                parameter.data.view(-1)[entry] += sign * 1e-5
                found = torch.autograd.grad(F.cross_entropy(model(INPUTS), LABELS), list(model.parameters()))
                slopes.append(torch.cat([part.reshape(-1) for part in found]))
                parameter.data.view(-1)[entry] -= sign * 1e-5
            columns.append((slopes[0] - slopes[1]) / 2e-5)
    expected = torch.stack(columns, 1)
    assert float((hessian - expected).abs().max()) < 1e-7 * float(expected.abs().max())


def test_a_scripted_module_is_differentiated_and_not_frozen() -> None:
    names = hm.Problem(built(scripted), "cross_entropy", INPUTS, LABELS).layout.names
    assert {"inner.0.weight", "inner.0.bias"} <= set(names)


class Table(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(5, 3, **options), nn.Linear(3, 3)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.head(torch.tanh(self.table(numbers)).mean(1))


def test_sparse_gradients_are_those_of_the_dense_format() -> None:
    matrices = []
    for is_sparse in (True, False):
        problem = hm.Problem(built(lambda s=is_sparse: Table(sparse=s)), "cross_entropy", NUMBERS, LABELS)
        matrices.append(hm.loss_hessian(problem) @ torch.eye(problem.num_parameters, dtype=torch.float64))
    torch.testing.assert_close(*matrices, rtol=1e-13, atol=1e-15)


def test_values_in_float32_inside_of_a_float64_model_are_noted() -> None:
    model = built(lambda: Wrapped(lambda m, x: F.linear(x.float(), m.layer.weight.float()).double().tanh().mean(1)))
    expected = autograd_hessian(model)
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    assert any("in float32 (torch.Tensor.float): accurate to about 1e-07" in note for note in problem.notes)
    for found in (hm.loss_hessian(problem).to_dense(), hm.loss_hessian(problem).exact_diagonal()):
        if found is not None:
            wanted = expected if found.ndim == 2 else expected.diagonal()
            assert float((found - wanted).abs().max()) < 1e-5 * float(wanted.abs().max())


def aligned(outputs: Tensor) -> Tensor:
    """A loss of every sample's own, which no version of torch so far differentiates twice."""
    num_samples, length, _ = outputs.shape
    lengths = torch.full((num_samples,), length), torch.ones(num_samples, dtype=torch.long)
    labels = torch.ones(num_samples, 1, dtype=torch.long)
    return F.ctc_loss(outputs.log_softmax(2).transpose(0, 1), labels, *lengths, reduction="none")


REFUSED = {
    "checkpoint": (
        lambda: Wrapped(lambda m, x: checkpoint(lambda y: torch.tanh(m.layer(y)), x, use_reentrant=False).mean(1)),
        "torch.utils.checkpoint computes activations again",
    ),
    "no second derivative": (
        lambda: Wrapped(lambda m, x: m.layer(x).mean(1) * aligned(m.layer(x))[:, None]),
        "differentiate the model and its loss twice; torch raised: derivative for aten::_ctc_loss_backward",
    ),
    "once differentiable": (
        lambda: Wrapped(lambda m, x: OnceDifferentiable.apply(m.layer(x)).mean(1)),
        "second derivatives must be (symmetric|those of the outputs); torch's differ from",
    ),
    "wrong in place": (
        lambda: Wrapped(lambda m, x: m.layer(x).tanh_().mul_(2).mean(1)),
        "twice; torch raised: one of the variables needed for gradient computation has been modified",
    ),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own, before it fails
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("ask", ["product", "dense", "trace", "eigenpairs"])
def test_what_torch_cannot_differentiate_twice_is_refused_in_a_sentence(name: str, ask: str) -> None:
    make, reason = REFUSED[name]
    problem = hm.Problem(built(make), "cross_entropy", INPUTS, LABELS)
    hessian = hm.loss_hessian(problem)
    asked = {
        "product": lambda: hessian @ torch.ones(hessian.size, dtype=torch.float64),
        "dense": hessian.to_dense,
        "trace": lambda: hm.trace_estimate(hessian),
        "eigenpairs": lambda: hm.top_eigenpairs(hessian, 2),
    }
    with pytest.raises(UnsupportedNetwork, match=reason):
        asked[ask]()


def test_an_exception_in_the_users_derivative_passes_with_a_note() -> None:
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs):
            return inputs * 2

        @staticmethod
        def backward(ctx, slope):
            raise KeyError("mine")

    problem = hm.Problem(
        built(lambda: Wrapped(lambda m, x: Broken.apply(m.layer(x)).mean(1))), "squared", INPUTS, LABELS
    )
    with pytest.raises(KeyError, match="mine") as raised:
        problem.gradient()
    assert raised.value.__notes__ == ["raised while the model was differentiated"]
