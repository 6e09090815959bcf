"""The Hessian of one head of softmax attention in closed form, block by block.

F = A X V, A = softmax(X Q K^T X^T / temperature) row by row, squared loss, the mean over samples and tokens of
1/2 ||F_i - Y_i||^2. With M_i = diag(a_i) - a_i a_i^T the derivative of row i of A by its scores, R the residuals,
g_i = X V R_i^T the gradient by row i of A, and p_i = M_i g_i, the second derivative of a_i . g_i by the scores is
T_i = diag(p_i) - a_i p_i^T - p_i a_i^T. Scores are bilinear in Q and K, so that all blocks are sums over the rows i.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import require

Floats = NDArray[np.float64]
MATRICES = ("query", "key", "value")
Block = tuple[str, str]


@dataclass(frozen=True, eq=False)
class AttentionBlocks:
    """Blocks of H_o and H_f by the names of two matrices, each (rows * columns) of the weights as torch stores them."""

    outer_product: dict[Block, Floats]
    functional: dict[Block, Floats]


def whole_matrix(blocks: dict[Block, Floats]) -> Floats:
    """All blocks as one symmetric matrix, in the order query, key, value.

    >>> one, two = np.ones((1, 1)), 2 * np.ones((1, 1))
    >>> named = {("query", "query"): one, ("query", "key"): two, ("query", "value"): two}
    >>> named |= {("key", "key"): one, ("key", "value"): two, ("value", "value"): one}
    >>> whole_matrix(named)[0].tolist()
    [1.0, 2.0, 2.0]
    """
    rows = [[blocks[i, j] if (i, j) in blocks else blocks[j, i].T for j in MATRICES] for i in MATRICES]
    return np.block(rows)


def softmax_attention_blocks(
    tokens: Floats, query: Floats, key: Floats, value: Floats, targets: Floats, temperature: float
) -> AttentionBlocks:
    """Blocks of the outer-product and the functional Hessian of one head of softmax attention.

    Formulas, a the inputs and b the keys of a weight, q_i = Q^T x_i, k_j = K^T x_j, B_i = V^T X^T M_i, t the
    temperature: J_Q = x_i (x) B_i k / t, J_K = (B_i x) (x) q_i / t, J_V = A X, H_o = J^T J. H_f has QQ = sum_i
    x_i x_i^T (x) k^T T_i k / t^2, KK = sum_i X^T T_i X (x) q_i q_i^T / t^2, QK = sum_i (x_i, q_i) (x) k^T T_i X / t^2 +
    (sum_i x_i p_i^T X) (x) I / t, QV = sum_i x_i (x) k^T M_i X (x) R_i / t, KV = sum_i X^T M_i X (x) q_i (x) R_i / t,
    VV = 0. So, at a given A, scaling the tokens by s multiplies the blocks of H_o by s^6 (queries and keys), s^4
    (with values) and s^2 (values), and those of H_f, at a given residual, by s^5 (QQ, KK, the first term of QK) and
    s^3 (all else).

    ``tokens`` (num_samples, num_tokens, width); ``query``, ``key`` (key_width, width), ``value`` (value_width, width),
    as ``SelfAttention.build`` names them; ``targets`` (num_samples, num_tokens, value_width).

    Reference: Ormaniec, Dangel & Singh 2024, who derive the blocks; the sums over rows are ours.

    By hand for one token, whose softmax is 1: only the values matter, H_o is x^2.

    >>> one = np.ones((1, 1))
    >>> blocks = softmax_attention_blocks(2 * one[None], one, one, one, one[None], 1.0)
    >>> float(blocks.outer_product["value", "value"][0, 0]), float(blocks.functional["query", "key"][0, 0])
    (4.0, 0.0)
    """
    require(tokens.ndim == 3, "tokens must be (num_samples, num_tokens, width)", f"they have shape {tokens.shape}")
    queries, keys, values = tokens @ query.T, tokens @ key.T, tokens @ value.T
    scores = queries @ keys.swapaxes(1, 2) / temperature
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    attention = weights / weights.sum(axis=2, keepdims=True)  # (s, i, j)
    residuals = attention @ values - targets
    diagonal = np.eye(tokens.shape[1]) * attention[:, :, None, :]
    slopes = diagonal - attention[:, :, :, None] * attention[:, :, None, :]  # M, (s, i, j, l)
    gradients = np.einsum("sic,sjc->sij", residuals, values)
    slope_products = np.einsum("sijl,sil->sij", slopes, gradients)  # p
    curved = np.eye(tokens.shape[1]) * slope_products[:, :, None, :]
    crossed = attention[:, :, :, None] * slope_products[:, :, None, :]
    curved = curved - crossed - crossed.swapaxes(2, 3)  # T
    scale = 1 / (tokens.shape[0] * tokens.shape[1])
    parts = _Parts(tokens, queries, keys, residuals, slopes, slope_products, curved, temperature)
    outer = _outer_product(parts, values, attention, scale)
    return AttentionBlocks(outer, {pair: scale * block for pair, block in _functional(parts).items()})


@dataclass(frozen=True, eq=False)
class _Parts:
    tokens: Floats
    queries: Floats
    keys: Floats
    residuals: Floats
    slopes: Floats
    slope_products: Floats
    curved: Floats
    temperature: float


def _outer_product(parts: _Parts, values: Floats, attention: Floats, scale: float) -> dict[Block, Floats]:
    x, t = parts.tokens, parts.temperature
    moved = np.einsum("slc,silj->sicj", values, parts.slopes)  # B
    one = np.eye(values.shape[2])
    jacobians = {
        "query": np.einsum("sia,sicj,sjb->sicba", x, moved, parts.keys, optimize=True) / t,
        "key": np.einsum("sicj,sja,sib->sicba", moved, x, parts.queries, optimize=True) / t,
        "value": np.einsum("sij,sja,ce->sicea", attention, x, one, optimize=True),
    }
    flat = {name: jacobian.reshape(-1, jacobian[0, 0, 0].size) for name, jacobian in jacobians.items()}
    return {(i, j): scale * flat[i].T @ flat[j] for i, j in _blocks()}


def _functional(parts: _Parts) -> dict[Block, Floats]:
    x, q, k, r = parts.tokens, parts.queries, parts.keys, parts.residuals
    m, p, c, t = parts.slopes, parts.slope_products, parts.curved, parts.temperature
    one = np.eye(q.shape[2])
    gradient = np.einsum("sia,sij,sjd->ad", x, p, x, optimize=True) / t
    sums = {
        ("query", "query"): np.einsum("sia,sid,sjb,sijl,sle->baed", x, x, k, c, k, optimize=True) / t**2,
        ("key", "key"): np.einsum("sja,sijl,sld,sib,sie->baed", x, c, x, q, q, optimize=True) / t**2,
        ("query", "key"): np.einsum("sia,sie,sjb,sijl,sld->baed", x, q, k, c, x, optimize=True) / t**2
        + np.einsum("ad,be->baed", gradient, one),
        ("query", "value"): np.einsum("sia,sjb,sijl,sld,sie->baed", x, k, m, x, r, optimize=True) / t,
        ("key", "value"): np.einsum("sja,sijl,sld,sib,sie->baed", x, m, x, q, r, optimize=True) / t,
    }
    found = {pair: block.reshape(block.shape[0] * block.shape[1], -1) for pair, block in sums.items()}
    size = r.shape[2] * x.shape[2]
    return found | {("value", "value"): np.zeros((size, size))}


def _blocks() -> list[Block]:
    return [(first, second) for i, first in enumerate(MATRICES) for second in MATRICES[i:]]
