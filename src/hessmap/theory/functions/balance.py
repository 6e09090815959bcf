"""How fast layers become balanced under gradient flow."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require

Floats = NDArray[np.float64]


def balance_defect_prediction(defect: ArrayLike, ridge: float, time: float) -> Floats:
    """D(t) = D(0) e^(-4 ridge t) under the gradient flow of C(f_W) + ridge ||W||^2, D = ||W_(l+1)||^2 - ||W_l||^2 -
    ||b_l||^2, of layers or of single units.

    Exact for homogeneous activations and any C: scaling what enters a unit by c and what leaves it by 1/c leaves the
    function alone, so the gradient of C does not move D, and the ridge takes 2 ridge W from each weight. At a local
    minimum D is therefore 0. Reference: Jacot 2023, Proposition 12 (the minimum); the law in time is stronger.

    >>> balance_defect_prediction(2.0, ridge=0.25, time=1.0).round(6).item()
    0.735759
    """
    require(ridge >= 0, "ridge must not be negative", f"got {ridge}")
    require(time >= 0, "time must not be negative", f"got {time}")
    return np.asarray(np.asarray(defect, dtype=np.float64) * np.exp(-4 * ridge * time))
