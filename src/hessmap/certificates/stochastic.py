"""A network whose weights are Gaussian, each layer in an orthonormal basis of its own, fresh for every sample.

The weight of a layer is W + U (E * D) V^T: W the mean, E standard normal, D the deviations, U and V orthonormal; its
bias is b + U (e * d). For one sample x of a linear layer the output is therefore normal with mean W x + b, and in the
coordinates U^T independent with variances D^2 (V^T x)^2 + d^2 (squares element by element): drawing the output is
drawing the weights anew for every sample (local reparametrisation, Kingma, Salimans & Welling 2015). Convolutions use
one draw at many positions, so their weights are drawn one sample at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hessmap.certificates.posterior import LayerPosterior, Posterior
from hessmap.curvature.layers.patches import Patches
from hessmap.errors import UnsupportedNetwork, sentence

_TINY = 1e-30  # below every variance that matters; keeps the derivative of the root finite at zero
_NEEDED = "a certificate needs a network whose parameters all belong to linear and convolutional layers"


@dataclass(frozen=True)
class KnownSquares:
    """(V^T x)^2 of the very tensor ``inputs``, as long as nobody wrote into it."""

    inputs: Tensor
    version: int
    squares: Tensor

    @classmethod
    def of(cls, inputs: Tensor, squares: Tensor) -> KnownSquares:
        return cls(inputs, inputs._version, squares)

    def are_of(self, inputs: Tensor) -> bool:
        return inputs is self.inputs and inputs._version == self.version


def squared_coordinates(inputs: Tensor, basis: Tensor) -> Tensor:
    """(V^T x)^2 of every row x, zero where rounding is all there is.

    Directions that no sample has leave squares near the smallest float, with which products are several times slower.
    """
    squares = (inputs @ basis).square()
    noise = torch.finfo(squares.dtype).eps ** 2 * float(squares.detach().amax()) if squares.numel() else 0.0
    return nn.functional.threshold(squares, noise, 0.0)


class StochasticLayer(nn.Module):
    """One linear or convolutional layer with Gaussian weights; trainable are means and log deviations."""

    output_basis: Tensor
    input_basis: Tensor

    def __init__(self, layer: nn.Linear | nn.Conv1d | nn.Conv2d, dtype: torch.dtype) -> None:
        super().__init__()
        outputs, inputs = layer.weight.flatten(1).shape
        self.shape = layer.weight.shape
        self.weight = nn.Parameter(layer.weight.detach().flatten(1).to(dtype).clone())
        self.log_deviations = nn.Parameter(torch.zeros(outputs, inputs, dtype=dtype))
        bias = layer.bias
        self.bias = None if bias is None else nn.Parameter(bias.detach().to(dtype).clone())
        self.bias_log_deviations = None if bias is None else nn.Parameter(torch.zeros(outputs, dtype=dtype))
        self.register_buffer("output_basis", torch.eye(outputs, dtype=dtype))
        self.register_buffer("input_basis", torch.eye(inputs, dtype=dtype))
        self.generator: torch.Generator | None = None
        self.known_squares: KnownSquares | None = None  # of the samples at hand, where the caller has them
        self.num_calls = 0

    def rotated(self, matrix: Tensor) -> Tensor:
        """A weight matrix in the layer's coordinates: U^T W V."""
        return self.output_basis.T @ matrix @ self.input_basis

    def forward(self, inputs: Tensor) -> Tensor:
        self.num_calls += 1
        return self._drawn(inputs)

    def _drawn(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=self.weight.dtype)


class StochasticLinear(StochasticLayer):
    """Outputs drawn directly, in the basis of the outputs."""

    def _drawn(self, inputs: Tensor) -> Tensor:
        if inputs.ndim != 2:
            broken = f"one is applied to inputs of shape {tuple(inputs.shape)}"
            raise UnsupportedNetwork(sentence("a certificate needs linear layers that see one vector a sample", broken))
        variances = self._squares(inputs) @ (2 * self.log_deviations).exp().T
        if self.bias_log_deviations is not None:
            variances = variances + (2 * self.bias_log_deviations).exp()
        noise = self._normal(*variances.shape) * variances.clamp_min(_TINY).sqrt()
        return nn.functional.linear(inputs, self.weight, self.bias) + noise @ self.output_basis.T

    def _squares(self, inputs: Tensor) -> Tensor:
        known = self.known_squares
        if known is not None and known.are_of(inputs):
            return known.squares
        return squared_coordinates(inputs, self.input_basis)


class StochasticConvolution(StochasticLayer):
    """Weights drawn for every sample, then applied to its patches."""

    def __init__(self, layer: nn.Conv1d | nn.Conv2d, dtype: torch.dtype) -> None:
        super().__init__(layer, dtype)
        if layer.groups != 1:
            raise UnsupportedNetwork(sentence("a certificate needs convolutions of one group", f"got {layer.groups}"))
        if layer.padding_mode != "zeros":
            raise UnsupportedNetwork(sentence("a certificate needs zero padding", f"got {layer.padding_mode!r}"))
        arguments = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation}
        self.patches = Patches.of(layer.weight, arguments)
        # The spatial shape of the outputs, from a convolution that has a single cheap channel.
        self.single = copy.deepcopy(layer).requires_grad_(False)
        self.single.weight = nn.Parameter(layer.weight.detach()[:1, :1].clone(), requires_grad=False)
        self.single.bias = None
        self.single.in_channels = self.single.out_channels = 1

    def _drawn(self, inputs: Tensor) -> Tensor:
        count, (outputs, _) = len(inputs), self.weight.shape
        scaled = self._normal(count, *self.weight.shape) * self.log_deviations.exp()
        weights = self.weight + self.output_basis @ scaled @ self.input_basis.T
        drawn = self.patches.unfolded(inputs) @ weights.transpose(1, 2)
        if self.bias is not None and self.bias_log_deviations is not None:
            noise = (self._normal(count, outputs) * self.bias_log_deviations.exp()) @ self.output_basis.T
            drawn = drawn + (self.bias + noise)[:, None]
        with torch.no_grad():
            spatial = self.single(inputs[:1, :1].to(self.single.weight.dtype)).shape[2:]
        return drawn.transpose(1, 2).reshape(count, outputs, *spatial)


class StochasticNetwork(nn.Module):
    """A copy of a network in which every linear and convolutional layer is stochastic."""

    def __init__(self, model: nn.Module, generator: torch.Generator, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        require_only_layers(model)
        self.network = copy.deepcopy(model).to(dtype).eval()
        self.layers: dict[str, StochasticLayer] = {}
        for name, layer in _weight_layers(self.network):
            kind = StochasticLinear if isinstance(layer, nn.Linear) else StochasticConvolution
            made = kind(layer, dtype)  # type: ignore[arg-type]
            made.generator = generator
            self.layers[name] = made
            self.network = _replaced(self.network, name, made)

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers.values():
            layer.num_calls = 0
        outputs: Tensor = self.network(inputs)
        for name, layer in self.layers.items():
            if layer.num_calls != 1:
                broken = f"{name} is applied {layer.num_calls} times"
                raise UnsupportedNetwork(sentence("a certificate needs layers that are applied once a sample", broken))
        return outputs

    def posterior(self) -> Posterior:
        """Means, deviations and bases as they are now."""
        return {name: LayerPosterior.of(layer) for name, layer in self.layers.items()}

    def take(self, posterior: Mapping[str, LayerPosterior]) -> None:
        """Take over means, deviations and bases."""
        for name, layer in self.layers.items():
            posterior[name].copy_to(layer)


def _weight_layers(model: nn.Module) -> Iterator[tuple[str, nn.Linear | nn.Conv1d | nn.Conv2d]]:
    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
            yield name, layer


def require_only_layers(model: nn.Module) -> None:
    """Refuse a network whose parameters are not all weights and biases of plain layers, each used once."""
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            broken = f"{name} is a batch-norm, whose statistics come from the data"
            raise UnsupportedNetwork(sentence("the prior of a certificate must not depend on the data", broken))
    layers = list(_weight_layers(model))
    if not layers:
        raise UnsupportedNetwork(sentence(_NEEDED, "it has none"))
    owned = {id(parameter) for _, layer in layers for parameter in (layer.weight, layer.bias)}
    for name, layer in layers:
        if type(layer) not in (nn.Linear, nn.Conv1d, nn.Conv2d):
            broken = f"{name} is a {type(layer).__name__}, which may compute something else"
            raise UnsupportedNetwork(sentence("a certificate needs plain linear and convolutional layers", broken))
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) not in owned:
            raise UnsupportedNetwork(sentence(_NEEDED, f"{name} does not"))
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    if len(names) != len(list(model.parameters())):
        raise UnsupportedNetwork(sentence("a certificate needs parameters that are used once", "some are tied"))


def _replaced(network: nn.Module, name: str, made: nn.Module) -> nn.Module:
    if not name:
        return made
    parent, _, leaf = name.rpartition(".")
    setattr(network.get_submodule(parent), leaf, made)
    return network
