"""The rank rule of convolutional networks: which formula applies, and what kind of truth it holds."""

from __future__ import annotations

from dataclasses import replace

from hessmap.networks import Convolutional, ImageConvolutional
from hessmap.networks.convolutional import Convolutions
from hessmap.records import RankPrediction, RankValue
from hessmap.theory.claims import Claims, Conjecture, claims_as_bounds, rank_prediction
from hessmap.theory.convolutional import deep_bounds, deep_columns, deep_law, one_layer
from hessmap.theory.convolutional.biased_convolution import one_biased_claims
from hessmap.theory.convolutional.chains import FilterChain, ImageChain, channel_mixing_upper_bound, convolutional_chain
from hessmap.theory.convolutional.deep_bounds import loss_column_upper_bounds
from hessmap.theory.convolutional.layer_kernels import loss_kernel_upper_bound
from hessmap.theory.convolutional.narrowest_vertices import proved_outer_product_rank
from hessmap.theory.convolutional.one_layer import NO_OUTPUTS, OneHiddenConvolution, claims_with_bias, non_linear_claims
from hessmap.theory.losses_and_data.data_facts import DataFacts, data_facts
from hessmap.theory.prediction import RankQuestion, rank_rule

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
    >>> [(rank.value, rank.truth) for rank in (deep.outer_product, deep.functional, deep.loss)]
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
    >>> [(rank.value, rank.truth) for rank in (found.outer_product, found.functional, found.loss)]
    [(108, 'upper bound'), (16, 'upper bound'), (123, 'upper bound')]
    """
    return _ranks(network, question)


def _ranks(network: Convolutions, question: RankQuestion) -> RankPrediction:
    facts = data_facts(network.input_dim, network.output_dim, network.has_bias, question)
    seen = _visible_parameters(network, facts)
    return rank_prediction(
        network,
        question,
        facts,
        lambda: _linear_claims(network, seen, facts),
        lambda: non_linear_claims(network.activation, seen, sum(network.channels[1:]), _unitwise_bound(network, facts)),
    )


def _visible_parameters(network: Convolutions, facts: DataFacts) -> tuple[int, ...]:
    """The parameters of each layer, without those of the last that no loss can see."""
    *hidden, _ = network.layer_parameters
    return (*hidden, facts.effective_output_dim * (network.widths[-2] + network.biases[-1]))


def _unitwise_bound(network: Convolutions, facts: DataFacts) -> int | None:
    if network.num_layers > 2:
        return None
    entering = network.channels[0] * network.taps[0] + network.biases[0]
    return 2 * network.channels[1] * min(entering, facts.effective_output_dim * network.positions[1])


def _linear_claims(network: Convolutions, seen: tuple[int, ...], facts: DataFacts) -> Claims:
    if facts.effective_output_dim == 0:
        return NO_OUTPUTS
    outer, functional, loss = _claims_of_kind(network, seen, facts)
    mixing = channel_mixing_upper_bound(
        (*network.channels, facts.effective_output_dim),
        seen,
        network.biases,
        [padding > 0 for padding in network.paddings],
    )
    unitwise = _unitwise_bound(network, facts)
    by_filters = [] if unitwise is None else [_rank_bound(unitwise, _UNITWISE)]
    return [*outer, _rank_bound(mixing, _MIXING)], [*functional, *by_filters], loss


def _claims_of_kind(network: Convolutions, seen: tuple[int, ...], facts: DataFacts) -> Claims:
    if network.has_bias:
        dense = claims_with_bias(network.widths, network.biases, seen, facts)
        pairs = zip(dense, _claims_from_weights_alone(network, facts), strict=True)
        outer, functional, loss = ([*claims, *more] for claims, more in pairs)
        functional_too, loss_too = one_biased_claims(network, facts)
        return outer, [*functional, *functional_too], [*loss, *loss_too]
    if network.num_layers == 2 and isinstance(network, Convolutional):
        return _one_hidden_claims(network, seen, facts)
    return _deep_claims(network, seen, facts)


def _claims_from_weights_alone(network: Convolutions, facts: DataFacts) -> Claims:
    """A last bias moves the outputs by any constant, which adds them to the rank without bias on centred inputs. So of
    H_L if the residuals sum to zero, and H_f is then that without bias. Without a last bias these are bounds."""
    outputs = facts.effective_output_dim
    residual = min(facts.residual_rank, facts.entering_rank, outputs)
    assert isinstance(network, Convolutional | ImageConvolutional)
    plain = replace(network, bias=False)
    centred = replace(facts, residual_rank=residual, input_rank=facts.entering_rank)
    without, functional, of_loss = _linear_claims(plain, _visible_parameters(plain, centred), centred)
    outer, loss = ([_with_constants(claim, outputs) for claim in claims] for claims in (without, of_loss))
    if not network.biases[-1]:
        outer, loss = claims_as_bounds(outer), claims_as_bounds(loss)
    return (outer, functional, loss) if facts.mean_residual_is_zero else (outer, [], [])


def _with_constants(claim: RankValue, outputs: int) -> RankValue:
    return replace(claim, value=claim.value + outputs, reference=f"{_CONSTANTS}; {claim.reference}")


def _deep_claims(network: Convolutions, seen: tuple[int, ...], facts: DataFacts) -> Claims:
    sizes = (*network.widths[:-1], facts.effective_output_dim)
    rank, residual = facts.entering_rank, facts.residual_rank
    outer = [_rank_bound(deep_bounds.outer_product_upper_bound(sizes, seen, rank), _DEEP_OUTER)]
    columns = sum(deep_bounds.functional_column_upper_bounds(sizes, seen, residual, rank))
    functional = [_rank_bound(columns, _DEEP_FUNCTIONAL)]
    if residual == min(rank, *sizes[1:]):
        functional.append(_rank_bound(deep_bounds.hidden_units_upper_bound(sizes, residual, rank), _COROLLARY))
    loss = _deep_loss_bounds(sizes, seen, facts)
    chain = None if any(network.paddings[1:]) else _chain(network, facts)
    if chain is not None and deep_law.has_law(chain):
        law = deep_law.outer_product_rank(chain)
        is_exact = isinstance(chain, FilterChain) and not network.paddings[0] and _sees_full_rank(chain, rank)
        laws = _conjectures(chain)
        outer.append(laws[0].value(law) if is_exact else laws[0].bound(law))
        proved = proved_outer_product_rank(chain) if is_exact and isinstance(chain, FilterChain) else None
        if proved is not None:
            outer.append(RankValue(proved, "exact", _NARROWEST))
        if residual:  # H_f sees the last layer through the residual alone: it is that of so many outputs
            seen_by_residual = _chain(network, replace(facts, effective_output_dim=residual))
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


def _chain(network: Convolutions, facts: DataFacts) -> FilterChain | ImageChain:
    """The chain of filters, over the padded input; only the first convolution may be padded."""
    channels, strides, outputs = network.channels, network.strides, facts.effective_output_dim
    margin = 2 * network.paddings[0]
    if isinstance(network, Convolutional):
        return convolutional_chain(network.input_length + margin, channels, network.kernels, outputs, strides)
    assert isinstance(network, ImageConvolutional)
    rows, columns = (
        convolutional_chain(length + margin, channels, kernels, outputs, strides)
        for length, kernels in zip(network.input_size, zip(*network.kernels, strict=True), strict=True)
    )
    return ImageChain(rows, columns)


def _deep_loss_bounds(sizes: tuple[int, ...], seen: tuple[int, ...], facts: DataFacts) -> list[RankValue]:
    rank, residual = facts.entering_rank, facts.residual_rank
    return [
        _rank_bound(deep_bounds.loss_upper_bound(sizes, seen, residual, rank), _DEEP_LOSS),
        _rank_bound(sum(loss_column_upper_bounds(sizes, seen, residual, rank)), _LOSS_COLUMNS),
    ]


def _sees_full_rank(chain: FilterChain, input_rank: int) -> bool:
    """Whether inputs of this rank in general position have full rank where the filters look."""
    return input_rank >= chain.channels[0] * chain.taps(0, chain.num_layers)


def _one_hidden_claims(network: Convolutional, seen: tuple[int, ...], facts: DataFacts) -> Claims:
    """Exact for generic residuals of inputs in general position; padding zeros make the inputs special."""
    ((kernel,), (stride,), (padding,)) = network.kernels, network.strides, network.paddings
    channels, filters = network.channels
    length, outputs = network.input_length + 2 * padding, facts.effective_output_dim
    net = OneHiddenConvolution(length, kernel, filters, outputs, channels, stride)
    rank, residual = min(facts.entering_rank, net.num_visible_inputs), min(facts.residual_rank, net.num_visible_inputs)
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
    return outer, functional, [loss, *_deep_loss_bounds((*network.widths[:-1], outputs), seen, facts)]


def _rank_bound(value: int, reference: str) -> RankValue:
    return RankValue(value, "upper_bound", reference)
