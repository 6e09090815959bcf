"""A weight in the eigenbasis of its curvature, split into the part of most curvature and the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from hessmap.records.provenance import Provenance
from hessmap.records.record import Record

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ProjectedWeight(Record):
    """One parameter of the layer, and its two parts, which add up to it.

    Attributes:
        name: Name of the parameter.
        kept: The part in the eigenvectors of the largest eigenvalues.
        rest: The part in all other eigenvectors.
    """

    name: str
    kept: Floats
    rest: Floats
    summary_fields: ClassVar[tuple[str, ...]] = ("name",)


@dataclass(frozen=True, eq=False, repr=False)
class CurvatureProjection(Record):
    """The weights of a layer in the eigenbasis of their curvature, split by the mass of the eigenvalues.

    Attributes:
        layer: Name of the layer.
        curvature: "kfac", "ekfac", "best", "diagonal" or "block": what the eigenbasis is of.
        form: Form of the layer's block, as in ``KroneckerCurvature.blocks``.
        keep: Share of the mass that was asked for.
        kept_mass: Share of the sum of eigenvalues of the kept components, at least ``keep``.
        num_components: Number of components: parameters of the layer.
        num_kept: Number of kept components.
        kept_norm_share: ||kept||^2 / ||weights||^2.
        eigenvalues: Eigenvalues in descending order (products of those of both factors for a Kronecker product).
        components: The weights' components in the eigenvectors, in the same order.
        parts: Every parameter of the layer with its two parts.
        risk: Loss with the weights as they are.
        risk_of_kept: Loss with the kept part in place of the layer's weights.
        risk_of_rest: Loss with the rest in place of the layer's weights.
        num_samples: Number of samples.
        provenance: Versions, data and notes.
    """

    layer: str
    curvature: str
    form: str
    keep: float
    kept_mass: float
    num_components: int
    num_kept: int
    kept_norm_share: float
    eigenvalues: Floats
    components: Floats
    parts: tuple[ProjectedWeight, ...]
    risk: float
    risk_of_kept: float
    risk_of_rest: float
    num_samples: int
    provenance: Provenance = field(compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "layer",
        "curvature",
        "num_kept",
        "num_components",
        "kept_mass",
        "kept_norm_share",
        "risk",
        "risk_of_kept",
        "risk_of_rest",
    )
