"""Eigenvalues, not only ranks: deep linear networks with balanced weights on whitened inputs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import UnsupportedNetwork, checked_number, list_of, require, sentence, short_text
from hessmap.networks import FullyConnected
from hessmap.theory.data_ranks import checked_widths

__all__ = ["balanced_spectrum", "predict_spectrum"]


def predict_spectrum(network: FullyConnected, singular_values: Iterable[float]) -> NDArray[np.float64]:
    """All eigenvalues of the loss Hessian of a linear network that has fitted whitened data with balanced weights.

    Args:
        network: A linear fully connected network without bias.
        singular_values: Singular values of the linear map that it represents.

    Returns:
        The eigenvalues under the squared loss, one for each parameter, in descending order.

    Raises:
        UnsupportedNetwork: If the network has activations or a bias, or is not fully connected.
        InvalidInput: If the singular values do not belong to a network of these widths.

    Notes:
        See ``theory.fully_connected.spectra.balanced_spectrum``: formula, assumptions and proof.

    Example:
        Three layers that have learnt one direction: its eigenvalue is three times the bulk.

        >>> from hessmap.networks import FullyConnected
        >>> predict_spectrum(FullyConnected((2, 2, 2, 2)), [1.0])[:4]
        array([3., 1., 1., 0.])
    """
    is_covered = isinstance(network, FullyConnected) and network.is_linear and not network.has_bias
    if not is_covered:
        must = "predict_spectrum needs a linear FullyConnected network without bias"
        raise UnsupportedNetwork(sentence(must, f"got {short_text(network)}"))
    return balanced_spectrum(network.widths, singular_values)


def balanced_spectrum(widths: Iterable[int], singular_values: Iterable[float]) -> NDArray[np.float64]:
    """All eigenvalues of the outer-product Hessian of a balanced linear network on whitened inputs.

    One for each pair of an output direction i and an input direction j of the end-to-end map:
    sum_{l=1..L} a_i^(L-l) a_j^(l-1) with a = s^(2/L), s the singular values, 0 beyond their number and 0^0 = 1. All
    others are 0.

    Args:
        widths: Widths d, M_1, .., K; no hidden one below the number of positive singular values.
        singular_values: Singular values of the end-to-end map W_L .. W_1, at most min(d, K).

    Returns:
        The p eigenvalues of E[J^T J], J the derivative of the outputs, in descending order.

    Raises:
        InvalidInput: If a singular value is negative, there are too many of them, or a hidden layer is too narrow.

    Notes:
        Assumptions: E[x x^T] = 1 and balanced weights, W_{l+1}^T W_{l+1} = W_l W_l^T, to which gradient flow from small
        weights tends. Where the residual vanishes it is the spectrum of the loss Hessian, whatever the scale that the
        loss gives it.

        Proof: in the bases of the singular vectors W_l = diag(s^(1/L)), and J J^T = sum_l (W_L .. W_{l+1}) (W_L ..
        W_{l+1})^T (x) (W_{l-1} .. W_1)^T (W_{l-1} .. W_1) is diagonal with these entries; J^T J has the same non-zero
        ones.

        A direction that the network has learnt has the eigenvalue L s^(2 - 2/L) with itself, and s^(2 - 2/L) with every
        direction that it has not learnt: the dominant eigenvalues are L times the bulk.

    Example:
        2-1-1 with s = 1: two layers, the learnt direction and the other input.

        >>> balanced_spectrum((2, 1, 1), [1.0])
        array([2., 1., 0.])
    """
    sizes = checked_widths(widths)
    listed = list_of("singular_values", singular_values)
    given = np.array([checked_number("a singular value", value) for value in listed], dtype=np.float64)
    is_valid = bool((np.isfinite(given) & (given >= 0)).all())
    require(is_valid, "singular values must be finite and must not be negative", f"got {short_text(given)}")
    most = min(sizes[0], sizes[-1])
    require(len(given) <= most, f"the map has at most {most} singular values", f"got {len(given)}")
    rank = int((given > 0).sum())
    require(min(sizes) >= rank, f"a map of rank {rank} needs layers of that width", f"got widths {sizes}")
    num_layers = len(sizes) - 1
    outputs, inputs = (np.zeros(size) for size in (sizes[-1], sizes[0]))
    for side in (outputs, inputs):
        side[: len(given)] = given ** (2 / num_layers)
    powers = (outputs[:, None] ** (num_layers - k) * inputs[None, :] ** (k - 1) for k in range(1, num_layers + 1))
    pairs = np.sort(np.sum(list(powers), axis=0).reshape(-1))[::-1]
    size = sum(before * after for before, after in pairwise(sizes))
    values = np.zeros(size)
    kept = min(size, len(pairs))
    values[:kept] = pairs[:kept]
    return values
