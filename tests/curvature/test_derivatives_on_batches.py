"""Derivatives that are wrong on a few samples or behind a cast are found; correct models are not refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import UnsupportedNetwork
from hessmap.problem.derivative_checks import HIDDEN_LOSS_NOTE, HIDDEN_NOTE

COUNT = 300


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


INPUTS, TARGETS = drawn(COUNT, 4), drawn(COUNT, 3, seed=1)


def partly_hidden(operation: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """An operation whose own derivative hides its dependence where a mask says so."""

    class Own(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(values, mask):
            return operation(values)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, leaving):
            values, mask = ctx.saved_tensors
            return leaving * slope(torch.where(mask, values.detach(), values)), None

    return Own.apply


OPERATIONS = {
    "square": partly_hidden(torch.square, lambda values: 2 * values),
    "exp": partly_hidden(torch.exp, torch.exp),
    "sine": partly_hidden(torch.sin, torch.cos),
    "squared relu": partly_hidden(lambda values: values.relu() ** 2, lambda values: 2 * values.relu()),
}


class Marked(nn.Module):
    """Samples that are marked by a last feature of 7 take another way than all others."""

    def __init__(self, way: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        self.way = way

    def forward(self, inputs: Tensor) -> Tensor:
        mark = inputs[:, -1:] == 7.0
        hidden = self.first(torch.where(mark, inputs[:, :1], inputs))
        return self.last(self.way(hidden, mark.expand_as(hidden)))


def marked(*places: int, count: int = COUNT) -> Tensor:
    inputs = INPUTS[:count].clone()
    inputs[list(places), -1] = 7.0
    return inputs


def product(problem: hm.Problem) -> Tensor:
    return hm.loss_hessian(problem) @ torch.ones(problem.num_parameters, dtype=problem.dtype)


ASKED: dict[str, Callable[[hm.Problem], object]] = {
    "product": product,
    "dense": lambda problem: hm.loss_hessian(problem).to_dense(),
    "functional": lambda problem: hm.functional_hessian(problem) @ torch.ones(problem.num_parameters).double(),
    "layer": lambda problem: hm.layer_hessian(problem, "first").to_dense(),
    "eigenpairs": lambda problem: hm.top_eigenpairs(hm.loss_hessian(problem), 2),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("place", [1, 9, 150, COUNT - 1])
def test_a_wrong_second_derivative_on_one_sample_is_refused(name: str, place: int) -> None:
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs"):
        product(hm.Problem(Marked(OPERATIONS[name]), "squared", marked(place), TARGETS))
    product(hm.Problem(Marked(OPERATIONS[name]), "squared", INPUTS, TARGETS))


@pytest.mark.parametrize("ask", ASKED)
def test_whatever_is_asked(ask: str) -> None:
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs"):
        ASKED[ask](hm.Problem(Marked(OPERATIONS["sine"]), "squared", marked(77), TARGETS))


def test_a_loader_is_looked_at_in_its_first_batch() -> None:
    batches = [(marked(41)[part : part + 50], TARGETS[part : part + 50]) for part in range(0, COUNT, 50)]
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs"):
        product(hm.Problem(Marked(OPERATIONS["sine"]), "squared", batches))


def test_samples_beyond_the_first_batch_are_looked_at() -> None:
    """With the smallest budget a batch holds some of the samples; every third one is wrong after the first third."""
    count = 3000
    inputs, targets = drawn(count, 4, seed=3), drawn(count, 3, seed=4)
    inputs[1000::3, -1] = 7.0
    problem = hm.Problem(Marked(OPERATIONS["sine"]), "squared", inputs, targets, memory_budget=2**20)
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs"):
        product(problem)


def test_what_one_sample_hides_is_said() -> None:
    def way(hidden: Tensor, mark: Tensor) -> Tensor:
        return torch.tanh(hidden) * torch.where(mark, torch.sigmoid(hidden).detach(), torch.sigmoid(hidden))

    problem = hm.Problem(Marked(way), "squared", marked(200), TARGETS)
    product(problem)
    assert HIDDEN_NOTE in problem.notes
    plain = hm.Problem(Marked(way), "squared", INPUTS, TARGETS)
    product(plain)
    assert HIDDEN_NOTE not in plain.notes


CASTS: dict[str, Callable[[Tensor], Tensor]] = {
    "float": lambda z: z.float(),
    "half": lambda z: z.half(),
    "bfloat16": lambda z: z.to(torch.bfloat16),
    "keyword": lambda z: z.to(dtype=torch.float32),
    "type": lambda z: z.type(torch.float32),
    "softmax": lambda z: torch.softmax(z, 1, dtype=torch.float32),
    "as another": lambda z: z.to(torch.zeros(1, dtype=torch.float32)),
    "in place": lambda z: z.float().mul_(1.0),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("cast", CASTS)
def test_a_cast_does_not_switch_the_check_off(name: str, cast: str) -> None:
    """On the way itself or beside it; a sample that is wrong is found among many others."""
    way, rounded = OPERATIONS[name], CASTS[cast]
    for is_beside in (True, False):

        def cast_way(hidden: Tensor, mark: Tensor, is_beside: bool = is_beside) -> Tensor:
            found = way(hidden, mark)
            return found + 0.0 * rounded(hidden).to(hidden.dtype) if is_beside else rounded(found).to(hidden.dtype)

        problem = hm.Problem(Marked(cast_way), "squared", marked(120), TARGETS)
        assert any("computes some of its values in" in note for note in problem.notes)
        with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs"):
            product(problem)
        product(hm.Problem(Marked(cast_way), "squared", INPUTS, TARGETS))


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_model_that_needs_float32_is_checked_in_it(name: str) -> None:
    """Its matrix is in float32: the cast before it cannot be left out. What is wrong everywhere is found."""
    matrix = drawn(6, 6, seed=8).float() / 2

    def way(hidden: Tensor, mark: Tensor, is_wrong: bool) -> Tensor:
        narrow = hidden.float() @ matrix
        return OPERATIONS[name](narrow, torch.full_like(mark, is_wrong)).to(hidden.dtype)

    right, wrong = (Marked(lambda hidden, mark, w=is_wrong: way(hidden, mark, w)) for is_wrong in (False, True))
    problem = hm.Problem(right, "squared", INPUTS, TARGETS)
    product(problem)
    assert HIDDEN_NOTE not in problem.notes
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs"):
        product(hm.Problem(wrong, "squared", INPUTS, TARGETS))


@pytest.mark.parametrize("cast", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", [torch.tanh, torch.relu, F.gelu, lambda z: z.relu() ** 2, F.softplus])
def test_a_cast_of_a_right_model_is_no_reason_to_refuse_it(activation, cast: torch.dtype) -> None:
    """The values that go on are rounded, and so are all products."""

    class Rounded(Marked):
        def forward(self, inputs: Tensor) -> Tensor:
            hidden = activation(self.first(inputs).to(cast).to(inputs.dtype))
            return self.last(hidden.to(cast).to(inputs.dtype))

    problem = hm.Problem(Rounded(lambda hidden, mark: hidden), "squared", INPUTS, TARGETS)
    product(problem)
    assert HIDDEN_NOTE not in problem.notes


def fake_quantised(weight: Tensor, how: str) -> Tensor:
    narrow = weight.float()
    if how == "tensor":
        return torch.fake_quantize_per_tensor_affine(narrow, 0.05, 0, -128, 127).to(weight.dtype)
    scales, zeros = torch.full((len(weight),), 0.05), torch.zeros(len(weight), dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(narrow, scales, zeros, 0, -128, 127).to(weight.dtype)


@pytest.mark.parametrize("how", ["tensor", "channel", "module", "activations"])
@pytest.mark.parametrize("width", [3, 200])
def test_fake_quantisation_is_said(how: str, width: int) -> None:
    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            with torch.random.fork_rng():
                torch.manual_seed(0)
                self.first, self.last = nn.Linear(4, width), nn.Linear(width, 3)
            self.rounding = torch.ao.quantization.FakeQuantize().eval()
            self.rounding.disable_observer()

        def forward(self, inputs: Tensor) -> Tensor:
            if how == "module":
                return self.last(torch.tanh(self.rounding(self.first(inputs).float()).to(inputs.dtype)))
            if how == "activations":
                return self.last(fake_quantised(torch.tanh(self.first(inputs)), "tensor"))
            weight = fake_quantised(self.first.weight, how)
            return self.last(torch.tanh(F.linear(inputs, weight, self.first.bias)))

    problem = hm.Problem(Quantised(), "squared", INPUTS, TARGETS)
    product(problem)
    assert HIDDEN_NOTE in problem.notes


STRAIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "rounded": lambda weight: weight + (torch.round(8 * weight) / 8 - weight).detach(),
    "signs": lambda weight: weight + (weight.sign() * weight.abs().mean() - weight).detach(),
    "clamped": lambda weight: weight.clamp(-0.1, 0.1).detach() + weight - weight.detach(),
}


@pytest.mark.parametrize("name", STRAIGHT)
@pytest.mark.parametrize("cast", [None, torch.float32])
def test_straight_through_estimators_of_ones_own_are_said(name: str, cast: torch.dtype | None) -> None:
    class Straight(Marked):
        def forward(self, inputs: Tensor) -> Tensor:
            hidden = torch.tanh(F.linear(inputs, STRAIGHT[name](self.first.weight), self.first.bias))
            return self.last(hidden if cast is None else hidden + 0.0 * hidden.to(cast).to(hidden.dtype))

    problem = hm.Problem(Straight(lambda hidden, mark: hidden), "squared", INPUTS, TARGETS)
    product(problem)
    assert HIDDEN_NOTE in problem.notes


class Images(nn.Module):
    """Convolutions, pools and kinks on images, written as users write them."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.second, self.last = nn.Conv2d(1, 8, 3), nn.Conv2d(8, 8, 3), nn.Linear(8 * 4, 3)
        self.activation = activation

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = F.max_pool2d(self.activation(self.first(inputs)), 2)
        return self.last(F.max_pool2d(self.activation(self.second(hidden)), 2).flatten(1))


KINKED = {
    "relu": torch.relu,
    "leaky": lambda z: F.leaky_relu(z, 0.1),
    "abs": torch.abs,
    "squared": lambda z: z.relu() ** 2,
    "hardtanh": F.hardtanh,
    "gelu": F.gelu,
}


@pytest.mark.parametrize("name", KINKED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["drawn", "integers", "zeros"])
def test_batches_with_many_kinks_raise_no_alarm(name: str, dtype: torch.dtype, kind: str) -> None:
    """Images of integers, and those that are zero in places, put activations on kinks and pools on ties."""
    images = drawn(200, 1, 14, 14, seed=5)
    images = images if kind == "drawn" else images.round() if kind == "integers" else images * (images > 1)
    model = Images(KINKED[name])
    if kind == "zeros":
        nn.init.zeros_(model.first.bias)
    problem = hm.Problem(model, "cross_entropy", images, torch.arange(200) % 3, dtype=dtype)
    product(problem)
    assert HIDDEN_NOTE not in problem.notes


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["relu", "gelu"])
@pytest.mark.parametrize("cast", [None, torch.float32])
def test_a_wrong_derivative_among_kinks_is_refused(name: str, dtype: torch.dtype, cast: torch.dtype | None) -> None:
    """In float32 every step meets kinks of some activations: a copy in float64 tells."""
    way = OPERATIONS["sine"]

    def activation(z: Tensor) -> Tensor:
        found = KINKED[name](way(z, torch.ones_like(z, dtype=torch.bool)))
        return found if cast is None else found.to(cast).to(z.dtype)

    model = Images(activation)
    problem = hm.Problem(model, "cross_entropy", drawn(100, 1, 14, 14, seed=5), torch.arange(100) % 3, dtype=dtype)
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs"):
        product(problem)


def test_a_derivative_that_is_wrong_in_large_batches_alone_is_refused() -> None:
    """Kinks hide it from differences in float32, and some samples in float64 are a small batch: these samples must
    have the same derivatives in the whole batch."""
    way = OPERATIONS["sine"]

    def activation(z: Tensor) -> Tensor:
        return torch.relu(way(z, torch.full_like(z, len(z) > 70, dtype=torch.bool)))

    images, labels = drawn(100, 1, 14, 14, seed=5), torch.arange(100) % 3
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs"):
        product(hm.Problem(Images(activation), "cross_entropy", images, labels, dtype=torch.float32))
    product(hm.Problem(Images(activation), "cross_entropy", images[:60], labels[:60], dtype=torch.float32))


@pytest.mark.parametrize("place", [2, 80, COUNT - 1])
def test_a_loss_that_is_wrong_on_one_sample_is_refused(place: int) -> None:
    way = OPERATIONS["exp"]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return way(outputs - targets, (targets[:, :1] == 5.0).expand_as(outputs)).sum(1)

    targets = TARGETS.clone()
    targets[place, 0] = 5.0
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the loss"):
        product(hm.Problem(model, loss, INPUTS, targets))
    product(hm.Problem(model, loss, INPUTS, TARGETS))


def test_outputs_of_one_sample_that_a_loss_hides_are_said() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        seen = torch.where(targets[:, :1] == 5.0, outputs.detach(), outputs)
        return (seen - targets).square().sum(1)

    targets = TARGETS.clone()
    targets[123, 0] = 5.0
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    for given, is_said in ((targets, True), (TARGETS, False)):
        problem = hm.Problem(model, loss, INPUTS, given)
        product(problem)
        assert (HIDDEN_LOSS_NOTE in problem.notes) == is_said


@pytest.mark.parametrize("first", [product, lambda problem: hm.loss_hessian(problem).to_dense()])
def test_the_check_is_made_once(first: Callable[[hm.Problem], object]) -> None:
    calls = []

    class Counting(Marked):
        def forward(self, inputs: Tensor) -> Tensor:
            calls.append(len(inputs))
            return super().forward(inputs)

    problem = hm.Problem(Counting(lambda hidden, mark: torch.tanh(hidden)), "squared", INPUTS, TARGETS)
    first(problem)
    product(problem)
    before = len(calls)
    product(problem)
    hm.functional_hessian(problem)
    assert len(calls) - before <= 1  # the graph of a new operator


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_scales_of_data_raise_no_alarm(scale: float) -> None:
    class Scaled(Marked):
        def forward(self, inputs: Tensor) -> Tensor:
            return self.last(torch.tanh(self.first(inputs)) ** 3)

    for dtype in (torch.float64, torch.float32):
        problem = hm.Problem(Scaled(lambda hidden, mark: hidden), "squared", scale * INPUTS, TARGETS, dtype=dtype)
        product(problem)
        assert HIDDEN_NOTE not in problem.notes
