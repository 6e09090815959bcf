"""The spectra of the three Hessians of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hessmap.results import PARTS, Part

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.results import Spectrum


def hessian_spectra(problem: Problem) -> dict[Part, Spectrum]:
    """All eigenvalues of H_o, H_f and H_L; their ranks are relative to the norm of H_L."""
    from hessmap.curvature import functional_hessian, loss_hessian, outer_product_hessian
    from hessmap.measurement import spectrum

    hessians = (outer_product_hessian, functional_hessian, loss_hessian)
    return {part: spectrum(hessian(problem)) for part, hessian in zip(PARTS, hessians, strict=True)}
