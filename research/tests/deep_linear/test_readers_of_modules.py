"""Readers of modules of this package: what they take, what they refuse, and odd arguments of Toeplitz matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

import hessmap as hm
from changed_layers import CASES, CHANGES, PLACES, doubled, hooked, hooked_before, made, parametrised, scaled_kind
from hessmap.errors import HessmapError, InvalidInput, UnsupportedNetwork
from hessmap_research.deep_linear import deep_linear_convolution_of, deep_linear_of
from hessmap_research.toeplitz import toeplitz_layer
from odd_values import ODD_ARGUMENTS

READERS: dict[str, tuple[Callable[[hm.Problem], object], str]] = {
    "deep_linear_of": (deep_linear_of, "a (fully connected|convolutional) network is"),
    "deep_linear_convolution_of": (deep_linear_convolution_of, "closed forms hold for chains of"),
}
READS = {  # what each of them takes as it stands, so that the refusals are about the change
    "deep_linear_of": {"linear", "identity", "flatten", "dropout", "sequential", "whole"},
    "deep_linear_convolution_of": set(PLACES),
}


@pytest.mark.parametrize("reader", READERS)
def test_plain_layers_are_read(reader: str) -> None:
    for place in sorted(READS[reader]):
        READERS[reader][0](made(place, lambda layer: layer))


@pytest.mark.parametrize(("place", "change"), CASES)
def test_every_reader_of_modules_refuses_a_layer_that_may_compute_something_else(place: str, change: str) -> None:
    problem = made(place, (CHANGES | {"parametrised": parametrised})[change])
    for read, must in READERS.values():
        with pytest.raises(UnsupportedNetwork, match=must):
            read(problem)


@pytest.mark.parametrize("change", [doubled, hooked, hooked_before, scaled_kind, parametrised])
def test_a_layer_that_computes_something_else_has_no_toeplitz_matrix(
    change: Callable[[nn.Module], nn.Module],
) -> None:
    for layer, shape in ((nn.Linear(3, 2), (3,)), (nn.Conv1d(1, 1, 2), (1, 3))):
        with pytest.raises(UnsupportedNetwork, match="a layer with a Toeplitz matrix is"):
            toeplitz_layer(change(layer), shape)


CALLS: dict[str, Callable[[Any], object]] = {
    "module": lambda odd: toeplitz_layer(odd, (2, 4)),
    "shape": lambda odd: toeplitz_layer(nn.AvgPool1d(2), odd),
}


@pytest.mark.parametrize("call", CALLS)
def test_odd_arguments_of_toeplitz_matrices_are_answered_in_sentences(call: str) -> None:
    for odd in ODD_ARGUMENTS:
        with pytest.raises(HessmapError, match=r"; .*\."):
            CALLS[call](odd)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: toeplitz_layer(None, (2, 4)), UnsupportedNetwork, "or an nn.Linear; got a NoneType"),  # type: ignore[arg-type]
        (lambda: toeplitz_layer(nn.AvgPool1d(2), (0, 3)), InvalidInput, r"input_shape\[0\] must be an integer"),
    ],
)
def test_the_sentence_names_what_was_wrong(call: Callable[[], object], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
