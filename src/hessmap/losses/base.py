"""What curvature asks of a loss: value, gradient and Hessian in the outputs, per sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, require, sentence
from hessmap.linalg import widest_dtype

_NEGLIGIBLE_ROW = 1e-12  # rows count by their squares
VectorProduct = Callable[[Tensor], Tensor]  # of vectors (.., num_samples, output_dim), in the same shape


class Loss(ABC):
    """A loss of one sample. Outputs are (num_samples, output_dim), targets whatever ``prepare`` returns.

    The risk is ``sum_n weight_n loss_n`` with weights that sum to one after ``target_weights`` (see there).
    """

    name: str
    is_log_likelihood = False  # whether it is minus one, with the outputs as natural parameters
    is_sum = False  # whether the risk is the sum over the samples instead of their mean (reduction="sum")
    factor_is_minimal = False  # whether ``hessian_factor`` has no columns to spare
    copies: Mapping[int, Tensor] = MappingProxyType({})  # of tensors of the user's, by their places in memory
    held_weights: tuple[Tensor, ...] = ()  # those with a gradient that are taken for constants

    def prepare(self, targets: Tensor, output_dim: int) -> Tensor:
        """Check the targets once and bring them into the form the other methods read."""
        return targets

    def for_output_shape(self, output_shape: tuple[int, ...], targets: Tensor) -> Loss:
        """The loss for outputs of that shape per sample, with the first targets as they were given."""
        must = f"the loss '{self.name}' needs one vector of outputs per sample"
        got = f"the model gives {output_shape} per sample"
        require(len(output_shape) <= 1, must, got, "Pass a function (outputs, targets) -> one value per sample")
        return self

    def to(self, dtype: torch.dtype, device: torch.device) -> Loss:
        """The loss with its own tensors in a number format and on a device."""
        return self

    def accepts(self, output_shape: tuple[int, ...]) -> bool:
        """Whether outputs of another shape per sample than those it was fitted to are understood."""
        return False

    @abstractmethod
    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Loss of every sample, shape (num_samples,)."""

    def risk(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum over the samples, for reverse mode twice."""
        return (weights * self.value(outputs, targets)).sum()

    @abstractmethod
    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """dloss/doutput, shape (num_samples, output_dim)."""

    @abstractmethod
    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """d2loss/doutput2, shape (num_samples, output_dim, output_dim)."""

    def hessian_product(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> VectorProduct:
        """The product with the weighted Hessians of the samples."""
        matrices = (weights[:, None, None] * self.hessian(outputs, targets)).to(outputs.dtype).detach()
        return lambda vectors: (matrices @ vectors[..., None])[..., 0]

    def hessian_factor(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """B with B B^T = hessian, per sample; only where the loss is convex in the outputs."""
        eigenvalues, vectors = torch.linalg.eigh(self.hessian(outputs, targets))
        lowest, highest = float(eigenvalues.min()), float(eigenvalues.abs().max())
        if lowest < -1e-12 * highest:
            must = f"a square-root factor needs a loss that is convex in the outputs, which '{self.name}' is not here"
            raise InvalidInput(sentence(must, f"an output Hessian has the eigenvalue {lowest:.3g}"))
        root: Tensor = vectors * eigenvalues.clamp(min=0).sqrt()[:, None, :]
        return root

    def random_gradient(self, outputs: Tensor, targets: Tensor, generator: torch.Generator) -> Tensor:
        """A random vector per sample whose second moment is the Hessian in the outputs, (num_samples, output_dim).

        The generator is one of the host, so that a seed gives the same vectors on every device.
        """
        root = self.hessian_factor(outputs, targets)
        signs = torch.randint(2, (len(root), root.shape[2], 1), generator=generator).to(root) * 2 - 1
        return (root @ signs)[..., 0]

    def target_weights(self, targets: Tensor) -> Tensor:
        """What each sample adds to the denominator of the mean; one, unless the loss ignores or weights samples."""
        return torch.ones(targets.shape[0], dtype=widest_dtype(targets.device), device=targets.device)


def one_hot_targets(targets: Tensor, output_dim: int) -> Tensor:
    """Integer labels as one-hot rows; real targets as they are, once their shape fits."""
    if targets.dtype.is_floating_point:
        targets = targets.reshape(len(targets), -1)
        require(
            targets.shape[1] == output_dim,
            f"targets must have one value per output, {output_dim} of them",
            f"each sample has {targets.shape[1]}",
        )
        return targets
    require(
        output_dim > 1,
        "integer targets are labels, which need two outputs or more",
        f"the network has {output_dim} and the targets are {str(targets.dtype).removeprefix('torch.')}",
        "Pass targets.double() if they are regression targets",
    )
    units = torch.nn.functional.one_hot(checked_labels(targets, output_dim), output_dim)
    return units.to(widest_dtype(targets.device))


def checked_labels(targets: Tensor, num_classes: int, ignored: int | None = None) -> Tensor:
    """Integer labels in 0 .. num_classes - 1, or an error that names the first that is not and is not ignored."""
    remedy = "Pass one integer label per sample (torch.long)"
    require(not targets.dtype.is_floating_point, "labels must be integers", f"got {targets.dtype}", remedy)
    require(targets.ndim == 1, "labels must be a vector", f"got shape {tuple(targets.shape)}", remedy)
    labels = targets.long()
    wrong = (labels < 0) | (labels >= num_classes)
    outside = (wrong if ignored is None else wrong & (labels != ignored)).nonzero().flatten()
    if len(outside):
        first = int(outside[0])
        must = f"labels must be in 0..{num_classes - 1} for a network with {num_classes} outputs"
        raise InvalidInput(sentence(must, f"sample {first} has label {int(labels[first])}"))
    return labels


def output_roots(
    loss: Loss, outputs: Tensor, targets: Tensor, weights: Tensor, *, fewest: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Factor the weighted Hessians of a loss in the outputs.

    The triangle of a QR decomposition of the factor has a zero last row where the Hessian has a kernel, as softmax
    has; that row is dropped.

    Args:
        loss: The loss.
        outputs: Outputs (samples, output_dim).
        targets: Prepared targets.
        weights: Weights of the samples.
        fewest: Whether negligible rows are dropped, at the cost of the decomposition. Defaults to True.

    Returns:
        Rows (samples, rank, output_dim), and signs (samples, rank) or None for all positive, with
        rows^T signs rows = weight * d2loss/doutput2.
    """
    try:
        root = loss.hessian_factor(outputs, targets)
    except InvalidInput:  # not convex in the outputs
        values, vectors = torch.linalg.eigh(loss.hessian(outputs, targets))
        return (weights[:, None] * values.abs()).sqrt()[:, :, None] * vectors.mT, signs_of(values)
    if not fewest or loss.factor_is_minimal:
        return root.mT * weights.sqrt()[:, None, None], None
    rows = torch.linalg.qr(root.mT).R * weights.sqrt()[:, None, None]
    sizes = rows.abs().amax(2)
    used = (sizes > _NEGLIGIBLE_ROW * sizes.amax(1, keepdim=True)).any(0)
    return rows[:, used | (torch.arange(len(used), device=used.device) == 0)], None


def signs_of(values: Tensor) -> Tensor:
    """The signs of values, 1 for zero.

    Args:
        values: A tensor.

    Returns:
        Tensor: 1 or -1, in the dtype of the values.
    """
    return torch.where(values < 0, -1.0, 1.0).to(values.dtype)
