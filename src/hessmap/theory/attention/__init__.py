"""Ranks of one layer of linear self-attention: one head, the last token, several heads."""

from hessmap.theory.attention import causal, heads, last_token, single_head, subspace_products
from hessmap.theory.attention.heads import ProjectedHeads
from hessmap.theory.attention.single_head import HeadSizes, head_ranks
from hessmap.theory.attention.subspace_products import sum_of_products_dimension

__all__ = [
    "HeadSizes",
    "ProjectedHeads",
    "causal",
    "head_ranks",
    "heads",
    "last_token",
    "single_head",
    "subspace_products",
    "sum_of_products_dimension",
]
