"""How many outputs a loss can tell apart: all that a rank formula needs to know of it."""

from __future__ import annotations

from hessmap.errors import unknown_name
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
    if loss not in _FLAT_OUTPUT_DIRECTIONS:
        raise unknown_name("loss", loss, LOSSES)
    return checked_count("output_dim", output_dim, at_least=1) - _FLAT_OUTPUT_DIRECTIONS[loss]
