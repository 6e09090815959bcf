"""Spectra of many teachers of one size: the cases, the density over the logarithm, and how it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hessmap_research.runner.study import Case
from hessmap_research.runner.view import Lines, Series

_DECADES = (-6.0, 2.5, 35)  # from, to, edges


def sized_cases(sizes: Sequence[tuple[int, int, int]]) -> tuple[Case, ...]:
    """Cases for (inputs, hidden, number of teachers)."""
    return tuple(
        {
            "inputs": inputs,
            "hidden": hidden,
            "shape": "square" if inputs == hidden else "oblong",
            "num_teachers": num_teachers,
        }
        for inputs, hidden, num_teachers in sizes
    )


def log_density(spectra: Sequence[Any]) -> dict[str, Any]:
    """The density of eigenvalues over log10 of their size, in bins that hold any.

    It is a density of all eigenvalues, also of zeros: the curve encloses the share of those inside the limits.
    """
    import numpy as np

    edges = np.linspace(*_DECADES)
    values = np.concatenate(spectra)
    counts, _ = np.histogram(np.log10(np.maximum(values, 1e-300)), bins=edges)
    shown = counts > 0
    middles = 10 ** ((edges[:-1] + edges[1:]) / 2)
    density = counts / (values.size * np.diff(edges))
    return {"eigenvalue": middles[shown].round(9), "density": density[shown].round(6)}


def extremes(values: Any) -> dict[str, float]:
    """Smallest, mean and largest."""
    import numpy as np

    array = np.asarray(values, dtype=float)
    return {"smallest": float(array.min()), "mean": float(array.mean()), "largest": float(array.max())}


def density_figure(title: str, shape: str, label: str) -> Lines:
    return Lines(
        title=title,
        where={"shape": shape},
        x="spectrum.eigenvalue",
        split="inputs",
        series=(Series(label, line="spectrum.density", points="spectrum.density"),),
        x_label="eigenvalue",
        y_label="density over log10",
        x_scale="log",
        y_scale="log",
    )
