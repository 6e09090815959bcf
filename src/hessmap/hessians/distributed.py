"""One operator over data that are sharded over processes: a block product is one all-reduce."""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from hessmap.errors import NotReproducible, RankLost, require, sentence
from hessmap.hessians.operators import Hessian
from hessmap.linalg import SymmetricOperator, is_out_of_memory
from hessmap.records import Provenance


class AcrossRanks(SymmetricOperator):
    """The mean over the shards of all processes, each weighted by the samples that count in it.

    Every process must make the same calls in the same order; the same seeds and the same all-reduced products keep
    iterations in step.
    """

    def __init__(self, local: Hessian, timeout: float = 60.0) -> None:
        must = "data-parallel products need an initialised process group"
        ready = dist.is_available() and dist.is_initialized()
        require(ready, must, "there is none", "Call torch.distributed.init_process_group, as under torchrun")
        require(0 < timeout < float("inf"), "timeout must be positive and finite, in seconds", f"got {timeout}")
        self.local = local
        self.timeout = timeout
        self.layout = local.layout
        self.dtype = local.dtype
        mass = torch.tensor([local.problem.mass], dtype=torch.float64)
        self.share = local.problem.mass / float(self._sum_over_ranks(mass))
        self._require_one_point(local.problem.parameters)

    @property
    def size(self) -> int:
        return self.local.size

    @property
    def provenance(self) -> Provenance | None:
        return self.local.provenance

    def matmat(self, vectors: Tensor) -> Tensor:
        return self._sum_over_ranks(self.share * self.local.matmat(vectors))

    def _sum_over_ranks(self, part: Tensor) -> Tensor:
        total = part.contiguous().clone()
        try:
            work = dist.all_reduce(total, async_op=True)
            assert work is not None
            work.wait(timedelta(seconds=self.timeout))
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            must = f"every process must answer within {self.timeout:g} s"
            got = (
                f"process {dist.get_rank()} of {dist.get_world_size()} got: {str(error).strip().splitlines()[0][:160]}"
            )
            raise RankLost(sentence(must, got, "Look for a process that died, or raise timeout=")) from error
        return total

    def _require_one_point(self, parameters: Tensor) -> None:
        """All processes differentiate at the same parameters: the sum of squared distances from the mean is zero."""
        own = parameters.to("cpu", torch.float64)
        mean = self._sum_over_ranks(own / dist.get_world_size())
        apart = float(self._sum_over_ranks((own - mean).abs().max()[None])[0])
        if apart > 1e-12 * max(1.0, float(mean.abs().max())):
            must, got = "all processes must hold the same parameters", f"they differ by up to {apart:.2g}"
            raise NotReproducible(sentence(must, got, "Broadcast the model from process 0 first"))


def across_ranks(local: Hessian, *, timeout: float = 60.0) -> AcrossRanks:
    """The operator of all shards, from that of this process: ``across_ranks(loss_hessian(problem))``.

    Args:
        local: The Hessian on the samples of this process.
        timeout: Seconds after which a process that does not answer is an error in the others. Defaults to 60.

    Returns:
        AcrossRanks: The mean over the samples of all processes.

    Notes:
        Tested with gloo on CPUs; nccl takes the same code path and is untested.
    """
    return AcrossRanks(local, timeout)
