"""What a deep linear convolutional network allows as a chain of filters, rather than as its Toeplitz matrices."""

from __future__ import annotations

from hessmap.networks import Convolutional
from hessmap.theory import HessianRanks, deep_convolutional_columns, deep_convolutional_law, effective_output_dim
from hessmap.theory.filter_chains import FilterChain


def chain_ranks(network: Convolutional, loss: str) -> HessianRanks:
    """The outer-product rank by the law of deep convolutions, and the bounds of the other two by their columns.

    For inputs of full rank, without padding; none is above the number of parameters.

    >>> chain_ranks(Convolutional(16, (1, 8, 8), (7, 7), outputs=4), "squared")
    HessianRanks(outer_product=64, functional=319, loss=343)
    """
    channels = (*network.channels, effective_output_dim(network.outputs, loss))
    chain = FilterChain(channels, (*network.kernels, network.lengths[-1]), (*network.strides, 1))
    ranks = (
        deep_convolutional_law.outer_product_rank(chain),
        deep_convolutional_columns.functional_upper_bound(chain),
        deep_convolutional_columns.loss_upper_bound(chain),
    )
    return HessianRanks(*(min(rank, chain.num_parameters) for rank in ranks))
