"""Wu et al. 2022, Tables 6 and 9 (linear layers) and 7 (convolutions): how near E[x x^T] is to rank one.

Every triple is the mean, the least and the largest over all runs and all layers but the first of the network.
"""

from __future__ import annotations

from typing import NamedTuple

Triple = tuple[float, float, float]


class Moments(NamedTuple):
    """(v_1 . E[x])^2 and lambda_1 / lambda_2."""

    squared_cosine: Triple
    ratio: Triple


PUBLISHED = {
    ("mnist", "F-200^2", "fc"): Moments((1.000, 1.000, 1.000), (12.29, 9.65, 16.16)),
    ("mnist", "F-600^2", "fc"): Moments((0.999, 0.999, 0.999), (12.00, 11.42, 13.00)),
    ("mnist", "F-600^4", "fc"): Moments((1.000, 0.999, 1.000), (17.81, 7.33, 28.00)),
    ("mnist", "F-200^2-BN", "fc"): Moments((0.062, 0.001, 0.260), (1.16, 1.04, 1.30)),
    ("cifar10", "LeNet5", "fc"): Moments((0.998, 0.997, 0.999), (7.21, 5.88, 9.02)),
    ("cifar10", "LeNet5", "conv"): Moments((0.999, 0.998, 0.999), (15.87, 11.15, 27.20)),
    ("cifar10", "LeNet5-BN", "fc"): Moments((0.210, 0.001, 0.803), (1.54, 1.20, 1.89)),
    ("cifar10", "VGG11-W32", "fc"): Moments((0.990, 0.988, 0.993), (6.02, 5.57, 6.51)),
    ("cifar10", "VGG11-W32", "conv"): Moments((0.995, 0.991, 0.999), (5.31, 2.39, 9.09)),
}


def published_moments(data: str, network: str, layer: str) -> dict[str, float]:
    """The paper's means for a layer of this kind; nothing for the first layer, which its tables leave out."""
    known = PUBLISHED.get((data, network, kind_of(layer)))
    is_first = layer == ("fc1" if network.startswith("F-") else "conv1")
    return {} if known is None or is_first else {"squared_cosine": known.squared_cosine[0], "ratio": known.ratio[0]}


def kind_of(layer: str) -> str:
    """The kind "fc" or "conv"; convolutions on shortcuts count as such."""
    return "fc" if layer.startswith("fc") else "conv"
