"""The upper bounds that the paper prints for its networks, for inputs of full rank and a generic residual."""

from __future__ import annotations

from functools import singledispatch

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.networks import Convolutional, FullyConnected, LocallyConnected
from hessmap.theory import HessianRanks, effective_output_dim, linear_hessian_ranks
from hessmap.theory.convolutional import deep_bounds as deep_convolutional
from hessmap.theory.convolutional import printed_formulas as printed
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution
from hessmap.theory.locally_connected import one_layer as local


@singledispatch
def printed_bounds(network: object, loss: str) -> HessianRanks:
    """The bounds for a network without padding, K - 1 standing for the K outputs under cross-entropy."""
    must = "the paper's bounds are for fully connected, locally connected and convolutional networks"
    raise UnsupportedNetwork(sentence(must, f"got a {type(network).__name__}"))


@printed_bounds.register
def _(network: Convolutional, loss: str) -> HessianRanks:
    """Theorems 7 and 8 for one hidden layer, 5 and 6 for more; their sum for the loss Hessian (Section 6)."""
    outputs = effective_output_dim(network.outputs, loss)
    if len(network.kernels) == 1:
        net = OneHiddenConvolution(
            network.input_length,
            kernel=network.kernels[0],
            filters=network.channels[1],
            outputs=outputs,
            channels=network.channels[0],
            stride=network.strides[0],
        )
        outer, functional = printed.theorem_7(net), printed.theorem_8(net)
    else:
        sizes, parameters = deep_convolutional.convolutional_sizes(
            network.input_length, network.channels, network.kernels, outputs, network.strides
        )
        outer = deep_convolutional.outer_product_upper_bound(sizes, parameters)
        functional = printed.theorem_6(sizes, parameters)
    return HessianRanks(outer, functional, outer + functional)


@printed_bounds.register
def _(network: LocallyConnected, loss: str) -> HessianRanks:
    """Theorem 9 or, with shared weights, 10, and their sum."""
    ranks = local.shared_weights_ranks if network.shared_weights else local.locally_connected_ranks
    outputs = effective_output_dim(network.outputs, loss)
    outer, functional, _ = ranks(network.patches, network.patch_size, network.filters, outputs)
    return HessianRanks(outer, functional, outer + functional)


@printed_bounds.register
def _(network: FullyConnected, loss: str) -> HessianRanks:
    """The ranks that Appendix C.4.1 takes from Singh, Bachmann & Hofmann 2021."""
    dim, outputs = network.input_dim, effective_output_dim(network.output_dim, loss)
    return linear_hessian_ranks((*network.widths[:-1], outputs), input_rank=dim, residual_rank=min(dim, outputs))
