"""The layers of a map: the block of each in the loss Hessian, its factors, and how unevenly layers are curved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import TooLarge, sentence
from hessmap.layers import (
    KroneckerProduct,
    autocorrelation,
    class_outliers,
    find_layer,
    full_curvature_work,
    layer_factors,
    layer_names,
    product_of_factors,
    require_logits,
)
from hessmap.maps.curvature_map.blocks import Block
from hessmap.maps.curvature_map.plan import optional_part, reason_of
from hessmap.measurement import numerical_rank, overlap_curve, spectrum, top_eigenpairs
from hessmap.problem import Problem
from hessmap.records import CurvatureSpread, FactorCurvature, LayerCurvature, Spectrum


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


Floats = NDArray[np.float64]


def layer_spectra(blocks: Sequence[Block], loss: Tensor, scale: float) -> list[Spectrum]:
    """The spectrum of each block of the dense loss Hessian, ranks being relative to ``scale``."""
    return [spectrum(loss[block.places][:, block.places], scale=scale or None) for block in blocks]


def layer_rows(
    blocks: Sequence[Block],
    spectra: Sequence[Spectrum],
    outer_diagonal: Tensor,
    direction: Floats | None,
    factors: Mapping[str, FactorCurvature],
) -> Iterator[LayerCurvature]:
    """A row per block; the share of the curvature is read off the diagonal of the outer-product Hessian, and
    ``direction`` is the sharpest one of the whole network."""
    whole = float(outer_diagonal.sum())
    for block, found in zip(blocks, spectra, strict=True):
        yield LayerCurvature(
            name=block.name,
            shape=block.shape,
            num_parameters=block.num_parameters,
            rank=numerical_rank(found),
            top_eigenvalue=float(found.eigenvalues[0]),
            trace=float(found.eigenvalues.sum()),
            curvature_share=float(outer_diagonal[block.places].sum()) / whole if whole > 0 else 0.0,
            factors=factors.get(block.name),
            kind=block.kind,
            top_residual=found.eigenvalue_error,
            top_converged=found.converged,
            direction_share=None if direction is None else direction_share(direction, block),
        )


def direction_share(direction: Floats, block: Block) -> float:
    """The part of the squared norm of a direction that lies in a block."""
    squares = np.square(direction)
    return float(squares[block.places.numpy()].sum() / squares.sum())


_TOLERANCE = 1e-6  # of the eigenvectors, relative to the norm of the block
_MOST_WORK = 2e10  # samples times cubed outputs of a layer, up to which its factors take seconds


def measured_factors(
    problem: Problem, loss: Tensor | None, has_time: Callable[[], bool] = lambda: True
) -> tuple[dict[str, FactorCurvature], str]:
    """The factors of every linear and convolutional layer by name, or why there are none.

    ``loss`` is the dense loss Hessian; without it the sharpest directions of a layer are not known, and nothing is
    compared with them. Factors are those of the weight alone, as in Wu et al. (2022). When ``has_time`` says no, the
    layers that are left have none; nor has a layer with many outputs at many positions whose second derivative is that
    of more than a piecewise linear network: its matrices, one a sample, would fit neither the time nor the memory.
    """
    names, gap = optional_part(lambda: _names_of_layers(problem))
    found: dict[str, FactorCurvature] = {}
    gap = gap or "no layer is linear or a convolution whose weight acts once"
    for name in names or ():
        if not has_time():
            return found, "the time was used up"
        try:
            block = None if loss is None else _block(problem, name, loss)
            if block is None or bool(block.abs().max() > 0):  # a dead layer has no directions to compare
                found[name] = _factor_curvature(problem, name, block)
        except Exception as error:  # a weight that acts in a way that is not seen: the other layers have factors
            gap = reason_of(error)
    return found, "" if found else gap


def _names_of_layers(problem: Problem) -> Sequence[str]:
    require_logits(problem)
    return layer_names(problem)


def _block(problem: Problem, name: str, loss: Tensor) -> Tensor:
    place = problem.layout[find_layer(problem, name).weight]
    return loss[place, place]


def _factor_curvature(problem: Problem, name: str, block: Tensor | None) -> FactorCurvature:
    layer = find_layer(problem, name)
    if full_curvature_work(problem, layer) > _MOST_WORK:
        size = f"the eigenvalues of {problem.num_samples:,} matrices of size {layer.output_size:,}"
        must = "the factors of a layer must be found in seconds"
        raise TooLarge(sentence(must, f"those of '{name}' need {size}"))
    num_classes = problem.num_outputs
    factors = layer_factors(problem, name)
    product = product_of_factors(factors)
    inputs = autocorrelation(factors.input_factor, factors.mean_patches)
    outputs = product.input_eigenpairs[0] if factors.layer.is_transposed else product.output_eigenpairs[0]
    outliers = class_outliers(outputs, num_classes) if len(outputs) >= num_classes else None
    overlap, chance = (None, None) if block is None else _overlap(product, block, num_classes - 1)
    return FactorCurvature(
        num_classes=num_classes,
        input_ratio=inputs.eigenvalue_ratio,
        mean_alignment=inputs.squared_cosine,
        outlier_share=None if outliers is None else outliers.share,
        outlier_ratio=None if outliers is None else outliers.ratio,
        kronecker_overlap=overlap,
        chance=chance,
    )


def _overlap(product: KroneckerProduct, block: Tensor, most: int) -> tuple[float, float]:
    """Of the sharpest directions of the block with those of the product, and what chance would have."""
    count = min(most, len(block))
    top = top_eigenpairs(block, count, tolerance=_TOLERANCE)
    assert top.eigenvectors is not None
    curve = overlap_curve(top.eigenvectors, product.eigenvectors(product.leading(count)))
    return curve.at(count), float(curve.chance[count - 1])
