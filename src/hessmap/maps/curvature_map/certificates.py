"""Exact ranks where the measured ones leave a doubt and exact arithmetic is possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hessmap.curvature import Problem
from hessmap.curvature.finite_field import certified_rank
from hessmap.errors import UnsupportedNetwork
from hessmap.results import PARTS, Part, RankCertificate, RankMeasurement

# Elimination costs about p^3: some ten seconds per Hessian here, on one core.
_CHEAP_PARAMETERS = 2000


def certified_parts(
    problem: Problem,
    measured: Mapping[Part, RankMeasurement],
    certify: bool | None,
    say: Callable[[str], None],
) -> tuple[dict[Part, RankCertificate], str]:
    """The certificates that are wanted, and why there are none where exact arithmetic was asked for in vain.

    ``certify`` None asks only where the measured rank is not decidable and the network is small.
    """
    is_small = problem.num_parameters <= _CHEAP_PARAMETERS
    doubtful = tuple(part for part in PARTS if is_small and not measured[part].decidable)
    wanted = {True: PARTS, False: (), None: doubtful}[certify]
    found: dict[Part, RankCertificate] = {}
    try:
        for part in wanted:
            say(f"exact rank of the {part.replace('_', '-')} Hessian over a finite field")
            found[part] = certified_rank(problem, part)
    except UnsupportedNetwork as error:
        return found, f"no certified rank: {error}" if certify else ""
    return found, ""
