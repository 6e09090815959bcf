"""Products by differences of gradients: their reported error, and kernels that torch differentiates only once.

The oracle of a kernel is double backward through the same operation written in plain torch.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

import hessmap as hm
from hessmap.errors import UnsupportedNetwork
from hessmap.hessians.finite_difference import difference_step

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value


def selective_scan(decay: Tensor, step: Tensor, x: Tensor) -> Tensor:
    """h_t = exp(-step_t exp(decay)) h_(t-1) + step_t x_t, as in Mamba."""
    state, found = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = torch.exp(-step[:, t] * decay.exp()) * state + step[:, t] * x[:, t]
        found.append(state)
    return torch.stack(found, 1)


def wkv(decay: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Means of values weighted by exp(key), with a decay in time, as in RWKV."""
    top = bottom = torch.zeros_like(key[:, 0])
    found = []
    for t in range(key.shape[1]):
        top = torch.exp(-decay.exp()) * top + key[:, t].exp() * value[:, t]
        bottom = torch.exp(-decay.exp()) * bottom + key[:, t].exp()
        found.append(top / bottom)
    return torch.stack(found, 1)


def as_kernel(operation: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """An operation whose backward is a kernel: torch cannot differentiate it."""

    class Kernel(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Tensor) -> Tensor:
            ctx.save_for_backward(*given)
            return operation(*given)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, gradient: Tensor) -> Any:
            leaves = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
            with torch.enable_grad():
                found = operation(*leaves)
            return torch.autograd.grad(found, leaves, gradient)

    return Kernel.apply


class Tokens(nn.Module):
    """Tokens through one operation with three arguments."""

    def __init__(self, operation: Callable[..., Tensor], has_decay: bool) -> None:
        super().__init__()
        self.operation = operation
        self.inside, self.out = nn.Linear(3, 12), nn.Linear(4, 3)
        self.decay = nn.Parameter(torch.linspace(-1, 0.5, 4)) if has_decay else None

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = self.inside(x).chunk(3, -1)
        if self.decay is None:
            return self.out(self.operation(first, second, third)).mean(1)
        return self.out(self.operation(self.decay, second.sigmoid(), third)).mean(1)


KERNELS = {"flash attention": (attention, False), "Mamba": (selective_scan, True), "RWKV": (wkv, True)}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_without_second_derivative_have_a_sharpness_and_a_trace(name: str) -> None:
    operation, has_decay = KERNELS[name]
    torch.manual_seed(0)
    plain = Tokens(operation, has_decay)
    fused = Tokens(as_kernel(operation), has_decay)
    fused.load_state_dict(plain.state_dict())
    x, y = torch.randn(12, 5, 3), torch.randint(3, (12,))
    with pytest.raises(UnsupportedNetwork, match="products='finite_difference'"):
        hm.sharpness(hm.loss_hessian(hm.Problem(fused, "cross_entropy", x, y)))
    exact = hm.loss_hessian(hm.Problem(plain, "cross_entropy", x, y))
    problem = hm.Problem(fused, "cross_entropy", x, y, products="finite_difference")
    hessian = hm.loss_hessian(problem)
    found = hm.sharpness(hessian)
    assert found.converged
    assert found.value == pytest.approx(hm.sharpness(exact).value, rel=1e-6)
    assert any(note.startswith("products are finite differences") for note in found.provenance.notes)
    assert hm.trace_estimate(hessian).value == pytest.approx(float(exact.to_dense().trace()), rel=1e-6)
    assert hm.density_estimate(hessian).size == problem.num_parameters


class Attending(nn.Module):
    """Causal attention by torch's own flash kernel, or by its formula."""

    def __init__(self, has_kernel: bool) -> None:
        super().__init__()
        self.has_kernel = has_kernel
        self.embed, self.parts, self.out = nn.Embedding(13, 16), nn.Linear(16, 48), nn.Linear(16, 13)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.embed(tokens)
        query, key, value = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.parts(states).chunk(3, -1))
        if self.has_kernel:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            later = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
            scores = (query @ key.mT / 8**0.5).masked_fill(later, float("-inf"))
            mixed = scores.softmax(-1) @ value
        return self.out(states + mixed.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_flash_kernel_of_torch_has_a_sharpness(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    fused, plain = Attending(True), Attending(False)
    plain.load_state_dict(fused.state_dict())
    tokens = torch.randint(13, (6, 9))
    risk = nn.functional.cross_entropy(fused(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    (gradient,) = torch.autograd.grad(risk, fused.parts.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="derivative for aten::_scaled_dot_product_flash_attention"):
        gradient.square().sum().backward()  # a real kernel, without a second derivative
    given: Any = {"dtype": dtype, "products": "finite_difference"}
    found = hm.sharpness(hm.loss_hessian(hm.Problem(fused, hm.next_token(), tokens, tokens, **given)))
    exact = hm.sharpness(hm.loss_hessian(hm.Problem(plain, hm.next_token(), tokens, tokens, dtype=torch.float64)))
    assert found.converged
    assert found.value == pytest.approx(exact.value, rel=1e-8 if dtype == torch.float64 else 1e-4)


def test_a_backward_that_hides_its_derivative_is_offered_differences() -> None:
    class Hidden(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return gradient * (1 - torch.tanh(x.detach()).square())  # constant for double backward

    class Model(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return self[1](Hidden.apply(self[0](x)))

    torch.manual_seed(0)
    model = Model(nn.Linear(4, 6), nn.Linear(6, 3))
    plain = nn.Sequential(model[0], nn.Tanh(), model[1])
    x, y = torch.randn(15, 4), torch.randint(3, (15,))
    with pytest.raises(UnsupportedNetwork, match="products='finite_difference'"):
        hm.sharpness(hm.loss_hessian(hm.Problem(model, "cross_entropy", x, y)))
    hessian = hm.loss_hessian(hm.Problem(model, "cross_entropy", x, y, products="finite_difference"))
    expected = hm.sharpness(hm.loss_hessian(hm.Problem(plain, "cross_entropy", x, y))).value
    assert hm.sharpness(hessian).value == pytest.approx(expected, rel=1e-6)


@pytest.fixture(scope="module")
def benchmark_module() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("finite_differences", BENCHMARKS / "finite_differences.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


@pytest.mark.parametrize("name", ["tanh", "attention", "CNN GELU, group norm"])
def test_the_reported_error_covers_the_true_one(benchmark_module: Any, name: str) -> None:
    lines = benchmark_module.products_of(name, seed=100)
    assert len(lines) == 21
    assert sum(line["error"] > 2 * line["reported"] for line in lines) <= 1
    largest = {"float64": 1e-8, "float32": 2e-3, "bfloat16": 0.5}
    for line in lines:  # an error that covers because it is enormous would be of no use
        assert line["reported"] < largest[line["precision"]], line


def test_kinks_that_long_steps_cross_are_in_the_reported_error(benchmark_module: Any) -> None:
    lines = [line for seed in range(3) for line in benchmark_module.products_of("ReLU", 11 + 100 * seed)]
    lines = [line for line in lines if line["precision"] == "bfloat16"]
    # The difference of two steps alone covered 2 of 7.
    assert sum(line["error"] <= 2 * line["reported"] for line in lines) >= 0.8 * len(lines)


def test_the_stored_table_has_twenty_models_and_covers_95_per_cent() -> None:
    cases = json.loads((BENCHMARKS / "results" / "finite_differences.json").read_text())["cases"]
    products = [case for case in cases if "vector" in case]
    assert len({case["model"] for case in products}) == 20
    assert len(products) >= 400
    for precision in ("float64", "float32", "bfloat16"):
        own = [case for case in products if case["precision"] == precision]
        assert sum(case["error"] <= 2 * case["reported"] for case in own) >= 0.95 * len(own)


def test_the_step_moves_a_tensor_by_a_part_of_its_own_norm() -> None:
    ones = torch.ones(2, dtype=torch.float64)
    sizes = 100 * ones
    # A vector of length 2 in the first tensor, of norm 10 beside one of norm 1,000.
    step = difference_step(torch.tensor([4.0, 0.0]), torch.tensor([100.0, 1e6]) * 1e-2, sizes, 1e-6)
    overall = (1.0 + 1e4) / 200
    assert 2 * step == pytest.approx(1e-2 * (0.01 * overall * 100) ** 0.5)
    assert 2 * difference_step(torch.tensor([4.0, 0.0]), 9 * ones, sizes, 1e-6) == pytest.approx(1e-2 * 3)
    assert difference_step(0 * ones, ones, sizes, 1e-6) == 0.0


def test_equal_vectors_have_equal_products_whatever_came_before() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    x, y = torch.randn(9, 4), torch.randint(2, (9,))
    first, second = (
        hm.loss_hessian(hm.Problem(model, "cross_entropy", x, y, products="finite_difference", dtype=torch.float32))
        for _ in range(2)
    )
    vector = torch.randn(37)
    hm.sharpness(first)
    assert torch.equal(first @ vector, second @ vector)
    assert not (first @ torch.zeros(37)).any()
