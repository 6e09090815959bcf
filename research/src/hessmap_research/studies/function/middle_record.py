"""What is kept of a trained network's layers: ranks and singular values of its representations, and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hessmap_research.studies.plotted_curves import four_digits

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from hessmap.records import BottleneckView
    from hessmap_research.studies.function.regularised_network import RegularisedNetwork

_NUM_SHOWN = 10  # singular values of a representation that are kept
_LARGE = 0.5  # a weight's singular value that carries a direction on: those of an identity are 1


def middle_record(
    net: RegularisedNetwork, inputs: Tensor, true_rank: int, middle: Sequence[int] = (3, 4, 5, 6)
) -> dict[str, Any]:
    """Ranks layer by layer (singular values above a tenth of the largest), and of the ``middle`` layers more.

    Layers count from 1. ``next_over_last`` is s_(k+1) / s_k of the centred representations, k the true rank,
    ``nonlinearity`` ||Z~ - sigma(Z~)|| / ||Z~||, ``num_carried`` how many singular values of a weight exceed 0.5.
    """
    from hessmap.maps.functions import bottleneck_view

    view = bottleneck_view(net.model, inputs)
    chosen = [view.layers[number - 1] for number in middle]
    ratios = [next_over_last(layer.centred_singular_values, true_rank) for layer in chosen]
    half = chosen[len(chosen) // 2].centred_singular_values
    return {
        "ranks": {"centred": _ranks(view, "centred_rank"), "uncentred": _ranks(view, "rank")},
        "middle": {
            "smallest": min(layer.centred_rank for layer in chosen),
            "largest": max(layer.centred_rank for layer in chosen),
            "uncentred": max(layer.rank for layer in chosen),
            "next_over_last": max(ratios),
            "nonlinearity": max(layer.nonlinearity or 0.0 for layer in chosen),
            "num_carried": min(int((layer.weight_singular_values > _LARGE).sum()) for layer in chosen),
        },
        "narrowest": min(layer.centred_rank for layer in view.layers[:-1]),
        "singular_values": four_digits(half[:_NUM_SHOWN] / half[0]),
        "cost_per_layer": net.squared_norm / len(view.layers),
        "risk": net.risk,
        "objective": net.objectives[-1],
        "gradient_norm": net.gradient_norm,
    }


def next_over_last(values: NDArray[np.float64], true_rank: int) -> float:
    """s_(k+1) / s_k; 0 where there are no more than k values.

    >>> next_over_last(np.array([2.0, 1.0, 0.5]), 2)
    0.5
    """
    return float(values[true_rank] / values[true_rank - 1]) if len(values) > true_rank else 0.0


def _ranks(view: BottleneckView, name: str) -> NDArray[np.int64]:
    return np.array([getattr(layer, name) for layer in view.layers])
