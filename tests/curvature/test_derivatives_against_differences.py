"""Derivatives that torch takes and that belong to no function: refused, or said; and no alarm at kinks and ties."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import NotReproducible, UnsupportedNetwork
from hessmap.problem.derivative_checks import HIDDEN_LOSS_NOTE, HIDDEN_NOTE, is_contradicted

INPUTS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(6) % 3
Body = Callable[["TwoLayers", Tensor], Tensor]


class TwoLayers(nn.Module):
    """Two layers with a case's own way between them."""

    def __init__(self, body: Body, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        self.body = body

    def forward(self, inputs: Tensor) -> Tensor:
        return self.body(self, inputs)


def cube(hides_input: bool, hides_slope: bool = False) -> type[torch.autograd.Function]:
    """x^3 with a derivative of its own, from which a second one may be hidden."""

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, values):
            ctx.save_for_backward(values)
            return values**3

        @staticmethod
        def backward(ctx, slope):
            (values,) = ctx.saved_tensors
            return 3 * (values.detach() if hides_input else values) ** 2 * (slope.detach() if hides_slope else slope)

    return Cube


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values):
        return values.view_as(values)

    @staticmethod
    def backward(ctx, slope):
        return -slope


def problem_of(body: Body, **options: object) -> hm.Problem:
    return hm.Problem(TwoLayers(body), "cross_entropy", INPUTS, LABELS, **options)


ASKED = {
    "product": lambda problem: hm.loss_hessian(problem) @ torch.ones(problem.num_parameters, dtype=problem.dtype),
    "functional": lambda problem: hm.functional_hessian(problem).to_dense(),
    "dense": lambda problem: hm.loss_hessian(problem).to_dense(),
    "layer": lambda problem: hm.layer_hessian(problem, "first").to_dense(),
    "eigenpairs": lambda problem: hm.top_eigenpairs(hm.loss_hessian(problem), 2),
}


@pytest.mark.parametrize("ask", ASKED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_backward_that_detaches_what_it_depends_on_is_refused(ask: str, dtype: torch.dtype) -> None:
    problem = problem_of(lambda model, x: model.last(cube(True).apply(model.first(x))), dtype=dtype)
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs"):
        ASKED[ask](problem)


@pytest.mark.parametrize("ask", ASKED)
def test_a_backward_that_detaches_its_slope_is_refused(ask: str) -> None:
    problem = problem_of(lambda model, x: model.last(cube(False, True).apply(model.first(x))))
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be"):
        ASKED[ask](problem)


def test_a_derivative_of_ones_own_that_hides_nothing_is_right() -> None:
    own = problem_of(lambda model, x: model.last(cube(False).apply(model.first(x))))
    plain = problem_of(lambda model, x: model.last(model.first(x) ** 3))
    found, expected = (hm.loss_hessian(problem).to_dense() for problem in (own, plain))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert HIDDEN_NOTE not in own.notes


def straight_through(model: TwoLayers, x: Tensor) -> Tensor:
    weight = model.first.weight
    rounded = weight + (torch.round(4 * weight) / 4 - weight).detach()
    return model.last(torch.tanh(F.linear(x, rounded)))


HIDDEN: dict[str, Body] = {
    "reversal": lambda model, x: model.last(Reversal.apply(torch.tanh(model.first(x)))),
    "detach": lambda model, x: model.last(torch.tanh(model.first(x)) * torch.sigmoid(model.first(x)).detach()),
    "straight through": straight_through,
    "numpy": lambda model, x: model.last(torch.tanh(model.first(x))) * float(model.first.weight.detach().numpy().sum()),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_is_hidden_from_autograd_is_said(name: str) -> None:
    problem = problem_of(HIDDEN[name])
    hm.loss_hessian(problem).to_dense()
    assert HIDDEN_NOTE in problem.notes


def test_a_hook_that_changes_gradients_is_said() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    model[2].register_full_backward_hook(lambda module, entering, leaving: (0.5 * entering[0],))
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    hm.loss_hessian(problem) @ torch.ones(problem.num_parameters, dtype=torch.float64)
    assert HIDDEN_NOTE in problem.notes


def test_hooks_on_parameters_are_said_and_change_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    plain = hm.loss_hessian(hm.Problem(model, "cross_entropy", INPUTS, LABELS)).to_dense()
    model[0].weight.register_hook(lambda gradient: 0 * gradient)
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    assert any("hooks on the gradients of '0.weight' were left out" in note for note in problem.notes)
    assert torch.equal(hm.loss_hessian(problem).to_dense(), plain)


KINKS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "abs": torch.abs,
    "leaky": lambda z: F.leaky_relu(z, 0.3),
    "elu": F.elu,
    "celu": F.celu,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "softshrink": F.softshrink,
    "relu6": F.relu6,
    "square of relu": lambda z: torch.relu(z) ** 2,
    "maximum": lambda z: torch.maximum(z, -0.5 * z),
    "sorted": lambda z: z.sort(1).values,
    "rounded": lambda z: z * torch.round(z).detach().sign(),
    "selected": lambda z: torch.where(z > 0.1, z**2, z),
    "clamped": lambda z: z.clamp(-0.2, 0.2),
    "norm": lambda z: z / (z.norm(dim=1, keepdim=True) + 1),
    "layer norm": lambda z: F.layer_norm(z, (5,)),
    "RMS norm": lambda z: F.rms_norm(z, (5,)),
    "normalised": lambda z: F.normalize(z, dim=1),
    "stiff": lambda z: torch.tanh(1e4 * z),
}


@pytest.mark.parametrize("name", KINKS)
@pytest.mark.parametrize("scale", ["normal", "integers", "zero", "tiny", "huge"])
def test_kinks_ties_and_scales_raise_no_alarm(name: str, scale: str) -> None:
    """Integer weights and inputs put pre-activations on kinks exactly; zero weights put all of them there."""
    generator = torch.Generator().manual_seed(3)
    factor = {"normal": 1.0, "integers": 1.0, "zero": 0.0, "tiny": 1e-8, "huge": 1e4}[scale]
    model = TwoLayers(lambda model, x: model.last(KINKS[name](model.first(x))))
    inputs = torch.randint(-1, 2, (12, 4), generator=generator).double()
    for parameter in model.parameters():
        drawn = torch.randint(-1, 2, parameter.shape, generator=generator) if scale == "integers" else parameter
        parameter.data = factor * drawn.detach().double()
    targets = torch.randn(12, 3, generator=generator, dtype=torch.float64)
    for dtype in (torch.float64, torch.float32):
        problem = hm.Problem(model, "squared", inputs, targets, dtype=dtype)
        hm.loss_hessian(problem) @ torch.ones(problem.num_parameters, dtype=dtype)
        assert HIDDEN_NOTE not in problem.notes


def test_a_loss_whose_derivative_hides_itself_is_refused() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return cube(True).apply(outputs - targets).sum(1)

    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    problem = hm.Problem(model, loss, INPUTS, INPUTS[:, :3])
    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the loss"):
        hm.loss_hessian(problem).to_dense()


def test_differences_contradict_a_wrong_derivative_and_nothing_else() -> None:
    def contradicted(found: float, value: Callable[[float], float]) -> bool:
        return is_contradicted(found, abs(found), value, 1.0, 1.0, torch.float64)

    smooth = lambda place: (2 + place) ** 3  # noqa: E731 - twelve at 0
    assert not contradicted(12.0, smooth)
    assert contradicted(11.0, smooth)
    assert contradicted(0.0, smooth)
    for stiff in (lambda place: math.tanh(1e9 * place), lambda place: place / (1e-20 + place**2) ** 0.75):
        slope = (stiff(1e-13) - stiff(-1e-13)) / 2e-13
        assert not contradicted(slope, stiff)
    for kink in (abs, lambda place: max(place, 0.0), lambda place: float(place > 0), lambda place: place * abs(place)):
        assert not contradicted(0.0, kink)
    assert not contradicted(0.0, lambda place: 1e-13 * hash(place) / 2**61)  # rounding


def test_a_sample_may_not_depend_on_its_place_in_the_batch() -> None:
    with pytest.raises(NotReproducible, match="the model must treat samples independently"):
        problem_of(lambda model, x: model.last(torch.tanh(model.first(x))) + torch.arange(len(x))[:, None])
    with pytest.raises(NotReproducible, match="the model must treat samples independently"):
        problem_of(lambda model, x: model.last(torch.tanh(model.first(x))).flip(0).cumsum(0).flip(0))


class Keeping(nn.Module):
    """Normalises its weight in the first forward pass, and uses that again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.kept: Tensor | None = None
        self.seen: list[tuple[int, ...]] = []

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.append(tuple(inputs.shape))
        if self.kept is None:
            self.kept = self.layer.weight / self.layer.weight.norm()
        return inputs @ self.kept.T


class Counting(Keeping):
    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.append(tuple(inputs.shape))
        self.kept = inputs
        return self.layer(inputs)


def test_a_model_that_uses_a_kept_weight_again_is_refused_and_one_that_only_counts_is_not() -> None:
    with pytest.raises(UnsupportedNetwork, match="must not reuse values computed with other weights; .* 'kept'"):
        hm.Problem(Keeping(), "cross_entropy", INPUTS, LABELS)
    assert hm.Problem(Counting(), "cross_entropy", INPUTS, LABELS).num_parameters == 15


def outputs_of_three(loss: Callable[[Tensor, Tensor], Tensor]) -> hm.Problem:
    model = hm.FullyConnected((4, 5, 3), activation="tanh").build(seed=0)
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (torch.randn(20, width, generator=generator, dtype=torch.float64) for width in (4, 3))
    return hm.Problem(model, loss, inputs, targets)


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, targets: (outputs.detach() - targets).square().sum(1),
        lambda outputs, targets: (outputs - targets).square().sum(1) + 3 * outputs.detach().exp().sum(1),
    ],
    ids=["all of it", "a part"],
)
def test_outputs_that_a_loss_hides_are_said(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    problem = outputs_of_three(loss)
    hm.loss_hessian(problem).to_dense()
    assert HIDDEN_LOSS_NOTE in problem.notes


@pytest.mark.parametrize(
    "loss",
    [
        lambda outputs, targets: (outputs - targets).abs().sum(1),
        lambda outputs, targets: (outputs - targets).square().sum(1) + 1e9,
        lambda outputs, targets: torch.relu(1 - outputs * targets.sign()).sum(1),
        lambda outputs, targets: torch.nn.functional.huber_loss(outputs, targets, reduction="none").sum(1),
        lambda outputs, targets: 1e-9 * (outputs - targets).square().sum(1),
        lambda outputs, targets: 0 * outputs.sum(1),
        lambda outputs, targets: -torch.log_softmax(1e3 * outputs, 1)[:, 0],
    ],
    ids=["absolute", "far from zero", "hinge", "huber", "small", "zero", "steep"],
)
def test_losses_that_hide_nothing_have_no_such_note(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    problem = outputs_of_three(loss)
    hm.loss_hessian(problem).to_dense()
    assert HIDDEN_LOSS_NOTE not in problem.notes
