"""A deep linear network and the two moments of its data that its Hessian depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from hessmap.errors import require
from hessmap.linalg.vectors import Layout


@dataclass(frozen=True, eq=False)
class DeepLinear:
    """x -> W_L (.. (W_1 x + b_1) ..) + b_L under the squared loss, with what the Hessian sees of the data.

    With biases every layer takes one more input that is always 1, so that one set of formulas serves both: layer l
    (counted from 0) is the matrix [W, b] of m_l rows and n_l columns, and the data are (x, 1).

    ``input_second_moment`` is E[x x^T], ``residual_input_moment`` is Omega = E[(output - target) x^T]; with biases of
    (x, 1) in place of x. ``biases`` is None without biases.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...] | None
    input_second_moment: Tensor
    residual_input_moment: Tensor

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", _checked_weights(self.weights))
        if self.biases is not None:
            object.__setattr__(self, "biases", _checked_biases(self.biases, self.weights))
        num_inputs, output_dim = self.shapes[0][1], self.widths[-1]
        for name, shape in {
            "input_second_moment": (num_inputs, num_inputs),
            "residual_input_moment": (output_dim, num_inputs),
        }.items():
            moment = _real_tensor(getattr(self, name), name)
            object.__setattr__(self, name, moment)
            require(tuple(moment.shape) == shape, f"{name} must have shape {shape}", f"got {tuple(moment.shape)}")
        second = self.input_second_moment
        is_symmetric = torch.allclose(second, second.T, rtol=0, atol=1e-10 * float(second.abs().max()))
        require(is_symmetric, "input_second_moment must be symmetric", "it is not")

    @classmethod
    def from_data(
        cls,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor] | None,
        inputs: Tensor,
        targets: Tensor,
        sample_weights: Tensor | None = None,
    ) -> DeepLinear:
        """The network on data, one sample a row; ``sample_weights`` sum to 1 and are uniform by default."""
        layers = _checked_weights(weights)
        shifts = None if biases is None else _checked_biases(biases, layers)
        inputs, targets = _real_tensor(inputs, "inputs"), _real_tensor(targets, "targets")
        shapes = (len(inputs), layers[0].shape[1]), (len(inputs), layers[-1].shape[0])
        require(
            len(inputs) > 0 and (inputs.shape, targets.shape) == shapes,
            f"inputs and targets must contain {shapes[0][1]} and {shapes[1][1]} numbers per sample, one sample a row",
            f"got shapes {tuple(inputs.shape)} and {tuple(targets.shape)}",
        )
        outputs = inputs
        for place, weight in enumerate(layers):
            outputs = outputs @ weight.T if shifts is None else outputs @ weight.T + shifts[place]
        data = inputs if shifts is None else torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1)
        weighted = _masses(sample_weights, len(inputs))[:, None] * data
        return cls(layers, shifts, data.T @ weighted, (outputs - targets).T @ weighted)

    @property
    def widths(self) -> tuple[int, ...]:
        return self.weights[0].shape[1], *(weight.shape[0] for weight in self.weights)

    @property
    def num_layers(self) -> int:
        return len(self.weights)

    @property
    def has_bias(self) -> bool:
        return self.biases is not None

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Rows m_l and columns n_l of each layer's matrix [W, b]."""
        return tuple((after, before + self.has_bias) for before, after in pairwise(self.widths))

    @property
    def num_parameters(self) -> int:
        return self.layout.size

    @cached_property
    def layout(self) -> Layout:
        """The layout of the network as an nn.Sequential of Linear, Identity, .., Linear."""
        shapes: list[tuple[str, tuple[int, ...]]] = []
        for place, (before, after) in enumerate(pairwise(self.widths)):
            shapes.append((f"{2 * place}.weight", (after, before)))
            if self.has_bias:
                shapes.append((f"{2 * place}.bias", (after,)))
        return Layout(tuple(shapes))

    @cached_property
    def forward_products(self) -> tuple[Tensor, ...]:
        """P_l, shape (n_l, n_0): the input of layer l as a linear map of the data."""
        products = [torch.eye(self.shapes[0][1], dtype=torch.float64)]
        for place, weight in enumerate(self.weights[:-1]):
            before = products[-1]
            if self.biases is None:
                products.append(weight @ before)
            else:
                affine = torch.cat([weight, self.biases[place][:, None]], dim=1)
                products.append(torch.cat([affine @ before, before[-1:]]))
        return tuple(products)

    @cached_property
    def backward_products(self) -> tuple[Tensor, ...]:
        """A_l, shape (output_dim, m_l): the network's output as a linear map of the output of layer l."""
        products = [torch.eye(self.widths[-1], dtype=torch.float64)]
        for weight in reversed(self.weights[1:]):
            products.append(products[-1] @ weight)
        return tuple(reversed(products))

    @cached_property
    def between_products(self) -> dict[tuple[int, int], Tensor]:
        """C_lk for k < l, shape (n_l, m_k): the input of layer l as a linear map of the output of layer k."""
        products = {}
        for earlier in range(self.num_layers - 1):
            product = torch.eye(self.widths[earlier + 1], dtype=torch.float64)
            for later in range(earlier + 1, self.num_layers):
                # The constant input of a layer with a bias depends on no earlier output.
                constant = product.new_zeros(int(self.has_bias), product.shape[1])
                products[later, earlier] = torch.cat([product, constant])
                product = self.weights[later] @ product
        return products


def _real_tensor(values: Tensor, name: str) -> Tensor:
    require(isinstance(values, Tensor), f"{name} must be a tensor", f"got {type(values).__name__}")
    require(values.dtype == torch.float64, f"{name} must be float64", f"got {values.dtype}", "Call .double() on it")
    require(bool(torch.isfinite(values).all()), f"{name} must be finite", "there is NaN or inf")
    return values.detach()


def _masses(sample_weights: Tensor | None, num_samples: int) -> Tensor:
    if sample_weights is None:
        return torch.full((num_samples,), 1 / num_samples, dtype=torch.float64)
    masses = _real_tensor(sample_weights, "sample_weights")
    fits = masses.shape == (num_samples,) and bool((masses >= 0).all()) and abs(float(masses.sum()) - 1) < 1e-9
    must = f"sample_weights must be {num_samples} numbers, none negative, that sum to 1"
    require(fits, must, f"got shape {tuple(masses.shape)} and sum {float(masses.sum()):.6g}")
    return masses


def _checked_weights(weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    require(len(weights) > 0, "a deep linear network must have at least one layer", "got no weights")
    checked = tuple(_real_tensor(weight, f"weights[{place}]") for place, weight in enumerate(weights))
    for place, weight in enumerate(checked):
        require(weight.ndim == 2, "weights must be matrices", f"weights[{place}] has shape {tuple(weight.shape)}")
    for place, (before, after) in enumerate(pairwise(checked)):
        require(
            before.shape[0] == after.shape[1],
            "each layer must take what the one before gives",
            f"weights[{place}] gives {before.shape[0]} and weights[{place + 1}] takes {after.shape[1]}",
        )
    return checked


def _checked_biases(biases: Sequence[Tensor], weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    require(len(biases) == len(weights), "every layer must have a bias or none", f"got {len(biases)} biases")
    checked = tuple(_real_tensor(bias, f"biases[{place}]") for place, bias in enumerate(biases))
    for place, (bias, weight) in enumerate(zip(checked, weights, strict=True)):
        fits = bias.shape == weight.shape[:1]
        require(fits, f"biases[{place}] must have {weight.shape[0]} entries", f"got shape {tuple(bias.shape)}")
    return checked
