"""How many threads the linear algebra may use: those that nobody else is using."""

from __future__ import annotations

import os

_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def leave_busy_cores_alone() -> None:
    """Limit the threads to the cores that are free, before the libraries that read the limit are loaded.

    Threads of OpenBLAS wait for each other by spinning: on two cores that others keep busy, eigenvalues with two
    threads took ten times as long as with one. Whoever sets one of the variables decides alone.
    """
    if not hasattr(os, "getloadavg") or any(name in os.environ for name in _VARIABLES):
        return
    num_cores = os.cpu_count() or 1
    num_free = max(1, num_cores - round(os.getloadavg()[0]))
    if num_free < num_cores:
        os.environ.update(dict.fromkeys(_VARIABLES, str(num_free)))
