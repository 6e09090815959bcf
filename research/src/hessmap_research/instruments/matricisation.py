"""Eigenvectors of a layer Hessian as matrices of the weight's shape, and how they relate to the factors'."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import checked_count, require, short_text
from hessmap.measurement.operators_in import Floats, dense_array, float_array


def matricised(vectors: Tensor | NDArray[Any], weight_shape: tuple[int, int]) -> Floats:
    """Every column h as the matrix Mat(h)[i, j] = h[i * num_inputs + j], shape (count, num_outputs, num_inputs).

    Definition 2.2 of Wu et al. (2022, "Dissecting Hessian"), which prints the stride num_outputs; that is right for
    square weights alone.

    >>> matricised(np.arange(6.0)[:, None], (2, 3))[0]
    array([[0., 1., 2.],
           [3., 4., 5.]])
    """
    columns = float_array(vectors, "eigenvectors")
    is_pair = isinstance(weight_shape, tuple | list) and len(weight_shape) == 2
    require(is_pair, "weight_shape must be a pair (outputs, inputs)", f"got {short_text(weight_shape)}")
    outputs, inputs = (checked_count("each of weight_shape", number) for number in weight_shape)
    require(
        columns.ndim == 2 and len(columns) == outputs * inputs,
        f"eigenvectors of a layer of shape {weight_shape} must be columns with {outputs * inputs} entries",
        f"got shape {columns.shape}",
    )
    return np.ascontiguousarray(columns.T).reshape(-1, outputs, inputs)


def rank_one_ratios(vectors: Tensor | NDArray[Any], weight_shape: tuple[int, int]) -> Floats:
    """Largest singular value over Frobenius norm of every matricised column: 1 for a Kronecker product u (x) v."""
    matrices = matricised(vectors, weight_shape)
    values = np.linalg.svd(matrices, compute_uv=False)
    norms = np.linalg.norm(values, axis=1)
    return np.asarray(np.divide(values[:, 0], norms, out=np.zeros_like(norms), where=norms > 0))


def input_correspondence(vectors: Tensor | NDArray[Any], input_vectors: Tensor | NDArray[Any]) -> Floats:
    """||Mat(h_j) v_i||^2, entry (i, j): how much of h_j lies over the i-th eigenvector of the input factor.

    Equation 265 of Wu et al. (2022). Columns sum to one over a complete set of v_i; rows sum to the number of outputs
    over a complete set of h_j. Columns h_j are those of a weight of shape (outputs, inputs); for one that is stored as
    (inputs, outputs), as an embedding is, call ``output_correspondence`` with the same v_i.
    """
    basis, columns = dense_array(input_vectors, "input eigenvectors"), dense_array(vectors, "eigenvectors")
    num_inputs = len(basis)
    matrices = matricised(columns, (_quotient(len(columns), num_inputs), num_inputs))
    return np.asarray(np.square(matrices @ basis).sum(axis=1).T)


def output_correspondence(vectors: Tensor | NDArray[Any], output_vectors: Tensor | NDArray[Any]) -> Floats:
    """||Mat(h_j)^T u_i||^2, entry (i, j): how much of h_j lies over the i-th eigenvector of the output factor.

    Equation 266 of Wu et al. (2022), whose text should say u_i. Rows sum to the number of inputs. For a weight that is
    stored as (inputs, outputs), as an embedding is, call ``input_correspondence`` with the same u_i.
    """
    basis, columns = dense_array(output_vectors, "output eigenvectors"), dense_array(vectors, "eigenvectors")
    num_outputs = len(basis)
    matrices = matricised(columns, (num_outputs, _quotient(len(columns), num_outputs)))
    return np.asarray(np.square(basis.T @ matrices).sum(axis=2).T)


def _quotient(size: int, part: int) -> int:
    is_whole = part > 0 and size > 0 and size % part == 0
    require(is_whole, "eigenvectors must have a whole number of rows of the factor's size", f"got {size} and {part}")
    return size // part
