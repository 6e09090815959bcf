"""The base class of architectures, and the validation of their integers, biases and text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from hessmap.errors import checked_count, require, unknown_name
from hessmap.networks.activations import ACTIVATIONS, Activation


def checked_counts(name: str, values: object, at_least: int = 1) -> tuple[int, ...]:
    """Convert to a tuple of integers.

    Args:
        name: Name of the argument, for errors.
        values: An iterable of integers.
        at_least: Smallest value allowed. Defaults to 1.

    Returns:
        The integers.

    Raises:
        InvalidInput: If a value is not an integer or too small; the error names its index.

    Example:
        >>> checked_counts("kernels", [3, 0])
        Traceback (most recent call last):
            ...
        hessmap.errors.InvalidInput: kernels[1] must be an integer of at least 1; got 0.
    """
    is_sequence = isinstance(values, Iterable) and not isinstance(values, str)
    require(is_sequence, f"{name} must be a sequence of integers", f"got {values!r}", "Give for example (3, 3)")
    assert isinstance(values, Iterable)
    return tuple(checked_count(f"{name}[{place}]", value, at_least) for place, value in enumerate(values))


Bias = bool | tuple[bool, ...]


def checked_bias(bias: object, num_layers: int) -> Bias:
    """True or False for all layers or, where only some have a bias, which of them.

    >>> checked_bias((True, False), 2), checked_bias([True, True], 2)
    ((True, False), True)
    """
    if isinstance(bias, bool):
        return bias
    must, remedy = "bias must be True or False", f"For a bias in some layers give one of them for each of {num_layers}"
    require(isinstance(bias, Iterable) and not isinstance(bias, str), must, f"got {bias!r}", remedy)
    assert isinstance(bias, Iterable)
    biases = tuple(bias)
    must = f"the bias of {num_layers} layers must be True or False for each"
    require(len(biases) == num_layers and all(isinstance(one, bool) for one in biases), must, f"got {biases}")
    return biases if any(biases) and not all(biases) else any(biases)


class BaseArchitecture(ABC):
    """A frozen description of a network, without bias and activation unless a subclass has such fields.

    Attributes:
        bias: Whether every layer has a bias, or one value for each layer where only some have.
        activation: Activation after each hidden layer; "identity" for linear networks and for linear self-attention.
    """

    bias: Bias = False
    activation: Activation = "identity"

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """Number of layers with trained weights."""

    @property
    def biases(self) -> tuple[bool, ...]:
        """For each layer, whether it has a bias."""
        return (self.bias,) * self.num_layers if isinstance(self.bias, bool) else self.bias

    @property
    def has_bias(self) -> bool:
        """Whether at least one layer has a bias."""
        return bool(self.bias)

    @property
    def is_linear(self) -> bool:
        """Whether the network has no activation (and, for self-attention, no softmax)."""
        return self.activation == "identity"


def read_words(text: str, flags: Sequence[str]) -> tuple[str, str, frozenset[str]]:
    """Split the text of a network into sizes, activation (default: "identity") and flags.

    >>> read_words("64-30-10 relu bias", flags=("bias",))
    ('64-30-10', 'relu', frozenset({'bias'}))
    >>> read_words("64-30-10 biass", flags=("bias",))
    Traceback (most recent call last):
        ...
    hessmap.errors.UnknownName: an option after the sizes must be one of bias, identity, relu, leaky_relu, tanh, elu, \
erf, gelu, polynomial(...); got 'biass'. Did you mean 'bias'?
    """
    require(isinstance(text, str), "a network must be given as a string such as '64-30-10 relu'", f"got {text!r}")
    first, *rest = text.replace(", ", ",").split() or [""]
    others = [word for word in rest if word not in flags]
    has_sizes = any(sign.isdigit() for sign in first)  # else the text names no network, and its caller says so
    for word in others:
        if has_sizes and word not in ACTIVATIONS and not word.startswith("polynomial"):
            raise unknown_name("an option after the sizes", word, (*flags, *ACTIVATIONS, "polynomial(...)"))
    require(len(others) <= 1, "a network has at most one activation", f"got {' and '.join(others)}")
    return first, others[0] if others else "identity", frozenset(rest) & frozenset(flags)


def marked_bias(parts: Sequence[str], in_all: bool) -> bool | tuple[bool, ...]:
    """Which layers have a bias: all, or those whose part of the text ends in b. The first part is the input.

    >>> marked_bias(["64", "30b", "10"], False), marked_bias(["64", "30", "10"], True)
    ((True, False), True)
    """
    first, *layers = (part.endswith("b") for part in parts)
    require(not first, "a b after a width gives its layer a bias", f"{parts[0]!r} is the input and has none")
    must = "a bias is written as 'bias' for all layers or as b after the width of each layer that has one"
    require(not (in_all and any(layers)), must, "got both")
    return in_all or tuple(layers)
