"""A second oracle that shares nothing with the library: hyper-dual numbers over the rationals.

A number a + b e1 + c e2 + d e1 e2 with e1^2 = e2^2 = 0 carries one second derivative exactly; kinks and maxima are
decided by its value. Images are nested lists, channels first; layers are read off a torch model one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import flint
from torch import Tensor, nn

Rational = flint.fmpq


def rational(value: float) -> Rational:
    return Rational(*value.as_integer_ratio())


NOTHING = Rational(0)


@dataclass(frozen=True)
class HyperDual:
    value: Rational
    first: Rational = NOTHING
    second: Rational = NOTHING
    both: Rational = NOTHING

    def __add__(self, other: HyperDual) -> HyperDual:
        return HyperDual(
            self.value + other.value, self.first + other.first, self.second + other.second, self.both + other.both
        )

    def __mul__(self, other: HyperDual) -> HyperDual:
        return HyperDual(
            self.value * other.value,
            self.value * other.first + self.first * other.value,
            self.value * other.second + self.second * other.value,
            self.value * other.both + self.both * other.value + self.first * other.second + self.second * other.first,
        )


ZERO = HyperDual(Rational(0))


def total(terms: list[HyperDual]) -> HyperDual:
    result = ZERO
    for term in terms:
        result = result + term
    return result


def convolved(image: Any, weight: list[HyperDual], bias: list[HyperDual] | None, shape: tuple[int, ...]) -> Any:
    """Conv2d without padding and stride; ``weight`` flat, of the shape (out, in, height, width)."""
    filters, channels, height, width = shape
    rows, columns = len(image[0]) - height + 1, len(image[0][0]) - width + 1

    def output(place: int, row: int, column: int) -> HyperDual:
        terms = [
            weight[((place * channels + c) * height + i) * width + j] * image[c][row + i][column + j]
            for c in range(channels)
            for i in range(height)
            for j in range(width)
        ]
        return total(terms if bias is None else [*terms, bias[place]])

    return [[[output(f, r, c) for c in range(columns)] for r in range(rows)] for f in range(filters)]


def pooled(image: Any, size: int, stride: int, is_maximum: bool) -> Any:
    def output(channel: Any, row: int, column: int) -> HyperDual:
        window = [channel[row * stride + i][column * stride + j] for i in range(size) for j in range(size)]
        if is_maximum:
            best = window[0]
            for rival in window[1:]:
                best = rival if rival.value > best.value else best
            return best
        return total(window) * HyperDual(Rational(1, size * size))

    rows, columns = (len(image[0]) - size) // stride + 1, (len(image[0][0]) - size) // stride + 1
    return [[[output(channel, r, c) for c in range(columns)] for r in range(rows)] for channel in image]


def multiplied(values: list[HyperDual], weight: list[HyperDual], bias: list[HyperDual] | None) -> list[HyperDual]:
    width = len(values)
    rows = [weight[start : start + width] for start in range(0, len(weight), width)]
    products = [total([w * v for w, v in zip(row, values, strict=True)]) for row in rows]
    return products if bias is None else [product + b for product, b in zip(products, bias, strict=True)]


def mapped(values: Any, change: Any) -> Any:
    return [mapped(value, change) for value in values] if isinstance(values, list) else change(values)


def flat(values: Any) -> list[HyperDual]:
    return [number for value in values for number in flat(value)] if isinstance(values, list) else [values]


def outputs(model: nn.Sequential, parameters: list[HyperDual], sample: Tensor) -> list[HyperDual]:
    """The outputs for one image; ``parameters`` in the order of the model's."""
    values = mapped(sample.tolist(), lambda number: HyperDual(rational(number)))
    left = list(parameters)

    def taken(parameter: Tensor | None) -> list[HyperDual] | None:
        return None if parameter is None else [left.pop(0) for _ in range(parameter.numel())]

    for layer in model:
        if isinstance(layer, nn.Conv2d):
            weight = taken(layer.weight)
            values = convolved(values, weight, taken(layer.bias), tuple(layer.weight.shape))
        elif isinstance(layer, nn.Linear):
            weight, bias = taken(layer.weight), taken(layer.bias)
            values = multiplied(values, weight, bias)
        elif isinstance(layer, nn.ReLU):
            values = mapped(values, lambda number: number if number.value > 0 else ZERO)
        elif isinstance(layer, nn.MaxPool2d | nn.AvgPool2d):
            values = pooled(values, layer.kernel_size, layer.stride, isinstance(layer, nn.MaxPool2d))
        else:
            assert isinstance(layer, nn.Flatten)
            values = flat(values)
    return values


def rational_hessians(model: nn.Sequential, inputs: Tensor, targets: Tensor) -> dict[str, flint.fmpq_mat]:
    """The three Hessians of the sum of 1/2 (output - target)^2 over samples and outputs."""
    theta = [rational(value) for parameter in model.parameters() for value in parameter.detach().flatten().tolist()]
    size = len(theta)
    parts = {name: [[Rational(0)] * size for _ in range(size)] for name in ("outer_product", "functional", "loss")}
    for i in range(size):
        for j in range(i + 1):
            point = [HyperDual(value, Rational(int(k == i)), Rational(int(k == j))) for k, value in enumerate(theta)]
            outer, functional = Rational(0), Rational(0)
            for sample, target in zip(inputs, targets, strict=True):
                for output, wanted in zip(outputs(model, point, sample), target.tolist(), strict=True):
                    outer += output.first * output.second
                    functional += (output.value - rational(wanted)) * output.both
            for name, value in (("outer_product", outer), ("functional", functional), ("loss", outer + functional)):
                parts[name][i][j] = parts[name][j][i] = value
    return {name: flint.fmpq_mat(rows) for name, rows in parts.items()}
