"""What `predict_ranks` claims, over everything that it accepts: kinds of truth, limits that no claim may pass, and how
much work it takes."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counted_work import num_lines
from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.networks import Convolutional, FullyConnected, LocallyConnected
from hessmap.records import PARTS, RankPrediction, RankValue
from hessmap.theory import LOSSES, effective_output_dim, predict_ranks
from hessmap.theory.prediction import Conjecture, claims_as_bounds, strongest_claim

KINDS = (None, "exact", "conjecture", "upper_bound", "numerical")
ACTIVATIONS = ("identity", "identity", "relu", "tanh")


def biases(num_layers: int) -> st.SearchStrategy[Any]:
    return st.booleans() | st.lists(st.booleans(), min_size=num_layers, max_size=num_layers)


@st.composite
def fully_connected(draw: st.DrawFn, most: int) -> FullyConnected:
    widths = draw(st.lists(st.integers(1, most), min_size=2, max_size=6))
    return FullyConnected(widths, draw(biases(len(widths) - 1)), draw(st.sampled_from(tuple(ACTIVATIONS))))


@st.composite
def convolutional(draw: st.DrawFn, most: int) -> Convolutional:
    num_hidden = draw(st.integers(1, 4))
    length = current = draw(st.integers(1, most))
    kernels, strides, paddings = [], [], []
    for _ in range(num_hidden):
        paddings.append(draw(st.sampled_from([0, 0, 0, 1, 2])))
        kernels.append(draw(st.integers(1, current + 2 * paddings[-1])))
        strides.append(draw(st.sampled_from([1, 1, 2, 3])))
        current = (current + 2 * paddings[-1] - kernels[-1]) // strides[-1] + 1
    channels = draw(st.lists(st.integers(1, most), min_size=num_hidden + 1, max_size=num_hidden + 1))
    outputs, activation = draw(st.integers(1, most)), draw(st.sampled_from(tuple(ACTIVATIONS)))
    bias = draw(st.just(False) | biases(num_hidden + 1))
    return Convolutional(length, channels, kernels, strides, outputs, bias, activation, paddings)


def locally_connected(most: int) -> st.SearchStrategy[LocallyConnected]:
    sizes = [st.integers(1, most)] * 4
    activation = st.sampled_from(tuple(ACTIVATIONS))
    return st.builds(LocallyConnected, *sizes, shared_weights=st.booleans(), activation=activation)


def networks(most: int) -> st.SearchStrategy[Any]:
    return fully_connected(most) | convolutional(most) | locally_connected(most)


@st.composite
def questions(draw: st.DrawFn, net: Any) -> dict[str, Any]:
    """A loss, and any ranks of data and number of samples that can occur together."""
    asked: dict[str, Any] = {"loss": draw(st.sampled_from(LOSSES))}
    outputs = effective_output_dim(net.output_dim, asked["loss"])
    samples = draw(st.none() | st.integers(1, 2 * net.input_dim + 2))
    rank = draw(st.none() | st.integers(0, min(net.input_dim, samples or net.input_dim)))
    if samples is not None:
        asked["num_samples"] = samples
    if rank is None:
        return asked
    asked["input_rank"] = rank
    least, most = max(rank - 1, 0), rank if samples is None else min(rank, samples - 1)
    centred = draw(st.none() | st.integers(least, most))
    if centred is not None:
        asked["centred_input_rank"] = centred
    centred = most if centred is None else centred
    if draw(st.booleans()):
        asked["mean_residual_is_zero"] = True
    visible = centred if "mean_residual_is_zero" in asked else centred + 1 if net.has_bias else rank
    residual = draw(st.none() | st.integers(0, min(visible, outputs)))
    return asked if residual is None else asked | {"residual_rank": residual}


def checked(prediction: RankPrediction, net: Any, asked: dict[str, Any]) -> None:
    """No rank above the parameters, the samples times the outputs, or the two others added."""
    outer, functional, loss = (getattr(prediction, part).value for part in PARTS)
    assert min(outer, functional, loss) >= 0
    assert max(outer, functional, loss) <= net.num_parameters == prediction.num_parameters
    assert loss <= outer + functional
    assert outer <= loss + functional
    assert functional <= loss + outer
    if "num_samples" in asked:
        assert outer <= asked["num_samples"] * effective_output_dim(net.output_dim, asked["loss"])


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@share_of_examples(2)
def test_no_claim_passes_the_limits_and_every_kind_of_truth_is_what_was_asked_for(kind: Any, data: Any) -> None:
    net = data.draw(networks(data.draw(st.sampled_from([4, 9, 60]))))
    asked = data.draw(questions(net))
    if kind in ("exact", "conjecture") and not net.is_linear:
        with pytest.raises(InvalidInput, match="needs a linear network; this one has activation"):
            predict_ranks(net, kind=kind, **asked)
        return
    known = predict_ranks(net, **asked)
    if kind == "exact" and any(getattr(known, part).kind != "exact" for part in PARTS):
        with pytest.raises(InvalidInput, match="needs a case whose exact rank is proved; of the .* only a"):
            predict_ranks(net, kind=kind, **asked)
        return
    prediction = predict_ranks(net, kind=kind, **asked)
    checked(prediction, net, asked)
    found = {getattr(prediction, part).kind for part in PARTS}
    if kind in ("exact", "upper_bound", "numerical"):
        assert found == {kind}
    elif kind is None and not net.is_linear:
        assert found == {"numerical"}
    else:
        assert "numerical" not in found
    assert RankPrediction.from_json(prediction.to_json()) == prediction


@given(data=st.data())
@share_of_examples(2)
def test_theorems_are_never_below_what_is_exact_or_conjectured(data: Any) -> None:
    net = replace(data.draw(networks(9)), activation="identity")
    asked = data.draw(questions(net))
    strongest_claims, proved = predict_ranks(net, **asked), predict_ranks(net, kind="upper_bound", **asked)
    for part in PARTS:
        claim, bound = getattr(strongest_claims, part), getattr(proved, part)
        assert claim.value <= bound.value
        assert claim.value == bound.value or claim.kind == "conjecture"
        assert (claim.kind == "conjecture") == ("study" in claim.reference or claim.num_cases is not None)


def test_without_functional_part_the_loss_rank_is_as_exact_as_the_outer_product() -> None:
    """Inputs of rank 0: a bias in the last layer alone, whose loss rank is a conjecture elsewhere."""
    prediction = predict_ranks(FullyConnected((1, 1, 1), bias=(False, True)), kind="exact", input_rank=0)
    assert [getattr(prediction, part).value for part in PARTS] == [1, 0, 1]


def test_the_sum_of_both_parts_bounds_a_biased_convolution() -> None:
    """Exactly 21; the dense network with bias and the number of parameters give 29."""
    prediction = predict_ranks(Convolutional(2, (1, 2), (1,), outputs=5, bias=True))
    assert [getattr(prediction, part).value for part in PARTS] == [15, 8, 23]
    assert prediction.loss.kind == "upper_bound"
    assert "added" in prediction.loss.reference


def test_samples_bound_generic_ranks_and_the_outer_product_of_any_network() -> None:
    relu = FullyConnected((20, 30, 5), activation="relu")
    few, many = (predict_ranks(relu, kind="upper_bound", num_samples=number) for number in (7, 1000))
    assert few.outer_product.value == 35 < many.outer_product.value
    assert "samples" in few.outer_product.reference
    linear = predict_ranks(FullyConnected((20, 30, 5), bias=True), num_samples=7)
    assert (linear.inputs["input_rank"], linear.inputs["centred_input_rank"]) == (7, 6)
    assert linear.inputs["num_samples"] == 7
    with pytest.raises(InvalidInput, match=r"input_rank must be at most 7, the number of samples; got 8"):
        predict_ranks(FullyConnected((20, 5)), input_rank=8, num_samples=7)
    with pytest.raises(InvalidInput, match=r"centred_input_rank must be at most 6, the number of samples minus one"):
        predict_ranks(FullyConnected((20, 5), bias=True), centred_input_rank=7, num_samples=7)
    with pytest.raises(InvalidInput, match=r"num_samples must be at least 1; got 0"):
        predict_ranks(FullyConnected((20, 5)), num_samples=0)


BIASED = FullyConnected((6, 5, 4, 3), bias=True)
CONJECTURES = {  # what is not proved: network, part, what is claimed
    "bias, functional": (BIASED, "functional", "value"),
    "bias, loss": (BIASED, "loss", "value"),
    "bias in some layers": (FullyConnected((6, 5, 4, 3), bias=(True, False, False)), "loss", "value"),
    "one biased convolution": (Convolutional(9, (1, 3), (8,), outputs=5, bias=(True, False)), "loss", "value"),
    "two convolutions": (Convolutional(16, (1, 4, 4), (7, 7), outputs=4), "outer_product", "value"),
    "two convolutions, loss": (Convolutional(16, (1, 4, 4), (7, 7), outputs=4), "loss", "value"),
    "two convolutions, bound": (Convolutional(16, (1, 4, 4), (7, 7), outputs=4), "functional", "bound"),
}


@pytest.mark.parametrize(("net", "part", "what"), CONJECTURES.values(), ids=CONJECTURES)
def test_what_is_not_proved_is_a_conjecture_with_its_evidence(net: Any, part: str, what: str) -> None:
    claim: RankValue = getattr(predict_ranks(net), part)
    assert (claim.kind, claim.conjectured) == ("conjecture", what)
    assert claim.num_cases is not None
    assert claim.num_cases >= 1000
    assert "proof" not in claim.reference
    with pytest.raises(InvalidInput, match="needs a case whose exact rank is proved"):
        predict_ranks(net, kind="exact")
    proved = getattr(predict_ranks(net, kind="upper_bound"), part)
    assert proved.kind == "upper_bound"
    assert proved.value >= claim.value


def test_a_conjecture_never_stands_above_a_theorem() -> None:
    law, theorem = Conjecture("a law", 500), RankValue(5, "upper_bound", "a theorem")
    assert strongest_claim([law.value(6), theorem]) == theorem
    assert strongest_claim([law.value(5), theorem]) == law.value(5)
    assert strongest_claim([law.bound(5), theorem]) == theorem
    assert strongest_claim([law.value(4), RankValue(7, "exact", "another")]).kind == "exact"
    assert [claim.kind_text for claim in claims_as_bounds([law.value(6), RankValue(5, "exact", "")])] == [
        "conjectured bound",
        "upper bound",
    ]


@pytest.mark.parametrize(
    "fields",
    [
        ("conjecture", "", None, None),
        ("conjecture", "", "value", None),
        ("exact", "", "value", 5),
        ("exact", "", None, 5),
    ],
)
def test_only_a_conjecture_has_evidence_and_it_needs_it(fields: Any) -> None:
    with pytest.raises(InvalidInput, match="conjectured and num_cases must be given for conjectures"):
        RankValue(3, *fields)


@pytest.mark.parametrize(
    ("claim", "allowed"),
    [
        (RankValue(5, "exact", ""), {4: False, 5: True, 6: False}),
        (RankValue(5, "upper_bound", ""), {4: True, 5: True, 6: False}),
        (Conjecture("", 9).value(5), {4: False, 5: True, 6: False}),
        (Conjecture("", 9).bound(5), {4: True, 5: True, 6: False}),
        (RankValue(5, "numerical", ""), {4: None, 5: None, 6: None}),
    ],
)
def test_a_claim_allows_its_value_or_all_below_it_and_a_numerical_rank_claims_nothing(
    claim: RankValue, allowed: dict[int, bool | None]
) -> None:
    assert {rank: claim.allows(rank) for rank in allowed} == allowed


LARGE = {
    "18 convolutions": Convolutional(400, (1, *[8] * 18), (3,) * 18, outputs=10),
    "18 strided convolutions": Convolutional(2**21, (3, *[16] * 18), (3,) * 18, (2,) * 18, outputs=10),
    "64 convolutions": Convolutional(300, tuple(range(1, 65)), (3,) * 63, outputs=10),
    "1000 convolutions": Convolutional(3000, (2,) * 1001, (3,) * 1000, outputs=10),
    "31 wide convolutions": Convolutional(10**7, (10**9,) * 32, (10**5,) * 31, outputs=10**9),
    "a million positions": Convolutional(10**6, (1, 8, 16), (5, 5), (1, 3), outputs=10),
    "a million positions, gaps": Convolutional(10**6, (1, 8, 16), (3, 2), (7, 5), outputs=10),
    "a million positions, padding": Convolutional(10**6, (1, 8), (5,), (2,), outputs=10, paddings=(3,)),
    "a million positions, bias": Convolutional(10**6, (1, 8, 16), (5, 5), outputs=10, bias=True),
    "a million patches": LocallyConnected(10**6, 10, 10, 10),
    "a million shared patches": LocallyConnected(10**6, 10, 10, 10, shared_weights=True),
    "relu of 10^9 units": FullyConnected((10**9, 10**9, 10**9), activation="relu"),
    "bias in some of 500 layers": FullyConnected((100,) * 501, bias=[layer % 3 == 0 for layer in range(500)]),
}


@pytest.mark.parametrize("kind", [None, "upper_bound"])
@pytest.mark.parametrize("net", LARGE.values(), ids=LARGE)
def test_large_networks_take_little_work_and_memory(net: Any, kind: Any) -> None:
    """Lines of Python and bytes, not seconds: by numbers of layers at most their square, by sizes not at all."""
    predict_ranks(net, kind=kind, input_rank=1)  # what is loaded once is not counted
    tracemalloc.start()
    try:
        lines = num_lines(lambda: predict_ranks(net, kind=kind))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    layers = len(net.widths) - 1
    assert lines < 3500 + 300 * layers + 16 * min(layers, 65) ** 2
    assert peak < 3e7


@given(data=st.data())
def test_the_work_does_not_grow_with_the_sizes(data: Any) -> None:
    """Five convolutions are cut at every pair of vertices: 10,000 lines for sizes of 6, 16,000 for 10^4 and 10^6."""
    net = data.draw(networks(10**6))
    asked = data.draw(questions(net))
    prediction: list[RankPrediction] = []
    assert num_lines(lambda: prediction.append(predict_ranks(net, **asked))) < 20_000
    checked(prediction[0], net, asked)
