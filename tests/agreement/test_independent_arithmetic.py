"""Every predicted and generic rank against exact arithmetic that shares nothing with hessmap: random networks of all
families on deficient, repeated, constant and centred inputs, for four losses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jets import PRIME, Integers, hessian_ranks, product, rank
from networks_in_jets import Weights, outputs_of

import hessmap as hm

MOST_PARAMETERS = 44
LOSSES = ("squared", "cross_entropy", "log_cosh", "positive_definite")
Draw = np.random.Generator


def size(draw: Draw, least: int = 1, most: int = 4) -> int:
    return int(draw.integers(least, most + 1))


def sizes(draw: Draw, count: int, most: int = 4) -> list[int]:
    return [size(draw, 1, most) for _ in range(count)]


def flags(draw: Draw, count: int) -> list[bool]:
    return [bool(flag) for flag in draw.integers(0, 2, count)]


def convolutional(draw: Draw) -> Any:
    layers = size(draw, 1, 3)
    bias = flags(draw, layers + 1) if draw.random() < 0.3 else False
    paddings = [int(padding) for padding in draw.integers(0, 3, layers)] if draw.random() < 0.4 else None
    channels, kernels, strides = (sizes(draw, count, 3) for count in (layers + 1, layers, layers))
    return hm.Convolutional(
        size(draw, 1, 7), channels, kernels, strides, outputs=size(draw), bias=bias, paddings=paddings
    )


def partial_bias(draw: Draw) -> Any:
    widths = sizes(draw, size(draw, 3, 5))
    return hm.FullyConnected(widths, bias=flags(draw, len(widths) - 1))


def residual(draw: Draw) -> Any:
    ends = [end for end, is_trained in zip(("input", "output"), flags(draw, 2), strict=True) if is_trained]
    inner = None if draw.random() < 0.4 else size(draw, 1, 3)
    dims = {"input_dim": size(draw), "output_dim": size(draw)}
    return hm.networks.Residual(
        size(draw),
        size(draw, 1, 3),
        inner_width=inner,
        train_input="input" in ends,
        train_output="output" in ends,
        **dims,
    )


def attention(draw: Draw) -> Any:
    merged, frozen, causal = (bool(draw.random() < 0.3) for _ in range(3))
    return hm.networks.SelfAttention(
        *sizes(draw, 3, 3),
        heads=1 if draw.random() < 0.6 else 2,
        outputs=None if draw.random() < 0.5 else size(draw, 1, 3),
        merged_query_key=merged,
        frozen_value=frozen,
        causal=causal,
        read="all" if draw.random() < 0.6 else "last",
    )


FAMILIES: dict[str, Callable[[Draw], Any]] = {
    "fully connected": lambda draw: hm.FullyConnected(sizes(draw, size(draw, 2, 5), 5)),
    "with bias": lambda draw: hm.FullyConnected(sizes(draw, size(draw, 2, 4)), bias=True),
    "with bias in some layers": partial_bias,
    "convolutional": convolutional,
    "locally connected": lambda draw: hm.networks.LocallyConnected(*sizes(draw, 4), shared_weights=flags(draw, 1)[0]),
    "residual": residual,
    "attention": attention,
}


def drawn_network(draw: Draw, family: str) -> Any:
    """The first that can be built and has few enough parameters for Hessians entry by entry."""
    while True:
        try:
            net = FAMILIES[family](draw)
        except hm.errors.HessmapError:  # a kernel wider than its inputs
            continue
        if 1 <= net.num_parameters <= MOST_PARAMETERS:
            return net


def integers(draw: Draw, *shape: int) -> Integers:
    return draw.integers(1, PRIME, size=shape)


def drawn_inputs(draw: Draw, count: int, dim: int) -> Integers:
    kind = draw.choice(["generic", "generic", "deficient", "repeated", "constant", "affine", "centred", "zero"])
    inputs = integers(draw, count, dim)
    if kind == "deficient":
        width = int(draw.integers(0, min(count, dim) + 1))
        inputs = product(integers(draw, count, width), integers(draw, width, dim))
    elif kind == "affine":
        codes = integers(draw, count, size(draw, 1, dim))
        codes[:, 0] = 1
        inputs = product(codes, integers(draw, codes.shape[1], dim))
    elif kind == "repeated":
        inputs = inputs[draw.integers(0, max(1, count // 3), count)]
    elif kind == "constant":
        inputs = np.repeat(inputs[:1], count, 0)
    elif kind == "centred":
        inputs[-1] = -inputs[:-1].sum(0) % PRIME
    elif kind == "zero":
        inputs[:] = 0
    return inputs


def drawn_residuals(draw: Draw, count: int, outputs: int, loss: str, kinds: tuple[str, ...]) -> Integers:
    free = outputs - (loss == "cross_entropy")
    kind = draw.choice(kinds)
    residuals = integers(draw, count, free)
    if kind == "deficient":
        width = int(draw.integers(0, free + 1))
        residuals = product(integers(draw, count, width), integers(draw, width, free))
    elif kind == "mean zero":
        residuals[-1] = -residuals[:-1].sum(0) % PRIME
    elif kind == "one sample":
        residuals[1:] = 0
    elif kind == "zero":
        residuals[:] = 0
    if loss == "cross_entropy":
        residuals = np.concatenate([residuals, -residuals.sum(1, keepdims=True) % PRIME], 1)
    return residuals


def second_derivatives(draw: Draw, residuals: Integers, loss: str) -> Integers:
    """Of the loss in the outputs, one matrix for each sample."""
    count = residuals.shape[1]
    found = []
    for residual_ in residuals:
        if loss == "squared":
            matrix = np.eye(count, dtype=np.int64)
        elif loss == "log_cosh":
            matrix = np.diag((1 - residual_ * residual_ % PRIME) % PRIME)
        elif loss == "positive_definite":
            root = integers(draw, count, count)
            matrix = product(root, root.T)
        else:
            shares = integers(draw, count)
            shares[-1] = (1 - shares[:-1].sum()) % PRIME
            matrix = (np.diag(shares) - shares[:, None] * shares % PRIME) % PRIME
        found.append(matrix)
    return np.stack(found)


def facts_of(net: Any, inputs: Integers, residuals: Integers) -> dict[str, Any]:
    """Ranks of the data, as ``predict_ranks`` takes them."""
    count = len(inputs)
    mean = inputs.sum(0) % PRIME * pow(count, PRIME - 2, PRIME) % PRIME
    with_ones = np.concatenate([inputs, np.ones((count, 1), np.int64)], 1)
    plain, extended = (rank(product(residuals.T, given)) for given in (inputs, with_ones))
    if not any(getattr(net, "biases", ())):
        return {"input_rank": rank(inputs), "residual_rank": plain}
    facts = {
        "input_rank": rank(inputs),
        "centred_input_rank": rank((inputs - mean) % PRIME),
        "residual_rank": extended,
        "mean_residual_is_zero": not (residuals.sum(0) % PRIME).any(),
    }
    is_partial = isinstance(net, hm.FullyConnected) and not all(net.biases)
    return {**facts, "uncentred_residual_rank": plain} if is_partial else facts


def case(family: str, seed: int) -> tuple[Any, str, dict[str, Any], dict[str, int]]:
    """A network, a loss, what is known of the data, and the true ranks."""
    draw = np.random.default_rng([seed, *family.encode()])
    net = drawn_network(draw, family)
    loss = str(draw.choice(LOSSES))
    weights = Weights(draw, net.num_parameters)
    if family == "attention":
        count, tokens = size(draw), size(draw, 1, 3)
        width = int(draw.integers(0, net.width + 1)) if draw.random() < 0.4 else net.width
        inputs = product(integers(draw, count * tokens, width), integers(draw, width, net.width))
        outputs = outputs_of(net, weights, inputs.reshape(count, tokens, net.width)).reshape(-1, net.output_dim)
        residuals = drawn_residuals(draw, outputs.shape[0], net.output_dim, loss, ("generic",))
        facts = {"num_samples": count, "num_tokens": tokens, "input_rank": rank(inputs)}
    else:
        dim = net.input_dim
        count = int(draw.choice([1, 2, 3, dim, dim + 1, dim + net.output_dim + 2]))
        inputs = drawn_inputs(draw, count, dim)
        outputs = outputs_of(net, weights, inputs)
        kinds = ("generic", "generic", "deficient", "mean zero", "one sample", "zero")
        residuals = drawn_residuals(draw, count, net.output_dim, loss, kinds)
        facts = facts_of(net, inputs, residuals)
    assert weights.num_drawn == net.num_parameters
    return net, loss, facts, hessian_ranks(outputs, residuals, second_derivatives(draw, residuals, loss))


def require_true_predictions(family: str, seeds: range) -> None:
    for seed in seeds:
        net, loss, facts, truth = case(family, seed)
        predicted = hm.predict_ranks(net, loss=loss, **facts)
        for part, true in truth.items():
            found = getattr(predicted, part)
            assert found.allows(true), (
                f"{net}, {loss}, {facts}: {part} is {true}, {found.kind} {found.relation} {found.value}"
            )


@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_true_of_networks_written_out_once_more(family: str) -> None:
    require_true_predictions(family, range(100))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_predictions_are_true_of_many_networks(family: str) -> None:
    require_true_predictions(family, range(100, 3000))


@pytest.mark.parametrize("part", ["outer_product", "functional", "loss"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_formula_that_is_one_too_low_is_seen(family: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    predict = hm.predict_ranks

    def lowered(*args: Any, **given: Any) -> Any:
        found = predict(*args, **given)
        claim = getattr(found, part)
        return replace(found, **{part: replace(claim, value=claim.value - 1)})

    monkeypatch.setattr(hm, "predict_ranks", lowered)
    with pytest.raises(AssertionError, match=f"{part} is"):
        require_true_predictions(family, range(12))
