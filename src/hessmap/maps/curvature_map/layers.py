"""The curvature layer by layer: the diagonal blocks of the loss Hessian."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from hessmap.curvature import Layout
from hessmap.measurement import numerical_rank, spectrum
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


def layer_spectra(layout: Layout, loss: Tensor, scale: float) -> dict[str, Spectrum]:
    """The spectrum of each layer's block of the dense loss Hessian, ranks being relative to ``scale``."""
    return {
        name: spectrum(loss[indices][:, indices], scale=scale or None)
        for name, indices in layer_places(layout).items()
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
            shape=" + ".join(
                "×".join(map(str, shape)) for parameter, shape in layout.shapes if _module(parameter) == name
            ),
            num_parameters=len(indices),
            rank=numerical_rank(found),
            top_eigenvalue=float(found.eigenvalues[0]),
            trace=float(found.eigenvalues.sum()),
            curvature_share=float(outer_diagonal[indices].sum()) / whole if whole > 0 else 0.0,
            factors=factors.get(name),
        )


def _module(parameter: str) -> str:
    return parameter.rpartition(".")[0] or parameter
