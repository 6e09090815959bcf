"""The activations an architecture can name; no torch here, so that names cost nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsFloat

from hessmap.errors import InvalidInput, require, sentence, unknown_name

ACTIVATIONS: tuple[str, ...] = ("identity", "relu", "leaky_relu", "tanh", "elu", "erf", "gelu")


@dataclass(frozen=True, init=False)
class Polynomial:
    """The activation sum_k coefficients[k] * x^k, coefficients ascending and exact in float64.

    Zeros of highest order are dropped, so that equal functions are equal objects.

    >>> quadratic = Polynomial((0, 1, 0.5))
    >>> str(quadratic), quadratic.degree
    ('polynomial(0,1,0.5)', 2)
    >>> Polynomial.parse("polynomial(0, 1, 0.5, 0)") == quadratic
    True
    """

    coefficients: tuple[float, ...]

    def __init__(self, coefficients: Iterable[SupportsFloat]) -> None:
        must = "a polynomial activation needs a sequence of real numbers, its coefficients in ascending order"
        require(isinstance(coefficients, Iterable), must, f"got {coefficients!r}")
        given = list(coefficients)
        require(all(isinstance(value, SupportsFloat) for value in given), must, f"got {coefficients!r}")
        try:
            values = [float(value) for value in given]
        except (TypeError, ValueError, OverflowError):  # an array of many numbers, an integer beyond float64
            raise InvalidInput(sentence(must, f"got {coefficients!r}")) from None
        for place, value in enumerate(values):
            require(
                math.isfinite(value),
                "polynomial coefficients must be finite",
                f"coefficient {place} is {value}",
            )
        while values and values[-1] == 0.0:
            values.pop()
        require(
            len(values) >= 2,
            "a polynomial activation must have degree at least 1",
            f"the coefficients (ascending) are {tuple(given)}",
            "Give for example Polynomial((0, 1, 0.5)) for x + x^2/2",
        )
        # Adding 0.0 turns -0.0 into 0.0: the two are one coefficient and must print alike.
        object.__setattr__(self, "coefficients", tuple(value + 0.0 for value in values))

    @property
    def degree(self) -> int:
        return len(self.coefficients) - 1

    def __str__(self) -> str:
        return f"polynomial({','.join(_shortest_text(value) for value in self.coefficients)})"

    @classmethod
    def parse(cls, text: str) -> Polynomial:
        """The polynomial that a string like ``"polynomial(0,1,0.5)"`` names."""
        body = text.strip().removeprefix("polynomial").strip()
        try:
            if not (body.startswith("(") and body.endswith(")")):
                raise ValueError
            values = [float(part) for part in body[1:-1].split(",")]
        except ValueError:
            raise InvalidInput(
                sentence(
                    "a polynomial activation must be written as 'polynomial(0,1,0.5)', ascending",
                    f"got {text!r}",
                )
            ) from None
        return cls(values)


Activation = str | Polynomial


def activation_of(given: object) -> Activation:
    """A known activation from its name or its object; a name nobody knows is answered with the near ones.

    >>> activation_of("relu"), activation_of("polynomial(0,1,0.5)")
    ('relu', Polynomial(coefficients=(0.0, 1.0, 0.5)))
    >>> activation_of("rleu")
    Traceback (most recent call last):
        ...
    hessmap.errors.UnknownName: activation must be one of identity, relu, leaky_relu, tanh, elu, erf, gelu, \
polynomial(...); got 'rleu'. Did you mean 'relu' or 'elu'?
    """
    if isinstance(given, Polynomial):
        return given
    if isinstance(given, str) and given.strip().startswith("polynomial"):
        return Polynomial.parse(given)
    if isinstance(given, str) and given in ACTIVATIONS:
        return given
    raise unknown_name("activation", given, (*ACTIVATIONS, "polynomial(...)"))


def _shortest_text(value: float) -> str:
    """The shortest text that reads back as the same float64, without a trailing '.0'."""
    return repr(value).removesuffix(".0")
