"""The older bound, by counting samples and outputs."""

from __future__ import annotations

from hessmap.theory.conditions import checked_count


def outer_product_sample_upper_bound(num_samples: int, effective_output_dim: int) -> int:
    """The outer-product Hessian of any network has rank at most N K.

    It is a sum of N terms J^T (d2 loss / d outputs^2) J, each of rank at most K (K - 1 under cross-entropy).
    ``num_samples`` is N, ``effective_output_dim`` is K.

    Assumptions: none.

    Reference: Jacot, Gabriel & Hongler 2019, discussed in Singh, Bachmann & Hofmann 2021, Section 5.3.

    >>> outer_product_sample_upper_bound(num_samples=300, effective_output_dim=10)
    3000
    """
    samples = checked_count("num_samples", num_samples)
    return samples * checked_count("effective_output_dim", effective_output_dim)
