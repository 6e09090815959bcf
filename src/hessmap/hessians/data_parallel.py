"""One operator over data that are split over processes: a block product is one all-reduce, and exact."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from hessmap.errors import NotReproducible, sentence
from hessmap.hessians.operators import Hessian, loss_hessian
from hessmap.linalg import Processes, SymmetricOperator, spectral_norm, widest_dtype
from hessmap.records import Provenance


class DistributedHessian(SymmetricOperator):
    """The mean over the samples of all processes: the Hessian of each, weighted by the samples that count in it.

    Every process must make the same calls in the same order; equal seeds and equal products keep iterations in step.
    Diagonals, traces and dense forms are sums over the processes too, each found by the engine of the local Hessian.

    Args:
        local: The Hessian on the samples of this process.
        timeout: Seconds after which a process that does not answer is an error in the others. Defaults to 60.
    """

    makes_new_images = True

    def __init__(self, local: Hessian, timeout: float = 60.0) -> None:
        self.processes = Processes(timeout=timeout)
        self.local = local
        self.layout = local.layout
        self.dtype, self.device = local.dtype, local.device
        own = torch.tensor([local.problem.normaliser, local.problem.num_samples], dtype=torch.float64)
        mass, num_samples = self.processes.sum_numbers(own).tolist()
        self.share = local.problem.normaliser / mass
        self._note = f"the mean over {int(num_samples)} samples of {self.processes.count} processes"
        self._require_one_point(local.problem.parameters)

    @property
    def size(self) -> int:
        return self.local.size

    @cached_property
    def block_size(self) -> int:
        return int(self.processes.largest(self.local.block_size))

    @property
    def product_error(self) -> float:
        """Relative error of products beyond rounding: that of finite differences, else 0.0."""
        return self.local.product_error

    @cached_property
    def scale(self) -> float | None:
        """||H_L|| over all samples, to which thresholds of all parts are relative, as for the local Hessians."""
        if self.local.part == "empirical_fisher":
            return None
        whole = loss_hessian(self.local.problem)
        return spectral_norm(lambda vectors: self._sum(whole.matmat(vectors.to(self.device, self.dtype))), self.size)

    @property
    def provenance(self) -> Provenance | None:
        own = self.local.provenance
        return replace(own, notes=(*own.notes, self._note))

    def matmat(self, vectors: Tensor) -> Tensor:
        return self._sum(self.local.matmat(vectors))

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        """The sum of the diagonals of all processes, if every one of them has its own."""
        own = self.local.exact_diagonal(max_products)
        if self.processes.largest(float(own is None)):
            return None
        assert own is not None
        return self.processes.sum_numbers(self.share * own)

    def to_dense(self) -> Tensor:
        """The sum of the dense forms of all processes."""
        return self._sum(self.local.to_dense())

    def _sum(self, own: Tensor) -> Tensor:
        return self.processes.sum(self.share * own)

    def _require_one_point(self, parameters: Tensor) -> None:
        """All processes differentiate at the same parameters: none is apart from their mean."""
        own = parameters.to(widest_dtype(parameters.device))
        mean = self.processes.sum(own / self.processes.count)
        apart = self.processes.largest(float((own - mean).abs().max()))
        allowed = 1e-12 if own.dtype == torch.float64 else 1e-6
        if apart > allowed * max(1.0, float(mean.abs().max())):
            must, got = "all processes must have the same parameters", f"they differ by up to {apart:.2g}"
            raise NotReproducible(sentence(must, got, "Broadcast the model from process 0 first"))


def distributed(local: Hessian, *, timeout: float = 60.0) -> DistributedHessian:
    """The Hessian on the data of all processes, from that of this process: ``distributed(loss_hessian(problem))``.

    Args:
        local: The Hessian on the samples of this process.
        timeout: Seconds after which a process that does not answer is an error in the others. Defaults to 60.

    Returns:
        DistributedHessian: The mean over the samples of all processes, with exact products. Every process gets the
        same results from the same calls.

    Raises:
        InvalidInput: If torch.distributed has no process group, or none with a backend for the problem's device.
        NotReproducible: If the processes have different parameters.
        ProcessLost: If a process ended or did not answer in time; also in every later product.

    Notes:
        Vectors are whole on every process. Models whose parameters are sharded: ``sharded_hessian``.
        Tested with gloo on CPUs; nccl takes the same code path and is untested.
    """
    return DistributedHessian(local, timeout)
