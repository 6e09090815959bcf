"""What architectures, readers of modules and exact ranks answer to what they cannot use: never a raw traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap.errors import HessmapError, InvalidInput, TooLarge, UnknownName
from hessmap.networks import activation_module, initialise, parse_network
from odd_values import ODD_ARGUMENTS

NET = hm.FullyConnected((3, 2))


def problem() -> hm.Problem:
    return hm.Problem(NET.build(), "squared", torch.ones(2, 3), torch.ones(2, 2))


CALLS: dict[str, Callable[[Any], object]] = {
    "describe": hm.describe,
    "certified_rank, problem": hm.certified_rank,
    "certified_rank, part": lambda odd: hm.certified_rank(problem(), odd),
    "certified_rank, seed": lambda odd: hm.certified_rank(problem(), seed=odd),
    "certified_data_ranks, seed": lambda odd: hm.exact.certified_data_ranks(problem(), seed=odd),
    "certified_matrix_rank, seed": lambda odd: hm.exact.certified_matrix_rank(np.eye(2), seed=odd),
    "generic_rank, part": lambda odd: hm.generic_rank(NET, odd),
    "generic_rank, loss": lambda odd: hm.generic_rank(NET, loss=odd),
    "generic_rank, seed": lambda odd: hm.generic_rank(NET, seed=odd),
    "FullyConnected": hm.FullyConnected,
    "FullyConnected, bias": lambda odd: hm.FullyConnected((3, 2), bias=odd),
    "FullyConnected, text": hm.FullyConnected.parse,
    "Convolutional, channels": lambda odd: hm.Convolutional(8, odd, (2,)),
    "Convolutional, kernels": lambda odd: hm.Convolutional(8, (1, 2), odd),
    "Convolutional, outputs": lambda odd: hm.Convolutional(8, (1, 2), (2,), outputs=odd),
    "Convolutional, text": hm.Convolutional.parse,
    "LocallyConnected, filters": lambda odd: hm.networks.LocallyConnected(2, 2, odd, 2),
    "LocallyConnected, text": hm.networks.LocallyConnected.parse,
    "any text": parse_network,
    "build, seed": lambda odd: NET.build(seed=odd),
    "build, init": lambda odd: NET.build(init=odd),
    "activation": lambda odd: hm.FullyConnected((3, 2, 2), activation=odd),
    "activation_module": activation_module,
    "polynomial, coefficient": lambda odd: hm.networks.Polynomial((0, 0, odd)),
    "initialise": lambda odd: initialise(odd, "gaussian", torch.Generator()),
}
TAKEN = {  # what is odd alone and has a meaning here
    "polynomial, coefficient": {-1, 2.5, 2**70, -(2**70)},
    "Convolutional, outputs": {2**70},
    "LocallyConnected, filters": {2**70},
}


@pytest.mark.parametrize("call", CALLS)
def test_odd_arguments_are_answered_in_sentences(call: str) -> None:
    for odd in ODD_ARGUMENTS:
        if isinstance(odd, int | float) and odd in TAKEN.get(call, ()):
            continue
        with pytest.raises(HessmapError, match=r"; .*\."):
            CALLS[call](odd)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: hm.certified_rank(problem(), seed=-1), InvalidInput, "seed must be an integer of at least 0; got -1"),
        (lambda: NET.build(seed=2**70), InvalidInput, r"seed must be below 2\^63"),
        (lambda: NET.build(dtype=torch.int64), InvalidInput, "dtype must be a torch.dtype of real numbers"),
        (lambda: NET.build(init=[]), UnknownName, r"init must be one of gaussian, .*; got \[\]"),  # type: ignore[arg-type]
        (lambda: hm.FullyConnected([torch.zeros(2), 3]), InvalidInput, r"widths\[0\] is tensor"),  # type: ignore[list-item]
        (lambda: hm.generic_rank(NET, num_samples=2**70), TooLarge, "drawn samples must fit into memory"),
        (
            lambda: hm.exact.certified_matrix_rank([[1.0], [1.0, 2.0]]),
            InvalidInput,
            "its rows have different lengths",
        ),  # type: ignore[arg-type]
    ],
)
def test_the_sentence_names_what_was_wrong(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
