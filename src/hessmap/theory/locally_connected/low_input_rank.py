"""Own filters on disjoint patches, linear, for inputs of any rank in general position.

Patches t of k inputs, m filters each, K outputs, inputs of rank r. In R^r, the space of what the inputs can tell,
patch i sees a subspace C_i of dimension c = min(k, r), its filters a subspace M_i of it of dimension l = min(m, c).
"""

from __future__ import annotations

from typing import NamedTuple

from hessmap.theory.attention.subspace_products import equal_products_dimension


class PatchRank(NamedTuple):
    """A rank, and whether it is exact or an upper bound."""

    value: int
    is_exact: bool


def outer_product_rank(patches: int, patch_size: int, filters: int, outputs: int, input_rank: int) -> PatchRank:
    """Rank K min(r, t l) + T(r - t l, K; t, (c - l, min(m, K))), T the dimension of a sum of products of subspaces.

    Derivation: J has the image sum_i R^K (x) M_i + Im V_i (x) C_i. The first parts fill R^K (x) R^(t l) if t l < r,
    and all else; what C_i add modulo the M_i are subspaces of general position of R^(r - t l), of dimension c - l.

    Kind of truth: a theorem wherever T is one (up to three patches; C_i or Im V_i all of their space), else a bound.

    By hand, two patches of two inputs, one filter, one output, inputs of rank 3: all three.

    >>> outer_product_rank(2, 2, 1, 1, input_rank=3)
    PatchRank(value=3, is_exact=True)
    """
    seen = min(patch_size, input_rank)
    kept = min(filters, seen)
    left, reached = input_rank - min(input_rank, patches * kept), min(filters, outputs)
    more = equal_products_dimension(left, outputs, patches, (seen - kept, reached))
    is_exact = patches <= 3 or left <= max(0, seen - kept) or reached == outputs
    return PatchRank(outputs * (input_rank - left) + more, is_exact)


def loss_rank(patches: int, patch_size: int, filters: int, outputs: int, input_rank: int) -> PatchRank:
    """Generic residual: 2 t m K + T(r - K, K; t, (c - K, min(m, K))) for K <= c.

    For K > c, with e = min(K, r): 2 t m c + (K - e) min(r, t l) + T(r, e; t, (l, e - c)).

    Derivation: rk(H_L) = rk(H_f) + dim J(ker H_f), rk(H_f) = 2 t m min(c, K). The residual is P X, P a K x r matrix.
    For K <= c the kernel of H_f holds the filters of rows in C_i and the kernel of P, subspaces of general position
    of R^(r - K), and no V_i. For K > c it holds the columns of V_i orthogonal to P C_i, and of W_i nothing that
    changes an output; the residual sees e outputs, and the K - e others meet all M_i.

    Kind of truth: as ``outer_product_rank``; for K > c and four patches or more a bound, T at most e r - 1 because P
    itself is orthogonal to J(ker H_f).

    By hand, one patch is a fully connected network of r inputs: 6-5-4 of rank 3 has 33.

    >>> loss_rank(1, 6, 5, 4, input_rank=3)
    PatchRank(value=33, is_exact=True)
    """
    seen = min(patch_size, input_rank)
    reached, functional = min(filters, outputs), 2 * patches * filters * min(seen, outputs)
    if outputs <= seen:
        left = input_rank - outputs
        more = equal_products_dimension(left, outputs, patches, (seen - outputs, reached))
        return PatchRank(functional + more, patches <= 3 or left <= seen - outputs or reached == outputs)
    kept, met = min(filters, seen), min(outputs, input_rank)
    beyond = (outputs - met) * min(input_rank, patches * kept)
    more = equal_products_dimension(input_rank, met, patches, (kept, met - seen))
    return PatchRank(functional + beyond + min(more, met * input_rank - 1), patches <= 3)
