"""Softmax cross-entropy of labels, with torch's options, or of distributions over the classes.

Its Hessian diag(p) - p p^T is applied row by row without a matrix. A vocabulary has tens of thousands of classes: rows
are taken in chunks, so that apart from the result no temporary is as large as the logits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from hessmap.errors import require
from hessmap.linalg import widest_dtype
from hessmap.losses.base import Loss, VectorProduct, checked_labels
from hessmap.losses.positions import over_positions

_CHUNK = 2**17  # entries of a temporary


def row_chunks(rows: Tensor, copies: int = 1) -> Iterator[slice]:
    """Slices of the rows of (.., rows, classes), each with about as many entries as a temporary may have."""
    count, step = rows.shape[-2], max(1, _CHUNK // max(1, copies * rows.shape[-1]))
    return (slice(start, start + step) for start in range(0, count, step))


def softmax_rows(outputs: Tensor) -> Tensor:
    probabilities = torch.empty_like(outputs)
    for part in row_chunks(outputs):
        probabilities[part] = outputs[part].softmax(1)
    return probabilities


def softmax_hessian_product(
    probabilities: Callable[[slice], Tensor], scales: Tensor, top: Tensor, vectors: Tensor
) -> Tensor:
    """scale * (diag(p) - p p^T) v of every row, for vectors (.., rows, classes).

    The Hessian does not see a constant added to v: v is taken relative to its entry at the ``top`` class, the one of
    the largest probability, so that nothing cancels where that probability is nearly one.
    """
    product = torch.empty_like(vectors)
    copies = vectors[..., 0, 0].numel()
    for part in row_chunks(vectors, copies):
        own, given = probabilities(part), _rows_of(vectors, part)
        places = top[part, None].expand(*given.shape[:-1], 1)
        shifted = given - given.gather(-1, places)
        mean = (own * shifted).sum(-1, keepdim=True)
        _rows_of(product, part).copy_((scales[part, None] * own) * (shifted - mean))
    return product


def _rows_of(values: Tensor, part: slice) -> Tensor:
    """``values[..., part, :]`` by ``narrow``: an index that takes all rows is ``aten::alias``, which vmap refuses."""
    return values.narrow(-2, part.start, min(part.stop, values.shape[-2]) - part.start)


class WeightedCrossEntropy(torch.autograd.Function):
    """sum_n weight_n loss_n of logits; of its derivatives no more is kept than the first one.

    ``loss`` gives the values, gradients, and the probabilities that belong to a gradient.
    """

    @staticmethod
    def forward(ctx, outputs, targets, weights, loss):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(outputs, targets, weights)
        ctx.loss = loss
        return (weights * loss.value(outputs, targets)).sum()

    @staticmethod
    def backward(ctx, scale):  # type: ignore[no-untyped-def]
        outputs, targets, weights = ctx.saved_tensors
        gradients = _WeightedGradient.apply(outputs, targets, weights * scale, ctx.loss)  # type: ignore[no-untyped-call]
        return gradients, None, None, None


def _inverse(values: Tensor) -> Tensor:
    return torch.where(values == 0, torch.zeros_like(values), 1 / values)


class _WeightedGradient(torch.autograd.Function):
    """weight_n dloss_n/doutputs, whose own derivative recovers the probabilities from the gradients."""

    @staticmethod
    def forward(ctx, outputs, targets, weights, loss):  # type: ignore[no-untyped-def]
        gradients = loss.gradient(outputs, targets).mul_(weights[:, None])
        # Detached: an output that hooks save would hold its own graph.
        ctx.save_for_backward(gradients.detach(), targets, weights, outputs.argmax(1))
        ctx.loss = loss
        return gradients

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, vectors):  # type: ignore[no-untyped-def]
        gradients, targets, weights, top = ctx.saved_tensors
        totals = ctx.loss.target_mass(targets, gradients.dtype)
        scales = weights * totals
        # gradient = weight (total p - shares); where a weight is zero, so is the product
        by_weight, by_total = _inverse(scales)[:, None], _inverse(totals)[:, None]

        def probabilities(part: slice) -> Tensor:
            shares: Tensor = ctx.loss.shares(targets[part], gradients.shape[1], gradients.dtype)
            found: Tensor = gradients[part] * by_weight[part] + shares * by_total[part]
            return found

        return softmax_hessian_product(probabilities, scales, top, vectors), None, None, None


IGNORED = -100  # torch's


class CrossEntropy(Loss):
    """Softmax cross-entropy, -sum_c share_c log softmax(output)_c.

    The shares of a label are one for its class and zero for the others, before weights and smoothing.

    Args:
        class_weights: Weight of each class, as in ``nn.CrossEntropyLoss``. Defaults to equal weights.
        ignore_index: Label of samples (or positions) that do not count. Defaults to -100.
        label_smoothing: Part of the shares that is spread over all classes. Defaults to 0.
        class_axis: Axis of the classes where a sample has outputs at several positions: 1 or -1. Defaults to what
            the shape of the targets determines.
        takes_distributions: Whether real targets are distributions over the classes. Defaults to False.
    """

    name = "cross_entropy"

    def __init__(
        self,
        class_weights: Tensor | None = None,
        ignore_index: int = IGNORED,
        label_smoothing: float = 0.0,
        class_axis: int | None = None,
        takes_distributions: bool = False,
    ) -> None:
        self.class_weights = None if class_weights is None else class_weights.detach().double()
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.class_axis = class_axis
        self.takes_distributions = takes_distributions
        self.prefers_channels_first = False
        self.predicts_next = False  # whether the label of an output is the one after its own
        self.is_log_likelihood = label_smoothing == 0

    @classmethod
    def of_module(cls, module: nn.CrossEntropyLoss) -> CrossEntropy:
        """What torch's module means; its mean becomes ours, with torch's denominator."""
        loss = cls(module.weight, module.ignore_index, module.label_smoothing, takes_distributions=True)
        loss.name, loss.prefers_channels_first = type(module).__name__, True
        loss.is_sum = module.reduction == "sum"
        if module.weight is not None and module.weight.requires_grad:
            loss.held_weights = (module.weight,)
        return loss

    def for_output_shape(self, output_shape: tuple[int, ...], targets: Tensor) -> Loss:
        if not self.predicts_next:
            return over_positions(self, output_shape, targets, self.class_axis, self.prefers_channels_first)
        must = "shifted labels need outputs (samples, tokens, classes) and labels (samples, tokens)"
        got = f"the model gives {output_shape} per sample and the labels have shape {tuple(targets.shape)}"
        require(len(output_shape) == 2 and targets.ndim == 2 and not targets.is_floating_point(), must, got)
        return over_positions(self, output_shape, targets, self.class_axis, last_label=self.ignore_index)

    def to(self, dtype: torch.dtype, device: torch.device) -> CrossEntropy:
        moved = copy.copy(self)
        if self.class_weights is not None:
            moved.class_weights = self.class_weights.to(device, dtype)
        return moved

    def prepare(self, targets: Tensor, output_dim: int) -> Tensor:
        weights = self.class_weights
        got = f"there are {0 if weights is None else len(weights)} for {output_dim} classes"
        require(weights is None or len(weights) == output_dim, "class weights must be one per class", got)
        if self.takes_distributions and targets.is_floating_point():
            got = f"outputs (samples, {output_dim}) came with targets of shape {tuple(targets.shape)}"
            fits = targets.ndim == 2 and targets.shape[1] == output_dim
            require(fits, "distributions over the classes must have the shape of the outputs", got)
            return targets
        return checked_labels(targets, output_dim, self.ignore_index)

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.cat([self._values(outputs[part], targets[part]) for part in row_chunks(outputs)])

    def _values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Of a label log sum exp(output - output[label]), its own term a constant: derivatives never hold p_y - 1."""
        if targets.is_floating_point():
            return self._entropies(outputs, self.shares(targets, outputs.shape[1], outputs.dtype))
        labels = self._labels_or_zero(targets)[:, None]
        margins = (outputs - outputs.gather(1, labels)).scatter(1, labels, 0.0)
        values = self._label_weights(targets, outputs.dtype) * margins.logsumexp(1)
        if not self.label_smoothing:
            return values
        smooth = self._smooth_shares(targets, outputs.shape[1], outputs.dtype)
        return (1 - self.label_smoothing) * values + self._entropies(outputs, smooth)

    def risk(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        risk: Tensor = WeightedCrossEntropy.apply(outputs, targets, weights, self)  # type: ignore[no-untyped-call]
        return risk

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        gradients = torch.empty_like(outputs)
        for part in row_chunks(outputs):
            gradients[part] = self._gradients(outputs[part], targets[part])
        return gradients

    def _gradients(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """p - one_hot, the label's entry as minus the sum of the others: p_y - 1 would cancel on fitted samples."""
        probabilities = outputs.softmax(1)
        if targets.is_floating_point() or self.label_smoothing:
            shares = self.shares(targets, outputs.shape[1], outputs.dtype)
            return shares.sum(1, keepdim=True) * probabilities - shares
        labels = self._labels_or_zero(targets)[:, None]
        others = self._label_weights(targets, outputs.dtype)[:, None] * probabilities.scatter(1, labels, 0.0)
        return others.scatter(1, labels, -others.sum(1, keepdim=True))

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """diag(p) - p p^T, through its root so that fitted samples keep their relative accuracy."""
        root = self.hessian_factor(outputs, targets)
        return root @ root.mT

    def hessian_product(self, outputs: Tensor, targets: Tensor, weights: Tensor) -> VectorProduct:
        probabilities = softmax_rows(outputs)
        scales, top = weights * self.target_mass(targets, outputs.dtype), outputs.argmax(1)
        return lambda vectors: softmax_hessian_product(lambda part: probabilities[part], scales, top, vectors)

    def hessian_factor(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """diag(sqrt p) - p sqrt(p)^T; its diagonal sqrt(p) (1 - p) uses the sum of the other probabilities."""
        probabilities = outputs.softmax(1)
        roots = probabilities.sqrt()
        largest = probabilities.argmax(1, keepdim=True)
        complement = 1 - probabilities
        others = probabilities.scatter(1, largest, 0.0).sum(1, keepdim=True)
        complement = complement.scatter(1, largest, others)
        factor = -probabilities[:, :, None] * roots[:, None, :]
        root = factor.diagonal_scatter(roots * complement, dim1=1, dim2=2)
        return self.target_mass(targets, outputs.dtype).sqrt()[:, None, None] * root

    def random_gradient(self, outputs: Tensor, targets: Tensor, generator: torch.Generator) -> Tensor:
        """p - one_hot(y) with labels y drawn from the model, by the inverse of the distribution function."""
        probabilities = outputs.softmax(1)
        drawn = torch.rand(len(outputs), 1, generator=generator, dtype=torch.float64).to(outputs)
        labels = (probabilities.cumsum(1) < drawn).sum(1, keepdim=True).clamp(max=outputs.shape[1] - 1)
        ones = torch.ones_like(labels, dtype=outputs.dtype)
        return self.target_mass(targets, outputs.dtype).sqrt()[:, None] * probabilities.scatter_add(1, labels, -ones)

    def target_weights(self, targets: Tensor) -> Tensor:
        """torch divides a weighted or ignoring cross-entropy of labels by the class weights that took part."""
        if targets.is_floating_point():
            return super().target_weights(targets)
        weights = self.class_weights
        return self._label_weights(targets, widest_dtype(targets.device) if weights is None else weights.dtype)

    def _label_weights(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        """The class weight of every label, zero for an ignored one."""
        if self.class_weights is None:
            return (targets != self.ignore_index).to(dtype)
        return torch.where(targets != self.ignore_index, self.class_weights[self._labels_or_zero(targets)], 0.0).to(
            dtype
        )

    def shares(self, targets: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
        """What every class has of a sample's loss, (num_samples, num_classes), with its weight."""
        spread = self._smooth_shares(targets, num_classes, dtype)
        if targets.is_floating_point():
            weights = 1.0 if self.class_weights is None else self.class_weights.to(dtype)
            return spread + (1 - self.label_smoothing) * weights * targets.to(dtype)
        own = (1 - self.label_smoothing) * self._label_weights(targets, dtype)[:, None]
        return spread.scatter_add(1, self._labels_or_zero(targets)[:, None], own)

    def target_mass(self, targets: Tensor, dtype: torch.dtype) -> Tensor:
        """The sum of ``shares`` over the classes: what multiplies the Hessian of softmax."""
        if targets.is_floating_point():
            return self.shares(targets, targets.shape[1], dtype).sum(1)
        masses = self._label_weights(targets, dtype)
        if not self.label_smoothing:
            return masses
        mean_weight = 1.0 if self.class_weights is None else float(self.class_weights.mean())
        smoothed = self.label_smoothing * mean_weight * (targets != self.ignore_index).to(dtype)
        return (1 - self.label_smoothing) * masses + smoothed

    def _smooth_shares(self, targets: Tensor, num_classes: int, dtype: torch.dtype) -> Tensor:
        """What label smoothing gives to every class."""
        each = torch.full((num_classes,), self.label_smoothing / num_classes, dtype=dtype, device=targets.device)
        if self.class_weights is not None:
            each = each * self.class_weights.to(dtype)
        if targets.is_floating_point():
            return each.expand(len(targets), -1)
        return torch.where((targets != self.ignore_index)[:, None], each, 0.0)

    @staticmethod
    def _entropies(outputs: Tensor, shares: Tensor) -> Tensor:
        return -(shares * outputs.log_softmax(1)).sum(1)

    def _labels_or_zero(self, targets: Tensor) -> Tensor:
        """The labels, with any valid one in place of an ignored one, whose weight is zero."""
        return targets.where(targets != self.ignore_index, torch.zeros_like(targets))
