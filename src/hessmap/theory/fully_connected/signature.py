"""Signs of the eigenvalues of H_f of deep linear networks, and the index of H_L at critical points.

Omega = sum residual x^T (residual = output - target) and T = W_L .. W_1 Omega^T is the *loop* of the network: once
through all layers and back through the residuals. H_f depends on the data through Omega alone, and its signature
n_+ - n_- on the non-zero eigenvalues of T alone (research/docs/signature.md, with the proof).

Assumptions: a linear network without bias; the non-zero eigenvalues of T have no Jordan blocks (generic weights and
residuals: they are distinct). Nothing is assumed about ranks of weights or products.

Where the weights are balanced and the inputs whitened, all eigenvalues are known (``balanced_spectrum``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import floor, pi
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import UnsupportedNetwork, checked_number, list_of, require, sentence, short_text
from hessmap.networks import FullyConnected
from hessmap.theory.data_ranks import checked_count, checked_widths

__all__ = [
    "Inertia",
    "LoopEigenvalues",
    "balanced_spectrum",
    "critical_point_index_upper_bound",
    "functional_inertia",
    "functional_signature",
    "loop_eigenvalues",
    "one_hidden_critical_point_index",
    "predict_spectrum",
]

_ROUNDING = 1e-9  # of angles, in units of pi / (L - 1)


class LoopEigenvalues(NamedTuple):
    """How many non-zero eigenvalues of the loop are positive, negative, or pairs in each sector.

    Attributes:
        num_positive: Number of positive eigenvalues.
        num_negative: Number of negative eigenvalues.
        pairs: Number of complex pairs by sector: entry f counts those whose angle t in (0, pi) has
            f < (L - 1) t / pi < f + 1. It has at most L - 1 entries.
    """

    num_positive: int
    num_negative: int
    pairs: tuple[int, ...] = ()


class Inertia(NamedTuple):
    """Numbers of positive and negative eigenvalues.

    Attributes:
        num_positive: Number of positive eigenvalues.
        num_negative: Number of negative eigenvalues.
    """

    num_positive: int
    num_negative: int


def loop_eigenvalues(eigenvalues: Sequence[complex], num_layers: int) -> LoopEigenvalues:
    """Count the non-zero eigenvalues of the loop by sign and, for complex pairs, by sector.

    Args:
        eigenvalues: The non-zero eigenvalues of T, both of a complex pair. A real one has imaginary part 0.
        num_layers: Number of layers L, at least 2.

    Returns:
        The counts.

    Raises:
        InvalidInput: If an eigenvalue is 0, pairs are incomplete, or an angle is a multiple of pi / (L - 1) to
            rounding: there H_f has a larger kernel.

    Example:
        >>> loop_eigenvalues([2.0, -1.0, 1j, -1j], num_layers=4)
        LoopEigenvalues(num_positive=1, num_negative=1, pairs=(0, 1, 0))
    """
    from cmath import phase

    layers = _checked_layers(num_layers)
    require(all(value != 0 for value in eigenvalues), "the eigenvalues of the loop must not be 0", "got a 0")
    values = [complex(value) for value in eigenvalues]
    upper, lower = (sum(sign * value.imag > 0 for value in values) for sign in (1, -1))
    require(upper == lower, "complex eigenvalues must come in pairs", f"got {upper} above and {lower} below the axis")
    pairs = [0] * (layers - 1)
    for value in values:
        if value.imag > 0:
            turns = (layers - 1) * phase(value) / pi
            is_clear = abs(turns - round(turns)) > _ROUNDING or not 0 < round(turns) < layers - 1
            must = f"the angle of an eigenvalue must not be a multiple of pi / {layers - 1}"
            require(is_clear, must, f"got {value}", "H_f has a larger kernel there")
            pairs[min(floor(turns), layers - 2)] += 1
    reals = [value.real for value in values if value.imag == 0]
    return LoopEigenvalues(sum(value > 0 for value in reals), sum(value < 0 for value in reals), tuple(pairs))


def functional_signature(loop: LoopEigenvalues, num_layers: int) -> int:
    """The functional Hessian of a deep linear network has n_+ - n_- determined by its loop.

    n_+ - n_- = -(L - 2) (positive - negative) - 2 sum over pairs of (L - 2 - 2 f), f the sector of the pair.

    Args:
        loop: Counts of the non-zero eigenvalues of T = W_L .. W_1 Omega^T.
        num_layers: Number of layers L, at least 2.

    Returns:
        The signature n_+ - n_-.

    Raises:
        InvalidInput: If a count is negative, or there are pairs in more than L - 1 sectors.

    Notes:
        Two layers have signature 0: as many negative as positive eigenvalues. With q non-zero eigenvalues of T the
        signature is at most (L - 2) q in magnitude, so that n_- is half the rank of H_f to within (L - 2) q / 2.

        Reference: research/docs/signature.md. Singh, Hofmann & Schoelkopf 2023, Section 5.3, observe "about half".

    Example:
        1-1-1-1 with positive weights and residual: w3 w2 w1 = 1 gives the matrix J - I of size 3, with eigenvalues
        2, -1, -1.

        >>> functional_signature(LoopEigenvalues(1, 0), num_layers=3)
        -1
    """
    layers = _checked_layers(num_layers)
    for name, value in (("num_positive", loop.num_positive), ("num_negative", loop.num_negative)):
        checked_count(name, value)
    must = f"{layers} layers have at most {layers - 1} sectors"
    require(len(loop.pairs) < layers, must, f"got {len(loop.pairs)}")
    turned = sum(checked_count("pairs", number) * (layers - 2 - 2 * f) for f, number in enumerate(loop.pairs))
    return -(layers - 2) * (loop.num_positive - loop.num_negative) - 2 * turned


def functional_inertia(rank: int, loop: LoopEigenvalues, num_layers: int) -> Inertia:
    """The functional Hessian has (rank + signature) / 2 positive and (rank - signature) / 2 negative eigenvalues.

    Args:
        rank: Rank of H_f, by ``linear.functional_rank`` or ``products.functional_rank``.
        loop: Counts of the non-zero eigenvalues of T = W_L .. W_1 Omega^T.
        num_layers: Number of layers L, at least 2.

    Returns:
        The numbers of positive and negative eigenvalues.

    Raises:
        InvalidInput: If rank and signature contradict each other.

    Example:
        >>> functional_inertia(3, LoopEigenvalues(1, 0), num_layers=3)
        Inertia(num_positive=1, num_negative=2)
    """
    signature = functional_signature(loop, num_layers)
    checked_count("rank", rank)
    is_possible = abs(signature) <= rank and (rank - signature) % 2 == 0
    require(
        is_possible,
        "rank and signature must have the same parity, and the rank be as large",
        f"got {rank}, {signature}",
    )
    return Inertia((rank + signature) // 2, (rank - signature) // 2)


def critical_point_index_upper_bound(functional_rank: int) -> int:
    """At a critical point H_f has as many positive as negative eigenvalues, and H_L at most rk(H_f) / 2 negative ones.

    Args:
        functional_rank: Rank of H_f at the critical point; it is even.

    Returns:
        The upper bound of the index of H_L.

    Raises:
        InvalidInput: If the rank is negative or odd.

    Notes:
        Where all gradients vanish the loop is nilpotent, so no eigenvalue of it is left in ``functional_signature``;
        H_L adds the positive semi-definite H_o. Any weights, any residual, linear networks without bias.

        Reference: research/docs/signature.md.

    Example:
        2-1-1 at zero weights with a residual: H_f is [[0, w], [w, 0]] for the one weight that the residual sees.

        >>> critical_point_index_upper_bound(2)
        1
    """
    rank = checked_count("functional_rank", functional_rank)
    require(rank % 2 == 0, "the rank of H_f at a critical point must be even", f"got {rank}")
    return rank // 2


def one_hidden_critical_point_index(singular_values: Sequence[float], kept: Sequence[int], hidden_width: int) -> int:
    """One hidden linear layer, squared loss: the number of negative eigenvalues of H_L at a critical point.

    index = sum over i not kept, sigma_i > 0, of M - k + #(j kept with sigma_j < sigma_i), k the number kept.

    Args:
        singular_values: Singular values sigma of Sigma_yx Sigma_xx^(-1/2), the best linear map on whitened inputs.
            Distinct.
        kept: Indices of the singular values that the network has learnt: W_2 W_1 is the part of the best linear map
            that belongs to them.
        hidden_width: Number of hidden units M, at least the number kept.

    Returns:
        The index of H_L.

    Raises:
        InvalidInput: If an index is out of range or kept twice, more are kept than there are hidden units, or two
            positive singular values are equal.

    Notes:
        Every critical point is of this form (Baldi & Hornik 1989). The index is 0 for the global minima alone: the
        largest min(M, rank) singular values are kept.

        Reference: research/docs/signature.md.

    Example:
        1-1-1 at zero with sigma = 1: the Hessian is [[0, -1], [-1, 0]].

        >>> one_hidden_critical_point_index([1.0], kept=[], hidden_width=1)
        1
    """
    width = checked_count("hidden_width", hidden_width)
    values = [float(value) for value in singular_values]
    indices = set(kept)
    is_known = len(indices) == len(kept) and all(0 <= index < len(values) for index in indices)
    require(is_known, f"kept must be different indices below {len(values)}", f"got {list(kept)}")
    require(len(indices) <= width, f"{width} hidden units can keep {width} singular values", f"got {len(indices)}")
    positive = [value for value in values if value > 0]
    require(len(set(positive)) == len(positive), "positive singular values must be distinct", f"got {values}")
    left = [value for index, value in enumerate(values) if index not in indices and value > 0]
    smaller = sum(values[index] < value for value in left for index in indices)
    return len(left) * (width - len(indices)) + smaller


def _checked_layers(num_layers: int) -> int:
    layers = checked_count("num_layers", num_layers)
    require(layers >= 2, "the signature is that of two layers or more", f"got {layers}")
    return layers


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
        See ``theory.fully_connected.signature.balanced_spectrum``: formula, assumptions and proof.

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
