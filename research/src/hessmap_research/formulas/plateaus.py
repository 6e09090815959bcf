"""Repeated eigenvalues: how many, and how often each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hessmap.errors import require
from hessmap.theory.conditions import checked_count


class Plateaus(NamedTuple):
    """How many plateaus, and the number of equal non-zero eigenvalues in each; (0, 0) if none is implied."""

    num_plateaus: int
    multiplicity: int


class Eigenvalue(NamedTuple):
    value: float
    multiplicity: int


def outer_product_plateaus(penultimate_width: int, output_dim: int, penultimate_moment_rank: int) -> Plateaus:
    """With squared loss and K > M_{L-1}, each non-zero eigenvalue of E[h h^T] repeats K - M_{L-1} times.

    They are eigenvalues of the outer-product Hessian, and their number is the rank of E[h h^T]: h is the input of the
    last layer (with bias, h with a one appended). ``penultimate_width`` is M_{L-1} (never counting the one),
    ``penultimate_moment_rank`` that rank. Outputs orthogonal to all M_{L-1} columns of the last weight feel the last
    layer only, and there the Hessian is the identity on outputs times E[h h^T].

    Assumptions: squared loss, at least one hidden layer, any activation; the multiplicity is exact for generic
    linear and tanh networks and a lower bound for ReLU. It does not hold for cross-entropy or log-cosh, whose second
    derivative by the outputs differs from sample to sample.

    Reference: Singh, Bachmann & Hofmann 2021, S8.1 ("repeated eigenvalues"). Their Figure S2 counts q plateaus; in
    general the number is the rank of the moment.

    >>> outer_product_plateaus(penultimate_width=3, output_dim=20, penultimate_moment_rank=3)
    Plateaus(num_plateaus=3, multiplicity=17)
    """
    width = checked_count("penultimate_width", penultimate_width, at_least=1)
    outputs = checked_count("output_dim", output_dim, at_least=1)
    why = "the penultimate width, and one for a bias"
    rank = checked_count("penultimate_moment_rank", penultimate_moment_rank, at_most=width + 1, why=why)
    return Plateaus(rank, outputs - width) if outputs > width and rank else Plateaus(0, 0)


def functional_spectrum(
    singular_values: Sequence[float], input_dim: int, hidden_width: int, output_dim: int
) -> tuple[Eigenvalue, ...]:
    """One hidden linear layer: the functional Hessian has eigenvalues +sigma and -sigma, M_1 times each, and zeros.

    ``singular_values`` are those of the residual moment Omega = E[residual x^T], K x d (zeros may be left out); for s
    non-zero ones there are (d + K - 2 s) M_1 zeros. Equal eigenvalues are merged; largest first.

    Assumptions: d-M_1-K, identity activation, no bias; exact for every weight, since H_f is Omega (x) I off the
    diagonal and does not depend on the weights otherwise.

    Reference: Singh, Bachmann & Hofmann 2021, S8.2.

    By hand for 2-1-1 and Omega = (3, 4): w2 (v1 x1 + v2 x2) has the matrix [[0,0,3],[0,0,4],[3,4,0]].

    >>> [tuple(pair) for pair in functional_spectrum([5.0], input_dim=2, hidden_width=1, output_dim=1)]
    [(5.0, 1), (0.0, 1), (-5.0, 1)]
    """
    values = [float(value) for value in singular_values]
    largest = min(input_dim, output_dim)
    require(len(values) <= largest, f"there are at most {largest} singular values", f"got {len(values)}")
    require(min(values, default=0.0) >= 0.0, "singular values must be non-negative", f"got {min(values, default=0)}")
    counts: Counter[float] = Counter()
    for sigma in filter(None, values):
        counts[sigma] += hidden_width
        counts[-sigma] += hidden_width
    counts[0.0] = (input_dim + output_dim) * hidden_width - counts.total()
    return tuple(Eigenvalue(value, counts[value]) for value in sorted(counts, reverse=True) if counts[value])
