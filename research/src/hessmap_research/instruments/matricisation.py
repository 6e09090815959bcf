"""Eigenvectors of a layer Hessian as matrices of the weight's shape, and how they relate to the factors'.

How the gradients of logits cluster, by logit or by class: two numbers, and a picture's coordinates.

The output factor of all layers at once, from which top eigenvectors of the full Hessian are guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import (
    UnsupportedNetwork,
    checked_count,
    checked_number,
    checked_seed,
    require,
    sentence,
    short_text,
)
from hessmap.layers.batches import layer_batch, samples_at_once
from hessmap.layers.layer import Layer, find_layer, layer_names
from hessmap.measurement.operators_in import Floats, dense_array, float_array
from hessmap.problem.problem import Problem
from hessmap.records import ClusterMeasurement

Means = Tensor | NDArray[Any]


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


def cluster_ratios(means: Means, total: float) -> ClusterMeasurement:
    """Variance between clusters over variance within them, of mean logit gradients (classes, logits, entries).

    Clusters are taken once by logit (over the classes) and once by class (over the logits); Wu et al. (2022, Appendix
    G.5) see the first at initialisation and the second, sometimes, at minima. ``total`` is E[sum_j ||g_j||^2], the
    trace of the output factor (or of the layer Hessian): the means hold only part of it, because variance within a
    class is lost in them (equation 271 prints the means alone).
    """
    points, total = float_array(means, "mean logit gradients"), checked_number("total", total)
    fits = points.ndim == 3 and points.shape[0] == points.shape[1] >= 2
    require(fits, "mean logit gradients must have the shape (classes, logits, entries)", f"got {points.shape}")
    by_logit, of_each_logit = _ratios(points.transpose(1, 0, 2))
    by_class, of_each_class = _ratios(points)
    of_means = float(np.square(points).sum(axis=(1, 2)).mean())
    return ClusterMeasurement(
        by_logit=by_logit,
        by_class=by_class,
        of_each_logit=of_each_logit,
        of_each_class=of_each_class,
        explained=of_means / total if total > 0 else 0.0,
        num_classes=len(points),
    )


def _ratios(clusters: Floats) -> tuple[float, Floats]:
    """Of clusters along the first axis: the ratio of all together, and that of each."""
    centres = clusters.mean(axis=1)
    from_middle = np.square(centres - centres.mean(axis=0)).sum(axis=1)
    spread = np.square(clusters - centres[:, None]).sum(axis=2).mean(axis=1)
    each = np.divide(from_middle, spread, out=np.full(len(spread), np.inf), where=spread > 0)
    return float(from_middle.sum() / spread.sum()) if spread.sum() > 0 else float("inf"), each


def embedded(points: Means, *, perplexity: float = 10.0, seed: int = 0) -> Floats:
    """Coordinates of points (rows) in the plane by t-SNE (van der Maaten & Hinton 2008), for a picture.

    Only which points lie together means anything; distances between clusters do not.
    """
    from sklearn.manifold import TSNE

    rows, perplexity = float_array(points, "points"), checked_number("perplexity", perplexity)
    require(rows.ndim >= 2 and rows.size > 0, "points must be rows of numbers", f"got shape {rows.shape}")
    rows = rows.reshape(-1, rows.shape[-1])
    most = (len(rows) - 1) / 3
    require(
        len(rows) >= 4 and 1 <= perplexity <= max(1.0, most),
        f"perplexity must be between 1 and a third of the points, {most:.1f}",
        f"got {perplexity}",
    )
    largest = float(np.abs(rows).max()) or 1.0
    reducer = TSNE(perplexity=perplexity, init="pca", random_state=checked_seed(seed) % 2**32, method="exact")
    return np.asarray(reducer.fit_transform(rows / largest), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class FullFactors:
    """E[G^T A G] over the outputs of all layers one after another, and the mean (extended) input of each layer."""

    layers: tuple[Layer, ...]
    output_factor: Tensor
    mean_inputs: tuple[Tensor, ...]

    def in_layout(self, problem: Problem, vectors: Tensor) -> Tensor:
        """Vectors ordered layer by layer, rows [W_i, b_i], as flat vectors in the layout of the problem."""
        flat = torch.zeros(problem.num_parameters, vectors.shape[1], dtype=torch.float64)
        start = 0
        for layer in self.layers:
            part = vectors[start : start + layer.size].reshape(*layer.weight_shape, -1)
            start += layer.size
            flat[problem.layout[layer.weight]] = part[:, : layer.num_inputs].flatten(0, 1)
            if layer.with_bias and layer.bias is not None:
                flat[problem.layout[layer.bias]] = part[:, -1]
        return flat


def full_factors(problem: Problem) -> FullFactors:
    """The full output factor (Wu et al. 2022, equation 259) of a network of linear layers, biases included."""
    names = layer_names(problem)
    layers = tuple(find_layer(problem, name, with_bias=f"{name}.bias" in problem.named) for name in names)
    must = "full factors need linear layers that act once per sample"
    if not layers or any(layer.num_positions > 1 or not layer.is_plain for layer in layers):
        raise UnsupportedNetwork(sentence(must, "it has none, or convolutions or tokens"))
    covered = {part for layer in layers for part in (layer.weight, layer.bias if layer.with_bias else None)}
    others = [part for part in problem.layout.names if part not in covered]
    if others:
        raise UnsupportedNetwork(sentence(must, f"parameter '{others[0]}' belongs to none"))
    size = sum(layer.num_outputs for layer in layers)
    total = torch.zeros(size, size, dtype=torch.float64)
    means = [torch.zeros(layer.weight_shape[1], dtype=torch.float64) for layer in layers]
    mass = float(problem.weights.sum())
    for batch in problem.batches(samples_at_once(problem, layers[0])):
        seen = [layer_batch(problem, layer, "gauss_newton", batch) for layer in layers]
        rows = torch.cat([part.rows[:, :, 0] for part in seen], 2).flatten(0, 1)
        signs = seen[0].signs
        total += rows.T @ (rows if signs is None else rows * signs.flatten()[:, None])
        for mean, part in zip(means, seen, strict=True):
            mean += (part.weights / mass) @ part.inputs[:, 0]
    return FullFactors(layers, (total + total.T) / 2, tuple(means))
