"""Softmax cross-entropy."""

from __future__ import annotations

from torch import Tensor

from hessmap.curvature.losses.loss import Loss, checked_labels


class CrossEntropy(Loss):
    """-log softmax(output)[label]."""

    name = "cross_entropy"

    def prepare(self, targets: Tensor, output_dim: int) -> Tensor:
        return checked_labels(targets, output_dim)

    def value(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """log sum exp(output - output[label]), the label's term a constant: its derivatives never hold p_y - 1."""
        labels = targets[:, None]
        margins = (outputs - outputs.gather(1, labels)).scatter(1, labels, 0.0)
        return margins.logsumexp(1)

    def gradient(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """p - one_hot, the label's entry as minus the sum of the others: p_y - 1 would cancel on fitted samples."""
        probabilities = outputs.softmax(1)
        others = probabilities.scatter(1, targets[:, None], 0.0)
        return others.scatter(1, targets[:, None], -others.sum(1, keepdim=True))

    def hessian(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """diag(p) - p p^T, through its root so that fitted samples keep their relative accuracy."""
        root = self.hessian_root(outputs, targets)
        return root @ root.mT

    def hessian_root(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """diag(sqrt p) - p sqrt(p)^T; its diagonal sqrt(p) (1 - p) uses the sum of the other probabilities."""
        probabilities = outputs.softmax(1)
        roots = probabilities.sqrt()
        largest = probabilities.argmax(1, keepdim=True)
        complement = 1 - probabilities
        others = probabilities.scatter(1, largest, 0.0).sum(1, keepdim=True)
        complement = complement.scatter(1, largest, others)
        factor = -probabilities[:, :, None] * roots[:, None, :]
        return factor.diagonal_scatter(roots * complement, dim1=1, dim2=2)
