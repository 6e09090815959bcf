"""The same four questions put to hessmap and to each peer: products, top eigenvalues, density, trace.

A peer's product is counted. Where the whole answer would take longer than ``LIMIT`` seconds, a part of it is run and
the seconds are scaled up: the row then says ``part``, the share that was run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from harness import forget_peak, now, peak_bytes, processor_now
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import hessmap as hm
from cases import Case, TokenEncoder

LIMIT = 8.0
BUDGET = 2**32
DENSE = 3000  # parameters up to which the matrix may be written down


@dataclass
class Answer:
    """What one library gave: seconds of the clock and of the processor, products, and the answer itself."""

    seconds: float
    processor_seconds: float
    products: int
    value: Any
    part: float = 1.0
    notes: str = ""
    is_measured: bool = True  # False where a part was timed and no answer came of it
    peak_bytes: int = 0  # beyond what was held before the clock started


def clocked(work: Callable[[], Any], products: int = 0, part: float = 1.0, notes: str = "") -> Answer:
    before = forget_peak(give_back=False)  # pages that a clock must fetch again would be its own
    start, processor = now(), processor_now()
    value = work()
    elapsed = now() - start, processor_now() - processor
    peak = peak_bytes() - before
    return Answer(elapsed[0] / part, elapsed[1] / part, products, value, part, notes, peak_bytes=peak)


def share(products: int, seconds_each: float) -> float:
    """The part of that many products that fits the limit, at least three of them."""
    return min(1.0, max(3 / max(1, products), LIMIT / max(1e-9, products * seconds_each)))


@contextmanager
def ready(case: Case) -> Iterator[None]:
    """What the peers need to run at all: the number format by default, attention by its math kernel."""
    before, fast = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    torch.set_default_dtype(case.dtype)
    torch.backends.mha.set_fastpath_enabled(False)
    attends = isinstance(case.model, TokenEncoder)
    try:
        with sdpa_kernel(SDPBackend.MATH) if attends else nullcontext(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(before)
        torch.backends.mha.set_fastpath_enabled(fast)


def cross_entropy(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


class Ours:
    name = "hessmap"

    compile = False

    def __init__(self, case: Case, dense: bool = False) -> None:
        """``dense`` writes the matrix down where it is small, which pays from some hundred products on."""
        self.is_dense = dense and case.num_parameters <= DENSE
        self.problem = hm.Problem(
            *(case.model, "cross_entropy", case.inputs, case.labels),
            **{"memory_budget": BUDGET, "dtype": case.dtype, "compile": self.compile},
        )
        self.operator = hm.loss_hessian(self.problem)
        if self.is_dense:
            self.operator.to_dense()

    def product(self, vector: Tensor) -> Tensor:
        return self.operator.matmat(vector[:, None])[:, 0]

    def block(self, vectors: Tensor) -> Tensor:
        return self.operator.matmat(vectors)


class OursCompiled(Ours):
    """The same with its products traced and compiled, which is done before a clock starts."""

    name = "hessmap, compiled"
    compile = True


class Curvlinops:
    name = "curvlinops"

    def __init__(self, case: Case) -> None:
        from curvlinops import HessianLinearOperator

        data = [(case.inputs, case.labels)]
        parameters = list(case.model.parameters())
        self.operator = HessianLinearOperator(
            case.model, nn.CrossEntropyLoss(), parameters, data, check_deterministic=False
        )

    def product(self, vector: Tensor) -> Tensor:
        return (self.operator @ vector).detach()

    def block(self, vectors: Tensor) -> Tensor:
        return (self.operator @ vectors).detach()


class Eigenthings:
    name = "hessian-eigenthings"

    def __init__(self, case: Case) -> None:
        import hessian_eigenthings as peer

        self.operator = peer.HessianOperator(case.model, [(case.inputs, case.labels)], cross_entropy)

    def product(self, vector: Tensor) -> Tensor:
        return self.operator.matvec(vector)

    def block(self, vectors: Tensor) -> Tensor:
        return torch.stack([self.operator.matvec(vector) for vector in vectors.T.contiguous()], 1)

    def remover(self, vector: Tensor) -> Callable[[Tensor], Any]:
        """What its Lanczos does with each earlier vector."""
        from hessian_eigenthings.linalg import SingleDeviceBackend

        backend = SingleDeviceBackend()
        return lambda other: backend.axpy(-backend.dot(vector, other).item(), vector, other)


class PyHessian:
    name = "PyHessian"

    def __init__(self, case: Case) -> None:
        from pyhessian import hessian
        from pyhessian.utils import hessian_vector_product

        torch.eig = _eig  # type: ignore[assignment]
        case.model.zero_grad(set_to_none=True)
        self.operator = hessian(case.model, nn.CrossEntropyLoss(), data=(case.inputs, case.labels), cuda=False)
        self._product = hessian_vector_product

    def product(self, vector: Tensor) -> Tensor:
        image = self._product(self.operator.gradsH, self.operator.params, self._split(vector))
        return torch.cat([part.reshape(-1) for part in image])

    def _split(self, vector: Tensor) -> list[Tensor]:
        parameters = self.operator.params
        split = torch.split(vector, [parameter.numel() for parameter in parameters])
        return [part.reshape(parameter.shape) for part, parameter in zip(split, parameters, strict=True)]

    def remover(self, vector: Tensor) -> Callable[[Tensor], Any]:
        """What its density does with each earlier vector."""
        from pyhessian.utils import group_add, group_product

        own = self._split(vector)
        return lambda other: group_add(list(self._split(other)), own, alpha=-group_product(self._split(other), own))

    def block(self, vectors: Tensor) -> Tensor:
        return torch.stack([self.product(vector) for vector in vectors.T.contiguous()], 1)


def _eig(matrix: Tensor, eigenvectors: bool = False) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eigh(matrix)
    return torch.stack([values, torch.zeros_like(values)], 1), vectors


LIBRARIES: dict[str, type] = {
    library.name: library for library in (Ours, OursCompiled, Curvlinops, Eigenthings, PyHessian)
}


class Adapter:
    """A product as the operator that hessian-eigenthings asks for, counted."""

    def __init__(self, product: Callable[[Tensor], Tensor], size: int) -> None:
        self.num_products = 0
        self.size, self.dtype, self.device = size, torch.get_default_dtype(), torch.device("cpu")
        self._product = product

    def matvec(self, vector: Tensor) -> Tensor:
        self.num_products += 1
        return self._product(vector)

    def scipy(self) -> Any:
        from scipy.sparse.linalg import LinearOperator

        def matvec(vector: Any) -> Any:
            given = torch.from_numpy(np.array(vector, dtype=np.float64).reshape(-1)).to(self.dtype)
            return self.matvec(given).double().numpy()

        return LinearOperator((self.size, self.size), matvec=matvec, dtype=np.float64)
