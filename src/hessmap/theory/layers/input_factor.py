"""How dominant the mean of a layer's inputs makes the first eigenvalue of their second moment."""

from __future__ import annotations

from hessmap.errors import require


def eigenvalue_ratio_bound(mean_norm: float, covariance_norm: float) -> float:
    """lambda_1 / lambda_2 of E[x x^T] is at least ||E[x]||^2 / ||Cov x||.

    Kind of truth: theorem (Weyl): E[x x^T] = E[x] E[x]^T + Cov x with Cov x positive semi-definite, so lambda_1 >=
    ||E[x]||^2 and lambda_2 <= ||Cov x||.

    Reference: Wu et al. 2020, equation 264, which subtracts one; the stronger form explains its "usually".

    >>> eigenvalue_ratio_bound(mean_norm=2.0, covariance_norm=1.0)
    4.0
    """
    is_fine = mean_norm >= 0 and covariance_norm > 0
    require(is_fine, "norms must be positive", f"got {mean_norm} and {covariance_norm}")
    return mean_norm**2 / covariance_norm
