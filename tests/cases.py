"""Small named problems that every curvature test walks: each a model, a loss and data, made from a seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hessmap.problem.problem import Problem


@dataclass(frozen=True)
class Case:
    name: str
    model: Callable[[], nn.Module]
    loss: object
    input_dim: int
    output_dim: int
    integer_targets: bool = False
    num_samples: int = 11

    def data(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(5)
        inputs = torch.randn(self.num_samples, self.input_dim, generator=generator, dtype=torch.float64)
        if self.integer_targets:
            return inputs, torch.randint(0, self.output_dim, (self.num_samples,), generator=generator)
        return inputs, torch.randn(self.num_samples, self.output_dim, generator=generator, dtype=torch.float64)

    def seeded_model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return self.model().double()

    def problem(self, **options: object) -> Problem:
        return Problem(self.seeded_model(), self.loss, *self.data(), **options)


def chain(*widths: int, activation: type[nn.Module] = nn.Tanh, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out, bias=bias), activation()]
    return nn.Sequential(*layers[:-1])


class Residual(nn.Module):
    """Batch-norm, layer-norm, a residual sum, a module called twice, a parameter of its own and one never used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(5, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.norm, self.other_norm = nn.BatchNorm1d(6), nn.LayerNorm(6)
        self.never_used = nn.Linear(2, 2)
        self.gain = nn.Parameter(torch.randn(6))
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)
        nn.init.normal_(self.norm.weight)
        nn.init.normal_(self.other_norm.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.norm(self.first(inputs)))
        hidden = hidden + torch.tanh(self.second(hidden)) * self.gain
        hidden = hidden + torch.tanh(self.second(self.other_norm(hidden)))
        return self.last(hidden)


class Tied(nn.Module):
    """One weight used forwards and backwards (not a call the engine can lift), and one bias shared by two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.middle, self.decoder = nn.Linear(4, 3), nn.Linear(3, 3), nn.Linear(3, 3)
        self.decoder.weight = self.middle.weight
        self.decoder.bias = self.encoder.bias

    def forward(self, inputs: Tensor) -> Tensor:
        return self.decoder(torch.sigmoid(self.middle(torch.tanh(self.encoder(inputs)))))


class Transposed(nn.Module):
    """An autoencoder whose decoder is the transposed encoder: one use of the weight is hidden from the lifting."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tanh(self.encoder(inputs)) @ self.encoder.weight


class Tokens(nn.Module):
    """Linear layers over tokens, mixed by attention written out."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm, self.value, self.last = (
            nn.Linear(3, 4),
            nn.LayerNorm(4),
            nn.Linear(4, 4, bias=False),
            nn.Linear(4, 3),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = torch.tanh(self.norm(self.embed(inputs.reshape(len(inputs), 2, 3))))
        mixed = torch.softmax(tokens @ tokens.mT, -1) @ self.value(tokens)
        return self.last(mixed.mean(1))


class ConvolvedTwice(nn.Module):
    """A convolution that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.last = nn.Conv1d(2, 2, 3, padding="same"), nn.Linear(12, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.again(inputs.reshape(len(inputs), 2, 6)))
        return self.last(torch.tanh(self.again(hidden)).flatten(1))


def convolved(image: tuple[int, ...], *layers: nn.Module) -> nn.Sequential:
    """Layers on images given as flat vectors; normalisations get statistics and scales that are not trivial."""
    for layer in layers:
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            nn.init.normal_(layer.weight)
    return nn.Sequential(nn.Unflatten(1, image), *layers)


def strided_convolutions() -> nn.Module:
    """The first has fewer weights than outputs, the second fewer outputs."""
    first, second = nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.Conv1d(4, 3, 3, padding=(1,), stride=(3,), bias=False)
    return convolved((2, 13), first, nn.Tanh(), second, nn.Sigmoid(), nn.Flatten(), nn.Linear(9, 2))


def grouped_convolutions() -> nn.Module:
    first, second = nn.Conv1d(2, 4, 2, groups=2), nn.Conv1d(4, 4, 3, groups=2)
    return convolved((2, 6), first, nn.Tanh(), second, nn.Tanh(), nn.Conv1d(4, 4, 3, groups=4), nn.Flatten())


def padded_convolutions() -> nn.Module:
    first = nn.Conv2d(1, 2, (3, 2), dilation=(1, 2), padding=(1, 2), padding_mode="circular")
    second = nn.Conv2d(2, 3, (2, 3), padding="valid", stride=(2, 1))
    return convolved((1, 4, 4), first, nn.Tanh(), second, nn.Tanh(), nn.Flatten(), nn.Linear(24, 2))


def max_pooled() -> nn.Module:
    first, second = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 4, 2)
    pool = nn.MaxPool2d(2, padding=1)
    return convolved((1, 4, 4), first, nn.ReLU(), pool, second, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), chain(4, 3))


def averaged_and_normalised() -> nn.Module:
    first, second = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.Conv2d(4, 3, 2)
    pools = nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1)
    return convolved(
        (1, 6, 6), first, nn.BatchNorm2d(4), nn.Tanh(), pools[0], second, nn.GELU(), pools[1], nn.Flatten(), chain(3, 3)
    )


def decoder() -> nn.Module:
    """A linear layer before convolutions, as in generators."""
    return nn.Sequential(
        chain(4, 6),
        nn.Unflatten(1, (2, 3)),
        nn.Conv1d(2, 4, 2, padding=1),
        nn.Tanh(),
        nn.MaxPool1d(2),
        nn.Conv1d(4, 3, 2),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
    )


def partly_frozen() -> nn.Module:
    model = chain(4, 5, 3)
    model[0].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    return model


CASES = (
    Case("one layer", lambda: chain(4, 3, bias=False), "squared", 4, 3),
    Case("linear", lambda: chain(4, 5, 3, 2, activation=nn.Identity, bias=False), "squared", 4, 2),
    Case("linear with bias", lambda: chain(3, 4, 2, activation=nn.Identity), "squared", 3, 2),
    Case("tanh", lambda: chain(4, 5, 3, bias=False), "squared", 4, 3),
    Case("tanh, one-hot targets", lambda: chain(4, 5, 6, 3), "squared", 4, 3, integer_targets=True),
    Case("relu cross-entropy", lambda: chain(4, 9, 3, activation=nn.ReLU), "cross_entropy", 4, 3, True),
    Case("gelu log-cosh", lambda: chain(4, 5, 3, activation=nn.GELU), "log_cosh", 4, 3),
    Case("more outputs than hidden", lambda: chain(3, 2, 7), "squared", 3, 7),
    Case("one output", lambda: chain(3, 4, 1), nn.MSELoss(), 3, 1),
    Case("label smoothing", lambda: chain(4, 5, 3), nn.CrossEntropyLoss(label_smoothing=0.2), 4, 3, True),
    Case("user's function", lambda: chain(4, 3), lambda out, target: ((out - target) ** 4).sum(1), 4, 3),
    Case("residual, norms, repeated", Residual, "cross_entropy", 5, 4, True),
    Case("tied weight and bias", Tied, "squared", 4, 3),
    Case("transposed weight", Transposed, "squared", 4, 4),
    Case("tokens", Tokens, "cross_entropy", 6, 3, True),
    Case("partly frozen", partly_frozen, "squared", 4, 3),
    Case("convolutions, strided", strided_convolutions, "squared", 26, 2, num_samples=5),
    Case("convolutions, grouped", grouped_convolutions, "cross_entropy", 12, 4, True, num_samples=5),
    Case("convolutions, padded", padded_convolutions, "log_cosh", 16, 2, num_samples=5),
    Case("convolutions, max-pool", max_pooled, "cross_entropy", 16, 3, True, num_samples=5),
    Case("convolutions, batch-norm, average", averaged_and_normalised, "squared", 36, 3, num_samples=5),
    Case("convolution called twice", ConvolvedTwice, "cross_entropy", 12, 3, True, num_samples=5),
    Case("convolutions after a linear layer", decoder, "squared", 4, 3, num_samples=5),
)
