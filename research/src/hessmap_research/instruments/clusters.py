"""How the gradients of logits cluster, by logit or by class: two numbers, and a picture's coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import checked_number, checked_seed, require
from hessmap.measurement.operators_in import Floats, float_array
from hessmap.records import ClusterMeasurement

Means = Tensor | NDArray[Any]


def cluster_ratios(means: Means, total: float) -> ClusterMeasurement:
    """Variance between clusters over variance within them, of mean logit gradients (classes, logits, entries).

    Clusters are taken once by logit (over the classes) and once by class (over the logits); Wu et al. (2022, Appendix
    G.5) see the first at initialisation and the second, sometimes, at minima. ``total`` is E[sum_j ||g_j||^2], the
    trace of the output factor (or of the layer Hessian): the means hold only part of it, because variance within a
    class is lost in them (equation 271 prints the means alone).
    """
    points, total = float_array(means, "mean logit gradients"), checked_number("total", total)
    fits = points.ndim == 3 and points.shape[0] == points.shape[1] >= 2
    require(fits, "mean logit gradients must have the shape (classes, logits, entries)", f"got {points.shape}")
    by_logit, of_each_logit = _ratios(points.transpose(1, 0, 2))
    by_class, of_each_class = _ratios(points)
    of_means = float(np.square(points).sum(axis=(1, 2)).mean())
    return ClusterMeasurement(
        by_logit=by_logit,
        by_class=by_class,
        of_each_logit=of_each_logit,
        of_each_class=of_each_class,
        explained=of_means / total if total > 0 else 0.0,
        num_classes=len(points),
    )


def _ratios(clusters: Floats) -> tuple[float, Floats]:
    """Of clusters along the first axis: the ratio of all together, and that of each."""
    centres = clusters.mean(axis=1)
    from_middle = np.square(centres - centres.mean(axis=0)).sum(axis=1)
    spread = np.square(clusters - centres[:, None]).sum(axis=2).mean(axis=1)
    each = np.divide(from_middle, spread, out=np.full(len(spread), np.inf), where=spread > 0)
    return float(from_middle.sum() / spread.sum()) if spread.sum() > 0 else float("inf"), each


def embedded(points: Means, *, perplexity: float = 10.0, seed: int = 0) -> Floats:
    """Coordinates of points (rows) in the plane by t-SNE (van der Maaten & Hinton 2008), for a picture.

    Only which points lie together means anything; distances between clusters do not.
    """
    from sklearn.manifold import TSNE

    rows, perplexity = float_array(points, "points"), checked_number("perplexity", perplexity)
    require(rows.ndim >= 2 and rows.size > 0, "points must be rows of numbers", f"got shape {rows.shape}")
    rows = rows.reshape(-1, rows.shape[-1])
    most = (len(rows) - 1) / 3
    require(
        len(rows) >= 4 and 1 <= perplexity <= max(1.0, most),
        f"perplexity must lie between 1 and a third of the points, {most:.1f}",
        f"got {perplexity}",
    )
    largest = float(np.abs(rows).max()) or 1.0
    reducer = TSNE(perplexity=perplexity, init="pca", random_state=checked_seed(seed) % 2**32, method="exact")
    return np.asarray(reducer.fit_transform(rows / largest), dtype=np.float64)
