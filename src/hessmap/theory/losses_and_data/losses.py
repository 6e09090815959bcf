"""How many outputs a loss can tell apart, and how much rank samples allow: all that a rank formula needs of either."""

from __future__ import annotations

from hessmap.errors import require_name
from hessmap.theory.conditions import checked_count

# Output directions in which the loss never curves.
_FLAT_OUTPUT_DIRECTIONS = {"squared": 0, "log_cosh": 0, "positive_definite": 0, "cross_entropy": 1}

LOSSES: tuple[str, ...] = tuple(_FLAT_OUTPUT_DIRECTIONS)


def effective_output_dim(output_dim: int, loss: str = "squared") -> int:
    """Rank formulas see K outputs, or K - 1 under softmax cross-entropy.

    Formula: K for a loss whose second derivative by the outputs is positive definite at every sample ("squared",
    "log_cosh", and "positive_definite" for any other of that sort, such as binary cross-entropy per output);
    K - 1 for "cross_entropy", which does not change when all logits of a sample are shifted together.

    Assumptions: softmax probabilities strictly between 0 and 1; the last layer is linear.

    Reference: Singh, Bachmann & Hofmann 2021, S9.1.2 (cross-entropy) and S9.1.3 (cosh). The number of parameters
    keeps K: only ranks see K - 1.

    >>> effective_output_dim(10, "log_cosh"), effective_output_dim(10, "cross_entropy")
    (10, 9)
    """
    require_name("loss", loss, LOSSES)
    return checked_count("output_dim", output_dim, at_least=1) - _FLAT_OUTPUT_DIRECTIONS[loss]


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
