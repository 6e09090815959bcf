"""How unevenly the layers of a network are curved."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hessmap.records import CurvatureSpread, LayerCurvature


def curvature_spread(layers: Sequence[LayerCurvature], trace: float) -> CurvatureSpread | None:
    """Over the layers; ``trace`` is what their shares are of. Layers whose share is within two standard errors of zero
    are left out. None where fewer than two are curved."""
    means = {layer.name: layer.curvature_share * trace / layer.num_parameters for layer in layers}
    is_known = {layer.name: layer.curvature_share > 2 * layer.share_error for layer in layers}
    curved = {name: mean for name, mean in means.items() if mean > 0 and is_known[name]}
    if len(curved) < 2:
        return None
    most, least = max(curved, key=lambda name: curved[name]), min(curved, key=lambda name: curved[name])
    return CurvatureSpread(
        most=most,
        least=least,
        ratio=curved[most] / curved[least],
        log_deviation=float(np.std(np.log10(list(curved.values())))),
        num_layers=len(means),
        num_flat=sum(mean <= 0 for mean in means.values()),
    )
