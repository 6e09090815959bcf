"""ReLU networks as plain arrays, and networks that are constructed: deeper ones, piecewise linear functions, examples.

A network of arrays can be evaluated, and bounded on a box.

A deeper network for the same function: identity layers where the representation is narrowest.

Reference: Jacot 2023, proof of Theorem 1 (upper bound) and Proposition 5.

Piecewise linear functions as networks of the depth that Corollary 1 of Jacot 2023 states.

Every continuous piecewise linear function on R^n is a signed sum of maxima of at most n + 1 affine functions each (Wang
& Sun 2005). A maximum of p numbers takes ceil(log2 p) layers of pairwise maxima, max(a, b) = (a - b)_+ + b_+ - (-b)_+.

Small functions distinguish the two notions of rank, and ReLU from any leaky ReLU.

Kernel ridge regression is the contrast to deep networks: its Jacobian has all the rank that it can (Jacot 2023,
appendix D.1; corrected, see the functions).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, log2
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


@dataclass(frozen=True, eq=False)
class Layer:
    """z = weight a + bias; a ReLU follows every layer but the last.

    Attributes:
        weight: Weight matrix of the layer.
        bias: Bias vector of the layer.
    """

    weight: Floats
    bias: Floats

    @property
    def squared_norm(self) -> float:
        return float(np.square(self.weight).sum() + np.square(self.bias).sum())


def as_layers(layers: Sequence[tuple[ArrayLike, ArrayLike | None] | Layer]) -> list[Layer]:
    """Validate the layers of a network.

    Args:
        layers: Layers, or pairs of weight and bias (or None), from inputs to outputs.

    Returns:
        list[Layer]: Layers in float64 whose shapes fit.

    Raises:
        InvalidInput: If there is no layer, or one does not take what the one before it gives.
    """
    made: list[Layer] = []
    for place, layer in enumerate(layers):
        weight, bias = (layer.weight, layer.bias) if isinstance(layer, Layer) else layer
        matrix = np.asarray(weight, dtype=np.float64)
        vector = np.zeros(len(matrix)) if bias is None else np.asarray(bias, dtype=np.float64)
        fits = matrix.ndim == 2 and vector.shape == (len(matrix),)
        fits = fits and (not made or made[-1].weight.shape[0] == matrix.shape[1])
        must = "every layer must take what the one before it gives"
        require(fits, must, f"layer {place} has a weight of shape {matrix.shape} and a bias of shape {vector.shape}")
        made.append(Layer(matrix, vector))
    require(len(made) > 0, "a network must have a layer", "there is none")
    return made


def squared_norm(layers: Sequence[Layer]) -> float:
    """||W||^2, weights and biases.

    Args:
        layers: Layers of a network.

    Returns:
        ||W||^2.

    Example:
        >>> squared_norm([Layer(np.array([[3.0, 0.0]]), np.array([4.0]))])
        25.0
    """
    return float(sum(layer.squared_norm for layer in layers))


def bounds_on_box(layers: Sequence[Layer], low: ArrayLike, high: ArrayLike) -> list[tuple[Floats, Floats]]:
    """Bounds on what leaves each layer, behind its ReLU, for all inputs between ``low`` and ``high``.

    Args:
        layers: Layers of a ReLU network; the last one has no activation.
        low: Smallest value of every input.
        high: Largest value of every input.

    Returns:
        list: A pair of lower and upper bounds for each layer, by interval arithmetic: exact up to rounding or wider.

    Raises:
        InvalidInput: If ``low`` exceeds ``high`` anywhere.

    Example:
        >>> difference = Layer(np.array([[1.0, -1.0]]), np.zeros(1))
        >>> [(lower, upper)] = bounds_on_box([difference], [0, 0], [2, 1])
        >>> lower.tolist(), upper.tolist()
        ([-1.0], [2.0])
    """
    lower, upper = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    require(bool((lower <= upper).all()), "a box must have low <= high", f"got {lower} and {upper}")
    found = []
    for place, layer in enumerate(layers):
        middle, radius = (lower + upper) / 2, (upper - lower) / 2
        centre, spread = layer.weight @ middle + layer.bias, np.abs(layer.weight) @ radius
        lower, upper = centre - spread, centre + spread
        if place < len(layers) - 1:
            lower, upper = np.maximum(lower, 0.0), np.maximum(upper, 0.0)
        found.append((lower, upper))
    return found


GivenLayers = Sequence[tuple[ArrayLike, ArrayLike | None] | Layer]


@dataclass(frozen=True, eq=False)
class DeepenedNetwork:
    """``layers`` represent the given function on the box; ``inner_dim`` is the width of what was inserted behind layer
    ``opened_layer`` (from 0).

    Attributes:
        layers: Layers of the deeper network.
        inner_dim: Width of the layers that were inserted.
        opened_layer: Index (from 0) of the layer that was opened.
    """

    layers: tuple[Layer, ...]
    inner_dim: int
    opened_layer: int

    @property
    def squared_norm(self) -> float:
        """An upper bound, by construction, on the representation cost at this depth."""
        return squared_norm(self.layers)


def deepened_network(layers: GivenLayers, num_layers: int, low: ArrayLike, high: ArrayLike) -> DeepenedNetwork:
    """A ReLU network of ``num_layers`` layers equal to the given one for all inputs between ``low`` and ``high``.

    Args:
        layers: Layers of a network.
        num_layers: Number of layers of the result.
        low: Lower corner of the box of inputs.
        high: Upper corner of the box of inputs.

    Returns:
        The deeper network.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        One layer z = W a + b is opened: W = U S V^T of rank k becomes m layers S^(1/m) V^T, S^(1/m), .., U S^(1/m),
        moved by a bias into the positive orthant, where ReLU is the identity. For large m the middle costs k per layer.
        The layer to open is the one that gives the smallest squared norm.

    Example:
        >>> narrow = deepened_network([([[1.0]], None), ([[4.0]], None)], num_layers=3, low=[-1.0], high=[1.0])
        >>> narrow.inner_dim, len(narrow.layers)
        (1, 3)
    """
    openings = _openings(layers, low, high)
    given = [opening.layer for opening in openings]
    count = num_layers - len(given) + 1
    require(count >= 2, f"num_layers must be above the {len(given)} of the network", f"got {num_layers}")
    made = [
        DeepenedNetwork((*given[:place], *opening.opened_layers(count), *given[place + 1 :]), opening.rank, place)
        for place, opening in enumerate(openings)
    ]
    return min(made, key=lambda network: network.squared_norm)


def cost_constant(layers: GivenLayers, inner_dim: int, low: ArrayLike, high: ArrayLike) -> float:
    """C with representation cost <= k L + C at every depth L above the network's own, k the ``inner_dim``.

    Args:
        layers: Layers of a network.
        inner_dim: Inner dimension k of the function.
        low: Lower corner of the box of inputs.
        high: Upper corner of the box of inputs.

    Returns:
        C.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Kind of result: upper bound by construction. A layer of rank k with singular values s, opened into m, costs m
        sum s^(2/m) <= m k + sum (s^2 - 1), because s^(2u) is convex in u; the shift into the positive orthant costs at
        most max(1, s) times the square of the unscaled one, and what takes it back is the same for every m. Reference:
        Jacot 2023, Proposition 5.

    Example:
        >>> cost_constant([([[1.0]], None), ([[1.0]], None)], inner_dim=1, low=[0.0], high=[1.0])
        0.0
    """
    openings = _openings(layers, low, high)
    total = sum(opening.layer.squared_norm for opening in openings)
    constants = [
        total - opening.layer.squared_norm + opening.cost_above_rank() - inner_dim * len(openings)
        for opening in openings
        if opening.rank == inner_dim
    ]
    ranks = ", ".join(str(opening.rank) for opening in openings)
    require(bool(constants), f"a weight matrix must have rank {inner_dim}", f"the ranks are {ranks}")
    return float(min(constants))


@dataclass(frozen=True, eq=False)
class _Opening:
    """A layer with its singular value decomposition, and the smallest entries of V^T a over the box."""

    layer: Layer
    left: Floats
    values: Floats
    right: Floats
    lowest: Floats

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def shift(self) -> Floats:
        return np.maximum(0.0, -self.lowest)

    @property
    def last_bias(self) -> Floats:
        """The bias that takes the shift back; it does not depend on the number of layers."""
        return self.layer.bias - self.left @ (self.values * self.shift)

    def opened_layers(self, count: int) -> list[Layer]:
        roots = self.values ** (1.0 / count)
        first = Layer(roots[:, None] * self.right, roots * self.shift)
        middle = [Layer(np.diag(roots), np.zeros(self.rank)) for _ in range(count - 2)]
        return [first, *middle, Layer(self.left * roots, self.last_bias)]

    def cost_above_rank(self) -> float:
        """An upper bound on what the opened layers cost beyond their number times the rank, plus one rank."""
        biases = (np.maximum(1.0, self.values) * self.shift**2).sum() + np.square(self.last_bias).sum()
        return float(np.square(self.values).sum() + biases)


def _openings(layers: GivenLayers, low: ArrayLike, high: ArrayLike) -> list[_Opening]:
    given = as_layers(layers)
    box = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    must = "the box must have the dimension of the inputs"
    wanted = (given[0].weight.shape[1],)
    require(box[0].shape == box[1].shape == wanted, must, f"got shapes {box[0].shape} and {box[1].shape}")
    entering = [box, *bounds_on_box(given, *box)[:-1]]
    return [_opening(layer, *bounds) for layer, bounds in zip(given, entering, strict=True)]


def _opening(layer: Layer, low: Floats, high: Floats) -> _Opening:
    left, values, right = np.linalg.svd(layer.weight, full_matrices=False)
    floor = max(layer.weight.shape) * np.finfo(np.float64).eps * values.max(initial=0.0)
    rank = max(1, int((values > floor).sum()))
    lowest = right[:rank] @ ((low + high) / 2) - np.abs(right[:rank]) @ ((high - low) / 2)
    return _Opening(layer, left[:, :rank], values[:rank], right[:rank], lowest)


Maximum = tuple[float, ArrayLike, ArrayLike]  # sign or factor, slopes (pieces x inputs), offsets
_PAIR_IN = np.array([[1.0, -1.0], [0.0, 1.0], [0.0, -1.0]])  # (a, b) to a - b, b, -b
_PAIR_OUT = np.array([[1.0, 1.0, -1.0]])
_SINGLE_IN, _SINGLE_OUT = np.array([[1.0], [-1.0]]), np.array([[1.0, -1.0]])  # a = a_+ - (-a)_+


def piecewise_linear_network(maxima: Sequence[Maximum]) -> list[Layer]:
    """A ReLU network for the sum of factor_i * max_j (slope_ij . x + offset_ij), of depth ceil(log2 p) + 1.

    Args:
        maxima: The terms factor_i max_j (slope_ij . x + offset_ij).

    Returns:
        The layers of the network.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        p is the largest number of pieces of a maximum: n + 1 is enough for every continuous piecewise linear function
        on R^n, so that ceil(log2(n + 1)) + 1 layers are. Kind of result: construction. Reference: Jacot 2023, Corollary
        1 and Remark 1 (after Arora et al. 2018, Theorem 2.1).

    Example:
        >>> layers = piecewise_linear_network([(1.0, [[1.0], [-1.0]], [0.0, 0.0])])    # |x|
        >>> len(layers), [layer.weight.shape for layer in layers]
        (2, [(3, 1), (1, 3)])
    """
    require(len(maxima) > 0, "there must be at least one maximum", "the list is empty")
    pieces = [np.atleast_2d(np.asarray(slopes, dtype=np.float64)) for _, slopes, _ in maxima]
    offsets = [np.asarray(offset, dtype=np.float64) for _, _, offset in maxima]
    fits = all(len(one) == len(other) for one, other in zip(pieces, offsets, strict=True))
    fits = fits and len({piece.shape[1] for piece in pieces}) == 1
    require(fits, "every piece must have an offset, and all the same inputs", "they do not pair up")
    factors = np.array([[factor for factor, _, _ in maxima]], dtype=np.float64)
    weight, bias, counts = np.vstack(pieces), np.concatenate(offsets), [len(piece) for piece in pieces]
    layers: list[Layer] = []
    for _ in range(max(1, ceil(log2(max(counts))))):
        into, out, counts = _pairwise(counts)
        layers.append(Layer(into @ weight, into @ bias))
        weight, bias = out, np.zeros(len(out))
    return [*layers, Layer(factors @ weight, factors @ bias)]


def leaky_network(layers: Sequence[tuple[ArrayLike, ArrayLike | None] | Layer], slope: float) -> list[Layer]:
    """The same function as a ReLU network's with units sigma_a, x for x >= 0 and a x below: twice the hidden units.

    Args:
        layers: Layers of a network.
        slope: Slope a for negative inputs.

    Returns:
        The layers of the network.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        (x)_+ = (sigma_a(x) + a sigma_a(-x)) / (1 - a^2) for every hidden unit. Reference: Jacot 2023, proof of
        Corollary 1, which prints a minus (see ``relu_from_leaky``).

        >>> [layer.weight.tolist() for layer in leaky_network([([[1.0]], None), ([[3.0]], None)], slope=0.5)]
        [[[1.0], [-1.0]], [[4.0, 2.0]]]
    """
    require(-1 < slope < 1, "the slope must be between -1 and 1", f"got {slope}")
    given = as_layers(layers)
    made = []
    for place, layer in enumerate(given):
        weight, bias = layer.weight, layer.bias
        if place > 0:
            weight = np.hstack([weight, slope * weight]) / (1 - slope**2)
        if place < len(given) - 1:
            weight, bias = np.vstack([weight, -weight]), np.concatenate([bias, -bias])
        made.append(Layer(weight, bias))
    return made


def _pairwise(counts: Sequence[int]) -> tuple[Floats, Floats, list[int]]:
    """Matrices before and behind the units that halve every group of values, and the sizes of the halved groups."""
    into, out, halved = [], [], []
    for count in counts:
        pairs, single = divmod(count, 2)
        into += [_PAIR_IN] * pairs + [_SINGLE_IN] * single
        out += [_PAIR_OUT] * pairs + [_SINGLE_OUT] * single
        halved.append(pairs + single)
    return _diagonal(into), _diagonal(out), halved


def _diagonal(blocks: Sequence[Floats]) -> Floats:
    shape = sum(len(block) for block in blocks), sum(block.shape[1] for block in blocks)
    whole, row, column = np.zeros(shape), 0, 0
    for block in blocks:
        whole[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return whole


def cross_map(points: ArrayLike) -> Floats:
    """f(x) = (sign(x_0) m, sign(x_1) m), m = min(|x_0|, |x_1|): Jacobian rank 1 where it exists, bottleneck rank 2.

    Args:
        points: Points, one per row.

    Returns:
        f at every point.

    Notes:
        It is the identity on the diagonal cross |x_0| = |x_1|, whose four arms do not embed in a line. Reference: Jacot
        2023, Example 1, prints the larger of the two instead of the smaller; corrected: that function jumps across the
        axes, from (1, 1) to (1, -1) at (1, 0), and is not piecewise linear (see ``printed_cross_map``).

    Example:
        >>> cross_map([[-2.0, 0.25]])
        array([[-0.25,  0.25]])
    """
    values = _plane(points)
    return np.asarray(np.sign(values) * np.abs(values).min(axis=1, keepdims=True))


def cross_map_jacobian(point: ArrayLike) -> Floats:
    """Its Jacobian off the axes and the diagonals.

    Args:
        point: The point.

    Returns:
        The Jacobian.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        >>> cross_map_jacobian([-2.0, 0.25])
        array([[ 0., -1.],
               [ 0.,  1.]])
    """
    first, second = _plane(np.asarray(point, dtype=np.float64).reshape(1, -1))[0]
    must = "the point must lie off the axes and the diagonals"
    require(first != 0 and second != 0 and abs(first) != abs(second), must, f"got ({first}, {second})")
    smaller = 0 if abs(first) < abs(second) else 1
    signs = np.sign([first, second])
    jacobian = np.zeros((2, 2))
    jacobian[:, smaller] = signs * signs[smaller]
    return jacobian


def printed_cross_map(points: ArrayLike) -> Floats:
    """Example 1 as printed: (x_0, sign(x_1) |x_0|) if |x_0| >= |x_1|, else (sign(x_0) |x_1|, x_1). Not continuous.

    Args:
        points: Points, one per row.

    Returns:
        The printed function at every point.

    Example:
        >>> printed_cross_map([[1.0, 1e-12], [1.0, -1e-12]])
        array([[ 1.,  1.],
               [ 1., -1.]])
    """
    values = _plane(points)
    return np.asarray(np.sign(values) * np.abs(values).max(axis=1, keepdims=True))


def leaky_relu(values: ArrayLike, slope: float) -> Floats:
    """sigma_a(x) = x for x >= 0 and a x below.

    Args:
        values: Values to map.
        slope: Slope a for negative inputs.

    Returns:
        sigma_a of every value.
    """
    array = np.asarray(values, dtype=np.float64)
    return np.where(array >= 0, array, slope * array)


def relu_from_leaky(values: ArrayLike, slope: float) -> Floats:
    """max(0, x) = (sigma_a(x) + a sigma_a(-x)) / (1 - a^2), for |a| < 1: two units of one kind make one of the other.

    Args:
        values: Values to map.
        slope: Slope a for negative inputs.

    Returns:
        max(0, x) of every value.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Reference: Jacot 2023, Corollary 1, prints a minus; corrected: that gives (1 + a^2) / (1 - a^2) x for x > 0.

    Example:
        >>> relu_from_leaky([2.0, -3.0], slope=0.5).tolist()
        [2.0, 0.0]
    """
    require(-1 < slope < 1, "the slope must be between -1 and 1", f"got {slope}")
    array = np.asarray(values, dtype=np.float64)
    return (leaky_relu(array, slope) + slope * leaky_relu(-array, slope)) / (1 - slope**2)


def _plane(points: ArrayLike) -> Floats:
    array = np.asarray(points, dtype=np.float64)
    require(array.ndim == 2 and array.shape[1] == 2, "points must be rows of two numbers", f"got shape {array.shape}")
    return array


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
    must = f"affine_dim must be between 0 and {limit}"
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
