"""The curvature layer by layer: the diagonal blocks of the loss Hessian, and the two factors beside each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from hessmap.curvature import Layout, Problem
from hessmap.curvature.layers import layer_factors, layer_names, product_of_factors, require_logits
from hessmap.errors import HessmapError
from hessmap.measurement import numerical_rank, spectrum, top_eigenpairs
from hessmap.measurement.layers import autocorrelation, class_outliers, overlap_curve
from hessmap.results import Spectrum
from hessmap.results.maps import FactorCurvature, LayerCurvature


def layer_places(layout: Layout) -> dict[str, list[int]]:
    """Where the parameters of each module lie in the flat vector, its weights and biases together.

    >>> layer_places(Layout((("0.weight", (2, 1)), ("0.bias", (2,)), ("2.weight", (1, 2)))))
    {'0': [0, 1, 2, 3], '2': [4, 5]}
    """
    places: dict[str, list[int]] = {}
    for name, place in layout:
        places.setdefault(_module(name), []).extend(range(place.start, place.stop))
    return places


def layer_shape(layout: Layout, layer: str) -> str:
    """The shapes of a layer's parameters.

    >>> layer_shape(Layout((("0.weight", (2, 1)), ("0.bias", (2,)), ("2.weight", (1, 2)))), "0")
    '2×1 + 2'
    """
    return " + ".join("×".join(map(str, shape)) for name, shape in layout.shapes if _module(name) == layer)


def layer_spectra(layout: Layout, loss: Tensor, scale: float) -> dict[str, Spectrum]:
    """The spectrum of each layer's block of the dense loss Hessian, ranks being relative to ``scale``."""
    return {
        name: spectrum(loss[indices][:, indices], scale=scale or None) for name, indices in layer_places(layout).items()
    }


def layer_rows(
    layout: Layout, spectra: dict[str, Spectrum], outer_diagonal: Tensor, factors: Mapping[str, FactorCurvature]
) -> Iterator[LayerCurvature]:
    """A row per layer; the share of the curvature is read off the diagonal of the outer-product Hessian."""
    whole = float(outer_diagonal.sum())
    for name, indices in layer_places(layout).items():
        found = spectra[name]
        yield LayerCurvature(
            name=name,
            shape=layer_shape(layout, name),
            num_parameters=len(indices),
            rank=numerical_rank(found),
            top_eigenvalue=float(found.eigenvalues[0]),
            trace=float(found.eigenvalues.sum()),
            curvature_share=float(outer_diagonal[indices].sum()) / whole if whole > 0 else 0.0,
            factors=factors.get(name),
        )


def _module(parameter: str) -> str:
    return parameter.rpartition(".")[0] or parameter


_TOLERANCE = 1e-6  # of the eigenvectors, relative to the norm of the block


def measured_factors(problem: Problem, loss: Tensor) -> tuple[dict[str, FactorCurvature], str]:
    """The factors of every linear and convolutional layer by name, or why there are none.

    ``loss`` is the dense loss Hessian. Factors are those of the weight alone, as in Wu et al. (2022).
    """
    try:
        require_logits(problem)
    except HessmapError as error:
        return {}, str(error)
    found: dict[str, FactorCurvature] = {}
    gap = "no layer is linear or a convolution whose weight acts once"
    for name in layer_names(problem):
        try:
            if _is_curved(problem, name, loss):
                found[name] = _factor_curvature(problem, name, loss)
        except HessmapError as error:  # a weight that acts in a way that is not seen: the other layers have factors
            gap = str(error)
    return found, "" if found else gap


def _block(problem: Problem, name: str, loss: Tensor) -> Tensor:
    place = problem.layout[f"{name}.weight" if name else "weight"]
    return loss[place, place]


def _is_curved(problem: Problem, name: str, loss: Tensor) -> bool:
    """Whether the layer has curvature at all: a dead one has no directions to compare."""
    return bool(_block(problem, name, loss).abs().max() > 0)


def _factor_curvature(problem: Problem, name: str, loss: Tensor) -> FactorCurvature:
    num_classes = problem.num_outputs
    block = _block(problem, name, loss)
    factors = layer_factors(problem, name)
    product = product_of_factors(factors)
    count = min(num_classes - 1, len(block))
    top = top_eigenpairs(block, count, tolerance=_TOLERANCE)
    assert top.eigenvectors is not None
    overlap = overlap_curve(top.eigenvectors, product.eigenvectors(product.leading(count)))
    inputs = autocorrelation(factors.input_factor, factors.mean_patches)
    outputs = product.output_eigenpairs[0]
    outliers = class_outliers(outputs, num_classes) if len(outputs) >= num_classes else None
    return FactorCurvature(
        num_classes=num_classes,
        input_ratio=inputs.eigenvalue_ratio,
        mean_alignment=inputs.squared_cosine,
        outlier_share=None if outliers is None else outliers.share,
        outlier_ratio=None if outliers is None else outliers.ratio,
        kronecker_overlap=overlap.at(count),
        chance=float(overlap.chance[count - 1]),
    )
