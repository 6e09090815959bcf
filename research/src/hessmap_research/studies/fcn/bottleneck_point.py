"""Critical points of deep linear networks that a bottleneck keeps from the best fit, made without any training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

    from hessmap.datasets import Data
    from hessmap.networks import FullyConnected


def bottleneck_critical_point(network: FullyConnected, data: Data, is_minimum: bool, seed: int) -> nn.Sequential:
    """A linear network whose map is the regression of the targets, cut to as many directions as the bottleneck has.

    With W* the least-squares map and U the left singular vectors of W* Sxx^(1/2), the map is U U^T W* for q of them:
    the q leading ones give the global minimum (Baldi & Hornik 1989), the q smallest that are not zero a saddle. Then
    U^T Omega = 0 and Omega (U^T W*)^T = 0, so that the gradient vanishes for every factorisation W = U (U^T W*) through
    the bottleneck: the layers before and behind it are drawn, and the first and the last are solved for.
    """
    import torch

    from hessmap.measurement import numerical_rank

    widths = network.widths
    place = min(range(1, len(widths) - 1), key=lambda vertex: widths[vertex])
    inputs, targets = data
    # The left singular vectors of W* Sxx^(1/2) are those of the fitted targets, (X W*^T)^T.
    fit = torch.linalg.lstsq(inputs, targets, driver="gelsd").solution
    fitted = torch.linalg.svd((inputs @ fit).T, full_matrices=False)
    q, rank = widths[place], numerical_rank(inputs @ fit).value
    chosen = fitted.U[:, :q] if is_minimum else fitted.U[:, rank - q : rank]
    generator = torch.Generator().manual_seed(seed)
    model = network.build(seed=seed)
    layers: list[Tensor] = list(model.parameters())
    mixing = torch.randn(q, q, dtype=torch.float64, generator=generator)
    with torch.no_grad():
        _solve_first(layers[:place], torch.linalg.solve(mixing, chosen.T @ fit.T))
        _solve_first([layer.T for layer in reversed(layers[place:])], (chosen @ mixing).T)
    return model


def _solve_first(layers: list[Tensor], product: Tensor) -> None:
    """Change the first layer, in place, so that the layers (first to last) multiply to the given product.

    The change is the smallest one: where the later layers do not look, the drawn weights stay.
    """
    import torch

    first, *rest = layers
    behind = torch.eye(len(first), dtype=torch.float64)
    for layer in rest:
        behind = layer @ behind
    first += torch.linalg.pinv(behind) @ (product - behind @ first)
