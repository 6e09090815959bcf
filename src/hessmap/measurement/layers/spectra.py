"""What the spectra of a layer's two factors say: nearly rank one, and as many outliers as classes but one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import checked_count, require
from hessmap.measurement.dense_spectrum import spectrum
from hessmap.measurement.matrices import EPS, float_array
from hessmap.records import AutocorrelationMeasurement, OutlierMeasurement

Matrix = Tensor | NDArray[Any]


def autocorrelation(second_moment: Matrix, mean: Matrix) -> AutocorrelationMeasurement:
    """How close E[x x^T] is to rank one, along E[x].

    ``mean`` is E[x], or for a convolution the matrix E[X] of mean patches (positions x inputs), whose leading singular
    direction and value then take the place of E[x] and its norm.

    The bound ||E[x]||^2 / ||Cov x|| <= lambda_1 / lambda_2 holds always (Weyl: lambda_1 >= ||E[x]||^2 and lambda_2 <=
    ||Cov x||); Wu et al. (2022, equation 264) subtract one from it.

    >>> found = autocorrelation(np.diag([5.0, 1.0]), np.array([2.0, 0.0]))
    >>> found.squared_cosine, found.eigenvalue_ratio, found.ratio_bound
    (1.0, 5.0, 4.0)
    """
    moment, means = float_array(second_moment, "a second moment"), np.atleast_2d(float_array(mean, "a mean"))
    is_fit = means.ndim == 2 and means.size > 0 and moment.shape == (means.shape[1],) * 2
    must = "a second moment must be square, with one row per entry of the mean"
    require(is_fit, must, f"got shape {moment.shape} and a mean of shape {means.shape}")
    found = spectrum(moment, vectors=True)
    assert found.eigenvectors is not None
    _, sizes, directions = np.linalg.svd(means, full_matrices=False)
    along = sizes[0] * directions[0]
    covariance = spectrum(moment - np.outer(along, along)).eigenvalues
    values = found.eigenvalues
    return AutocorrelationMeasurement(
        squared_cosine=float(found.eigenvectors[:, 0] @ directions[0]) ** 2 if sizes[0] > 0 else 0.0,
        eigenvalue_ratio=ratio(values[0], values[1] if len(values) > 1 else 0.0, values[0]),
        ratio_bound=ratio(sizes[0] ** 2, covariance[0], values[0]),
        eigenvalues=values,
        mean_norm=float(sizes[0]),
    )


def class_outliers(eigenvalues: Matrix, num_classes: int) -> OutlierMeasurement:
    """Whether c - 1 of these eigenvalues (of E[M] or of a layer Hessian, descending) stand out for c classes.

    >>> class_outliers(np.array([9.0, 8.0, 1.0, 0.9]), num_classes=3).ratio
    8.0

    The share is one of magnitudes: where some eigenvalues are negative, their plain sum may be zero.

    >>> class_outliers(np.array([3.0, 1.0, -4.0]), num_classes=3).share
    0.5
    """
    values, num_classes = float_array(eigenvalues, "eigenvalues"), checked_count("num_classes", num_classes, 2)
    enough = f"the outliers of {num_classes} classes need as many eigenvalues in descending order, and two classes"
    is_sorted = values.ndim == 1 and bool((np.diff(values) <= 0).all())
    require(2 <= num_classes <= values.size and is_sorted, enough, f"got {values.size}")
    ratios = np.array([ratio(before, after, values[0]) for before, after in pairwise(values)])
    searched = ratios[: 3 * num_classes]
    return OutlierMeasurement(
        num_classes=num_classes,
        ratio=float(ratios[num_classes - 2]),
        num_outliers=int(searched.argmax()) + 1,
        largest_ratio=float(searched.max()),
        share=float(values[: num_classes - 1].clip(min=0.0).sum() / np.abs(values).sum()) if values.any() else 0.0,
        eigenvalues=values,
    )


def ratio(larger: float, smaller: float, scale: float) -> float:
    """A ratio of eigenvalues; infinite where the smaller one is zero to the rounding of the scale."""
    is_zero = smaller <= 100 * EPS * abs(scale)
    return float("inf") if is_zero else float(larger / smaller)
