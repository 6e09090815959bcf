"""The index of rank formulas: network x Hessian -> function, kind of result, reference.

``predict_ranks`` chooses among these functions; the index is for readers who look for one formula.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Hessian = Literal["H_o", "H_f", "H_L"]
Kind = Literal["theorem", "conjecture", "upper bound", "conjectured bound"]


class Formula(NamedTuple):
    """One row of the index.

    Attributes:
        network: The networks that the formula is about.
        hessian: "H_o" (outer product), "H_f" (functional) or "H_L" (loss).
        function: Name of the function below ``hessmap.theory``.
        kind: "theorem" (the rank of generic weights), "upper bound" (a theorem), "conjecture" (the rank, not proved)
            or "conjectured bound".
        reference: Paper and statement, or the page with the proof.
    """

    network: str
    hessian: Hessian
    function: str
    kind: Kind
    reference: str


_FCN, _CNN = "Singh, Bachmann & Hofmann 2021", "Singh, Hofmann & Schoelkopf 2023"
_LINEAR, _BIAS = "fully connected, linear, no bias", "fully connected, linear, bias in some or all layers"
_ANY_WEIGHTS = "fully connected, linear, no bias, any weights"
_RELU_1, _ACTIVATION = "fully connected, one hidden layer, ReLU", "fully connected, any activation"
_RELU_MANY = "fully connected, one hidden layer, ReLU or leaky ReLU, many samples"
_RELU_PAGE = "research/docs/fully-connected.md"
_CONV_1 = "one linear convolution and a dense layer"
_CONV_1_BIAS = "one linear convolution with bias and a dense layer"
_CONV = "deep linear convolutions"
_LOCAL, _SHARED = "locally connected, linear, own filters", "disjoint patches, linear, shared filters"
_LOW = "locally connected, linear, own filters, inputs of low rank, up to three patches"
_LOW_MANY = "locally connected, linear, own filters, inputs of low rank, four patches or more"
_HEAD, _LAST = "linear self-attention, one head, many samples", "linear self-attention, one head, last token read"
_CAUSAL, _HEADS = "causal linear self-attention, one head", "linear self-attention, several heads"
_BLOCK_1, _BLOCK_2 = "linear residual blocks I + W", "linear residual blocks I + U D"
_CONJECTURES, _CONV_PAGE = "research/docs/conjectures.md", "research/docs/convolutional.md"
_ATTENTION_PAGE = "research/docs/attention-residual.md"

INDEX: tuple[Formula, ...] = (
    Formula(_LINEAR, "H_o", "fully_connected.linear.outer_product_rank", "theorem", f"{_FCN}, Corollary 4, corrected"),
    Formula(_LINEAR, "H_f", "fully_connected.linear.functional_rank", "theorem", f"{_FCN}, Corollary 6, an equality"),
    Formula(_LINEAR, "H_L", "fully_connected.linear.loss_rank", "theorem", f"{_FCN}, Fact 7, corrected"),
    Formula(_BIAS, "H_o", "fully_connected.linear.outer_product_rank", "theorem", f"{_FCN}, Theorem 12, corrected"),
    Formula(_BIAS, "H_f", "fully_connected.linear.functional_rank", "conjecture", f"{_FCN}, S7.3, corrected"),
    Formula(_BIAS, "H_f", "fully_connected.linear.functional_upper_bound", "upper bound", _CONJECTURES),
    Formula(_BIAS, "H_L", "fully_connected.linear.loss_rank", "conjecture", f"{_FCN}, Fact 13, corrected"),
    Formula(_BIAS, "H_L", "fully_connected.linear.loss_upper_bound", "upper bound", _CONJECTURES),
    Formula(_ANY_WEIGHTS, "H_o", "fully_connected.products.outer_product_rank", "theorem", _CONJECTURES),
    Formula(_ANY_WEIGHTS, "H_f", "fully_connected.products.functional_rank", "theorem", _CONJECTURES),
    Formula(_ANY_WEIGHTS, "H_L", "fully_connected.products.loss_rank", "theorem", _CONJECTURES),
    Formula(
        _RELU_1, "H_o", "fully_connected.activations.active_units_upper_bound", "upper bound", f"{_FCN}, Theorem 9"
    ),
    Formula(
        _RELU_1,
        "H_o",
        "fully_connected.activations.activation_groups_upper_bound",
        "upper bound",
        f"{_FCN}, Theorem 9, sharpened",
    ),
    Formula(_RELU_1, "H_f", "fully_connected.activations.one_hidden_functional_rank", "theorem", f"{_FCN}, S8.2"),
    *(
        Formula(_RELU_MANY, hessian, "fully_connected.activations.one_hidden_ranks", "theorem", _RELU_PAGE)
        for hessian in ("H_o", "H_f", "H_L")
    ),
    Formula(
        "fully connected, ReLU or leaky ReLU",
        "H_o",
        "fully_connected.activations.rescaling_upper_bound",
        "upper bound",
        f"{_FCN}, Fact 11",
    ),
    *(
        Formula(
            _ACTIVATION,
            hessian,
            "fully_connected.activations.reachable_parameters_upper_bound",
            "upper bound",
            f"{_FCN}, Fact 11, first terms",
        )
        for hessian in ("H_o", "H_f", "H_L")
    ),
    Formula("any network", "H_o", "outer_product_sample_upper_bound", "upper bound", "Jacot, Gabriel & Hongler 2019"),
    Formula(_CONV_1, "H_o", "convolutional.one_layer.outer_product_rank", "theorem", f"{_CNN}, Theorem 7, corrected"),
    Formula(
        f"{_CONV_1}, inputs of low rank",
        "H_o",
        "convolutional.one_layer.outer_product_upper_bound",
        "upper bound",
        f"{_CNN}, Theorems 5 and 7",
    ),
    Formula(_CONV_1, "H_f", "convolutional.one_layer.functional_rank", "theorem", f"{_CNN}, Theorem 8, an equality"),
    Formula(_CONV_1, "H_L", "convolutional.one_layer.loss_rank", "theorem", _CONV_PAGE),
    Formula(_CONV_1_BIAS, "H_f", "convolutional.one_layer.biased_functional_rank", "theorem", _CONV_PAGE),
    Formula(_CONV_1_BIAS, "H_L", "convolutional.one_layer.biased_loss_rank", "conjecture", _CONV_PAGE),
    Formula(_CONV, "H_o", "convolutional.deep_law.outer_product_rank", "conjecture", _CONV_PAGE),
    Formula(_CONV, "H_o", "convolutional.deep_law.proved_outer_product_rank", "theorem", _CONV_PAGE),
    Formula(_CONV, "H_o", "convolutional.deep_bounds.outer_product_upper_bound", "upper bound", f"{_CNN}, Theorem 5"),
    Formula(_CONV, "H_o", "convolutional.chains.channel_mixing_upper_bound", "upper bound", _CONV_PAGE),
    Formula(
        _CONV,
        "H_f",
        "convolutional.deep_bounds.functional_column_upper_bounds",
        "upper bound",
        f"{_CNN}, Theorem 6, sharpened",
    ),
    Formula(_CONV, "H_f", "convolutional.deep_bounds.hidden_units_upper_bound", "upper bound", f"{_CNN}, Corollary 12"),
    Formula(_CONV, "H_f", "convolutional.deep_columns.functional_upper_bound", "conjectured bound", _CONV_PAGE),
    Formula(_CONV, "H_L", "convolutional.deep_bounds.loss_upper_bound", "upper bound", f"{_CNN}, Section 6, sharpened"),
    Formula(_CONV, "H_L", "convolutional.deep_bounds.loss_column_upper_bounds", "upper bound", _CONV_PAGE),
    Formula(_CONV, "H_L", "convolutional.deep_columns.loss_upper_bound", "conjectured bound", _CONV_PAGE),
    Formula(_CONV, "H_L", "convolutional.deep_columns.loss_kernel_upper_bound", "upper bound", _CONV_PAGE),
    *(
        Formula(_LOCAL, hessian, "locally_connected.locally_connected_ranks", "theorem", f"{_CNN}, Theorem 9, Fact 13")
        for hessian in ("H_o", "H_f", "H_L")
    ),
    *(
        Formula(_SHARED, hessian, "locally_connected.shared_weights_ranks", "theorem", f"{_CNN}, Theorem 10, Fact 14")
        for hessian in ("H_o", "H_f", "H_L")
    ),
    Formula(_LOW, "H_o", "locally_connected.outer_product_rank", "theorem", _CONV_PAGE),
    Formula(_LOW, "H_L", "locally_connected.loss_rank", "theorem", _CONV_PAGE),
    Formula(_LOW_MANY, "H_o", "locally_connected.outer_product_rank", "upper bound", _CONV_PAGE),
    Formula(_LOW_MANY, "H_L", "locally_connected.loss_rank", "upper bound", _CONV_PAGE),
    Formula(_HEAD, "H_o", "attention.single_head.outer_product_rank", "theorem", _ATTENTION_PAGE),
    Formula(_HEAD, "H_f", "attention.single_head.functional_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_HEAD, "H_L", "attention.single_head.loss_rank", "theorem", _ATTENTION_PAGE),
    Formula(_LAST, "H_o", "attention.last_token.outer_product_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_LAST, "H_f", "attention.last_token.functional_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_LAST, "H_L", "attention.last_token.loss_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_CAUSAL, "H_o", "attention.causal.outer_product_rank_bound", "upper bound", _ATTENTION_PAGE),
    Formula(_CAUSAL, "H_f", "attention.causal.functional_rank_bound", "upper bound", _ATTENTION_PAGE),
    Formula(_CAUSAL, "H_L", "attention.causal.loss_rank_bound", "conjecture", _ATTENTION_PAGE),
    Formula(_HEADS, "H_o", "attention.heads.outer_product_upper_bound", "upper bound", _ATTENTION_PAGE),
    Formula(_HEADS, "H_f", "attention.heads.functional_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_HEADS, "H_L", "attention.heads.loss_rank", "conjecture", _ATTENTION_PAGE),
    Formula(_HEADS, "H_L", "attention.heads.loss_upper_bound", "upper bound", _ATTENTION_PAGE),
    *(
        Formula(_BLOCK_1, hessian, "residual.single_layer_block_ranks", "theorem", _ATTENTION_PAGE)
        for hessian in ("H_o", "H_f", "H_L")
    ),
    Formula(_BLOCK_2, "H_o", "residual.two_layer_block_ranks", "theorem", _ATTENTION_PAGE),
    Formula(_BLOCK_2, "H_f", "residual.two_layer_block_ranks", "conjecture", _ATTENTION_PAGE),
    Formula(_BLOCK_2, "H_L", "residual.two_layer_block_ranks", "conjecture", _ATTENTION_PAGE),
)


def find_formulas(network: str = "", hessian: Hessian | None = None, kind: Kind | None = None) -> list[Formula]:
    """Search the index of rank formulas.

    Args:
        network: Words that the description of the network must contain, in any order and case. Defaults to any.
        hessian: "H_o", "H_f" or "H_L". Defaults to all.
        kind: "theorem", "upper bound", "conjecture" or "conjectured bound". Defaults to all.

    Returns:
        The matching rows of ``INDEX``.

    Example:
        >>> [formula.function for formula in find_formulas("one linear convolution", "H_L")]
        ['convolutional.one_layer.loss_rank', 'convolutional.one_layer.biased_loss_rank']
    """
    words = network.lower().split()
    return [
        formula
        for formula in INDEX
        if all(word in formula.network.lower() for word in words)
        and hessian in (None, formula.hessian)
        and kind in (None, formula.kind)
    ]
