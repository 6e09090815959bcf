"""The exact rank of the generic network of an architecture: weights and data drawn from GF(P).

``random_network`` has one entry per architecture; a new one registers itself there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np

from hessmap.errors import UnsupportedNetwork, checked_seed, integer_or_none, require, sentence, unknown_name
from hessmap.exact.attention import drawn_attention_hessians
from hessmap.exact.evaluation import evaluate
from hessmap.exact.field import (
    FieldArray,
    PrimeField,
    concatenate,
    field_rank,
    identity,
    random_array,
    random_prime_field,
)
from hessmap.exact.hessian import field_hessian
from hessmap.exact.network import Affine, Chain, ExactActivation, Identity, Patches
from hessmap.exact.random_data import generic_ranks, random_derivatives, random_inputs, random_residuals
from hessmap.linalg import require_memory
from hessmap.losses import LOSSES
from hessmap.networks import (
    Activation,
    Convolutional,
    Convolutions,
    FullyConnected,
    ImageConvolutional,
    LocallyConnected,
    Polynomial,
    Residual,
    SelfAttention,
    is_homogeneous,
)
from hessmap.problem import ConvolutionGeometry, Indices
from hessmap.records import PARTS, Part, RankCertificate, provenance


def generic_rank(
    net: object,
    part: Part = "loss",
    loss: str = "squared",
    *,
    input_rank: int | None = None,
    residual_rank: int | None = None,
    centred_input_rank: int | None = None,
    mean_residual_is_zero: bool = False,
    num_samples: int | None = None,
    num_tokens: int | None = None,
    seed: int = 0,
) -> RankCertificate:
    """The exact rank of the loss, outer-product or functional Hessian of the generic network of an architecture.

    Args:
        net: A ``FullyConnected``, ``Convolutional``, ``LocallyConnected``, ``Residual`` or ``SelfAttention``.
        part: "loss", "outer_product" or "functional". Defaults to "loss".
        loss: Name of the loss. Defaults to "squared".
        input_rank: Rank of the inputs that are drawn. Defaults to the largest.
        residual_rank: Rank of the residual moment that is drawn. Defaults to the largest.
        centred_input_rank: Rank of the centred inputs that are drawn. Defaults to the largest.
        mean_residual_is_zero: Whether the residuals sum to zero over the samples. Defaults to False.
        num_samples: Number of samples. Defaults to as many as make the rank the largest.
        num_tokens: Tokens of a sample, for self-attention.
        seed: Seed of the prime and of all draws. Defaults to 0.

    Returns:
        The rank, the prime and the failure bound.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``net`` is a ``FullyConnected``, ``Convolutional``, ``LocallyConnected``, ``Residual`` or ``SelfAttention``.
        Weights, inputs and residuals are drawn uniformly from GF(P), P a random prime of [2^61, 2^62]; residuals and
        softmax probabilities independently of the outputs. The value is never above the rank of the generic real
        network, and below it with probability at most ``failure_bound``. Linear and polynomial activations only.

        ``input_rank`` and ``centred_input_rank`` are the ranks of the inputs and of the centred inputs (equal, or one
        less). ``residual_rank`` is the rank of Omega = sum residual input^T or, with bias, of [Omega_c, omega], omega
        the sum of the residuals; ``mean_residual_is_zero`` asks for omega = 0. Default: all are generic. A linear
        network needs no more samples than the ranks do; with a polynomial activation the rank can grow with
        ``num_samples`` (default: the number of parameters). Self-attention takes ``num_samples`` of ``num_tokens``
        tokens (default: enough that more change no rank) and ``input_rank``, that of all tokens.

    Example:
        >>> import hessmap as hm
        >>> generic_rank(hm.FullyConnected((6, 5, 4)), "loss", residual_rank=1).value
        33
        >>> generic_rank(hm.networks.SelfAttention(1, 1), "functional", num_samples=1, num_tokens=1).value  # q k v x^3
        3
    """
    if not isinstance(part, str) or part not in PARTS:
        raise unknown_name("part", part, PARTS)
    data = _checked_counts(input_rank, residual_rank, centred_input_rank, num_samples, num_tokens)
    generator = np.random.default_rng(checked_seed(seed))
    field = random_prime_field(generator)
    hessian, drawn = _drawn_hessians(_Question(net, loss, data, mean_residual_is_zero), field, generator)
    return _certificate(hessian(part), part, generator, seed, f"{net}, {loss}, {drawn}")


def generic_hessian_ranks(
    net: object,
    loss: str = "squared",
    *,
    input_rank: int | None = None,
    residual_rank: int | None = None,
    num_samples: int | None = None,
    num_tokens: int | None = None,
    seed: int = 0,
) -> dict[Part, RankCertificate]:
    """All three ranks of one drawn network, as ``generic_rank`` has them one by one, each of its own draw.

    Args:
        net: A ``FullyConnected``, ``Convolutional``, ``LocallyConnected``, ``Residual`` or ``SelfAttention``.
        loss: Name of the loss. Defaults to "squared".
        input_rank: Rank of the inputs that are drawn. Defaults to the largest.
        residual_rank: Rank of the residual moment that is drawn. Defaults to the largest.
        num_samples: Number of samples. Defaults to as many as make the rank the largest.
        num_tokens: Tokens of a sample, for self-attention.
        seed: Seed of the prime and of all draws. Defaults to 0.

    Returns:
        A certificate for each of the three Hessians.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        >>> import hessmap as hm
        >>> found = generic_hessian_ranks(hm.networks.SelfAttention(1, 1), num_samples=1, num_tokens=1)    # q k v x^3
        >>> [rank.value for rank in found.values()]
        [1, 3, 3]
    """
    data = _checked_counts(input_rank, residual_rank, None, num_samples, num_tokens)
    generator = np.random.default_rng(checked_seed(seed))
    field = random_prime_field(generator)
    hessian, drawn = _drawn_hessians(_Question(net, loss, data, False), field, generator)
    outer, functional = hessian("outer_product"), hessian("functional")
    matrices = dict(zip(PARTS, (outer, functional, outer + functional), strict=True))
    about = f"{net}, {loss}, {drawn}"
    return {part: _certificate(matrix, part, generator, seed, about) for part, matrix in matrices.items()}


def _checked_counts(
    input_rank: int | None,
    residual_rank: int | None,
    centred_input_rank: int | None,
    num_samples: int | None,
    num_tokens: int | None,
) -> dict[str, int | None]:
    data = {
        "input_rank": input_rank,
        "residual_rank": residual_rank,
        "centred_input_rank": centred_input_rank,
        "num_samples": num_samples,
        "num_tokens": num_tokens,
    }
    for name, count in data.items():
        is_integer = count is None or integer_or_none(count) is not None
        require(is_integer, f"{name} must be an integer", f"got {count!r}")
    return data


def _certificate(
    matrix: FieldArray, part: Part, generator: np.random.Generator, seed: int, about: str
) -> RankCertificate:
    rank = field_rank(matrix, generator)
    prime = matrix.field.prime
    origin = provenance(f"GF({prime})", seed, notes=(about,))
    return RankCertificate(rank.value, part, prime, rank.failure_bound, len(matrix), 0, rank.method, origin)


class _Question(NamedTuple):
    """The network and the data that are drawn."""

    net: object
    loss: str
    data: dict[str, int | None]
    mean_residual_is_zero: bool


def _drawn_hessians(
    asked: _Question, field: PrimeField, generator: np.random.Generator
) -> tuple[Callable[[Part], FieldArray], str]:
    """The Hessians of a drawn network, by their part, and what was drawn, in words."""
    loss, is_zero = asked.loss, asked.mean_residual_is_zero
    if not isinstance(loss, str) or loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    require(isinstance(is_zero, bool), "mean_residual_is_zero must be True or False", f"got {is_zero!r}")
    make = _attention_hessians if isinstance(asked.net, SelfAttention) else _chain_hessians
    return make(asked, field, generator)


def _attention_hessians(
    asked: _Question, field: PrimeField, generator: np.random.Generator
) -> tuple[Callable[[Part], FieldArray], str]:
    net, loss, data, mean_residual_is_zero = asked
    assert isinstance(net, SelfAttention)
    given = [name for name in ("residual_rank", "centred_input_rank") if data[name] is not None]
    given += ["mean_residual_is_zero"] * mean_residual_is_zero
    must = "the residuals of self-attention are generic: its Hessian is not a function of sum residual input^T"
    require(not given, must, f"{' and '.join(given)} is given", "Leave it out")
    sizes = {name: data[name] for name in ("num_samples", "num_tokens", "input_rank")}
    return drawn_attention_hessians(net, loss, field=field, generator=generator, **sizes)


def _chain_hessians(
    asked: _Question, field: PrimeField, generator: np.random.Generator
) -> tuple[Callable[[Part], FieldArray], str]:
    net, loss, data, mean_residual_is_zero = asked
    require(data["num_tokens"] is None, "num_tokens is for self-attention", f"the network is {net}", "Leave it out")
    num_parameters = getattr(net, "num_parameters", 0)
    require_memory(f"{num_parameters} drawn parameters", 24 * num_parameters, "Use a smaller network")
    chain = random_network(net, field, generator)
    is_softmax = loss == "cross_entropy"
    known = {name: count for name, count in data.items() if name != "num_tokens"}
    ranks = generic_ranks(chain, chain.output_dim - is_softmax, mean_residual_is_zero=mean_residual_is_zero, **known)
    needed = 16 * ranks.num_samples * max(chain.input_dim, chain.output_dim)
    require_memory(f"{ranks.num_samples} drawn samples", needed, "Use fewer samples")
    inputs = random_inputs(ranks, chain.input_dim, field, generator)
    residuals = random_residuals(ranks, chain.output_dim, is_softmax, field, generator)
    derivatives = random_derivatives(loss, field, generator, residuals)
    evaluation = evaluate(chain, inputs, (None,) * len(chain.activations))
    return lambda part: field_hessian(chain, evaluation, derivatives, part), str(ranks)


@singledispatch
def random_network(architecture: object, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    """A chain of the architecture with independent uniform weights, positions in the order of its parameters."""
    raise UnsupportedNetwork(
        sentence(
            "generic_rank needs an architecture such as FullyConnected, Convolutional or SelfAttention",
            f"got {type(architecture).__name__}",
            "Describe a model with hessmap.networks.describe, or use certified_rank on a Problem",
        )
    )


@random_network.register
def _fully_connected(
    architecture: FullyConnected, field: PrimeField, generator: np.random.Generator
) -> Chain[FieldArray]:
    activation = _exact_activation(architecture.activation)
    layers, start = [], 0
    for (before, after), bias in zip(pairwise(architecture.widths), architecture.biases, strict=True):
        positions = _positions(start, after, before, bias)
        layers.append(Affine(random_array(field, generator, *positions.shape), positions, bias))
        start += positions.size
    return Chain(tuple(layers), (activation,) * (len(layers) - 1), start)


@random_network.register
def _convolutional(architecture: Convolutional, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    lengths = tuple((length,) for length in architecture.lengths[:-1])
    return _convolutions(architecture, lengths, tuple((kernel,) for kernel in architecture.kernels), field, generator)


@random_network.register
def _image_convolutional(
    architecture: ImageConvolutional, field: PrimeField, generator: np.random.Generator
) -> Chain[FieldArray]:
    return _convolutions(architecture, architecture.sizes[:-1], architecture.kernels, field, generator)


def _convolutions(
    architecture: Convolutions,
    input_sizes: tuple[tuple[int, ...], ...],
    kernels: tuple[tuple[int, ...], ...],
    field: PrimeField,
    generator: np.random.Generator,
) -> Chain[FieldArray]:
    activation = _exact_activation(architecture.activation)
    layers, start = [], 0
    sizes = zip(
        pairwise(architecture.channels),
        input_sizes,
        kernels,
        architecture.strides,
        architecture.paddings,
        architecture.biases[:-1],
        strict=True,
    )
    for (before, after), size, kernel, stride, padding, bias in sizes:
        geometry = ConvolutionGeometry.of_call(size, kernel, stride, padding)
        patches = Patches(geometry.input_indices(before), before * prod(size))
        positions = _positions(start, after, before * prod(kernel), bias)
        layers.append(Affine(random_array(field, generator, *positions.shape), positions, bias, patches))
        start += positions.size
    last = architecture.biases[-1]
    positions = _positions(start, architecture.outputs, architecture.widths[-2], last)
    layers.append(Affine(random_array(field, generator, *positions.shape), positions, last))
    return Chain(tuple(layers), (activation,) * (len(layers) - 1), start + positions.size)


@random_network.register
def _locally_connected(
    architecture: LocallyConnected, field: PrimeField, generator: np.random.Generator
) -> Chain[FieldArray]:
    activation = _exact_activation(architecture.activation)
    num_patches, size, filters = architecture.patches, architecture.patch_size, architecture.filters
    places = np.arange(architecture.input_dim)
    # Groups, places, taps: all patches meet the same filters, or each a group of its own.
    sources = places.reshape(1, num_patches, size) if architecture.shared_weights else places.reshape(-1, 1, size)
    first = _positions(0, len(sources) * filters, size, has_bias=False)
    dense = _positions(first.size, architecture.outputs, num_patches * filters, has_bias=False)
    if architecture.shared_weights:  # hidden units come filter by filter, in the model patch by patch
        dense = dense.reshape(-1, num_patches, filters).transpose(0, 2, 1).reshape(dense.shape)
    patches = Patches(sources, architecture.input_dim)
    layers = (
        Affine(random_array(field, generator, *first.shape), first, False, patches),
        Affine(random_array(field, generator, *dense.shape), dense, False),
    )
    return Chain(layers, (activation,), first.size + dense.size)


@random_network.register
def _residual(architecture: Residual, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    """A block I + W is a layer; I + U D is two, [I; D] and [I, U], whose identity is constant."""
    if not architecture.is_linear:
        got = f"it has activation '{architecture.activation}'"
        remedy = "Use certified_rank or numerical_rank on a Problem with drawn weights and data"
        raise UnsupportedNetwork(sentence("the generic rank of a residual network needs a linear one", got, remedy))
    width, inner = architecture.width, architecture.inner_width
    layers: list[Affine[FieldArray]] = []
    start = 0

    def add(rows: int, columns: int, axis: int | None = None, is_trained: bool = True) -> None:
        nonlocal start
        weights, positions = random_array(field, generator, rows, columns), _positions(start, rows, columns, False)
        positions = positions if is_trained else np.full_like(positions, -1)
        start += rows * columns * is_trained
        if axis is not None:
            weights = concatenate([identity(field, width), weights], axis=axis)
            positions = np.concatenate([np.full((width, width), -1), positions], axis=axis)
        layers.append(Affine(weights, positions, False))

    if architecture.has_input_layer:
        add(width, architecture.input_dim, is_trained=architecture.train_input)
    for _ in range(architecture.num_blocks):
        if inner is None:
            add(width, width)  # W is uniform over the field, and so is I + W
        else:
            add(inner, width, axis=0)
            add(width, inner, axis=1)
    if architecture.has_output_layer:
        add(architecture.output_dim, width, is_trained=architecture.train_output)
    return Chain(tuple(layers), (Identity(),) * (len(layers) - 1), start)


def _positions(start: int, rows: int, taps: int, has_bias: bool) -> Indices:
    """Where the parameters of a layer stand: its weights row by row, then its biases; a column for the latter."""
    weights = np.arange(start, start + rows * taps).reshape(rows, taps)
    biases = np.arange(weights.size + start, weights.size + start + rows * has_bias).reshape(rows, int(has_bias))
    return np.concatenate([weights, biases], axis=1)


def _exact_activation(activation: Activation) -> ExactActivation:
    if activation == "identity":
        return Identity()
    if isinstance(activation, Polynomial):
        return activation
    piecewise = is_homogeneous(activation)
    raise UnsupportedNetwork(
        sentence(
            "the generic rank of an architecture needs a linear or polynomial activation",
            f"'{activation}' "
            + ("has a rank that changes with the data's pattern" if piecewise else "is no polynomial"),
            "Use certified_rank on a Problem with drawn weights and data"
            if piecewise
            else "Use numerical_rank on a Problem with drawn weights and data",
        )
    )
