"""A loss that uses the weights of the model itself: they would not move with those that are differentiated."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput, UnsupportedNetwork
from plain_autograd import plain_hessian

INPUTS = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(20) % 3
Loss = Callable[[Tensor, Tensor], Tensor]


class Network(nn.Module):
    """Two layers, a scale that is a buffer, and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        self.register_buffer("scale", torch.tensor(1.5))
        self.double()

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(inputs))) * self.scale

    def own_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets) + quartic(self)

    def plain_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs * self.scale, targets)


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def quartic(model: nn.Module) -> Tensor:
    return 0.1 * sum((parameter**4).sum() for parameter in model.parameters())


GLOBAL = Network()


def with_global(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets) + GLOBAL.last.weight.square().sum()


def with_argument(outputs: Tensor, targets: Tensor, model: nn.Module) -> Tensor:
    return cross_entropy(outputs, targets) + quartic(model)


class Penalised:
    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return with_argument(outputs, targets, self.model)


class Holding(nn.Module):
    """A module that has the model as a part, in a list or under another name, or one of its weights."""

    reduction = "none"

    def __init__(self, model: nn.Module, how: str) -> None:
        super().__init__()
        if how == "part":
            self.model = model
        elif how == "list":
            self.models = [model]
        elif how == "weight":
            self.weight = model.last.weight
        elif how == "kept weights":
            self.kept = {"weights": list(model.parameters())}
        elif how == "memory":
            self.weight = nn.Parameter(model.last.weight.detach())
        self.how = how

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.how in ("weight", "memory"):
            penalty = self.weight.abs().pow(3).sum()
        elif self.how == "kept weights":
            penalty = sum(weight.pow(4).sum() for weight in self.kept["weights"])
        else:
            penalty = quartic(self.model if self.how == "part" else self.models[0])
        return cross_entropy(outputs, targets) + penalty


def virtual_adversarial(model: nn.Module) -> Loss:
    """The outputs move little with the inputs, in the direction in which they move most."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        with torch.enable_grad():
            step = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
            distance = (model(INPUTS[:1] + step + 0.1) - model(INPUTS[:1])).square().sum()
            direction = torch.autograd.grad(distance, step)[0].detach()
        moved = model(INPUTS[:1] + direction)
        return cross_entropy(outputs, targets) + (moved - model(INPUTS[:1])).square().sum()

    return loss


def twice_called(model: nn.Module) -> Loss:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        again = F.log_softmax(model(INPUTS[: len(outputs)]), 1)
        return (
            cross_entropy(outputs, targets) + 0 * outputs.sum(1) + again.exp().sum() * F.log_softmax(outputs, 1)[:, 0]
        )

    return loss


def gradient_penalty(model: nn.Module) -> Loss:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        with torch.enable_grad():
            slopes = torch.autograd.grad(model(INPUTS[:3]).sum(), list(model.parameters()), create_graph=True)
        return cross_entropy(outputs, targets) + sum(slope.square().sum() for slope in slopes)

    return loss


def computed_before(model: nn.Module) -> Loss:
    penalty = quartic(model)
    return lambda outputs, targets: cross_entropy(outputs, targets) + penalty


def of_some_labels(model: nn.Module) -> Loss:
    """Samples after the first twenty alone are penalised: see the data of this case."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        plain = cross_entropy(outputs, targets.clamp(max=2))
        return plain + quartic(model) if bool((targets == 3).any()) else plain

    return loss


def scripted(model: nn.Module) -> Loss:
    traced = torch.jit.trace(model, INPUTS[:2])
    return lambda outputs, targets: cross_entropy(outputs, targets) + traced(INPUTS[:2]).square().sum()


REFUSED: dict[str, Callable[[Network], object]] = {
    "closure": lambda model: lambda outputs, targets: cross_entropy(outputs, targets) + quartic(model),
    "default": lambda model: lambda outputs, targets, net=model: with_argument(outputs, targets, net),
    "partial": lambda model: partial(with_argument, model=model),
    "attribute": Penalised,
    "bound method": lambda model: model.own_loss,
    "orthogonality": lambda model: (
        lambda outputs, targets: (
            cross_entropy(outputs, targets) + (model.first.weight.T @ model.first.weight - torch.eye(4)).square().sum()
        )
    ),
    "one entry": lambda model: lambda outputs, targets: cross_entropy(outputs, targets) * model.last.bias[1].exp(),
    **{
        f"module with {how}": lambda model, how=how: Holding(model, how)
        for how in ("part", "list", "weight", "kept weights", "memory")
    },
    "class weights": lambda model: nn.CrossEntropyLoss(weight=model.last.bias),
    "adversarial": virtual_adversarial,
    "called twice": twice_called,
    "gradient penalty": gradient_penalty,
    "computed before": computed_before,
    "scripted": scripted,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_loss_that_uses_weights_of_the_model_is_refused(name: str, mode: Callable[[], object]) -> None:
    model = Network()
    loss = REFUSED[name](model)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    sentence = (
        r"a loss must be a function of outputs and targets; '.+' also depends on parameter '(first|last)\..*forward="
    )
    with mode(), pytest.raises(InvalidInput, match=sentence):
        hm.Problem(model, loss, INPUTS, LABELS)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_a_global_model_is_seen() -> None:
    with pytest.raises(InvalidInput, match="'with_global' also depends on parameter 'last.weight'"):
        hm.Problem(GLOBAL, with_global, INPUTS, LABELS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_in_float32_is_seen(dtype: torch.dtype) -> None:
    model = Network().float()
    with pytest.raises(InvalidInput, match="also depends on parameter"):
        hm.Problem(model, Holding(model, "part"), INPUTS.float(), LABELS, dtype=dtype)


def test_weights_that_only_later_samples_use_are_seen() -> None:
    model, count = Network(), 100
    inputs = INPUTS.repeat(5, 1)
    labels = torch.where(torch.arange(count) == 90, 3, torch.arange(count) % 3)
    with pytest.raises(InvalidInput, match="also depends on parameter"):
        hm.Problem(model, of_some_labels(model), inputs, labels)
    assert hm.Problem(model, of_some_labels(model), inputs[:90], labels[:90]).num_samples == 90


def test_a_loss_of_positions_is_seen() -> None:
    model = nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 3)).double()

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.mT, targets, reduction="none").sum(1) + model[1].weight.square().sum()

    with pytest.raises(InvalidInput, match="also depends on parameter '1.weight'"):
        hm.Problem(model, loss, INPUTS, torch.zeros(20, 2).long())


@pytest.mark.parametrize("wrap", [nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.orthogonal])
def test_a_weight_made_of_others_is_seen(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = nn.Sequential(wrap(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 3)).double()
    with pytest.raises(InvalidInput, match="also depends on parameter '0.parametrizations.weight.orig"):
        hm.Problem(model, lambda out, target: cross_entropy(out, target) + model[0].weight.sum(), INPUTS, LABELS)


def stored(model: Network) -> Loss:
    kept = model.state_dict()
    return lambda outputs, targets: cross_entropy(outputs, targets) * kept["last.weight"].square().sum()


CONSTANT: dict[str, Callable[[Network], Loss]] = {
    "detach": lambda model: lambda out, target: cross_entropy(out, target) * model.last.weight.detach().square().sum(),
    "data": lambda model: lambda out, target: cross_entropy(out, target) * model.last.weight.data.square().sum(),
    "no_grad": lambda model: torch.no_grad()(lambda: model.last.weight.square().sum()),
    "stored": lambda model: stored(model),
    "item": lambda model: lambda out, target: cross_entropy(out, target) * model.last.weight[0, 0].item() ** 2,
    "numpy": lambda model: (
        lambda out, target: cross_entropy(out, target) * float((model.last.weight.detach().numpy() ** 2).sum())
    ),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_weights_that_the_user_takes_for_constants_are_said(name: str) -> None:
    model = Network()
    made = CONSTANT[name](model)
    loss = (lambda out, target: cross_entropy(out, target) * made()) if name == "no_grad" else made
    problem = hm.Problem(model, loss, INPUTS, LABELS)
    assert "the loss reads values of 'last.weight' outside of autograd, where it is a constant" in problem.notes
    expected = plain_hessian(model, loss(model(INPUTS), LABELS).mean())
    torch.testing.assert_close(hm.loss_hessian(problem).to_dense(), expected, rtol=1e-9, atol=1e-11)


class Learnable(nn.Module):
    """A loss with a weight of its own, which is no weight of the model."""

    reduction = "none"

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(0.7, dtype=torch.float64))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs * self.temperature, targets) + self.temperature.square()


def with_teacher(model: Network) -> Loss:
    teacher = copy.deepcopy(model)
    return lambda out, target: (out - teacher(INPUTS[:1])).square().sum(1)


def shaped(model: Network) -> Loss:
    """The model's weights say a type, a shape and a device; their values do nothing."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        weight = model.last.weight
        zeros = torch.zeros_like(weight).sum() + weight.new_zeros(3).sum() + len(weight) - weight.shape[0]
        return cross_entropy(outputs.to(weight).type_as(weight).to(weight.device, weight.dtype), targets) + zeros

    return loss


ACCEPTED: dict[str, Callable[[Network], object]] = {
    "own weights": lambda model: Learnable(),
    "own class weights": lambda model: nn.CrossEntropyLoss(weight=nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))),
    "buffer": lambda model: lambda out, target: cross_entropy(out * model.scale, target),
    "bound method": lambda model: model.plain_loss,
    "held and not used": lambda model: holding_in_vain(model),
    "teacher": with_teacher,
    "shapes": shaped,
}


def holding_in_vain(model: Network) -> nn.Module:
    loss = Learnable()
    loss.model = model
    return loss


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_no_weight_of_the_model_may_be_used(name: str) -> None:
    model = Network()
    loss = ACCEPTED[name](model)
    problem = hm.Problem(model, loss, INPUTS, LABELS)
    assert not any("past autograd" in note for note in problem.notes)
    with torch.no_grad():
        total = loss.double() if isinstance(loss, nn.CrossEntropyLoss) else loss
    expected = plain_hessian(model, total(model(INPUTS), LABELS).mean())
    torch.testing.assert_close(hm.loss_hessian(problem).to_dense(), expected, rtol=1e-9, atol=1e-11)
    assert not problem.residuals().requires_grad


@pytest.mark.parametrize("how", ["frozen", "left out"])
def test_weights_that_are_not_differentiated_may_be_used(how: str) -> None:
    """Of a constant the derivative is zero: the Hessian in the others is that of autograd."""
    model = Network()
    if how == "frozen":
        model.first.requires_grad_(False)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs * model.first.weight.square().sum(), targets)

    problem = hm.Problem(model, loss, INPUTS, LABELS, parameters="last")
    model.first.requires_grad_(False)
    parts = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "parameters", lambda: iter(parts))
        expected = plain_hessian(model, loss(model(INPUTS), LABELS).mean())
    torch.testing.assert_close(hm.loss_hessian(problem).to_dense(), expected, rtol=1e-9, atol=1e-11)
    model.first.requires_grad_(True)
    with pytest.raises(InvalidInput, match="also depends on parameter 'first.weight'"):
        hm.Problem(model, loss, INPUTS, LABELS)


def test_the_remedy_is_right() -> None:
    """The term is computed by ``forward`` from the model that it is given, and added by the loss."""
    model = Network()

    def forward(given: nn.Module, inputs: Tensor) -> Tensor:
        return torch.cat([given(inputs), quartic(given).expand(len(inputs), 1)], 1)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs[:, :3], targets) + outputs[:, 3]

    problem = hm.Problem(model, loss, INPUTS, LABELS, forward=forward)
    expected = plain_hessian(model, cross_entropy(model(INPUTS), LABELS).mean() + quartic(model))
    torch.testing.assert_close(hm.loss_hessian(problem).to_dense(), expected, rtol=1e-9, atol=1e-11)


def with_kept(kept: Tensor | nn.Module) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda given, inputs: given(inputs) + (kept if isinstance(kept, Tensor) else kept(inputs))


FORWARDS: dict[str, Callable[[Network], Callable[[nn.Module, Tensor], Tensor]]] = {
    "original": lambda model: lambda given, inputs: given(inputs) + quartic(model),
    "computed before": lambda model: with_kept(quartic(model)),
    "scripted": lambda model: with_kept(torch.jit.trace(model, INPUTS[:2])),
    "weight": lambda model: lambda given, inputs: given(inputs) * model.last.weight[0, 0],
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", FORWARDS)
def test_a_forward_that_uses_the_original_is_refused(name: str) -> None:
    model = Network()
    with pytest.raises(UnsupportedNetwork, match=r"must reach its weights through its modules; .* '(first|last)\."):
        hm.Problem(model, "cross_entropy", INPUTS, LABELS, forward=FORWARDS[name](model))
