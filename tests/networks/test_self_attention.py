"""Self-attention: its text, its sizes, and what it computes, beside torch's own attention."""

from __future__ import annotations

from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.networks import SelfAttention, describe, parse_network

SIZES = st.integers(1, 50)


@given(SIZES, SIZES, SIZES, st.integers(1, 4), st.none() | SIZES, st.tuples(*[st.booleans()] * 4))
def test_the_text_names_the_layer(width, keys, values, heads, outputs, flags):
    merged, frozen, causal, is_last = flags
    net = SelfAttention(
        width,
        keys,
        values,
        heads=heads,
        outputs=outputs,
        merged_query_key=merged,
        frozen_value=frozen,
        causal=causal,
        read="last" if is_last else "all",
    )
    assert parse_network(str(net)) == net
    assert net.num_parameters == sum(rows * columns for rows, columns in net.parameter_shapes.values())


ODD_TEXTS = (
    "attention",
    "attention-4",
    "attention-4-x2",
    "attention-4-0x2",
    "attention-4-2-",
    "attention-4-2 last last",
)
ODD_TEXTS += ("attention-4-2-2-2-2", "attention-0-2", "attention-4-2 relu", "attention-4-\u0662", "attention 4-2")


@pytest.mark.parametrize("text", ODD_TEXTS)
def test_odd_texts_are_refused(text):
    with pytest.raises(InvalidInput, match="must be"):
        parse_network(text)


ODD_ARGUMENTS = {
    "width must be an integer of at least 1": {"width": 0},
    "key_width must be an integer of at least 1": {"key_width": 2.0},
    "value_width must be an integer of at least 1": {"value_width": True},
    "heads must be an integer of at least 1": {"heads": 0},
    "outputs must be an integer of at least 1": {"outputs": "3"},
    "causal must be True or False": {"causal": 1},
    "read must be one of all, last": {"read": "first"},
    "self-attention needs a key_width": {"key_width": None},
}


@pytest.mark.parametrize(("message", "odd"), ODD_ARGUMENTS.items(), ids=ODD_ARGUMENTS)
def test_odd_arguments_are_refused(message, odd):
    with pytest.raises(InvalidInput, match=message):
        SelfAttention(**({"width": 4, "key_width": 2} | odd))


def test_equal_functions_are_equal_objects():
    assert SelfAttention(4, 2, 3, merged_query_key=True) == SelfAttention(4, 4, 3, merged_query_key=True)
    assert SelfAttention(4, 2, causal=True, read="last") == SelfAttention(4, 2, 2, read="last")


@pytest.mark.parametrize("is_causal", [False, True])
def test_with_softmax_it_is_torch_s_multi_head_attention(is_causal):
    width, heads, num_tokens = 6, 3, 5
    net = SelfAttention(width, width // heads, width // heads, heads=heads, outputs=width, causal=is_causal)
    mine = net.build(seed=3, temperature=sqrt(width // heads))
    theirs = nn.MultiheadAttention(width, heads, bias=False, batch_first=True, dtype=torch.float64)
    weights = dict(mine.named_parameters())
    with torch.no_grad():
        rows = [weights[f"{name}_proj_weight"] for name in "qkv"]
        theirs.in_proj_weight.copy_(torch.cat(rows))
        theirs.out_proj.weight.copy_(weights["out_proj.weight"])
    tokens = torch.randn(4, num_tokens, width, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(num_tokens, num_tokens, dtype=torch.bool).triu(1) if is_causal else None
    expected, _ = theirs(tokens, tokens, tokens, attn_mask=mask)
    torch.testing.assert_close(mine(tokens), expected, rtol=1e-12, atol=1e-12)


def by_hand(net, model, sample):
    """One sample, token by token and head by head, from the definition."""
    weights = dict(model.named_parameters())
    keys, values, outputs = net.key_width, net.value_width, []
    for place in range(len(sample)):
        seen = sample[: place + 1] if net.causal else sample
        heads = []
        for head in range(net.heads):
            rows = slice(head * keys, (head + 1) * keys)
            if net.merged_query_key:
                score = weights["qk_proj_weight"][rows]
            else:
                score = weights["k_proj_weight"][rows].mT @ weights["q_proj_weight"][rows]
            value = weights["v_proj_weight"][head * values : (head + 1) * values]
            heads.append(sum((x @ score @ sample[place]) * (value @ x) for x in seen))
        whole = torch.cat(heads)
        outputs.append(whole if net.outputs is None else weights["out_proj.weight"] @ whole)
    return outputs[-1] if net.read == "last" else torch.stack(outputs)


@pytest.mark.parametrize(
    "net",
    [
        SelfAttention(3, 2, 4),
        SelfAttention(3, 2, 1, heads=2, causal=True),
        SelfAttention(3, 2, heads=2, outputs=5, read="last"),
        SelfAttention(3, value_width=2, merged_query_key=True, frozen_value=True),
    ],
    ids=str,
)
def test_without_softmax_it_is_the_sum_over_the_tokens(net):
    model = net.build(seed=1)
    samples = torch.randn(2, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = torch.stack([by_hand(net, model, sample) for sample in samples])
    torch.testing.assert_close(model(samples), expected, rtol=1e-12, atol=1e-12)
    trained = {name: tuple(value.shape) for name, value in model.named_parameters() if value.requires_grad}
    assert trained == net.parameter_shapes
    assert describe(model) == net


def test_weights_come_from_the_seed_alone():
    state = torch.get_rng_state()
    one, other = (SelfAttention(3, 2, outputs=2).build(seed=5).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("inf"), float("nan")])
def test_a_temperature_is_positive(temperature):
    with pytest.raises(InvalidInput, match="the temperature of a softmax must be positive"):
        SelfAttention(3, 2).build(temperature=temperature)


def test_softmax_has_no_description():
    with pytest.raises(UnsupportedNetwork, match="has a softmax"):
        describe(SelfAttention(3, 2).build(temperature=1.0))
