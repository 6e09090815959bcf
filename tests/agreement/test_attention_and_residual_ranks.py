"""Predicted ranks of attention and residual networks against exact ranks of generic ones, and the stored cases."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_shares import share_of_examples
from golden_tables import each, table
from hessmap.exact import generic_rank
from hessmap.networks import FullyConnected, Residual, SelfAttention
from hessmap.records import PARTS, Part
from hessmap.theory import predict_ranks
from hessmap.theory import residual as linear
from hessmap.theory import residual as prediction
from hessmap.theory.attention import causal, heads, last_token, single_head, subspace_products

CASES = table("attention-residual")["cases"]
KEYS = {"outer_product": "H_o", "functional": "H_f", "loss": "H_L"}
# The sheet of the stored cases has an upper bound of 24 here; three subspaces are of a finite kind, and 22 is exact.
SHARPER = {"d": 5, "d_k": 5, "d_v": 2, "N": 3, "n": 4}

Question = dict[str, Any]


def network_and_question(case: dict[str, Any]) -> tuple[SelfAttention | Residual, Question]:
    if case["variant"].startswith("residual"):
        names = {"input": "A", "output": "B"}
        ends = [end for end, key in names.items() if case[key] == "trained"]
        sizes = {"inner_width": case.get("m"), "input_dim": case["d0"], "output_dim": case["K"]}
        net = Residual(case["d"], case["L"], train_input="input" in ends, train_output="output" in ends, **sizes)
        return net, {"input_rank": case["r"], "residual_rank": case["s"]}
    layer = SelfAttention(
        case["d"],
        case.get("d_k"),
        case["d_v"],
        heads=case.get("heads", 1),
        outputs=case.get("d_out"),
        merged_query_key=case["variant"] == "one_matrix",
        frozen_value=case["variant"] == "frozen_V",
        causal=case["read"] == "causal",
        read="last" if case["read"] == "last" else "all",
    )
    return layer, {"num_samples": case["N"], "num_tokens": case["n"]}


@each(CASES, lambda case: f"{case['variant']}-{case.get('read', '')} {case}")
def test_stored_cases(case: dict[str, Any]) -> None:
    net, question = network_and_question(case)
    assert net.num_parameters == case["ranks"]["p"]
    prediction = predict_ranks(net, **question)
    for part in PARTS:
        assert generic_rank(net, part, **question).value == case["ranks"][KEYS[part]]
        predicted = getattr(prediction, part)
        assert predicted.allows(case["ranks"][KEYS[part]])
        formula = case["formula"][KEYS[part]]
        is_sharper = SHARPER.items() <= case.items() and part == "outer_product"
        assert formula is None or is_sharper or predicted.value == formula


@st.composite
def attention_questions(draw: st.DrawFn, largest: int = 4) -> tuple[SelfAttention, Question]:
    size = st.integers(1, largest)
    layer = SelfAttention(
        draw(size),
        draw(size),
        draw(size),
        heads=draw(st.integers(1, min(largest, 3))),
        outputs=draw(st.none() | size),
        merged_query_key=draw(st.booleans()),
        frozen_value=draw(st.booleans()),
        causal=draw(st.booleans()),
        read=draw(st.sampled_from(["all", "last"])),
    )
    question: Question = {"num_samples": draw(size), "num_tokens": draw(size)}
    if largest > 9:
        question = {name: draw(st.none() | st.just(count)) for name, count in question.items()}
    question["loss"] = draw(st.sampled_from(["squared", "cross_entropy", "log_cosh"]))
    return layer, question


@st.composite
def residual_questions(draw: st.DrawFn, largest: int = 4) -> tuple[Residual, Question]:
    size = st.integers(1, largest)
    net = Residual(
        draw(size),
        draw(st.integers(1, 3)),
        inner_width=draw(st.none() | size),
        input_dim=draw(st.none() | size),
        output_dim=draw(st.none() | size),
        train_input=draw(st.booleans()),
        train_output=draw(st.booleans()),
    )
    loss = draw(st.sampled_from(["squared", "cross_entropy", "log_cosh"]))
    rank = draw(st.integers(0, net.input_dim))
    most = min(rank, net.output_dim - (loss == "cross_entropy"))
    return net, {"input_rank": rank, "residual_rank": draw(st.integers(0, most)), "loss": loss}


def require_agreement(net: SelfAttention | Residual, question: Question, seed: int) -> None:
    prediction = predict_ranks(net, **question)
    for part in PARTS:
        exact, predicted = generic_rank(net, part, seed=seed, **question).value, getattr(prediction, part)
        agrees = predicted.allows(exact)
        assert agrees, f"{net} {question}: {part} is {exact}, {predicted}"


@share_of_examples(2)
@given(attention_questions(), st.integers(0, 2**32))
def test_attention_is_as_predicted(drawn: tuple[SelfAttention, Question], seed: int) -> None:
    require_agreement(*drawn, seed)


@share_of_examples(2)
@given(residual_questions(), st.integers(0, 2**32))
def test_residual_networks_are_as_predicted(drawn: tuple[Residual, Question], seed: int) -> None:
    require_agreement(*drawn, seed)


ONE: Question = {"num_samples": 1, "num_tokens": 6}
FEW: Question = {"num_samples": 3, "num_tokens": 4}
MANY: Question = {"num_tokens": 2}
# A formula of the theory, a network that it decides, and what is asked; one more or less must be seen.
DECIDED: dict[str, tuple[Any, str, SelfAttention | Residual, Question]] = {
    "outer product of one head": (single_head, "outer_product_rank", SelfAttention(3, 2, 2), FEW),
    "functional of one head": (single_head, "functional_rank", SelfAttention(3, 2, 2), FEW),
    "loss of one head": (single_head, "loss_rank", SelfAttention(4, 1, 1), {"num_samples": 2, "num_tokens": 4}),
    "scores that are seen": (single_head, "seen_score_dimension", SelfAttention(3, 2, 1, frozen_value=True), FEW),
    "merged loss": (single_head, "_merged_loss_rank", SelfAttention(4, 4, 3, merged_query_key=True), FEW),
    "outer product of the last token": (last_token, "outer_product_rank", SelfAttention(3, 2, 2, read="last"), FEW),
    "functional of the last token": (last_token, "functional_rank", SelfAttention(4, 2, 2, read="last"), FEW),
    "loss of the last token": (last_token, "loss_rank", SelfAttention(4, 5, 4, read="last"), FEW),
    "causal outer product": (causal, "outer_product_rank_bound", SelfAttention(3, 2, 2, causal=True), FEW),
    "causal functional": (causal, "functional_rank_bound", SelfAttention(3, 1, 2, causal=True), FEW),
    "causal staircase": (causal, "staircase_dimension", SelfAttention(5, 4, 5, causal=True), ONE),
    "causal pairs of tokens": (causal, "attended_score_dimension", SelfAttention(3, 3, 3, causal=True), ONE),
    "causal loss, merged": (causal, "loss_rank_bound", SelfAttention(4, 1, 2, merged_query_key=True, causal=True), ONE),
    "frozen last token": (last_token, "loss_rank", SelfAttention(4, 3, 3, read="last", frozen_value=True), FEW),
    "merged last token": (
        last_token,
        "_merged_loss_rank",
        SelfAttention(4, 1, 2, merged_query_key=True, read="last"),
        FEW,
    ),
    "frozen value, few samples": (
        single_head,
        "_value_frozen_keys",
        SelfAttention(4, 2, 1, frozen_value=True),
        {"num_samples": 2, "num_tokens": 3},
    ),
    "heads, outer product": (heads, "outer_product_upper_bound", SelfAttention(2, 1, 2, heads=2, outputs=2), MANY),
    "heads, functional": (heads, "functional_rank", SelfAttention(2, 1, 2, heads=2, outputs=3), MANY),
    "heads, loss": (heads, "loss_rank", SelfAttention(1, 2, 2, heads=3, outputs=3), MANY),
    "subspaces": (subspace_products, "_num_homomorphisms", SelfAttention(5, 5, 2, frozen_value=True), FEW),
}


@pytest.mark.parametrize("name", DECIDED)
def test_every_formula_is_seen_to_be_wrong_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, formula, net, question = DECIDED[name]
    require_agreement(net, question, seed=0)
    true_value = getattr(module, formula)
    monkeypatch.setattr(module, formula, lambda *sizes: true_value(*sizes) - 1)
    with pytest.raises(AssertionError, match="is [0-9]+, RankValue"):
        require_agreement(net, question, seed=0)


RESIDUAL = {
    "single_layer_block_ranks": Residual(3, 2),
    "two_layer_block_ranks": Residual(3, 2, inner_width=1),
    "_one_end": Residual(3, 2, inner_width=1, train_input=True),
    "_both_ends": Residual(3, 2, inner_width=1, train_input=True, train_output=True),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("formula", RESIDUAL)
def test_every_residual_formula_is_seen_to_be_wrong_by_one(
    formula: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = linear if formula.startswith("_") else prediction
    question = {"residual_rank": 2, "input_rank": 3}
    require_agreement(RESIDUAL[formula], question, seed=0)
    true_value = getattr(module, formula)

    def wrong(sizes: Any) -> Any:
        ranks = true_value(sizes)
        return ranks._replace(**{part: getattr(ranks, part) - 1})

    monkeypatch.setattr(module, formula, wrong)
    with pytest.raises(AssertionError, match="is [0-9]+, RankValue"):
        require_agreement(RESIDUAL[formula], question, seed=0)


@share_of_examples(4)
@given(attention_questions(largest=10**6) | residual_questions(largest=10**6))
def test_no_prediction_passes_the_limits(drawn: tuple[SelfAttention | Residual, Question]) -> None:
    net, question = drawn
    prediction = predict_ranks(net, **question)
    outer, functional, loss = (getattr(prediction, part).value for part in PARTS)
    assert 0 <= min(outer, functional, loss) <= max(outer, functional, loss) <= net.num_parameters
    assert loss <= outer + functional
    assert outer <= loss + functional
    assert functional <= loss + outer
    if question.get("num_samples") and question.get("num_tokens"):
        outputs = net.output_dim - (question["loss"] == "cross_entropy")
        assert outer <= question["num_samples"] * question["num_tokens"] * outputs


@pytest.mark.parametrize(
    ("layer", "samples", "tokens", "ranks"),
    [
        (SelfAttention(6, 5, 2, causal=True), 12, 2, {"outer_product": 44}),
        (SelfAttention(5, 4, 5, causal=True), 1, 6, {"functional": 59}),
        (SelfAttention(7, 2, 8, causal=True), 1, 7, {"functional": 50}),
        (SelfAttention(7, 1, 3, causal=True, merged_query_key=True), 1, 8, {"loss": 53}),
        (SelfAttention(5, 5, 3, causal=True, frozen_value=True), 8, 2, {"outer_product": 23}),
    ],
    ids=str,
)
def test_layers_that_earlier_formulas_missed(
    layer: SelfAttention, samples: int, tokens: int, ranks: dict[Part, int]
) -> None:
    prediction = predict_ranks(layer, num_samples=samples, num_tokens=tokens)
    for part, rank in ranks.items():
        exact = generic_rank(layer, part, num_samples=samples, num_tokens=tokens).value
        assert exact == rank == getattr(prediction, part).value


@pytest.mark.parametrize("num_blocks", [1, 2, 4])
@pytest.mark.parametrize("ends", [(), ("input",), ("input", "output")])
def test_blocks_of_one_layer_are_the_fully_connected_network(num_blocks: int, ends: tuple[Any, ...]) -> None:
    net = Residual(
        4,
        num_blocks,
        input_dim=6 if ends else 4,
        output_dim=3 if len(ends) == 2 else 4,
        train_input="input" in ends,
        train_output="output" in ends,
    )
    for rank in range(net.input_dim + 1):
        for residual_rank in range(min(rank, net.output_dim) + 1):
            question = {"input_rank": rank, "residual_rank": residual_rank}
            same, dense = (predict_ranks(one, **question) for one in (net, FullyConnected(net.widths)))
            assert [getattr(same, part).value for part in PARTS] == [getattr(dense, part).value for part in PARTS]
