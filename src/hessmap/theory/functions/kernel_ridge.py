"""Kernel ridge regression, the contrast to deep networks: its Jacobian has all the rank that it can.

Reference: Jacot 2023, appendix D.1; corrected (see the functions).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require, require_name

Floats = NDArray[np.float64]
Kernel = Literal["gaussian", "laplace"]
# k(r), and k'(r) / r for r > 0.
_KERNELS: dict[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "gaussian": (lambda r: np.exp(-0.5 * r**2), lambda r: -np.exp(-0.5 * r**2)),
    "laplace": (lambda r: np.exp(-r), lambda r: -np.exp(-r) / r),
}


def kernel_ridge_jacobian_rank(input_dim: int, num_samples: int, output_dim: int, affine_dim: int) -> int:
    """min(d_in, N, d_out, 1 + dim aff(X)): the rank of the Jacobian of f at a generic point outside of aff(X).

    Args:
        input_dim: Number of inputs.
        num_samples: Number of samples N.
        output_dim: Number of outputs.
        affine_dim: Dimension of the affine hull of the inputs, the rank of the centred inputs.

    Returns:
        The rank.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``affine_dim`` is the dimension of the affine hull of the inputs, the rank of the centred inputs; the outputs
        are generic. Reference: Jacot 2023, appendix D.1, prints min(rank X + 1, N, d_out); corrected: d_in is missing
        (inputs that span R^d give at most d), and rank X + 1 fails for inputs in an affine plane off the origin: in R^4
        they have rank 3 and give 3, not 4.

    Example:
        >>> kernel_ridge_jacobian_rank(input_dim=4, num_samples=10, output_dim=5, affine_dim=1)
        2
    """
    sizes = {"input_dim": input_dim, "num_samples": num_samples, "output_dim": output_dim}
    for name, size in sizes.items():
        require(size >= 1, f"{name} must be at least 1", f"got {size}")
    limit = min(input_dim, num_samples - 1)
    must = f"affine_dim must lie between 0 and {limit}"
    require(0 <= affine_dim <= limit, must, f"got {affine_dim}", "N points span at most N - 1 dimensions")
    return min(input_dim, num_samples, output_dim, 1 + affine_dim)


def printed_kernel_ridge_jacobian_rank(num_samples: int, output_dim: int, input_rank: int) -> int:
    """The formula as printed, min(rank X + 1, N, d_out); wrong where ``kernel_ridge_jacobian_rank`` differs.

    Args:
        num_samples: Number of samples N.
        output_dim: Number of outputs.
        input_rank: Rank of the inputs X.

    Returns:
        The rank.

    Example:
        >>> printed_kernel_ridge_jacobian_rank(num_samples=20, output_dim=8, input_rank=5)    # in R^5: 5 is right
        6
    """
    return min(input_rank + 1, num_samples, output_dim)


@dataclass(frozen=True, eq=False)
class KernelRidge:
    """f(x) = K(x, X) (K(X, X) + ridge I)^(-1) Y with a radial kernel k(||x - y|| / width).

    Attributes:
        inputs: Inputs, one row per sample.
        coefficients: (K(X, X) + ridge I)^(-1) Y.
        kernel: Name of the kernel.
        width: Length scale of the radial kernel.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.
    """

    inputs: Floats
    coefficients: Floats
    kernel: Kernel
    width: float

    def __call__(self, points: ArrayLike) -> Floats:
        """The outputs, one point a row."""
        value, _ = _KERNELS[self.kernel]
        return value(_distances(np.asarray(points, dtype=np.float64), self.inputs) / self.width) @ self.coefficients

    def jacobian(self, point: ArrayLike) -> Floats:
        """df/dx at a point that is none of the inputs, shape (output_dim, input_dim).

        dK(x, x_i)/dx = -(x_i - x) k'(r_i) / r_i; printed without the sign.
        """
        at = np.asarray(point, dtype=np.float64)
        _, slope = _KERNELS[self.kernel]
        distances = _distances(at[None], self.inputs)[0] / self.width
        require(bool((distances > 0).all()), "the point must be none of the inputs", "a distance is 0")
        by_sample = -(self.inputs - at) * (slope(distances) / self.width**2)[:, None]
        return self.coefficients.T @ by_sample


def kernel_ridge(
    inputs: ArrayLike, outputs: ArrayLike, *, ridge: float, kernel: Kernel = "gaussian", width: float = 1.0
) -> KernelRidge:
    """The predictor fitted to the samples.

    Args:
        inputs: Inputs, one row per sample.
        outputs: Outputs, one row per sample.
        ridge: Ridge, the strength of the penalty.
        kernel: Name of the kernel. Defaults to "gaussian".
        width: Length scale of the radial kernel. Defaults to 1.0.

    Returns:
        The predictor.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        >>> fit = kernel_ridge([[0.0], [1.0]], [[0.0], [1.0]], ridge=1e-12)
        >>> fit([[1.0]]).round(6)
        array([[1.]])
    """
    require_name("kernel", kernel, _KERNELS)
    require(ridge > 0 and width > 0, "ridge and width must be positive", f"got {ridge} and {width}")
    given, wanted = np.asarray(inputs, dtype=np.float64), np.asarray(outputs, dtype=np.float64)
    fits = given.ndim == wanted.ndim == 2 and len(given) == len(wanted)
    require(fits, "inputs and outputs must be matrices of paired rows", f"got shapes {given.shape}, {wanted.shape}")
    gram = _KERNELS[kernel][0](_distances(given, given) / width)
    coefficients = np.asarray(np.linalg.solve(gram + ridge * np.eye(len(gram)), wanted), dtype=np.float64)
    return KernelRidge(given, coefficients, kernel, width)


def _distances(rows: Floats, others: Floats) -> Floats:
    return np.asarray(np.sqrt(np.square(rows[:, None] - others).sum(axis=2)))
