"""How a count grows with another: the exponent of a power law, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hessmap.errors import require


@dataclass(frozen=True)
class PowerLaw:
    """y = c x^exponent by least squares of logarithms; the interval holds the exponent with 95 % probability.

    The interval is Student's for independent errors of one variance. Counts of a formula have no errors: it then says
    how far the curve bends within the points that were fitted.
    """

    exponent: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.exponent:.3f} ({self.low:.3f} to {self.high:.3f})"


def power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw:
    """The fit to at least three points.

    >>> print(power_law([1, 4, 9, 25], [2, 4, 6, 10]))
    0.500 (0.500 to 0.500)
    """
    require(len(x) == len(y) >= 3, "a power law needs three points or more", f"got {len(x)} and {len(y)}")
    import numpy as np
    from scipy import stats

    fit = stats.linregress(np.log(x), np.log(y))
    margin = float(stats.t.ppf(0.975, len(x) - 2) * fit.stderr)
    return PowerLaw(float(fit.slope), float(fit.slope) - margin, float(fit.slope) + margin)
