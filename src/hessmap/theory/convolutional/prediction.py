"""The rank rule of convolutional networks: which formula applies, and whether it is proved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hessmap.networks import Convolutional, Convolutions, ImageConvolutional, is_homogeneous
from hessmap.records import RankPrediction, RankValue
from hessmap.theory.convolutional import deep_bounds, deep_columns, deep_law, one_layer
from hessmap.theory.convolutional.chains import FilterChain, ImageChain, channel_mixing_upper_bound, convolutional_chain
from hessmap.theory.convolutional.deep_bounds import loss_column_upper_bounds
from hessmap.theory.convolutional.deep_columns import loss_kernel_upper_bound
from hessmap.theory.convolutional.deep_law import proved_outer_product_rank
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution
from hessmap.theory.data_ranks import RankInputs, RankQuestion, checked_widths, data_ranks
from hessmap.theory.fully_connected.prediction import linear_claims
from hessmap.theory.prediction import Claims, Conjecture, claims_as_bounds, rank_prediction, rank_rule

_PAPER = "Singh, Hofmann & Schoelkopf 2023"
_PAGE = "research/docs/convolutional.md"
_PROOF = f"proof in {_PAGE}"
_CORRECTED = "corrected (input 9, kernel 8, filters 3, outputs 5: 44, not 45)"
_OUTER = f"{_PAPER}, Theorem 7, there a bound; {_CORRECTED}, {_PROOF}"
_FUNCTIONAL = f"{_PAPER}, Theorem 8, an equality, with the residual rank for the outputs, {_PROOF}"
_LOSS = f"{_PAPER}, Section 6, there the sum of Theorems 7 and 8; corrected, {_PROOF}"
_LOW_OUTER = f"{_PAPER}, Theorems 5 and 7 with the input rank; not always reached"
_GENERIC = "the rank for data in general position"
_DEEP_OUTER = f"{_PAPER}, Theorem 5, with channels times positions and the input rank"
_DEEP_FUNCTIONAL = f"{_PAPER}, Theorem 6, sharpened: no layer has a block of its own"
_DEEP_LOSS = f"{_PAPER}, Section 6, sharpened by the dense formula and the shared gradient"
_LOSS_COLUMNS = f"what outputs and other layers feel of each layer, {_PROOF}"
_COROLLARY = f"{_PAPER}, Corollary 12"
_CHAIN = "products of polynomial matrices, not in print; study cnn/deep-law"
_NARROWEST = f"cut at the vertices of least width, not in print, {_PROOF}"
_LAW = Conjecture(f"{_CHAIN}, the law of H_o", 4_452)
_COLUMNS = Conjecture(f"{_CHAIN}, block columns layer by layer", 4_452)
_LAYERS = Conjecture(f"{_CHAIN}, what the other layers tell of each", 4_452)
_KERNELS = "directions of single layers that change no output and no gradient, not in print"
_ADDED_KERNELS = Conjecture(f"{_KERNELS}; study cnn/layer-kernels", 2_100)
_IMAGES = "products of polynomial matrices in two variables, not in print; study cnn/images"
_MIXING = "mixing the channels of a hidden layer changes no output"
_UNITWISE = f"{_PAPER}, Theorem 8, filter by filter: what its taps and its outputs can tell of each other"
_CONSTANTS = f"the outputs, for the last bias, and the rank without bias on centred inputs ({_PAGE})"
_NUM_IMAGES = 1_200
_BIASED_FUNCTIONAL = f"the bias of a filter is one tap more, not in print, {_PROOF}"
_BIASED_LOSS = Conjecture("modules cut at the constants, not in print; study cnn/biased-convolution", 2_000)
_ALL = "the number of parameters that the loss can see"
_OWN_BLOCK = f"{_PAPER}, Theorem 6, its last terms: no layer has a block of its own"
_DENSE_BIAS = "the dense network of these widths with bias, of which this one is a linear restriction"
_RESCALING = "rescaling symmetry of each filter, as Singh, Bachmann & Hofmann 2021, Fact 11"
_FILTERWISE = f"{_PAPER}, Theorem 8, filter by filter: holds for piecewise linear activations as well"
_NOTHING = (RankValue(0, "exact", "a softmax over one output is constant"),)
# The claims where the loss can tell no output from another.
NO_OUTPUTS: Claims = (_NOTHING, _NOTHING, _NOTHING)


@rank_rule.register
def convolutional_ranks(network: Convolutional, question: RankQuestion) -> RankPrediction:
    """One linear convolution: exact for data in general position. Deeper ones: a law of the outer-product rank, proved
    where vertices of least width leave at most two layers between them and else conjectured, for stride 1 a conjecture
    of the loss rank, and bounds. Padded or biased ones: bounds.

    Assumptions: those of ``one_layer``, ``deep_bounds``, ``deep_law``, ``deep_columns`` and ``patch_bounds``. Under
    cross-entropy all formulas hold with one output less. Non-linear networks: the linear value as numerical rank, or
    upper bounds.

    >>> net = Convolutional(9, channels=(1, 3), kernels=(8,), outputs=5)
    >>> prediction = convolutional_ranks(net, RankQuestion())
    >>> prediction.outer_product.value, prediction.outer_product.kind
    (44, 'exact')
    >>> deep = convolutional_ranks(Convolutional(9, channels=(1, 2, 2), kernels=(3, 3), outputs=4), RankQuestion())
    >>> [(rank.value, rank.kind_text) for rank in (deep.outer_product, deep.functional, deep.loss)]
    [(36, 'conjecture'), (28, 'conjectured bound'), (58, 'conjecture')]
    """
    return _ranks(network, question)


@rank_rule.register
def image_convolutional_ranks(network: ImageConvolutional, question: RankQuestion) -> RankPrediction:
    """Two-dimensional convolutions: upper bounds, proved for every network, and sharper conjectures without padding.

    Proved: the dense network of the Toeplitz matrices (``deep_bounds``), ``channel_mixing``, and for one convolution
    Theorem 8 filter by filter. Conjectured, where no convolution but the first is padded: the counts of the chain of
    filters (``image_chains``); padding of the first is a larger image with zeros. Else as ``convolutional_ranks``.

    Reference: Singh, Hofmann & Schoelkopf 2023 treat one dimension and leave two to flattened filters.

    >>> net = ImageConvolutional(6, channels=(1, 2), kernels=(2,), outputs=3)
    >>> found = image_convolutional_ranks(net, RankQuestion())
    >>> [(rank.value, rank.kind_text) for rank in (found.outer_product, found.functional, found.loss)]
    [(108, 'upper bound'), (16, 'upper bound'), (123, 'upper bound')]
    """
    return _ranks(network, question)


def _ranks(network: Convolutions, question: RankQuestion) -> RankPrediction:
    data = data_ranks(network.input_dim, network.output_dim, network.has_bias, question)
    seen = _visible_parameters(network, data)
    return rank_prediction(
        network,
        question,
        data,
        lambda: _linear_claims(network, seen, data),
        lambda: non_linear_claims(network.activation, seen, sum(network.channels[1:]), _unitwise_bound(network, data)),
    )


def _visible_parameters(network: Convolutions, data: RankInputs) -> tuple[int, ...]:
    """The parameters of each layer, without those of the last that no loss can see."""
    *hidden, _ = network.layer_parameters
    return (*hidden, data.effective_output_dim * (network.widths[-2] + network.biases[-1]))


def _unitwise_bound(network: Convolutions, data: RankInputs) -> int | None:
    if network.num_layers > 2:
        return None
    entering = network.channels[0] * network.taps[0] + network.biases[0]
    return 2 * network.channels[1] * min(entering, data.effective_output_dim * network.positions[1])


def _linear_claims(network: Convolutions, seen: tuple[int, ...], data: RankInputs) -> Claims:
    if data.effective_output_dim == 0:
        return NO_OUTPUTS
    outer, functional, loss = _claims_of_kind(network, seen, data)
    mixing = channel_mixing_upper_bound(
        (*network.channels, data.effective_output_dim),
        seen,
        network.biases,
        [padding > 0 for padding in network.paddings],
    )
    unitwise = _unitwise_bound(network, data)
    by_filters = [] if unitwise is None else [_rank_bound(unitwise, _UNITWISE)]
    return [*outer, _rank_bound(mixing, _MIXING)], [*functional, *by_filters], loss


def _claims_of_kind(network: Convolutions, seen: tuple[int, ...], data: RankInputs) -> Claims:
    if network.has_bias:
        dense = claims_with_bias(network.widths, network.biases, seen, data)
        pairs = zip(dense, _claims_from_weights_alone(network, data), strict=True)
        outer, functional, loss = ([*claims, *more] for claims, more in pairs)
        functional_too, loss_too = one_biased_claims(network, data)
        return outer, [*functional, *functional_too], [*loss, *loss_too]
    if network.num_layers == 2 and isinstance(network, Convolutional):
        return _one_hidden_claims(network, seen, data)
    return _deep_claims(network, seen, data)


def _claims_from_weights_alone(network: Convolutions, data: RankInputs) -> Claims:
    """A last bias moves the outputs by any constant, which adds them to the rank without bias on centred inputs. So of
    H_L if the residuals sum to zero, and H_f is then that without bias. Without a last bias these are bounds."""
    outputs = data.effective_output_dim
    residual = min(data.residual_rank, data.entering_rank, outputs)
    assert isinstance(network, Convolutional | ImageConvolutional)
    plain = replace(network, bias=False)
    centred = replace(data, residual_rank=residual, input_rank=data.entering_rank)
    without, functional, of_loss = _linear_claims(plain, _visible_parameters(plain, centred), centred)
    outer, loss = ([_with_constants(claim, outputs) for claim in claims] for claims in (without, of_loss))
    if not network.biases[-1]:
        outer, loss = claims_as_bounds(outer), claims_as_bounds(loss)
    return (outer, functional, loss) if data.mean_residual_is_zero else (outer, [], [])


def _with_constants(claim: RankValue, outputs: int) -> RankValue:
    return replace(claim, value=claim.value + outputs, reference=f"{_CONSTANTS}; {claim.reference}")


def _deep_claims(network: Convolutions, seen: tuple[int, ...], data: RankInputs) -> Claims:
    sizes = (*network.widths[:-1], data.effective_output_dim)
    rank, residual = data.entering_rank, data.residual_rank
    outer = [_rank_bound(deep_bounds.outer_product_upper_bound(sizes, seen, rank), _DEEP_OUTER)]
    columns = sum(deep_bounds.functional_column_upper_bounds(sizes, seen, residual, rank))
    functional = [_rank_bound(columns, _DEEP_FUNCTIONAL)]
    if residual == min(rank, *sizes[1:]):
        functional.append(_rank_bound(deep_bounds.hidden_units_upper_bound(sizes, residual, rank), _COROLLARY))
    loss = _deep_loss_bounds(sizes, seen, data)
    chain = None if any(network.paddings[1:]) else _chain(network, data)
    if chain is not None and deep_law.has_law(chain):
        law = deep_law.outer_product_rank(chain)
        is_exact = isinstance(chain, FilterChain) and not network.paddings[0] and _sees_full_rank(chain, rank)
        laws = _conjectures(chain)
        outer.append(laws[0].value(law) if is_exact else laws[0].bound(law))
        proved = proved_outer_product_rank(chain) if is_exact and isinstance(chain, FilterChain) else None
        if proved is not None:
            outer.append(RankValue(proved, "exact", _NARROWEST))
        if residual:  # H_f depends on the last layer through the residual alone: as with `residual` outputs
            seen_by_residual = _chain(network, replace(data, effective_output_dim=residual))
            functional.append(laws[1].bound(deep_columns.functional_upper_bound(seen_by_residual)))
        loss.append(laws[2].bound(deep_columns.loss_upper_bound(chain)))
        if isinstance(chain, FilterChain):
            loss.append(_rank_bound(loss_kernel_upper_bound(chain), f"{_KERNELS}, {_PROOF}"))
            if is_exact and max(chain.strides) == 1 and residual == min(rank, sizes[-1]):
                loss.append(_ADDED_KERNELS.value(sum(deep_columns.layer_upper_bounds(chain))))
    return outer, functional, loss


def _conjectures(chain: FilterChain | ImageChain) -> tuple[Conjecture, Conjecture, Conjecture]:
    if isinstance(chain, FilterChain):
        return _LAW, _COLUMNS, _LAYERS
    named = ("products and gauge", "block columns layer by layer", "what the other layers tell of each")
    outer, functional, loss = (Conjecture(f"{_IMAGES}, {part}", _NUM_IMAGES) for part in named)
    return outer, functional, loss


def _chain(network: Convolutions, data: RankInputs) -> FilterChain | ImageChain:
    """The chain of filters, over the padded input; only the first convolution may be padded."""
    channels, strides, outputs = network.channels, network.strides, data.effective_output_dim
    margin = 2 * network.paddings[0]
    if isinstance(network, Convolutional):
        return convolutional_chain(network.input_length + margin, channels, network.kernels, outputs, strides)
    assert isinstance(network, ImageConvolutional)
    rows, columns = (
        convolutional_chain(length + margin, channels, kernels, outputs, strides)
        for length, kernels in zip(network.input_size, zip(*network.kernels, strict=True), strict=True)
    )
    return ImageChain(rows, columns)


def _deep_loss_bounds(sizes: tuple[int, ...], seen: tuple[int, ...], data: RankInputs) -> list[RankValue]:
    rank, residual = data.entering_rank, data.residual_rank
    return [
        _rank_bound(deep_bounds.loss_upper_bound(sizes, seen, residual, rank), _DEEP_LOSS),
        _rank_bound(sum(loss_column_upper_bounds(sizes, seen, residual, rank)), _LOSS_COLUMNS),
    ]


def _sees_full_rank(chain: FilterChain, input_rank: int) -> bool:
    """Whether inputs of this rank in general position have full rank where the filters look."""
    return input_rank >= chain.channels[0] * chain.taps(0, chain.num_layers)


def _one_hidden_claims(network: Convolutional, seen: tuple[int, ...], data: RankInputs) -> Claims:
    """Exact for generic residuals of inputs in general position; padding zeros make the inputs special."""
    ((kernel,), (stride,), (padding,)) = network.kernels, network.strides, network.paddings
    channels, filters = network.channels
    length, outputs = network.input_length + 2 * padding, data.effective_output_dim
    net = OneHiddenConvolution(length, kernel, filters, outputs, channels, stride)
    rank, residual = min(data.entering_rank, net.num_visible_inputs), min(data.residual_rank, net.num_visible_inputs)
    is_full = rank == net.num_visible_inputs and not padding
    outer = [RankValue(one_layer.outer_product_rank(net), "exact", _OUTER)]
    if not is_full:
        outer = [
            _rank_bound(one_layer.outer_product_upper_bound(net, rank), _LOW_OUTER),
            _rank_bound(one_layer.outer_product_rank(net), _GENERIC),
        ]
    moments = one_layer.functional_rank(net, residual)
    functional = [RankValue(moments, "upper_bound" if padding else "exact", _FUNCTIONAL)]
    if is_full and one_layer.has_loss_rank(net, residual):
        loss = RankValue(one_layer.loss_rank(net, residual), "exact", _LOSS)
    else:
        loss = _rank_bound(one_layer.loss_rank(net), _LOSS)
    return outer, functional, [loss, *_deep_loss_bounds((*network.widths[:-1], outputs), seen, data)]


def own_block_upper_bound(layer_parameters: Sequence[int]) -> int:
    """The functional Hessian has rank at most the sum over layers of min(p_l, p - p_l).

    Assumptions: outputs that are linear in the parameters of each single layer where the activation is piecewise
    linear: its diagonal blocks vanish. Any weights, with or without bias.

    Reference: Singh, Hofmann & Schoelkopf 2023, Theorem 6, sharpened by p - p_l.

    >>> own_block_upper_bound((8, 6, 72))
    28
    """
    total = sum(layer_parameters)
    return sum(min(own, total - own) for own in layer_parameters)


def claims_with_bias(
    widths: tuple[int, ...], biases: tuple[bool, ...], layer_parameters: Sequence[int], data: RankInputs
) -> Claims:
    """Linear networks with a bias in some or all layers: the dense formulas as bounds, cut at the parameters.

    The Hessian of tied layers is R^T H R, H that of the dense network with the same weights and biases and R linear.
    ``widths`` are of the dense network, ``layer_parameters`` those that the loss can see.

    Reference: none in print; no closed form is known for convolutions with bias.
    """
    dense = linear_claims(checked_widths(widths), biases, data)
    outer, functional, loss = (
        [replace(claim, reference=f"{_DENSE_BIAS}: {claim.reference}") for claim in claims_as_bounds(claims)]
        for claims in dense
    )
    every = _rank_bound(sum(layer_parameters), _ALL)
    columns = _rank_bound(own_block_upper_bound(layer_parameters), _OWN_BLOCK)
    return [*outer, every], [*functional, columns], [*loss, every]


def non_linear_claims(
    activation: object, layer_parameters: Sequence[int], num_filters: int, unitwise: int | None
) -> Claims:
    """Any activation: at most p; positively homogeneous ones lose a direction per filter in the outer product.

    ``layer_parameters`` are those that the loss can see, ``num_filters`` the hidden filters (scaling one by c and what
    leaves it by 1/c changes no output), ``unitwise`` the sum over the filters of one hidden layer of
    2 min(parameters in, weights out), None for more layers. Any weights (``activations.rescaling_upper_bound``).

    Reference: Singh, Bachmann & Hofmann 2021, Fact 11, and Singh, Hofmann & Schoelkopf 2023, Theorem 8, both for
    convolutions and piecewise linear activations.
    """
    total = sum(layer_parameters)
    outer, functional, loss = ([_rank_bound(total, _ALL)] for _ in range(3))
    if is_homogeneous(activation):
        outer.append(_rank_bound(max(total - num_filters, 0), _RESCALING))
        functional.append(_rank_bound(own_block_upper_bound(layer_parameters), _OWN_BLOCK))
        if unitwise is not None:
            functional.append(_rank_bound(unitwise, _FILTERWISE))
    return outer, functional, loss


def one_biased_claims(network: Convolutions, data: RankInputs) -> tuple[list[RankValue], list[RankValue]]:
    """What is claimed of H_f and H_L where the formulas hold, and nothing elsewhere."""
    if not isinstance(network, Convolutional) or network.num_layers != 2 or network.paddings[0]:
        return [], []
    ((kernel,), (stride,), (channels, filters)) = network.kernels, network.strides, network.channels
    outputs = data.effective_output_dim
    net = OneHiddenConvolution(network.input_length, kernel, filters, outputs, channels, stride)
    is_full = data.entering_rank >= net.num_visible_inputs and stride <= kernel
    is_generic = data.residual_rank == outputs and not data.mean_residual_is_zero
    if not (network.biases[0] and is_full and is_generic and one_layer.has_biased_ranks(net)):
        return [], []
    loss = _BIASED_LOSS.value(one_layer.biased_loss_rank(net, network.biases[1]))
    return [RankValue(one_layer.biased_functional_rank(net), "exact", _BIASED_FUNCTIONAL)], [loss]


def _rank_bound(value: int, reference: str) -> RankValue:
    return RankValue(value, "upper_bound", reference)
