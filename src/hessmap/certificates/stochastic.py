"""A network whose weights are Gaussian, each layer in an orthonormal basis of its own.

The weight of a layer is W + U (E * D) V^T: W the mean, E standard normal, D the deviations, U and V orthonormal; its
bias is b + U (e * d). Two ways to draw:

"networks": all weights are drawn and written into a copy of the network, which then answers some samples. Right for
    every network, whatever it does with its weights.
"pairs": every sample has weights of its own. For one sample x of a linear layer the output is normal with mean W x + b,
    and in the coordinates U^T independent with variances D^2 (V^T x)^2 + d^2 (squares element by element), so drawing
    the output is drawing the weights (local reparametrisation, Kingma, Salimans & Welling 2015). Quick, and right only
    where ``pairs.PairNetwork`` finds that every weight is used by one call of its own layer on one sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from hessmap.certificates.model_copies import model_copy
from hessmap.certificates.posterior import LayerPosterior, Posterior
from hessmap.errors import UnsupportedNetwork, sentence

_FIRST_LOG_DEVIATION = -3.0  # before a fit chooses better ones
_LARGEST_BASIS = 8192  # rows: a wider layer stays in its own coordinates
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d)  # these types themselves: a subclass may compute something else


class StochasticLayer(nn.Module):
    """The Gaussian weights of a layer, or of a parameter alone; trainable are means and log deviations."""

    def __init__(self, weight: Tensor, bias: Tensor | None, has_bases: bool, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach().clone())
        self.log_deviations = nn.Parameter(torch.full_like(weight, _FIRST_LOG_DEVIATION))
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())
        self.bias_log_deviations = None if bias is None else nn.Parameter(torch.full_like(bias, _FIRST_LOG_DEVIATION))
        self.output_basis = torch.eye(len(weight), dtype=weight.dtype) if has_bases else None
        self.input_basis = torch.eye(weight.shape[1], dtype=weight.dtype) if has_bases else None
        self.generator = generator

    def noise(self, count: int) -> tuple[Tensor, ...]:
        """Standard normal numbers for ``count`` draws: of the weight, and of the bias if there is one."""
        return tuple(self.normal(count, *mean.shape) for mean in (self.weight, self.bias) if mean is not None)

    def weights(self, noise: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Weights and biases of that noise, differentiable in means and deviations."""
        weights = self.weight + self.unrotated(noise[0] * self.log_deviations.exp())
        if self.bias is None or self.bias_log_deviations is None:
            return (weights,)
        shifts = noise[1] * self.bias_log_deviations.exp()
        turned = shifts if self.output_basis is None or not self.is_rotated else shifts @ self.output_basis.T
        return weights, self.bias + turned

    def rotated(self, weight: Tensor) -> Tensor:
        """A weight in the layer's coordinates: U^T W V."""
        if self.output_basis is None or self.input_basis is None:
            return weight
        return self.output_basis.T @ weight @ self.input_basis

    @property
    def is_rotated(self) -> bool:
        """Whether the bases are any but the coordinates as they are, which cost no product."""
        bases = [basis for basis in (self.output_basis, self.input_basis) if basis is not None]
        return not all(map(_is_identity, bases))

    def unrotated(self, weight: Tensor) -> Tensor:
        """The same back: U W V^T."""
        if self.output_basis is None or self.input_basis is None or not self.is_rotated:
            return weight
        return self.output_basis @ weight @ self.input_basis.T

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=self.weight.dtype)


def _is_identity(basis: Tensor) -> bool:
    is_possible = basis.numel() == 0 or float(basis[0, 0]) == 1
    return is_possible and torch.equal(basis, torch.eye(len(basis), dtype=basis.dtype))


@dataclass(frozen=True)
class Place:
    """Where the weights of a layer live in the network: names of parameters, and the shape of the weight there."""

    weight: str
    bias: str | None
    shape: torch.Size

    def named(self, values: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """The values of weight and bias by the names of their parameters."""
        found = {self.weight: values[0].reshape(self.shape)}
        return found if self.bias is None else found | {self.bias: values[1].flatten()}

    def stacked(self, values: tuple[Tensor, ...]) -> dict[str, Tensor]:
        """The same of many draws."""
        count = len(values[0])
        found = {self.weight: values[0].reshape(count, *self.shape)}
        return found if self.bias is None else found | {self.bias: values[1].reshape(count, -1)}


class StochasticNetwork:
    """A copy of a network with a Gaussian law for all of its real parameters, which draws whole networks."""

    def __init__(self, model: nn.Module, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> None:
        self.dtype, self.generator = dtype, generator
        self.model = model_copy(model, dtype)
        self.places = parameter_places(self.model)
        if not self.places:
            raise UnsupportedNetwork(sentence("a certificate needs a network with parameters", "it has none"))
        self.parameters = {
            name: parameter.requires_grad_()
            for name, parameter in self.model.named_parameters()
            if parameter.is_floating_point()
        }
        self.layers: dict[str, StochasticLayer] = {}
        for name, place in self.places.items():
            weight = self.parameters[place.weight]
            bias = None if place.bias is None else self.parameters[place.bias]
            matrix = weight if place.weight == name else weight.flatten(1)
            has_bases = place.weight != name and max(matrix.shape) <= _LARGEST_BASIS
            self.layers[name] = StochasticLayer(matrix, bias, has_bases, generator)

    def draw(self) -> nn.Module:
        """The network with newly drawn weights."""
        return self.with_weights(self._single_weights())

    def mean_model(self) -> nn.Module:
        """The network with the means as its weights; a copy in double precision."""
        means: dict[str, Tensor] = {}
        for name, place in self.places.items():
            layer = self.layers[name]
            means |= place.named((layer.weight,) if layer.bias is None else (layer.weight, layer.bias))
        return model_copy(self.with_weights(means), torch.float64)

    def outputs(self, inputs: Tensor) -> Tensor:
        """Of one network drawn for all of these samples, differentiable in means and deviations."""
        drawn = self._single_weights()
        written = [self.parameters[name] for name in drawn]
        run: Any = _DrawnNetwork.apply
        outputs: Tensor = run(self.with_weights(drawn), inputs, written, *drawn.values())
        return outputs

    def posterior(self) -> Posterior:
        """Means, deviations and bases as they are now."""
        return {name: LayerPosterior.of(layer) for name, layer in self.layers.items()}

    def take(self, posterior: Mapping[str, LayerPosterior]) -> None:
        """Take over means, deviations and bases."""
        for name, layer in self.layers.items():
            posterior[name].copy_to(layer)

    def drawn_weights(self, count: int) -> dict[str, Tensor]:
        """The weights of ``count`` networks, stacked, by the names of their parameters."""
        drawn: dict[str, Tensor] = {}
        for name, place in self.places.items():
            drawn |= place.stacked(self.layers[name].weights(self.layers[name].noise(count)))
        return drawn

    def _single_weights(self) -> dict[str, Tensor]:
        return {name: value[0] for name, value in self.drawn_weights(1).items()}

    @torch.no_grad()
    def with_weights(self, weights: Mapping[str, Tensor]) -> nn.Module:
        """Written in place, so that whatever the network does with a parameter, it does with these values."""
        for name, value in weights.items():
            self.parameters[name].copy_(value)
        return self.model


class _DrawnNetwork(torch.autograd.Function):
    """The outputs of a network as a function of weights that were written into its parameters.

    Not by ``torch.func.functional_call``, which does not reach every use of a parameter: one held in a list, say.
    """

    @staticmethod
    def forward(ctx: Any, model: nn.Module, inputs: Tensor, parameters: list[nn.Parameter], *drawn: Tensor) -> Tensor:
        with torch.enable_grad():
            ctx.outputs, ctx.parameters = model(inputs), parameters
        if not ctx.outputs.requires_grad:
            remedy = 'Leave out no_grad, detach and argmax in forward, or take posterior="prior"'
            must = "a posterior is fitted by gradients"
            raise UnsupportedNetwork(sentence(must, "the outputs have none in the weights", remedy))
        outputs: Tensor = ctx.outputs.detach()
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        found = torch.autograd.grad(ctx.outputs, ctx.parameters, gradients, allow_unused=True)
        return None, None, None, *found


def parameter_places(model: nn.Module) -> dict[str, Place]:
    """Plain linear and convolutional layers by name, then every other real parameter by its own; each value once."""
    names = {id(parameter): name for name, parameter in model.named_parameters() if parameter.is_floating_point()}
    left, places = dict(names), {}
    for name, module in model.named_modules():
        if type(module) not in _LAYERS or id(module.weight) not in left:
            continue
        bias = module.bias if id(module.bias) in left else None
        places[name] = Place(left.pop(id(module.weight)), left.pop(id(bias), None), module.weight.shape)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    return places | {name: Place(name, None, shapes[name]) for name in left.values()}
