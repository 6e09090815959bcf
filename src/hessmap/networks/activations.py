"""The table of activations: a new one is one row of ``ACTIVATIONS``. torch is loaded only where a module is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

from hessmap.errors import InvalidInput, require, sentence, unknown_name


@dataclass(frozen=True)
class ActivationKind:
    """One row of the table: an elementwise function and what the library needs to know about it.

    Attributes:
        module: Name of its class in ``torch.nn`` or, for a class that torch lacks, in ``hessmap.networks.build``.
        options: Attributes the module must have to compute the named function; other values have no name.
        negative_slope: For g(t) = t (t >= 0), s t (t < 0): s of a module. Such functions are positively homogeneous,
            and exact over a finite field. None for all others.
        largest_slope: sup |g'| of a module. None if no bound is known.
        has_independent_neurons: Whether it is proved (``theory.polynomial.independent_rank``) that every parameter of
            a generic network with one hidden layer counts, except for the scaling of homogeneous activations.
    """

    module: str
    options: Mapping[str, object] = field(default_factory=dict)
    negative_slope: Callable[[Any], float] | None = None
    largest_slope: Callable[[Any], float] | None = None
    has_independent_neurons: bool = False

    @property
    def is_homogeneous(self) -> bool:
        """Whether g(c t) = c g(t) for every c > 0."""
        return self.negative_slope is not None


def _one(module: Any) -> float:
    return 1.0


ACTIVATIONS: dict[str, ActivationKind] = {
    "identity": ActivationKind("Identity", negative_slope=_one, largest_slope=_one),
    "relu": ActivationKind("ReLU", negative_slope=lambda module: 0.0, largest_slope=_one, has_independent_neurons=True),
    "leaky_relu": ActivationKind(
        "LeakyReLU",
        options={"negative_slope": 0.01},
        negative_slope=lambda module: float(module.negative_slope),
        largest_slope=lambda module: max(1.0, abs(module.negative_slope)),
        has_independent_neurons=True,
    ),
    "tanh": ActivationKind("Tanh", largest_slope=_one, has_independent_neurons=True),
    "elu": ActivationKind(
        "ELU",
        options={"alpha": 1.0},
        largest_slope=lambda module: max(1.0, abs(module.alpha)),
        has_independent_neurons=True,
    ),
    "erf": ActivationKind("Erf", largest_slope=lambda module: 2 / math.sqrt(math.pi), has_independent_neurons=True),
    "gelu": ActivationKind("GELU", options={"approximate": "none"}, has_independent_neurons=True),
}

# Further elementwise modules that models may contain; architectures have no name for them.
OTHER_ELEMENTWISE: tuple[ActivationKind, ...] = (
    ActivationKind("Sigmoid", largest_slope=lambda module: 0.25),
    *(ActivationKind(name) for name in ("Softplus", "SiLU", "SELU", "CELU", "Hardtanh", "ReLU6")),
    *(ActivationKind(name) for name in ("LogSigmoid", "Softsign")),
)


@dataclass(frozen=True, init=False)
class Polynomial:
    """The activation sum_k coefficients[k] * x^k.

    Zeros of highest order are dropped, so that equal functions are equal objects.

    Args:
        coefficients: Coefficients in ascending order, exact in float64.

    Example:
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
    """Validate an activation given by name or as an object.

    Args:
        given: Name of the table, "polynomial(c0,c1,...)" (ascending coefficients), or a ``Polynomial``.

    Returns:
        The name, or the ``Polynomial``.

    Raises:
        UnknownName: If the table has no such name; the message lists similar ones.

    Example:
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


def is_homogeneous(activation: object) -> bool:
    """Check whether g(c t) = c g(t) for every c > 0.

    Args:
        activation: Name of the table; a ``Polynomial`` or any other object is not homogeneous by name.

    Returns:
        True for the identity, ReLU and leaky ReLU.

    Example:
        >>> is_homogeneous("leaky_relu"), is_homogeneous("tanh"), is_homogeneous(Polynomial((0, 2)))
        (True, False, False)
    """
    return isinstance(activation, str) and activation in ACTIVATIONS and ACTIVATIONS[activation].is_homogeneous
