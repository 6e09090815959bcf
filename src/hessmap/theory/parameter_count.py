"""One question for every activation: in how many directions can the function of a network move?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, get_args

from hessmap.errors import InvalidInput, UnsupportedNetwork, require_name, sentence
from hessmap.networks import Activation, Polynomial, activation_of
from hessmap.records import EffectiveParameters
from hessmap.theory.data_ranks import Widths, checked_count, checked_widths
from hessmap.theory.fully_connected import linear
from hessmap.theory.polynomial import (
    Rank,
    deep_polynomial_rank,
    function_space_dim,
    independent_rank,
    rank_with_hidden_bias,
    rank_with_output_bias,
    rank_without_bias,
)
from hessmap.theory.teacher_student.two_layers import Extra, wider_student_rank

Bias = Literal["none", "hidden", "output", "both"]
_REMEDY = "Use generic_rank(net, 'outer_product'), which is exact for every polynomial activation"


def effective_parameters(
    inputs: int,
    hidden: int | Iterable[int],
    activation: Activation | Sequence[float] = "identity",
    bias: Bias | bool = "none",
    *,
    outputs: int = 1,
    num_extra: int = 0,
    extra: Extra = "zero",
) -> EffectiveParameters:
    """The rank of the population Hessian where student and teacher agree: the effective number of parameters.

    Args:
        inputs: Number of inputs.
        hidden: The width of the hidden layer, or of several: linear networks, and two hidden layers of x^n or of a
            polynomial with all its terms.
        activation: A name, a ``Polynomial`` of any degree, or its coefficients (ascending). Defaults to "identity".
        bias: "none", "hidden" (every hidden layer), "output" or "both"; True and False are "both" and "none". Defaults
            to "none".
        outputs: Number of outputs; more than one for linear networks only. Defaults to 1.
        num_extra: Units of a wider student beside the teacher's, placed as ``extra`` specifies; for
            polynomials with one hidden layer, no bias and no constant term.
            Defaults to 0.
        extra: How the extra units are placed: "zero", "split", "output_zero" or "input_zero". Defaults to "zero".

    Returns:
        The rank with its kind and reference, the number of parameters and the dimension of the function space.

    Raises:
        InvalidInput: If an argument is out of range.
        UnsupportedNetwork: If no formula is known for the network.

    Notes:
        It is the dimension of the span of the derivatives of the network by its parameters, for generic weights. Which
        theorem or conjecture gave it is in ``kind`` and ``reference``; the formulas are in ``theory.polynomial`` and,
        for linear networks, in ``theory.fully_connected.linear``.

    Example:
        >>> from hessmap.networks import Polynomial
        >>> effective_parameters(5, 3, Polynomial((0, 1, 1))).value, effective_parameters(5, 3, "erf").value
        (15, 18)
        >>> effective_parameters(2, 3, Polynomial((0, 1, 1, 1)), bias="hidden").value
        10
        >>> effective_parameters(3, 2, Polynomial((0, 1, 1)), num_extra=1, extra="output_zero").value
        8
    """
    widths = _widths(inputs, hidden, outputs)
    if isinstance(activation, Sequence) and not isinstance(activation, str):
        activation = Polynomial(tuple(activation))
    applied, place = activation_of(activation), _bias(bias)
    in_hidden, in_output = place in ("hidden", "both"), place in ("output", "both")
    if num_extra:
        return _wider_student(widths, applied, in_hidden or in_output, num_extra, extra)
    rank, whole = _answer(widths, applied, in_hidden, in_output)
    weights = sum(before * after for before, after in pairwise(widths))
    num_parameters = weights + in_hidden * sum(widths[1:-1]) + in_output * widths[-1]
    return EffectiveParameters(rank.value, rank.kind, rank.reason, num_parameters, whole, rank.num_cases)


def _answer(widths: Widths, activation: Activation, in_hidden: bool, in_output: bool) -> tuple[Rank, int | None]:
    """The rank and the dimension of the function space."""
    if activation == "identity" or (isinstance(activation, Polynomial) and activation.degree == 1 and len(widths) == 3):
        return _linear_rank(widths, activation, in_hidden, in_output)
    if widths[-1] > 1:
        must = f"the effective parameters of several outputs are known for linear networks; '{activation}' needs one"
        raise UnsupportedNetwork(sentence(must, f"outputs is {widths[-1]}", _REMEDY))
    if len(widths) > 3:
        return deep_polynomial_rank(widths, activation, has_bias=in_hidden or in_output)
    ni, nh = widths[0], widths[1]
    if not isinstance(activation, Polynomial):
        return independent_rank(ni, nh, activation, in_hidden, in_output), None
    coefficients = activation.coefficients
    whole = function_space_dim(ni, coefficients, in_hidden, in_output)
    if in_hidden:
        return rank_with_hidden_bias(ni, nh, coefficients, in_output), whole
    degrees = [k for k, coefficient in enumerate(coefficients) if coefficient]
    return (rank_with_output_bias if in_output else rank_without_bias)(ni, nh, degrees), whole


def _wider_student(
    widths: Widths, activation: Activation, has_bias: bool, num_extra: int, extra: Extra
) -> EffectiveParameters:
    """A student with more hidden units than its teacher, at the teacher's function."""
    coefficients = (0.0, 1.0) if activation == "identity" else getattr(activation, "coefficients", None)
    if coefficients is None or len(widths) != 3 or widths[-1] != 1 or has_bias:
        must = "the effective parameters of wider students are known for polynomials, one hidden layer, no bias"
        got = f"got {'-'.join(map(str, widths))} '{activation}'{' with bias' if has_bias else ''}"
        raise UnsupportedNetwork(sentence(must, got, _REMEDY))
    degrees = [k for k, coefficient in enumerate(coefficients) if coefficient]
    inputs, hidden, _ = widths
    rank = wider_student_rank(inputs, hidden, degrees, num_extra, extra)
    num_parameters = (inputs + 1) * (hidden + num_extra)
    whole = function_space_dim(inputs, coefficients, False, False)
    return EffectiveParameters(rank.value, rank.kind, rank.reason, num_parameters, whole, rank.num_cases)


def _linear_rank(widths: Widths, activation: Activation, in_hidden: bool, in_output: bool) -> tuple[Rank, int]:
    """Deep linear networks are those of ``linear``; a constant in the activation adds the constants."""
    if isinstance(activation, Polynomial) and widths[-1] == 1:
        constants = in_hidden or in_output or activation.coefficients[0] != 0
        whole = widths[0] + constants
        return Rank(whole, "exact", "all affine functions, or all linear ones"), whole
    layers = range(1, len(widths))
    biased = [layer for layer in layers if (in_output if layer == len(widths) - 1 else in_hidden)]
    value = linear.outer_product_rank(widths, widths[0], biased_layers=biased)
    reference = "Singh, Bachmann & Hofmann 2021, Theorem 3; with bias research/docs/conjectures.md"
    return Rank(value, "exact", reference), widths[-1] * (widths[0] + bool(biased))


def _widths(inputs: int, hidden: int | Iterable[int], outputs: int) -> Widths:
    layers = tuple(hidden) if isinstance(hidden, Iterable) else (hidden,)
    checked_count("inputs", inputs, at_least=1)
    checked_count("outputs", outputs, at_least=1)
    for layer in layers:
        checked_count("hidden", layer, at_least=1)
    if not layers:
        raise InvalidInput(sentence("hidden must hold the width of at least one layer", "it is empty"))
    return checked_widths((inputs, *layers, outputs))


def _bias(given: Bias | bool) -> Bias:
    if isinstance(given, bool):
        return "both" if given else "none"
    require_name("bias", given, get_args(Bias))
    return given
